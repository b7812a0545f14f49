"""Sums of the tensor cores, held to recordings of an H200."""

import ctypes
import json
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sim_tb.arithmetic import tensor_cores
from sim_tb.arithmetic.tensor_cores import STEP_BYTES, multiply_accumulate
from tests.sim_tb.arithmetic.literal import sum_of

CASES = Path(__file__).parents[2] / "silicon" / "ptx"
BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn
TYPES = {
    "bf16": (BF16, np.float32),
    "f16": (np.float16, np.float32),
    "tf32": (np.float32, np.float32),
    "e4m3": (E4M3, np.float32),
    "e5m2": (ml_dtypes.float8_e5m2, np.float32),
    "f16acc": (np.float16, np.float16),
    "s8": (np.int8, np.int32),
}
TILES, SIDE, STEPS = 3, 64, 4

SOURCE = Path(tensor_cores.__file__).parents[1] / "testbench" / "dpi" / "tensor_cores.cpp"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return the function that simulators have, in a library of its own."""
    library = tmp_path_factory.mktemp("tensor_cores") / "tensor_cores.so"
    flags = ["-std=gnu++20", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *flags, SOURCE, "-o", library], check=True)
    return tensor_cores.multiply_in(ctypes.CDLL(str(library)))


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def way(request, monkeypatch, compiled):
    """Run each test with NumPy, and with the function that simulators have."""
    function = {"numpy": None, "compiled": compiled}[request.param]
    monkeypatch.setattr(tensor_cores, "_compiled", lambda: function)


def recorded(name):
    """Return A, B, C, and D after one step and after four, of each tile."""
    operand, accumulator = (np.dtype(t) for t in TYPES[name])
    allocations = json.loads((CASES / f"a16_wgmma_{name}.json").read_text())["allocations"]
    with np.load(CASES / f"a16_wgmma_{name}.npz") as case:
        ends = np.cumsum([allocation["size"] for allocation in allocations])
        a, b, start, _ = np.split(case["before"], ends[:-1])
        after = case["after"]
    fragments = [
        matrix(x.reshape(TILES, -1, SIDE * SIDE * accumulator.itemsize), accumulator)
        for x in (start, after)
    ]
    a, b = (x.view(operand).reshape(TILES, SIDE, -1) for x in (a, b))
    return a, b, fragments[0][:, 0], fragments[1]


def matrix(registers, dtype):
    """Return matrices of 64 x 64 of accumulators that lie register by register, thread by thread.

    PTX ISA, register fragments of D of wgmma.mma_async.m64nNk16.
    """
    per_register = 4 // dtype.itemsize
    values = registers.view(dtype).reshape(*registers.shape[:2], -1, 128, per_register)
    values = values.swapaxes(-1, -2).reshape(*registers.shape[:2], SIDE // 8, 2, 2, 128)
    n, row, column, thread = np.indices(values.shape[2:])
    rows = 16 * (thread // 32) + thread % 32 // 4 + 8 * row
    result = np.empty((*registers.shape[:2], SIDE, SIDE), dtype)
    result[..., rows, 8 * n + 2 * (thread % 4) + column] = values
    return result


@pytest.mark.parametrize("name", TYPES)
def test_sums_equal_silicon(name):
    a, b, start, after = recorded(name)
    k = STEP_BYTES // a.dtype.itemsize
    bits = f"u{start.dtype.itemsize}"
    for tile in range(TILES):
        for number, steps in enumerate((1, STEPS)):
            part = slice(0, k * steps)
            got = multiply_accumulate(a[tile][:, part], b[tile][:, part], start[tile])
            wrong = np.argwhere(got.view(bits) != after[tile, number].view(bits))
            assert not len(wrong), f"{name}, tile {tile}, {steps} steps: first of {len(wrong)}"


def test_recorded_sums_are_not_the_nearest():
    a, b, start, after = recorded("bf16")
    part = slice(0, 16)
    exact = a[0][:, part].astype(np.float64) @ b[0][:, part].astype(np.float64).T + start[0]
    assert (exact.astype(np.float32) != after[0, 0]).any()


@pytest.mark.parametrize("spread", [0, 8, 40])
def test_sums_follow_the_literal_definition(spread):
    seed = 21
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)

    def values(*shape):
        return rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread + 1, shape))

    a, b, c = values(5, 40).astype(BF16), values(7, 40).astype(BF16), values(5, 7)
    a[:, ::3], c[0] = 0, 0
    c = c.astype(np.float32)
    expected = [[sum_of(x, y, c[i, j]) for j, y in enumerate(b)] for i, x in enumerate(a)]
    np.testing.assert_array_equal(multiply_accumulate(a, b, c), expected)


def test_products_that_lose_no_bit_take_the_same_sum():
    seed = 20
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-15, 16, (64, 32)).astype(BF16) for _ in range(2))
    c = rng.integers(-999, 1000, (64, 64)).astype(np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64).T + c
    np.testing.assert_array_equal(multiply_accumulate(a, b, c), expected)
    # A tiny product in another row makes all sums go term by term.
    a[0, 0], b[0, 0] = 2.0**-60, 2.0**-60
    expected = a.astype(np.float64) @ b.astype(np.float64).T + c
    np.testing.assert_array_equal(multiply_accumulate(a, b, c)[1:, 1:], expected[1:, 1:])


@pytest.mark.parametrize(("exponent", "kept"), [(-25, True), (-26, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_terms_far_below_the_greatest_are_cut(exponent, kept, sign):
    term = sign * 2.0**exponent
    a, b = np.array([[1, -1, term]], BF16), np.ones((1, 3), BF16)
    got = multiply_accumulate(a, b, np.zeros((1, 1), np.float32))
    assert got[0, 0] == (term if kept else 0)
    # The accumulator is a term as others are.
    got = multiply_accumulate(a[:, :2], b[:, :2], np.full((1, 1), term, np.float32))
    assert got[0, 0] == (term if kept else 0)


def test_infinity_and_nan_stay_in_their_row_and_column():
    a, b = np.ones((2, 16), BF16), np.ones((3, 16), BF16)
    a[1, 0], b[2, 0] = np.inf, 0
    got = multiply_accumulate(a, b, np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(got[:, :2], [[16, 16], [np.inf, np.inf]])
    assert got[0, 2] == 15
    assert got.view(np.uint32)[1, 2] == 0x7FFFFFFF


def test_integers_wrap():
    a, b = np.full((1, 32), 127, np.int8), np.full((1, 32), 255, np.uint8)
    c = np.array([[2**31 - 1]], np.int32)
    got = multiply_accumulate(a, b, c)
    assert got[0, 0] == 32 * 127 * 255 - 2**31 - 1


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        (BF16, np.float16, np.float32),
        (BF16, BF16, np.float16),
        (np.int8, np.int8, np.float32),
        (np.int8, E4M3, np.float32),
        (np.float64, np.float64, np.float32),
    ],
)
def test_types_that_are_not_there_are_named(a, b, c):
    with pytest.raises(TypeError, match=f"multiply {np.dtype(a)} by {np.dtype(b)}"):
        multiply_accumulate(np.zeros((1, 8), a), np.zeros((1, 8), b), np.zeros((1, 1), c))


def test_shapes_that_do_not_match_are_named():
    with pytest.raises(ValueError, match=r"b \(3, 4\)"):
        multiply_accumulate(
            np.zeros((2, 8), BF16), np.zeros((3, 4), BF16), np.zeros((2, 3), np.float32)
        )


def test_outside_of_a_simulation_nothing_is_compiled():
    with pytest.raises(AttributeError):
        tensor_cores.multiply_in(ctypes.CDLL(None))
