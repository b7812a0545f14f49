"""The vectorised model does what the literal definition says, in every mode."""

import zlib

import numpy as np
import pytest

from golden import ArrayMemory, definition, execute
from golden.definition import combined
from golden.enums import DataType, ReductionOp
from golden.reduction import BULK_PAIRS, TENSOR_PAIRS, operation
from tests.golden.random_requests import MODES, random_case

SPECIAL_HALVES = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFFFF)


def same(mode: str, seed: int, count: int) -> None:
    """Run ``count`` random requests on both."""
    rng = np.random.default_rng([seed, zlib.crc32(mode.encode())])
    effects = 0
    for n in range(count):
        case = random_case(rng, mode)
        runs = []
        for model in (execute, definition.execute):
            gmem, smem = case.memories(seed=seed + n)
            more = {"arch": case.arch} if model is execute else {}
            completions = model(case.request, gmem, smem, cta=case.cta, **more)
            written = gmem.bytes if isinstance(gmem, ArrayMemory) else np.zeros(0, np.uint8)
            runs.append((completions, written, np.stack(smem)))
        (fast, slow) = runs
        about = f"seed {seed}, case {n}: {case}"
        assert fast[0] == slow[0], about
        for what, got, expected in zip(("gmem", "smem"), fast[1:], slow[1:], strict=True):
            differ = np.argwhere(got != expected)
            assert not differ.size, f"{what} differs first at {differ[0]}: {about}"
        before = case.memories(seed=seed + n)
        same_gmem = not fast[1].size or np.array_equal(fast[1], before[0].bytes)
        effects += not (same_gmem and np.array_equal(fast[2], np.stack(before[1])))
    if "prefetch" not in mode:
        assert effects > count // 3, f"only {effects} of {count} had an effect"


@pytest.mark.parametrize("mode", MODES)
def test_every_mode(mode):
    same(mode, seed=1, count=20)


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_at_length(mode, seed):
    same(mode, seed=seed, count=150)


@pytest.mark.parametrize(("kind", "op"), sorted(TENSOR_PAIRS | BULK_PAIRS))
def test_arithmetic(kind, op):
    """All pairs of special numbers and some thousand random ones."""
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
    """All f16 numbers beside a few of every size."""
    m = np.repeat(np.arange(1 << 16, dtype=np.uint16), 4)
    s = np.random.default_rng(1).integers(0, 1 << 16, m.size, dtype=np.uint16)
    got = operation(ReductionOp.ADD, DataType.FLOAT16)(m, s)
    step = 37
    for a, b, c in zip(m[::step].tolist(), s[::step].tolist(), got[::step].tolist(), strict=True):
        assert c == combined(ReductionOp.ADD, DataType.FLOAT16, a, b)
