"""Items: the payloads between the stages of setup.

A *row* is dimension 0 of a box, or one slice of an interleaved map; it is counted in pieces. An
*item* is one dimension above the row, or one of the four rows of TILE_GATHER4. A *step* is one
position of the box in the dimension of an item. A *batch* is the items that the setup pipelines
take in one clock, one each.

The items of a request have *places*, which decide in which pipeline and in which batch they are:
with N pipelines, place k is in pipeline k modulo N and in batch k // N. A place without an item
holds one of a single step and a stride of 0.

===== =================================== ======================================
place tile                                im2col box
===== =================================== ======================================
0     the lowest dimension                the dimension of slices
1     the next dimension                  N
2     the next dimension                  D
3     the next dimension                  H
4     the next dimension                  W
===== =================================== ======================================

In an interleaved tile the dimension of slices comes last, behind N. Each row of TILE_GATHER4 is in
place 0 of a batch of its own.
"""

from functools import cache

from amaranth.hdl import Const, Shape, Value, signed, unsigned
from amaranth.lib import data

from hw.layouts.columns import POSITION_BITS, RESTART_BITS, STEP_BITS
from hw.layouts.isa import (
    GLOBAL_ADDRESS_BITS,
    ErrorCode,
    MemoryAttributes,
    data_style_layout,
)
from hw.layouts.jobs import (
    SHORT_ROW_BITS,
    delivery_layout,
    group_layout,
    write_mode_layout,
)
from hw.lib.quotient import BITS, FRACTION_BITS, reciprocal_bits
from hw.params import DIMS, SMEM_OFFSET_BITS, TmaParams
from hw.setup.map_decoder import ROW_BITS, element_layout

GATHERED_ROWS = 4
"""Rows of a request that gathers or scatters rows; each is a batch."""

LEVEL_N = DIMS - 2
"""Level of dimension N (the images); W, H and D are levels 0 to 2."""

ITEM_POSITION_BITS = 33
"""Width of the position of an item, signed: the sum of a coordinate and an im2col offset."""

ELEMENT_STRIDE_BITS = 4
"""Width of an element stride, from 1 to 8."""

STRIDE_BITS = 36
"""Width of a tensor's stride in pieces."""

POSITION_LOW_BITS = 16
"""Width of the low part of a position, which is multiplied apart from the high part."""

STRIDE_LOW_BITS = 18
"""Width of the low part of a stride, which is multiplied apart from the high part: that of a
multiplier."""


def place_of(params: TmaParams, place: int) -> tuple[int, int]:
    """Return the batch and the pipeline of the item in ``place``."""
    return divmod(place, params.setup_pipelines)


def place_of_level(params: TmaParams, level: int) -> tuple[int, int]:
    """Return the batch and the pipeline of the item of a level of an im2col box."""
    return place_of(params, DIMS - 1 - level)


def starts_walk(params: TmaParams, common) -> Value:
    """Return whether a batch is the first one of a walk, from ``common_layout``.

    With a pipeline for each place, every batch is.
    """
    return Const(1, 1) if place_of(params, DIMS - 1)[0] == 0 else common.starts_walk


def batches(params: TmaParams) -> int:
    """Return the largest number of batches of a request."""
    return max(GATHERED_ROWS if params.gather4 else 1, place_of(params, DIMS - 1)[0] + 1)


def partial_products_layout(bits: int, factor: Shape) -> data.StructLayout:
    """The product of a factor and a stride modulo ``2**bits``, before ``sum_of`` adds its parts.

    Members
    -------
    low, high : products with the low part and the high part of the stride
    """
    return data.StructLayout(
        {
            "low": Shape(min(bits, factor.width + STRIDE_LOW_BITS), factor.signed),
            "high": Shape(
                max(0, min(bits, factor.width + STRIDE_BITS) - STRIDE_LOW_BITS), factor.signed
            ),
        }
    )


def sum_of(products: data.View) -> Value:
    """Return the sum of the parts of a product, see ``partial_products_layout``."""
    return products.low + (products.high << STRIDE_LOW_BITS)


DIVIDEND_BITS = BITS + FRACTION_BITS
"""Width of a dividend of the clip stage. Its value is below 2^8, so that the fraction of the
quotient tells the remainder."""


