"""Cluster port: joins the paths of an SM with those of the other SMs of its cluster."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.cluster.barrier_router import BarrierRouter
from hw.cluster.crossbar import addressed_layout
from hw.cluster.egress import Egress
from hw.cluster.ingress import Ingress
from hw.cluster.remote_store import RemoteStore
from hw.layouts.barriers import (
    barrier_completion_layout,
    barrier_message_layout,
    barrier_update_layout,
)
from hw.layouts.cluster import packet_layout, remote_store_layout
from hw.layouts.jobs import opened_layout
from hw.layouts.lines import (
    absent_receiver_layout,
    fill_beat_layout,
    performed_layout,
    rotated_line_layout,
    write_line_layout,
    written_layout,
)
from hw.layouts.ports import error_layout, lanes_layout, smem_read_layout
from hw.lib.arbiter import Arbiter
from hw.lib.in_order_port import InOrderPort
from hw.params import TmaParams

READS_OF_REDUCTIONS = 16
"""Reads of shared memory that reductions have under way beside those that hide its latency."""


def unit_ports(params: TmaParams) -> dict:
    """Return the ports that a unit has only in a cluster. `Tma` describes them."""
    packet = packet_layout(params)
    return {
        "cta_rank": In(params.cta_bits),
        "running": In(params.ctas),
        "remote_command": In(stream.Signature(barrier_message_layout(params))),
        "remote_store": In(stream.Signature(remote_store_layout(params))),
        "packet_out": Out(stream.Signature(addressed_layout(packet, params.ctas))),
        "packet_in": In(stream.Signature(packet)),
        "message_out": Out(stream.Signature(barrier_message_layout(params))),
        "message_in": In(stream.Signature(barrier_update_layout(params))),
    }


def demux(m: Module, source, is_remote: Value, remote, local) -> None:
    """Connect stream ``source`` to ``remote`` while ``is_remote`` is 1, else to ``local``."""
    m.d.comb += [
        remote.payload.eq(source.payload),
        local.payload.eq(source.payload),
        remote.valid.eq(source.valid & is_remote),
        local.valid.eq(source.valid & ~is_remote),
    ]
    with m.If(is_remote):
        m.d.comb += source.ready.eq(remote.ready)
    with m.Else():
        m.d.comb += source.ready.eq(local.ready)


class ClusterPort(wiring.Component):
    """Separates the data and signals for other CTAs from the unit's paths, and merges theirs.

    Latency: none for data and signals that stay in the SM. `Egress`, `Ingress` and `BarrierRouter`
    give the latency of the others. Throughput: one payload per clock on each stream; where two
    streams are merged, they take turns. Back-pressure: input from other CTAs never waits for output
    to them, so SMs cannot wait for each other in a circle. Errors: see `RemoteStore`, `Egress` and
    `BarrierRouter`.

    Parameters
    ----------
    params : TmaParams
        ``ctas`` must be above 1.

    Members
    -------
    cta_rank, running, remote_command, remote_store, packet_out, packet_in, message_out, message_in
        Ports of the unit, see `unit_ports`.
    load_opened : In(opened_layout(params))
        Slot that the completion tracker gives to a load.
    line : In(stream.Signature(rotated_line_layout(params)))
        Lines of the response path.
    local_line : Out(stream.Signature(rotated_line_layout(params)))
        Lines for this SM's shared memory, also of packets from other CTAs.
    fill : In(stream.Signature(fill_beat_layout(params)))
        Fill of the request generator.
    local_fill : Out(stream.Signature(fill_beat_layout(params)))
        Fill for this SM's shared memory.
    written : In(stream.Signature(written_layout(params)))
        Pieces that were written to this SM's shared memory.
    load_written : Out(stream.Signature(written_layout(params)))
        Pieces of this SM's loads that were written, or sent to other CTAs.
    receiver_absent : Out(stream.Signature(absent_receiver_layout(params)))
        Receivers of this SM's loads that do not run.
    completion : In(stream.Signature(barrier_completion_layout(params)))
        Completions of this SM's loads.
    update : Out(stream.Signature(barrier_update_layout(params)))
        Operations on this SM's barriers, also of other CTAs.
    error : Out(stream.Signature(error_layout(params)))
        Errors of remote stores and of barrier operations for other CTAs.
    store_opened : In(opened_layout(params))
        Slot that the store tracker gives to a store. This port and the next four are present with
        ``stores``.
    store : In(stream.Signature(write_line_layout(params)))
        Lines of the store path.
    memory_store : Out(stream.Signature(write_line_layout(params)))
        Lines for global memory.
    performed : In(stream.Signature(performed_layout(params)))
        Lines that global memory has answered.
    store_performed : Out(stream.Signature(performed_layout(params)))
        Lines that were performed, also those sent to other CTAs.
    store_read : In(stream.Signature(smem_read_layout(params)))
        Reads of the store path. This port and the next three are present with ``reductions``.
    smem_read : Out(stream.Signature(smem_read_layout(params)))
        Reads of the store path and of reductions in shared memory.
    smem_data : In(stream.Signature(lanes_layout(params)))
        Data of these reads, in order.
    store_data : Out(stream.Signature(lanes_layout(params)))
        Data of the store path's reads, in order.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        ports = {
            **unit_ports(params),
            "load_opened": In(opened_layout(params)),
            "line": In(stream.Signature(rotated_line_layout(params))),
            "local_line": Out(stream.Signature(rotated_line_layout(params))),
            "fill": In(stream.Signature(fill_beat_layout(params))),
            "local_fill": Out(stream.Signature(fill_beat_layout(params))),
            "written": In(stream.Signature(written_layout(params))),
            "load_written": Out(stream.Signature(written_layout(params))),
            "receiver_absent": Out(stream.Signature(absent_receiver_layout(params))),
            "completion": In(stream.Signature(barrier_completion_layout(params))),
            "update": Out(stream.Signature(barrier_update_layout(params))),
            "error": Out(stream.Signature(error_layout(params))),
        }
        if params.stores:
            ports |= {
                "store_opened": In(opened_layout(params)),
                "store": In(stream.Signature(write_line_layout(params))),
                "memory_store": Out(stream.Signature(write_line_layout(params))),
                "performed": In(stream.Signature(performed_layout(params))),
                "store_performed": Out(stream.Signature(performed_layout(params))),
            }
        if params.reductions:
            ports |= {
                "store_read": In(stream.Signature(smem_read_layout(params))),
                "smem_read": Out(stream.Signature(smem_read_layout(params))),
                "smem_data": In(stream.Signature(lanes_layout(params))),
                "store_data": Out(stream.Signature(lanes_layout(params))),
            }
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.remote_store = remote_store = RemoteStore(p)
        m.submodules.egress = egress = Egress(p)
        m.submodules.ingress = ingress = Ingress(p)
        m.submodules.barrier_router = barrier_router = BarrierRouter(p)
        m.submodules.lines = lines = Arbiter(rotated_line_layout(p), 2)
        m.submodules.written_pieces = written = Arbiter(written_layout(p), 2)
        m.submodules.completions = completions = Arbiter(barrier_completion_layout(p), 2)
        m.submodules.errors = errors = Arbiter(error_layout(p), 2)
        for block in (egress, ingress, barrier_router):
            m.d.comb += block.cta_rank.eq(self.cta_rank)
        for block in (remote_store, egress, barrier_router):
            m.d.comb += block.running.eq(self.running)

        # To other CTAs.
        demux(m, flipped(self.line), self.line.p.remote, egress.line, lines.i[0])
        demux(m, flipped(self.fill), self.fill.p.remote, egress.fill, flipped(self.local_fill))
        connect(m, flipped(self.remote_store), remote_store.i)
        connect(m, remote_store.o, egress.thread)
        connect(m, egress.packet, flipped(self.packet_out))
        connect(m, egress.written, written.i[1])
        connect(m, egress.receiver_absent, flipped(self.receiver_absent))
        m.d.comb += egress.load_opened.eq(self.load_opened)

        # From other CTAs.
        connect(m, flipped(self.packet_in), ingress.packet)
        connect(m, ingress.line, lines.i[1])
        connect(m, lines.o, flipped(self.local_line))
        is_received = self.written.p.receipt.received
        demux(m, flipped(self.written), is_received, ingress.written, written.i[0])
        connect(m, written.o, flipped(self.load_written))

        # Barrier operations.
        connect(m, flipped(self.completion), completions.i[0])
        connect(m, ingress.completion, completions.i[1])
        connect(m, completions.o, barrier_router.completion)
        connect(m, flipped(self.remote_command), barrier_router.command)
        connect(m, barrier_router.to_cluster, flipped(self.message_out))
        connect(m, flipped(self.message_in), barrier_router.from_cluster)
        connect(m, barrier_router.update, flipped(self.update))

        connect(m, remote_store.error, errors.i[0])
        connect(m, barrier_router.error, errors.i[1])
        connect(m, errors.o, flipped(self.error))
        if p.stores:
            self._connect_stores(m, egress)
        if p.reductions:
            m.submodules.smem_read_port = smem_read_port = InOrderPort(
                smem_read_layout(p), lanes_layout(p), 2, 2 * p.smem_reads + READS_OF_REDUCTIONS
            )
            connect(m, flipped(self.store_read), smem_read_port.i[0])
            connect(m, smem_read_port.answer[0], flipped(self.store_data))
            connect(m, ingress.smem_read, smem_read_port.i[1])
            connect(m, smem_read_port.answer[1], ingress.smem_data)
            connect(m, smem_read_port.o, flipped(self.smem_read))
            connect(m, flipped(self.smem_data), smem_read_port.o_answer)
        return m

    def _connect_stores(self, m: Module, egress: Egress) -> None:
        """Separate the lines of DSMEM requests from those for global memory."""
        m.submodules.performed_lines = performed = Arbiter(performed_layout(self.params), 2)
        store = flipped(self.store)
        demux(m, store, store.p.write_mode.remote, egress.dsmem, flipped(self.memory_store))
        connect(m, flipped(self.performed), performed.i[0])
        connect(m, egress.performed, performed.i[1])
        connect(m, performed.o, flipped(self.store_performed))
        m.d.comb += egress.store_opened.eq(self.store_opened)
