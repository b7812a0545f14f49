"""Item sequencer: checks a request, and feeds its items to the setup pipelines batch by batch.

It is the stage behind the decode stage. ``hw.setup.items`` says which item is in which place.
"""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import AccessMode, ErrorCode, Operation, is_store, map_style_layout
from hw.layouts.jobs import assign_write_mode, channel_of, stream_of
from hw.lib.quotient import reciprocal_of
from hw.lib.remainder import modulo_3
from hw.params import DIMS, SMEM_OFFSET_BITS, TmaParams
from hw.setup.checks import Check, TensorOperands, report_first, tensor_checks
from hw.setup.decode_stage import request_batch_layout
from hw.setup.items import (
    DIVIDEND_BITS,
    GATHERED_ROWS,
    LEVEL_N,
    batch_layout,
    batches,
    early_error_layout,
    place_of_level,
)
from hw.setup.map_decoder import bytes_of, last_byte_of

GROUPED_PIXELS = 128
"""Pixels of an ``im2col::w::128`` column, without its halos."""


class Place(data.Struct):
    """The item in a place.

    Members
    -------
    dim : number of its dimension
    is_present : there is an item in this place
    has_one_step : the box has one step in it: it is the slices of an interleaved tile
    is_walked, is_bounded : see ``ImageStep``
    """

    dim: 3
    is_present: 1
    has_one_step: 1
    is_walked: 1
    is_bounded: 1


@dataclass(frozen=True)
class Batch:
    """The batch that is taken: its ``number``, whether it ``is_first`` in its request, and whether
    the request ``gathers`` rows.
    """

    number: Value
    is_first: Value
    gathers: Value


