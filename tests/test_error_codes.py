"""Error codes of requests: those of the golden model and those of the RTL are the same."""

from amaranth.hdl import Shape

from golden import ErrorCode
from hw.layouts.isa import ErrorCode as RtlErrorCode

REQUEST_CODES = 32
"""Codes below this number are in the unit's error records, which have 5 bits for them."""


def test_names_and_values_are_the_same():
    golden = {code.name: code.value for code in ErrorCode if code < REQUEST_CODES}
    rtl = {code.name: code.value for code in RtlErrorCode}
    assert golden == rtl
    assert len(golden) == 18


def test_an_error_record_has_bits_for_every_code_of_a_request():
    assert 1 << Shape.cast(RtlErrorCode).width == REQUEST_CODES
