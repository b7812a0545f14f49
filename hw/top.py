"""The unit: blocks and the streams between them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.arbiter import Arbiter
from hw.bulk_group import BulkGroups
from hw.bulk_setup import BulkSetup
from hw.completion_tracker import CompletionTracker
from hw.descriptor_cache import DescriptorCache
from hw.dispatcher import Dispatcher
from hw.gnic import Gnic, GnicWrite
from hw.im2col_walker import Im2colWalker
from hw.lane_network import LaneNetwork
from hw.layouts import (
    GLOBAL_ADDRESS_BITS,
    BarrierCommand,
    BarrierResult,
    DescriptorFill,
    DescriptorInvalidate,
    ErrorCode,
    error_layout,
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
    group_result_layout,
    lanes_layout,
    refusal_layout,
    request_layout,
    smem_read_layout,
    smem_write_layout,
    walk_job_layout,
)
from hw.mbarrier_unit import BarrierMemory, MbarrierUnit
from hw.params import TmaParams
from hw.request_generator import RequestGenerator, StoreGenerator
from hw.request_queue import RequestQueue
from hw.response_path import ResponsePath
from hw.setup_block import SetupBlock
from hw.store_path import StorePath
from hw.store_tracker import StoreTracker


class Tma(wiring.Component):
    """Copies boxes of tensors, and plain bytes, between global and shared memory.

    A request that is refused, or an access that fails, gives one record on ``error``. Every other
    load gives one ``complete_tx`` of its bytes at its barrier, never before they are in shared
    memory. A store or reduction counts in a bulk group of its thread until its writes are
    performed. Requests are not ordered, and complete in any order.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream) of ``request_layout``
        ``cp.async.bulk``, ``cp.async.bulk.tensor`` and so on, in the order of their issue.
    error : Out(stream) of ``error_layout``
        Requests that were refused or failed.
    descriptor_prefetch : In(stream) of 64 bits
        ``prefetch.tensormap``: the address of a tensor map.
    descriptor_invalidate : In(stream) of ``DescriptorInvalidate``
        ``fence.proxy.tensormap`` acquire.
    descriptor_request : Out(stream) of 64 bits
        A read of 64 bytes of a tensor map.
    descriptor_fill : In(stream) of ``DescriptorFill``
        Its answer; in the order of the requests.
    gnic_request : Out(stream) of ``gnic_request_layout``
        Reads of lines.
    gnic_response : In(stream) of ``gnic_response_layout``
        Their answers, in any order.
    smem_write : Out(stream) of ``smem_write_layout``
        Writes to shared memory.
    smem_read : Out(stream) of ``smem_read_layout``
        Reads of shared memory. This port and the following are there with ``stores``.
    smem_data : In(stream) of ``lanes_layout``
        What was read, in order.
    gnic_write : Out(stream) of ``gnic_write_layout``
        Writes and reductions of lines.
    gnic_ack : In(stream) of ``gnic_ack_layout``
        Their answers, in any order.
    group_result : Out(stream) of ``group_result_layout``
        Threads whose ``wait_group`` is over.
    barrier_command : In(stream) of ``BarrierCommand``
        mbarrier operations of the SM's threads.
    barrier_result : Out(stream) of ``BarrierResult``
        Their results, in order.
    barrier_memory : Out(BarrierMemory)
        The barriers in shared memory.
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "request": In(stream.Signature(request_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
                "descriptor_prefetch": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "descriptor_invalidate": In(stream.Signature(DescriptorInvalidate)),
                "descriptor_request": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "descriptor_fill": In(stream.Signature(DescriptorFill)),
                "gnic_request": Out(stream.Signature(gnic_request_layout(params))),
                "gnic_response": In(stream.Signature(gnic_response_layout(params))),
                "smem_write": Out(stream.Signature(smem_write_layout(params))),
                **(store_ports(params) if params.stores else {}),
                "barrier_command": In(stream.Signature(BarrierCommand)),
                "barrier_result": Out(stream.Signature(BarrierResult)),
                "barrier_memory": Out(BarrierMemory()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.request_queue = request_queue = RequestQueue(p)
        m.submodules.descriptor_cache = descriptor_cache = DescriptorCache(p)
        m.submodules.setup_block = setup_block = SetupBlock(p)
        m.submodules.bulk_setup = bulk_setup = BulkSetup(p)
        m.submodules.jobs = jobs = Arbiter(walk_job_layout(p), 2, packets=True)
        m.submodules.refusals = refusals = Arbiter(refusal_layout(p), 2)
        m.submodules.completion_tracker = completion_tracker = CompletionTracker(p)
        m.submodules.request_generator = request_generator = RequestGenerator(p)
        m.submodules.gnic = gnic = Gnic(p)
        m.submodules.response_path = response_path = ResponsePath(p)
        m.submodules.lane_network = lane_network = LaneNetwork(p)
        m.submodules.mbarrier_unit = mbarrier_unit = MbarrierUnit(p)
        m.submodules.errors = errors = Arbiter(error_layout(p), 4 if p.stores else 3)

        # From the request to its walks.
        connect(m, request_queue.tensor, descriptor_cache.i)
        connect(m, request_queue.bulk, bulk_setup.i)
        connect(m, flipped(self.descriptor_prefetch), descriptor_cache.prefetch)
        connect(m, flipped(self.descriptor_invalidate), descriptor_cache.invalidate)
        connect(m, descriptor_cache.fetch, flipped(self.descriptor_request))
        connect(m, flipped(self.descriptor_fill), descriptor_cache.fill)
        connect(m, descriptor_cache.o, setup_block.i)
        tensor_walks = setup_block.job
        if p.im2col:
            m.submodules.im2col_walker = im2col_walker = Im2colWalker(p)
            connect(m, setup_block.job, im2col_walker.i)
            tensor_walks = im2col_walker.o
            expose(m, "im2col_walker__o", tensor_walks)
        connect(m, tensor_walks, jobs.i[0])
        connect(m, bulk_setup.job, jobs.i[1])
        connect(m, setup_block.error, refusals.i[0])
        connect(m, bulk_setup.error, refusals.i[1])
        if p.stores:
            self._connect_stores(m, request_queue, jobs, refusals, completion_tracker, errors)
        else:
            connect(m, flipped(self.request), request_queue.i)
            connect(m, jobs.o, completion_tracker.i)
            connect(m, refusals.o, errors.i[0])

        # From the walks of loads to lines, and from the lines to the barrier.
        connect(m, completion_tracker.o, request_generator.i)
        connect(m, request_generator.line, gnic.i)
        connect(m, gnic.request, flipped(self.gnic_request))
        connect(m, flipped(self.gnic_response), gnic.response)
        connect(m, gnic.o, response_path.i)
        connect(m, gnic.fault, completion_tracker.fault)
        connect(m, response_path.o, lane_network.line)
        connect(m, request_generator.fill, lane_network.fill)
        connect(m, lane_network.smem_write, flipped(self.smem_write))
        connect(m, lane_network.written, completion_tracker.written)
        connect(m, completion_tracker.completion, mbarrier_unit.completion)
        connect(m, mbarrier_unit.memory, flipped(self.barrier_memory))
        connect(m, flipped(self.barrier_command), mbarrier_unit.command)
        connect(m, mbarrier_unit.result, flipped(self.barrier_result))

        # Errors.
        connect(m, completion_tracker.error, errors.i[1])
        barrier_error = errors.i[2]
        m.d.comb += [
            barrier_error.valid.eq(mbarrier_unit.fault.valid),
            barrier_error.p.request_id.eq(mbarrier_unit.fault.p.request_id),
            barrier_error.p.code.eq(ErrorCode.MBAR_FAULT),
            barrier_error.p.value.eq(mbarrier_unit.fault.p.address),
            mbarrier_unit.fault.ready.eq(barrier_error.ready),
        ]
        connect(m, errors.o, flipped(self.error))

        # The streams between the blocks under names of their own, for waves.
        for name, port in {
            "request_queue__tensor": request_queue.tensor,
            "request_queue__bulk": request_queue.bulk,
            "descriptor_cache__o": descriptor_cache.o,
            "setup_block__job": setup_block.job,
            "setup_block__error": setup_block.error,
            "bulk_setup__job": bulk_setup.job,
            "completion_tracker__o": completion_tracker.o,
            "request_generator__line": request_generator.line,
            "request_generator__fill": request_generator.fill,
            "gnic__o": gnic.o,
            "response_path__o": response_path.o,
            "lane_network__written": lane_network.written,
            "completion_tracker__completion": completion_tracker.completion,
            "completion_tracker__error": completion_tracker.error,
            "mbarrier_unit__fault": mbarrier_unit.fault,
        }.items():
            expose(m, name, port)
        return m

    def _connect_stores(
        self, m: Module, request_queue, jobs, refusals, completion_tracker, errors
    ) -> None:
        """Bulk groups in front of the queue; behind setup, the way of the stores."""
        p = self.params
        m.submodules.bulk_groups = bulk_groups = BulkGroups(p)
        m.submodules.dispatcher = dispatcher = Dispatcher(p)
        m.submodules.store_tracker = store_tracker = StoreTracker(p)
        m.submodules.store_generator = store_generator = StoreGenerator(p)
        m.submodules.store_path = store_path = StorePath(p)
        m.submodules.gnic_write = gnic_write = GnicWrite(p)

        connect(m, flipped(self.request), bulk_groups.i)
        connect(m, bulk_groups.o, request_queue.i)
        connect(m, bulk_groups.result, flipped(self.group_result))
        connect(m, jobs.o, dispatcher.job)
        connect(m, refusals.o, dispatcher.refusal)
        connect(m, dispatcher.error, errors.i[0])
        connect(m, dispatcher.released, bulk_groups.released)
        connect(m, dispatcher.load, completion_tracker.i)

        # From the walks of stores to lines, and from the answers to the group.
        connect(m, dispatcher.store, store_tracker.i)
        connect(m, store_tracker.o, store_generator.i)
        connect(m, store_generator.o, store_path.i)
        connect(m, store_path.smem_read, flipped(self.smem_read))
        connect(m, flipped(self.smem_data), store_path.smem_data)
        connect(m, store_path.source_read, store_tracker.slot_read)
        connect(m, store_path.o, gnic_write.i)
        connect(m, gnic_write.request, flipped(self.gnic_write))
        connect(m, flipped(self.gnic_ack), gnic_write.ack)
        connect(m, gnic_write.performed, store_tracker.performed)
        connect(m, store_tracker.source_read, bulk_groups.source_read)
        connect(m, store_tracker.complete, bulk_groups.complete)
        connect(m, store_tracker.error, errors.i[3])

        for name, port in {
            "bulk_groups__o": bulk_groups.o,
            "dispatcher__load": dispatcher.load,
            "dispatcher__store": dispatcher.store,
            "dispatcher__released": dispatcher.released,
            "store_tracker__o": store_tracker.o,
            "store_generator__o": store_generator.o,
            "store_path__o": store_path.o,
            "gnic_write__performed": gnic_write.performed,
            "store_tracker__source_read": store_tracker.source_read,
            "store_tracker__complete": store_tracker.complete,
        }.items():
            expose(m, name, port)


def store_ports(params: TmaParams) -> dict:
    """The ports that a unit has for stores."""
    return {
        "smem_read": Out(stream.Signature(smem_read_layout(params))),
        "smem_data": In(stream.Signature(lanes_layout(params))),
        "gnic_write": Out(stream.Signature(gnic_write_layout(params))),
        "gnic_ack": In(stream.Signature(gnic_ack_layout(params))),
        "group_result": Out(stream.Signature(group_result_layout(params))),
    }


def expose(m: Module, name: str, port) -> None:
    """Give the parts of a stream names that do not depend on how modules are flattened."""
    for part in ("valid", "ready", "payload"):
        value = getattr(port, part)
        m.d.comb += Signal(value.shape(), name=f"{name}__{part}").eq(value)
