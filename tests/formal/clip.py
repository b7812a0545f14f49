"""Clipping: the steps and the bytes that setup counts are those inside the tensor, of any width."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Mux, Signal, signed

from hw.lib.quotient import reciprocal_of
from hw.params import TmaParams
from hw.setup.clip_stage import ClipStage
from hw.setup.items import DIVIDEND_BITS
from hw.setup.multiply_stage import MultiplyStage
from tests.formal.inside import Inside
from tests.formal.pipelines import choose_clock, past
from tests.formal.proof import Bug, Proof

STAGES = 2

POSITION_BITS = 35
"""Width of a position of a step, signed: of 32 bits, and a box of 256 steps of 8 behind it."""


class ItemSpec(Elaboratable):
    """The clip and multiply stages count the steps of any item of a tile that are inside.

    The solver chooses the item and a number k: any coordinate of 32 bits, any extent up to 2^32,
    any box up to 256, any element stride up to 8. By the definition, the box has step k if
    k * stride < box, and the step is inside if 0 <= coord + k * stride < extent.

    - Step k of the box is inside if and only if the item is not ``is_outside`` and k is one of
      ``count_less_one + 1`` steps behind the first ``skipped_steps``.
    - The box has step k if and only if k < length; it has one step if it ``is_single``. If the
      item ``is_full``, every step is inside, and they are as many as the box has.
    - ``position`` is that of the first step inside.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = TmaParams(setup_pipelines=1)
        m.submodules.clip = clip = ClipStage(p)
        m.submodules.multiply = multiply = MultiplyStage(p)
        chosen = choose_clock(m, STAGES)
        step = clip.i.steps[0]
        m.d.comb += [
            clip.i.eq(AnySeq(clip.i.as_value().shape())),
            multiply.i.eq(clip.o),
            Assume(
                step.reciprocal == reciprocal_of(m, step.element_stride_less_one, DIVIDEND_BITS)
            ),
            Assume(~step.is_free & ~clip.i.common.has_row_count & ~clip.i.common.is_image),
        ]
        coord = past(m, "coord", ~step.coord_complement, STAGES).as_signed()
        extent = past(m, "extent", step.dim_less_one + 1, STAGES)
        box = past(m, "box", step.box_less_one + 1, STAGES)
        stride = past(m, "stride", step.element_stride_less_one + 1, STAGES)
        position = past(m, "position", clip.o.steps[0].position, STAGES - 1)
        length = past(m, "length", clip.o.steps[0].length_less_one + 1, STAGES - 1)

        k = AnyConst(8)
        at = Signal(signed(POSITION_BITS))
        has_step, is_inside, is_counted = Signal(), Signal(), Signal()
        first, counted = multiply.o.steps[0].skipped_steps, multiply.o.steps[0]
        m.d.comb += [
            at.eq(coord + k * stride),
            has_step.eq(k * stride < box),
            is_inside.eq((at >= 0) & (at < extent)),
            is_counted.eq(
                ~counted.is_outside & (k >= first) & (k <= first + counted.count_less_one)
            ),
        ]
        with m.If(chosen):
            m.d.comb += [
                Assert((has_step & is_inside) == is_counted),
                Assert(has_step == (k < length)),
                Assert(~counted.is_single | (length == 1)),
                Assert(length != 0),
            ]
            with m.If(counted.is_full & ~counted.is_outside):
                m.d.comb += [Assert(~has_step | is_inside), Assert(first == 0)]
                m.d.comb += Assert(counted.count_less_one + 1 == length)
            with m.If(~counted.is_outside):
                m.d.comb += Assert(position == coord + first * stride)

        # The assumptions can be met: a box that reaches over both ends of a tensor.
        m.d.comb += Cover(chosen & is_counted & (first == 3) & (k == 7) & (length > 10))
        return m


