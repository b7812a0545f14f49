"""Reductions in shared memory: packets that come from other CTAs are combined with what it holds.

A packet's beat is read, combined, and written as that of any other packet. Until that is performed,
no other packet of the same beat may read it.
"""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.cluster import packet_layout
from hw.layouts.isa import DSMEM_REDUCTIONS, ElementType, Swizzle, is_reducible
from hw.layouts.ports import lanes_layout, smem_read_layout
from hw.lib.queue import Queue
from hw.params import PIECE_BYTES, TmaParams
from hw.reduce.reduction_unit import integer

UNDER_WAY = 16
"""Packets from the read of their beat to the end of their write; a power of two."""

LATENCY = 2
"""Clocks from the answer of shared memory to the packet at ``o``."""


class SmemReduction(wiring.Component):
    """Combines the elements of packets with those in shared memory.

    Packets leave in the order in which they came, with the sum (or what else the operation makes)
    in ``data``; nothing else in them changes. Elements are combined atomically, as
    ``golden.reduction.operation`` does, while nothing else writes to them; lanes and words that do
    not count in a packet hold anything at ``o``, and are not to be written. The packets have
    ``reduction.enabled``, a pair of ``DSMEM_REDUCTIONS``, no swizzle and ``boundary`` 0.

    Latency: the beat is read in the clock in which the packet is accepted; the packet is offered at
    ``o`` ``LATENCY`` clocks after the answer. Throughput: a packet a clock where beats differ and
    ``done`` comes less than ``UNDER_WAY`` clocks after the read. Back-pressure: a packet waits, and
    those behind it, while a packet of the same beat was not ``done``, which ends in the clock after
    ``done``; while ``UNDER_WAY`` packets were not; and for ``smem_read``. Answers never wait.
    Errors: there are none.

    Parameters
    ----------
    params : TmaParams
        With ``reductions``, and ``ctas`` above 1.

    Members
    -------
    i : In(stream) of ``packet_layout``
    o : Out(stream) of ``packet_layout``
    done : In(1)
        The write of the oldest packet given at ``o`` is performed, in a clock after it was given; a
        read that is accepted in the next clock sees it.
    smem_read : Out(stream) of ``smem_read_layout``
    smem_data : In(stream) of ``lanes_layout``, in order; always ready
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        packets = stream.Signature(packet_layout(params))
        super().__init__(
            {
                "i": In(packets),
                "o": Out(packets),
                "done": In(1),
                "smem_read": Out(stream.Signature(smem_read_layout(params))),
                "smem_data": In(stream.Signature(lanes_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        accepts = self._guard(m)

        # Read the beat; the packet waits for it.
        m.submodules.packets = packets = Queue(packet_layout(self.params), UNDER_WAY)
        m.submodules.answers = answers = Queue(lanes_layout(self.params), UNDER_WAY)
        connect(m, flipped(self.smem_data), answers.i)
        packet = self.i.p
        m.d.comb += [
            self.smem_read.valid.eq(self.i.valid & accepts),
            self.i.ready.eq(self.smem_read.ready & accepts),
            packets.i.valid.eq(self.i.valid & self.i.ready),
            packets.i.payload.eq(packet),
        ]
        for lane, read in enumerate(self.smem_read.p):
            m.d.comb += [read.valid.eq(packet.valid[lane]), read.beat.eq(packet.beat)]

        # Combine.
        held = Signal()
        result = Signal(packet_layout(self.params), reset_less=True)
        advance = Signal()
        take = Signal()
        m.d.comb += [
            advance.eq(~held | self.o.ready),
            take.eq(advance & packets.o.valid & answers.o.valid),
            packets.o.ready.eq(take),
            answers.o.ready.eq(take),
            self.o.valid.eq(held),
            self.o.p.eq(result),
        ]
        with m.If(advance):
            m.d.sync += [held.eq(take), result.eq(packets.o.p)]
            for lane, combined in enumerate(self._combine(m, packets.o.p, answers.o.p)):
                m.d.sync += result.data[lane].eq(combined)

        reduction = packet.reduction
        m.d.sync += [
            Assert(~self.smem_data.valid | answers.i.ready, "SmemReduction: an answer is lost\n"),
            Assert(~packets.i.valid | packets.i.ready, "SmemReduction: a packet is lost\n"),
            Assert(
                ~self.i.valid | (reduction.enabled & self._exists(reduction)),
                "SmemReduction: no such reduction\n",
            ),
            Assert(
                ~self.i.valid | ((packet.boundary == 0) & (packet.style.swizzle == Swizzle.NONE)),
                "SmemReduction: a packet of two beats, or with a swizzle\n",
            ),
        ]
        return m

    @staticmethod
    def _exists(reduction) -> Value:
        return is_reducible(DSMEM_REDUCTIONS, reduction.element_type, reduction.op)

    def _guard(self, m: Module) -> Value:
        """Know the beats under way; return whether the packet that waits may become one."""
        beats = [
            Signal(self.params.smem_beat_bits, name=f"beat_{slot}", reset_less=True)
            for slot in range(UNDER_WAY)
        ]
        busy = Signal(UNDER_WAY)
        newest = Signal(range(UNDER_WAY))  # a ring: writes are performed in order
        oldest = Signal(range(UNDER_WAY))
        unwritten = Signal(range(UNDER_WAY + 1))  # given at ``o``
        accepted = Signal()
        m.d.comb += accepted.eq(self.i.valid & self.i.ready)
        with m.If(self.done):
            m.d.sync += [busy.bit_select(oldest, 1).eq(0), oldest.eq(oldest + 1)]
        with m.If(accepted):
            m.d.sync += [busy.bit_select(newest, 1).eq(1), newest.eq(newest + 1)]
        for slot, beat in enumerate(beats):
            with m.If(accepted & (newest == slot)):
                m.d.sync += beat.eq(self.i.p.beat)
        m.d.sync += [
            unwritten.eq(unwritten + (self.o.valid & self.o.ready) - self.done),
            Assert(~self.done | (unwritten != 0), "SmemReduction: done, but not given\n"),
        ]
        same = Cat(beat == self.i.p.beat for beat in beats) & busy
        return ~same.any() & ~busy.bit_select(newest, 1)

    @staticmethod
    def _combine(m: Module, packet, memory) -> list[Value]:
        """Return what the packet's op makes of each lane."""
        kind, op = packet.reduction.element_type, packet.reduction.op
        is_signed = kind == ElementType.S32
        words = {
            32: dict.fromkeys(
                (*DSMEM_REDUCTIONS[ElementType.U32], *DSMEM_REDUCTIONS[ElementType.S32])
            ),
            64: DSMEM_REDUCTIONS[ElementType.U64],
        }
        lanes = []
        for lane, (held, brought) in enumerate(zip(memory, packet.data, strict=True)):
            by_width = [
                Cat(
                    integer(
                        m,
                        ops,
                        op,
                        is_signed,
                        held.word_select(n, width),
                        brought.word_select(n, width),
                        f"int{width}_{lane}_{n}",
                    )
                    for n in range(PIECE_BYTES * 8 // width)
                )
                for width, ops in words.items()
            ]
            lanes.append(Mux(kind == ElementType.U64, by_width[1], by_width[0]))
        return lanes
