"""Map decoder: decodes words w0 to w15 of a tensor map, and checks them."""

from functools import cache

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import Fill, L2Promotion, Packing, Swizzle, SwizzleAtom, map_style_layout
from hw.params import DIMS, PIECE_BYTES, TmaParams

ITEM_SIZE_LOG2 = (0, 1, 2, 2, 3, 3, 1, 2, 2, 3, 1)
"""log2 of the element size in bytes, by tensor-map format, 0 to 10."""

FLOAT_FORMATS = range(6, 11)
"""Floating-point formats, which may be filled with NaN."""

TF32_FORMATS = (7, 8)
"""Formats that may be rounded to tf32."""

NIBBLES, PACKED_NIBBLES, PACKED_SIXES = 11, 12, 13
"""Formats of 4 and 6 bits; the packed ones have 16 elements in each piece of shared memory."""

PACKED_ELEMENTS = 128
"""Elements in a row of a packed type; coordinates in dimension 0 are multiples of it.

With ``b6p2x16_64``, half of it is enough for stores of 6-bit elements.
"""

SPANS = ((Swizzle.SPAN_32B, 2), (Swizzle.SPAN_64B, 4), (Swizzle.SPAN_128B, 8))
"""Row pitch in shared memory, in pieces, by swizzle."""

PIECES_96B = 6
"""Row pitch in shared memory with the 96-byte swizzle, in pieces."""

ROW_BITS = 8
"""Width of a count of pieces in a row: 256 elements of 8 bytes are 128 pieces."""


class MapFormat(data.Struct):
    """Fields of word w2 of a tensor map."""

    im2col: 1
    version: 3
    rank_less_one: 3
    format: 4
    interleave: 2
    swizzle: Swizzle
    fill: Fill
    tf32: 1
    l2_promotion: L2Promotion
    atom: SwizzleAtom
    allocation: 1
    wide: 1
    reserved: 9


@cache
def element_layout(params: TmaParams) -> data.StructLayout:
    """Size of an element.

    Members
    -------
    log2 : log2 of the bytes of an element; 0 for elements of less than a byte
    is_nibble, is_six : an element has 4 bits, 6 bits; present with ``sub_byte``, as is the next
    is_packed : 16 elements are in each piece of shared memory, and the rest of it is unused
    """
    flags = {"is_nibble": 1, "is_six": 1, "is_packed": 1} if params.sub_byte else {}
    return data.StructLayout({"log2": 2, **flags})


def bytes_of(params: TmaParams, element, elements) -> Value:
    """Return the bytes of ``elements`` elements in global memory, rounded down."""
    whole_bytes = elements << element.log2
    if not params.sub_byte:
        return whole_bytes
    sub_byte = Mux(element.is_six, (elements * 3) >> 2, elements >> 1)
    return Mux(element.is_six | element.is_nibble, sub_byte, whole_bytes)


def last_byte_of(params: TmaParams, element, elements_less_one) -> Value:
    """Return the offset of the last byte of ``elements_less_one + 1`` elements in global memory.

    The number of elements must be a legal extent of dimension 0.
    """
    ones = Mux(element.log2[1], 3, 0) | Mux(element.log2 == 1, 1, 0) | Mux(element.log2 == 3, 4, 0)
    whole_bytes = (elements_less_one << element.log2) | ones
    if not params.sub_byte:
        return whole_bytes
    sub_byte = Mux(element.is_six, (elements_less_one * 3) >> 2, elements_less_one >> 1)
    return Mux(element.is_six | element.is_nibble, sub_byte, whole_bytes)