class Step(data.Struct):
    """An item as it enters the clip stage.

    Members
    -------
    coord_complement : bitwise complement of the box's coordinate; of a negative coordinate, the
        distance to the tensor's start, less one
    dim_less_one, box_less_one, element_stride_less_one : from the tensor map
    reciprocal : of the element stride, for dividends of ``DIVIDEND_BITS``
    stride : tensor stride in pieces
    is_free : no step is clipped here: there is no item in this place, or a column walks its
        dimension
    """

    coord_complement: 32
    dim_less_one: 32
    box_less_one: 8
    element_stride_less_one: 3
    reciprocal: reciprocal_bits(DIVIDEND_BITS)
    stride: STRIDE_BITS
    is_free: 1


class ImageStep(data.Struct):
    """Further fields of an item of an im2col box.

    Members
    -------
    dim : number of the dimension
    is_walked : the column walks this dimension, which is one of its levels; otherwise the item's
        address is added to that of level N
    is_bounded : the start must be inside the bounding box
    has_lower_bound : the bounding box has a lower bound, too
    lower, upper : corners of the bounding box
    offset : im2col offset
    restart : position after a wrap
    """

    dim: range(DIMS)
    is_walked: 1
    is_bounded: 1
    has_lower_bound: 1
    lower: signed(16)
    upper: signed(16)
    offset: 16
    restart: signed(RESTART_BITS)


@cache
def clipped_step_layout(params: TmaParams) -> data.StructLayout:
    """An item behind the clip stage.

    Members
    -------
    steps_less_one : steps of the box, less one
    length_less_one : the same; if the request ``has_row_count``, the rows of the walk, less one,
        for the first item, and 0 for others
    is_negative : the box begins in front of the tensor, and has skipped steps
    skipped_less_one : steps in front of the tensor's start, less one
    steps_to_end_less_one : number of the last step that is not behind the tensor's end
    may_end : ``steps_to_end_less_one`` is valid; otherwise the tensor's end is not inside the box
    is_outside : the box is too far in front of the tensor, or behind it
    position : position of the first step inside the tensor
    element_stride : distance between two steps in the tensor
    stride, is_free : as in ``Step``
    """
    return data.StructLayout(
        {
            "steps_less_one": 8,
            "length_less_one": max(8, params.pixel_bits),
            "is_negative": 1,
            "skipped_less_one": 8,
            "steps_to_end_less_one": 8,
            "may_end": 1,
            "is_outside": 1,
            "position": signed(ITEM_POSITION_BITS),
            "element_stride": ELEMENT_STRIDE_BITS,
            "stride": STRIDE_BITS,
            "is_free": 1,
        }
    )


class ClippedImageStep(data.Struct):
    """Further fields of an item of an im2col box behind the clip stage.

    Members
    -------
    dim, is_walked : as in ``ImageStep``
    is_misplaced : the start is outside the bounding box (error IM2COL_START)
    coord : the box's coordinate
    position, restart, last, limit : as in ``level_layout``; ``position`` and ``restart`` are 0
        unless the dimension is walked
    """

    dim: range(DIMS)
    is_walked: 1
    is_misplaced: 1
    coord: signed(32)
    position: signed(ITEM_POSITION_BITS)
    restart: signed(RESTART_BITS)
    last: signed(POSITION_BITS)
    limit: 32


@cache
def early_error_layout(params: TmaParams) -> data.StructLayout:
    """The first error among the checks that need no arithmetic.

    Members
    -------
    code, dim : fields of the error record; ``code`` is NONE if no check applies
    value_index : number of the member of ``values`` that is the offending value
    values : the values that an error record may need; ``small_value`` holds any value of few bits
    """
    coords = {f"coord_{dim}": signed(32) for dim in range(DIMS if params.stores else 1)}
    values = {
        "global_address": GLOBAL_ADDRESS_BITS,
        **coords,
        "word_2": 32,
        "smem_address": SMEM_OFFSET_BITS,
        "mbarrier": SMEM_OFFSET_BITS,
        "small_value": signed(17),
    }
    return data.StructLayout(
        {
            "code": ErrorCode,
            "dim": range(DIMS),
            "value_index": range(len(values)),
            "values": data.StructLayout(values),
        }
    )


class FoundError(data.Struct):
    """The first error of a request so far: the fields of its error record.

    ``code`` is NONE if there is none.
    """

    code: ErrorCode
    dim: range(DIMS)
    value: GLOBAL_ADDRESS_BITS


