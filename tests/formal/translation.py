"""Translation: an access leaves once, for the page of its page table, and gets one answer."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Array, Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.layouts.ports import gnic_write_layout
from hw.layouts.translation import (
    PageFault,
    translated_response_layout,
)
from hw.translate.read_translation import ReadTranslation
from hw.translate.tlb import Tlb
from hw.translate.translation import Translation
from hw.translate.write_translation import WriteTranslation
from tests.formal.inside import Inside, inside, row
from tests.formal.page_table import ENTRIES, PARAMS, Environment, State
from tests.formal.proof import Bug, Proof


class ReadSpec(Elaboratable):
    """The solver chooses a tag: the reads with it are of a line of the page.

    A read whose page was not invalidated since it was looked up leaves for the current translation.
    It is at one place: looked up, waiting, translated, absent, at memory, or answered.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = PARAMS
        m.submodules.dut = dut = Translation(p)
        env = Environment(m, dut)
        state = State(m, dut, env)
        tag, line = AnyConst(p.tag_bits), AnyConst(p.page_line_bits)

        # The read from outside.
        is_open, is_fresh, is_sent, is_returned = (
            Signal(name=name) for name in ("is_open", "is_fresh", "is_sent", "is_returned")
        )

        def is_ours(port) -> Value:
            return port.valid & (port.p.tag == tag)

        request, response = dut.gnic_request, dut.gnic_response
        sent, returned = dut.memory_request, dut.memory_response
        asks = is_ours(request) & ~request.p.prefetch
        leaves = is_ours(sent) & ~sent.p.prefetch
        m.d.comb += [
            Assume(~asks | (request.p.line == Cat(line, env.page))),
            Assume(~asks | ~is_open),
            Assume(~is_ours(returned) | (is_sent & ~is_returned)),
            Assert(~leaves | (is_open & ~is_sent)),
            Assert(~(is_ours(response)) | is_open),
        ]
        with m.If(leaves & is_fresh):
            m.d.comb += [
                Assert(sent.p.line == Cat(line, env.current.page)),
                Assert(env.current.present),
            ]
        with m.If(is_ours(response) & (response.p.page != PageFault.NONE)):
            m.d.comb += [
                Assert(response.p.page == PageFault.ABSENT),
                Assert(response.p.error & ~is_sent),
                Assert(~is_fresh | ~env.current.present),
            ]
        with m.If(is_ours(response) & (response.p.page == PageFault.NONE)):
            m.d.comb += Assert(is_returned)
        with m.If(env.invalidated):
            m.d.sync += is_fresh.eq(0)
        with m.If(leaves & sent.ready):
            m.d.sync += is_sent.eq(1)
        with m.If(is_ours(returned) & returned.ready):
            m.d.sync += is_returned.eq(1)
        with m.If(is_ours(response) & response.ready):
            m.d.sync += [is_open.eq(0), is_sent.eq(0), is_returned.eq(0)]
        with m.If(asks & request.ready):
            m.d.sync += [is_open.eq(1), is_fresh.eq(1)]
            m.d.comb += Assert(~env.invalidated)

        # The read inside.
        reads, tlb = state.reads, state.tlb

        def is_read(valid, read) -> Value:
            return valid & ~read.is_map & ~read.prefetch & (read.tag == tag)

        read = state.read
        good = Array(state.good)
        is_looked_up = is_read(tlb.signal("read_valid"), read)
        places = [is_looked_up]
        with m.If(is_looked_up):
            m.d.comb += [Assert(read.line == line), Assert(tlb.signal("read_page") == env.page)]
            with m.If(is_fresh & tlb.signal("read_hit")):
                m.d.comb += Assert(good[tlb.signal("read_entry")])

        last_places = [row(m, reads.last_places, number) for number in ENTRIES]
        consume = reads.signal("consume")
        waiting = inside(reads.waiting)
        m.d.comb += [
            Assert(consume == waiting.signal("consume")),
            Assert(reads.signal("produce") == waiting.signal("produce")),
        ]
        for age, (valid, waits) in enumerate(state.waiting):
            is_here = is_read(valid, waits)
            places.append(is_here)
            behind = (Array(last_places)[waits.entry] - consume)[:1]
            with m.If(valid):
                m.d.comb += [
                    Assert(reads.signal("waited_for").bit_select(waits.entry, 1)),
                    Assert(behind >= age),
                ]
            with m.If(is_here):
                m.d.comb += [Assert(waits.line == line), Assert(~is_fresh | good[waits.entry])]
        for valid, leaving in state.translated:
            m.d.comb += Assert(~valid | ~leaving.is_map)
            is_here = is_read(valid, leaving)
            places.append(is_here)
            with m.If(is_here):
                m.d.comb += Assert(leaving.line == line)
                with m.If(is_fresh):
                    m.d.comb += [
                        Assert(leaving.page == env.current.page),
                        Assert(env.current.present),
                    ]
        for valid, absent in state.absent:
            is_here = valid & (absent.tag == tag)
            places.append(is_here)
            m.d.comb += Assert(~(is_here & is_fresh) | ~env.current.present)
        places += [is_sent & ~is_returned, is_ours(response)]
        m.d.comb += [
            Assert(sum(places) == is_open),
            Assert(~is_sent | is_open),
            Assert(~is_returned | is_sent),
        ]
        register = inside(reads.response_register)
        answer = data.View(translated_response_layout(p), register.signal("payload"))
        answered = register.signal("valid") & (answer.tag == tag)
        m.d.comb += [
            Assert(~answered | (is_sent == is_returned)),
            Assert(~is_returned | answered),
        ]

        # A read that came after an invalidation is answered, after one that had no translation.
        had_fault, was_fresh = Signal(), Signal()
        done = is_ours(response) & response.ready
        with m.If(done & (response.p.page == PageFault.ABSENT)):
            m.d.sync += had_fault.eq(1)
        with m.If(done & is_sent & is_fresh & (env.current.page != 0)):
            m.d.sync += was_fresh.eq(1)
        m.d.comb += Cover(had_fault & was_fresh)
        return m


