"""Ring: settings and state of a ring of records in memory."""

from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.host import INDEX_BITS, HostFault
from hw.params import TmaParams

SIZE_BITS = (INDEX_BITS).bit_length()
"""Width of the size of a ring."""


class Ring(wiring.Signature):
    """Port of the register file to a ring.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    enabled : Out(1)
        Records may be read or written. When it rises, both indices are 0.
    base : Out(address_bits)
        Address of the record with index 0.
    size : Out(4)
        Records of the ring, as a power of two.
    host_index : Out(15)
        Index of the record that the host writes, or reads, next.
    unit_index : In(15)
        Index of the record that the unit reads, or writes, next.
    busy : In(1)
        An access to the ring is under way.
    fault : In(HostFault)
        An error of the ring.
    """

    def __init__(self, params: TmaParams) -> None:
        super().__init__(
            {
                "enabled": Out(1),
                "base": Out(params.address_bits),
                "size": Out(SIZE_BITS),
                "host_index": Out(INDEX_BITS),
                "unit_index": In(INDEX_BITS),
                "busy": In(1),
                "fault": In(HostFault),
            }
        )


def after(index: Value, ring) -> Value:
    """Return the index behind ``index`` in ``ring``."""
    records = (1 << ring.size)[: INDEX_BITS + 1]
    return ((index + 1) & (records - 1))[:INDEX_BITS]
