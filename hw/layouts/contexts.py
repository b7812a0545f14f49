"""Payloads of the contexts of an SM: what each of them may access."""

from functools import cache

from amaranth.hdl import Value
from amaranth.lib import data

from hw.params import TmaParams

RANGE_BYTES = 128
"""Granule of an address range: no line and no tensor map has bytes of two granules."""


GRANULE_BITS = (RANGE_BYTES - 1).bit_length()
"""Width of an address in a granule."""


@cache
def address_range_layout(params: TmaParams) -> data.StructLayout:
    """Global memory that a context may access.

    Members
    -------
    first, last : addresses of the first and the last granule of ``RANGE_BYTES``, divided by it; no
        granule if ``first`` is above ``last``
    """
    width = params.address_bits - GRANULE_BITS
    return data.StructLayout({"first": width, "last": width})


def granule_of_line(params: TmaParams, line: Value) -> Value:
    """Return the granule of a line: its address divided by ``RANGE_BYTES``."""
    return line[(RANGE_BYTES // params.line_bytes - 1).bit_length() :]


def granule_of_map(params: TmaParams, address: Value) -> Value:
    """Return the granule of a tensor map: its address, without the bits that the unit ignores,
    divided by ``RANGE_BYTES``.
    """
    return address[GRANULE_BITS : params.address_bits]


def is_in_range(allowed: data.View, granule: Value) -> Value:
    """Return 1 if a context may access a granule; see `address_range_layout`."""
    return (granule >= allowed.first) & (granule <= allowed.last)
