"""The unit: blocks and the streams between them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.barrier.mbarrier_unit import BarrierMemory, MbarrierUnit
from hw.barrier.tx_coalescer import TxCoalescer
from hw.cluster.barrier_router import as_update
from hw.cluster.cluster_port import ClusterPort, unit_ports
from hw.front.bulk_group import BulkGroups
from hw.front.descriptor_cache import DescriptorCache
from hw.front.destination import Destination
from hw.front.request_queue import RequestQueue
from hw.generate.request_generator import RequestGenerator
from hw.generate.store_generator import StoreGenerator
from hw.layouts.barriers import BarrierCommand, BarrierResult, BarrierWake
from hw.layouts.isa import GLOBAL_ADDRESS_BITS, ErrorCode
from hw.layouts.jobs import channel_of, refusal_layout, stream_of, walk_job_layout
from hw.layouts.ports import (
    DescriptorFill,
    DescriptorInvalidate,
    error_layout,
    error_record_layout,
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
    group_result_layout,
    issuer_field,
    lanes_layout,
    request_layout,
    smem_read_layout,
    smem_write_layout,
)
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.load.completion_tracker import CompletionTracker
from hw.load.gnic import Gnic
from hw.load.lane_network import LaneNetwork
from hw.load.response_path import ResponsePath
from hw.params import TmaParams
from hw.setup.block import SetupBlock
from hw.setup.bulk_setup import BulkSetup
from hw.setup.dispatcher import Dispatcher
from hw.store.gnic_write import GnicWrite
from hw.store.store_path import StorePath
from hw.store.store_tracker import StoreTracker


def tma_ports(params: TmaParams) -> dict:
    """The ports of a unit."""
    ports = {
        "request": In(stream.Signature(request_layout(params))),
        "request_room": Out(wiring.Signature({"channels": Out(params.channels)})),
        "error": Out(stream.Signature(error_record_layout(params))),
        "descriptor_prefetch": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
        "descriptor_invalidate": In(stream.Signature(DescriptorInvalidate)),
        "descriptor_request": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
        "descriptor_fill": In(stream.Signature(DescriptorFill)),
        "gnic_request": Out(stream.Signature(gnic_request_layout(params))),
        "gnic_response": In(stream.Signature(gnic_response_layout(params))),
        "smem_write": Out(stream.Signature(smem_write_layout(params))),
    }
    if params.stores:
        ports |= {
            "smem_read": Out(stream.Signature(smem_read_layout(params))),
            "smem_data": In(stream.Signature(lanes_layout(params))),
            "gnic_write": Out(stream.Signature(gnic_write_layout(params))),
            "gnic_ack": In(stream.Signature(gnic_ack_layout(params))),
            "group_result": Out(stream.Signature(group_result_layout(params))),
        }
    ports |= {
        "barrier_command": In(stream.Signature(BarrierCommand)),
        "barrier_result": Out(stream.Signature(BarrierResult)),
        "barrier_wake": Out(stream.Signature(BarrierWake)),
        "barrier_memory": Out(BarrierMemory()),
    }
    if params.ctas > 1:
        ports |= unit_ports(params)
    return ports


class Tma(wiring.Component):
    """Copies boxes of tensors, and plain bytes, between global and shared memory.

    A request that is refused, or an access that fails, gives one record on ``error``. Every other
    load gives one ``complete_tx`` of its bytes at its barrier, never before they are in shared
    memory; what goes to other CTAs is signalled by each receiver, part by part. A store or
    reduction counts in a bulk group of its thread until its writes are performed. Requests are not
    ordered, and complete in any order.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream) of ``request_layout``
        ``cp.async.bulk``, ``cp.async.bulk.tensor`` and so on, in the order of their issue.
    request_room : Out; ``channels``, a bit for each
        Requests of the channel will not hold back others at ``request``: channel n is the loads of
        stream n (see ``TmaParams.streams``), the last one all stores.
    error : Out(stream) of ``error_record_layout``
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
    barrier_wake : Out(stream) of ``BarrierWake``
        Ends of waits.
    barrier_memory : Out(BarrierMemory)
        The barriers in shared memory.
    cta_rank : In
        Of this SM's CTA in its cluster. This port and the following are there with ``ctas`` above
        1.
    running : In
        A bit for each CTA of the cluster that runs.
    remote_command : In(stream) of ``barrier_message_layout``
        Operations of the SM's threads on barriers of other CTAs.
    remote_store : In(stream) of ``remote_store_layout``
        ``st.async`` and ``red.async``.
    packet_out : Out(stream) of ``addressed_layout`` of ``packet_layout``
        For shared memory of other CTAs.
    packet_in : In(stream) of ``packet_layout``
        From other CTAs.
    message_out : Out(stream) of ``barrier_message_layout``
        For barriers of other CTAs.
    message_in : In(stream) of ``barrier_update_layout``
        From other CTAs.
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(tma_ports(params))

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.destination = destination = Destination(p)
        m.submodules.request_queue = request_queue = RequestQueue(p)
        m.submodules.descriptor_cache = descriptor_cache = DescriptorCache(p)
        m.submodules.setup_block = setup_block = SetupBlock(p)
        m.submodules.refusals = refusals = Arbiter(refusal_layout(p), 2)
        m.submodules.completion_tracker = completion_tracker = CompletionTracker(p)
        m.submodules.request_generator = request_generator = RequestGenerator(p)
        m.submodules.gnic = gnic = Gnic(p)
        m.submodules.response_path = response_path = ResponsePath(p)
        m.submodules.lane_network = lane_network = LaneNetwork(p)
        m.submodules.mbarrier_unit = mbarrier_unit = MbarrierUnit(p)
        errors = [completion_tracker.error]

        # From the request to its jobs.
        connect(m, flipped(self.request), destination.i)
        connect(m, request_queue.tensor, descriptor_cache.i)
        connect(m, flipped(self.descriptor_prefetch), descriptor_cache.prefetch)
        connect(m, flipped(self.descriptor_invalidate), descriptor_cache.invalidate)
        connect(m, descriptor_cache.fetch, flipped(self.descriptor_request))
        connect(m, flipped(self.descriptor_fill), descriptor_cache.fill)
        connect(m, descriptor_cache.o, setup_block.i)
        jobs = setup_block.job
        refused = [Queue(refusal_layout(p), 2) for _ in refusals.i]  # part the ready signals
        for number, (queue, way) in enumerate(zip(refused, refusals.i, strict=True)):
            m.submodules[f"refused_{number}"] = queue
            connect(m, queue.o, way)
        connect(m, setup_block.error, refused[0].i)
        if p.bulk:
            jobs = self._connect_bulk(m, request_queue.bulk, jobs, refused[1].i)
        else:
            self._refuse_bulk(m, request_queue.bulk, refused[1].i)

        # A request that is refused, or whose job leaves for its walk, makes room for another.
        refusal = refusals.o
        m.d.comb += [
            self.request_room.channels.eq(request_queue.room),
            request_queue.refused.eq((refusal.valid & refusal.ready) << refusal.p.channel),
            request_queue.freed[: p.streams].eq(request_generator.freed),
        ]

        # From the jobs of loads to lines, and from the lines to shared memory.
        connect(m, completion_tracker.o, request_generator.i)
        connect(m, request_generator.line, gnic.i)
        connect(m, gnic.request, flipped(self.gnic_request))
        connect(m, flipped(self.gnic_response), gnic.response)
        connect(m, gnic.o, response_path.i)
        connect(m, gnic.fault, completion_tracker.fault)
        connect(m, lane_network.filled, completion_tracker.filled)
        connect(m, lane_network.smem_write, flipped(self.smem_write))

        # In a cluster, lines and signals may go to other SMs, and come from them.
        if p.ctas > 1:
            m.submodules.cluster_port = cluster = ClusterPort(p)
            connect(m, response_path.o, cluster.line)
            connect(m, cluster.local_line, lane_network.line)
            connect(m, request_generator.fill, cluster.fill)
            connect(m, cluster.local_fill, lane_network.fill)
            connect(m, lane_network.written, cluster.written)
            connect(m, cluster.load_written, completion_tracker.written)
            connect(m, cluster.receiver_absent, completion_tracker.receiver_absent)
            connect(m, completion_tracker.completion, cluster.completion)
            connect(m, cluster.update, mbarrier_unit.update)
            for name in unit_ports(p):
                if name not in ("cta_rank", "running"):
                    own, port = getattr(self, name), getattr(cluster, name)
                    is_input = self.signature.members[name].flow is In
                    pair = (flipped(own), port) if is_input else (port, flipped(own))
                    connect(m, *pair)
            m.d.comb += [
                cluster.running.eq(self.running),
                cluster.load_opened.eq(completion_tracker.opened),
                *(
                    block.cta_rank.eq(self.cta_rank)
                    for block in (destination, completion_tracker, cluster)
                ),
            ]
            errors.append(cluster.error)
        else:
            cluster = None
            m.submodules.tx_coalescer = coalescer = TxCoalescer(p)
            connect(m, response_path.o, lane_network.line)
            connect(m, request_generator.fill, lane_network.fill)
            connect(m, lane_network.written, completion_tracker.written)
            connect(m, completion_tracker.completion, coalescer.i)
            m.d.comb += [
                mbarrier_unit.update.valid.eq(coalescer.o.valid),
                coalescer.o.ready.eq(mbarrier_unit.update.ready),
                *as_update(mbarrier_unit.update.p, coalescer.o.p),
            ]

        if p.stores:
            blocks = destination, request_queue, jobs, refusals, completion_tracker, cluster
            errors += self._connect_stores(m, *blocks)
        else:
            connect(m, destination.o, request_queue.i)
            connect(m, jobs, completion_tracker.i)
            errors.append(refusals.o)

        # Barriers, and errors.
        connect(m, mbarrier_unit.memory, flipped(self.barrier_memory))
        connect(m, flipped(self.barrier_command), mbarrier_unit.command)
        connect(m, mbarrier_unit.result, flipped(self.barrier_result))
        connect(m, mbarrier_unit.wake, flipped(self.barrier_wake))
        self._report(m, errors, mbarrier_unit.fault)

        # The streams between the blocks under names of their own, for waves.
        for name, port in {
            "request_queue__tensor": request_queue.tensor,
            "request_queue__bulk": request_queue.bulk,
            "descriptor_cache__o": descriptor_cache.o,
            "setup_block__job": setup_block.job,
            "setup_block__error": setup_block.error,
            "completion_tracker__o": completion_tracker.o,
            "request_generator__line": request_generator.line,
            "request_generator__fill": request_generator.fill,
            "gnic__o": gnic.o,
            "response_path__o": response_path.o,
            "lane_network__written": lane_network.written,
            "lane_network__filled": lane_network.filled,
            "completion_tracker__completion": completion_tracker.completion,
            "completion_tracker__error": completion_tracker.error,
            "mbarrier_unit__update": mbarrier_unit.update,
            "mbarrier_unit__fault": mbarrier_unit.fault,
        }.items():
            expose(m, name, port)
        return m

    def _connect_bulk(self, m: Module, requests, tensor_jobs, refusals):
        """Bulk requests join behind the setup of tensor requests. Return the jobs of all."""
        p = self.params
        m.submodules.bulk_setup = bulk_setup = BulkSetup(p)
        m.submodules.jobs = jobs = Arbiter(walk_job_layout(p), 2, packets=True)
        connect(m, requests, bulk_setup.i)
        connect(m, bulk_setup.error, refusals)
        connect(m, tensor_jobs, jobs.i[0])
        connect(m, bulk_setup.job, jobs.i[1])
        expose(m, "bulk_setup__job", bulk_setup.job)

        # What only boxes have is not chosen: of a bulk copy it does not count.
        merged, joined = jobs.o, stream.Signature(walk_job_layout(p)).create()
        m.d.comb += [
            joined.valid.eq(merged.valid),
            merged.ready.eq(joined.ready),
            joined.p.eq(merged.p),
            *(
                loop[name].eq(of_tensor[name])
                for loop, of_tensor in zip(
                    joined.p.walk.loops, tensor_jobs.p.walk.loops, strict=True
                )
                for name in ("global_step", "smem_step")
            ),
        ]
        if p.im2col:
            column = joined.p.column
            m.d.comb += [
                column.eq(tensor_jobs.p.column),
                column.enabled.eq(merged.p.column.enabled),
            ]
        return joined

    def _refuse_bulk(self, m: Module, requests, refusals) -> None:
        """The unit was built without them."""
        p = self.params
        request, refusal = requests.p, refusals.p
        m.d.comb += [
            refusals.valid.eq(requests.valid),
            requests.ready.eq(refusals.ready),
            refusal.request_id.eq(request.request_id),
            refusal.code.eq(ErrorCode.MAP_MODE),
            refusal.value.eq(request.operation.as_value()),
            refusal.channel.eq(channel_of(p, request.operation, stream_of(p, request))),
            *([refusal.group.eq(request.group)] if p.stores else ()),
        ]

    def _connect_stores(
        self, m: Module, destination, request_queue, jobs, refusals, completion_tracker, cluster
    ) -> list:
        """Bulk groups in front of the queue; behind setup, the way of the stores. Return the
        streams of errors.
        """
        p = self.params
        m.submodules.bulk_groups = bulk_groups = BulkGroups(p)
        m.submodules.dispatcher = dispatcher = Dispatcher(p)
        m.submodules.store_tracker = store_tracker = StoreTracker(p)
        m.submodules.store_generator = store_generator = StoreGenerator(p)
        m.submodules.store_path = store_path = StorePath(p)
        m.submodules.gnic_write = gnic_write = GnicWrite(p)

        connect(m, destination.o, bulk_groups.i)
        connect(m, bulk_groups.o, request_queue.i)
        connect(m, bulk_groups.result, flipped(self.group_result))
        connect(m, jobs, dispatcher.job)
        connect(m, refusals.o, dispatcher.refusal)
        connect(m, dispatcher.released, bulk_groups.released)
        connect(m, dispatcher.load, completion_tracker.i)

        # From the jobs of stores to lines, and from the answers to the group.
        connect(m, dispatcher.store, store_tracker.i)
        connect(m, store_tracker.o, store_generator.i)
        m.d.comb += request_queue.freed[p.streams].eq(store_generator.freed)
        connect(m, store_generator.o, store_path.i)
        connect(m, store_path.source_read, store_tracker.slot_read)
        connect(m, gnic_write.request, flipped(self.gnic_write))
        connect(m, flipped(self.gnic_ack), gnic_write.ack)
        connect(m, store_tracker.source_read, bulk_groups.source_read)
        connect(m, store_tracker.complete, bulk_groups.complete)
        if p.ctas > 1:
            connect(m, store_path.o, cluster.store)
            connect(m, cluster.memory_store, gnic_write.i)
            connect(m, gnic_write.performed, cluster.performed)
            connect(m, cluster.store_performed, store_tracker.performed)
            m.d.comb += cluster.store_opened.eq(store_tracker.opened)
        else:
            connect(m, store_path.o, gnic_write.i)
            connect(m, gnic_write.performed, store_tracker.performed)
        if p.ctas > 1 and p.reductions:
            connect(m, store_path.smem_read, cluster.store_read)
            connect(m, cluster.store_data, store_path.smem_data)
            connect(m, cluster.smem_read, flipped(self.smem_read))
            connect(m, flipped(self.smem_data), cluster.smem_data)
        else:
            connect(m, store_path.smem_read, flipped(self.smem_read))
            connect(m, flipped(self.smem_data), store_path.smem_data)

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
        return [dispatcher.error, store_tracker.error]

    def _report(self, m: Module, errors: list, fault) -> None:
        """Bring the errors of all blocks, and the faults of barriers, to one port."""
        p = self.params
        ways = len(errors) + 1
        m.submodules.errors = merged = Arbiter(error_record_layout(p), ways)
        connect(m, merged.o, flipped(self.error))
        for way, source in zip(merged.i, errors, strict=False):
            m.d.comb += [
                way.valid.eq(source.valid),
                source.ready.eq(way.ready),
                *(way.p[name].eq(source.p[name]) for name in error_layout(p).members),
                *([way.p.cta.eq(self.cta_rank)] if p.ctas > 1 else ()),
            ]
        way = merged.i[ways - 1]
        m.d.comb += [
            way.valid.eq(fault.valid),
            fault.ready.eq(way.ready),
            way.p.code.eq(ErrorCode.MBAR_FAULT),
            way.p.dim.eq(fault.p.fault),
            way.p.value.eq(fault.p.address),
            *(way.p[name].eq(fault.p[name]) for name in ("request_id", *issuer_field(p))),
        ]


def expose(m: Module, name: str, port) -> None:
    """Give the parts of a stream names that do not depend on how modules are flattened."""
    for part in ("valid", "ready", "payload"):
        value = getattr(port, part)
        m.d.comb += Signal(value.shape(), name=f"{name}__{part}").eq(value)
