"""Item sequencer: the first stage of the setup block. A request becomes items, checked.

A row, which is dimension 0 or one slice of an interleaved map, is counted in pieces; the dimensions
above it are the *items*. Those of a tile come lowest first, those of an image from N down to W. The
items of TILE_GATHER4 are its four rows.
"""

from functools import cache

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.front.descriptor_cache import request_with_map_layout
from hw.layouts.isa import (
    GLOBAL_ADDRESS_BITS,
    REDUCTIONS,
    AccessMode,
    ErrorCode,
    MemoryAttributes,
    Operation,
    data_style_layout,
    is_reducible,
    is_reduction,
    is_store,
)
from hw.layouts.jobs import (
    assign_write_mode,
    channel_of,
    delivery_layout,
    group_layout,
    stream_of,
    write_mode_layout,
)
from hw.lib.quotient import RECIPROCAL_BITS, reciprocal_of
from hw.lib.remainder import modulo_3
from hw.params import DIMS, SMEM_OFFSET_BITS, TmaParams
from hw.setup.map_decoder import (
    ROW_BITS,
    MapDecoder,
    bytes_of,
    element_layout,
    is_misaligned,
    last_byte_of,
)

N = DIMS - 2
"""The level of the images; W, H and D are 0 to 2."""

GROUPED_PIXELS = 128

OFFSET_BITS = {3: 16, 4: 8, 5: 5}
"""Of an im2col offset, by rank."""

RESTART_BITS = 18
"""A lower corner and an offset, added up."""


class Step(data.Struct):
    """One dimension above the row, as it enters ``clip``.

    ``before``: from the coordinate to the tensor, less one, if it is negative: its complement.
    ``reciprocal``: of the element stride. ``is_void``: there is no such dimension.
    """

    before: 32
    dim_less_one: 32
    box_less_one: 8
    element_stride_less_one: 3
    reciprocal: RECIPROCAL_BITS
    stride: 36
    is_void: 1


class ImageStep(data.Struct):
    """What a dimension of an image has besides.

    ``level``: 0 to 3 for W, H, D, N. ``is_fixed``: the column does not walk it; it adds to the
    level of N. ``is_bounded``: the start is to be in the bounding box, ``has_lower``: on either
    side. A wrapped dimension goes on at ``restart``.
    """

    dim: range(DIMS)
    level: range(DIMS - 1)
    is_fixed: 1
    is_bounded: 1
    has_lower: 1
    lower: signed(16)
    upper: signed(16)
    offset: 16
    restart: signed(RESTART_BITS)


@cache
def found_layout(params: TmaParams) -> data.StructLayout:
    """The first cause that looking alone has found.

    Members
    -------
    code, dim : of the error record; ``NONE`` if there is no cause
    chosen : number of the member of ``values`` that is the offending value
    values : all that may be; ``short`` is whatever has few bits
    """
    coords = {f"coord_{dim}": signed(32) for dim in range(DIMS if params.stores else 1)}
    values = {
        "global_address": GLOBAL_ADDRESS_BITS,
        **coords,
        "word_2": 32,
        "smem_address": SMEM_OFFSET_BITS,
        "mbarrier": SMEM_OFFSET_BITS,
        "short": signed(17),
    }
    return data.StructLayout(
        {
            "code": ErrorCode,
            "dim": range(DIMS),
            "chosen": range(len(values)),
            "values": data.StructLayout(values),
        }
    )


@cache
def item_common_layout(params: TmaParams) -> data.StructLayout:
    """What every item of a request carries along.

    Members
    -------
    first, last : of a walk
    opens, ends : of the request
    loop : the loop of the walk that the item is, ``DIMS - 1`` if none
    row, pitch, row_mask, style : of all rows
    has_rows, rows : whether, and how many, rows are counted here and not by dimension
    is_image, stops, pixels, grouped, halo : as in ``column_layout``
    """
    common = {
        "first": 1,
        "last": 1,
        "opens": 1,
        "ends": 1,
        "loop": range(DIMS),
        "prefetch": 1,
        **(
            {"store": 1, "write_mode": write_mode_layout(params), "group": group_layout(params)}
            if params.stores
            else {}
        ),
        "stream": params.stream_bits,
        "channel": params.channel_bits,
        "attributes": MemoryAttributes,
        "request_id": params.request_id_bits,
        "smem_address": SMEM_OFFSET_BITS,
        "mbarrier": SMEM_OFFSET_BITS,
        **({"delivery": delivery_layout(params)} if params.ctas > 1 else {}),
        "style": data_style_layout(params),
        "row": ROW_BITS,
        "pitch": ROW_BITS,
        "row_mask": params.row_mask_bits,
    }
    if params.im2col or params.gather4:
        common |= {"has_rows": 1, "rows": params.pixel_bits}
    if params.im2col:
        common |= {"is_image": 1, "pixels": params.pixel_bits, "grouped": 1, "halo": 5}
        if params.im2col_w and params.stores:
            common["stops_outside"] = 1
    return data.StructLayout(common)


