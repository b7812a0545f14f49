"""Floating-point adder: IEEE 754, round to nearest even, one addition a clock."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

LATENCY = 3
"""Clocks from the operands to the sum."""

GUARD_BITS = 3
"""Bits kept below the smaller operand's last: half, quarter, and whether there is anything less."""


def shift_right(m: Module, value: Value, amount: Value, name: str) -> Value:
    """Return ``value >> amount``, bit 0 set where a one was there or was shifted out beyond it."""
    near = min(len(amount), (len(value) - 1).bit_length())
    for k in range(near):
        shifted = Signal(len(value), name=f"{name}_{k}")
        by = 1 << k
        m.d.comb += shifted.eq(Mux(amount[k], Cat(value[: by + 1].any(), value[by + 1 :]), value))
        value = shifted
    return Mux(amount[near:].any(), value.any(), value)


class FpAdder(wiring.Component):
    """Adds two numbers of the format; the exact sum is rounded once, to nearest even.

    Subnormals are numbers like others. With ``flush``, subnormal operands and results count as zero
    of the same sign. An exact zero is positive, unless both operands are negative zeros. Too large
    a sum is infinite. Where an operand is no number, or infinities are subtracted, ``is_nan`` says
    so and ``total`` means nothing: the encodings of NaN are left to the user.

    Latency: ``LATENCY`` clocks, the last of them not registered: rounding is combinational behind
    the last register. Throughput: one addition a clock. Nothing waits and nothing is reset.

    Parameters
    ----------
    exponent_bits : int
        At least 2.
    fraction_bits : int
        At least 1. binary16 is (5, 10), bfloat16 (8, 7), binary32 (8, 23), binary64 (11, 52).

    Members
    -------
    a, b : In(1 + exponent_bits + fraction_bits)
    flush : In(1)
    total : Out(1 + exponent_bits + fraction_bits)
    is_nan : Out(1)
    """

    def __init__(self, exponent_bits: int, fraction_bits: int) -> None:
        self.exponent_bits = exponent_bits
        self.fraction_bits = fraction_bits
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
        exponent_bits, fraction_bits = self.exponent_bits, self.fraction_bits
        number = data.StructLayout(
            {"fraction": fraction_bits, "exponent": exponent_bits, "sign": 1}
        )
        state = data.StructLayout(  # what travels with an addition
            {"sign": 1, "subtract": 1, "flush": 1, "infinite": 1, "nan": 1}
        )

        # First clock: the operand of the larger magnitude, and how far apart they are. Infinities
        # and NaN have the largest magnitudes.
        operands = []
        for name in "a", "b":
            word = getattr(self, name)
            operand = Signal(number, name=f"operand_{name}")
            tiny = word[fraction_bits:-1] == 0
            m.d.comb += operand.eq(
                Mux(self.flush & tiny, Cat(Const(0, len(word) - 1), word[-1]), word)
            )
            operands.append(operand)
        a, b = operands
        swap = Signal()
        large = Signal(number)
        small = Signal(number)
        invalid = Signal()
        m.d.comb += [
            swap.eq(a.as_value()[:-1] < b.as_value()[:-1]),
            large.eq(Mux(swap, b, a)),
            small.eq(Mux(swap, a, b)),
            invalid.eq((large.sign != small.sign) & small.exponent.all()),
        ]
        # A subnormal has the exponent of the smallest normal numbers, and no leading one.
        large_is_normal = large.exponent.any()
        small_is_normal = small.exponent.any()
        large_exponent = large.exponent | ~large_is_normal
        small_exponent = small.exponent | ~small_is_normal

        compared = Signal(state, reset_less=True)
        exponent = Signal(exponent_bits, reset_less=True)
        distance = Signal(exponent_bits, reset_less=True)
        significand = Signal(fraction_bits + 1, reset_less=True)
        addend = Signal(fraction_bits + 1, reset_less=True)
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

        # Second clock: align and add. ``last`` marks the place where a leading one has the smallest
        # exponent, so that no sum is normalised beyond it.
        width = fraction_bits + 2 + GUARD_BITS  # a carry above
        aligned = Signal(width)
        added = Signal(state, reset_less=True)
        added_exponent = Signal(exponent_bits, reset_less=True)
        raw = Signal(width, reset_less=True)
        last = Signal(width, reset_less=True)
        m.d.comb += aligned.eq(
            shift_right(m, Cat(Const(0, GUARD_BITS), addend), distance, "aligned")
        )
        m.d.sync += [
            added.eq(compared),
            added_exponent.eq(exponent),
            raw.eq(
                Cat(Const(0, GUARD_BITS), significand)
                + (aligned ^ compared.subtract.replicate(width))
                + compared.subtract
            ),
            last.eq(Const(1 << (width - 1), width) >> exponent),
        ]

        # Third clock: normalise, the leading one to the place of the carry.
        sought = raw | last
        shifted = raw
        places = []
        for k in reversed(range((width - 1).bit_length())):
            by = 1 << k
            empty = ~sought[-by:].any()
            next_sought = Signal(width, name=f"sought_{k}")
            next_shifted = Signal(width, name=f"shifted_{k}")
            m.d.comb += [
                next_sought.eq(Mux(empty, sought << by, sought)),
                next_shifted.eq(Mux(empty, shifted << by, shifted)),
            ]
            sought, shifted = next_sought, next_shifted
            places.insert(0, empty)
        leads = shifted[-1]
        normal = Signal(number, reset_less=True)
        half = Signal(reset_less=True)
        rest = Signal(reset_less=True)
        normalised = Signal(state, reset_less=True)
        m.d.sync += [
            normalised.eq(added),
            normal.sign.eq(added.sign & ~(added.subtract & (raw == 0))),
            normal.exponent.eq(Mux(leads, added_exponent + 1 - Cat(places), 0)),
            normal.fraction.eq(shifted[GUARD_BITS + 1 : -1]),
            half.eq(shifted[GUARD_BITS]),
            rest.eq(shifted[:GUARD_BITS].any()),
        ]

        # Round. A carry out of the fraction goes to the exponent, where it belongs.
        magnitude = Signal(exponent_bits + fraction_bits)
        infinity = ((1 << exponent_bits) - 1) << fraction_bits
        with m.If(normalised.infinite | normal.exponent.all()):
            m.d.comb += magnitude.eq(infinity)
        with m.Elif(~normalised.flush | normal.exponent.any()):
            m.d.comb += magnitude.eq(
                Cat(normal.fraction, normal.exponent) + (half & (rest | normal.fraction[0]))
            )
        m.d.comb += [
            self.total.eq(Cat(magnitude, normal.sign)),
            self.is_nan.eq(normalised.nan),
        ]
        return m
