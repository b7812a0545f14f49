"""Top: connects the blocks of a unit, in the order of a request's way."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.barrier.completion_port import CompletionPort
from hw.barrier.mbarrier_unit import BarrierMemory, MbarrierUnit
from hw.cluster.cluster_port import ClusterPort, unit_ports
from hw.front.bulk_group import BulkGroups
from hw.front.descriptor_cache import DescriptorCache
from hw.front.destination import Destination
from hw.front.error_reporter import ErrorReporter
from hw.front.request_queue import RequestQueue
from hw.front.startup import Control, Startup
from hw.generate.generator_lane import GeneratorLane
from hw.generate.request_generator import RequestGenerator
from hw.generate.walk_generator import WalkGenerator
from hw.layouts.barriers import BarrierCommand, BarrierResult, BarrierWake
from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.monitor import CounterPort, EventRecord
from hw.layouts.ports import (
    DescriptorInvalidate,
    descriptor_fill_layout,
    error_record_layout,
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
    group_result_layout,
    lanes_layout,
    request_layout,
    smem_read_layout,
    smem_write_layout,
)
from hw.lib.pass_port import pass_port
from hw.lib.wave_taps import tap_streams
from hw.load.completion_tracker import CompletionTracker
from hw.load.gnic import Gnic
from hw.load.lane_network import LaneNetwork
from hw.load.response_path import ResponsePath
from hw.monitor.taps import Taps
from hw.monitor.unit_monitor import UnitMonitor
from hw.params import TmaParams
from hw.setup.block import SetupBlock
from hw.setup.bulk_refusal import BulkRefusal
from hw.setup.bulk_setup import BulkSetup
from hw.setup.dispatcher import Dispatcher
from hw.setup.map_override import MapOverride
from hw.setup.refusal_collector import RefusalCollector
from hw.store.gnic_write import GnicWrite
from hw.store.store_path import StorePath
from hw.store.store_tracker import StoreTracker
from hw.translate.translation import Translation, walker_ports


def tma_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the members of a unit's signature: all of its ports."""
    ports = {
        "request": In(stream.Signature(request_layout(params))),
        "control": Out(Control()),
        "request_room": Out(wiring.Signature({"channels": Out(params.channels)})),
        "error": Out(stream.Signature(error_record_layout(params))),
        "descriptor_prefetch": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
        "descriptor_invalidate": In(stream.Signature(DescriptorInvalidate)),
        "descriptor_request": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
        "descriptor_fill": In(stream.Signature(descriptor_fill_layout(params))),
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
    ports |= walker_ports(params)
    if params.ctas > 1:
        ports |= unit_ports(params)
    if params.counters:
        ports |= {
            "counters": Out(CounterPort()),
            "trace": Out(stream.Signature(EventRecord)),
        }
    return ports


MEMORY_STREAMS = {
    "gnic_request": "memory_request",
    "gnic_response": "memory_response",
    "descriptor_request": "memory_descriptor_request",
    "descriptor_fill": "memory_descriptor_fill",
    "gnic_write": "memory_write",
    "gnic_ack": "memory_ack",
}
"""Ports of a unit to memory, and the names that they have at the translation."""


class Tma(wiring.Component):
    """A Tensor Memory Accelerator: copies boxes of tensors, and plain bytes, between global and
    shared memory.

    A request that is refused, or one with an access that fails, gives one record on ``error``. An
    answer of global memory that belongs to no access in flight gives one, too, and is dropped.
    Every other load gives one ``complete_tx`` of its bytes at its barrier, and never before all of
    them are in shared memory. A load of no bytes, or without receivers, gives none. A load to
    several CTAs is signalled by each receiver, packet by packet. A store or reduction counts in a
    bulk group of its thread until its writes are performed. Requests are not ordered, and complete
    in any order.

    Throughput: one line read and one line written a clock, in both directions at once. Latency and
    back-pressure: see the blocks, and docs/performance.md.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream) of ``request_layout``
        Requests of the SM's threads (``cp.async.bulk``, ``cp.async.bulk.tensor`` and so on), in the
        order of their issue.
    control : Out(Control)
        ``drain``: accept no more requests. ``idle``: ready after a reset, and nothing is pending.
    request_room : Out; ``channels``, one bit for each channel
        A request of this channel is accepted without holding back other channels at ``request``.
        Channel n is the loads of stream n (see ``TmaParams.streams``); the last one is all stores.
    error : Out(stream) of ``error_record_layout``
        Error records of requests that were refused or failed.
    descriptor_prefetch : In(stream) of 64 bits
        Address of a tensor map that the descriptor cache fetches (``prefetch.tensormap``).
    descriptor_invalidate : In(stream) of ``DescriptorInvalidate``
        Tensor maps that the descriptor cache drops (``fence.proxy.tensormap`` acquire).
    descriptor_request : Out(stream) of 64 bits
        Reads of the first 64 bytes of a tensor map, by address.
    descriptor_fill : In(stream) of ``descriptor_fill_layout``
        Tensor maps that were read, in the order of ``descriptor_request``.
    gnic_request : Out(stream) of ``gnic_request_layout``
        Reads of lines of global memory.
    gnic_response : In(stream) of ``gnic_response_layout``
        Lines that were read, in any order.
    smem_write : Out(stream) of ``smem_write_layout``
        Writes to shared memory.
    smem_read : Out(stream) of ``smem_read_layout``
        Reads of shared memory. This port and the following four exist with ``stores``.
    smem_data : In(stream) of ``lanes_layout``
        Data of ``smem_read``, in order.
    gnic_write : Out(stream) of ``gnic_write_layout``
        Writes and reductions of lines of global memory.
    gnic_ack : In(stream) of ``gnic_ack_layout``
        Acknowledgements of ``gnic_write``, in any order.
    group_result : Out(stream) of ``group_result_layout``
        Threads whose ``wait_group`` ended.
    barrier_command : In(stream) of ``BarrierCommand``
        mbarrier operations of the SM's threads.
    barrier_result : Out(stream) of ``BarrierResult``
        Results of ``barrier_command``, in order.
    barrier_wake : Out(stream) of ``BarrierWake``
        Ends of ``try_wait`` operations that had to wait.
    barrier_memory : Out(BarrierMemory)
        Reads and writes of the words of barriers in shared memory.
    walk_request : Out(stream) of ``walk_request_layout``
        Pages whose translation the TLB lacks. This port and the following two exist with
        ``tlb_entries``.
    walk_response : In(stream) of ``walk_response_layout``
        Translations of pages, in any order.
    tlb_invalidate : In(stream) of ``tlb_invalidate_layout``
        Translations that the TLB drops.
    cta_rank : In
        Rank of this SM's CTA in its cluster. This port and the following exist with ``ctas`` above
        1.
    running : In
        CTAs of the cluster that run, one bit for each.
    remote_command : In(stream) of ``barrier_message_layout``
        Operations of the SM's threads on barriers of other CTAs.
    remote_store : In(stream) of ``remote_store_layout``
        ``st.async`` and ``red.async`` of the SM's threads.
    packet_out : Out(stream) of ``addressed_layout`` of ``packet_layout``
        Data for the shared memory of other CTAs.
    packet_in : In(stream) of ``packet_layout``
        Data of other CTAs for this SM's shared memory.
    message_out : Out(stream) of ``barrier_message_layout``
        Operations on barriers of other CTAs.
    message_in : In(stream) of ``barrier_update_layout``
        Operations of other CTAs on this SM's barriers.
    counters : Out(CounterPort)
        Counts of requests, lines, stalls and more. This port and the following one exist with
        ``counters``.
    trace : Out(stream) of ``EventRecord``
        Milestones of requests. The unit does not wait until they are taken.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(tma_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        self._add_blocks(m)
        self._connect_setup(m)
        self._connect_loads(m)
        if self.params.ctas > 1:
            self._connect_cluster(m)
        else:
            self._connect_lone_sm(m)
        errors = self._connect_groups(m)
        self._connect_barriers(m)
        self._connect_errors(m, errors)
        self._connect_startup(m)
        if self.params.counters:
            self._connect_monitor(m)
        self._tap_streams(m)
        return m

    def _add_blocks(self, m: Module) -> None:
        """Add the blocks that every unit has, in the order of a request's way."""
        p = self.params
        m.submodules.startup = Startup(p)
        m.submodules.destination = Destination(p)
        m.submodules.request_queue = RequestQueue(p)
        m.submodules.descriptor_cache = DescriptorCache(p)
        m.submodules.setup_block = SetupBlock(p)
        m.submodules.bulk_setup = BulkSetup(p) if p.bulk else BulkRefusal(p)
        m.submodules.refusal_collector = RefusalCollector(p)
        m.submodules.completion_tracker = CompletionTracker(p)
        m.submodules.walk_generator = WalkGenerator(p)
        m.submodules.request_generator = RequestGenerator(p)
        m.submodules.gnic = Gnic(p)
        m.submodules.response_path = ResponsePath(p)
        m.submodules.lane_network = LaneNetwork(p)
        m.submodules.mbarrier_unit = MbarrierUnit(p)
        if p.tlb_entries:
            m.submodules.translation = translation = Translation(p)
            for name in walker_ports(p):
                pass_port(m, name, translation, self)

    def _connect_memory(self, m: Module, name: str, inner: stream.Interface) -> None:
        """Connect a stream of a block to the port ``name`` to memory, by the translation if there
        is one.
        """
        port = flipped(getattr(self, name))
        leaves = self.signature.members[name].flow is Out
        if self.params.tlb_entries:
            translation = m.submodules.translation
            outer = getattr(translation, MEMORY_STREAMS[name])
            connect(m, outer, port) if leaves else connect(m, port, outer)
            port = getattr(translation, name)
        connect(m, inner, port) if leaves else connect(m, port, inner)

    def _connect_setup(self, m: Module) -> None:
        """Connect front and setup, from the request to the jobs of loads."""
        p, block = self.params, m.submodules
        connect(m, flipped(self.request), block.startup.i)
        connect(m, block.startup.o, block.destination.i)
        connect(m, block.startup.control, flipped(self.control))
        connect(m, block.request_queue.tensor, block.descriptor_cache.i)
        connect(m, flipped(self.descriptor_prefetch), block.descriptor_cache.prefetch)
        connect(m, flipped(self.descriptor_invalidate), block.descriptor_cache.invalidate)
        self._connect_memory(m, "descriptor_request", block.descriptor_cache.fetch)
        self._connect_memory(m, "descriptor_fill", block.descriptor_cache.fill)
        requests_with_maps = block.descriptor_cache.o
        if p.override:
            m.submodules.map_override = map_override = MapOverride(p)
            connect(m, requests_with_maps, map_override.i)
            requests_with_maps = map_override.o
        connect(m, requests_with_maps, block.setup_block.i)
        connect(m, block.setup_block.error, block.refusal_collector.tensor)
        connect(m, block.request_queue.bulk, block.bulk_setup.i)
        connect(m, block.bulk_setup.error, block.refusal_collector.bulk)
        jobs = block.setup_block.job
        if p.bulk or p.stores:
            m.submodules.dispatcher = dispatcher = Dispatcher(p)
            connect(m, block.setup_block.job, dispatcher.tensor)
            if p.bulk:
                connect(m, block.bulk_setup.job, dispatcher.bulk)
            jobs = dispatcher.load
        connect(m, jobs, block.completion_tracker.i)

        # A request that is refused, or that begins its walk, makes room for another.
        m.d.comb += [
            self.request_room.channels.eq(block.request_queue.room),
            block.request_queue.refused.eq(block.refusal_collector.refused),
            block.request_queue.freed.eq(block.walk_generator.freed),
        ]

    def _connect_loads(self, m: Module) -> None:
        """Connect the load path, from the job to lines, and from the lines to shared memory."""
        block = m.submodules
        connect(m, block.completion_tracker.o, block.walk_generator.load)
        for walk, lane in zip(block.walk_generator.walk, block.request_generator.walk, strict=True):
            connect(m, walk, lane)
        connect(m, block.request_generator.line, block.gnic.i)
        self._connect_memory(m, "gnic_request", block.gnic.request)
        self._connect_memory(m, "gnic_response", block.gnic.response)
        connect(m, block.gnic.o, block.response_path.i)
        m.d.comb += block.gnic.admits_next.eq(block.response_path.admits_next)
        connect(m, block.gnic.fault, block.completion_tracker.fault)
        if self.params.report_mechanism:
            m.d.comb += block.completion_tracker.report.eq(block.response_path.report)
        connect(m, block.lane_network.filled, block.completion_tracker.filled)
        connect(m, block.lane_network.smem_write, flipped(self.smem_write))

    def _connect_cluster(self, m: Module) -> None:
        """Connect the cluster port, which lines and signals of loads pass."""
        p, block = self.params, m.submodules
        m.submodules.cluster_port = cluster_port = ClusterPort(p)
        connect(m, block.response_path.o, cluster_port.line)
        connect(m, cluster_port.local_line, block.lane_network.line)
        connect(m, block.request_generator.fill, cluster_port.fill)
        connect(m, cluster_port.local_fill, block.lane_network.fill)
        connect(m, block.lane_network.written, cluster_port.written)
        connect(m, cluster_port.load_written, block.completion_tracker.written)
        connect(m, cluster_port.receiver_absent, block.completion_tracker.receiver_absent)
        connect(m, block.completion_tracker.completion, cluster_port.completion)
        connect(m, cluster_port.update, block.mbarrier_unit.update)
        for name, member in unit_ports(p).items():
            own, port = getattr(self, name), getattr(cluster_port, name)
            if member.is_port:
                m.d.comb += port.eq(own)
            elif member.flow is In:
                connect(m, flipped(own), port)
            else:
                connect(m, port, flipped(own))
        m.d.comb += [
            cluster_port.load_opened.eq(block.completion_tracker.opened),
            block.destination.cta_rank.eq(self.cta_rank),
            block.completion_tracker.cta_rank.eq(self.cta_rank),
        ]

    def _connect_lone_sm(self, m: Module) -> None:
        """Connect the load path of a unit without a cluster: lines and signals stay in the SM."""
        block = m.submodules
        m.submodules.completion_port = completion_port = CompletionPort(self.params)
        connect(m, block.response_path.o, block.lane_network.line)
        connect(m, block.request_generator.fill, block.lane_network.fill)
        connect(m, block.lane_network.written, block.completion_tracker.written)
        connect(m, block.completion_tracker.completion, completion_port.i)
        connect(m, completion_port.o, block.mbarrier_unit.update)

    def _connect_groups(self, m: Module) -> list[stream.Interface]:
        """Connect bulk groups and the stores in them; return the streams of errors."""
        p, block = self.params, m.submodules
        if not p.stores:
            connect(m, block.destination.o, block.request_queue.i)
            return [block.refusal_collector.o]
        dispatcher = block.dispatcher
        m.submodules.bulk_groups = bulk_groups = BulkGroups(p)
        connect(m, block.destination.o, bulk_groups.i)
        connect(m, bulk_groups.o, block.request_queue.i)
        connect(m, bulk_groups.result, flipped(self.group_result))
        connect(m, block.refusal_collector.o, dispatcher.refusal)
        connect(m, dispatcher.released, bulk_groups.released)
        self._connect_stores(m)
        return [dispatcher.error, block.store_tracker.error]

    def _connect_stores(self, m: Module) -> None:
        """Connect the store path, from the job to lines, and from their answers to the group."""
        p, block = self.params, m.submodules
        m.submodules.store_tracker = store_tracker = StoreTracker(p)
        m.submodules.store_generator = store_generator = GeneratorLane(p, store=True)
        m.submodules.store_path = store_path = StorePath(p)
        m.submodules.gnic_write = gnic_write = GnicWrite(p)

        connect(m, block.dispatcher.store, store_tracker.i)
        connect(m, store_tracker.o, block.walk_generator.store)
        connect(m, block.walk_generator.store_walk, store_generator.i)
        connect(m, store_generator.line, store_path.i)
        connect(m, store_path.source_read, store_tracker.slot_read)
        self._connect_memory(m, "gnic_write", gnic_write.request)
        self._connect_memory(m, "gnic_ack", gnic_write.ack)
        connect(m, store_tracker.source_read, block.bulk_groups.source_read)
        connect(m, store_tracker.complete, block.bulk_groups.complete)
        if p.ctas > 1:
            cluster_port = block.cluster_port
            connect(m, store_path.o, cluster_port.store)
            connect(m, cluster_port.memory_store, gnic_write.i)
            connect(m, gnic_write.performed, cluster_port.performed)
            connect(m, cluster_port.store_performed, store_tracker.performed)
            m.d.comb += cluster_port.store_opened.eq(store_tracker.opened)
        else:
            connect(m, store_path.o, gnic_write.i)
            connect(m, gnic_write.performed, store_tracker.performed)
        if p.ctas > 1 and p.reductions:
            connect(m, store_path.smem_read, cluster_port.store_read)
            connect(m, cluster_port.store_data, store_path.smem_data)
            connect(m, cluster_port.smem_read, flipped(self.smem_read))
            connect(m, flipped(self.smem_data), cluster_port.smem_data)
        else:
            connect(m, store_path.smem_read, flipped(self.smem_read))
            connect(m, flipped(self.smem_data), store_path.smem_data)

    def _connect_barriers(self, m: Module) -> None:
        """Connect the mbarrier unit to the ports of the SM."""
        mbarrier_unit = m.submodules.mbarrier_unit
        connect(m, mbarrier_unit.memory, flipped(self.barrier_memory))
        connect(m, flipped(self.barrier_command), mbarrier_unit.command)
        connect(m, mbarrier_unit.result, flipped(self.barrier_result))
        connect(m, mbarrier_unit.wake, flipped(self.barrier_wake))

    def _connect_errors(self, m: Module, errors: list[stream.Interface]) -> None:
        """Connect all streams of errors to the error reporter."""
        p, block = self.params, m.submodules
        cluster_errors = [block.cluster_port.error] if p.ctas > 1 else []
        sources = [block.completion_tracker.error, *cluster_errors, *errors]
        m.submodules.error_reporter = error_reporter = ErrorReporter(p, len(sources))
        for source, i in zip(sources, error_reporter.i, strict=True):
            connect(m, source, i)
        connect(m, block.mbarrier_unit.fault, error_reporter.fault)
        connect(m, block.gnic.wrong_tag, error_reporter.wrong_read)
        if p.stores:
            connect(m, block.gnic_write.wrong_tag, error_reporter.wrong_write)
        connect(m, error_reporter.o, flipped(self.error))
        if p.ctas > 1:
            m.d.comb += error_reporter.cta_rank.eq(self.cta_rank)

    def _connect_startup(self, m: Module) -> None:
        """Connect what is cleared after a reset, and all that can be pending."""
        block = m.submodules
        cleared = [block.completion_tracker, block.gnic]
        pending = [
            block.request_queue.busy,
            block.descriptor_cache.busy,
            block.completion_tracker.busy,
            block.walk_generator.busy,
            block.mbarrier_unit.busy,
        ]
        if self.params.tlb_entries:
            pending.append(block.translation.busy)
        if self.params.stores:
            cleared += [block.bulk_groups, block.store_tracker, block.gnic_write]
            pending += [block.bulk_groups.busy, block.store_tracker.busy]
        # What a neighbour has not taken, or has offered.
        for name, member in self.signature.members.items():
            is_stream = member.is_signature and isinstance(member.signature, stream.Signature)
            if is_stream and name not in ("request", "trace"):
                pending.append(getattr(self, name).valid)
        for cleared_block in cleared:
            m.d.comb += cleared_block.clear.eq(block.startup.clear)
        m.d.comb += block.startup.busy.eq(Cat(pending).any())

    def _connect_monitor(self, m: Module) -> None:
        """Connect what the monitor watches, and its ports."""
        m.submodules.unit_monitor = unit_monitor = UnitMonitor(self.params)
        Taps(m, self.params, unit_monitor.watched, self)
        connect(m, unit_monitor.counters, flipped(self.counters))
        connect(m, unit_monitor.trace, flipped(self.trace))

    def _tap_streams(self, m: Module) -> None:
        """Name the streams between the blocks for waves."""
        p, block = self.params, m.submodules
        tap_streams(
            m,
            request_queue__tensor=block.request_queue.tensor,
            request_queue__bulk=block.request_queue.bulk,
            descriptor_cache__o=block.descriptor_cache.o,
            setup_block__job=block.setup_block.job,
            setup_block__error=block.setup_block.error,
            completion_tracker__o=block.completion_tracker.o,
            request_generator__line=block.request_generator.line,
            request_generator__fill=block.request_generator.fill,
            gnic__o=block.gnic.o,
            response_path__o=block.response_path.o,
            lane_network__written=block.lane_network.written,
            lane_network__filled=block.lane_network.filled,
            completion_tracker__completion=block.completion_tracker.completion,
            completion_tracker__error=block.completion_tracker.error,
            mbarrier_unit__update=block.mbarrier_unit.update,
            mbarrier_unit__fault=block.mbarrier_unit.fault,
        )
        if p.bulk:
            tap_streams(m, bulk_setup__job=block.bulk_setup.job)
        if p.stores:
            tap_streams(
                m,
                bulk_groups__o=block.bulk_groups.o,
                dispatcher__load=block.dispatcher.load,
                dispatcher__store=block.dispatcher.store,
                dispatcher__released=block.dispatcher.released,
                store_tracker__o=block.store_tracker.o,
                store_generator__line=block.store_generator.line,
                store_path__o=block.store_path.o,
                gnic_write__performed=block.gnic_write.performed,
                store_tracker__source_read=block.store_tracker.source_read,
                store_tracker__complete=block.store_tracker.complete,
            )
