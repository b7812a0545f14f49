"""Job slots: a number for each request between its first job and its end."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import GLOBAL_ADDRESS_BITS, ErrorCode
from hw.layouts.jobs import generator_job_layout, walk_job_layout
from hw.lib.free_list import FreeList
from hw.params import TmaParams


def failure(m: Module, params: TmaParams, gone: Value, line: Value) -> tuple[Signal, Signal]:
    """Return code and value of the record of a request that failed at ``line``, or with ``gone`` at
    the CTA of that number.
    """
    code = Signal(ErrorCode)
    value = Signal(GLOBAL_ADDRESS_BITS)
    with m.If(gone):
        m.d.comb += [code.eq(ErrorCode.DST_CTA), value.eq(line)]
    with m.Else():
        m.d.comb += [
            code.eq(ErrorCode.GMEM_FAULT),
            value.eq(Cat(Const(0, params.lane_bits + 4), line)),
        ]
    return code, value


class JobSlots(wiring.Component):
    """Gives each request a slot, that of all its jobs.

    Jobs pass through in the same clock; the first of a request waits while all slots are taken. A
    prefetch takes none: nobody is told of its end. A slot that comes back is free from the next
    clock on.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``walk_job_layout``; all jobs of a request, then those of the next
    o : Out(stream) of ``generator_job_layout``
    opened : Out(1)
        The first job of a request passes, and ...
    slot : Out
        ... this is its slot.
    is_free : Out(1)
        ``slot`` is nobody's yet: what is kept for its request may be written, until it is opened.
    returned : In(stream) of slots; always ready
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(walk_job_layout(params))),
                "o": Out(stream.Signature(generator_job_layout(params))),
                "opened": Out(1),
                "slot": Out(params.slot_bits),
                "is_free": Out(1),
                "returned": In(stream.Signature(params.slot_bits)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slots = slots = FreeList(self.params.requests_in_flight)
        connect(m, flipped(self.returned), slots.returned)
        opens = Signal()
        may_pass = Signal()
        held = Signal(self.params.slot_bits, reset_less=True)
        m.d.comb += [
            opens.eq(self.i.p.first & ~self.i.p.walk.prefetch),
            may_pass.eq(slots.taken.valid | ~opens),
            self.slot.eq(slots.taken.payload),
            self.is_free.eq(slots.taken.valid),
            self.o.valid.eq(self.i.valid & may_pass),
            self.o.p.slot.eq(Mux(opens, self.slot, held)),
            *(
                self.o.p[name].eq(self.i.p[name])
                for name in generator_job_layout(self.params).members
                if name != "slot"
            ),
            self.i.ready.eq(self.o.ready & may_pass),
            self.opened.eq(self.i.valid & self.i.ready & opens),
            slots.taken.ready.eq(self.opened),
        ]
        with m.If(self.opened):
            m.d.sync += held.eq(self.slot)
        return m
