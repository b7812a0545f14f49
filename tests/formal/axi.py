"""AXI4 masters: what they offer is legal, stays offered, and is what the unit asked for."""

from dataclasses import replace
from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)

from hw.axi.line_assembler import LineAssembler
from hw.axi.read_port import ReadPort
from hw.axi.write_port import WritePort
from hw.layouts.axi import (
    Burst,
    ar_layout,
    aw_layout,
    axi_write_layout,
    line_beat_layout,
    w_layout,
)
from hw.layouts.ports import gnic_request_layout
from hw.lib.arbiter import Arbiter
from hw.params import TmaParams
from tests.formal.arbiter import keep_the_choice
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

PARAMS = TmaParams(
    line_bytes=16,
    address_bits=32,
    tags=2,
    requests_in_flight=2,
    threads=2,
    streams=1,
    axi_data_bits=64,
    axi_prefetch=True,
)
HOST = replace(PARAMS, host=True, request_id_bits=2)
"""``PARAMS`` with the completion records of a host."""

BEATS = 2
"""Beats of a line."""

COUNT = 5
"""Width of the transfer counters; fewer payloads are under way than they count."""

PAGE = 12
"""Bits of an address in the 4 KiB that a burst must not leave."""


def is_legal(m: Module, address, size: int, name: str) -> Value:
    """Return whether an AR or AW of ``size`` bytes is legal, and is aligned to them."""
    last = Signal(PAGE + 1, name=f"{name}_last")
    m.d.comb += last.eq(address.addr[:PAGE] + size - 1)
    return (
        (address.burst == Burst.INCR)
        & ((1 << address.size) == PARAMS.axi_bytes)
        & (((address.len + 1) << address.size) == size)
        & (address.addr[: size.bit_length() - 1] == 0)
        & ~last[PAGE]
    )


class Slice:
    """The payloads in a ``DoubleBuffer``, the first one first: each with whether it is there."""

    def __init__(self, m: Module, buffer: Elaboratable, layout) -> None:
        state = inside(buffer)
        first, second = state.signal("payload"), state.signal("second")
        self.held = [
            (state.signal("valid"), layout(first)),
            (state.signal("second_valid"), layout(second)),
        ]
        self.level = Signal(2, name="level")
        m.d.comb += [
            self.level.eq(self.held[0][0] + self.held[1][0]),
            Assert(~self.held[1][0] | self.held[0][0]),
        ]


