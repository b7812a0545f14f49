"""Contents of a piece in shared memory: the fill pattern, and the words of packed types."""

from amaranth.hdl import Const, Mux, Value

from hw.layouts.isa import Fill, Packing
from hw.params import PIECE_BYTES, TmaParams

NAN_HALF = 0x7FF7
"""Value of each 16-bit half of fill where the tensor map asks for NaN."""


def fill_piece(fill) -> Value:
    """Return 16 bytes of fill: zeros, or ``NAN_HALF`` in each 2 bytes."""
    return Mux(fill == Fill.NAN, Const(NAN_HALF, 16).replicate(PIECE_BYTES // 2), 0)


def packed_words(style) -> Value:
    """Return a mask of the 4-byte words of a piece that hold elements, by ``style.packing``."""
    return Mux(
        style.packing == Packing.BYTES_8, 0x3, Mux(style.packing == Packing.BYTES_12, 0x7, 0xF)
    )


def packed_pieces(params: TmaParams, style, pieces: Value) -> Value:
    """Return the number of pieces of global memory that fill ``pieces`` pieces of shared memory.

    The two numbers differ only for packed types: 8 pieces of shared memory hold 4 pieces of global
    memory (BYTES_8) or 6 (BYTES_12). ``pieces`` is then a multiple of 8, because a row of a packed
    type is outside the tensor as a whole.
    """
    if not params.sub_byte:
        return pieces
    half, quarter = pieces >> 1, pieces >> 2
    is_12_bytes = style.packing == Packing.BYTES_12
    return Mux(style.packing == Packing.NONE, pieces, half + Mux(is_12_bytes, quarter, 0))
