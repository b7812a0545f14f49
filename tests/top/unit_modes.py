"""Modes of loads and stores that a unit of any parameters has."""

from hw.params import TmaParams
from tests.top.random_loads import BLACKWELL, BY_PARAMETER, HOPPER
from tests.top.random_stores import HOPPER as HOPPER_STORES
from tests.top.random_stores import LATER as LATER_STORES

NEEDS = {
    "tile": (),
    "interleaved": (),
    "im2col_interleaved": ("im2col",),
    "im2col_w_128": ("im2col_w",),
    "override": ("override", "im2col"),
    "report_mechanism": ("report_mechanism", "im2col", "bulk"),
}
"""Parameters that modes of loads need, where it is not the one of the same name."""

STORES_NEED = {
    "im2col": "im2col",
    "im2col_w": "im2col_w",
    "reduce": "reductions",
    "bulk": "bulk",
    "scatter4": "gather4",
    "b6p2x16": "sub_byte",
    "sm_100a_store_tile": "swizzle_atoms",
    "override": "override",
}
"""Parameters that modes of stores need, by a part of their name."""

OVERRIDES_NEED = "im2col", "bulk", "reductions"
"""Further parameters for stores with an override: they are stores of any kind."""


def load_modes(params: TmaParams) -> str:
    """Return the modes of loads that the unit has."""
    modes = [*HOPPER, *BLACKWELL, *BY_PARAMETER, "bulk"]
    return ",".join(
        mode for mode in modes if all(getattr(params, name) for name in NEEDS.get(mode, (mode,)))
    )


def store_modes(params: TmaParams) -> str:
    """Return the modes of stores that the unit has."""

    def has(mode: str) -> bool:
        needed = [name for part, name in STORES_NEED.items() if part in mode]
        needed += OVERRIDES_NEED if "override" in mode else ()
        return all(getattr(params, name) for name in needed)

    return ",".join(mode for mode in (*HOPPER_STORES, *LATER_STORES) if has(mode))
