"""Swizzle: the RTL's address bits and halves, against the golden definition."""

import random

import pytest
from amaranth.hdl import Cat, Const, Module

from golden.definition import swizzled
from golden.enums import Swizzle as GoldenSwizzle
from hw.layouts.isa import Swizzle, SwizzleAtom, data_style_layout
from hw.lib.swizzle import flipped_halves, swizzle_bits
from hw.params import PRESETS, TmaParams
from tests.hw.simulate import evaluate

ATOMS_16B = {
    GoldenSwizzle.NONE: (Swizzle.NONE, SwizzleAtom.ATOM_16B),
    GoldenSwizzle.SWIZZLE_32B: (Swizzle.SPAN_32B, SwizzleAtom.ATOM_16B),
    GoldenSwizzle.SWIZZLE_64B: (Swizzle.SPAN_64B, SwizzleAtom.ATOM_16B),
    GoldenSwizzle.SWIZZLE_128B: (Swizzle.SPAN_128B, SwizzleAtom.ATOM_16B),
}
LARGER_ATOMS = {
    GoldenSwizzle.SWIZZLE_128B_ATOM_32B: (Swizzle.SPAN_128B, SwizzleAtom.ATOM_32B),
    GoldenSwizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B: (Swizzle.SPAN_128B, SwizzleAtom.ATOM_32B_FLIP_8B),
    GoldenSwizzle.SWIZZLE_128B_ATOM_64B: (Swizzle.SPAN_128B, SwizzleAtom.ATOM_64B),
}


def rtl(params: TmaParams, kinds: list[GoldenSwizzle], addresses: list[int]) -> list[int]:
    """Address of each byte after the RTL's swizzle."""
    layout = data_style_layout(params)
    modes = ATOMS_16B | LARGER_ATOMS

    def build(m: Module, style, beat):
        bits = swizzle_bits(m, params, style, beat, "bits")
        halves = flipped_halves(params, style, beat, Const(0b10, 2))
        return Cat(bits, halves)

    samples = []
    for kind, address in zip(kinds, addresses, strict=True):
        swizzle, atom = modes[kind]
        style = {"swizzle": swizzle} | ({"atom": atom} if params.swizzle_atoms else {})
        samples.append((style, address // params.line_bytes))
    results = evaluate(build, [layout, params.smem_beat_bits], samples)
    return [
        address ^ (result & 7) << 4 ^ (8 if result >> 3 == 0b01 else 0)
        for address, result in zip(addresses, results, strict=True)
    ]


@pytest.mark.parametrize("line_bytes", [16, 32, 64, 128])
@pytest.mark.parametrize("preset", ["default", "sm_107a"])
def test_every_swizzle(preset, line_bytes):
    rng = random.Random(line_bytes)
    if preset == "default":
        params, modes = TmaParams(line_bytes=line_bytes), ATOMS_16B
    elif line_bytes == 128:
        params, modes = PRESETS[preset], ATOMS_16B | LARGER_ATOMS
    else:
        params, modes = TmaParams(line_bytes=line_bytes, swizzle_atoms=True), LARGER_ATOMS
    kinds = [kind for kind in modes for _ in range(100)]
    addresses = [rng.randrange(params.smem_bytes) for _ in kinds]
    wanted = [swizzled(address, kind) for address, kind in zip(addresses, kinds, strict=True)]
    assert rtl(params, kinds, addresses) == wanted