class ItemSequencer(wiring.Component):
    """Feeds the items of each request to the clip stage, and makes all checks that need no
    arithmetic.

    Latency: one clock. Throughput: a batch a clock, of an item for each of the ``setup_pipelines``.
    The items of a request are in the first places: max(1, R - 1) for a tile of rank R, R with an
    interleaved map; those of an im2col box in five. A request of TILE_GATHER4 or TILE_SCATTER4 has
    four batches. The items of a refused request have no meaning. Back-pressure: none.

    Errors: ``early_error`` gives the first violated check of ``tensor_checks``. It belongs to the
    request whose batch was taken from ``o`` last.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_batch_layout(params), always_ready=True))
    o : Out(stream.Signature(batch_layout(params), always_ready=True))
    early_error : Out(early_error_layout(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(request_batch_layout(params), always_ready=True)),
                "o": Out(stream.Signature(batch_layout(params), always_ready=True)),
                "early_error": Out(early_error_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        item = Signal(batch_layout(self.params), reset_less=True)
        m.d.comb += self.o.payload.eq(item)
        m.d.sync += self.o.valid.eq(self.i.valid)
        decoded = self.i.p.decoded
        operands = self._operands(m)
        batch = self._place_batch(m, decoded, operands, item)
        for way in range(self.params.setup_pipelines):
            self._take_item(m, way, batch, decoded, operands, item)
        self._find_early_error(m, decoded, operands)
        self._common_fields(m, decoded, operands, item)
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

    def _common_fields(self, m: Module, decoded, operands: TensorOperands, item) -> None:
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
        m.d.sync += [
            common.request_id.eq(request.request_id),
            common.stream.eq(stream),
            common.channel.eq(channel_of(p, request.operation, stream)),
            common.prefetch.eq(operands.prefetch | request.no_receiver),
            common.attributes.l2_promotion.eq(decoded.l2_promotion),
            common.attributes.cache_policy.eq(request.cache_policy),
            common.smem_address.eq(operands.smem_address),
            common.mbarrier.eq(operands.mbarrier),
            *(common.style[name].eq(decoded.style[name]) for name in map_style_layout(p).members),
            *([common.style.report.eq(request.report)] if p.report_mechanism else ()),
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

    def _find_early_error(self, m: Module, decoded, operands: TensorOperands) -> None:
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
        m.d.sync += [
            violated.eq(Cat(check.violated for check in checks)),
            *(values[name].eq(sources[name]) for name in names if name != "small_value"),
        ]
        for number, check in enumerate(checks):
            m.d.sync += dims[number].eq(0 if check.dim is None else check.dim)
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

    def _place_batch(self, m: Module, decoded, operands: TensorOperands, item) -> Batch:
        """Assign the fields of an item that say which batch it is in; return the batch."""
        p = self.params
        request = self.i.p
        number, is_first, last_batch = request.number, request.first, request.last
        gathers = request.gathers if p.gather4 else Const(0, 1)
        common = item.common
        m.d.sync += [
            common.number.eq(number),
            common.starts_walk.eq(is_first | gathers),
            common.ends_walk.eq(last_batch | gathers),
            common.first_batch.eq(is_first),
            common.last_batch.eq(last_batch),
        ]
        if p.im2col or p.gather4:
            m.d.sync += [
                common.has_row_count.eq(gathers | decoded.im2col),
                common.row_count_less_one.eq(GATHERED_ROWS - 1),
            ]
        if p.im2col:
            self._count_pixels(m, decoded, operands.im2col_info, common)
        return Batch(number, is_first, gathers)

    def _take_item(
        self,
        m: Module,
        way: int,
        batch: Batch,
        decoded,
        operands: TensorOperands,
        item,
    ) -> None:
        """Take the item of pipeline ``way`` in a batch out of the request and its map."""
        p = self.params
        words, step = self.i.p.words, item.steps[way]
        place = self._find_place(m, way, batch, decoded)
        is_image = decoded.im2col if p.im2col else Const(0, 1)
        if p.im2col:
            self._take_image_item(m, way, batch, place, decoded, operands, item)

        element_stride_less_one = Signal(3, name=f"element_stride_less_one_{way}")
        m.d.comb += element_stride_less_one.eq(words[13].word_select(place.dim, 3))
        m.d.sync += [
            step.is_free.eq(~place.is_present | place.is_walked),
            step.element_stride_less_one.eq(element_stride_less_one),
            step.reciprocal.eq(reciprocal_of(m, element_stride_less_one, DIVIDEND_BITS)),
        ]
        self._take_dimension(m, decoded, place.dim, step)
        if p.gather4 and way == 0:
            with m.If(batch.gathers):
                rows = self.i.p.request.coords.as_value()[32:]
                m.d.sync += step.coord_complement.eq(~rows.word_select(batch.number[:2], 32))
        with m.If(place.has_one_step | batch.gathers | is_image | ~place.is_present):
            m.d.sync += step.box_less_one.eq(0)
        with m.If(~place.is_present):
            m.d.sync += step.stride.eq(0)

    def _find_place(self, m: Module, way: int, batch: Batch, decoded) -> data.View:
        """Find the item of pipeline ``way``. It selects most of a batch, so that the places of all
        batches but the first are found a clock earlier.
        """
        p = self.params
        found = Signal(Place, name=f"place_{way}")
        first_place, *other_places = range(way, DIMS, p.setup_pipelines)
        first = self._place(m, decoded, first_place)
        m.d.comb += found.eq(first)
        if batches(p) > 1:
            later = Signal(Place, name=f"later_place_{way}", reset_less=True)
            with m.If(self.i.valid):
                m.d.sync += later.eq(0)
                with m.Switch(batch.number):
                    for number, other_place in enumerate(other_places):
                        with m.Case(number):
                            m.d.sync += later.eq(self._place(m, decoded, other_place))
            with m.If(~batch.is_first):
                m.d.comb += found.eq(later)
        with m.If(batch.gathers):
            m.d.comb += [found.dim.eq(1), found.is_present.eq(way == 0)]
        return found

    def _place(self, m: Module, decoded, place: int) -> data.View:
        """Return the item in a place."""
        p = self.params
        rank_less_one = decoded.rank_less_one
        found = Signal(Place, name=f"item_{place}")
        with m.If(~decoded.interleaved):
            m.d.comb += [found.dim.eq(place + 1), found.is_present.eq(place < rank_less_one)]
        with m.Else():  # a legal map has three dimensions or more
            m.d.comb += [found.dim.eq(place), found.is_present.eq(place <= rank_less_one)]
            if place > 0:
                with m.If(place + 1 == rank_less_one):
                    m.d.comb += found.dim.eq(place + 1)
            if place > 1:
                with m.If(place == rank_less_one):  # slices
                    m.d.comb += [found.dim.eq(place - 1), found.has_one_step.eq(1)]
        if p.im2col:
            walks_w = decoded.wide if p.im2col_w else Const(0, 1)
            level = DIMS - 1 - place
            with m.If(decoded.im2col):
                if place == 0:
                    m.d.comb += [
                        found.dim.eq(rank_less_one - 1),
                        found.is_present.eq(decoded.interleaved),
                    ]
                elif level == LEVEL_N:
                    m.d.comb += [
                        found.dim.eq(rank_less_one),
                        found.is_present.eq(1),
                        found.is_walked.eq(1),
                    ]
                else:
                    has_level = level + 1 < rank_less_one
                    is_walked = has_level & ~walks_w if level else has_level
                    m.d.comb += [
                        found.dim.eq(Mux(decoded.interleaved, level, level + 1)),
                        found.is_present.eq(has_level),
                        found.is_walked.eq(is_walked),
                        found.is_bounded.eq(is_walked),
                    ]
        return found

    def _take_image_item(
        self,
        m: Module,
        way: int,
        batch: Batch,
        place: data.View,
        decoded,
        operands: TensorOperands,
        item,
    ) -> None:
        """Take the further fields of the item of an im2col box in ``place``."""
        p = self.params
        walks_w = decoded.wide if p.im2col_w else Const(0, 1)
        im2col_info = operands.im2col_info.as_value()
        corner = Signal(decoded.corners.shape().elem_shape, name=f"corner_{way}")
        offset = Signal(16, name=f"offset_{way}")
        for level in range(LEVEL_N):
            number, its_way = place_of_level(p, level)
            if its_way == way:
                with m.If(place.is_bounded & (batch.number == number)):
                    m.d.comb += [
                        corner.eq(decoded.corners[level]),
                        offset.eq(im2col_info.word_select(Mux(walks_w, 1, level), 16)),
                    ]
        image = item.images[way]
        m.d.sync += [
            image.dim.eq(place.dim),
            image.is_walked.eq(place.is_walked),
            image.is_bounded.eq(place.is_bounded),
            image.has_lower_bound.eq(~walks_w),
            image.lower.eq(corner.lower),
            image.upper.eq(corner.upper),
            image.offset.eq(offset),
            image.restart.eq(corner.lower + offset),
        ]

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
                with m.Case(n) if n < DIMS - 1 else m.Default():
                    m.d.sync += [
                        step.coord_complement.eq(~request.coords[n]),
                        step.dim_less_one.eq(words[8 + n]),
                        step.box_less_one.eq(words[14].word_select(n - 1, 8)),
                        step.stride.eq(Cat(words[2 + n], words[7].word_select(n - 1, 4))),
                    ]

    def _count_pixels(self, m: Module, decoded, im2col_info, common) -> None:
        """Count the rows of a column in shared memory, and its pixels, which come first."""
        p = self.params
        request = self.i.p.request
        pixels = Signal(p.pixel_bits)
        row_count_less_one = Signal(p.pixel_bits)
        column_less_one = self.i.p.words[15][:10]
        m.d.comb += [
            pixels.eq(column_less_one + 1),
            row_count_less_one.eq(column_less_one),
        ]
        m.d.sync += common.is_image.eq(decoded.im2col)
        if p.im2col_w:
            halo = im2col_info[0]
            grouped = request.mode == AccessMode.IM2COL_W_128
            with m.If(request.mode == AccessMode.IM2COL_W):
                m.d.comb += [
                    pixels.eq(column_less_one + halo + 1),
                    row_count_less_one.eq(column_less_one + halo),
                ]
            with m.If(grouped):
                m.d.comb += [
                    pixels.eq(GROUPED_PIXELS),
                    row_count_less_one.eq(GROUPED_PIXELS - 1 + (halo << 2)),
                ]
            m.d.sync += [common.grouped.eq(grouped), common.halo.eq(halo)]
            if p.stores:
                m.d.sync += common.stops_outside.eq(decoded.wide & is_store(request.operation))
        with m.If(decoded.im2col):
            m.d.sync += [
                common.pixels.eq(pixels),
                common.row_count_less_one.eq(row_count_less_one),
            ]
