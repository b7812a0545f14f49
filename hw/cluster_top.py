"""Cluster top: connects the units of up to 32 SMs with the network between them."""

from collections.abc import Callable

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.cluster.crossbar import Crossbar
from hw.layouts.barriers import barrier_update_layout
from hw.layouts.cluster import packet_layout
from hw.params import TmaParams
from hw.top import Tma, tma_ports

BETWEEN_UNITS = "cta_rank", "running", "packet_out", "packet_in", "message_out", "message_in"
"""Ports of a unit that connect it to the cluster, and are no ports of the cluster."""


class Cluster(wiring.Component):
    """The units of the SMs of a cluster, and the two crossbars between them.

    A slice is a unit with its own ports: requests, global memory, shared memory, barriers. One
    crossbar carries packets for shared memory (multicast, DSMEM, ``st.async``), the other carries
    operations on barriers. A packet is signalled only after its receiver has written it, and the
    mbarrier units accept every operation. The crossbars therefore never wait for each other in a
    circle.

    A multicast load reads global memory once: its issuer sends each line to all receivers. A slow
    receiver holds up the packets that are addressed to it, whatever its senders have queued behind
    these, and nothing else. An SM that does not take its error records acts like a slow receiver,
    since the faults of its barriers wait for them. A CTA that does not run gets nothing. The sender
    gets an error record (DST_CTA) with the rank of one such receiver.

    Latency and throughput: those of ``Tma`` and ``Crossbar``.

    Parameters
    ----------
    params : TmaParams
        With ``ctas`` above 1.
    unit : callable
        Makes a slice, with the ports of ``Tma``. Tests replace it by a stand-in.

    Members
    -------
    sm_0, sm_1 and so on : ports of the slices
        The ports of ``Tma`` without ``BETWEEN_UNITS``.
    running : In(ctas)
        CTAs that run, one bit for each.
    """

    def __init__(
        self, params: TmaParams, unit: Callable[[TmaParams], wiring.Component] = Tma
    ) -> None:
        if params.ctas < 2:
            raise ValueError(f"ctas = {params.ctas}: must be at least 2 in a cluster")
        self.params = params
        self._unit = unit
        members = tma_ports(params)
        outside = {name: member for name, member in members.items() if name not in BETWEEN_UNITS}
        slices = {f"sm_{rank}": Out(wiring.Signature(outside)) for rank in range(params.ctas)}
        super().__init__({**slices, "running": In(params.ctas)})

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.packets = packets = Crossbar(packet_layout(p), p.ctas)
        m.submodules.messages = messages = Crossbar(barrier_update_layout(p), p.ctas)
        for rank in range(p.ctas):
            name = f"sm_{rank}"
            m.submodules[name] = unit = self._unit(p)
            outside = getattr(self, name)
            m.d.comb += [unit.cta_rank.eq(rank), unit.running.eq(self.running)]
            connect(m, unit.packet_out, packets.i[rank])
            connect(m, packets.o[rank], unit.packet_in)
            connect(m, messages.o[rank], unit.message_in)
            message = unit.message_out
            m.d.comb += [
                messages.i[rank].valid.eq(message.valid),
                message.ready.eq(messages.i[rank].ready),
                messages.i[rank].p.mask.eq(1 << message.p.holder[: p.cta_bits]),
                messages.i[rank].p.payload.eq(message.p.update),
            ]
            for port, member in outside.signature.members.items():
                inner, outer = getattr(unit, port), flipped(getattr(outside, port))
                if member.flow is In:
                    connect(m, outer, inner)
                else:
                    connect(m, inner, outer)
        return m
