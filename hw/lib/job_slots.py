"""Job slots: give each request a number from its first job until its completion."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import GLOBAL_ADDRESS_BITS, ErrorCode
from hw.layouts.jobs import generator_job_layout, walk_job_layout
from hw.layouts.translation import cause_of
from hw.lib.free_list import FreeList
from hw.params import TmaParams


def failure(
    m: Module, params: TmaParams, receiver_absent: Value, fault: data.View, location: Value
) -> tuple[Signal, Value, Signal]:
    """Return code, ``dim`` and value of the error record of a request that failed.

    With ``receiver_absent``, a CTA that should receive data does not run: DST_CTA, and
    ``location`` is the rank of that CTA. Otherwise an access to global memory failed: GMEM_FAULT,
    and ``location`` is the global address divided by ``line_bytes``; ``dim`` is `cause_of`
    ``fault``.
    """
    code = Signal(ErrorCode)
    value = Signal(GLOBAL_ADDRESS_BITS)
    with m.If(receiver_absent):
        m.d.comb += [code.eq(ErrorCode.DST_CTA), value.eq(location)]
    with m.Else():
        m.d.comb += [
            code.eq(ErrorCode.GMEM_FAULT),
            value.eq(Cat(Const(0, params.lane_bits + 4), location)),
        ]
    return code, Mux(receiver_absent, 0, cause_of(params, fault)), value


class JobSlots(wiring.Component):
    """Gives each request a free slot, and writes the slot into all jobs of the request.

    Latency: none. Throughput: a job a clock. Back-pressure: the first job of a request waits while
    all slots are taken; otherwise ``i`` waits only for ``o``. A returned slot is free from the next
    clock on. A prefetch takes no slot, because its completion is not reported; the slot number in
    its jobs has no meaning.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(walk_job_layout(params)))
        All jobs of a request, then those of the next request.
    o : Out(stream.Signature(generator_job_layout(params)))
    opened : Out(1)
        The first job of a request passes in this clock, and the request takes ``slot``.
    slot : Out(params.slot_bits)
        The slot that the next request takes.
    is_free : Out(1)
        ``slot`` is a free slot. A table that is indexed by slots may be written at ``slot`` while
        ``is_free`` is high, up to the clock with ``opened``.
    returned : In(stream.Signature(params.slot_bits))
        The slot of a completed request. Always ready.
    busy : Out(1)
        A request has a slot.
    in_flight : Out(range(requests_in_flight + 1))
        Requests that have a slot; present with ``counters``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        counted = {"in_flight": Out(range(params.requests_in_flight + 1))}
        super().__init__(
            {
                **(counted if params.counters else {}),
                "i": In(stream.Signature(walk_job_layout(params))),
                "o": Out(stream.Signature(generator_job_layout(params))),
                "opened": Out(1),
                "slot": Out(params.slot_bits),
                "is_free": Out(1),
                "returned": In(stream.Signature(params.slot_bits)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.slots = slots = FreeList(self.params.requests_in_flight)
        connect(m, flipped(self.returned), slots.returned)
        needs_slot = Signal()
        may_pass = Signal()
        current_slot = Signal(self.params.slot_bits, reset_less=True)
        channel = self.i.p.stream
        if self.params.stores:
            channel = Mux(self.i.p.walk.store, self.params.streams, channel)
        m.d.comb += [
            needs_slot.eq(self.i.p.first & ~self.i.p.walk.prefetch),
            may_pass.eq(slots.taken.valid | ~needs_slot),
            self.slot.eq(slots.taken.payload),
            self.is_free.eq(slots.taken.valid),
            self.o.valid.eq(self.i.valid & may_pass),
            self.o.p.slot.eq(Mux(needs_slot, self.slot, current_slot)),
            *(
                self.o.p[name].eq(self.i.p[name])
                for name in generator_job_layout(self.params).members
                if name not in ("channel", "slot")
            ),
            self.o.p.channel.eq(channel),
            self.i.ready.eq(self.o.ready & may_pass),
            self.opened.eq(self.i.valid & self.i.ready & needs_slot),
            slots.taken.ready.eq(self.opened),
        ]
        taken = Signal(range(self.params.requests_in_flight + 1))
        m.d.sync += taken.eq(taken + self.opened - self.returned.valid)
        m.d.comb += self.busy.eq(taken != 0)
        if self.params.counters:
            m.d.comb += self.in_flight.eq(taken)
        with m.If(self.opened):
            m.d.sync += current_slot.eq(self.slot)
        return m
