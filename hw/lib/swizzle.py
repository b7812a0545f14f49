"""Swizzle of shared-memory addresses: which bits of a piece's address are inverted."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from hw.layouts.isa import Swizzle, SwizzleAtom
from hw.params import TmaParams


def line_number(beat: Value, lane_bits: int) -> Value:
    """Return the number, modulo 8, of the 128-byte line of shared memory that ``beat`` is in."""
    return beat[3 - lane_bits :][:3]


def swizzle_bits(m: Module, params: TmaParams, style, beat: Value, name: str) -> Signal:
    """Return the 3 bits to XOR with the piece bits (6:4) of a shared-memory address in ``beat``.

    ``style`` is of ``data_style_layout``. The result is the signal ``name``.
    """
    line = line_number(beat, params.lane_bits)
    bits = Signal(3, name=name)
    with m.Switch(style.swizzle):
        with m.Case(Swizzle.SPAN_32B):
            m.d.comb += bits.eq(line & 1)
        with m.Case(Swizzle.SPAN_64B):
            m.d.comb += bits.eq(line & 3)
        with m.Case(Swizzle.SPAN_128B):
            m.d.comb += bits.eq(line)
            if params.swizzle_atoms:
                with m.Switch(style.atom):
                    with m.Case(SwizzleAtom.ATOM_32B, SwizzleAtom.ATOM_32B_FLIP_8B):
                        m.d.comb += bits.eq((line & 3) << 1)
                    with m.Case(SwizzleAtom.ATOM_64B):
                        m.d.comb += bits.eq((line & 1) << 2)
    return bits


def flipped_halves(params: TmaParams, style, beat: Value, piece: Value) -> Value:
    """Return ``piece`` with its two halves exchanged where ``ATOM_32B_FLIP_8B`` exchanges them.

    ``piece`` may also be a mask of the words of a piece.
    """
    if not params.swizzle_atoms:
        return piece
    flips = (style.atom == SwizzleAtom.ATOM_32B_FLIP_8B) & line_number(beat, params.lane_bits)[0]
    half = len(piece) // 2
    return Mux(flips, Cat(piece[half:], piece[:half]), piece)