@cache
def common_layout(params: TmaParams) -> data.StructLayout:
    """Fields of a request that each of its batches carries.

    Members
    -------
    number : number of the batch in its request
    starts_walk, ends_walk : this is the first batch, the last batch of a walk
    first_batch, last_batch : this is the first batch, the last batch of the request
    row_pieces : pieces of global memory in a row
    row_pitch : pieces of shared memory from a row to the next
    row_mask, style : as in ``walk_layout``
    has_row_count : ``row_count_less_one`` gives the number of rows; otherwise the steps of all
        items give it
    is_image : the job is a column
    pixels, grouped, halo, stops_outside : as in ``column_layout``
    """
    common = {
        "number": range(batches(params)),
        "starts_walk": 1,
        "ends_walk": 1,
        "first_batch": 1,
        "last_batch": 1,
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
        "row_pieces": ROW_BITS,
        "row_pitch": ROW_BITS,
        "row_mask": params.row_mask_bits,
    }
    if params.im2col or params.gather4:
        common |= {"has_row_count": 1, "row_count_less_one": params.pixel_bits}
    if params.im2col:
        common |= {"is_image": 1, "pixels": params.pixel_bits, "grouped": 1, "halo": 5}
        if params.im2col_w and params.stores:
            common["stops_outside"] = 1
    return data.StructLayout(common)


@cache
def batch_layout(params: TmaParams) -> data.StructLayout:
    """A batch as it leaves the item sequencer, and the row.

    Members
    -------
    common : fields of the request
    steps, images : the items
    base : global address of the tensor, in pieces
    row_start, row_dim_less_one : coordinate of the row, and the extent of dimension 0, in elements
    row_start_pieces : the coordinate in pieces
    element : element size
    tail_bytes : bytes in the last piece of the tensor's dimension 0; 0 stands for all 16
    """
    ways = params.setup_pipelines
    return data.StructLayout(
        {
            "common": common_layout(params),
            "steps": data.ArrayLayout(Step, ways),
            "base": params.piece_address_bits,
            "row_start": signed(32),
            "row_start_pieces": 31,
            "row_dim_less_one": 32,
            "element": element_layout(params),
            "tail_bytes": 4,
            **({"images": data.ArrayLayout(ImageStep, ways)} if params.im2col else {}),
        }
    )


@cache
def clipped_batch_layout(params: TmaParams) -> data.StructLayout:
    """A batch behind the clip stage, and the row.

    Members
    -------
    common, steps, images : as in ``batch_layout``
    row.start : global address of the first piece of the row inside the tensor
    row.is_outside : the row is too far in front of the tensor, or behind it
    row.skipped_pieces : pieces of the row in front of the tensor
    row.pieces_to_end : pieces from the row's start to the tensor's end
    row.may_end : ``pieces_to_end`` is valid; otherwise the tensor's end is not inside the row
    row.tail_bytes : as in ``batch_layout``
    """
    ways = params.setup_pipelines
    row = {
        "start": params.piece_address_bits,
        "is_outside": 1,
        "skipped_pieces": ROW_BITS + 1,
        "pieces_to_end": ROW_BITS + 1,
        "may_end": 1,
        "tail_bytes": 4,
    }
    return data.StructLayout(
        {
            "common": common_layout(params),
            "row": data.StructLayout(row),
            "steps": data.ArrayLayout(clipped_step_layout(params), ways),
            **({"images": data.ArrayLayout(ClippedImageStep, ways)} if params.im2col else {}),
        }
    )


@cache
def row_layout(params: TmaParams) -> data.StructLayout:
    """The row behind the multiply stage.

    Members
    -------
    start : global address of the first piece of the row inside the tensor
    is_outside : no piece of the row is inside the tensor
    skipped_pieces : pieces of the row in front of the tensor
    pieces : pieces of the row inside the tensor
    tail_bytes : bytes of the last of them that are inside; 0 stands for all 16
    short_pieces : ``pieces`` if the row is short (see ``SHORT_ROW_BITS``), else 0
    extent : pieces of shared memory from the first piece inside to the first possible fill
    is_full : rows can be merged into one run, because no row ends early
    """
    return data.StructLayout(
        {
            "start": params.piece_address_bits,
            "is_outside": 1,
            "skipped_pieces": ROW_BITS,
            "pieces": ROW_BITS,
            "tail_bytes": 4,
            "short_pieces": SHORT_ROW_BITS,
            "extent": ROW_BITS,
            "is_full": 1,
        }
    )


