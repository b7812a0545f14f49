"""Line reducer: a line has one reduction under way, and none beside a write of the line."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    Cover,
    Elaboratable,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib.data import View

from hw.axi.line_reducer import BUCKET_BITS, LineReducer
from hw.layouts.axi import reduced_line_layout, reduction_read_layout
from hw.layouts.ports import gnic_write_layout
from hw.params import TmaParams
from hw.reduce.reduction_unit import ALU_LATENCY
from tests.formal.arbiter import keep_the_choice
from tests.formal.axi import Slice
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.queue import follow_the_level
from tests.formal.streams import hold

PARAMS = TmaParams(
    line_bytes=16,
    address_bits=32,
    tags=2,
    requests_in_flight=2,
    threads=2,
    streams=1,
    axi_data_bits=64,
)

LINE_BITS = BUCKET_BITS + 1
"""Bits of a line's number that differ: one above those that choose the count of its writes."""


CHOICES = {
    "i": {"tag": 1, "line": LINE_BITS, "reduction.enabled": 1},
    "ack": {"tag": 1, "error": 1},
    "line": {"number": 1, "error": 1},
}
"""Fields of the inputs that the solver chooses, and how many of their bits; the others are 0."""


def field_of(payload: View, path: str) -> Value:
    """Return a field, by its name or by those of the fields that it is in."""
    for name in path.split("."):
        payload = payload[name]
    return payload


