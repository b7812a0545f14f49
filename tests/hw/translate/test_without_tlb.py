"""A unit without a TLB: nothing of it is in the Verilog."""

from dataclasses import replace

from hw.flow.verilog import convert
from hw.top import Tma
from tests.top.units import TINY


def test_a_unit_without_tlb_has_no_part_of_it() -> None:
    verilog = convert(Tma(TINY), "tma")
    assert verilog == convert(Tma(replace(TINY, tlb_page_bits=21)), "tma")
    with_tlb = convert(Tma(replace(TINY, tlb_entries=2)), "tma")
    for name in "walk_request", "walk_response", "tlb_invalidate", "translation", "page":
        assert name not in verilog
        assert name in with_tlb
