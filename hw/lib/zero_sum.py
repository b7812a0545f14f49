"""Zero sums: find out whether a sum is 0 before it is known."""

from amaranth.hdl import Value


def sum_is_zero(a: Value, b: Value) -> Value:
    """Return 1 if ``a + b`` is 0 modulo ``2**len(a)``, without a carry chain."""
    b = b[: len(a)]
    return (a ^ b) == ((a | b) << 1)[: len(a)]
