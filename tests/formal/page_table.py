"""Page table: the surroundings of a translation in proofs, and what always holds inside it."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Elaboratable, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import data

from hw.layouts.translation import (
    page_read_layout,
    paged_read_layout,
    translation_layout,
    waiting_read_layout,
    walk_request_layout,
)
from hw.params import TmaParams
from hw.translate.translation import Translation
from tests.formal.arbiter import keep_the_choice
from tests.formal.inside import copied_row, inside, row
from tests.formal.queue import follow_the_level
from tests.formal.streams import hold, offer

PARAMS = TmaParams(
    line_bytes=16,
    address_bits=32,
    tags=2,
    requests_in_flight=2,
    descriptor_cache_entries=2,
    threads=2,
    streams=1,
    tlb_entries=2,
    tlb_page_bits=21,
)
ENTRIES = range(PARAMS.tlb_entries)


def elements(m: Module, queue: Elaboratable, layout: data.Layout) -> list[tuple[Value, data.View]]:
    """Return the payloads in a queue of two, the first one first, each with whether it is there."""
    state = follow_the_level(m, queue)
    rows = [row(m, state.storage, number) for number in range(2)]
    first = Mux(state.consume, rows[1], rows[0])
    second = Mux(state.consume, rows[0], rows[1])
    return [
        (queue.level > age, data.View(layout, part)) for age, part in enumerate((first, second))
    ]


class Environment:
    """Inputs of a translation, a page table and its walker.

    The solver chooses a page. Its translation is ``current``, and changes with an invalidation. The
    walker answers what it was asked, in any order, with the translation of then or of later.

    Attributes
    ----------
    page, current : the page and its translation
    invalidated : the translation of the page changes in this clock
    pending, walked_page, is_old : of each entry: its walk was asked for, for which page, and before
        the last invalidation of the page
    """

    def __init__(self, m: Module, dut: Translation) -> None:
        p = PARAMS
        inputs = "gnic_request", "descriptor_request", "gnic_write", "walk_response"
        answers = "tlb_invalidate", "memory_response", "memory_descriptor_fill", "memory_ack"
        for name in (*inputs, *answers):
            offer(m, getattr(dut, name))
            hold(m, getattr(dut, name), name, Assume)
        outputs = "gnic_response", "descriptor_fill", "gnic_ack", "walk_request"
        requests = "memory_request", "memory_descriptor_request", "memory_write"
        for name in (*outputs, *requests):
            port = getattr(dut, name)
            m.d.comb += port.ready.eq(AnySeq(1))
            hold(m, port, name, Assert)
        m.d.comb += Assume(~ResetSignal())

        self.page = AnyConst(p.page_number_bits)
        self.current = Signal(translation_layout(p), name="current")
        self.invalidated = Signal()
        invalidate = dut.tlb_invalidate
        m.d.comb += self.invalidated.eq(
            invalidate.valid & (invalidate.p.all | (invalidate.p.page == self.page))
        )
        with m.If(self.invalidated):
            m.d.sync += self.current.eq(AnySeq(len(Value.cast(self.current))))

        self.pending = [Signal(name=f"pending_{n}") for n in ENTRIES]
        self.is_old = [Signal(name=f"is_old_{n}") for n in ENTRIES]
        self.walked_page = [Signal(p.page_number_bits, name=f"walked_page_{n}") for n in ENTRIES]
        question, answer = dut.walk_request, dut.walk_response
        for number in ENTRIES:
            asks = question.valid & question.ready & (question.p.id == number)
            ends = answer.valid & (answer.p.id == number)
            m.d.comb += Assume(~ends | self.pending[number])
            with m.If(ends & (self.walked_page[number] == self.page) & ~self.is_old[number]):
                m.d.comb += Assume(Value.cast(answer.p.translation) == Value.cast(self.current))
            with m.If(self.invalidated):
                m.d.sync += self.is_old[number].eq(1)
            with m.If(ends):
                m.d.sync += self.pending[number].eq(0)
            with m.If(asks):
                m.d.sync += [
                    self.pending[number].eq(1),
                    self.walked_page[number].eq(question.p.page),
                    self.is_old[number].eq(self.invalidated),
                ]


class State:
    """Entries and lookups of the TLB, with what holds of them in every clock.

    ``good`` says of each entry that it has, or will have, the current translation of the page.
    ``read`` is the read whose page is looked up. ``waiting``, ``translated`` and ``absent`` are the
    reads behind it, each with whether it is there.
    """

    def __init__(self, m: Module, dut: Translation, env: Environment) -> None:
        p = PARAMS
        here = inside(dut)
        self.tlb = tlb = inside(here.tlb)
        self.reads = inside(here.reads)
        self.writes = inside(here.writes)
        for arbiter in self.reads.reads, self.writes.acks:
            keep_the_choice(m, arbiter)
        live, walking = tlb.signal("live"), tlb.signal("walking")
        pages = tlb.array("page_{}", p.tlb_entries)
        walks = elements(m, tlb.walks, walk_request_layout(p))
        turn = tlb.signal("turn")
        m.d.comb += Assert((turn != 0) & ((turn & (turn - 1))[: p.tlb_entries] == 0))
        self.good = []
        for number in ENTRIES:
            waits = [valid & (walk.id == number) for valid, walk in walks]
            translation = data.View(
                translation_layout(p), copied_row(m, self.reads, "translations", number)
            )
            written = row(m, self.writes.translations, number)
            is_current = Value.cast(translation) == Value.cast(env.current)
            is_current &= Value.cast(written) == Value.cast(env.current)
            good = Signal(name=f"good_{number}")
            m.d.comb += [
                Assert(waits[0] + waits[1] + env.pending[number] == walking[number]),
                *(
                    Assert(~is_waiting | (walk.page == pages[number]))
                    for is_waiting, (_, walk) in zip(waits, walks, strict=True)
                ),
                Assert(~env.pending[number] | (env.walked_page[number] == pages[number])),
                good.eq(
                    (pages[number] == env.page)
                    & Mux(walking[number], ~env.pending[number] | ~env.is_old[number], is_current)
                ),
                Assert(~(live[number] & (pages[number] == env.page)) | good),
                Assert(
                    ~(live[number] & ~walking[number] & (pages[number] == env.page))
                    | translation.present
                ),
            ]
            self.good.append(good)

        # A page has one live entry at most, and none while it is missing.
        m.d.comb += Assert(~live.all() | (pages[0] != pages[1]))
        for name in ("read", "write"):
            is_miss = tlb.signal(f"{name}_valid") & ~tlb.signal(f"{name}_hit")
            for number in ENTRIES:
                is_same = pages[number] == tlb.signal(f"{name}_page")
                m.d.comb += Assert(~(is_miss & live[number] & is_same))

        self.translated = elements(m, self.reads.translated, paged_read_layout(p))
        tag_layout = data.StructLayout({"tag": p.tag_bits})
        self.absent = elements(m, self.reads.absent_tags, tag_layout)

        # A tensor map at a time is translated, and its answer has a place.
        self.read = data.View(page_read_layout(p), self.reads.signal("read"))
        self.waiting = elements(m, self.reads.waiting, waiting_read_layout(p))
        maps = [tlb.signal("read_valid") & self.read.is_map]
        maps += [valid & waits.is_map for valid, waits in self.waiting]
        translates, answers = self.reads.signal("translates"), self.reads.map_faults
        follow_the_level(m, answers)
        m.d.comb += [
            Assert(sum(maps) == translates),
            Assert(~translates | ~self.reads.signal("map_valid")),
            Assert(~translates | (answers.level < p.descriptor_cache_entries)),
        ]
