"""GNIC port: line reads with tags, answered in any order."""

from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.free_list import FreeList
from hw.layouts import (
    gnic_request_layout,
    gnic_response_layout,
    line_arrival_layout,
    line_request_layout,
    line_use_layout,
    read_fault_layout,
)
from hw.params import TmaParams
from hw.queue import Queue


class Gnic(wiring.Component):
    """Gives each line request a tag, and each response the use that its tag stands for.

    Attributes of a line go out with its request; nothing here depends on them.

    One request and one response a clock. A request waits while all tags are in flight; a tag is
    free again when its response is taken. A prefetch takes no tag and has no response. Two clocks
    from ``i`` to ``request``, one from ``response`` to ``o``. Each response must carry a tag in
    flight, once.

    A response with ``error`` arrives marked ``failed``, and is reported on ``fault`` as it does.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``line_request_layout``
    o : Out(stream) of ``line_arrival_layout``
    fault : Out(stream) of ``read_fault_layout``; the receiver is always ready
    request : Out(stream) of ``gnic_request_layout``
    response : In(stream) of ``gnic_response_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(line_request_layout(params))),
                "o": Out(stream.Signature(line_arrival_layout(params))),
                "fault": Out(stream.Signature(read_fault_layout(params))),
                "request": Out(stream.Signature(gnic_request_layout(params))),
                "response": In(stream.Signature(gnic_response_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.tags = tags = FreeList(p.tags)
        m.submodules.requests = requests = Queue(gnic_request_layout(p), 2)
        entry = data.StructLayout({"line": p.line_address_bits, "use": line_use_layout(p)})
        m.submodules.table = table = Memory(shape=entry, depth=p.tags, init=[])
        connect(m, requests.o, flipped(self.request))

        write = table.write_port()
        issue = Signal()
        tagged = Signal()
        m.d.comb += [
            self.i.ready.eq((tags.taken.valid | self.i.p.prefetch) & requests.i.ready),
            issue.eq(self.i.valid & self.i.ready),
            tagged.eq(issue & ~self.i.p.prefetch),
            tags.taken.ready.eq(tagged),
            requests.i.valid.eq(issue),
            requests.i.p.prefetch.eq(self.i.p.prefetch),
            requests.i.p.attributes.eq(self.i.p.attributes),
            requests.i.p.tag.eq(tags.taken.payload),
            requests.i.p.line.eq(self.i.p.line),
            write.en.eq(tagged),
            write.addr.eq(tags.taken.payload),
            write.data.line.eq(self.i.p.line),
            write.data.use.eq(self.i.p.use),
        ]

        read = table.read_port()
        arrived = Signal()
        response = Signal(gnic_response_layout(p), reset_less=True)
        take = Signal()
        m.d.comb += [
            self.response.ready.eq(~arrived | self.o.ready),
            take.eq(self.response.valid & self.response.ready),
            tags.returned.valid.eq(take),
            tags.returned.payload.eq(self.response.p.tag),
            read.en.eq(take),
            read.addr.eq(self.response.p.tag),
            self.o.valid.eq(arrived),
            self.o.p.use.eq(read.data.use),
            self.o.p.failed.eq(response.error),
            self.o.p.data.eq(response.data),
            self.fault.valid.eq(arrived & response.error & self.o.ready),
            self.fault.p.slot.eq(read.data.use.slot),
            self.fault.p.line.eq(read.data.line),
        ]
        with m.If(self.response.ready):
            m.d.sync += [arrived.eq(self.response.valid), response.eq(self.response.p)]
        m.d.sync += Assert(
            ~self.fault.valid | self.fault.ready, "Gnic: a read fault was not taken\n"
        )

        in_flight = Signal(range(p.tags + 1))
        m.d.sync += [
            in_flight.eq(in_flight + tagged - take),
            Assert(~take | (in_flight != 0), "Gnic: a response that nobody asked for\n"),
        ]
        return m
