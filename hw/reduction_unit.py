"""Reductions where memory is: what it holds, combined with what a request brings."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts import SECTOR_BYTES, reduction_request_layout
from hw.params import PIECE_BYTES, TmaParams

SECTOR_BITS = SECTOR_BYTES * 8


class SectorMemory(wiring.Signature):
    """A port for sectors, always ready; addresses are byte addresses divided by 32.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    read_en : Out(1)
    read_address : Out(address_bits - 5)
    read_data : In(256)
        The sector, in the clock after ``read_en``, without a write of the same clock as
        ``read_en``.
    write_en : Out(1)
    write_address : Out(address_bits - 5)
    write_pieces : Out(2)
        Which of the sector's two pieces of 16 bytes are written.
    write_data : Out(256)
    """

    def __init__(self, params: TmaParams) -> None:
        address_bits = params.address_bits - (SECTOR_BYTES - 1).bit_length()
        super().__init__(
            {
                "read_en": Out(1),
                "read_address": Out(address_bits),
                "read_data": In(SECTOR_BITS),
                "write_en": Out(1),
                "write_address": Out(address_bits),
                "write_pieces": Out(SECTOR_BYTES // PIECE_BYTES),
                "write_data": Out(SECTOR_BITS),
            }
        )


class ReductionUnit(wiring.Component):
    """Reads sectors, combines them with what requests bring, and writes them.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream.Signature(reduction_request_layout(params)))
    done : Out(stream.Signature(params.tag_bits))
        The tag of a request whose effect is in memory, in order.
    memory : Out(SectorMemory(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "request": In(stream.Signature(reduction_request_layout(params))),
                "done": Out(stream.Signature(params.tag_bits)),
                "memory": Out(SectorMemory(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        return Module()
