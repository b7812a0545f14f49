"""Setup block: a request and its tensor map become walks, or a refusal.

All multiplications and divisions of the unit are here. A row, which is dimension 0 or one slice of
an interleaved map, is counted in pieces; the dimensions above it pass through the pipeline one a
clock, each as an *item*:

    select    the item's fields out of the tensor map; all checks that need no arithmetic
    clip      which steps of the item are inside the tensor, and where the first one is
    multiply  first position and element stride by the tensor's stride
    combine   addresses, runs and loops of the items so far

The items of a tile are its dimensions, lowest first. Those of an image are its dimensions from N
down to W, the spatial ones twice: where the column starts, and where it goes on after a wrap. Those
of TILE_GATHER4 are its four rows, each a walk of its own.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.descriptor_cache import described_request_layout
from hw.layouts import (
    POSITION_BITS,
    STEP_BITS,
    AccessMode,
    ErrorCode,
    MemoryAttributes,
    Operation,
    data_style_layout,
    error_layout,
    setup_job_layout,
)
from hw.map_decoder import ROW_BITS, MapDecoder, bytes_of, is_misaligned
from hw.params import DIMS, PIECE_BYTES, SMEM_OFFSET_BITS, TmaParams
from hw.request_generator import modulo_3

N = DIMS - 2
"""The level of the images; W, H and D are 0 to 2."""

GROUPED_PIXELS = 128

MALFORMED = ErrorCode.MAP_FIELD, ErrorCode.MAP_MODE
"""Causes after which the items of a request mean nothing."""

_OTHERS = (code for code in ErrorCode if code not in (ErrorCode.NONE, ErrorCode.GMEM_FAULT))
CAUSES = (ErrorCode.GMEM_FAULT, *_OTHERS)
"""In the order in which they are reported; a map that was not read has no other."""

OFFSET_BITS = {3: 16, 4: 8, 5: 5}
"""Of an im2col offset, by rank."""


class Step(data.Struct):
    """One dimension above the row, as it enters ``clip``."""

    coord: signed(32)
    dim_less_one: 32
    box_less_one: 8
    element_stride_less_one: 3
    stride: 36


class ImageStep(data.Struct):
    """What a dimension of an image has besides.

    ``level``: 0 to 3 for W, H, D, N. ``is_fixed``: the column does not walk it; it adds to the
    level of N. ``restarts``: the item is about ``lower``, not about the coordinate. ``is_bounded``:
    the start is to be in the bounding box, ``has_lower``: on either side.
    """

    dim: range(DIMS)
    level: range(DIMS - 1)
    is_fixed: 1
    restarts: 1
    is_bounded: 1
    has_lower: 1
    lower: signed(16)
    upper: signed(16)
    offset: 16


class ClippedStep(data.Struct):
    """What ``clip`` makes of it: ``count_less_one`` + 1 steps from ``low`` on are inside."""

    steps_less_one: 8
    low: 8
    count_less_one: 8
    full: 1
    outside: 1
    position: signed(POSITION_BITS)
    element_stride_less_one: 3
    stride: 36


class ClippedImageStep(data.Struct):
    """A dimension of an image behind ``clip``; ``misplaced``: its start is refused."""

    dim: range(DIMS)
    level: range(DIMS - 1)
    is_fixed: 1
    restarts: 1
    misplaced: 1
    coord: signed(32)
    position: signed(POSITION_BITS)
    last: signed(POSITION_BITS)
    limit: 32


def quotient(m: Module, name: str, dividend, divisor_less_one) -> Signal:
    """Return 8 bits divided by 1 to 8, rounded down: times ceil(2048 / divisor), over 2048."""
    reciprocal = Signal(12, name=f"{name}_reciprocal")
    with m.Switch(divisor_less_one):
        for less_one in range(8):
            with m.Case(less_one):
                m.d.comb += reciprocal.eq(-(-2048 // (less_one + 1)))
    product = Signal(20, name=f"{name}_product")
    m.d.comb += product.eq(dividend[:8] * reciprocal)
    return product[11:19]


class SetupBlock(wiring.Component):
    """Turns each described request into its jobs or an error record, in order.

    Latency 4 clocks plus one for each item beyond the first. A tile of rank R takes max(1, R - 1)
    clocks of throughput, with an interleaved map R; a column of rank R takes 2R - 3, interleaved
    2R - 2; the four rows of TILE_GATHER4 four. Back-pressure on either output stops the pipeline.

    Refuses, in the order of ``ErrorCode``, what a load or prefetch may not ask for; a tensor map
    that could not be read is ``GMEM_FAULT``. A refused request leaves nothing behind.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``described_request_layout``
    job : Out(stream) of ``setup_job_layout``
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(described_request_layout(params))),
                "job": Out(stream.Signature(setup_job_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

        # What every item of a request carries along. ``first`` and ``last`` are those of a walk,
        # ``opens`` and ``ends`` those of the request.
        refusal = data.StructLayout({"code": ErrorCode, "dim": range(DIMS), "value": 64})
        common = {
            "first": 1,
            "last": 1,
            "opens": 1,
            "ends": 1,
            "loop": range(DIMS),
            "prefetch": 1,
            "attributes": MemoryAttributes,
            "request_id": params.request_id_bits,
            "smem_address": SMEM_OFFSET_BITS,
            "mbarrier": SMEM_OFFSET_BITS,
            "refusal": refusal,
            "style": data_style_layout(params),
            "row": ROW_BITS,
            "pitch": ROW_BITS,
            "row_mask": params.row_mask_bits,
        }
        self._counts_rows = params.im2col or params.gather4
        if self._counts_rows:
            common |= {"has_rows": 1, "rows": params.pixel_bits}
        if params.im2col:
            common |= {"is_image": 1, "pixels": params.pixel_bits, "grouped": 1, "halo": 5}
        row = data.StructLayout(
            {
                "start": params.piece_address_bits,
                "low": ROW_BITS,
                "pieces": ROW_BITS,
                "tail_bytes": 4,
                "extent": ROW_BITS,
                "full": 1,
                "outside": 1,
            }
        )
        common = data.StructLayout(common)
        selected = {
            "common": common,
            "step": Step,
            "base": params.piece_address_bits,
            "coord_pieces": signed(31),
            "dim_pieces": 33,
            "dim_tail": 4,
        }
        clipped = {"common": common, "row": row, "step": ClippedStep}
        multiplied = {"offset_low": 52, "offset_high": signed(56), "global_step": STEP_BITS}
        if params.im2col:
            selected["image"] = ImageStep
            clipped["image"] = ClippedImageStep
        self._selected_layout = data.StructLayout(selected)
        self._clipped_layout = data.StructLayout(clipped)
        self._multiplied_layout = data.StructLayout(clipped | multiplied)

    def elaborate(self, platform):
        m = Module()
        advance = Signal()

        selected = Signal(self._selected_layout, reset_less=True)
        clipped = Signal(self._clipped_layout, reset_less=True)
        multiplied = Signal(self._multiplied_layout, reset_less=True)
        select_valid = Signal()
        clip_valid = Signal()
        multiply_valid = Signal()
        with m.If(advance):
            m.d.sync += [
                select_valid.eq(self.i.valid),
                clip_valid.eq(select_valid),
                multiply_valid.eq(clip_valid),
            ]

        m.submodules.map_decoder = decoder = MapDecoder(self.params)
        m.d.comb += decoder.words.eq(self.i.p.words)
        self._select(m, advance, decoder.o, selected)
        self._clip(m, advance, selected, clipped)
        self._multiply(m, advance, clipped, multiplied)
        self._combine(m, advance, multiply_valid, multiplied)
        return m

    def _select(self, m: Module, advance, decoded, out) -> None:
        """Feed the items of the request at ``i``; make the checks that need no arithmetic."""
        request = self.i.p.request
        words = self.i.p.words
        common = out.common
        prefetch = request.operation == Operation.TENSOR_PREFETCH
        # A prefetch has no place in shared memory; its box must be one that a load could have.
        smem_address = Signal(SMEM_OFFSET_BITS)
        mbarrier = Signal(SMEM_OFFSET_BITS)
        m.d.comb += [
            smem_address.eq(Mux(prefetch, 0, request.smem_address)),
            mbarrier.eq(Mux(prefetch, 0, request.mbarrier)),
        ]
        checks = self._check(decoded, smem_address, mbarrier)
        malformed = Signal()
        m.d.comb += malformed.eq(
            self.i.p.fault | Cat(broken for broken, code, *_ in checks if code in MALFORMED).any()
        )
        self._sequence(m, advance, decoded, malformed, out)

        # Of an interleaved map a row is all of one slice; where it starts is a step's matter.
        coord = Mux(decoded.interleaved, 0, request.coords[0])
        coord_bytes = Signal(signed(35))
        dim_bytes = Signal(36)
        m.d.comb += [
            coord_bytes.eq(bytes_of(self.params, decoded.element, coord)),
            dim_bytes.eq(
                Mux(
                    decoded.interleaved,
                    decoded.row << 4,
                    bytes_of(self.params, decoded.element, words[8] + 1),
                )
            ),
        ]
        refusal = common.refusal
        with m.If(advance):
            m.d.sync += [
                common.request_id.eq(request.request_id),
                common.prefetch.eq(prefetch),
                common.attributes.l2_promotion.eq(decoded.l2_promotion),
                common.attributes.cache_policy.eq(request.cache_policy),
                common.smem_address.eq(smem_address),
                common.mbarrier.eq(mbarrier),
                common.style.eq(decoded.style),
                common.row.eq(decoded.row),
                common.pitch.eq(decoded.pitch),
                common.row_mask.eq(self._placed(m, decoded.row_mask, smem_address)),
                out.base.eq(Cat(words[0], words[1]) >> 4),
                out.coord_pieces.eq(coord_bytes >> 4),
                out.dim_pieces.eq((dim_bytes + PIECE_BYTES - 1) >> 4),
                out.dim_tail.eq(dim_bytes[:4]),
                refusal.code.eq(ErrorCode.NONE),
                refusal.dim.eq(0),
                refusal.value.eq(0),
            ]
            with m.If(self.i.p.fault):
                m.d.sync += [
                    refusal.code.eq(ErrorCode.GMEM_FAULT),
                    refusal.value.eq(request.global_address),
                ]
            for broken, code, value, *dim in checks:
                with m.Elif(broken):
                    m.d.sync += [refusal.code.eq(code), refusal.value.eq(value)]
                    m.d.sync += [refusal.dim.eq(number) for number in dim]

    def _check(self, decoded, smem_address, mbarrier) -> list[tuple]:
        """Return what may be wrong, the first cause first: a condition, a code and a value, and a
        dimension if it is not 0.
        """
        p = self.params
        request = self.i.p.request
        words = self.i.p.words
        mode = request.mode
        rank = decoded.rank_less_one + 1
        coords = rank
        of_im2col = mode == AccessMode.IM2COL
        fits = (mode == AccessMode.TILE) & ~decoded.im2col
        late: list[tuple] = []
        if p.gather4:
            gathers = mode == AccessMode.TILE_GATHER4
            one_row = words[14][:8] == 0
            matrix = ~decoded.im2col & ~decoded.interleaved & (rank == 2) & one_row
            fits |= gathers & matrix
            coords = Mux(gathers, 5, coords)
        if p.im2col:
            fits |= of_im2col & decoded.im2col & ~decoded.wide
            for j in range(DIMS - 2):
                offset = request.im2col_info[j]
                too_large = Cat(
                    (rank == r) & offset[bits:].any()
                    for r, bits in OFFSET_BITS.items()
                    if j < r - 2
                ).any()
                dim = j + ~decoded.interleaved
                late.append((of_im2col & too_large, ErrorCode.IM2COL_OFFSET, offset, dim))
        if p.im2col_w:
            grouped = mode == AccessMode.IM2COL_W_128
            walks_w = grouped | (mode == AccessMode.IM2COL_W)
            swizzled = decoded.swizzled
            if p.swizzle_atoms:
                swizzled &= ~decoded.flips
            fits |= walks_w & decoded.im2col & decoded.wide & ~decoded.interleaved & swizzled
            halo, offset = request.im2col_info[0], request.im2col_info[1]
            halo_too_large = Mux(grouped, halo[5:].any(), halo[9:].any())
            late += [
                (walks_w & halo_too_large, ErrorCode.IM2COL_OFFSET, halo, 1),
                (walks_w & offset[5:].any(), ErrorCode.IM2COL_OFFSET, offset, 1),
            ]
        misaligned = is_misaligned(p, decoded, request.coords[0])
        return [
            (decoded.refused, ErrorCode.MAP_FIELD, words[2]),
            (~fits, ErrorCode.MAP_MODE, mode),
            (request.rank != coords, ErrorCode.MAP_MODE, request.rank),
            (smem_address[:7].any(), ErrorCode.SMEM_ALIGN, smem_address),
            (mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, mbarrier),
            (misaligned, ErrorCode.COORD_ALIGN, request.coords[0]),
            *late,
            (mbarrier[:3].any(), ErrorCode.MBAR_ALIGN, mbarrier),
        ]

    def _placed(self, m: Module, row_mask, smem_address) -> Value:
        """Return ``row_mask``, which is that of address 0, for a box at ``smem_address``."""
        if len(row_mask) == 8:
            return row_mask
        third = modulo_3(m, smem_address[7:], "third")
        second = Mux(third == 1, row_mask.rotate_left(8), row_mask.rotate_left(16))
        return Mux(third == 0, row_mask, second)

    def _sequence(self, m: Module, advance, decoded, malformed, out) -> None:
        """Count the items of a request, and take each one's fields out of request and map."""
        p = self.params
        request = self.i.p.request
        words = self.i.p.words
        rank_less_one = decoded.rank_less_one
        number = Signal(3)
        index = Signal(3)  # the dimension
        first, last, opens, ends = (
            Signal(name=name) for name in ("first", "last", "opens", "ends")
        )
        is_slice = Signal()
        m.d.comb += [
            index.eq(number + ~decoded.interleaved),
            first.eq(number == 0),
            last.eq((index >= rank_less_one) | (index == DIMS - 1)),
            opens.eq(number == 0),
            ends.eq(last),
            is_slice.eq(decoded.interleaved & (index + 1 == rank_less_one)),
            self.i.ready.eq(advance & ends),
        ]
        coords = request.coords.as_value()
        coord_number = Signal(3)
        m.d.comb += coord_number.eq(index)
        gathers = Signal()
        if p.gather4:
            m.d.comb += gathers.eq(request.mode == AccessMode.TILE_GATHER4)
            with m.If(gathers):
                m.d.comb += [
                    index.eq(1),
                    coord_number.eq(number + 1),
                    *(flag.eq(1) for flag in (first, last)),
                    ends.eq(number == 3),
                ]
        if p.im2col:
            with m.If(decoded.im2col):
                self._sequence_image(m, advance, decoded, number, index, last, ends, out)
        with m.If(malformed):
            m.d.comb += [flag.eq(1) for flag in (first, last, ends)]
        with m.If(advance & self.i.valid):
            m.d.sync += number.eq(Mux(ends, 0, number + 1))

        common, step = out.common, out.step
        one_step = is_slice | gathers | decoded.im2col
        with m.If(advance):
            m.d.sync += [
                common.first.eq(first),
                common.last.eq(last),
                common.opens.eq(opens),
                common.ends.eq(ends),
                # The slice has one step and needs no loop, so that four are enough.
                common.loop.eq(Mux(one_step, DIMS - 1, number - (decoded.interleaved & last))),
                step.coord.eq(coords.word_select(coord_number, 32)),
            ]
            if self._counts_rows:
                m.d.sync += [
                    common.has_rows.eq(gathers | decoded.im2col),
                    common.rows.eq(4),
                ]
            if p.im2col:
                self._count_pixels(m, decoded, common)
            with m.Switch(index):
                with m.Case(0):
                    m.d.sync += [
                        step.dim_less_one.eq(words[8]),
                        step.box_less_one.eq(words[13][24:]),
                        step.element_stride_less_one.eq(words[13][:3]),
                        step.stride.eq(decoded.row),
                    ]
                for dim in range(1, DIMS):
                    with m.Case(dim):
                        m.d.sync += [
                            step.dim_less_one.eq(words[8 + dim]),
                            step.box_less_one.eq(words[14].word_select(dim - 1, 8)),
                            step.element_stride_less_one.eq(words[13].word_select(dim, 3)),
                            step.stride.eq(Cat(words[2 + dim], words[7].word_select(dim - 1, 4))),
                        ]
            with m.If(one_step):
                m.d.sync += step.box_less_one.eq(0)
            with m.If(rank_less_one == 0):
                m.d.sync += step.eq(0)

    def _sequence_image(self, m: Module, advance, decoded, number, index, last, ends, out) -> None:
        """N, what the column does not walk, and twice each what it walks, down to W."""
        p = self.params
        request = self.i.p.request
        corners = self.i.p.words[14]
        rank_less_one = decoded.rank_less_one
        lowest = ~decoded.interleaved
        walks_w = decoded.wide if p.im2col_w else Const(0, 1)
        fixed = Signal(2)
        is_fixed = Signal()
        is_spatial = Signal()
        spatial = Signal(3)
        restarts = Signal()
        m.d.comb += [
            fixed.eq(Mux(walks_w, rank_less_one - 2, decoded.interleaved)),
            is_fixed.eq((number != 0) & (number <= fixed)),
            is_spatial.eq(number > fixed),
            spatial.eq(number - 1 - fixed),
            restarts.eq(is_spatial & spatial[0]),
            index.eq(rank_less_one - Mux(is_spatial, 1 + fixed + spatial[1:], number)),
            last.eq(restarts & (index == lowest)),
            ends.eq(last),
        ]

        of_w = index - lowest  # 0 for W
        lower, upper = (Signal(signed(16), name=name) for name in ("lower", "upper"))
        for corner, half in ((lower, corners[:16]), (upper, corners[16:])):
            with m.Switch(rank_less_one):
                with m.Case(3):
                    m.d.comb += corner.eq(half.word_select(of_w[0], 8).as_signed())
                with m.Case(4):
                    m.d.comb += corner.eq(half.word_select(of_w[:2], 5).as_signed())
                with m.Default():
                    m.d.comb += corner.eq(half.as_signed())
            with m.If(walks_w):
                m.d.comb += corner.eq(half.as_signed())
        info = request.im2col_info.as_value()
        image = out.image
        with m.If(advance):
            m.d.sync += [
                image.dim.eq(index),
                image.level.eq(Mux(is_spatial, of_w, N)),
                image.is_fixed.eq(is_fixed),
                image.restarts.eq(restarts),
                image.is_bounded.eq(is_spatial & ~restarts),
                image.has_lower.eq(~walks_w),
                image.lower.eq(Mux(is_spatial, lower, 0)),
                image.upper.eq(Mux(is_spatial, upper, 0)),
                image.offset.eq(
                    Mux(is_spatial, info.word_select(Mux(walks_w, 1, of_w[:2]), 16), 0)
                ),
            ]

    def _count_pixels(self, m: Module, decoded, common) -> None:
        """Rows of a column in shared memory; the first of them are its pixels."""
        request = self.i.p.request
        pixels = Signal(self.params.pixel_bits)
        rows = Signal(self.params.pixel_bits)
        column = self.i.p.words[15][:10] + 1
        m.d.comb += [pixels.eq(column), rows.eq(column)]
        m.d.sync += common.is_image.eq(decoded.im2col)
        if self.params.im2col_w:
            halo = request.im2col_info[0]
            grouped = request.mode == AccessMode.IM2COL_W_128
            with m.If(request.mode == AccessMode.IM2COL_W):
                m.d.comb += [pixels.eq(column + halo), rows.eq(column + halo)]
            with m.If(grouped):
                m.d.comb += [pixels.eq(GROUPED_PIXELS), rows.eq(GROUPED_PIXELS + (halo << 2))]
            m.d.sync += [common.grouped.eq(grouped), common.halo.eq(halo)]
        with m.If(decoded.im2col):
            m.d.sync += [common.pixels.eq(pixels), common.rows.eq(rows)]

    def _clip(self, m: Module, advance, item, out) -> None:
        """Intersect the item, and the row, with the tensor."""
        step = item.step
        divisor = step.element_stride_less_one
        before = Signal(32)  # positions from the start to the tensor, less one
        behind = Signal(signed(34))  # positions from the start to the tensor's last
        m.d.comb += [before.eq(~step.coord), behind.eq(step.dim_less_one - step.coord)]
        steps_less_one = quotient(m, "steps_less_one", step.box_less_one, divisor)
        skipped_less_one = quotient(m, "skipped_less_one", before, divisor)
        reachable_less_one = quotient(m, "reachable_less_one", behind, divisor)

        negative = Signal()
        low = Signal(9)
        high = Signal(8)  # the last step inside
        remainder = Signal(3)
        m.d.comb += [
            negative.eq(step.coord < 0),
            low.eq(Mux(negative, skipped_less_one + 1, 0)),
            high.eq(steps_less_one),
            # of before over the divisor; below 8, so three bits of the difference do
            remainder.eq(before[:3] - skipped_less_one[:3] * (divisor + 1)),
        ]
        with m.If((behind < 256) & (reachable_less_one < steps_less_one)):
            m.d.comb += high.eq(reachable_less_one)
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.step.steps_less_one.eq(steps_less_one),
                out.step.low.eq(low),
                out.step.count_less_one.eq(high - low),
                out.step.full.eq((low == 0) & (high == steps_less_one)),
                out.step.outside.eq((negative & (before >= 256)) | (low > high) | (behind < 0)),
                out.step.position.eq(Mux(negative, divisor - remainder, step.coord)),
                out.step.element_stride_less_one.eq(divisor),
                out.step.stride.eq(step.stride),
            ]
        self._clip_row(m, advance, item, out)
        if self.params.im2col:
            self._place_image(m, advance, item, out)

    def _clip_row(self, m: Module, advance, item, out) -> None:
        """Intersect a row with the tensor."""
        pieces = item.common.row
        coord = item.coord_pieces
        to_end = Signal(signed(35))
        row_low = Signal(ROW_BITS)
        row_high = Signal(ROW_BITS)
        ends = Signal()
        m.d.comb += [
            to_end.eq(item.dim_pieces - coord),
            row_low.eq(Mux(coord < 0, -coord, 0)),
            ends.eq(to_end <= pieces),
            row_high.eq(Mux(ends, to_end, pieces)),
        ]
        with m.If(advance):
            m.d.sync += [
                out.row.start.eq(item.base + Mux(coord < 0, 0, coord)),
                out.row.low.eq(row_low),
                out.row.pieces.eq(row_high - row_low),
                out.row.tail_bytes.eq(Mux(ends, item.dim_tail, 0)),
                out.row.extent.eq(Mux(row_high == pieces, item.common.pitch, row_high) - row_low),
                out.row.full.eq(
                    (coord >= 0) & (~ends | ((to_end == pieces) & (item.dim_tail == 0)))
                ),
                out.row.outside.eq((to_end <= 0) | (coord + pieces <= 0)),
            ]

    def _place_image(self, m: Module, advance, item, out) -> None:
        """Place a dimension of an image: it is not clipped here, but as the column is walked."""
        step, image = item.step, item.image
        start = Mux(image.restarts, image.lower, step.coord)
        last = Signal(signed(POSITION_BITS))
        m.d.comb += last.eq(step.dim_less_one + image.upper)
        with m.If(advance):
            m.d.sync += [
                out.image.dim.eq(image.dim),
                out.image.level.eq(image.level),
                out.image.is_fixed.eq(image.is_fixed),
                out.image.restarts.eq(image.restarts),
                out.image.misplaced.eq(
                    image.is_bounded
                    & ((step.coord > last) | (image.has_lower & (step.coord < image.lower)))
                ),
                out.image.coord.eq(step.coord),
                out.image.position.eq(start + image.offset),
                out.image.last.eq(last + image.offset),
                out.image.limit.eq(step.dim_less_one),
            ]
            with m.If(item.common.is_image):
                m.d.sync += out.step.position.eq(start + image.offset)

    def _multiply(self, m: Module, advance, item, out) -> None:
        """Multiply by the tensor's stride, half of the position at a time."""
        step = item.step
        with m.If(advance):
            m.d.sync += [
                out.common.eq(item.common),
                out.row.eq(item.row),
                out.step.eq(step),
                out.offset_low.eq(step.position[:16] * step.stride),
                out.offset_high.eq(step.position[16:].as_signed() * step.stride),
                out.global_step.eq((step.element_stride_less_one + 1) * step.stride),
            ]
            if self.params.im2col:
                m.d.sync += out.image.eq(item.image)

    def _combine(self, m: Module, advance, valid, item) -> None:
        """Accumulate the items of a walk; offer the job, or the refusal, after the last."""
        p = self.params
        window = p.smem_bytes // PIECE_BYTES
        common, row, step = item.common, item.row, item.step
        first = common.first
        has_rows = common.has_rows if self._counts_rows else Const(0, 1)
        is_image = common.is_image if p.im2col else Const(0, 1)

        done = Signal()
        ends = Signal(reset_less=True)
        too_large = Signal()
        smem_address = Signal(SMEM_OFFSET_BITS, reset_less=True)
        refusal = Signal(common.refusal.shape(), reset_less=True)
        job = Signal(setup_job_layout(p), reset_less=True)
        walk = job.walk

        # Of the lower dimensions: the pieces they span in shared memory, the pieces they hold,
        # and whether they are one run that may go on: all inside, contiguous in both memories.
        spanned_below = Signal(p.box_piece_bits, reset_less=True)
        held_below = Signal(p.box_piece_bits, reset_less=True)
        open_below = Signal(reset_less=True)
        overflow_below = Signal(reset_less=True)
        stride = Signal(p.box_piece_bits)
        held = Signal(p.box_piece_bits)
        is_open = Signal()
        steps = Signal(p.pixel_bits if self._counts_rows else 9)
        count = Signal(9)
        of_row = first | is_image
        m.d.comb += [
            stride.eq(Mux(of_row, common.pitch, spanned_below)),
            held.eq(Mux(of_row, common.row, held_below)),
            is_open.eq(Mux(first, row.full & (common.row == common.pitch), open_below)),
            steps.eq(step.steps_less_one + 1),
            count.eq(step.count_less_one + 1),
        ]
        if self._counts_rows:
            with m.If(has_rows):
                m.d.comb += steps.eq(common.rows)
        spanned = Signal(len(stride) + len(steps))
        overflow = Signal()
        merges = Signal()
        offset = Signal(p.piece_address_bits)
        run = Signal(p.box_piece_bits)
        smem_begin = common.smem_address[4:]
        smem_end = Signal(p.smem_piece_bits + 1)
        outside = Signal()
        row_start = Signal(p.smem_piece_bits)
        m.d.comb += [
            spanned.eq(stride * steps),
            overflow.eq((spanned > window) | (~first & overflow_below)),
            merges.eq(
                is_open & ~is_image & ((item.global_step == stride) | (step.steps_less_one == 0))
            ),
            offset.eq(item.offset_low + (item.offset_high << 16)),
            run.eq(stride * count),
            smem_end.eq(smem_begin + spanned),
            outside.eq(step.outside),
            row_start.eq(Mux(common.opens, smem_begin + row.low, walk.smem_start + common.pitch)),
        ]

        with m.If(advance):
            m.d.sync += done.eq(valid & common.last)
        with m.If(advance & valid):
            m.d.sync += [
                ends.eq(common.ends),
                spanned_below.eq(spanned),
                held_below.eq(held * steps),
                open_below.eq(merges & step.full),
                overflow_below.eq(overflow),
                too_large.eq(overflow | (smem_end > window)),
                smem_address.eq(common.smem_address),
                refusal.eq(common.refusal),
                job.first.eq(Mux(first, common.opens, job.first)),
                job.last.eq(common.ends),
                job.transfer.request_id.eq(common.request_id),
                job.transfer.mbarrier.eq(common.mbarrier),
                job.transfer.pieces.eq(held * steps),
                walk.prefetch.eq(common.prefetch),
                walk.attributes.eq(common.attributes),
                walk.style.eq(common.style),
                walk.first.eq(Mux(first, common.opens, walk.first)),
                walk.last.eq(common.ends),
                walk.has_data.eq(Mux(first, ~row.outside, walk.has_data) & ~outside),
                walk.start.eq(Mux(first, row.start, walk.start) + offset),
                walk.tail_bytes.eq(row.tail_bytes),
                walk.smem_begin.eq(smem_begin),
                walk.smem_end.eq(smem_end),
                walk.smem_start.eq(
                    Mux(first, row_start, walk.smem_start) + Mux(has_rows, 0, stride * step.low)
                ),
                walk.row_mask.eq(common.row_mask),
            ]
            with m.If(first):
                m.d.sync += [
                    walk.run.eq(row.pieces),
                    walk.smem_extent.eq(row.extent),
                    *(loop.last.eq(0) for loop in walk.loops),
                ]
            with m.If(merges):
                m.d.sync += [walk.run.eq(run), walk.smem_extent.eq(run)]
            for number, loop in enumerate(walk.loops):
                with m.If(common.loop == number):
                    m.d.sync += [
                        loop.last.eq(Mux(merges, 0, step.count_less_one)),
                        loop.global_step.eq(item.global_step),
                        loop.smem_step.eq(stride),
                    ]

        # Causes that arithmetic has found rank between those that were found by looking alone.
        code = refusal.code
        late = [(ErrorCode.SMEM_RANGE, too_large, 0, smem_address)]
        if p.im2col:
            m.d.comb += outside.eq(step.outside & (~is_image | item.image.is_fixed))
            with m.If(advance & valid):
                self._combine_image(m, item, offset, job.column)
            late.append((ErrorCode.IM2COL_START, *self._misplaced(m, advance & valid, item)))
        error = self.error
        refused = Signal()
        m.d.comb += [
            refused.eq(code != ErrorCode.NONE),
            error.p.request_id.eq(job.transfer.request_id),
            error.p.code.eq(code),
            error.p.dim.eq(refusal.dim),
            error.p.value.eq(refusal.value),
        ]
        for cause, found, dim, value in reversed(late):
            earlier = Cat(code == other for other in CAUSES[: CAUSES.index(cause)])
            with m.If(found & ~earlier.any()):
                m.d.comb += [
                    refused.eq(1),
                    error.p.code.eq(cause),
                    error.p.dim.eq(dim),
                    error.p.value.eq(value),
                ]
        m.d.comb += [
            self.job.p.eq(job),
            self.job.valid.eq(done & ~refused),
            error.valid.eq(done & refused & ends),
            advance.eq(~done | Mux(refused, error.ready | ~ends, self.job.ready)),
        ]

    def _combine_image(self, m: Module, item, offset, column) -> None:
        """Give a level of the column its positions and addresses."""
        common, row, image = item.common, item.row, item.image
        row_sizes = 1, 2, 4, 8  # pieces, that walking them takes shifts only
        m.d.sync += [
            column.enabled.eq(common.is_image),
            column.pixels.eq(common.pixels),
            column.grouped.eq(common.grouped),
            column.halo.eq(common.halo),
            column.pitch.eq(common.pitch),
            column.row_low.eq(row.low),
        ]
        start = Signal(self.params.piece_address_bits, reset_less=True)
        moved = Signal(self.params.piece_address_bits)
        m.d.comb += moved.eq(Mux(common.first, row.start, start) + offset)
        with m.If(~image.restarts):
            m.d.sync += start.eq(moved)
        with m.If(common.first):  # until its item comes, a level is absent
            for level in (column.levels[number] for number in range(N)):
                m.d.sync += [
                    level.absent.eq(1),
                    level.position.eq(0),
                    level.restart.eq(0),
                    level.restart_address.eq(0),
                ]
        for number in range(DIMS - 1):
            level = column.levels[number]
            with m.If(~image.restarts & (number <= image.level)):
                m.d.sync += level.address.eq(moved)
            with m.If((image.level == number) & image.restarts):
                m.d.sync += [level.restart.eq(image.position), level.restart_address.eq(offset)]
            with m.Elif((image.level == number) & ~image.is_fixed):
                m.d.sync += [
                    level.absent.eq(0),
                    level.position.eq(image.position),
                    level.last.eq(image.last),
                    level.limit.eq(image.limit),
                    level.by_less_one.eq(item.step.element_stride_less_one),
                    level.step.eq(item.global_step),
                ]
        with m.If((image.level == 0) & ~image.restarts):
            contiguous = row.full & (common.row == common.pitch) & (item.global_step == common.row)
            shifts = Cat(common.row == size for size in row_sizes)
            one_by_one = item.step.element_stride_less_one == 0
            m.d.sync += column.dense.eq(contiguous & one_by_one & shifts.any())
            for log2, fits in enumerate(shifts):
                with m.If(fits):
                    m.d.sync += column.row_log2.eq(log2)

    def _misplaced(self, m: Module, taken, item) -> tuple[Signal, Signal, Signal]:
        """Return whether the start of an image is refused, and the lowest dimension and its
        coordinate that are the cause.
        """
        image = item.image
        found = Signal(reset_less=True)
        dim = Signal.like(image.dim, reset_less=True)
        value = Signal(signed(32), reset_less=True)
        with m.If(taken):
            misplaced = image.misplaced & item.common.is_image
            m.d.sync += found.eq(misplaced | (found & ~item.common.first))
            with m.If(misplaced):
                m.d.sync += [dim.eq(image.dim), value.eq(image.coord)]
        return found, dim, value
