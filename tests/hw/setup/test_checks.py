"""Checks: the first violated check of a list is reported, in the order of the error codes."""

import random
from itertools import product

import pytest
from amaranth.hdl import Cat, Module, Signal, Value

from golden.errors import ErrorCode as GoldenCode
from hw.layouts.isa import ErrorCode
from hw.setup.checks import REPORT_ORDER, Check, report_first
from tests.hw.simulate import evaluate

CODES = [ErrorCode.MAP_FIELD, ErrorCode.SMEM_ALIGN, ErrorCode.COORD_NEG, ErrorCode.MASK]


def reported(m: Module, *violated: Signal) -> Value:
    """Return the code, the number and the value that are reported for the checks ``CODES``."""
    code, number, value = Signal(5), Signal(3), Signal(8)
    checks = [
        Check(bits, check_code, 10 + index)
        for index, (bits, check_code) in enumerate(zip(violated, CODES, strict=True))
    ]

    def report(index: int, check: Check) -> None:
        m.d.comb += [code.eq(check.code), number.eq(index + 1), value.eq(check.value)]

    report_first(m, checks, report)
    return Cat(code, number, value)


@pytest.mark.parametrize("width", [1, 3])
def test_the_first_violated_check_is_reported(width: int) -> None:
    """A check is violated if any bit of its value is set."""
    rng = random.Random(width)
    samples = [
        tuple(rng.randint(1, (1 << width) - 1) if bit else 0 for bit in bits)
        for bits in product((0, 1), repeat=len(CODES))
    ]
    expected = []
    for sample in samples:
        index = next((index for index, bits in enumerate(sample) if bits), None)
        if index is None:
            expected.append(0)
        else:
            expected.append(CODES[index].value | (index + 1) << 5 | (10 + index) << 8)
    assert evaluate(reported, [width] * len(CODES), samples) == expected


def test_the_order_of_report() -> None:
    """A map that cannot be read is first; the others follow in the order of their codes."""
    assert REPORT_ORDER[0] == ErrorCode.GMEM_FAULT
    others = [code.value for code in REPORT_ORDER[1:]]
    assert others == sorted(others)
    requests = {code.value for code in GoldenCode if 0 < code < GoldenCode.WRONG_TAG}
    assert {code.value for code in REPORT_ORDER} == requests
