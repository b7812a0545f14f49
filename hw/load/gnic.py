"""GNIC port: line reads and line writes, each with tags of its own, answered in any order."""

from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.lines import (
    line_arrival_layout,
    line_request_layout,
    line_use_layout,
    read_fault_layout,
)
from hw.layouts.ports import gnic_request_layout, gnic_response_layout
from hw.lib.free_list import FreeList
from hw.lib.queue import Queue
from hw.params import TmaParams


class Gnic(wiring.Component):
    """Gives each line request a tag, and each response the use that its tag stands for.

    Attributes of a line go out with its request; nothing here depends on them.

    One request and one response a clock. A request waits while all tags are in flight; a tag is
    free again in the clock after its response is taken. A prefetch takes no tag and has no
    response. A line passes to ``request`` in the same clock if nothing waits there, in a
    ``compact`` unit a clock later; one clock from ``response`` to ``o``. Each response must carry a
    tag in flight, once.

    A response with ``error`` arrives marked ``failed``, and is reported on ``fault`` in the first
    clock in which it is offered.

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
        m.submodules.requests = requests = Queue(line_request_layout(p), 2, latency=int(p.compact))
        entry = data.StructLayout({"line": p.line_address_bits, "use": line_use_layout(p)})
        m.submodules.table = table = Memory(shape=entry, depth=p.tags, init=[])
        connect(m, flipped(self.i), requests.i)

        # A tag is taken as the request leaves: no sooner than it is of use.
        write = table.write_port()
        line, request = requests.o.p, self.request
        tagged = Signal()
        m.d.comb += [
            request.valid.eq(requests.o.valid & (tags.taken.valid | line.prefetch)),
            requests.o.ready.eq(request.ready & (tags.taken.valid | line.prefetch)),
            tagged.eq(request.valid & request.ready & ~line.prefetch),
            tags.taken.ready.eq(tagged),
            *(request.p[name].eq(line[name]) for name in ("prefetch", "attributes", "line")),
            request.p.tag.eq(tags.taken.payload),
            write.en.eq(tagged),
            write.addr.eq(tags.taken.payload),
            write.data.line.eq(line.line),
            write.data.use.eq(line.use),
        ]

        read = table.read_port()
        arrived = Signal()
        just_arrived = Signal()
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
            self.fault.valid.eq(just_arrived & response.error),
            self.fault.p.slot.eq(read.data.use.slot),
            self.fault.p.line.eq(read.data.line),
        ]
        m.d.sync += just_arrived.eq(take)
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