@cache
def decoded_map_layout(params: TmaParams) -> data.StructLayout:
    """A decoded tensor map.

    Members
    -------
    refused : a field has a value that the unit does not support (error MAP_FIELD)
    load_only, store_only : the map is legal for loads only, for stores only; present if the unit
        supports such maps
    corners : corners of the im2col bounding box, W first; 0 for dimensions that the tensor does not
        have; present with ``im2col``
    im2col : the map is for im2col modes
    wide : the map is for ``im2col::w`` modes; present with ``im2col_w``
    rank_less_one : rank less one, 0 to 4
    interleaved : the map is interleaved: a row is a slice of ``row_pieces`` pieces
    swizzled : the map has a swizzle
    flips : the swizzle exchanges halves of pieces; present with ``swizzle_atoms``
    is_96b : the swizzle is the one for rows of 96 bytes; present with ``swizzle_96b``
    element : element size
    l2_promotion : see ``MemoryAttributes``
    style : format of each piece in shared memory
    row_pieces : pieces of global memory in a row
    row_pitch : pieces of shared memory from a row to the next
    row_mask : as in ``walk_layout``, for a box at a multiple of 384 bytes
    """
    corner = data.StructLayout({"lower": signed(16), "upper": signed(16)})
    return data.StructLayout(
        {
            "refused": 1,
            **({"load_only": 1} if params.swizzle_atoms or params.sub_byte else {}),
            **({"store_only": 1} if params.sub_byte else {}),
            **({"corners": data.ArrayLayout(corner, DIMS - 2)} if params.im2col else {}),
            "im2col": 1,
            **({"wide": 1} if params.im2col_w else {}),
            "rank_less_one": 3,
            "interleaved": 1,
            "swizzled": 1,
            **({"flips": 1} if params.swizzle_atoms else {}),
            **({"is_96b": 1} if params.swizzle_96b else {}),
            "element": element_layout(params),
            "l2_promotion": L2Promotion,
            "style": map_style_layout(params),
            "row_pieces": ROW_BITS,
            "row_pitch": ROW_BITS,
            "row_mask": params.row_mask_bits,
        }
    )


def row_mask(last_piece: Value, row_pitch: int, bits: int) -> Value:
    """Return a mask of ``bits`` pieces: which pieces from the start of a row on belong to rows.

    ``last_piece`` is the number of the last piece of a row.
    """
    return Cat((piece % row_pitch) <= last_piece for piece in range(bits))


