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
from hw.layouts.ports import (
    clear_layout,
    gnic_request_layout,
)
from hw.layouts.translation import cause_field, translated_response_layout
from hw.lib.memory import RowMemory
from hw.lib.queue import Queue
from hw.lib.tags import Tags
from hw.params import TmaParams

WRONG_TAGS_WAITING = 4
"""Places for wrong tags: of the response that is found wrong, of the one behind it, and of the one
that is admitted before the first is seen to wait."""


class Gnic(wiring.Component):
    """Gives each line request a tag, and each response the use that its tag stands for.

    The attributes of a line go out with its request, and have no effect here. A prefetch takes no
    tag and has no response.

    Latency: one clock from ``i`` to ``request``, and one from ``response`` to ``o``. Throughput:
    one request and one response a clock. Back-pressure: a request waits while all tags are in
    flight; for when a tag is free again see ``Tags``. ``response.ready`` comes from a register: it
    is high in the clock behind ``admits_next``, while no wrong tag waits to be reported.

    Errors: a response with ``error`` is passed on as a line marked ``failed``. It is also reported
    on ``fault``, a clock after the line is offered. A response whose tag is not in flight is
    dropped, and its tag is reported on ``wrong_tag``; later responses wait until the report is
    taken.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``line_request_layout``
    o : Out(stream) of ``line_arrival_layout``; always ready
    admits_next : In(1)
        A response may be taken in the next clock.
    fault : Out(stream) of ``read_fault_layout``; the receiver is always ready
    request : Out(stream) of ``gnic_request_layout``
    response : In(stream) of ``translated_response_layout``
    wrong_tag : Out(stream) of the tag of a response that was dropped
    clear : In of ``clear_layout``; the state of all tags is to be cleared after a reset
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(line_request_layout(params))),
                "o": Out(stream.Signature(line_arrival_layout(params), always_ready=True)),
                "admits_next": In(1),
                "fault": Out(stream.Signature(read_fault_layout(params))),
                "request": Out(stream.Signature(gnic_request_layout(params))),
                "response": In(stream.Signature(translated_response_layout(params))),
                "wrong_tag": Out(stream.Signature(params.tag_bits)),
                "clear": In(clear_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.tags = tags = Tags(p)
        m.submodules.wrong_tags = wrong_tags = Queue(p.tag_bits, WRONG_TAGS_WAITING)
        m.submodules.requests = requests = Queue(line_request_layout(p), 2)
        entry = data.StructLayout({"line": p.line_address_bits, "use": line_use_layout(p)})
        m.submodules.table = table = RowMemory(entry, p.tags)
        connect(m, flipped(self.i), requests.i)
        connect(m, wrong_tags.o, flipped(self.wrong_tag))

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
        may_admit = Signal()
        arrival_valid = Signal()
        response = Signal(translated_response_layout(p), reset_less=True)
        response_fire = Signal()
        fault_valid = Signal()
        fault = Signal(read_fault_layout(p), reset_less=True)
        m.d.comb += [
            tags.clear.eq(self.clear),
            self.response.ready.eq(may_admit),
            response_fire.eq(self.response.valid & self.response.ready),
            tags.answer.valid.eq(response_fire),
            tags.answer.payload.eq(self.response.p.tag),
            wrong_tags.i.valid.eq(arrival_valid & tags.wrong),
            wrong_tags.i.payload.eq(response.tag),
            read.addr.eq(self.response.p.tag),
            self.o.valid.eq(arrival_valid & ~tags.wrong),
            self.o.p.use.eq(read.data.use),
            self.o.p.failed.eq(response.error),
            self.o.p.data.eq(response.data),
            self.fault.valid.eq(fault_valid),
            self.fault.p.eq(fault),
        ]
        m.d.sync += [
            may_admit.eq(self.admits_next & (wrong_tags.level == 0)),
            arrival_valid.eq(response_fire),
            response.eq(self.response.p),
            fault_valid.eq(arrival_valid & response.error & ~tags.wrong),
            fault.slot.eq(read.data.use.slot),
            fault.line.eq(read.data.line),
            *(fault[name].eq(response[name]) for name in cause_field(p)),
        ]
        m.d.sync += [
            Assert(~self.fault.valid | self.fault.ready, "gnic: a read fault is not taken\n"),
            Assert(~wrong_tags.i.valid | wrong_tags.i.ready, "gnic: a wrong tag is not taken\n"),
        ]
        return m
