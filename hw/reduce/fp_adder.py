"""Floating-point adder: adds IEEE 754 numbers, one addition per clock."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

LATENCY = 3
"""Clocks from the operands to the sum."""

GUARD_BITS = 3
"""Bits below the last fraction bit during the addition: guard bit, round bit, sticky bit."""


_STATE = data.StructLayout({"sign": 1, "subtract": 1, "flush": 1, "infinite": 1, "nan": 1})
"""Flags of an addition that pass through all stages."""


def shift_right(m: Module, value: Value, amount: Value, name: str) -> Value:
    """Return ``value >> amount``; bit 0 is sticky: the OR of itself and the bits shifted out."""
    near = min(len(amount), (len(value) - 1).bit_length())
    for k in range(near):
        shifted = Signal(len(value), name=f"{name}_{k}")
        by = 1 << k
        m.d.comb += shifted.eq(Mux(amount[k], Cat(value[: by + 1].any(), value[by + 1 :]), value))
        value = shifted
    return Mux(amount[near:].any(), value.any(), value)


class _Compared(NamedTuple):
    """Registers after the first clock."""

    state: data.View
    exponent: Signal
    """Exponent of the larger operand."""
    distance: Signal
    """Difference of the exponents."""
    significand: Signal
    """Significand of the larger operand."""
    addend: Signal
    """Significand of the smaller operand."""


class _Added(NamedTuple):
    """Registers after the second clock."""

    state: data.View
    exponent: Signal
    total: Signal
    """Sum of the significands, with a carry bit above and guard bits below."""
    min_position: Signal
    """One-hot: position at which a leading one has the smallest exponent."""


class _Normalised(NamedTuple):
    """Registers after the third clock."""

    state: data.View
    number: data.View
    guard: Signal
    """The bit below the fraction."""
    sticky: Signal
    """OR of the bits below ``guard``."""


class FpAdder(wiring.Component):
    """Adds two floating-point numbers of one format; rounds the exact sum to nearest even.

    Subnormal numbers are supported. With ``flush``, subnormal operands and results are replaced by
    zero of the same sign. An exact zero is positive, unless both operands are negative zeros. An
    overflow gives infinity. If an operand is NaN, or infinities are subtracted, ``is_nan`` is 1 and
    ``total`` is undefined: the user chooses the encoding of NaN.

    Latency: ``LATENCY`` clocks; the rounding is combinational after the last register. Throughput:
    one addition per clock. Back-pressure: none. Errors: none. The registers have no reset.

    Parameters
    ----------
    exponent_bits : int
        Bits of the exponent, at least 2.
    fraction_bits : int
        Bits of the fraction, at least 1. The formats are binary16 (5, 10), bfloat16 (8, 7),
        binary32 (8, 23), binary64 (11, 52).

    Members
    -------
    a, b : In(1 + exponent_bits + fraction_bits)
        Operands.
    flush : In(1)
        Flush subnormal numbers to zero.
    total : Out(1 + exponent_bits + fraction_bits)
        Rounded sum.
    is_nan : Out(1)
        The sum is NaN.
    """

    def __init__(self, exponent_bits: int, fraction_bits: int) -> None:
        self.exponent_bits = exponent_bits
        self.fraction_bits = fraction_bits
        self._number = data.StructLayout(
            {"fraction": fraction_bits, "exponent": exponent_bits, "sign": 1}
        )
        width = 1 + exponent_bits + fraction_bits
        super().__init__(
            {
                "a": In(width),
                "b": In(width),
                "flush": In(1),
                "total": Out(width),
                "is_nan": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        operands = self._flush(m, "a"), self._flush(m, "b")
        compared = self._compare(m, *operands)
        added = self._align_and_add(m, compared)
        normalised = self._normalise(m, added)
        self._round(m, normalised)
        return m

    def _flush(self, m: Module, name: str) -> data.View:
        """Return an operand; with ``flush``, a subnormal one becomes zero."""
        word = getattr(self, name)
        operand = Signal(self._number, name=f"operand_{name}")
        is_subnormal = word[self.fraction_bits : -1] == 0
        zero = Cat(Const(0, len(word) - 1), word[-1])
        m.d.comb += operand.eq(Mux(self.flush & is_subnormal, zero, word))
        return operand

    def _compare(self, m: Module, a: data.View, b: data.View) -> _Compared:
        """First clock: find the operand of larger magnitude, and the distance of the exponents.

        Infinities and NaN have the largest magnitudes.
        """
        swap = Signal()
        large = Signal(self._number)
        small = Signal(self._number)
        invalid = Signal()
        m.d.comb += [
            swap.eq(a.as_value()[:-1] < b.as_value()[:-1]),
            large.eq(Mux(swap, b, a)),
            small.eq(Mux(swap, a, b)),
            invalid.eq((large.sign != small.sign) & small.exponent.all()),
        ]
        # A subnormal number has the exponent of the smallest normal numbers, and no leading one.
        large_is_normal = large.exponent.any()
        small_is_normal = small.exponent.any()
        large_exponent = large.exponent | ~large_is_normal
        small_exponent = small.exponent | ~small_is_normal

        compared = Signal(_STATE, reset_less=True)
        exponent = Signal(self.exponent_bits, reset_less=True)
        distance = Signal(self.exponent_bits, reset_less=True)
        significand = Signal(self.fraction_bits + 1, reset_less=True)
        addend = Signal(self.fraction_bits + 1, reset_less=True)
        m.d.sync += [
            compared.sign.eq(large.sign),
            compared.subtract.eq(large.sign != small.sign),
            compared.flush.eq(self.flush),
            compared.infinite.eq(large.exponent.all()),
            compared.nan.eq(large.exponent.all() & (large.fraction.any() | invalid)),
            exponent.eq(large_exponent),
            distance.eq(large_exponent - small_exponent),
            significand.eq(Cat(large.fraction, large_is_normal)),
            addend.eq(Cat(small.fraction, small_is_normal)),
        ]
        return _Compared(compared, exponent, distance, significand, addend)

    def _align_and_add(self, m: Module, compared: _Compared) -> _Added:
        """Second clock: align the smaller operand and add it."""
        width = self.fraction_bits + 2 + GUARD_BITS
        subtract = compared.state.subtract
        aligned = Signal(width)
        added = Signal(_STATE, reset_less=True)
        added_exponent = Signal(self.exponent_bits, reset_less=True)
        raw_sum = Signal(width, reset_less=True)
        min_position = Signal(width, reset_less=True)
        addend = Cat(Const(0, GUARD_BITS), compared.addend)
        m.d.comb += aligned.eq(shift_right(m, addend, compared.distance, "aligned"))
        m.d.sync += [
            added.eq(compared.state),
            added_exponent.eq(compared.exponent),
            raw_sum.eq(
                Cat(Const(0, GUARD_BITS), compared.significand)
                + (aligned ^ subtract.replicate(width))
                + subtract
            ),
            min_position.eq(Const(1 << (width - 1), width) >> compared.exponent),
        ]
        return _Added(added, added_exponent, raw_sum, min_position)

    def _normalise(self, m: Module, added: _Added) -> _Normalised:
        """Third clock: shift the leading one to the carry bit, but not beyond ``min_position``."""
        width = len(added.total)
        ones = added.total | added.min_position
        shifted = added.total
        shift_bits = []
        for k in reversed(range((width - 1).bit_length())):
            by = 1 << k
            shifts = ~ones[-by:].any()
            next_ones = Signal(width, name=f"ones_{k}")
            next_shifted = Signal(width, name=f"shifted_{k}")
            m.d.comb += [
                next_ones.eq(Mux(shifts, ones << by, ones)),
                next_shifted.eq(Mux(shifts, shifted << by, shifted)),
            ]
            ones, shifted = next_ones, next_shifted
            shift_bits.insert(0, shifts)
        is_normal = shifted[-1]
        number = Signal(self._number, reset_less=True)
        guard = Signal(reset_less=True)
        sticky = Signal(reset_less=True)
        normalised = Signal(_STATE, reset_less=True)
        exponent = added.exponent + 1 - Cat(shift_bits)
        m.d.sync += [
            normalised.eq(added.state),
            number.sign.eq(added.state.sign & ~(added.state.subtract & (added.total == 0))),
            number.exponent.eq(Mux(is_normal, exponent, 0)),
            number.fraction.eq(shifted[GUARD_BITS + 1 : -1]),
            guard.eq(shifted[GUARD_BITS]),
            sticky.eq(shifted[:GUARD_BITS].any()),
        ]
        return _Normalised(normalised, number, guard, sticky)

    def _round(self, m: Module, normalised: _Normalised) -> None:
        """Round. A carry out of the fraction increments the exponent."""
        state, number = normalised.state, normalised.number
        magnitude = Signal(self.exponent_bits + self.fraction_bits)
        infinity = ((1 << self.exponent_bits) - 1) << self.fraction_bits
        round_up = normalised.guard & (normalised.sticky | number.fraction[0])
        with m.If(state.infinite | number.exponent.all()):
            m.d.comb += magnitude.eq(infinity)
        with m.Elif(~state.flush | number.exponent.any()):
            m.d.comb += magnitude.eq(Cat(number.fraction, number.exponent) + round_up)
        m.d.comb += [
            self.total.eq(Cat(magnitude, number.sign)),
            self.is_nan.eq(state.nan),
        ]
