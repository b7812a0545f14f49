"""Approximate functions, held to recordings of an H200 in every bit."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from sim_tb.arithmetic import approximations

RECORDED = Path(__file__).parents[2] / "silicon" / "approximations.npz"

NAMES = (
    *("ex2_ftz", "lg2_ftz", "rcp_ftz", "rsqrt_ftz", "sqrt_ftz"),
    *("tanh", "sin", "cos", "ex2", "lg2"),
)

OCTAVES = {
    ("ex2_ftz", 1.0): "cce5df10202dbfcde720ca547d147edb3e2a406a5fed189323f419177a72a1a5",
    ("ex2_ftz", -1.0): "503d2238b9f4c00e8686f80a703dd13d365554f2887c7279a7b438f642aceab3",
    ("rcp_ftz", 1.0): "c408381446132e07fa5581e930dc33fb790bea7ec4276ef3621e322df2492a55",
    ("rsqrt_ftz", 1.0): "c733e1437c713cd7e87f4c7e52e9aab270b2107f274cda35309dc8586ad6ec22",
    ("rsqrt_ftz", 2.0): "fd7b866f4085a9e88ef6abdd9ba2726eb26708fb17d173619dac4405acb06bc0",
    ("lg2_ftz", 1.0): "7fd9be9a924e40a0ee18ba20e7f5158135112947597c8dd86131d3d4d8f9dbfa",
    ("lg2_ftz", 0.5): "883e42d8f751983063b4c93a966fba006f08c1e111d90fe20e0fee3dd67ddd22",
}
"""SHA-256 of the recorded results of all mantissas, by function and start of the octave."""


@pytest.mark.parametrize("name", NAMES)
def test_function_equals_recorded_results(name):
    with np.load(RECORDED) as arrays:
        inputs, results = arrays[f"{name}_in"], arrays[f"{name}_out"]
    with np.errstate(all="ignore"):
        got = getattr(approximations, name)(inputs.view(np.float32)).view(np.uint32)
    different = np.flatnonzero(got != results)
    assert not different.size, [(hex(inputs[i]), hex(got[i])) for i in different[:4]]
    assert inputs.size == 2048


@pytest.mark.regress
@pytest.mark.parametrize(("name", "start"), OCTAVES)
def test_function_equals_recorded_octave(name, start):
    first = np.float32(start).view(np.uint32)
    inputs = (np.arange(1 << 23, dtype=np.uint32) + first).view(np.float32)
    results = getattr(approximations, name)(inputs)
    assert hashlib.sha256(results.tobytes()).hexdigest() == OCTAVES[name, start]


def bits(*values):
    return np.array(values, np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("name", "inputs", "results"),
    [
        ("ex2", bits(0x7F800000, 0xFF800000, 0x7FC00000, 0, 0xC3160000), "7f800000 0 7fffffff 3f8"),
        ("lg2", bits(0, 0x80000000, 0xBF800000, 0x7F800000, 1), "ff800000 ff800000 7fffffff 7f8"),
        ("rcp", bits(0, 0x80000000, 0x7F800000, 0xFF800000), "7f800000 ff800000 0 80000000"),
        ("rsqrt", bits(0, 0x80000000, 0xBF800000, 0x7F800000), "7f800000 ff800000 7fffffff 0"),
        ("sqrt", bits(0, 0x80000000, 0xBF800000, 0x7F800000), "0 80000000 7fffffff 7f800000"),
        ("tanh", bits(0, 0x80000000, 0xFF800000, 0x41100000), "0 80000000 bf800000 3f800000"),
        ("sin", bits(0, 0x80000000, 0xFF800000, 0x7F800000), "0 80000000 7fffffff 7fffffff"),
        ("cos", bits(0, 0x80000000, 0xFF800000, 1), "3f800000 3f800000 7fffffff 3f800000"),
    ],
)
def test_special_inputs(name, inputs, results):
    with np.errstate(all="ignore"):
        got = getattr(approximations, name)(inputs).view(np.uint32)
    for value, text in zip(got, results.split(), strict=False):
        assert f"{value:x}".startswith(text), (name, [f"{each:x}" for each in got])
