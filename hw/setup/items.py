"""Items: the payloads between the stages of a setup pipeline.

A *row* is dimension 0 of a box, or one slice of an interleaved map; it is counted in pieces. An
*item* is one dimension above the row, or one of the four rows of TILE_GATHER4. A *step* is one
position of the box in the dimension of an item.
"""

from functools import cache

from amaranth.hdl import signed
from amaranth.lib import data

from hw.layouts.isa import (
    GLOBAL_ADDRESS_BITS,
    ErrorCode,
    MemoryAttributes,
    data_style_layout,
)
from hw.layouts.jobs import (
    POSITION_BITS,
    SHORT_ROW_BITS,
    STEP_BITS,
    delivery_layout,
    group_layout,
    write_mode_layout,
)
from hw.lib.quotient import reciprocal_bits
from hw.params import DIMS, SMEM_OFFSET_BITS, TmaParams
from hw.setup.map_decoder import ROW_BITS, element_layout

RESTART_BITS = 18
"""Width of the sum of a lower corner and an im2col offset, signed."""

POSITION_LOW_BITS = 16
"""Width of the low part of a position, which is multiplied apart from the high part."""


class Step(data.Struct):
    """An item as it enters the clip stage.

    Members
    -------
    coord_complement : bitwise complement of the box's coordinate; of a negative coordinate, the
        distance to the tensor's start, less one
    dim_less_one, box_less_one, element_stride_less_one : from the tensor map
    reciprocal : of the element stride, see ``hw.lib.quotient``
    stride : tensor stride in pieces
    is_absent : the tensor has no such dimension
    """

    coord_complement: 32
    dim_less_one: 32
    box_less_one: 8
    element_stride_less_one: 3
    reciprocal: reciprocal_bits()
    stride: 36
    is_absent: 1


class ImageStep(data.Struct):
    """Further fields of an item of an im2col box.

    Members
    -------
    dim : number of the dimension
    level : 0 to 3 for W, H, D and N
    is_fixed : the column does not walk this dimension; its address is added to that of level N
    is_bounded : the start must be inside the bounding box
    has_lower_bound : the bounding box has a lower bound, too
    lower, upper : corners of the bounding box
    offset : im2col offset
    restart : position after a wrap
    """

    dim: range(DIMS)
    level: range(DIMS - 1)
    is_fixed: 1
    is_bounded: 1
    has_lower_bound: 1
    lower: signed(16)
    upper: signed(16)
    offset: 16
    restart: signed(RESTART_BITS)


class ClippedStep(data.Struct):
    """An item behind the clip stage.

    Members
    -------
    steps_less_one : steps of the box, less one
    skipped_steps : steps in front of the tensor's start
    steps_to_end_less_one : number of the last step that is not behind the tensor's end
    may_end : ``steps_to_end_less_one`` is valid; otherwise the tensor's end is not inside the box
    is_outside : the box is too far in front of the tensor, or behind it
    position : position of the first step inside the tensor
    element_stride_less_one, stride, is_absent : as in ``Step``
    """

    steps_less_one: 8
    skipped_steps: 9
    steps_to_end_less_one: 8
    may_end: 1
    is_outside: 1
    position: signed(POSITION_BITS)
    element_stride_less_one: 3
    stride: 36
    is_absent: 1


class CountedStep(data.Struct):
    """An item behind the multiply stage.

    Members
    -------
    is_single : the box has one step, inside the tensor or not
    skipped_steps : steps in front of the tensor's start
    count_less_one : steps inside the tensor, less one
    is_full : all steps are inside
    is_outside : no step is inside
    element_stride_less_one : as in ``Step``
    """

    is_single: 1
    skipped_steps: 8
    count_less_one: 8
    is_full: 1
    is_outside: 1
    element_stride_less_one: 3


class ClippedImageStep(data.Struct):
    """Further fields of an item of an im2col box behind the clip stage.

    Members
    -------
    dim, level, is_fixed : as in ``ImageStep``
    is_misplaced : the start is outside the bounding box (error IM2COL_START)
    coord : the box's coordinate
    position, restart, last, limit : as in ``level_layout``
    """

    dim: range(DIMS)
    level: range(DIMS - 1)
    is_fixed: 1
    is_misplaced: 1
    coord: signed(32)
    position: signed(POSITION_BITS)
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


