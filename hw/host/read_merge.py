"""Read merge: reads of tensor maps and of request records, at one port."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import descriptor_fill_layout
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.lib.register_slice import SingleBuffer
from hw.params import TmaParams

READS = 8
"""Reads in flight."""


class ReadMerge(wiring.Component):
    """Gives each of two readers the answers to its reads, which come in the order of the reads.

    Latency: one clock for a read, none for an answer. Throughput: a read and an answer a clock; the
    readers take turns. Back-pressure: reads wait while ``READS`` are in flight. An answer waits for
    its reader, and holds up those behind it: a reader that waits for the other one must always be
    ready for its own.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream) of 64 bits, array of 2
        Reads of 64 bytes, by address.
    fill : Out(stream) of ``descriptor_fill_layout``, array of 2
    merged_request : Out(stream) of 64 bits
    merged_fill : In(stream) of ``descriptor_fill_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        super().__init__(
            {
                "request": In(stream.Signature(GLOBAL_ADDRESS_BITS)).array(2),
                "fill": Out(stream.Signature(descriptor_fill_layout(params))).array(2),
                "merged_request": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "merged_fill": In(stream.Signature(descriptor_fill_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.requests = requests = Arbiter(GLOBAL_ADDRESS_BITS, 2)
        m.submodules.readers = readers = Queue(1, READS)
        for request, i in zip(self.request, requests.i, strict=True):
            connect(m, flipped(request), i)
        m.submodules.merged = merged = SingleBuffer(GLOBAL_ADDRESS_BITS)
        connect(m, merged.o, flipped(self.merged_request))
        m.d.comb += [
            merged.i.valid.eq(requests.o.valid & readers.i.ready),
            merged.i.payload.eq(requests.o.payload),
            requests.o.ready.eq(merged.i.ready & readers.i.ready),
            readers.i.valid.eq(requests.o.valid & requests.o.ready),
            readers.i.payload.eq(requests.i[1].ready),
        ]
        for number, fill in enumerate(self.fill):
            is_reader = readers.o.valid & (readers.o.payload == number)
            m.d.comb += [
                fill.valid.eq(self.merged_fill.valid & is_reader),
                fill.p.eq(self.merged_fill.p),
            ]
            with m.If(is_reader):
                m.d.comb += self.merged_fill.ready.eq(fill.ready)
        m.d.comb += readers.o.ready.eq(self.merged_fill.valid & self.merged_fill.ready)
        return m