class WriteSpec(Elaboratable):
    """The solver chooses a tag: the writes with it are of a line of the page.

    A write whose page was not invalidated since it was looked up leaves for the current
    translation, or is answered with the fault that its page has. It is looked up, or at memory.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = PARAMS
        m.submodules.dut = dut = Translation(p)
        env = Environment(m, dut)
        state = State(m, dut, env)
        tlb = state.tlb
        tag, line = AnyConst(p.tag_bits), AnyConst(p.page_line_bits)
        is_open, is_fresh, is_sent = (
            Signal(name=name) for name in ("is_open", "is_fresh", "is_sent")
        )

        def is_ours(port) -> Value:
            return port.valid & (port.p.tag == tag)

        request, sent = dut.gnic_write, dut.memory_write
        performed, answer = dut.memory_ack, dut.gnic_ack
        asks, leaves, ends = is_ours(request), is_ours(sent), is_ours(answer)
        m.d.comb += [
            Assume(~asks | (request.p.line == Cat(line, env.page))),
            Assume(~asks | ~is_open),
            Assume(~is_ours(performed) | is_sent),
            Assert(~(leaves | ends) | is_open),
            Assert(~leaves | ~is_sent),
        ]
        may_write = env.current.present & env.current.writable
        with m.If(leaves & is_fresh):
            m.d.comb += [Assert(sent.p.line == Cat(line, env.current.page)), Assert(may_write)]
        with m.If(ends):
            m.d.comb += Assert(is_sent == (answer.p.page == PageFault.NONE))
            with m.If(~is_sent):
                fault = Mux(env.current.present, PageFault.READ_ONLY, PageFault.ABSENT)
                m.d.comb += [
                    Assert(answer.p.error),
                    Assert(~is_fresh | (~may_write & (Value.cast(answer.p.page) == fault))),
                ]
        with m.If(env.invalidated):
            m.d.sync += is_fresh.eq(0)
        with m.If(leaves & sent.ready):
            m.d.sync += is_sent.eq(1)
        with m.If(ends & answer.ready):
            m.d.sync += [is_open.eq(0), is_sent.eq(0)]
        with m.If(asks & request.ready):
            m.d.sync += [is_open.eq(1), is_fresh.eq(~env.invalidated)]

        write = data.View(gnic_write_layout(p), state.writes.signal("write"))
        is_looked_up = tlb.signal("write_valid") & (write.tag == tag)
        good = Array(state.good)
        m.d.comb += Assert(is_looked_up + is_sent == is_open)
        with m.If(is_looked_up):
            m.d.comb += [
                Assert(write.line == Cat(line, env.page)),
                Assert(tlb.signal("write_page") == env.page),
            ]
            with m.If(is_fresh & tlb.signal("write_hit")):
                m.d.comb += Assert(good[tlb.signal("write_entry")])

        had_fault = Signal()
        with m.If(ends & answer.ready & (answer.p.page == PageFault.READ_ONLY)):
            m.d.sync += had_fault.eq(1)
        m.d.comb += Cover(had_fault & ends & is_sent & is_fresh)
        return m


def _forgets_invalidations(_tlb: Tlb, here: Inside) -> None:
    live = here.signal("live")
    with here.module.If((live & here.signal("walking")) != 0):
        here.module.d.sync += live.eq(live)


def _replaces_what_is_waited_for(_tlb: Tlb, here: Inside) -> None:
    used = here.signal("read_used") | here.signal("write_used")
    here.module.d.comb += here.signal("free").eq(~(here.signal("walking") | used))


def _answers_twice(_reads: ReadTranslation, here: Inside) -> None:
    here.module.d.comb += here.translated.i.valid.eq(here.signal("goes"))


def _writes_read_only_pages(_writes: WriteTranslation, here: Inside) -> None:
    translation = here.translations.read_ports[0].data
    here.module.d.comb += here.signal("may_write").eq(translation.present)


def _replaces_what_is_used(tlb: Tlb, here: Inside) -> None:
    busy = here.signal("walking") | tlb.waited_for | here.signal("read_used")
    here.module.d.comb += here.signal("free").eq(~busy)


PROOFS = [
    Proof(
        "translation of reads: to the current page, once, and answered once",
        ReadSpec,
        depth=2,
        cover=24,
        bugs=(
            Bug("an invalidation during a walk is ignored", Tlb, _forgets_invalidations, depth=14),
            Bug(
                "an entry is replaced that a read waits for",
                Tlb,
                _replaces_what_is_waited_for,
                depth=16,
            ),
            Bug("a read of an absent page that leaves", ReadTranslation, _answers_twice, depth=10),
        ),
        unbounded=True,
    ),
    Proof(
        "translation of writes: to the current page, once, and answered once",
        WriteSpec,
        depth=2,
        cover=24,
        bugs=(
            Bug("a write to a read-only page", WriteTranslation, _writes_read_only_pages, depth=8),
            Bug("an entry is replaced that a write uses", Tlb, _replaces_what_is_used, depth=16),
        ),
        unbounded=True,
    ),
]