class ReducerSpec(Elaboratable):
    """A line is reduced when no write and no other reduction of it is under way, and is written
    when none is reduced. Each write and each reduction has one answer, and a reduction has at most
    one write, which has its tag and its line.

    The solver chooses what comes, with tags that are not in use; which lines are read, and when;
    and the order in which writes are answered.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = LineReducer(PARAMS)
        here = inside(dut)
        stub = Module()
        here.alu.elaborate = lambda _platform: stub
        # Data does not count here: only the fields that choose what happens are any.
        for name, fields in CHOICES.items():
            port = getattr(dut, name)
            m.d.comb += port.valid.eq(AnySeq(1))
            for field, bits in fields.items():
                m.d.comb += field_of(port.p, field).eq(AnySeq(bits))
            hold(m, port, name, Assume)
        for name in "o", "answered", "read":
            port = getattr(dut, name)
            m.d.comb += port.ready.eq(AnySeq(1))
            hold(m, port, name, Assert)
        m.d.comb += Assume(~ResetSignal())

        # What is under way, by tag, and the reads under way, by number.
        tags, reads = PARAMS.tags, PARAMS.axi_reductions
        bits = len(dut.i.p.line)
        busy, reduces, sent = (
            [Signal(name=f"{name}_{tag}") for tag in range(tags)]
            for name in ("busy", "reduces", "sent")
        )
        lines = [Signal(bits, name=f"line_of_{tag}") for tag in range(tags)]
        asked = [Signal(name=f"asked_{number}") for number in range(reads)]
        takes, writes = (port.valid & port.ready for port in (dut.i, dut.o))
        answers = dut.answered.valid & dut.answered.ready
        for tag in range(tags):
            with m.If(takes & (dut.i.p.tag == tag)):
                m.d.sync += [
                    busy[tag].eq(1),
                    reduces[tag].eq(dut.i.p.reduction.enabled),
                    lines[tag].eq(dut.i.p.line),
                ]
            with m.If(writes & (dut.o.p.tag == tag)):
                m.d.sync += sent[tag].eq(1)
            with m.If(answers & (dut.answered.p.tag == tag)):
                m.d.sync += [busy[tag].eq(0), sent[tag].eq(0)]
            is_same = busy[tag] & (lines[tag] == dut.i.p.line)
            with m.If(takes & is_same):
                m.d.comb += Assert(~(reduces[tag] | dut.i.p.reduction.enabled))
        for number in range(reads):
            with m.If(dut.read.valid & dut.read.ready & (dut.read.p.number == number)):
                m.d.comb += Assert(~asked[number])
                m.d.sync += asked[number].eq(1)
            with m.If(dut.line.valid & dut.line.ready & (dut.line.p.number == number)):
                m.d.sync += asked[number].eq(0)

        def of(values: list, index: Value) -> Value:
            return Array(values)[index]

        m.d.comb += [
            # Tags are not in use; lines come that were asked for; writes are answered that were
            # sent.
            Assume(~dut.i.valid | ~of(busy, dut.i.p.tag)),
            Assume(~dut.line.valid | of(asked, dut.line.p.number)),
            Assume(~dut.ack.valid | of(sent, dut.ack.p.tag)),
        ]
        with m.If(dut.o.valid):
            tag = dut.o.p.tag
            write = dut.i.p  # which is passed on at once
            is_new = dut.i.valid & (tag == write.tag)
            m.d.comb += [
                Assert(~is_new | (~write.reduction.enabled & (dut.o.p.line == write.line))),
                Assert(is_new | (of(busy, tag) & of(reduces, tag) & ~of(sent, tag))),
                Assert(is_new | (dut.o.p.line == of(lines, tag))),
                Assert(~dut.o.p.reduction.enabled),
            ]
        with m.If(dut.answered.valid):
            tag = dut.answered.p.tag
            m.d.comb += [
                Assert(of(busy, tag)),
                Assert(of(sent, tag) | (of(reduces, tag) & dut.answered.p.error)),
            ]
        last = Signal(gnic_write_layout(PARAMS), name="last_answered")
        with m.If(answers):
            m.d.sync += [
                last.line.eq(of(lines, dut.answered.p.tag)),
                last.reduction.enabled.eq(of(reduces, dut.answered.p.tag)),
            ]
        self._follow_writes(m, here, busy, reduces, lines, last)
        self._follow_reductions(m, here, busy, reduces, lines, sent, asked)

        has_ended = Signal()  # a reduction of the line
        line = AnyConst(bits)
        of_line = of(reduces, dut.answered.p.tag) & (of(lines, dut.answered.p.tag) == line)
        with m.If(answers & of_line & ~dut.answered.p.error):
            m.d.sync += has_ended.eq(1)
        again = takes & dut.i.p.reduction.enabled & (dut.i.p.line == line)
        m.d.comb += Cover(has_ended & again)
        return m

    def _follow_writes(self, m: Module, here: Inside, busy, reduces, lines, last) -> None:
        """Assert that the writes in flight are counted, by the lowest bits of their lines.

        ``last`` is what was answered last.
        """
        was_answered, read = here.was_answered, here.buckets.read_ports[0].data
        m.d.comb += Assert(
            ~was_answered
            | (
                (read.is_write == ~last.reduction.enabled)
                & (read.bucket == last.line[:BUCKET_BITS])
            )
        )
        for tag in range(PARAMS.tags):
            kept = row(m, here.buckets, tag)
            with m.If(busy[tag]):
                m.d.comb += [
                    Assert(kept.is_write == ~reduces[tag]),
                    Assert(kept.bucket == lines[tag][:BUCKET_BITS]),
                ]
        for number in range(1 << BUCKET_BITS):
            under_way = [
                busy[tag] & ~reduces[tag] & (lines[tag][:BUCKET_BITS] == number)
                for tag in range(PARAMS.tags)
            ]
            is_last = ~last.reduction.enabled & (last.line[:BUCKET_BITS] == number)
            count = here.signal(f"in_flight_{number}")
            m.d.comb += Assert(count == sum(under_way, was_answered & is_last))

    def _follow_reductions(
        self, m: Module, here: Inside, busy, reduces, lines, sent, asked
    ) -> None:
        """Assert that each reduction has one entry, and is at one place until it is answered."""
        reads = Slice(m, here.reads, reduction_read_layout(PARAMS))
        queue = here.under_way
        state = follow_the_level(m, queue)
        follow_the_level(m, here.results)
        last = [here.signal(f"last_{clock}") for clock in range(ALU_LATENCY)]
        m.d.comb += [
            Assert(here.lines_used == queue.level),
            Assert(sum(last, here.results.level) == queue.level),
            *(Assert(here.signal(f"comes_{n}") == flag) for n, flag in enumerate(last)),
        ]
        for arbiter in here.writes, here.acks:
            keep_the_choice(m, arbiter)

        write = gnic_write_layout(PARAMS)
        rows = [write(row(m, state.storage, number)) for number in range(queue.depth)]
        is_held = [(number - state.consume)[:2] < queue.level for number in range(queue.depth)]
        line = reduced_line_layout(PARAMS)(here.signal("line"))
        read = here.entries.read_ports[0].data
        entries = range(PARAMS.axi_reductions)
        tags = [here.signal(f"tag_{number}") for number in entries]
        m.d.comb += Assert(~(here.busy.all() & (tags[0] == tags[1])))
        for number, tag in zip(entries, tags, strict=True):
            kept, is_busy = row(m, here.entries, number), here.busy[number]
            at = here.valid & (line.number == number)
            before = [valid & (ask.number == number) for valid, ask in reads.held]
            behind = [held & (item.tag == tag) for held, item in zip(is_held, rows, strict=True)]
            places = sum([*before, asked[number], at])
            with m.If(is_busy):
                m.d.comb += [
                    Assert(Array(busy)[tag] & Array(reduces)[tag]),
                    Assert(here.signal(f"line_{number}") == Array(lines)[tag]),
                    Assert((kept.tag == tag) & (kept.line == Array(lines)[tag])),
                    Assert(places + sum(behind) + Array(sent)[tag] == 1),
                ]
            with m.Else():
                m.d.comb += Assert(places == 0)
            with m.If(at):
                m.d.comb += Assert((read.tag == tag) & (read.line == Array(lines)[tag]))
        for held, item in zip(is_held, rows, strict=True):
            owners = [here.busy[n] & (tags[n] == item.tag) for n in entries]
            m.d.comb += Assert(~held | ((sum(owners) == 1) & (item.line == Array(lines)[item.tag])))
        for tag in range(PARAMS.tags):
            owners = [here.busy[n] & (tags[n] == tag) for n in entries]
            m.d.comb += [
                Assert((busy[tag] & reduces[tag]) == (sum(owners) == 1)),
                Assert(~sent[tag] | busy[tag]),
            ]


def _ends_early(reducer: LineReducer, here: Inside) -> None:
    with here.module.If(reducer.line.valid & reducer.line.ready):
        here.module.d.sync += here.busy.eq(0)


def _counts_no_writes(_reducer: LineReducer, here: Inside) -> None:
    for number in range(1 << BUCKET_BITS):
        here.module.d.sync += here.signal(f"in_flight_{number}").eq(0)


PROOFS = [
    Proof(
        "line reducer: a line is under way once, and answered once",
        ReducerSpec,
        depth=2,
        cover=16,
        bugs=(
            Bug("a reduction that ends when its line comes", LineReducer, _ends_early, depth=8),
            Bug("a reduction beside a write", LineReducer, _counts_no_writes, depth=6),
        ),
        unbounded=True,
    ),
]