@cache
def item_layout(params: TmaParams) -> data.StructLayout:
    """An item, and the row.

    Members
    -------
    common, step, image : the item
    base : of the tensor, a global piece address
    start, dim_less_one : of the row, in elements
    start_pieces : the same start
    element : size
    tail : bytes of the tensor's last piece; 0: all 16
    """
    return data.StructLayout(
        {
            "common": item_common_layout(params),
            "step": Step,
            "base": params.piece_address_bits,
            "start": signed(32),
            "start_pieces": 31,
            "dim_less_one": 32,
            "element": element_layout(params),
            "tail": 4,
            **({"image": ImageStep} if params.im2col else {}),
        }
    )


class ItemSequencer(wiring.Component):
    """Feeds the items of each request, one a clock, and checks what takes no arithmetic.

    Latency one clock. A request of rank R has max(1, R - 1) items, with an interleaved map R;
    TILE_GATHER4 has four. A refused request has up to eight, whose meaning is void. ``i.ready``
    follows ``o.ready`` with a request's last item.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``request_with_map_layout``
    o : Out(stream) of ``item_layout``
    found : Out of ``found_layout``
        Of the request whose item was taken last.
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(request_with_map_layout(params))),
                "o": Out(stream.Signature(item_layout(params))),
                "found": Out(found_layout(params)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        advance = Signal()
        item = Signal(item_layout(self.params), reset_less=True)
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            self.o.payload.eq(item),
        ]
        with m.If(advance):
            m.d.sync += self.o.valid.eq(self.i.valid)
        m.submodules.map_decoder = decoder = MapDecoder(self.params)
        m.d.comb += decoder.words.eq(self.i.p.words)
        self._select(m, advance, decoder.o, item)
        return m

    def _select(self, m: Module, advance, decoded, out) -> None:
        """Feed the items of the request at ``i``; make the checks that need no arithmetic."""
        request = self.i.p.request
        words = self.i.p.words
        common = out.common
        prefetch = request.operation == Operation.TENSOR_PREFETCH
        load = request.operation == Operation.TENSOR_LOAD
        store = is_store(request.operation)
        # A prefetch has no place in shared memory; its box must be one that a load could have.
        smem_address = Signal(SMEM_OFFSET_BITS)
        mbarrier = Signal(SMEM_OFFSET_BITS)
        m.d.comb += [
            smem_address.eq(Mux(prefetch, 0, request.smem_address)),
            mbarrier.eq(Mux(load, request.mbarrier, 0)),
        ]
        # A store has no offsets and no halo.
        info = Signal(request.im2col_info.shape())
        m.d.comb += info.eq(Mux(store, 0, request.im2col_info))
        self._sequence(m, advance, decoded, info, out)
        checks = self._check(decoded, store, smem_address, mbarrier, info)
        values = {
            "global_address": request.global_address,
            **{f"coord_{dim}": coord for dim, coord in enumerate(request.coords)},
            "word_2": words[2],
            "smem_address": smem_address,
            "mbarrier": mbarrier,
        }
        self._refuse(m, advance, checks, values)

        start_byte = Signal(35)
        last_byte = Signal(4)
        m.d.comb += [
            start_byte.eq(bytes_of(self.params, decoded.element, request.coords[0])),
            last_byte.eq(last_byte_of(self.params, decoded.element, words[8])),
        ]
        stream = stream_of(self.params, request)
        with m.If(advance):
            m.d.sync += [
                common.request_id.eq(request.request_id),
                common.stream.eq(stream),
                common.channel.eq(channel_of(self.params, request.operation, stream)),
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
                out.start.eq(request.coords[0]),
                out.start_pieces.eq(start_byte >> 4),
                out.dim_less_one.eq(words[8]),
                out.element.eq(decoded.element),
                # A store writes whole pieces, also where the tensor ends inside of one.
                out.tail.eq(Mux(store, 0, last_byte + 1)),
            ]
            # Of an interleaved map a row is all of one slice; where it starts is a step's matter.
            with m.If(decoded.interleaved):
                m.d.sync += [out.start.eq(0), out.start_pieces.eq(0), out.dim_less_one.eq(~0)]
            if self.params.ctas > 1:
                m.d.sync += common.delivery.eq(request.delivery)
            if self.params.stores:
                m.d.sync += [
                    common.store.eq(store),
                    common.group.eq(request.group),
                    *assign_write_mode(self.params, common.write_mode, request, words[2][7:11]),
                ]

    def _refuse(self, m: Module, advance, checks: list[tuple], values: dict) -> None:
        """Check, and a clock later find the first cause."""
        found = Signal.like(self.found, reset_less=True)
        kept = Signal(found.values.shape(), reset_less=True)
        broken = Signal(len(checks), reset_less=True)
        dims = Signal(data.ArrayLayout(range(DIMS), len(checks)), reset_less=True)
        shorts = Signal(data.ArrayLayout(found.values.short.shape(), len(checks)), reset_less=True)
        names = list(kept.shape().members)
        m.d.comb += self.found.eq(found)
        with m.If(advance):
            m.d.sync += [
                broken.eq(Cat(condition for condition, *_ in checks)),
                *(kept[name].eq(values[name]) for name in names if name != "short"),
            ]
            for number, (_, _, value, *dim) in enumerate(checks):
                m.d.sync += [dims[number].eq(which) for which in dim]
                if not isinstance(value, str):
                    m.d.sync += shorts[number].eq(value)
        with m.If(self.o.ready):
            m.d.sync += [found.code.eq(ErrorCode.NONE), found.dim.eq(0), found.values.eq(kept)]
            branch = m.If
            for number, (_, code, value, *_) in enumerate(checks):
                name = value if isinstance(value, str) else "short"
                with branch(broken[number]):
                    m.d.sync += [
                        found.code.eq(code),
                        found.dim.eq(dims[number]),
                        found.chosen.eq(names.index(name)),
                        found.values.short.eq(shorts[number]),
                    ]
                branch = m.Elif

    def _check(self, decoded, store, smem_address, mbarrier, info) -> list[tuple]:
        """Return what may be wrong, the first cause first: a condition, a code, a short value or
        the name of another one, and a dimension if it is not 0.
        """
        p = self.params
        request = self.i.p.request
        words = self.i.p.words
        mode = request.mode
        rank = decoded.rank_less_one + 1
        coords = rank
        of_im2col = mode == AccessMode.IM2COL
        fits = (mode == AccessMode.TILE) & ~decoded.im2col
        starts: list[tuple] = []  # of boxes, where a store may not begin
        rest: list[tuple] = []
        if p.gather4:
            gathers = Mux(store, mode == AccessMode.TILE_SCATTER4, mode == AccessMode.TILE_GATHER4)
            one_row = words[14][:8] == 0
            matrix = ~decoded.im2col & ~decoded.interleaved & (rank == 2) & one_row
            fits |= gathers & matrix
            coords = Mux(gathers, 5, coords)
        if p.stores:
            for number, coord in enumerate(request.coords):
                negative = store & (number < coords) & (coord < 0)
                starts.append((negative, ErrorCode.COORD_NEG, f"coord_{number}", number))
        if p.im2col:
            fits |= of_im2col & decoded.im2col & ~decoded.wide
            for j in range(DIMS - 2):
                dim = j + ~decoded.interleaved
                offset = info[j]
                too_large = Cat(
                    (rank == r) & offset[bits:].any()
                    for r, bits in OFFSET_BITS.items()
                    if j < r - 2
                ).any()
                rest.append((of_im2col & too_large, ErrorCode.IM2COL_OFFSET, offset, dim))
                if p.stores:
                    lower, upper = decoded.corners[j].lower, decoded.corners[j].upper
                    narrows = store & of_im2col
                    starts += [
                        (narrows & (lower < 0), ErrorCode.IM2COL_CORNER, lower, dim),
                        (narrows & (upper > 0), ErrorCode.IM2COL_CORNER, upper, dim),
                    ]
        if p.im2col_w:
            grouped = (mode == AccessMode.IM2COL_W_128) & ~store
            walks_w = grouped | (mode == AccessMode.IM2COL_W)
            swizzled = decoded.swizzled
            if p.swizzle_atoms:
                swizzled &= ~decoded.flips
            fits |= walks_w & decoded.im2col & decoded.wide & ~decoded.interleaved & swizzled
            halo, offset = info[0], info[1]
            halo_too_large = Mux(grouped, halo[5:].any(), halo[9:].any())
            rest += [
                (walks_w & halo_too_large, ErrorCode.IM2COL_OFFSET, halo, 1),
                (walks_w & offset[5:].any(), ErrorCode.IM2COL_OFFSET, offset, 1),
            ]
        if p.stores:
            reduces = is_reduction(request.operation)
            if p.reductions:
                reduces &= ~is_reducible(REDUCTIONS, words[2][7:11], request.reduction_op)
            rest.append((reduces, ErrorCode.RED_TYPE, request.reduction_op))
        misaligned = is_misaligned(p, decoded, request.coords[0])
        refused = decoded.refused
        if p.swizzle_atoms or p.sub_byte:
            refused |= store & decoded.load_only
        if p.sub_byte:
            refused |= ~store & decoded.store_only
        if not p.stores:
            fits &= ~store
        paired = []
        if not p.cta_group_2:
            is_load = request.operation == Operation.TENSOR_LOAD
            paired.append((is_load & request.cta_group_2, ErrorCode.MAP_MODE, 2))
        misdirected = request.misdirected
        return [
            (self.i.p.fault, ErrorCode.GMEM_FAULT, "global_address"),
            (refused, ErrorCode.MAP_FIELD, "word_2"),
            (~fits, ErrorCode.MAP_MODE, mode),
            (request.rank != coords, ErrorCode.MAP_MODE, request.rank),
            *paired,
            (smem_address[:7].any(), ErrorCode.SMEM_ALIGN, "smem_address"),
            (mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, "mbarrier"),
            (misaligned, ErrorCode.COORD_ALIGN, "coord_0"),
            *starts,
            *rest,
            (misdirected.mask, ErrorCode.MASK, misdirected.value),
            (misdirected.cta, ErrorCode.DST_CTA, misdirected.value),
            (mbarrier[:3].any(), ErrorCode.MBAR_ALIGN, "mbarrier"),
        ]

    def _placed(self, m: Module, row_mask, smem_address) -> Value:
        """Return ``row_mask``, which is that of address 0, for a box at ``smem_address``."""
        if len(row_mask) == 8:
            return row_mask
        third = modulo_3(m, smem_address[7:], "third")
        second = Mux(third == 1, row_mask.rotate_left(8), row_mask.rotate_left(16))
        return Mux(third == 0, row_mask, second)

    def _sequence(self, m: Module, advance, decoded, info, out) -> None:
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
        gathers = Signal()
        if p.gather4:
            gather_modes = AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4
            m.d.comb += gathers.eq(Cat(request.mode == mode for mode in gather_modes).any())
            with m.If(gathers):
                m.d.comb += [
                    index.eq(1),
                    *(flag.eq(1) for flag in (first, last)),
                    ends.eq(number == 3),
                ]
        if p.im2col:
            with m.If(decoded.im2col):
                self._sequence_image(m, advance, decoded, number, index, last, ends, info, out)
        with m.If(advance & self.i.valid):
            m.d.sync += number.eq(Mux(ends, 0, number + 1))

        element_stride_less_one = Signal(3)
        m.d.comb += element_stride_less_one.eq(words[13].word_select(index, 3))
        common, step = out.common, out.step
        is_void = rank_less_one == 0
        one_step = is_slice | gathers | decoded.im2col
        with m.If(advance):
            m.d.sync += [
                common.first.eq(first),
                common.last.eq(last),
                common.opens.eq(opens),
                common.ends.eq(ends),
                # The slice has one step and needs no loop, so that four are enough.
                common.loop.eq(Mux(one_step, DIMS - 1, number - (decoded.interleaved & last))),
                step.is_void.eq(is_void),
                step.element_stride_less_one.eq(element_stride_less_one),
                step.reciprocal.eq(reciprocal_of(m, element_stride_less_one)),
            ]
            if p.im2col or p.gather4:
                m.d.sync += [
                    common.has_rows.eq(gathers | decoded.im2col),
                    common.rows.eq(4),
                ]
            if p.im2col:
                self._count_pixels(m, decoded, info, common)
            with m.Switch(index):
                with m.Case(0):
                    m.d.sync += [
                        step.before.eq(~request.coords[0]),
                        step.dim_less_one.eq(words[8]),
                        step.box_less_one.eq(words[13][24:]),
                        step.stride.eq(decoded.row),
                    ]
                for dim in range(1, DIMS):
                    with m.Case(dim):
                        m.d.sync += [
                            step.before.eq(~request.coords[dim]),
                            step.dim_less_one.eq(words[8 + dim]),
                            step.box_less_one.eq(words[14].word_select(dim - 1, 8)),
                            step.stride.eq(Cat(words[2 + dim], words[7].word_select(dim - 1, 4))),
                        ]
            if p.gather4:
                with m.If(gathers):
                    rows = request.coords.as_value()[32:]
                    m.d.sync += step.before.eq(~rows.word_select(number[:2], 32))
            with m.If(one_step | is_void):
                m.d.sync += step.box_less_one.eq(0)
            with m.If(is_void):
                m.d.sync += step.stride.eq(0)

    def _sequence_image(
        self, m: Module, advance, decoded, number, index, last, ends, info, out
    ) -> None:
        """From N down to W; what the column does not walk comes right behind N."""
        p = self.params
        rank_less_one = decoded.rank_less_one
        lowest = ~decoded.interleaved
        walks_w = decoded.wide if p.im2col_w else Const(0, 1)
        fixed = Signal(2)
        is_fixed = Signal()
        is_spatial = Signal()
        m.d.comb += [
            fixed.eq(Mux(walks_w, rank_less_one - 2, decoded.interleaved)),
            is_fixed.eq((number != 0) & (number <= fixed)),
            is_spatial.eq(number > fixed),
            index.eq(rank_less_one - number),
            last.eq(index == lowest),
            ends.eq(last),
        ]

        of_w = Signal(2)  # 0 for W
        corner = Signal(decoded.corners.shape().elem_shape)
        offset = Signal(16)
        with m.If(is_spatial):
            m.d.comb += [
                corner.eq(decoded.corners[of_w]),
                offset.eq(info.as_value().word_select(Mux(walks_w, 1, of_w), 16)),
            ]
        m.d.comb += of_w.eq(index - lowest)
        image = out.image
        with m.If(advance):
            m.d.sync += [
                image.dim.eq(index),
                image.level.eq(Mux(is_spatial, of_w, N)),
                image.is_fixed.eq(is_fixed),
                image.is_bounded.eq(is_spatial),
                image.has_lower.eq(~walks_w),
                image.lower.eq(corner.lower),
                image.upper.eq(corner.upper),
                image.offset.eq(offset),
                image.restart.eq(corner.lower + offset),
            ]

    def _count_pixels(self, m: Module, decoded, info, common) -> None:
        """Rows of a column in shared memory; the first of them are its pixels."""
        request = self.i.p.request
        pixels = Signal(self.params.pixel_bits)
        rows = Signal(self.params.pixel_bits)
        column = self.i.p.words[15][:10] + 1
        m.d.comb += [pixels.eq(column), rows.eq(column)]
        m.d.sync += common.is_image.eq(decoded.im2col)
        if self.params.im2col_w:
            halo = info[0]
            grouped = request.mode == AccessMode.IM2COL_W_128
            with m.If(request.mode == AccessMode.IM2COL_W):
                m.d.comb += [pixels.eq(column + halo), rows.eq(column + halo)]
            with m.If(grouped):
                m.d.comb += [pixels.eq(GROUPED_PIXELS), rows.eq(GROUPED_PIXELS + (halo << 2))]
            m.d.sync += [common.grouped.eq(grouped), common.halo.eq(halo)]
            if self.params.stores:
                m.d.sync += common.stops_outside.eq(decoded.wide & is_store(request.operation))
        with m.If(decoded.im2col):
            m.d.sync += [common.pixels.eq(pixels), common.rows.eq(rows)]
