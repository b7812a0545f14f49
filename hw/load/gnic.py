"""GNIC port: tags the reads of lines, and takes their responses in any order."""

from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.lines import (
    line_arrival_layout,
    line_request_layout,
    line_use_layout,
    read_fault_layout,
)
from hw.layouts.ports import gnic_request_layout, gnic_response_layout
from hw.lib.free_list import FreeList
from hw.lib.memory import RowMemory
from hw.lib.queue import Queue
from hw.params import TmaParams


class Gnic(wiring.Component):
    """Gives each line request a tag, and each response the use that its tag stands for.

    The attributes of a line go out with its request, and have no effect here. A prefetch takes no
    tag and has no response.

    Latency: one clock from ``i`` to ``request``, and one from ``response`` to ``o``. Throughput:
    one request and one response a clock. Back-pressure: a request waits while all tags are in
    flight; a tag is free again in the clock after its response is taken. ``response.ready`` follows
    ``o.ready``.

    Errors: a response with ``error`` is passed on as a line marked ``failed``. It is also reported
    on ``fault``, in the first clock in which the line is offered. Each response must carry a tag in
    flight, and each tag is answered once.

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

    def __init__(self, params: TmaParams) -> None:
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

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.tags = tags = FreeList(p.tags)
        m.submodules.requests = requests = Queue(line_request_layout(p), 2)
        entry = data.StructLayout({"line": p.line_address_bits, "use": line_use_layout(p)})
        m.submodules.table = table = RowMemory(entry, p.tags)
        connect(m, flipped(self.i), requests.i)

        # A request takes its tag only when it leaves, so that no tag is idle.
        write = table.write_port()
        line, request = requests.o.p, self.request
        read_fire = Signal()
        m.d.comb += [
            request.valid.eq(requests.o.valid & (tags.taken.valid | line.prefetch)),
            requests.o.ready.eq(request.ready & (tags.taken.valid | line.prefetch)),
            read_fire.eq(request.valid & request.ready & ~line.prefetch),
            tags.taken.ready.eq(read_fire),
            *(request.p[name].eq(line[name]) for name in ("prefetch", "attributes", "line")),
            request.p.tag.eq(tags.taken.payload),
            write.en.eq(read_fire),
            write.addr.eq(tags.taken.payload),
            write.data.line.eq(line.line),
            write.data.use.eq(line.use),
        ]

        read = table.read_port()
        arrival_valid = Signal()
        is_first_offer = Signal()
        response = Signal(gnic_response_layout(p), reset_less=True)
        response_fire = Signal()
        m.d.comb += [
            self.response.ready.eq(~arrival_valid | self.o.ready),
            response_fire.eq(self.response.valid & self.response.ready),
            tags.returned.valid.eq(response_fire),
            tags.returned.payload.eq(self.response.p.tag),
            read.en.eq(response_fire),
            read.addr.eq(self.response.p.tag),
            self.o.valid.eq(arrival_valid),
            self.o.p.use.eq(read.data.use),
            self.o.p.failed.eq(response.error),
            self.o.p.data.eq(response.data),
            self.fault.valid.eq(is_first_offer & response.error),
            self.fault.p.slot.eq(read.data.use.slot),
            self.fault.p.line.eq(read.data.line),
        ]
        m.d.sync += is_first_offer.eq(response_fire)
        with m.If(self.response.ready):
            m.d.sync += [arrival_valid.eq(self.response.valid), response.eq(self.response.p)]
        m.d.sync += Assert(
            ~self.fault.valid | self.fault.ready, "gnic: a read fault is not taken\n"
        )

        in_flight = Signal(range(p.tags + 1))
        m.d.sync += [
            in_flight.eq(in_flight + read_fire - response_fire),
            Assert(~response_fire | (in_flight != 0), "gnic: a response has no request\n"),
        ]
        return m
