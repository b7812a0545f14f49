"""The vectorised model and the literal definition have the same results, in every mode."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

from golden import ArrayMemory, Plan, Store, TmaError, definition, execute
from golden.definition import combined
from golden.enums import DataType, ReductionOp
from golden.reduction import BULK_PAIRS, TENSOR_PAIRS, operation
from tests.golden.random_requests import (
    GMEM_BYTES,
    MODES,
    im2col_coords,
    random_case,
    reach,
    tile_coords,
)

COORDS = {
    "load_tile": tile_coords,
    "load_tile_interleaved": tile_coords,
    "load_im2col": im2col_coords,
    "load_im2col_interleaved": im2col_coords,
    "store_tile": tile_coords,
    "store_im2col": im2col_coords,
    "sm_100a_load_tile": tile_coords,
    "sm_100a_im2col_w": im2col_coords,
    "sm_100a_im2col_w_128": im2col_coords,
    "sm_100a_im2col_w_store": im2col_coords,
}
SPECIAL_HALVES = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFFFF)


def compare_models(mode: str, seed: int, count: int) -> None:
    """Execute ``count`` random requests on both models, and compare all memories."""
    rng = np.random.default_rng([seed, zlib.crc32(mode.encode())])
    effects = 0
    for n in range(count):
        case = random_case(rng, mode)
        runs = []
        for model in (execute, definition.execute):
            gmem, smem = case.memories(seed=seed + n)
            completions = model(case.request, gmem, smem, cta=case.cta, arch=case.arch)
            written = gmem.bytes if isinstance(gmem, ArrayMemory) else np.zeros(0, np.uint8)
            runs.append((completions, written, np.stack(smem)))
        (fast, slow) = runs
        about = f"seed {seed}, case {n}: {case}"
        assert fast[0] == slow[0], about
        for name, got, expected in zip(("gmem", "smem"), fast[1:], slow[1:], strict=True):
            differ = np.argwhere(got != expected)
            assert not differ.size, f"{name} differs first at {differ[0]}: {about}"
        before = case.memories(seed=seed + n)
        same_gmem = not fast[1].size or np.array_equal(fast[1], before[0].bytes)
        effects += not (same_gmem and np.array_equal(fast[2], np.stack(before[1])))
    if "prefetch" not in mode:
        assert effects > count // 3, f"only {effects} of {count} requests had an effect"


@pytest.mark.parametrize("mode", MODES)
def test_every_mode(mode):
    compare_models(mode, seed=1, count=20)


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_with_many_requests(mode, seed):
    compare_models(mode, seed=seed, count=150)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode in COORDS])
@pytest.mark.parametrize("seed", range(3))
def test_one_plan_serves_many_starts(mode, seed):
    """A plan that has cached other starts has the results of a new plan."""
    rng = np.random.default_rng([seed, zlib.crc32(mode.encode())])
    requests = 0
    for _ in range(8):
        case = random_case(rng, mode)
        request = case.request
        store = isinstance(request, Store)
        options = {"store": store, "arch": case.arch}
        plan = Plan(request.tensor_map, request.mode, **options)
        for _ in range(15):
            coords = COORDS[mode](rng, request.tensor_map, store=store)
            other = replace(request, coords=coords, smem_address=128 * int(rng.integers(0, 8)))
            if store and reach(other) > GMEM_BYTES:
                continue
            runs = []
            for model in (plan, Plan(request.tensor_map, request.mode, **options)):
                gmem, smem = case.memories(seed)
                place = (gmem, smem[0], other.smem_address, coords)
                refused = None
                try:
                    if store:
                        model.store(*place)
                    else:
                        model.load(*place, other.im2col_offsets, other.w_halo, other.w_offset)
                except TmaError as error:
                    refused = str(error)
                runs.append((refused, gmem.bytes if store else smem[0]))
            (cached_error, cached), (new_error, new) = runs
            assert cached_error == new_error, f"seed {seed}: {other}"
            assert np.array_equal(cached, new), f"seed {seed}: {other}"
            requests += 1
    assert requests > 60


@pytest.mark.parametrize(("kind", "op"), sorted(TENSOR_PAIRS | BULK_PAIRS))
def test_arithmetic(kind, op):
    """The arithmetic is the definition's: all pairs of special numbers, and 4000 random pairs."""
    rng = np.random.default_rng([kind, op])
    size = kind.itemsize
    special = [half << (8 * size - 16) for half in SPECIAL_HALVES]
    special += [word + add & (1 << 8 * size) - 1 for word in special for add in (1, -1)]
    if kind.is_float and size > 2:
        exponent = 0x7F80 if size == 4 else 0x7FF0
        special += [sign | exponent << (8 * size - 16) for sign in (0, 1 << (8 * size - 1))]
    pairs = [(a, b) for a in special for b in special]
    words = (
        rng.integers(0, 1 << 8 * size, (2000, 2), dtype=np.uint64, endpoint=False)
        if (size < 8)
        else rng.integers(0, (1 << 64) - 1, (2000, 2), dtype=np.uint64, endpoint=True)
    )
    near = words.copy()
    near[:, 1] = (
        near[:, 0] ^ np.uint64(1 << (8 * size - 1)) ^ rng.integers(0, 64, 2000, dtype=np.uint64)
    )
    m, s = np.concatenate([np.array(pairs, np.uint64), words, near]).astype(f"u{size}").T
    got = operation(op, kind)(np.ascontiguousarray(m), np.ascontiguousarray(s))
    for a, b, c in zip(m.tolist(), s.tolist(), got.tolist(), strict=True):
        expected = combined(op, kind, a, b)
        assert c == expected, f"{op.name} {kind.name} {a:#x} {b:#x}: {c:#x} not {expected:#x}"


def test_every_half_sum_is_rounded_once():
    """Each f16 number is an operand on both sides, in random pairs."""
    m = np.arange(1 << 16, dtype=np.uint16)
    s = np.random.default_rng(1).permutation(m)
    got = operation(ReductionOp.ADD, DataType.FLOAT16)(m, s)
    for a, b, c in zip(m.tolist(), s.tolist(), got.tolist(), strict=True):
        expected = combined(ReductionOp.ADD, DataType.FLOAT16, a, b)
        assert c == expected, f"{a:#x} + {b:#x}: {c:#x} not {expected:#x}"
