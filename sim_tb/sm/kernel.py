"""What a kernel is: host code, shared memory, warps with roles, and the result that NumPy has."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sim_tb.sm.device import Device
from sim_tb.sm.smem import Ring, SmemLayout

if TYPE_CHECKING:
    from sim_tb.sm.sm import Role, Warp


def option(default: Any, text: str, least: int | None = 1, most: int | None = None) -> Any:
    """A field of a kernel that the command line can set; numbers within limits."""
    metadata = {"help": text, "least": least, "most": most}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Check:
    """How a result compares with NumPy's.

    Parameters
    ----------
    name : str
        Of the result.
    elements : int
        How many were compared.
    error : float
        The greatest difference, as a share of the greatest value expected.
    limit : float
        The most that it may be; 0: equal bit for bit.
    wrong : str
        The first element that differs by more; empty if none does.
    """

    name: str
    elements: int
    error: float
    limit: float
    wrong: str = ""

    def __str__(self) -> str:
        if self.wrong:
            return f"WRONG: {self.wrong}"
        if not self.limit:
            return f"{self.name} equals NumPy's, bit for bit: {self.elements} elements"
        return (
            f"{self.name} equals NumPy's: {self.elements} elements, greatest error "
            f"{self.error:.2e} (limit {self.limit:g})"
        )


def equal(name: str, got: NDArray[Any], expected: NDArray[Any], limit: float = 0.0) -> Check:
    """Compare a result.

    Parameters
    ----------
    name : str
        Of the result, for the message.
    got : array
        The result.
    expected : array
        NumPy's, of the same shape.
    limit : float
        The greatest difference allowed, as a share of the greatest value expected; 0: bits must be
        equal.
    """
    if not limit:
        width = f"u{got.dtype.itemsize}"
        here = np.ascontiguousarray(got).view(width)
        there = np.ascontiguousarray(expected.astype(got.dtype)).view(width)
        error, differ = 0.0, np.argwhere(here != there)
    else:
        wide = expected.astype(np.float64)
        scale = float(np.abs(wide).max()) or 1.0
        errors = np.abs(got.astype(np.float64) - wide) / scale
        error, differ = float(errors.max(initial=0)), np.argwhere(~(errors <= limit))
    wrong = ""
    if differ.size:
        where = tuple(int(i) for i in differ[0])
        wrong = (
            f"{len(differ)} of {got.size} elements differ; first {name}{list(where)}: expected "
            f"{expected[where]!r}, got {got[where]!r}"
        )
    return Check(name, got.size, error, limit, wrong)


def check_limits(options: Any) -> None:
    """See that the fields of a dataclass, made by ``option``, are within their limits.

    Raises
    ------
    ValueError
        Naming option, value and limit.
    """
    for item in fields(options):
        value = getattr(options, item.name)
        least, most = item.metadata.get("least"), item.metadata.get("most")
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if (least is not None and value < least) or (most is not None and value > most):
            limit = f"at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"{item.name} = {value}: must be {limit}")


@dataclass
class Kernel(ABC):
    """A kernel of the behavioural SM; its fields are the options of the command line.

    The simulator makes one object of it: ``host`` is called once, then ``smem``, then on each CTA
    the coroutine ``prologue`` and, when all CTAs are through it, those of ``warps`` at once. What
    ``host`` and ``smem`` make are attributes for the coroutines.

    Members
    -------
    ctas : int
        Of its cluster, each on an SM with a unit.
    unit : mapping
        Parameters of ``TmaParams`` that its unit must have.
    flops : int
        Of its products; 0 if it has none.
    """

    name: ClassVar[str]

    seed: int = option(1, "of the random inputs", least=0)

    @property
    def ctas(self) -> int:
        """Of its cluster."""
        return 1

    @property
    def unit(self) -> Mapping[str, Any]:
        """Features of the unit that are not Hopper's."""
        return {}

    @property
    def flops(self) -> int:
        """Two of each multiply-add that the result needs."""
        return 0

    def rng(self, name: str) -> np.random.Generator:
        """A generator of its own for ``name``, from the seed."""
        return np.random.default_rng([self.seed, *name.encode()])

    def validate(self) -> None:
        """See that the options are within their limits.

        Raises
        ------
        ValueError
            Naming option, value and limit.
        """
        check_limits(self)

    @abstractmethod
    def host(self, device: Device) -> None:
        """Allocate tensors, and encode their maps."""

    @abstractmethod
    def smem(self, smem: SmemLayout) -> None:
        """Lay out shared memory."""

    @abstractmethod
    async def prologue(self, warp: "Warp") -> None:
        """What one warp does before the others: it initialises the barriers."""

    @abstractmethod
    def warps(self) -> Mapping[str, "Role"]:
        """A coroutine for each role."""

    @abstractmethod
    def check(self) -> Check:
        """Compare the result with NumPy's."""


async def init_ring(warp: "Warp", ring: Ring, releases: int) -> None:
    """``mbarrier.init`` of a ring: one arrival, and bytes, fill a stage; ``releases`` empty it."""
    for full, empty in zip(ring.full, ring.empty, strict=True):
        await warp.mbarrier_init(full, 1)
        await warp.mbarrier_init(empty, releases)


def specialized(
    producer: "Role", consumer: Callable[[int, "Warp"], Coroutine[Any, Any, None]], consumers: int
) -> Mapping[str, "Role"]:
    """Roles: one producer, and consumers, which know their number."""
    numbered = {f"consumer {i}": partial(consumer, i) for i in range(consumers)}
    return {"producer": producer, **numbered}


KERNELS: dict[str, type[Kernel]] = {}
"""Kernels by name; see ``kernels``."""


def kernel(name: str) -> Callable[[type[Kernel]], type[Kernel]]:
    """Register a class under ``name``."""

    def register(cls: type[Kernel]) -> type[Kernel]:
        cls.name = name
        KERNELS[name] = cls
        return cls

    return register


def kernels() -> Mapping[str, type[Kernel]]:
    """All kernels of ``sim_tb.kernels``, by name."""
    package = import_module("sim_tb.kernels")
    for module in iter_modules(package.__path__):
        import_module(f"sim_tb.kernels.{module.name}")
    return dict(sorted(KERNELS.items()))
