"""Shared-memory reduction: combines packets of other CTAs with the data in shared memory."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.cluster import packet_layout
from hw.layouts.isa import ASYNC_REDUCTIONS, ElementType, Swizzle, is_reducible
from hw.layouts.ports import lanes_layout, smem_read_layout
from hw.lib.queue import Queue
from hw.params import PIECE_BYTES, TmaParams
from hw.reduce.reduction_unit import integer

MAX_PACKETS = 16
"""Packets between the read of their beat and the end of their write; a power of two."""

LATENCY = 2
"""Clocks from the answer of shared memory to the packet at ``o``."""


class SmemReduction(wiring.Component):
    """Combines the elements of packets with those in shared memory.

    The block reads the beat of a packet and replaces ``data`` of the packet with the results; the
    other fields do not change. The packet is then written like any other. Until that write is
    performed, no other packet of the same beat is accepted, so elements are combined atomically as
    long as nothing else writes them. The results are those of ``golden.reduction.operation``. Lanes
    and words that the packet does not write are undefined at ``o``.

    Requirements: ``reduction`` is enabled and is one of ``ASYNC_REDUCTIONS``; the packet has no
    swizzle, and its ``boundary`` is 0.

    Order: packets leave in the order of their acceptance. Latency: the beat is read in the clock
    in which the packet is accepted; the packet is offered at ``o`` ``LATENCY`` clocks after the
    answer. Throughput: one packet per clock, if the beats differ and ``done`` comes less than
    ``MAX_PACKETS`` clocks after the read. Back-pressure: a packet, and the packets behind it, wait
    for ``smem_read``, while a packet of the same beat is not done (until the clock after ``done``),
    and while ``MAX_PACKETS`` packets are not done. Answers never wait. Errors: none.

    Parameters
    ----------
    params : TmaParams
        With ``reductions``, and ``ctas`` above 1.

    Members
    -------
    i : In(stream.Signature(packet_layout(params)))
        Packets with reductions.
    o : Out(stream.Signature(packet_layout(params)))
        Packets with the results.
    done : In(1)
        The write of the oldest packet that was taken at ``o`` is performed. It comes at the
        earliest in the clock after the packet was taken; a read that is accepted in the clock after
        ``done`` returns the written data.
    smem_read : Out(stream.Signature(smem_read_layout(params)))
        Reads of shared memory.
    smem_data : In(stream.Signature(lanes_layout(params)))
        Answers, in order; the block is always ready for them.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(packet_layout(params))),
                "o": Out(stream.Signature(packet_layout(params))),
                "done": In(1),
                "smem_read": Out(stream.Signature(smem_read_layout(params))),
                "smem_data": In(stream.Signature(lanes_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        can_accept = self._guard(m)

        # Read the beat. The packet waits in a queue for the answer.
        m.submodules.packets = packets = Queue(packet_layout(self.params), MAX_PACKETS)
        m.submodules.answers = answers = Queue(lanes_layout(self.params), MAX_PACKETS)
        connect(m, flipped(self.smem_data), answers.i)
        packet = self.i.p
        m.d.comb += [
            self.smem_read.valid.eq(self.i.valid & can_accept),
            self.i.ready.eq(self.smem_read.ready & can_accept),
            packets.i.valid.eq(self.i.valid & self.i.ready),
            packets.i.payload.eq(packet),
        ]
        for lane, read in enumerate(self.smem_read.p):
            m.d.comb += [read.valid.eq(packet.valid[lane]), read.beat.eq(packet.beat)]

        # Combine the packet and the answer.
        result_valid = Signal()
        result = Signal(packet_layout(self.params), reset_less=True)
        advance = Signal()
        combine_fire = Signal()
        m.d.comb += [
            advance.eq(~result_valid | self.o.ready),
            combine_fire.eq(advance & packets.o.valid & answers.o.valid),
            packets.o.ready.eq(combine_fire),
            answers.o.ready.eq(combine_fire),
            self.o.valid.eq(result_valid),
            self.o.p.eq(result),
        ]
        with m.If(advance):
            m.d.sync += [result_valid.eq(combine_fire), result.eq(packets.o.p)]
            for lane, combined in enumerate(self._combine(m, packets.o.p, answers.o.p)):
                m.d.sync += result.data[lane].eq(combined)

        reduction = packet.reduction
        m.d.sync += [
            Assert(~self.smem_data.valid | answers.i.ready, "smem_reduction: an answer was lost\n"),
            Assert(~packets.i.valid | packets.i.ready, "smem_reduction: a packet was lost\n"),
            Assert(
                ~self.i.valid | (reduction.enabled & self._is_legal(reduction)),
                "smem_reduction: the packet has no legal reduction\n",
            ),
            Assert(
                ~self.i.valid | ((packet.boundary == 0) & (packet.style.swizzle == Swizzle.NONE)),
                "smem_reduction: a packet has two beats or a swizzle\n",
            ),
        ]
        return m

    @staticmethod
    def _is_legal(reduction) -> Value:
        """Return 1 if shared memory has the operation for the element type."""
        return is_reducible(ASYNC_REDUCTIONS, reduction.element_type, reduction.op)

    def _guard(self, m: Module) -> Value:
        """Keep the beats of packets that are not done. Return 1 if ``i`` may enter."""
        beats = [
            Signal(self.params.smem_beat_bits, name=f"beat_{slot}", reset_less=True)
            for slot in range(MAX_PACKETS)
        ]
        busy = Signal(MAX_PACKETS)
        newest = Signal(range(MAX_PACKETS))  # the slots are a ring: writes are performed in order
        oldest = Signal(range(MAX_PACKETS))
        unwritten = Signal(range(MAX_PACKETS + 1))  # packets that were taken at ``o``
        i_fire = Signal()
        m.d.comb += i_fire.eq(self.i.valid & self.i.ready)
        with m.If(self.done):
            m.d.sync += [busy.bit_select(oldest, 1).eq(0), oldest.eq(oldest + 1)]
        with m.If(i_fire):
            m.d.sync += [busy.bit_select(newest, 1).eq(1), newest.eq(newest + 1)]
        for slot, beat in enumerate(beats):
            with m.If(i_fire & (newest == slot)):
                m.d.sync += beat.eq(self.i.p.beat)
        m.d.sync += [
            unwritten.eq(unwritten + (self.o.valid & self.o.ready) - self.done),
            Assert(~self.done | (unwritten != 0), "smem_reduction: done came without a packet\n"),
        ]
        same_beat = Cat(beat == self.i.p.beat for beat in beats) & busy
        return ~same_beat.any() & ~busy.bit_select(newest, 1)

    @staticmethod
    def _combine(m: Module, packet, memory) -> list[Value]:
        """Return the results of all lanes."""
        kind, op = packet.reduction.element_type, packet.reduction.op
        is_signed = kind == ElementType.S32
        words = {
            32: dict.fromkeys(
                (*ASYNC_REDUCTIONS[ElementType.U32], *ASYNC_REDUCTIONS[ElementType.S32])
            ),
            64: ASYNC_REDUCTIONS[ElementType.U64],
        }
        lanes = []
        for lane, (memory_operand, source_operand) in enumerate(
            zip(memory, packet.data, strict=True)
        ):
            by_width = [
                Cat(
                    integer(
                        m,
                        ops,
                        op,
                        is_signed,
                        memory_operand.word_select(n, width),
                        source_operand.word_select(n, width),
                        f"int{width}_{lane}_{n}",
                    )
                    for n in range(PIECE_BYTES * 8 // width)
                )
                for width, ops in words.items()
            ]
            is_64_bit = (kind == ElementType.U64) | (kind == ElementType.S64)
            lanes.append(Mux(is_64_bit, by_width[1], by_width[0]))
        return lanes