class CountedStep(data.Struct):
    """An item behind the multiply stage.

    Members
    -------
    is_single : the box has one step, inside the tensor or not
    skipped_steps : steps in front of the tensor's start
    count_less_one : steps inside the tensor, less one
    is_full : all steps are inside
    is_outside : no step is inside
    element_stride : as in ``clipped_step_layout``
    """

    is_single: 1
    skipped_steps: 8
    count_less_one: 8
    is_full: 1
    is_outside: 1
    element_stride: ELEMENT_STRIDE_BITS


@cache
def multiplied_batch_layout(params: TmaParams) -> data.StructLayout:
    """A batch behind the multiply stage, and the row.

    Members
    -------
    common, steps, images : as in ``batch_layout``
    row : see ``row_layout``
    error : the first error among those of ``early_error_layout``
    factors : of each item, the product of its length and those of the items before it in the batch
    too_many : a product exceeds the CTA's shared memory
    scaled : of each item but the first, ``count_less_one`` and ``skipped_steps`` times the factor
        of the item before it; present with more than one pipeline
    global_steps : of each item, the distance between two of its steps in global memory, in pieces,
        as ``partial_products_layout``
    offsets : of each item, the offset of its position in global memory, in pieces: the sum of
        ``low`` and ``high << POSITION_LOW_BITS``
    restart_offsets : of each item, the offset of the image's ``restart`` in global memory, in
        pieces, as ``partial_products_layout``
    """
    address = params.piece_address_bits
    ways = params.setup_pipelines
    offset = {
        "low": min(address, POSITION_LOW_BITS + STRIDE_BITS),
        "high": max(0, min(address, ITEM_POSITION_BITS + STRIDE_BITS) - POSITION_LOW_BITS),
    }
    scaled_step = {"count_less_one": params.box_piece_bits, "skipped_steps": params.box_piece_bits}
    scaled = {"scaled": data.ArrayLayout(data.StructLayout(scaled_step), ways - 1)}
    images = {
        "images": data.ArrayLayout(ClippedImageStep, ways),
        "restart_offsets": data.ArrayLayout(
            partial_products_layout(address, signed(RESTART_BITS)), ways
        ),
    }
    return data.StructLayout(
        {
            "common": common_layout(params),
            "row": row_layout(params),
            "error": FoundError,
            "steps": data.ArrayLayout(CountedStep, ways),
            "factors": data.ArrayLayout(params.box_piece_bits, ways),
            "too_many": 1,
            **(scaled if ways > 1 else {}),
            "global_steps": data.ArrayLayout(
                partial_products_layout(STEP_BITS, unsigned(ELEMENT_STRIDE_BITS)), ways
            ),
            "offsets": data.ArrayLayout(data.StructLayout(offset), ways),
            **(images if params.im2col else {}),
        }
    )


@cache
def spanned_batch_layout(params: TmaParams) -> data.StructLayout:
    """A batch behind the span stage, and the row.

    Members
    -------
    common, row, error, steps, too_many, images : as in ``multiplied_batch_layout``
    global_steps, restart_offsets : as in ``multiplied_batch_layout``, but added up
    smem_steps : of each item, pieces of shared memory from one of its steps to the next: what the
        items below span
    spanned : pieces of shared memory that the walk spans, up to this batch
    held : pieces of the box in them, modulo those that the CTA's shared memory may have
    has_open_row : a row may be merged with the next one: none ends early, and there are no gaps
    runs : of each item, pieces of shared memory that its steps inside the tensor span
    skipped : of each item, pieces of shared memory that its steps in front of the tensor span
    are_contiguous : of each item, its steps follow each other without a gap in both memories, or it
        has one step
    offsets : of each item, the sum of its offset in global memory, in pieces, and those of the
        items before it in the batch
    """
    ways = params.setup_pipelines
    fields = dict(multiplied_batch_layout(params).members)
    for name in ("factors", "scaled"):
        fields.pop(name, None)
    return data.StructLayout(
        {
            **fields,
            "smem_steps": data.ArrayLayout(params.box_piece_bits, ways),
            "has_open_row": 1,
            "runs": data.ArrayLayout(params.box_piece_bits, ways),
            "skipped": data.ArrayLayout(params.box_piece_bits, ways),
            "are_contiguous": ways,
            "spanned": 2 * params.box_piece_bits,
            "held": params.box_piece_bits,
            "global_steps": data.ArrayLayout(STEP_BITS, ways),
            "offsets": data.ArrayLayout(params.piece_address_bits, ways),
            **(
                {"restart_offsets": data.ArrayLayout(params.piece_address_bits, ways)}
                if params.im2col
                else {}
            ),
        }
    )
