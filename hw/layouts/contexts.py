"""Payloads of the contexts of an SM: what each of them may access."""

from functools import cache

from amaranth.lib import data

from hw.params import TmaParams

RANGE_BYTES = 128
"""Granule of an address range: no line and no tensor map has bytes of two granules."""


@cache
def address_range_layout(params: TmaParams) -> data.StructLayout:
    """Global memory that a context may access.

    Members
    -------
    first, last : addresses of the first and the last granule of ``RANGE_BYTES``, divided by it; no
        granule if ``first`` is above ``last``
    """
    width = params.address_bits - (RANGE_BYTES - 1).bit_length()
    return data.StructLayout({"first": width, "last": width})
