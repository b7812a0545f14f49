"""Format of pieces: fill, and the words and pieces of packed types."""

import struct
from dataclasses import replace

import pytest

from hw.layouts.isa import Fill, Packing, data_style_layout
from hw.lib.piece_format import fill_piece, packed_pieces, packed_words
from hw.params import PRESETS
from tests.hw.simulate import evaluate

PARAMS = PRESETS["sm_107a"]
BYTES_OF_16 = {Packing.NONE: 16, Packing.BYTES_8: 8, Packing.BYTES_12: 12}


def test_fill():
    pieces = evaluate(lambda _m, fill: fill_piece(fill), [Fill], [(Fill.ZERO,), (Fill.NAN,)])
    assert pieces[0] == 0
    assert pieces[1].to_bytes(16, "little") == struct.pack("<8H", *[0x7FF7] * 8)


@pytest.mark.parametrize("packing", Packing)
def test_words_with_elements(packing):
    style = {"packing": packing}
    (mask,) = evaluate(lambda _m, s: packed_words(s), [data_style_layout(PARAMS)], [(style,)])
    assert mask == (1 << BYTES_OF_16[packing] // 4) - 1


@pytest.mark.parametrize("packing", Packing)
def test_pieces_of_global_memory(packing):
    """A row of a packed type is eight pieces of shared memory."""
    step = 1 if packing == Packing.NONE else 8
    samples = [({"packing": packing}, pieces) for pieces in range(0, 256, step)]
    got = evaluate(
        lambda _m, style, pieces: packed_pieces(PARAMS, style, pieces),
        [data_style_layout(PARAMS), 8],
        samples,
    )
    assert got == [pieces * BYTES_OF_16[packing] // 16 for _, pieces in samples]


def test_a_unit_without_packed_types():
    params = replace(PRESETS["default"], sub_byte=False)
    shapes = [data_style_layout(params), 8]
    samples = [({}, pieces) for pieces in range(256)]
    got = evaluate(lambda _m, style, n: packed_pieces(params, style, n), shapes, samples)
    assert got == list(range(256))