class MapDecoder(wiring.Component):
    """Decodes a tensor map, and finds out whether the unit supports it.

    Latency: none; the block is combinational. Errors: ``o.refused``, and for one direction
    ``o.load_only`` and ``o.store_only``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    words : In(data.ArrayLayout(32, 16))
        Words w0 to w15 of the tensor map.
    o : Out(decoded_map_layout(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {"words": In(data.ArrayLayout(32, 16)), "o": Out(decoded_map_layout(params))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        words, o = self.words, self.o
        w2 = data.View(MapFormat, words[2])
        element = Signal(element_layout(p))
        interleaved = Signal()
        m.d.comb += [
            interleaved.eq(w2.interleave != 0),
            o.element.eq(element),
            o.im2col.eq(w2.im2col),
            o.rank_less_one.eq(w2.rank_less_one),
            o.interleaved.eq(interleaved),
            o.l2_promotion.eq(w2.l2_promotion),
            o.style.fill.eq(w2.fill),
        ]
        bad_type = self._decode_type(m, w2, interleaved, element)
        bad_row = self._decode_row(m, w2, interleaved, element)
        if p.im2col:
            self._decode_corners(m, w2)

        # The base address and the strides in use must be multiples of 32 bytes in some maps.
        has_stride = [w2.rank_less_one > i for i in range(DIMS - 1)]
        odd_strides = Cat(words[3 + i][0] & has_stride[i] for i in range(DIMS - 1))
        odd_multiples = words[0][4] | odd_strides.any()
        needs_multiples = w2.interleave[1]
        if p.sub_byte:
            m.d.comb += o.store_only.eq(self._is_store_only(w2, element, odd_multiples))
            is_packed = element.is_packed
            if p.b6p2x16_64:
                is_packed &= ~element.is_six
                m.d.comb += o.style.short_rows.eq(words[13][24:] != PACKED_ELEMENTS - 1)
            needs_multiples |= is_packed
        illegal_wide = Const(0, 1)
        if p.im2col_w:
            m.d.comb += o.wide.eq(w2.wide)
            illegal_wide = w2.wide & ~w2.im2col
        m.d.comb += o.refused.eq(
            bad_type
            | bad_row
            | (w2.interleave == 3)
            | (needs_multiples & odd_multiples)
            | (w2.rank_less_one >= DIMS)
            | ((w2.im2col | interleaved) & (w2.rank_less_one < 2))
            | illegal_wide
            | words[0][:4].any()
        )
        return m

    def _decode_corners(self, m: Module, w2) -> None:
        """Decode the corners of the bounding box: 16, 8 or 5 bits each, by their number."""
        halves = self.words[14][:16], self.words[14][16:]
        bits = Mux(w2.wide, 2, w2.rank_less_one) if self.params.im2col_w else w2.rank_less_one
        with m.Switch(bits):
            for rank_less_one, width in ((2, 16), (3, 8), (4, 5)):
                with m.Case(rank_less_one):
                    for j in range(rank_less_one - 1):
                        for name, half in zip(("lower", "upper"), halves, strict=True):
                            field = half.word_select(j, width).as_signed()
                            m.d.comb += self.o.corners[j][name].eq(field)

    def _are_rows_of(self, elements: int) -> Value:
        """Return whether rows have ``elements`` elements, a power of two, and extents multiples."""
        bits = elements.bit_length() - 1
        return self.words[8][:bits].all() & (self.words[13][24:] == elements - 1)

    def _is_store_only(self, w2, element, odd_multiples: Value) -> Value:
        """Return whether a map of 6-bit elements, if it is legal, is so for stores only."""
        is_store_only = w2.atom == SwizzleAtom.ATOM_64B
        if self.params.b6p2x16_64:
            has_short_unit = odd_multiples | ~self._are_rows_of(PACKED_ELEMENTS)
            is_store_only |= (w2.swizzle == Swizzle.SPAN_64B) | has_short_unit
        return element.is_six & is_store_only

    def _decode_type(self, m: Module, w2, interleaved, element) -> Value:
        """Decode element size, rounding and packing; return whether they are refused."""
        p, words, o = self.params, self.words, self.o
        is_known = Signal()
        is_float = Signal()
        bad_extent = Signal()
        with m.Switch(w2.format):
            for code, log2 in enumerate(ITEM_SIZE_LOG2):
                with m.Case(code):
                    m.d.comb += [
                        is_known.eq(1),
                        is_float.eq(code in FLOAT_FORMATS),
                        element.log2.eq(log2),
                        o.style.round_tf32.eq(w2.tf32 if code in TF32_FORMATS else 0),
                    ]
            if p.sub_byte:
                bad_nibbles = bad_sixes = ~self._are_rows_of(PACKED_ELEMENTS)
                if p.b6p2x16_64:
                    half = PACKED_ELEMENTS // 2
                    is_whole = words[13][24:] == PACKED_ELEMENTS - 1
                    bad_sixes = ~self._are_rows_of(half) & ~(is_whole & words[8][:6].all())
                with m.Case(NIBBLES):
                    m.d.comb += [
                        is_known.eq(~interleaved),
                        element.is_nibble.eq(1),
                        bad_extent.eq(~words[8][0]),
                    ]
                for code, is_size, packing, is_bad in (
                    (PACKED_NIBBLES, element.is_nibble, Packing.BYTES_8, bad_nibbles),
                    (PACKED_SIXES, element.is_six, Packing.BYTES_12, bad_sixes),
                ):
                    with m.Case(code):
                        m.d.comb += [
                            is_known.eq(~interleaved),
                            element.is_packed.eq(1),
                            is_size.eq(1),
                            o.style.packing.eq(packing),
                            bad_extent.eq(is_bad),
                        ]
        return ~is_known | bad_extent | ((w2.fill == Fill.NAN) & ~is_float)

    def _decode_row(self, m: Module, w2, interleaved, element) -> Value:
        """Decode the row in both memories; return whether its swizzle or its length is refused."""
        p, o = self.params, self.o
        box_less_one = self.words[13][24:]
        elements = box_less_one + 1
        row_bytes = Signal(12)  # in shared memory
        row_pieces = Signal(ROW_BITS)  # in global memory
        # Checks and masks use the last byte of the row, which needs no sum.
        last_byte = Signal(11)  # in shared memory
        last_byte_read = last_byte_of(p, element, box_less_one)  # in global memory
        last_piece = last_byte_read[4:]
        has_atoms = p.swizzle_atoms or p.swizzle_96b or p.sub_byte
        bad_swizzle = Signal() if has_atoms else Const(0, 1)
        too_wide = Signal()
        m.d.comb += [
            row_bytes.eq(bytes_of(p, element, elements)),
            row_pieces.eq(bytes_of(p, element, elements) >> 4),
            last_byte.eq(last_byte_read),
            o.row_pieces.eq(row_pieces),
            o.row_pitch.eq(row_bytes >> 4),
            o.row_mask.eq(~0),
            o.style.swizzle.eq(w2.swizzle),
            o.swizzled.eq(w2.swizzle != Swizzle.NONE),
        ]
        if has_atoms:
            m.d.comb += bad_swizzle.eq(w2.atom != SwizzleAtom.ATOM_16B)
        with m.Switch(w2.swizzle):
            for swizzle, pieces in SPANS:
                with m.Case(swizzle):
                    m.d.comb += [
                        o.row_pitch.eq(pieces),
                        o.row_mask.eq(row_mask(last_piece, pieces, p.row_mask_bits)),
                        too_wide.eq(last_byte >= pieces * PIECE_BYTES),
                    ]
        flips = Const(0, 1)
        if p.swizzle_atoms:
            flips = Signal()
            m.d.comb += [o.style.atom.eq(w2.atom), o.flips.eq(flips)]
            with m.If(w2.swizzle == Swizzle.SPAN_128B):
                m.d.comb += [
                    bad_swizzle.eq(0),
                    flips.eq(w2.atom == SwizzleAtom.ATOM_32B_FLIP_8B),
                ]
        if p.swizzle_96b:
            with m.If(self._decode_96b(m, w2, last_piece)):
                m.d.comb += [
                    bad_swizzle.eq(interleaved),
                    too_wide.eq(last_byte >= PIECES_96B * PIECE_BYTES),
                ]
        with m.If(interleaved):
            slice_pieces = Mux(w2.interleave[1], 2, 1)
            m.d.comb += [
                o.row_pieces.eq(slice_pieces),
                o.row_pitch.eq(slice_pieces),
                o.row_mask.eq(~0),
                too_wide.eq(0),
            ]
        refused = bad_swizzle | too_wide
        bad_length = ~last_byte[:4].all()
        packed_for_loads = element.is_packed & ~element.is_six if p.sub_byte else Const(0, 1)
        if p.sub_byte:
            with m.If(element.is_packed):  # a row has a byte for each element
                m.d.comb += [
                    row_bytes.eq(elements),
                    last_byte.eq(box_less_one),
                    o.row_mask.eq(~0),
                ]
            legal_swizzle = (w2.swizzle == Swizzle.SPAN_128B) & ~(flips & element.is_six)
            no_swizzle = (w2.swizzle == Swizzle.NONE) & (w2.atom == SwizzleAtom.ATOM_16B)
            if p.b6p2x16_64:
                legal_swizzle |= (w2.swizzle == Swizzle.SPAN_64B) & element.is_six
            refused |= element.is_packed & ~legal_swizzle & ~no_swizzle
            bad_length |= element.is_nibble & ~element.is_packed & elements[:5].any()
        if p.swizzle_atoms or p.sub_byte:
            m.d.comb += o.load_only.eq(packed_for_loads | flips)
        return refused | bad_length

    def _decode_96b(self, m: Module, w2, last_piece: Value) -> Value:
        """Decode the 32-byte swizzle with rows of 96 bytes; return whether the map has it."""
        o = self.o
        is_96b = (w2.swizzle == Swizzle.NONE) & (w2.atom == SwizzleAtom.ATOM_32B)
        m.d.comb += o.is_96b.eq(is_96b)
        with m.If(is_96b):
            m.d.comb += [
                o.style.swizzle.eq(Swizzle.SPAN_32B),
                o.swizzled.eq(1),
                o.row_pitch.eq(PIECES_96B),
                o.row_mask.eq(row_mask(last_piece, PIECES_96B, self.params.row_mask_bits)),
            ]
        return is_96b


def is_misaligned(params: TmaParams, decoded, coord, store: Value) -> Value:
    """Return whether ``coord``, in elements, is illegal as the start of a box in dimension 0.

    The start must be a multiple of 16 bytes, and of 128 elements of a packed type; a box of an
    interleaved map may start anywhere. ``store`` counts with ``b6p2x16_64`` only.
    """
    element = decoded.element
    misaligned = (coord << element.log2)[:4].any()
    if params.sub_byte:
        is_odd_half = coord[6]
        if params.b6p2x16_64:
            is_odd_half &= ~(element.is_six & store)
        sub_byte = coord[:5].any() | (element.is_packed & (coord[5] | is_odd_half))
        misaligned = Mux(element.is_nibble | element.is_six, sub_byte, misaligned)
    return ~decoded.interleaved & misaligned
