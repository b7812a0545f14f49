"""Features of the RTL: the architecture of the golden model for any parameters of a unit."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache

from golden.arch import Arch, Feature
from hw.params import PRESETS

FEATURES = {
    "gather4": (Feature.GATHER4, Feature.GATHER4_CTA, Feature.SCATTER4),
    "scatter4_negative": (Feature.SCATTER4_NEGATIVE,),
    "im2col_w": (
        *(Feature.IM2COL_W, Feature.IM2COL_W_CTA, Feature.IM2COL_W_128),
        Feature.IM2COL_NO_OFFS_W,
    ),
    "swizzle_atoms": (Feature.SWIZZLE_ATOMS, Feature.SWIZZLE_ATOMS_CLUSTER),
    "swizzle_96b": (Feature.SWIZZLE_96B,),
    "sub_byte": (Feature.SUB_BYTE, Feature.SUB_BYTE_CLUSTER),
    "b6p2x16_64": (Feature.B6P2X16_STORE, Feature.B6P2X16_START),
    "cp_mask": (Feature.CP_MASK,),
    "override": (Feature.OVERRIDE,),
    "multicast_32b": (Feature.MULTICAST_32B,),
    "cta_group_2": (Feature.CTA_GROUP,),
    "mbarrier_v1": (Feature.MBARRIER_V1,),
    "report_mechanism": (Feature.REPORT,),
}
"""Features that each parameter of the unit adds."""


def unit_arch(parameters: Mapping[str, int]) -> Arch:
    """Return what a unit with these parameters has; Hopper's architecture if it has no more."""
    return _arch(tuple(name for name in FEATURES if parameters[name]))


@cache
def _arch(names: tuple[str, ...]) -> Arch:
    if not names:
        return Arch.SM_90A
    added = {feature for name in names for feature in FEATURES[name]}
    return Arch("the unit", Arch.SM_90A.features | added)


LATER_UNIT = unit_arch(asdict(PRESETS["sm_107a"]))
"""Features of the preset ``sm_107a``: they are those of no single architecture."""
