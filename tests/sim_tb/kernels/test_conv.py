"""Convolution: equal to NumPy for ragged sizes, strides, padding, dilations and rings."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from sim_tb.kernels.conv import GREATEST_INPUT, Conv
from sim_tb.sm.device import Device
from sim_tb.sm.launch import run
from sim_tb.sm.record import Setting

CASES = [
    {"n": 1, "h": 1, "w": 1, "c": 1, "filters": 1, "r": 1, "s": 1, "padding": 0, "stages": 1},
    {"n": 2, "h": 9, "w": 11, "c": 72, "filters": 36, "padding": 1, "stages": 2},
    {"n": 3, "h": 13, "w": 10, "c": 16, "filters": 20, "stride": 2, "stages": 3},
    {"n": 2, "h": 12, "w": 15, "c": 8, "filters": 65, "dilation": 3, "padding": 0, "stages": 1},
    {"n": 1, "h": 10, "w": 20, "c": 3, "filters": 5, "r": 2, "s": 5, "padding": 3},
    {"n": 2, "h": 17, "w": 18, "c": 24, "filters": 8, "stride": 3, "padding": 2, "dilation": 2},
    {"n": 2, "h": 8, "w": 8, "c": 64, "filters": 64, "r": 1, "s": 1, "padding": 2, "stride": 2},
]


def name(case):
    return " ".join(f"{option}={value}" for option, value in case.items())


@pytest.fixture(scope="module")
def records():
    """Records of all cases, from one simulation."""
    jobs = [(Conv(**case), Setting()) for case in CASES]
    return dict(zip(map(name, CASES), run(jobs), strict=True))


@pytest.mark.simulators
@pytest.mark.parametrize("case", CASES, ids=name)
def test_equals_numpy(records, case):
    kernel, record = Conv(**case), records[name(case)]
    assert not record.error
    assert not record.wrong, record.check
    pixels, filters = kernel.n * kernel.p * kernel.q, kernel.filters
    assert record.check == f"Y equals NumPy's, bit for bit: {pixels * filters} elements"
    # Loads bring whole tiles, including elements outside of the tensors. Stores end where Y does.
    tiles = -(-pixels // 128) * -(-filters // 64)
    steps = tiles * kernel.r * kernel.s * -(-kernel.c // 64)
    assert record.total("load_bytes") == steps * (128 + 64) * 128
    assert record.total("fma") == steps * 128 * 64 * 64
    assert record.total("store_bytes") == pixels * -(-filters // 4) * 16
    assert record.total("bank_conflicts") == 0


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"h": 5, "w": 9, "padding": 0}, (3, 7)),
        ({"h": 5, "w": 9}, (5, 9)),
        ({"h": 5, "w": 9, "stride": 2}, (3, 5)),
        ({"h": 6, "w": 9, "padding": 0, "stride": 2, "dilation": 2}, (1, 3)),
        ({"h": 5, "w": 9, "r": 1, "s": 7}, (7, 5)),
    ],
)
def test_shape_of_the_output(options, shape):
    assert (Conv(**options).p, Conv(**options).q) == shape


def test_inputs_are_exact_in_the_greatest_sum():
    """Float32 has all integers up to the greatest sum that the limits of the options allow."""
    most = {item.name: item.metadata["most"] for item in fields(Conv) if item.metadata}
    greatest = most["c"] * most["r"] * most["s"] * GREATEST_INPUT**2
    assert np.float32(greatest - 1) != np.float32(greatest)
    kernel = Conv(n=1, h=40, w=40)
    kernel.host(Device(SimpleNamespace(place=lambda *_: None, place_map=id)))
    assert {int(values.min()) for values in (kernel.x, kernel.f)} == {-GREATEST_INPUT}
    assert {int(values.max()) for values in (kernel.x, kernel.f)} == {GREATEST_INPUT}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"h": 2, "padding": 0},
            "h = 2: the filter covers 3 pixels, but with padding there are only 2",
        ),
        (
            {"w": 5, "dilation": 4},
            "w = 5: the filter covers 9 pixels, but with padding there are only 7",
        ),
        (
            {"h": 300, "w": 300, "dilation": 65, "padding": 1},
            r"dilation = 65: the upper corner, padding - \(r - 1\) \* dilation, is -129, below "
            "-128: must be at most 64",
        ),
        ({"stride": 9}, "stride = 9: must be from 1 to 8"),
        ({"padding": 128}, "padding = 128: must be from 0 to 127"),
        ({"stages": 12}, "shared memory: .* would end at byte .*: must be at most 23"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        list(run([(Conv(**options), Setting())]))
