"""AXI4 masters: each answer of R and of B is passed on once, in order, and as it came."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)

from hw.axi.map_reader import MAP_BYTES, MapReader
from hw.axi.read_port import ReadPort
from hw.axi.write_port import WritePort
from hw.layouts.axi import Response, b_layout, is_error, r_layout
from hw.layouts.ports import descriptor_fill_layout
from tests.formal.axi import HOST, PARAMS, Slice
from tests.formal.inside import Inside, inside
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

COUNT = 5
"""Width of the transfer counters; fewer payloads are under way than they count."""

BEATS = MAP_BYTES // PARAMS.axi_bytes
"""Beats of a tensor map."""


def fires(port) -> Value:
    """Return whether a transfer happens."""
    return port.valid & port.ready


def set_ports(m: Module, dut, inputs: list[str], outputs: list[str]) -> None:
    """Let the solver drive the streams of ``dut``, and assert that what it offers is stable."""
    for name in inputs:
        offer(m, getattr(dut, name))
        hold(m, getattr(dut, name), name, Assume)
    for name in outputs:
        port = getattr(dut, name)
        m.d.comb += port.ready.eq(AnySeq(1))
        hold(m, port, name, Assert)
    m.d.comb += Assume(~ResetSignal())


class Passed:
    """The payloads that go through a ``DoubleBuffer``: payload n is the one that came as n.

    Members
    -------
    want : payload n, which the solver chooses, as it chooses n
    is_wanted : Signal
        Payload n is the next one that leaves.
    """

    def __init__(self, m: Module, port, buffer, layout, leaves: Value) -> None:
        ins, outs = Signal(COUNT, name="ins"), Signal(COUNT, name="outs")
        held = Slice(m, buffer, layout)
        n = AnyConst(COUNT)
        self.want = layout(AnyConst(len(Value.cast(port.p))))
        self.is_wanted = Signal()
        self.outs = outs
        m.d.sync += [ins.eq(ins + fires(port)), outs.eq(outs + leaves)]
        with m.If(fires(port) & (ins == n)):
            m.d.comb += Assume(Value.cast(port.p) == Value.cast(self.want))
        m.d.comb += [
            self.is_wanted.eq(outs == n),
            Assert(ins == (outs + held.level)[:COUNT]),
        ]
        for age, (valid, payload) in enumerate(held.held):
            with m.If(valid & ((outs + age)[:COUNT] == n)):
                m.d.comb += Assert(Value.cast(payload) == Value.cast(self.want))


class WriteAnswerSpec(Elaboratable):
    """Answer n of B is answer n that is passed on: of a line, or of a completion record."""

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = WritePort(HOST)
        here = inside(dut)
        inputs = ["gnic_write", "completion_write", "b"]
        set_ports(m, dut, inputs, ["aw", "w", "gnic_ack", "completion_ack"])
        line, completion = dut.gnic_ack, dut.completion_ack
        leaves = fires(line) | fires(completion)
        passed = Passed(m, dut.b, here.b_slice, b_layout(HOST), leaves)
        want = passed.want
        m.d.comb += [
            Assert(~(line.valid & completion.valid)),
            Assert(leaves == fires(here.b_slice.o)),
        ]
        with m.If(line.valid & passed.is_wanted):
            m.d.comb += [
                Assert(~want.id[-1]),
                Assert(line.p.tag == want.id[:-1]),
                Assert(line.p.error == is_error(want.resp)),
                Assert(line.p.decode == (want.resp == Response.DECERR)),
            ]
        with m.If(completion.valid & passed.is_wanted):
            m.d.comb += [Assert(want.id[-1]), Assert(completion.p.error == is_error(want.resp))]
        m.d.comb += Cover((passed.outs == 3) & want.id[-1] & is_error(want.resp) & passed.is_wanted)
        return m


class ReadAnswerSpec(Elaboratable):
    """Beat n of R is beat n that is passed on: to its line, or to its tensor map, or dropped.

    Each line that is complete is passed on once, to the load or to the reduction that it is for.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = ReadPort(PARAMS)
        here = inside(dut)
        inputs = ["gnic_request", "descriptor_request", "reduction_read", "r"]
        set_ports(m, dut, inputs, ["ar"])
        response, reduced, fill = dut.gnic_response, dut.reduced_line, dut.descriptor_fill
        for port in response, reduced, fill:
            m.d.comb += port.ready.eq(AnySeq(1))
        beat = here.r_slice.o
        lines, maps = here.line_assembler, here.map_reader
        is_dropped = fires(beat) & beat.p.id[-1] & beat.p.id[0]
        parts = fires(lines.i), fires(maps.i), is_dropped
        leaves = parts[0] | parts[1] | parts[2]
        passed = Passed(m, dut.r, here.r_slice, r_layout(PARAMS), leaves)
        want = passed.want
        m.d.comb += [
            Assert(parts[0] + parts[1] + parts[2] == leaves),
            Assert(leaves == fires(beat)),
        ]
        for port, is_map in (lines.i, 0), (maps.i, 1):
            with m.If(port.valid & passed.is_wanted):
                m.d.comb += [
                    Assert(want.id[-1] == is_map),
                    Assert(port.p.data == want.data),
                    Assert(port.p.error == is_error(want.resp)),
                ]
                if not is_map:
                    m.d.comb += [
                        Assert(port.p.id == want.id[:-1]),
                        Assert(port.p.decode == (want.resp == Response.DECERR)),
                    ]
                else:
                    m.d.comb += Assert(~want.id[0])
        line = lines.o
        is_reduced = line.p.id >= PARAMS.tags
        m.d.comb += [
            Assert(fires(response) == (fires(line) & ~is_reduced)),
            Assert(fires(reduced) == (fires(line) & is_reduced)),
            Assert(fires(fill) == fires(maps.o)),
            Assert(~response.valid | (response.p.tag == line.p.id)),
            Assert(~reduced.valid | (reduced.p.number == (line.p.id - PARAMS.tags)[:1])),
        ]
        for port in response, reduced:
            with m.If(port.valid):
                m.d.comb += [
                    Assert(port.p.data == line.p.data),
                    Assert(port.p.error == line.p.error),
                    Assert(port.p.decode == line.p.decode),
                ]
        m.d.comb += Cover((passed.outs == 4) & fires(response))
        return m


