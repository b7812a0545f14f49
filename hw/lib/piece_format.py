"""Contents of a piece in shared memory: the fill pattern, and the words of packed types."""

from amaranth.hdl import Const, Mux, Value

from hw.layouts.isa import Fill, Packing
from hw.params import PIECE_BYTES, TmaParams

NAN_HALF = 0x7FF7
"""Value of each 16-bit half of fill where the tensor map asks for NaN."""


def fill_piece(fill) -> Mux:
    """Return 16 bytes of fill."""
    return Mux(fill == Fill.NAN, Const(NAN_HALF, 16).replicate(PIECE_BYTES // 2), 0)


def packed_words(style) -> Value:
    """Return the 4-byte words of a piece that hold elements."""
    return Mux(
        style.packing == Packing.BYTES_8, 0x3, Mux(style.packing == Packing.BYTES_12, 0x7, 0xF)
    )


def packed_pieces(params: TmaParams, style, pieces) -> Value:
    """Return how many pieces of global memory ``pieces`` of shared memory stand for: of a packed
    row, which is outside as a whole, for 4 or 6 of its 8.
    """
    if not params.sub_byte:
        return pieces
    half, quarter = pieces >> 1, pieces >> 2
    of_12 = style.packing == Packing.BYTES_12
    return Mux(style.packing == Packing.NONE, pieces, half + Mux(of_12, quarter, 0))
