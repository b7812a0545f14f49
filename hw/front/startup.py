"""Startup: clears the control memories after a reset, and says when the unit is idle."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.ports import clear_layout, control_rows, request_layout
from hw.params import TmaParams

SETTLED = 16
"""Clocks without a busy block after which nothing is on its way between two blocks."""


class Control(wiring.Signature):
    """Port by which the owner of the unit prepares a reset, or a change of power or clock.

    Members
    -------
    drain : In
        No request is accepted while this is high, from the second clock on. Requests that were
        accepted go on to their end. A request that waits at the port is kept there.
    idle : Out
        The unit is ready after its reset, and nothing is pending: no request, no fetch of a tensor
        map, no thread that waits, nothing that another block has not taken. It rises
        ``SETTLED + 1`` clocks later, and falls in the clock after a request was accepted.

    A reset forgets what is pending. Answers of global memory to accesses before the reset are
    dropped, with an error record each, but one whose tag is in flight again is taken for the right
    one: memory must have answered or forgotten them all before the first request is offered. Blocks
    that answer in order (shared memory, barriers, tensor maps) are reset with the unit, or have
    answered everything before. See docs/integration.md.
    """

    def __init__(self) -> None:
        super().__init__({"drain": In(1), "idle": Out(1)})


class Startup(wiring.Component):
    """Clears the control memories after a reset, and lets requests in when that is done.

    Memories have no reset. Those whose contents must be known, such as counters of requests that
    have not begun, are cleared by the row, all memories at once. Requests wait meanwhile.

    Latency: none for requests; ``control_rows`` clocks after a reset. Throughput: a request a
    clock. Back-pressure: ``i.ready`` follows ``o.ready``, and is low during the clearing and while
    the unit drains. A request that was offered at ``o`` is not withdrawn.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_layout(params)))
    o : Out(stream.Signature(request_layout(params)))
    busy : In
        Something is pending in a block, or at a port of the unit.
    clear : Out(clear_layout(params))
        A row to clear in this clock.
    control : Out(Control())
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        request = stream.Signature(request_layout(params))
        super().__init__(
            {
                "i": In(request),
                "o": Out(request),
                "busy": In(1),
                "clear": Out(clear_layout(params)),
                "control": Out(Control()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        row = Signal.like(self.clear.row)
        clears = Signal(init=1)
        is_open = Signal()
        m.d.comb += [
            self.clear.enabled.eq(clears),
            self.clear.row.eq(row),
            self.o.valid.eq(self.i.valid & is_open),
            self.o.payload.eq(self.i.payload),
            self.i.ready.eq(self.o.ready & is_open),
        ]
        with m.If(clears):
            m.d.sync += row.eq(row + 1)
            with m.If(row == control_rows(self.params) - 1):
                m.d.sync += clears.eq(0)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += is_open.eq(~clears & ~self.control.drain)

        quiet = Signal(range(SETTLED + 1))
        is_settled = quiet == SETTLED
        m.d.comb += self.control.idle.eq(is_settled)
        was_busy = Signal()  # in the clock before
        m.d.sync += was_busy.eq(self.busy)
        with m.If(clears | was_busy | self.o.valid):
            m.d.sync += quiet.eq(0)
        with m.Elif(~is_settled):
            m.d.sync += quiet.eq(quiet + 1)
        return m