class MapReaderSpec(Elaboratable):
    """Tensor map n has the beats that came as its beats, and an error, or DECERR, if one had it.

    The solver chooses n, and which of its beats is followed.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = MapReader(PARAMS)
        here = inside(dut)
        set_ports(m, dut, ["i"], ["o"])
        beat_bits = (BEATS - 1).bit_length()
        beats = Signal(COUNT + beat_bits)
        maps = Signal(COUNT)  # that left
        flags = "error", "decode"
        came = {name: Signal(name=f"{name}_came") for name in flags}  # in the last tensor map
        m.d.sync += [beats.eq(beats + fires(dut.i)), maps.eq(maps + fires(dut.o))]
        begun, number = beats[beat_bits:], beats[:beat_bits]
        with m.If(fires(dut.i)):
            m.d.sync += [
                came[name].eq(dut.i.p[name] | Mux(number == 0, 0, came[name])) for name in flags
            ]

        valid, fill = here.valid, descriptor_fill_layout(PARAMS)(here.fill)
        n, place = AnyConst(COUNT), AnyConst(beat_bits)
        want = AnyConst(PARAMS.axi_data_bits)
        with m.If(fires(dut.i) & (begun == n) & (number == place)):
            m.d.comb += Assume(dut.i.p.data == want)
        m.d.comb += [
            Assert(here.count == number),
            Assert(~valid | (number == 0)),
            Assert(begun == (maps + valid)[:COUNT]),
            *(Assert(~valid | (fill[name] == came[name])) for name in flags),
            *(Assert((number == 0) | (fill[name] == came[name])) for name in flags),
        ]
        words = Value.cast(fill.words)
        for count in range(1, BEATS + 1):
            is_now = (number == count) & (begun == n)
            if count == BEATS:
                is_now = valid & (maps == n)
            for first in range(count):
                bits = words.word_select(BEATS - count + first, PARAMS.axi_data_bits)
                with m.If(is_now & (place == first)):
                    m.d.comb += Assert(bits == want)
        m.d.comb += Cover((maps == 2) & came["error"] & (n == 1) & (want != 0))
        return m


def _drops_failed_writes(port: WritePort, here: Inside) -> None:
    with here.module.If(is_error(here.b_slice.o.p.resp)):
        here.module.d.comb += port.gnic_ack.valid.eq(0)


def _answers_twice(port: WritePort, here: Inside) -> None:
    here.module.d.comb += port.gnic_ack.valid.eq(here.b_slice.o.valid)


def _gives_maps_to_lines(_port: ReadPort, here: Inside) -> None:
    here.module.d.comb += here.line_assembler.i.valid.eq(here.r_slice.o.valid)


def _answers_loads_only(port: ReadPort, here: Inside) -> None:
    here.module.d.comb += port.gnic_response.valid.eq(here.line_assembler.o.valid)


def _forgets_errors(_reader: MapReader, here: Inside) -> None:
    with here.module.If(here.valid | (here.count != 0)):
        fill = descriptor_fill_layout(PARAMS)(here.fill)
        here.module.d.sync += [fill.error.eq(0), fill.decode.eq(0)]


PROOFS = [
    Proof(
        "AXI4 writes: each answer is passed on once, in order, with its tag",
        WriteAnswerSpec,
        depth=2,
        cover=14,
        bugs=(
            Bug("an answer with an error that is lost", WritePort, _drops_failed_writes, depth=8),
            Bug("an answer to a completion for a line, too", WritePort, _answers_twice, depth=8),
        ),
        unbounded=True,
    ),
    Proof(
        "AXI4 reads: each beat, and each line, is passed on once, in order",
        ReadAnswerSpec,
        depth=2,
        cover=20,
        bugs=(
            Bug("a beat of a tensor map for a line, too", ReadPort, _gives_maps_to_lines, depth=8),
            Bug("a reduced line for a load, too", ReadPort, _answers_loads_only, depth=16),
        ),
        unbounded=True,
    ),
    Proof(
        "AXI4 tensor maps: beats in their places, errors kept",
        MapReaderSpec,
        depth=2,
        cover=30,
        bugs=(Bug("an error that is forgotten", MapReader, _forgets_errors, depth=14),),
        unbounded=True,
    ),
]