class RowSpec(Elaboratable):
    """The clip and multiply stages count the pieces of any row that are inside.

    The solver chooses the row and a byte of it: elements of 1 to 8 bytes, as many as 256, that are
    whole pieces together, and a coordinate that begins a piece. By the definition, a byte is inside
    if its element is: 0 <= coord + element < extent. A store has whole pieces: there, a byte is
    inside if one of its piece is, by the definition of a load (the rule of 16 bytes).

    - The byte is inside if and only if the row is not ``is_outside``, its piece is one of
      ``pieces`` behind the first ``skipped_pieces``, and in the last one of these it is one of the
      first ``tail_bytes``, unless these are 0.
    - ``start`` is the address of the first piece inside, and ``short_pieces`` is 0 or ``pieces``.
    - If the row ``is_full``, it is inside as a whole, and a long one ends with a whole piece.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = TmaParams(setup_pipelines=1)
        m.submodules.clip = clip = ClipStage(p)
        m.submodules.multiply = multiply = MultiplyStage(p)
        chosen = choose_clock(m, STAGES)
        i, log2 = clip.i, clip.i.element.log2
        is_store = AnyConst(1)
        last_byte = Signal(4)  # of the tensor's dimension 0, in its piece
        elements = Signal(9)
        m.d.comb += [
            i.eq(AnySeq(i.as_value().shape())),
            multiply.i.eq(clip.o),
            # What the map decoder and the checks of setup leave.
            last_byte.eq((i.row_dim_less_one << log2) | ((1 << log2) - 1)),
            Assume(i.tail_bytes == Mux(is_store, 0, last_byte + 1)[:4]),
            Assume((i.row_start << log2)[:4] == 0),
            Assume(i.row_start_pieces == (i.row_start << log2)[4:][:31]),
            elements.eq(((i.common.row_pieces << 4) >> log2)[:9]),
            Assume((i.common.row_pieces != 0) & ((elements << log2) == i.common.row_pieces << 4)),
            Assume(i.common.row_pitch >= i.common.row_pieces),
            Assume(elements <= 256),
        ]
        coord = past(m, "coord", i.row_start, STAGES)
        extent = past(m, "extent", i.row_dim_less_one + 1, STAGES)
        size = past(m, "size", log2, STAGES)
        base = past(m, "base", i.base, STAGES)
        row_pieces = past(m, "row_pieces", i.common.row_pieces, STAGES)

        byte = AnyConst(11)
        piece, row = byte[4:], multiply.o.row
        per_piece = Signal(5)  # elements in a piece
        element, limit = Signal(11), Signal(34)
        at = Signal(signed(POSITION_BITS))
        is_inside, is_counted = Signal(), Signal()
        m.d.comb += [
            per_piece.eq(16 >> size),
            element.eq(byte >> size),
            at.eq(coord + element),
            limit.eq(Mux(is_store, (extent + per_piece - 1) & -per_piece, extent)),
            is_inside.eq((at >= 0) & (at < limit) & (piece < row_pieces)),
            is_counted.eq(
                ~row.is_outside
                & (piece >= row.skipped_pieces)
                & (piece < row.skipped_pieces + row.pieces)
                & (
                    (piece + 1 < row.skipped_pieces + row.pieces)
                    | (row.tail_bytes == 0)
                    | (byte[:4] < row.tail_bytes)
                )
            ),
        ]
        with m.If(chosen):
            m.d.comb += Assert(is_inside == is_counted)
            with m.If(~row.is_outside):
                start = base + ((coord << size) >> 4) + row.skipped_pieces
                m.d.comb += [
                    Assert(row.start == start[: p.piece_address_bits]),
                    Assert((row.short_pieces == 0) | (row.short_pieces == row.pieces)),
                    Assert(row.pieces != 0),
                ]
                with m.If(row.is_full):
                    m.d.comb += [
                        Assert((row.skipped_pieces == 0) & (row.pieces == row_pieces)),
                        Assert((row.short_pieces != 0) | (row.tail_bytes == 0)),
                    ]

        # The assumptions can be met: a row that reaches over both ends of a tensor.
        reaches_over = (row.skipped_pieces == 2) & (row.tail_bytes != 0)
        m.d.comb += Cover(chosen & is_counted & reaches_over & (row_pieces == 8) & (size == 1))
        return m


def _counts_from_the_start(_stage: ClipStage, inner: Inside) -> None:
    inner.module.d.comb += inner.first_inside_0.eq(0)


def _skips_no_piece_far_away(stage: ClipStage, inner: Inside) -> None:
    with inner.module.If(stage.i.row_start < -64):
        inner.module.d.comb += inner.to_first_less_one.eq(63)


def _ends_behind_the_tensor(stage: MultiplyStage, inner: Inside) -> None:
    with inner.module.If(stage.i.row.tail_bytes == 14):
        inner.module.d.sync += inner.view("out", stage.o.shape()).row.tail_bytes.eq(0)


PROOFS = [
    Proof(
        "clip: the steps inside, for all coordinates, extents and boxes",
        ItemSpec,
        depth=2,
        cover=4,
        bugs=(Bug("a first step at position 0", ClipStage, _counts_from_the_start, depth=4),),
        unbounded=True,
    ),
    Proof(
        "clip: the bytes of a row inside, and the rule of 16 bytes",
        RowSpec,
        depth=2,
        cover=4,
        bugs=(
            Bug("rows far in front of the tensor", ClipStage, _skips_no_piece_far_away, depth=4),
            Bug("a last piece that is whole", MultiplyStage, _ends_behind_the_tensor, depth=4),
        ),
        unbounded=True,
    ),
]
