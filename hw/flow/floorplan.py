"""Floorplan: the multipliers of an ECP5 that each block gets.

An LFE5U-85 has its multipliers in three rows. nextpnr spreads those of a unit over all rows, so
that a block may get some that are far from its registers: operands and product then cross this
distance in one clock. Here the multipliers of a block get their places beforehand, side by side,
and its logic is placed around them.
"""

from typing import Any

MULTIPLIER = "MULT18X18D"

ROWS = {"setup_block": 10, "walk_generator": 34}
"""Row of each block with multipliers."""

_SLICES = *range(4, 60, 9), *range(69, 116, 9)
_SITES = (0, 0), (1, 1), (4, 4), (5, 5)
"""Column and number of each multiplier of a slice, from the slice's column."""


def sites(row: int, count: int) -> list[str]:
    """Return the names of up to ``count`` multipliers in the middle of a ``row``, from the left to
    the right.
    """
    names = [
        f"X{column + offset}/Y{row}/{MULTIPLIER[:6]}_{number}"
        for column in _SLICES
        for offset, number in _SITES
    ]
    first = max(0, len(names) - count) // 2
    return names[first : first + count]


def place_multipliers(netlist: dict[str, Any]) -> None:
    """Give the multipliers of a mapped ``netlist`` their places.

    Those of a block stand in the order of their names, which is that of the stages of setup and of
    the walk generator. nextpnr places those for which the row has no place.
    """
    cells = netlist["modules"]["top"]["cells"]
    names = sorted(name for name, cell in cells.items() if cell["type"] == MULTIPLIER)
    for block, row in ROWS.items():
        own = [name for name in names if name.startswith(f"{block}.")]
        for name, site in zip(own, sites(row, len(own)), strict=False):
            cells[name]["attributes"]["BEL"] = site
