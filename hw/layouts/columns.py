"""Columns: the pixels of an image that a request moves, from setup to the walks."""

from functools import cache

from amaranth.hdl import signed
from amaranth.lib import data

from hw.params import DIMS, TmaParams

STEP_BITS = 40
"""Width of a global step of an item, in pieces: an element stride times a tensor stride."""

RESTART_BITS = 18
"""Width of the sum of a lower corner and an im2col offset, signed."""

POSITION_BITS = 34
"""Width of a position in a tensor, signed: the sum of extent, coordinate, corner and offset."""


def job_step_bits(params: TmaParams) -> int:
    """Return the width of a global step of a loop: it is only added to addresses of pieces."""
    return min(STEP_BITS, params.piece_address_bits)


@cache
def level_layout(params: TmaParams) -> data.StructLayout:
    """A dimension of an im2col walk. The dimensions count like the wheels of an odometer.

    Members
    -------
    absent : the tensor does not have this dimension; the level wraps at each step
    position : position of the column's first pixel
    restart : position after a wrap
    last : last position before a wrap
    limit : last position inside the tensor
    stride_less_one : element stride less one: distance between two positions of the walk, less one
    step : distance between these two positions in global memory, in pieces
    address : global address of the column's first pixel, in pieces, without the offsets of the
        levels below
    restart_address : offset of ``restart`` in global memory, in pieces; it is added to the address
        of the level above
    """
    return data.StructLayout(
        {
            "absent": 1,
            "position": signed(POSITION_BITS),
            "restart": signed(RESTART_BITS),
            "last": signed(POSITION_BITS),
            "limit": 32,
            "stride_less_one": 3,
            "step": job_step_bits(params),
            "address": params.piece_address_bits,
            "restart_address": params.piece_address_bits,
        }
    )


@cache
def column_layout(params: TmaParams) -> data.StructLayout:
    """A column of pixels of an image, from which the im2col walker makes walks.

    The job's ``walk`` holds the fields that all these walks have in common.

    Members
    -------
    enabled : the job is a column; otherwise its ``walk`` is complete
    stops_outside : a store writes no pixel from the first one outside the tensor on; present with
        ``im2col_w`` and ``stores``
    pixels : pixels of the column, each a row of shared memory; with ``grouped``, without halos
    grouped : ``im2col::w::128``: after each 32 pixels follow the ``halo`` pixels of a halo
    halo : pixels of each halo
    pitch : row pitch in shared memory, in pieces
    skipped_pieces : pieces of a pixel in front of the tensor's first channel
    dense : neighbouring pixels are contiguous in both memories
    levels : the dimensions W, H, D, N
    """
    return data.StructLayout(
        {
            "enabled": 1,
            **({"stops_outside": 1} if params.im2col_w and params.stores else {}),
            "pixels": params.pixel_bits,
            "grouped": 1,
            "halo": 5,
            "pitch": 8,
            "skipped_pieces": 8,
            "dense": 1,
            "levels": data.ArrayLayout(level_layout(params), DIMS - 1),
        }
    )


WHEELS = DIMS - 2
"""Wheels of the odometer of a column: W, H and D. The images, N, have no end."""


@cache
def pixel_counts_layout(params: TmaParams, *, wraps: bool = True) -> data.StructLayout:
    """Counts of pixels from a position of a dimension on, this one included; each may be too small
    if it is more than a column has.

    Members
    -------
    before : pixels in front of the tensor
    to_limit : pixels up to the last one inside the tensor, also those in front of it
    to_wrap : pixels up to the wrap; present with ``wraps``
    """
    names = "before", "to_limit", *(["to_wrap"] if wraps else [])
    return data.StructLayout(dict.fromkeys(names, params.pixel_bits))


@cache
def walk_limits_layout(params: TmaParams) -> data.StructLayout:
    """Limits of a walk of a column, as they follow from the counts at its first pixel.

    Members
    -------
    most : pixels of the walk, unless its chain ends before
    stays : these pixels do not reach the wrap of W
    wraps : H, D wrap at their next step
    is_outside : all pixels of the column from here on are outside the tensor
    """
    return data.StructLayout(
        {"most": params.pixel_bits, "stays": 1, "wraps": WHEELS - 1, "is_outside": 1}
    )


@cache
def prepared_column_layout(params: TmaParams) -> data.StructLayout:
    """A column whose positions are counts, and whose steps are sums of steps.

    Members
    -------
    enabled, stops_outside, pixels, grouped, halo, pitch, skipped_pieces, dense :
        see ``column_layout``
    first, restart : counts of W, H and D, from the first pixel on and after a wrap
    image : counts of N from the first image on
    address : global address of the first pixel, in pieces
    step : distance between two pixels of a row in global memory, in pieces
    next_address : addresses of H, D and N after their next step, in pieces, without the offsets of
        the dimensions below
    turn_1, turn_2, turn_3 : numbers that are added to the next address A of H, D or N when it takes
        its step: A and ``address`` are the address of the pixel, and A and ``next_address`` those
        of the dimensions up to this one
    limits : see ``walk_limits_layout``; of the first walk
    ends : the first walk is the last one of its chain
    """
    address = params.piece_address_bits

    def turn(level: int) -> data.StructLayout:
        next_address = data.ArrayLayout(address, level)
        return data.StructLayout({"address": address, "next_address": next_address})

    column = column_layout(params).members
    names = ("enabled", "stops_outside", "pixels", "grouped", "halo", "pitch", "skipped_pieces")
    counts = data.ArrayLayout(pixel_counts_layout(params), WHEELS)
    return data.StructLayout(
        {
            **{name: column[name] for name in (*names, "dense") if name in column},
            "first": counts,
            "restart": counts,
            "image": pixel_counts_layout(params, wraps=False),
            "address": address,
            "step": job_step_bits(params),
            "next_address": data.ArrayLayout(address, WHEELS),
            **{f"turn_{level}": turn(level) for level in range(1, WHEELS + 1)},
            "limits": walk_limits_layout(params),
            "ends": 1,
        }
    )


@cache
def place_layout(params: TmaParams) -> data.StructLayout:
    """Place of a walk among the walks of its column.

    Members
    -------
    first_of_column, last_of_column : the walk is the first, the last one of its column
    first, last : the walk is the first, the last one of its chain
    in_halo : the walk is a pixel of a halo; present with ``im2col_w``
    first_of_halo : the pixel is the first one of its halo; present with ``im2col_w``
    """
    names = ("first_of_column", "last_of_column", "first", "last")
    halo = ("in_halo", "first_of_halo") if params.im2col_w else ()
    return data.StructLayout(dict.fromkeys((*names, *halo), 1))


def column_step_fields(params: TmaParams) -> dict:
    """Return the fields of a step of the odometer besides those of its job.

    Members
    -------
    enabled, stops_outside, pitch, skipped_pieces, dense : see ``column_layout``
    step : see ``prepared_column_layout``
    address : global address of the walk's first pixel, in pieces
    place : see ``place_layout``
    pixels : pixels of the walk
    before, to_limit : of the row from the first pixel on: pixels in front of the tensor, and
        pixels up to the last one inside; ``to_limit`` is at most ``pixels``
    inside : the row is inside the tensor
    """
    column = prepared_column_layout(params).members
    kept = "enabled", "stops_outside", "pitch", "skipped_pieces", "dense", "step", "address"
    return {
        **{name: column[name] for name in kept if name in column},
        "place": place_layout(params),
        **dict.fromkeys(("pixels", "before", "to_limit"), params.pixel_bits),
        "inside": 1,
    }
