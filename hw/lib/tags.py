"""Tags: hands out the tags of accesses, and finds answers whose tag is not in flight."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.ports import clear_layout
from hw.lib.free_list import FreeList
from hw.lib.memory import MOST_ROWS_UNCLOCKED, RowMemory, clear_row
from hw.params import TmaParams


class Tags(wiring.Component):
    """Hands out a tag for each access, and takes it back with the answer.

    An answer whose tag is not in flight, because it was never asked for or was answered already, is
    ``wrong``. It frees no tag. An answer in the clock in which its tag is taken is wrong, too.

    A tag has a generation, which is one bit and changes each time the tag is taken. One memory
    holds the generation of the last access, the other that of the last answer. A tag is in flight
    while the two differ.

    Latency: ``wrong`` belongs to the answer of the clock before, and is held until the next answer.
    A tag can be taken again in the clock after its answer, with more than ``MOST_ROWS_UNCLOCKED``
    tags in the second one; if another one is taken then, and there are more than ``SMALL`` tags, at
    the latest two clocks later. Throughput: a tag and an answer a
    clock. Back-pressure: an offered tag stays until it is taken; answers are always accepted. No
    input drives an output in the same clock.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    taken : Out(stream.Signature(params.tag_bits))
        A free tag. While ``taken.valid`` is low, no tag can be taken.
    answer : In(stream.Signature(params.tag_bits, always_ready=True))
        Tag of an answer.
    wrong : Out(1)
        The tag of the last answer was not in flight.
    clear : In(clear_layout(params))
        The generations are to be cleared after a reset. All answers are wrong meanwhile, and no tag
        may be taken.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "taken": Out(stream.Signature(params.tag_bits)),
                "answer": In(stream.Signature(params.tag_bits, always_ready=True)),
                "wrong": Out(1),
                "clear": In(clear_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.free = free = FreeList(p.tags, mark_bits=1)
        m.submodules.asked = asked = RowMemory(1, p.tags)
        m.submodules.answered = answered = RowMemory(1, p.tags)
        asked_write, answered_write = asked.write_port(), answered.write_port()

        # The mark of a free tag is its last generation.
        tag, last_generation = free.taken.payload[:-1], free.taken.payload[-1]
        take = self.taken.valid & self.taken.ready
        m.d.comb += [
            self.taken.valid.eq(free.taken.valid),
            self.taken.payload.eq(tag),
            free.taken.ready.eq(self.taken.ready),
            asked_write.en.eq(take),
            asked_write.addr.eq(tag),
            asked_write.data.eq(~last_generation),
        ]

        # An answer is checked in its own clock if the memories are shallow, otherwise in the next.
        answer = self.answer
        is_wrong = Signal()
        if p.tags <= MOST_ROWS_UNCLOCKED:
            asked_read = asked.read_port(clocked=False)
            answered_read = answered.read_port(clocked=False)
            checked_valid, checked_tag = answer.valid, answer.payload
            m.d.comb += is_wrong.eq(self.clear.enabled | (asked_read.data == answered_read.data))
            with m.If(answer.valid):
                m.d.sync += self.wrong.eq(is_wrong)
        else:
            asked_read, answered_read = asked.read_port(), answered.read_port(forwards=True)
            checked_valid = Signal()
            checked_tag = Signal(p.tag_bits, reset_less=True)
            was_early = Signal()
            m.d.sync += [checked_valid.eq(answer.valid), checked_tag.eq(answer.payload)]
            # A row that is written in the clock of the read has no meaning.
            with m.If(answer.valid):
                m.d.sync += was_early.eq((take & (answer.payload == tag)) | self.clear.enabled)
            m.d.comb += [
                *(read.en.eq(answer.valid) for read in (asked_read, answered_read)),
                is_wrong.eq(was_early | (asked_read.data == answered_read.data)),
                self.wrong.eq(is_wrong),
            ]
        m.d.comb += [
            *(read.addr.eq(answer.payload) for read in (asked_read, answered_read)),
            free.returned.valid.eq(checked_valid & ~is_wrong),
            free.returned.payload.eq(Cat(checked_tag, asked_read.data)),
            answered_write.en.eq(free.returned.valid),
            answered_write.addr.eq(checked_tag),
            answered_write.data.eq(asked_read.data),
        ]
        clear_row(m, asked_write, self.clear)
        clear_row(m, answered_write, self.clear)
        return m
