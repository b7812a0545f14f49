"""Target architectures, and the features of PTX that some of them lack.

Names, versions and targets are those of the PTX ISA 9.4. A unit may also have features that are
those of no architecture; `Arch` then stands for the unit.
"""

import enum
from collections.abc import Iterable
from typing import ClassVar

_LATER = ("SM_100A", "SM_103A", "SM_107A", "SM_120A")
_FAMILY_100 = ("SM_100A", "SM_103A", "SM_107A")
_SM_103 = ("SM_103A", "SM_107A")
_SM_107 = ("SM_107A",)


class Feature(enum.Enum):
    """A qualifier or a rule of PTX that at least one architecture lacks.

    Attributes
    ----------
    ptx : str
        Name in PTX.
    since : str
        PTX version that introduced the feature.
    targets : tuple of str
        Names of the architectures that have the feature.
    """

    def __init__(self, ptx: str, since: str, targets: tuple[str, ...]) -> None:
        self.ptx = ptx
        self.since = since
        self.targets = targets

    IM2COL_W_CTA = (".im2col::w to .shared::cta", "8.6", _LATER)
    GATHER4_CTA = (".tile::gather4 to .shared::cta", "8.6", _LATER)
    IM2COL_W = (".im2col::w to .shared::cluster or L2", "8.6", _FAMILY_100)
    GATHER4 = (".tile::gather4 to .shared::cluster or L2", "8.6", _FAMILY_100)
    SCATTER4 = (".tile::scatter4", "8.6", _FAMILY_100)
    SCATTER4_NEGATIVE = ("a negative coordinate of .tile::scatter4", "9.4", _SM_107)
    IM2COL_W_128 = (".im2col::w::128", "8.6", _FAMILY_100)
    IM2COL_NO_OFFS_W = (".im2col_no_offs::w", "9.4", _SM_107)
    CTA_GROUP = (".cta_group::2", "8.6", _FAMILY_100)
    CP_MASK = (".cp_mask", "8.6", _LATER)
    ORDERING = (".weak or .relaxed of a bulk copy", "9.3", ("SM_90A", *_FAMILY_100))
    MULTICAST_32B = (".multicast::cluster::32b", "9.4", _SM_107)
    OVERRIDE = (".override::global_address", "9.4", _SM_107)
    REPORT = (".mbarrier::report", "9.4", _SM_107)
    EVICTION_PRIORITY = (".L2::evict_last of a prefetch", "9.4", _SM_107)
    APPLYPRIORITY = ("applypriority.async.bulk", "9.4", _SM_107)
    SUB_BYTE = ("a type of 4 or 6 bits", "8.7", _LATER)
    SUB_BYTE_CLUSTER = ("a type of 4 or 6 bits to .shared::cluster", "8.7", _FAMILY_100)
    B6P2X16_STORE = (".b6p2x16 with rows of 64 elements", "8.8", _SM_103)
    B6P2X16_START = ("a start of .b6p2x16 at a multiple of 64", "8.8", ("SM_103A",))
    SWIZZLE_ATOMS = (".swizzle_atomicity", "8.6", _LATER)
    SWIZZLE_ATOMS_CLUSTER = (".swizzle_atomicity to .shared::cluster", "8.6", _FAMILY_100)
    SWIZZLE_96B = ("the 96-byte swizzle", "8.8", _SM_103)
    MBARRIER_V1 = (".layout::v1", "9.3", _LATER)
    """PTX assembles ``.layout::v1`` for ``sm_90``, too. Hopper's words have no place for it: bit 0,
    which marks layout v1 here, is ignored (silicon). That Hopper refuses it is a choice.
    """

    # Each member is one object: no other hash is as fast.
    __hash__ = object.__hash__


_FOR_CLUSTERS = (
    (Feature.GATHER4_CTA, Feature.GATHER4),
    (Feature.IM2COL_W_CTA, Feature.IM2COL_W),
    (Feature.SUB_BYTE, Feature.SUB_BYTE_CLUSTER),
    (Feature.SWIZZLE_ATOMS, Feature.SWIZZLE_ATOMS_CLUSTER),
)
"""Features of loads to ``.shared::cta``, and those of the same loads to ``.shared::cluster``."""


class Arch:
    """Target architecture, which determines the features that maps and requests may use.

    Members are those of ``Arch.members()``, also by name: ``Arch.named("sm_100a")``. A further
    object stands for a unit with any set of features, such as one of the project's RTL.

    Parameters
    ----------
    name : str
        Name in messages.
    features : iterable of Feature
        Features of the architecture.

    Attributes
    ----------
    name : str
    features : frozenset of Feature
    is_same_for_clusters : bool
        True if loads to ``.shared::cluster`` have all features of those to ``.shared::cta``.

    Examples
    --------
    >>> Arch.SM_120A.has(Feature.GATHER4), Arch.SM_120A.has(Feature.GATHER4_CTA)
    (False, True)
    >>> Arch.SM_120A.lacks(Feature.CTA_GROUP)
    '.cta_group::2 needs SM_100A, SM_103A or SM_107A, not SM_120A'
    """

    SM_90A: ClassVar["Arch"]
    SM_100A: ClassVar["Arch"]
    SM_103A: ClassVar["Arch"]
    SM_107A: ClassVar["Arch"]
    SM_120A: ClassVar["Arch"]

    def __init__(self, name: str, features: Iterable[Feature] = ()) -> None:
        self.name = name
        self.features = frozenset(features)
        self.is_same_for_clusters = all(self.has(a) == self.has(b) for a, b in _FOR_CLUSTERS)

    def __repr__(self) -> str:
        return f"Arch.{self.name}"

    @classmethod
    def members(cls) -> tuple["Arch", ...]:
        """Return the architectures of PTX, the oldest first."""
        return cls.SM_90A, cls.SM_100A, cls.SM_103A, cls.SM_107A, cls.SM_120A

    @classmethod
    def named(cls, name: str) -> "Arch":
        """Return the architecture with a name, in upper or lower case.

        Raises
        ------
        ValueError
            If none has it.
        """
        for arch in cls.members():
            if arch.name == name.upper():
                return arch
        raise ValueError(f"{name}: must be {any_of(item.name for item in cls.members())}")

    def has(self, feature: Feature) -> bool:
        """Return whether the architecture has a feature."""
        return feature in self.features

    def lacks(self, feature: Feature) -> str:
        """Return the limit for a message: a feature that the architecture does not have."""
        return f"{feature.ptx} needs {any_of(feature.targets)}, not {self.name}"


def any_of(names: Iterable[str]) -> str:
    """Return ``a, b or c``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


for _name in ("SM_90A", "SM_100A", "SM_103A", "SM_107A", "SM_120A"):
    setattr(Arch, _name, Arch(_name, (item for item in Feature if _name in item.targets)))

EVERY_FEATURE = Arch("any architecture", Feature)
"""A unit that has all features: what it refuses, every architecture refuses."""