class WriteSpec(Elaboratable):
    """Line n that comes is write n of AW, and burst n of W, beat by beat.

    A line is one of the unit, or has a completion record of a host.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params

    def elaborate(self, _platform) -> Module:
        m = Module()
        params = self.params
        m.submodules.dut = dut = WritePort(params)
        here = inside(dut)
        line = inside(here.line)
        addresses = Slice(m, here.aw_slice, aw_layout(params))
        beats = Slice(m, here.w_slice, w_layout(params))
        inputs = [dut.gnic_write, *([dut.completion_write] if params.host else [])]
        for number, port in enumerate((*inputs, dut.b)):
            offer(m, port)
            hold(m, port, f"in_{number}", Assume)
        for number, port in enumerate((dut.aw, dut.w, dut.gnic_ack)):
            m.d.comb += port.ready.eq(AnySeq(1))
            hold(m, port, f"out_{number}", Assert)
        m.d.comb += Assume(~ResetSignal())

        n = AnyConst(COUNT)
        writes = here.writes.o
        want = axi_write_layout(params)(AnyConst(len(Value.cast(writes.p))))
        taken, addressed = Signal(COUNT), Signal(COUNT)  # lines, and addresses that left
        sent = Signal(COUNT + 1)  # beats that left
        fire = writes.valid & writes.ready
        self._follow_inputs(m, here.writes, inputs)
        m.d.sync += [
            taken.eq(taken + fire),
            addressed.eq(addressed + (dut.aw.valid & dut.aw.ready)),
            sent.eq(sent + (dut.w.valid & dut.w.ready)),
        ]
        with m.If(fire & (taken == n)):
            m.d.comb += Assume(Value.cast(writes.p) == Value.cast(want))

        line_valid, held = line.signal("valid"), axi_write_layout(params)(line.signal("payload"))
        was_addressed, had_beats = here.signal("was_addressed"), here.signal("had_beats")
        number = here.signal("number")
        begun = (taken - line_valid)[:COUNT]  # lines that left the register
        of_line = Mux(had_beats, BEATS, number)
        m.d.comb += [
            Assert((addressed + addresses.level)[:COUNT] == (begun + was_addressed)[:COUNT]),
            Assert((sent + beats.level)[: COUNT + 1] == (begun * BEATS + of_line)[: COUNT + 1]),
            Assert(line_valid | ~(was_addressed | had_beats | (number != 0))),
            Assert(~(was_addressed & had_beats)),
            Assert(~had_beats | (number == 0)),
        ]
        with m.If(line_valid & (begun == n)):
            m.d.comb += Assert(Value.cast(held) == Value.cast(want))
        for age, (valid, aw) in enumerate(addresses.held):
            with m.If(valid):
                m.d.comb += Assert(is_legal(m, aw, PARAMS.line_bytes, f"aw_{age}"))
                with m.If((addressed + age)[:COUNT] == n):
                    m.d.comb += [
                        Assert(aw.id == want.id),
                        Assert(aw.addr[4:] == want.line),
                        Assert(Value.cast(aw.user) == Value.cast(want.attributes)),
                    ]
        for age, (valid, w) in enumerate(beats.held):
            beat = (sent + age)[: COUNT + 1]
            with m.If(valid):
                m.d.comb += Assert(w.last == beat[0])
                with m.If(beat[1:] == n):
                    m.d.comb += [
                        Assert(w.data == want.data.word_select(beat[0], PARAMS.axi_data_bits)),
                        Assert(w.strb == want.strobe.word_select(beat[0], PARAMS.axi_bytes)),
                    ]
        m.d.comb += Cover((addressed == 2) & (sent == 2 * BEATS) & (taken == 3) & want.id[-1])
        return m

    def _follow_inputs(self, m: Module, writes: Arbiter, inputs: list) -> None:
        """Assert that each write comes from one input, with its bytes and its id."""
        fires = [port.valid & port.ready for port in inputs]
        write, line = inputs[0].p, writes.i[0].p
        m.d.comb += [
            Assert(sum(fires) == (writes.o.valid & writes.o.ready)),
            Assert(line.id == write.tag),
            *(
                Assert(Value.cast(line[name]) == Value.cast(write[name]))
                for name in ("line", "attributes", "strobe", "data")
            ),
        ]
        if self.params.host:
            keep_the_choice(m, writes)
            completion, record = writes.i[1].p, inputs[1].p
            m.d.comb += [
                Assert(completion.id == 1 << self.params.tag_bits),
                Assert(completion.line == record.address),
                Assert(completion.strobe.all()),
                Assert(completion.data == Value.cast(record.record)),
            ]


class ReadSpec(Elaboratable):
    """Every AR is legal; load n that comes is load n of AR."""

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = ReadPort(PARAMS)
        here = inside(dut)
        asked = Slice(m, here.ar_slice, ar_layout(PARAMS))
        keep_the_choice(m, here.requests)
        inputs = dut.gnic_request, dut.descriptor_request, dut.reduction_read, dut.r
        for number, port in enumerate(inputs):
            offer(m, port)
            hold(m, port, f"in_{number}", Assume)
        outputs = dut.ar, dut.gnic_response, dut.descriptor_fill, dut.reduced_line
        for port in outputs:
            m.d.comb += port.ready.eq(AnySeq(1))
        hold(m, dut.ar, "ar", Assert)
        m.d.comb += [
            Assume(~ResetSignal()),
            # The descriptor cache asks for maps at multiples of their size.
            Assume(dut.descriptor_request.payload[:6] == 0),
        ]

        def is_load(ar):
            return ~ar.id[-1] & (ar.id < PARAMS.tags)

        n = AnyConst(COUNT)
        want = gnic_request_layout(PARAMS)(AnyConst(len(Value.cast(dut.gnic_request.p))))
        taken, left = Signal(COUNT), Signal(COUNT)  # loads
        request = dut.gnic_request
        fire = request.valid & request.ready & ~request.p.prefetch
        m.d.sync += [
            taken.eq(taken + fire),
            left.eq(left + (dut.ar.valid & dut.ar.ready & is_load(dut.ar.p))),
        ]
        with m.If(fire & (taken == n)):
            m.d.comb += Assume(Value.cast(request.p) == Value.cast(want))
        loads = [valid & is_load(ar) for valid, ar in asked.held]
        m.d.comb += Assert((left + loads[0] + loads[1])[:COUNT] == taken)
        for age, (valid, ar) in enumerate(asked.held):
            is_map = ar.id[-1] & ~ar.id[0]
            with m.If(valid & is_map):
                m.d.comb += Assert(is_legal(m, ar, 64, f"map_{age}"))
            with m.If(valid & ~is_map):
                m.d.comb += Assert(is_legal(m, ar, PARAMS.line_bytes, f"line_{age}"))
            with m.If(valid):
                m.d.comb += Assert(ar.id[-1] | (ar.id < PARAMS.axi_lines))
            behind = (left + (loads[0] if age else 0))[:COUNT]
            with m.If(loads[age] & (behind == n)):
                m.d.comb += [
                    Assert(ar.id == want.tag),
                    Assert(ar.addr[4:] == want.line),
                    Assert(Value.cast(ar.user) == Value.cast(want.attributes)),
                ]
        m.d.comb += Cover((left == 2) & dut.gnic_response.valid & dut.descriptor_fill.valid)
        return m


class AssemblerSpec(Elaboratable):
    """The line of any one tag has its beats, whatever beats of others come between them.

    The solver chooses the tag. Its next beats come when its line has left.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = LineAssembler(PARAMS)
        here = inside(dut)
        offer(m, dut.i)
        hold(m, dut.i, "i", Assume)
        hold(m, dut.o, "o", Assert)
        number = AnyConst(PARAMS.axi_line_bits)
        m.d.comb += [
            dut.o.ready.eq(AnySeq(1)),
            Assume(~ResetSignal()),
            Assume(number < PARAMS.axi_lines),
            Assume(dut.i.p.id < PARAMS.axi_lines),
        ]
        came, is_complete = Signal(), Signal()  # the first beat, and both
        first, last = (Signal(line_beat_layout(PARAMS), name=name) for name in ("first", "last"))
        comes = dut.i.valid & dut.i.ready & (dut.i.p.id == number)
        leaves = dut.o.valid & dut.o.ready & (dut.o.p.id == number)
        m.d.comb += Assume(~(dut.i.valid & (dut.i.p.id == number) & is_complete))
        with m.If(comes & ~came):
            m.d.sync += [came.eq(1), first.eq(dut.i.p)]
        with m.If(comes & came):
            m.d.sync += [is_complete.eq(1), last.eq(dut.i.p)]
        with m.If(leaves):
            m.d.sync += [came.eq(0), is_complete.eq(0)]
        with m.If(dut.o.valid & (dut.o.p.id == number)):
            m.d.comb += [
                Assert(is_complete),
                Assert(dut.o.p.data == Cat(first.data, last.data)),
                Assert(dut.o.p.error == (first.error | last.error)),
            ]

        # Where its beats are: in the register, in the memories, or at the output.
        beat = line_beat_layout(PARAMS)(here.signal("beat"))
        in_register = here.signal("beat_valid") & (beat.id == number)
        at_output = dut.o.valid & (dut.o.p.id == number)
        clears, cleared = here.signal("clears"), here.signal("row")
        (count,) = here.counts.read_ports[:1]
        content = Signal(here.counts.shape)
        m.d.comb += content.eq(row(m, here.counts, 0))
        with m.Switch(number):
            for other in range(1, PARAMS.axi_lines):
                with m.Case(other):
                    m.d.comb += content.eq(row(m, here.counts, other))
        stored = Signal(PARAMS.axi_data_bits)
        m.d.comb += stored.eq(row(m, here.beats_0, 0))
        with m.Switch(number):
            for other in range(1, PARAMS.axi_lines):
                with m.Case(other):
                    m.d.comb += stored.eq(row(m, here.beats_0, other))
        is_stored = content.beats == 1
        m.d.comb += [
            Assert(cleared < PARAMS.axi_lines),
            Assert(~clears | ~(here.signal("beat_valid") | here.signal("line_valid"))),
            Assert(~is_complete | came),
        ]
        with m.If(clears):
            m.d.comb += Assert(~came)
        with m.If(~clears | (number < cleared)):
            m.d.comb += [
                Assert(in_register | (is_stored == (came & ~is_complete))),
                Assert(~in_register | (count.data.as_value() == content.as_value())),
                Assert(~in_register | came),
                Assert(~in_register | (is_complete == is_stored)),
                Assert(~in_register | ~at_output),
                Assert((is_complete & ~in_register) == at_output),
                Assert(~is_stored | ((stored == first.data) & (content.failed == first.error))),
                Assert(is_stored | ~content.failed),
            ]
            with m.If(in_register):
                m.d.comb += Assert(
                    Value.cast(beat) == Mux(is_complete, Value.cast(last), Value.cast(first))
                )
        m.d.comb += Cover(leaves & (dut.o.p.data[0] != dut.o.p.data[64]))
        return m


