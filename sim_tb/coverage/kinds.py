"""Kinds of what is simulated: samples with a bin in each dimension, and their record."""

import itertools
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from golden.arch import EVERY_FEATURE, Arch
from golden.request import Request

SAMPLES = "COVERAGE_SAMPLES"
"""Environment variable: directory in which testbenches record samples."""

ABSENT = "-"
"""Text of a dimension that a sample does not have."""


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of what is simulated: one bin of each dimension; None for one that it lacks.

    Each subclass is a cross, with a field for each dimension.
    """

    noun: ClassVar[str]
    """Word for samples, in the plural."""

    dimensions: ClassVar[dict[str, Any]]
    """Fields, and the bins of each: an enumeration, or some members of one."""

    @abstractmethod
    def impossible(self, arch: Arch = EVERY_FEATURE, /) -> str:
        """Return why nothing is of this kind in a unit of ``arch``; "" if something is."""

    @property
    def bins(self) -> tuple[StrEnum | None, ...]:
        """Fields in the order of ``dimensions``."""
        return tuple(getattr(self, name) for name in self.dimensions)

    def __str__(self) -> str:
        return " ".join(item or ABSENT for item in self.bins)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the kind that ``str`` wrote as ``text``."""
        words = zip(cls.dimensions.values(), text.split(), strict=True)
        return cls(*(None if word == ABSENT else _bin(bins, word) for bins, word in words))

    @classmethod
    def candidates(cls) -> Iterator[Self]:
        """Yield all combinations of bins that may be possible."""
        return (cls(*bins) for bins in itertools.product(*cls.dimensions.values()))

    @classmethod
    @cache
    def every(cls, arch: Arch) -> tuple[Self, ...]:
        """Return all kinds that are possible in a unit of ``arch``."""
        return tuple(kind for kind in cls.candidates() if not kind.impossible(arch))


def _bin(bins: Iterable[StrEnum], word: str) -> StrEnum:
    return next(bin_ for bin_ in bins if bin_ == word)


class RequestKind(Kind):
    """The kind of a request."""

    @classmethod
    @abstractmethod
    def of(cls, request: Request, arch: Arch = EVERY_FEATURE) -> Self | None:
        """Return the kind of a request that a unit of ``arch`` accepts; None if in no kind."""


AnyKind = TypeVar("AnyKind", bound=Kind)


def is_recording() -> bool:
    """Return whether the environment names a directory for samples."""
    return SAMPLES in os.environ


def write(kind: Kind) -> None:
    """Add a sample to those of the simulation."""
    with Path(os.environ[SAMPLES], f"{kind.noun}.{os.getpid()}.txt").open("a") as file:
        print(kind, file=file)


def recorded(cross: type[AnyKind], directory: Path) -> Counter[AnyKind]:
    """Return the samples of a cross that simulations recorded in a directory, and how often."""
    lines: Counter[str] = Counter()
    for file in directory.glob(f"{cross.noun}.*.txt"):
        lines.update(file.read_text().splitlines())
    return Counter({cross.parse(line): count for line, count in lines.items()})
