"""Translation: the TLB between the ports of a unit and global memory."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import (
    DescriptorFill,
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
)
from hw.layouts.translation import (
    tlb_invalidate_layout,
    translated_ack_layout,
    translated_response_layout,
    walk_request_layout,
    walk_response_layout,
)
from hw.params import TmaParams
from hw.translate.read_translation import ReadTranslation
from hw.translate.tlb import READS, WRITES, Tlb
from hw.translate.write_translation import WriteTranslation


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
        request = stream.Signature(gnic_request_layout(params))
        address = stream.Signature(GLOBAL_ADDRESS_BITS)
        fill = stream.Signature(DescriptorFill)
        ports = {
            "gnic_request": In(request),
            "gnic_response": Out(stream.Signature(translated_response_layout(params))),
            "descriptor_request": In(address),
            "descriptor_fill": Out(fill),
            "memory_request": Out(request),
            "memory_response": In(stream.Signature(gnic_response_layout(params))),
            "memory_descriptor_request": Out(address),
            "memory_descriptor_fill": In(fill),
        }
        if params.stores:
            write = stream.Signature(gnic_write_layout(params))
            ports |= {
                "gnic_write": In(write),
                "gnic_ack": Out(stream.Signature(translated_ack_layout(params))),
                "memory_write": Out(write),
                "memory_ack": In(stream.Signature(gnic_ack_layout(params))),
            }
        super().__init__(ports | walker_ports(params) | {"busy": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.tlb = tlb = Tlb(p)
        m.submodules.reads = reads = ReadTranslation(p)
        sides = {READS: reads}
        for name in ("gnic_request", "descriptor_request", "memory_response"):
            connect(m, flipped(getattr(self, name)), getattr(reads, name))
        for name in ("gnic_response", "descriptor_fill", "memory_request"):
            connect(m, getattr(reads, name), flipped(getattr(self, name)))
        connect(m, reads.memory_descriptor_request, flipped(self.memory_descriptor_request))
        connect(m, flipped(self.memory_descriptor_fill), reads.memory_descriptor_fill)
        if p.stores:
            m.submodules.writes = writes = WriteTranslation(p)
            sides[WRITES] = writes
            connect(m, flipped(self.gnic_write), writes.gnic_write)
            connect(m, writes.gnic_ack, flipped(self.gnic_ack))
            connect(m, writes.memory_write, flipped(self.memory_write))
            connect(m, flipped(self.memory_ack), writes.memory_ack)
        for number, side in sides.items():
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
