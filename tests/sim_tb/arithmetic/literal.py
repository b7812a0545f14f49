"""A literal definition of one sum of the tensor cores, in fractions, one value at a time."""

from fractions import Fraction
from math import frexp, trunc

LEAST = -126
"""Exponent of subnormal numbers of bfloat16 and float32."""


def exponent(value):
    """Return floor(log2) of the magnitude of a bfloat16 or float32 that is not zero."""
    return max(frexp(value)[1] - 1, LEAST)


def toward_zero(value, unit):
    """Return the nearest multiple of 2^unit that is not greater in magnitude."""
    return trunc(value / Fraction(2) ** unit) * Fraction(2) ** unit


def sum_of(a, b, start):
    """Return float32 ``start`` + the products of two rows of bfloat16, 16 of them at once."""
    total = float(start)
    for first in range(0, len(a), 16):
        pairs = [(float(x), float(y)) for x, y in zip(a, b, strict=True)][first : first + 16]
        terms = [
            (exponent(x) + exponent(y), Fraction(x) * Fraction(y)) for x, y in pairs if x and y
        ]
        if total:
            terms.append((exponent(total), Fraction(total)))
        greatest = max((size for size, _ in terms), default=0)
        exact = sum((toward_zero(term, greatest - 25) for _, term in terms), Fraction(0))
        size = max(frexp(float(exact))[1] - 1, LEAST)
        total = float(toward_zero(exact, size - 23))
    return total
