"""The unit: blocks and the streams between them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.arbiter import Arbiter
from hw.bulk_setup import BulkSetup
from hw.completion_tracker import CompletionTracker
from hw.descriptor_cache import DescriptorCache
from hw.gnic import Gnic
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
    gnic_request_layout,
    gnic_response_layout,
    request_layout,
    smem_write_layout,
    walk_job_layout,
)
from hw.mbarrier_unit import BarrierMemory, MbarrierUnit
from hw.params import TmaParams
from hw.request_generator import RequestGenerator
from hw.request_queue import RequestQueue
from hw.response_path import ResponsePath
from hw.setup_block import SetupBlock


class Tma(wiring.Component):
    """Copies boxes of tensors, and plain bytes, from global to shared memory; signals barriers.

    A request that is refused, or a read that fails, gives one record on ``error``; every other
    request gives one ``complete_tx`` of its bytes at its barrier, never before they are in shared
    memory. Requests complete in any order.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream) of ``request_layout``
        ``cp.async.bulk.tensor`` and ``cp.async.bulk`` of the SM's threads.
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
        m.submodules.completion_tracker = completion_tracker = CompletionTracker(p)
        m.submodules.request_generator = request_generator = RequestGenerator(p)
        m.submodules.gnic = gnic = Gnic(p)
        m.submodules.response_path = response_path = ResponsePath(p)
        m.submodules.lane_network = lane_network = LaneNetwork(p)
        m.submodules.mbarrier_unit = mbarrier_unit = MbarrierUnit(p)
        m.submodules.errors = errors = Arbiter(error_layout(p), 4)

        # From the request to its lines.
        connect(m, flipped(self.request), request_queue.i)
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
        connect(m, jobs.o, completion_tracker.i)
        connect(m, completion_tracker.o, request_generator.i)
        connect(m, request_generator.line, gnic.i)
        connect(m, gnic.request, flipped(self.gnic_request))

        # From the lines to the barrier.
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
        connect(m, setup_block.error, errors.i[0])
        connect(m, bulk_setup.error, errors.i[1])
        connect(m, completion_tracker.error, errors.i[2])
        barrier_error = errors.i[3]
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


def expose(m: Module, name: str, port) -> None:
    """Give the parts of a stream names that do not depend on how modules are flattened."""
    for part in ("valid", "ready", "payload"):
        value = getattr(port, part)
        m.d.comb += Signal(value.shape(), name=f"{name}__{part}").eq(value)