@cache
def item_common_layout(params: TmaParams) -> data.StructLayout:
    """Fields of a request that each of its items carries.

    Members
    -------
    starts_walk, ends_walk : this is the first item, the last item of a walk
    first_item, last_item : this is the first item, the last item of the request
    loop : number of the loop of the walk that the item becomes; ``DIMS - 1``: no loop
    row_pieces : pieces of global memory in a row
    row_pitch : pieces of shared memory from a row to the next
    row_mask, style : as in ``walk_layout``
    has_row_count : ``row_count`` is the number of rows; otherwise the steps of all items give it
    is_image : the job is a column
    pixels, grouped, halo, stops_outside : as in ``column_layout``
    """
    common = {
        "starts_walk": 1,
        "ends_walk": 1,
        "first_item": 1,
        "last_item": 1,
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
        "row_pieces": ROW_BITS,
        "row_pitch": ROW_BITS,
        "row_mask": params.row_mask_bits,
    }
    if params.im2col or params.gather4:
        common |= {"has_row_count": 1, "row_count": params.pixel_bits}
    if params.im2col:
        common |= {"is_image": 1, "pixels": params.pixel_bits, "grouped": 1, "halo": 5}
        if params.im2col_w and params.stores:
            common["stops_outside"] = 1
    return data.StructLayout(common)


@cache
def item_layout(params: TmaParams) -> data.StructLayout:
    """An item as it leaves the item sequencer, and the row.

    Members
    -------
    common, step, image : the item
    base : global address of the tensor, in pieces
    row_start, row_dim_less_one : coordinate of the row, and the extent of dimension 0, in elements
    row_start_pieces : the coordinate in pieces
    element : element size
    tail_bytes : bytes in the last piece of the tensor's dimension 0; 0 stands for all 16
    """
    return data.StructLayout(
        {
            "common": item_common_layout(params),
            "step": Step,
            "base": params.piece_address_bits,
            "row_start": signed(32),
            "row_start_pieces": 31,
            "row_dim_less_one": 32,
            "element": element_layout(params),
            "tail_bytes": 4,
            **({"image": ImageStep} if params.im2col else {}),
        }
    )


@cache
def clipped_item_layout(params: TmaParams) -> data.StructLayout:
    """An item behind the clip stage, and the row.

    Members
    -------
    row.start : global address of the first piece of the row inside the tensor
    row.is_outside : the row is too far in front of the tensor, or behind it
    row.skipped_pieces : pieces of the row in front of the tensor
    row.pieces_to_end : pieces from the row's start to the tensor's end
    row.may_end : ``pieces_to_end`` is valid; otherwise the tensor's end is not inside the row
    row.tail_bytes : as in ``item_layout``
    """
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
            "common": item_common_layout(params),
            "row": data.StructLayout(row),
            "step": ClippedStep,
            **({"image": ClippedImageStep} if params.im2col else {}),
        }
    )


@cache
def multiplied_item_layout(params: TmaParams) -> data.StructLayout:
    """An item behind the multiply stage, and the row.

    Members
    -------
    row.start : global address of the first piece of the row inside the tensor
    row.is_outside : no piece of the row is inside the tensor
    row.skipped_pieces : pieces of the row in front of the tensor
    row.pieces : pieces of the row inside the tensor
    row.tail_bytes : bytes of the last of them that are inside; 0 stands for all 16
    row.short_pieces : ``pieces`` if the row is short (see ``SHORT_ROW_BITS``), else 0
    row.extent : pieces of shared memory from the first piece inside to the first possible fill
    row.is_full : rows can be merged into one run, because no row ends early
    early_error : of the request
    steps : steps of the item, or rows of the box
    window_pieces : pieces from the box's start to the end of the CTA's shared memory
    offset_low, offset_high : offset of ``position`` in global memory, in pieces: the sum of
        ``offset_low`` and ``offset_high << POSITION_LOW_BITS``
    global_step : distance between two steps in global memory, in pieces
    restart_offset : offset of the image's ``restart`` in global memory, in pieces
    """
    address = params.piece_address_bits
    row = {
        "start": address,
        "is_outside": 1,
        "skipped_pieces": ROW_BITS,
        "pieces": ROW_BITS,
        "tail_bytes": 4,
        "short_pieces": SHORT_ROW_BITS,
        "extent": ROW_BITS,
        "is_full": 1,
    }
    common = item_common_layout(params)
    image = {"image": ClippedImageStep, "restart_offset": address} if params.im2col else {}
    return data.StructLayout(
        {
            "common": common,
            "row": data.StructLayout(row),
            "step": CountedStep,
            "early_error": early_error_layout(params),
            "steps": params.pixel_bits if "has_row_count" in common.members else 9,
            "window_pieces": signed(params.smem_piece_bits + 1),
            "offset_low": min(address, POSITION_LOW_BITS + 36),
            "offset_high": max(0, min(address, POSITION_BITS + 36) - POSITION_LOW_BITS),
            "global_step": STEP_BITS,
            **image,
        }
    )
