"""Cluster port: where an SM's paths meet those of the other SMs of its cluster."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.cluster.barrier_router import BarrierRouter
from hw.cluster.crossbar import addressed_layout
from hw.cluster.egress import Egress
from hw.cluster.ingress import Ingress
from hw.cluster.remote_store import RemoteStore
from hw.cluster.smem_read_port import SmemReadPort
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
from hw.params import TmaParams


def unit_ports(params: TmaParams) -> dict:
    """The ports that a unit has in a cluster."""
    packet = packet_layout(params)
    message = stream.Signature(barrier_message_layout(params))
    return {
        "cta_rank": In(params.cta_bits),
        "running": In(params.ctas),
        "remote_command": In(message),
        "remote_store": In(stream.Signature(remote_store_layout(params))),
        "packet_out": Out(stream.Signature(addressed_layout(packet, params.ctas))),
        "packet_in": In(stream.Signature(packet)),
        "message_out": Out(message),
        "message_in": In(stream.Signature(barrier_update_layout(params))),
    }


def part(m: Module, source, to_other: Value, other, own) -> None:
    """Connect ``source`` to ``other`` where a payload is ``to_other``, else to ``own``."""
    m.d.comb += [
        other.payload.eq(source.payload),
        own.payload.eq(source.payload),
        other.valid.eq(source.valid & to_other),
        own.valid.eq(source.valid & ~to_other),
    ]
    with m.If(to_other):
        m.d.comb += source.ready.eq(other.ready)
    with m.Else():
        m.d.comb += source.ready.eq(own.ready)


class ClusterPort(wiring.Component):
    """Parts what goes to other CTAs from the paths of the unit, and joins what comes from them.

    Everything that stays in the SM passes in the same clock; where it meets what comes from
    others, the two take turns. What arrives never waits for what leaves, so SMs cannot wait for
    each other in a circle. Egress, Ingress and BarrierRouter say the rest.

    Parameters
    ----------
    params : TmaParams
        With ``ctas`` above 1.

    Members
    -------
    load_opened, store_opened : In of ``opened_layout``, of the trackers
    line, local_line : In, Out(stream) of ``rotated_line_layout``
    fill, local_fill : In, Out(stream) of ``fill_beat_layout``
    written, load_written : In, Out(stream) of ``written_layout``
    receiver_absent : Out(stream) of ``absent_receiver_layout``
    completion : In(stream) of ``barrier_completion_layout``
    update : Out(stream) of ``barrier_update_layout``
    error : Out(stream) of ``error_layout``
    store, memory_store : In, Out(stream) of ``write_line_layout``; with ``stores``, as the next
    performed, store_performed : In, Out(stream) of ``performed_layout``
    store_read, smem_read : In, Out(stream) of ``smem_read_layout``; with ``reductions``
    smem_data, store_data : In, Out(stream) of ``lanes_layout``; likewise
    and those of ``unit_ports``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        line = stream.Signature(rotated_line_layout(params))
        fill = stream.Signature(fill_beat_layout(params))
        written = stream.Signature(written_layout(params))
        ports = {
            **unit_ports(params),
            "load_opened": In(opened_layout(params)),
            "line": In(line),
            "local_line": Out(line),
            "fill": In(fill),
            "local_fill": Out(fill),
            "written": In(written),
            "load_written": Out(written),
            "receiver_absent": Out(stream.Signature(absent_receiver_layout(params))),
            "completion": In(stream.Signature(barrier_completion_layout(params))),
            "update": Out(stream.Signature(barrier_update_layout(params))),
            "error": Out(stream.Signature(error_layout(params))),
        }
        if params.stores:
            store = stream.Signature(write_line_layout(params))
            performed = stream.Signature(performed_layout(params))
            ports |= {
                "store_opened": In(opened_layout(params)),
                "store": In(store),
                "memory_store": Out(store),
                "performed": In(performed),
                "store_performed": Out(performed),
            }
        if params.reductions:
            read = stream.Signature(smem_read_layout(params))
            answer = stream.Signature(lanes_layout(params))
            ports |= {
                "store_read": In(read),
                "smem_read": Out(read),
                "smem_data": In(answer),
                "store_data": Out(answer),
            }
        super().__init__(ports)

    def elaborate(self, platform):
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

        # Out.
        part(m, flipped(self.line), self.line.p.remote, egress.line, lines.i[0])
        part(m, flipped(self.fill), self.fill.p.remote, egress.fill, flipped(self.local_fill))
        connect(m, flipped(self.remote_store), remote_store.i)
        connect(m, remote_store.o, egress.thread)
        connect(m, egress.packet, flipped(self.packet_out))
        connect(m, egress.written, written.i[1])
        connect(m, egress.receiver_absent, flipped(self.receiver_absent))
        m.d.comb += egress.load_opened.eq(self.load_opened)

        # In.
        connect(m, flipped(self.packet_in), ingress.packet)
        connect(m, ingress.line, lines.i[1])
        connect(m, lines.o, flipped(self.local_line))
        is_receipt = self.written.p.receipt.received
        part(m, flipped(self.written), is_receipt, ingress.written, written.i[0])
        connect(m, written.o, flipped(self.load_written))

        # Barriers.
        connect(m, flipped(self.completion), completions.i[0])
        connect(m, ingress.completion, completions.i[1])
        connect(m, completions.o, barrier_router.completion)
        connect(m, flipped(self.remote_command), barrier_router.command)
        connect(m, barrier_router.leaving, flipped(self.message_out))
        connect(m, flipped(self.message_in), barrier_router.arriving)
        connect(m, barrier_router.update, flipped(self.update))

        connect(m, remote_store.error, errors.i[0])
        connect(m, barrier_router.error, errors.i[1])
        connect(m, errors.o, flipped(self.error))
        if p.stores:
            self._connect_stores(m, egress)
        if p.reductions:
            m.submodules.smem_read_port = smem_read_port = SmemReadPort(p)
            connect(m, flipped(self.store_read), smem_read_port.read[0])
            connect(m, smem_read_port.data[0], flipped(self.store_data))
            connect(m, ingress.smem_read, smem_read_port.read[1])
            connect(m, smem_read_port.data[1], ingress.smem_data)
            connect(m, smem_read_port.smem_read, flipped(self.smem_read))
            connect(m, flipped(self.smem_data), smem_read_port.smem_data)
        return m

    def _connect_stores(self, m: Module, egress: Egress) -> None:
        m.submodules.performed_lines = performed = Arbiter(performed_layout(self.params), 2)
        store = flipped(self.store)
        part(m, store, store.p.write_mode.remote, egress.dsmem, flipped(self.memory_store))
        connect(m, flipped(self.performed), performed.i[0])
        connect(m, egress.performed, performed.i[1])
        connect(m, performed.o, flipped(self.store_performed))
        m.d.comb += egress.store_opened.eq(self.store_opened)
