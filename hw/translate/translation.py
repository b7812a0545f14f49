"""Translation: the TLB between the ports of a unit and global memory."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.translation import (
    tlb_invalidate_layout,
    walk_request_layout,
    walk_response_layout,
)
from hw.lib.pass_port import pass_port
from hw.params import TmaParams
from hw.translate.read_translation import ReadTranslation, read_ports
from hw.translate.tlb import READS, WRITES, Tlb
from hw.translate.write_translation import WriteTranslation, write_ports


def walker_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the members by which a unit asks for translations; none without a TLB."""
    if not params.tlb_entries:
        return {}
    return {
        "walk_request": Out(stream.Signature(walk_request_layout(params))),
        "walk_response": In(stream.Signature(walk_response_layout(params))),
        "tlb_invalidate": In(stream.Signature(tlb_invalidate_layout(params))),
    }


class Translation(wiring.Component):
    """Translates the addresses of reads, writes and tensor maps by a ``Tlb`` that they share.

    It is a ``Tlb``, a ``ReadTranslation``, and with ``stores`` a ``WriteTranslation``. Latency,
    throughput, back-pressure and errors are those of its blocks.

    Parameters
    ----------
    params : TmaParams
        With ``tlb_entries``.

    Members
    -------
    gnic_request, gnic_response, descriptor_request, descriptor_fill :
        Ports to the unit, as at ``ReadTranslation``.
    memory_request, memory_response, memory_descriptor_request, memory_descriptor_fill :
        Ports to memory, as at ``ReadTranslation``.
    gnic_write, gnic_ack, memory_write, memory_ack :
        As at ``WriteTranslation``; present with ``stores``.
    walk_request, walk_response, tlb_invalidate :
        As at ``Tlb``, where the last one is ``invalidate``.
    busy : Out; a read, a write or a walk is under way
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        ports = read_ports(params) | (write_ports(params) if params.stores else {})
        super().__init__(ports | walker_ports(params) | {"busy": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.tlb = tlb = Tlb(p)
        m.submodules.reads = reads = ReadTranslation(p)
        sides = {READS: (reads, read_ports(p))}
        if p.stores:
            m.submodules.writes = writes = WriteTranslation(p)
            sides[WRITES] = writes, write_ports(p)
        for number, (side, ports) in sides.items():
            for name in ports:
                pass_port(m, name, side, self)
            connect(m, side.lookup, tlb.lookup[number])
            connect(m, tlb.found[number], side.found)
            m.d.comb += [
                side.walked.eq(tlb.walked),
                side.filled.valid.eq(tlb.filled.valid),
                side.filled.p.eq(tlb.filled.p),
            ]
        connect(m, tlb.walk_request, flipped(self.walk_request))
        connect(m, flipped(self.walk_response), tlb.walk_response)
        connect(m, flipped(self.tlb_invalidate), tlb.invalidate)
        m.d.comb += [
            tlb.waited_for.eq(reads.waited_for),
            self.busy.eq(tlb.busy | reads.busy),
        ]
        return m