def _withdraws(port: WritePort, here: Inside) -> None:
    here.module.d.comb += port.aw.valid.eq(here.aw_slice.o.valid & port.w.ready)


def _takes_for_line(_port: WritePort, here: Inside) -> None:
    here.module.d.comb += here.writes.i[1].p.id.eq(0)


def _forgets_the_burst(_port: ReadPort, here: Inside) -> None:
    here.module.d.comb += here.requests.i[0].p.len.eq(1)


def _mixes_lines(_assembler: LineAssembler, here: Inside) -> None:
    here.module.d.comb += here.beats_0.write_ports[0].addr.eq(0)


PROOFS = [
    Proof(
        "AXI4 writes: legal, stable, in order, each with its beats",
        partial(WriteSpec, PARAMS),
        depth=2,
        cover=16,
        bugs=(Bug("an address that is withdrawn", WritePort, _withdraws, depth=8),),
        unbounded=True,
    ),
    Proof(
        "AXI4 writes of a host: legal, stable, in order, each with its beats",
        partial(WriteSpec, HOST),
        depth=2,
        cover=16,
        bugs=(Bug("a completion as a line of the unit", WritePort, _takes_for_line, depth=6),),
        unbounded=True,
    ),
    Proof(
        "AXI4 reads: legal, stable, in order",
        ReadSpec,
        depth=2,
        cover=30,
        bugs=(Bug("a tensor map of two beats", ReadPort, _forgets_the_burst, depth=6),),
        unbounded=True,
    ),
    Proof(
        "AXI4 lines: beats of each line together, whatever comes between",
        AssemblerSpec,
        depth=3,
        cover=16,
        bugs=(Bug("beats of all lines in one row", LineAssembler, _mixes_lines, depth=14),),
        unbounded=True,
    ),
]
