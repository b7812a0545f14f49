"""Item sequencer: checks a request, and feeds its items to the setup pipeline one by one.

It is the first stage of the pipeline. The items of a tile are the dimensions above the row, the
lowest first. The items of an im2col box are N first, then down to W. The items of TILE_GATHER4 and
TILE_SCATTER4 are the four rows. See ``hw.setup.items``.
"""

from dataclasses import replace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import AccessMode, ErrorCode, Operation, is_store
from hw.layouts.jobs import assign_write_mode, channel_of, request_with_map_layout, stream_of
from hw.lib.quotient import reciprocal_of
from hw.lib.remainder import modulo_3
from hw.params import DIMS, SMEM_OFFSET_BITS, TmaParams
from hw.setup.checks import Check, TensorOperands, report_first, tensor_checks
from hw.setup.items import early_error_layout, item_layout
from hw.setup.map_decoder import MapDecoder, bytes_of, last_byte_of

LEVEL_N = DIMS - 2
"""Level of dimension N (the images); W, H and D are levels 0 to 2."""

GROUPED_PIXELS = 128
"""Pixels of an ``im2col::w::128`` column, without its halos."""


class ItemSequencer(wiring.Component):
    """Feeds the items of each request to the clip stage, and makes all checks that need no
    arithmetic.

    Latency: one clock. Throughput: an item a clock. A request of rank R has max(1, R - 1) items, R
    with an interleaved map, and four with TILE_GATHER4 or TILE_SCATTER4. A refused request has up
    to eight items, which have no meaning. Back-pressure: ``i.ready`` follows ``o.ready`` in the
    clock of a request's last item.

    Errors: ``early_error`` gives the first violated check of ``tensor_checks``. It belongs to the
    request whose item was taken from ``o`` last.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_with_map_layout(params)))
    o : Out(stream.Signature(item_layout(params)))
    early_error : Out(early_error_layout(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(request_with_map_layout(params))),
                "o": Out(stream.Signature(item_layout(params))),
                "early_error": Out(early_error_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
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
        operands = self._operands(m)
        self._count_items(m, advance, decoder.o, operands, item)
        self._find_early_error(m, advance, decoder.o, operands)
        self._common_fields(m, advance, decoder.o, operands, item)
        return m

    def _operands(self, m: Module) -> TensorOperands:
        """Return the operands of the request at ``i`` that its operation has."""
        request = self.i.p.request
        prefetch = request.operation == Operation.TENSOR_PREFETCH
        load = request.operation == Operation.TENSOR_LOAD
        store = is_store(request.operation)
        smem_address = Signal(SMEM_OFFSET_BITS)
        mbarrier = Signal(SMEM_OFFSET_BITS)
        # A prefetch writes no shared memory, but its box must be legal for a load.
        m.d.comb += [
            smem_address.eq(Mux(prefetch, 0, request.smem_address)),
            mbarrier.eq(Mux(load, request.mbarrier, 0)),
        ]
        im2col_info = Signal(request.im2col_info.shape())
        m.d.comb += im2col_info.eq(Mux(store, 0, request.im2col_info))
        return TensorOperands(prefetch, store, smem_address, mbarrier, im2col_info)

    def _common_fields(
        self, m: Module, advance: Value, decoded, operands: TensorOperands, item
    ) -> None:
        """Assign the fields of an item that are the same for all items of a request."""
        p = self.params
        request, words = self.i.p.request, self.i.p.words
        common = item.common
        start_byte = Signal(35)
        last_byte = Signal(4)
        m.d.comb += [
            start_byte.eq(bytes_of(p, decoded.element, request.coords[0])),
            last_byte.eq(last_byte_of(p, decoded.element, words[8])),
        ]
        stream = stream_of(p, request)
        with m.If(advance):
            m.d.sync += [
                common.request_id.eq(request.request_id),
                common.stream.eq(stream),
                common.channel.eq(channel_of(p, request.operation, stream)),
                common.prefetch.eq(operands.prefetch | request.no_receiver),
                common.attributes.l2_promotion.eq(decoded.l2_promotion),
                common.attributes.cache_policy.eq(request.cache_policy),
                common.smem_address.eq(operands.smem_address),
                common.mbarrier.eq(operands.mbarrier),
                common.style.eq(decoded.style),
                common.row_pieces.eq(decoded.row_pieces),
                common.row_pitch.eq(decoded.row_pitch),
                common.row_mask.eq(self._placed(m, decoded.row_mask, operands.smem_address)),
                item.base.eq(Cat(words[0], words[1]) >> 4),
                item.row_start.eq(request.coords[0]),
                item.row_start_pieces.eq(start_byte >> 4),
                item.row_dim_less_one.eq(words[8]),
                item.element.eq(decoded.element),
                # A store writes whole pieces, also where the tensor ends inside a piece.
                item.tail_bytes.eq(Mux(operands.store, 0, last_byte + 1)),
            ]
            # A row of an interleaved map is a whole slice. Dimension 0 is an item.
            with m.If(decoded.interleaved):
                m.d.sync += [
                    item.row_start.eq(0),
                    item.row_start_pieces.eq(0),
                    item.row_dim_less_one.eq(~0),
                ]
            if p.ctas > 1:
                m.d.sync += common.delivery.eq(request.delivery)
            if p.stores:
                m.d.sync += [
                    common.store.eq(operands.store),
                    common.group.eq(request.group),
                    *assign_write_mode(p, common.write_mode, request, words[2][7:11]),
                ]

    def _find_early_error(
        self, m: Module, advance: Value, decoded, operands: TensorOperands
    ) -> None:
        """Evaluate the checks of the request at ``i``, and a clock later find the first error."""
        request = self.i.p.request
        checks = tensor_checks(self.params, self.i.p, decoded, operands)
        sources = {
            "global_address": request.global_address,
            **{f"coord_{dim}": coord for dim, coord in enumerate(request.coords)},
            "word_2": self.i.p.words[2],
            "smem_address": operands.smem_address,
            "mbarrier": operands.mbarrier,
        }
        error = Signal.like(self.early_error, reset_less=True)
        values = Signal(error.values.shape(), reset_less=True)
        small_value = error.values.small_value
        violated = Signal(len(checks), reset_less=True)
        dims = Signal(data.ArrayLayout(range(DIMS), len(checks)), reset_less=True)
        small_values = Signal(data.ArrayLayout(small_value.shape(), len(checks)), reset_less=True)
        names = list(values.shape().members)
        m.d.comb += self.early_error.eq(error)
        with m.If(advance):
            m.d.sync += [
                violated.eq(Cat(check.violated for check in checks)),
                *(values[name].eq(sources[name]) for name in names if name != "small_value"),
            ]
            for number, check in enumerate(checks):
                if check.dim is not None:
                    m.d.sync += dims[number].eq(check.dim)
                if not isinstance(check.value, str):
                    m.d.sync += small_values[number].eq(check.value)

        def report(number: int, check: Check) -> None:
            name = check.value if isinstance(check.value, str) else "small_value"
            m.d.sync += [
                error.code.eq(check.code),
                error.dim.eq(dims[number]),
                error.value_index.eq(names.index(name)),
                small_value.eq(small_values[number]),
            ]

        with m.If(self.o.ready):
            m.d.sync += [error.code.eq(ErrorCode.NONE), error.dim.eq(0), error.values.eq(values)]
            registered = [
                replace(check, violated=violated[number]) for number, check in enumerate(checks)
            ]
            report_first(m, registered, report)

    def _placed(self, m: Module, row_mask: Value, smem_address: Value) -> Value:
        """Return ``row_mask`` for a box at ``smem_address``; it is given for a box at address 0."""
        if len(row_mask) == 8:
            return row_mask
        third = modulo_3(m, smem_address[7:], "third")
        rotated = Mux(third == 1, row_mask.rotate_left(8), row_mask.rotate_left(16))
        return Mux(third == 0, row_mask, rotated)

    def _count_items(
        self, m: Module, advance: Value, decoded, operands: TensorOperands, item
    ) -> None:
        """Count the items of a request: which dimension is next, and which item is the last."""
        p = self.params
        rank_less_one = decoded.rank_less_one
        number = Signal(3)
        dim = Signal(3)
        starts_walk = Signal()
        ends_walk = Signal()
        first_item = Signal()
        last_item = Signal()
        is_slice = Signal()  # the dimension of slices of an interleaved map
        m.d.comb += [
            dim.eq(number + ~decoded.interleaved),
            starts_walk.eq(number == 0),
            ends_walk.eq((dim >= rank_less_one) | (dim == DIMS - 1)),
            first_item.eq(number == 0),
            last_item.eq(ends_walk),
            is_slice.eq(decoded.interleaved & (dim + 1 == rank_less_one)),
            self.i.ready.eq(advance & last_item),
        ]
        gathers = Signal()
        if p.gather4:
            gather_modes = AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4
            mode = self.i.p.request.mode
            m.d.comb += gathers.eq(Cat(mode == gather for gather in gather_modes).any())
            with m.If(gathers):
                m.d.comb += [
                    dim.eq(1),
                    *(flag.eq(1) for flag in (starts_walk, ends_walk)),
                    last_item.eq(number == 3),
                ]
        if p.im2col:
            with m.If(decoded.im2col):
                self._count_image_items(
                    m, advance, decoded, operands, item, number, dim, ends_walk, last_item
                )
        with m.If(advance & self.i.valid):
            m.d.sync += number.eq(Mux(last_item, 0, number + 1))

        element_stride_less_one = Signal(3)
        m.d.comb += element_stride_less_one.eq(self.i.p.words[13].word_select(dim, 3))
        common, step = item.common, item.step
        is_absent = rank_less_one == 0
        is_one_step = is_slice | gathers | decoded.im2col
        with m.If(advance):
            m.d.sync += [
                common.starts_walk.eq(starts_walk),
                common.ends_walk.eq(ends_walk),
                common.first_item.eq(first_item),
                common.last_item.eq(last_item),
                # The dimension of slices has one step and needs no loop: four loops are enough.
                common.loop.eq(
                    Mux(is_one_step, DIMS - 1, number - (decoded.interleaved & ends_walk))
                ),
                step.is_absent.eq(is_absent),
                step.element_stride_less_one.eq(element_stride_less_one),
                step.reciprocal.eq(reciprocal_of(m, element_stride_less_one)),
            ]
            if p.im2col or p.gather4:
                m.d.sync += [
                    common.has_row_count.eq(gathers | decoded.im2col),
                    common.row_count.eq(4),
                ]
            if p.im2col:
                self._count_pixels(m, decoded, operands.im2col_info, common)
            self._take_dimension(m, decoded, dim, step)
            if p.gather4:
                with m.If(gathers):
                    rows = self.i.p.request.coords.as_value()[32:]
                    m.d.sync += step.coord_complement.eq(~rows.word_select(number[:2], 32))
            with m.If(is_one_step | is_absent):
                m.d.sync += step.box_less_one.eq(0)
            with m.If(is_absent):
                m.d.sync += step.stride.eq(0)

    def _take_dimension(self, m: Module, decoded, dim: Value, step) -> None:
        """Take the fields of dimension ``dim`` out of the request and the tensor map."""
        request, words = self.i.p.request, self.i.p.words
        with m.Switch(dim):
            with m.Case(0):
                m.d.sync += [
                    step.coord_complement.eq(~request.coords[0]),
                    step.dim_less_one.eq(words[8]),
                    step.box_less_one.eq(words[13][24:]),
                    step.stride.eq(decoded.row_pieces),
                ]
            for n in range(1, DIMS):
                with m.Case(n):
                    m.d.sync += [
                        step.coord_complement.eq(~request.coords[n]),
                        step.dim_less_one.eq(words[8 + n]),
                        step.box_less_one.eq(words[14].word_select(n - 1, 8)),
                        step.stride.eq(Cat(words[2 + n], words[7].word_select(n - 1, 4))),
                    ]

    def _count_image_items(
        self,
        m: Module,
        advance: Value,
        decoded,
        operands: TensorOperands,
        item,
        number: Value,
        dim: Value,
        ends_walk: Value,
        last_item: Value,
    ) -> None:
        """Count the items of an im2col box from N down to W.

        The dimensions that the column does not walk come right behind N: the dimension of slices of
        an interleaved map, and with ``im2col::w`` D and H.
        """
        rank_less_one = decoded.rank_less_one
        lowest_dim = ~decoded.interleaved
        walks_w = decoded.wide if self.params.im2col_w else Const(0, 1)
        fixed_items = Signal(2)
        is_fixed = Signal()
        is_spatial = Signal()  # a dimension that the column walks, and not N
        m.d.comb += [
            fixed_items.eq(Mux(walks_w, rank_less_one - 2, decoded.interleaved)),
            is_fixed.eq((number != 0) & (number <= fixed_items)),
            is_spatial.eq(number > fixed_items),
            dim.eq(rank_less_one - number),
            ends_walk.eq(dim == lowest_dim),
            last_item.eq(ends_walk),
        ]

        level = Signal(2)
        corner = Signal(decoded.corners.shape().elem_shape)
        offset = Signal(16)
        im2col_info = operands.im2col_info.as_value()
        with m.If(is_spatial):
            m.d.comb += [
                corner.eq(decoded.corners[level]),
                offset.eq(im2col_info.word_select(Mux(walks_w, 1, level), 16)),
            ]
        m.d.comb += level.eq(dim - lowest_dim)
        image = item.image
        with m.If(advance):
            m.d.sync += [
                image.dim.eq(dim),
                image.level.eq(Mux(is_spatial, level, LEVEL_N)),
                image.is_fixed.eq(is_fixed),
                image.is_bounded.eq(is_spatial),
                image.has_lower_bound.eq(~walks_w),
                image.lower.eq(corner.lower),
                image.upper.eq(corner.upper),
                image.offset.eq(offset),
                image.restart.eq(corner.lower + offset),
            ]

    def _count_pixels(self, m: Module, decoded, im2col_info, common) -> None:
        """Count the rows of a column in shared memory, and its pixels, which come first."""
        p = self.params
        request = self.i.p.request
        pixels = Signal(p.pixel_bits)
        row_count = Signal(p.pixel_bits)
        column_pixels = self.i.p.words[15][:10] + 1
        m.d.comb += [pixels.eq(column_pixels), row_count.eq(column_pixels)]
        m.d.sync += common.is_image.eq(decoded.im2col)
        if p.im2col_w:
            halo = im2col_info[0]
            grouped = request.mode == AccessMode.IM2COL_W_128
            with m.If(request.mode == AccessMode.IM2COL_W):
                m.d.comb += [pixels.eq(column_pixels + halo), row_count.eq(column_pixels + halo)]
            with m.If(grouped):
                m.d.comb += [
                    pixels.eq(GROUPED_PIXELS),
                    row_count.eq(GROUPED_PIXELS + (halo << 2)),
                ]
            m.d.sync += [common.grouped.eq(grouped), common.halo.eq(halo)]
            if p.stores:
                m.d.sync += common.stops_outside.eq(decoded.wide & is_store(request.operation))
        with m.If(decoded.im2col):
            m.d.sync += [common.pixels.eq(pixels), common.row_count.eq(row_count)]
