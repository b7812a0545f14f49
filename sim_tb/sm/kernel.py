"""Base class of kernels: host code, shared memory, roles of warpgroups, and check of the result."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from golden import Arch
from sim_tb.sm.check import Check
from sim_tb.sm.device import Device
from sim_tb.sm.options import check_limits, option
from sim_tb.sm.smem import SmemLayout
from sim_tb.sm.warps import Role, Warpgroup

Block = tuple[int, int, int]
"""Index of a CTA in the grid: x, y and z."""


@dataclass
class Kernel(ABC):
    """A kernel of the behavioural SM. Its fields are the options of the command line.

    The simulation uses one object for all CTAs. It calls ``host`` once, then ``smem`` once. On each
    CTA it runs the coroutine ``prologue``, and when it has returned, all roles at the same time:
    ``__syncthreads`` is between, but no barrier of the cluster. ``host`` and ``smem`` leave what
    the coroutines need in attributes. Before the simulation, ``launch.validate`` calls ``host`` and
    ``smem`` in the same order on a copy of the object, without a unit.

    Members
    -------
    name : str
        Name of the kernel: what the decorator ``kernel`` says, else that of the class.
    options : dict
        Options by name, as titles of reports show them.
    ctas : int
        CTAs of the cluster, each on an SM with a unit of its own.
    grid_dim : (int, int, int)
        CTAs of the grid in x, y and z.
    sms : int
        SMs that are simulated.
    unit_params : mapping
        Parameters of ``TmaParams`` that the unit must have.
    arch : Arch
        Architecture whose access modes and types the kernel may use.
    flops : int
        Floating-point operations of the whole result; 0 if the kernel only moves data.
    """

    name: ClassVar[str]

    seed: int = option(1, "seed of the random inputs", least=0)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    @property
    def given_inputs(self) -> Mapping[str, NDArray[Any]] | None:
        """Arrays by the name of the tensor, which ``with_inputs`` has set; None: it was not called.

        They take the place of the values that ``host`` gives to ``device.tensor``.
        """
        inputs: Mapping[str, NDArray[Any]] | None = vars(self).get("_inputs")
        return inputs

    def with_inputs(self, inputs: Mapping[str, NDArray[Any]]) -> Self:
        """Return a copy of the kernel that computes with these arrays."""
        made = copy(self)
        vars(made)["_inputs"] = dict(inputs)
        return made

    @property
    def options(self) -> dict[str, Any]:
        """Options by name."""
        return asdict(self)

    @property
    def ctas(self) -> int:
        """CTAs of the cluster."""
        return 1

    @property
    def grid_dim(self) -> Block:
        """CTAs of the grid in x, y and z. Clusters lie along x. By default there is one cluster."""
        return self.ctas, 1, 1

    @property
    def sms(self) -> int:
        """SMs that are simulated, each with a unit: by default one for each CTA of a cluster.

        CTAs without a cluster may have more. A cluster starts when SMs are free, so that a larger
        grid runs in waves.
        """
        return self.ctas

    def clusters(self) -> Iterator[list[Block]]:
        """Yield the indices of the CTAs of each cluster, in the order in which they start.

        Raises
        ------
        ValueError
            If grid, cluster and SMs do not fit each other.
        """
        grid, ctas, sms = self.grid_dim, self.ctas, self.sms
        if len(grid) != 3 or min(grid) < 1 or grid[0] % ctas:
            raise ValueError(
                f"grid_dim {grid}: must be three numbers of at least 1, the first a multiple of "
                f"{ctas}, the CTAs of the cluster"
            )
        if sms != ctas and (ctas > 1 or sms < 1):
            raise ValueError(
                f"sms {sms}: must be {ctas}, the CTAs of the cluster; only CTAs without a cluster "
                "may run on more SMs"
            )
        for z, y, x in product(*map(range, (grid[2], grid[1], grid[0] // ctas))):
            yield [(x * ctas + rank, y, z) for rank in range(ctas)]

    @property
    def unit_params(self) -> Mapping[str, Any]:
        """Parameters of the unit for features that Hopper does not have."""
        return {}

    @property
    def arch(self) -> Arch:
        """Architecture whose access modes and types the kernel may use."""
        return Arch.SM_100A if self.unit_params else Arch.SM_90A

    @property
    def flops(self) -> int:
        """Floating-point operations of the result, two per multiply-add."""
        return 0

    def rng(self, name: str) -> np.random.Generator:
        """Return the random generator called ``name``, derived from the seed."""
        return np.random.default_rng([self.seed, *name.encode()])

    def validate(self) -> None:
        """Check that the options are within their limits.

        Raises
        ------
        OptionError
            If an option is wrong.
        """
        check_limits(self)

    @abstractmethod
    def host(self, device: Device) -> None:
        """Allocate tensors and encode their maps."""

    def smem(self, smem: SmemLayout) -> None:  # noqa: B027, this is a default
        """Lay out shared memory. By default, the kernel uses none."""

    async def prologue(self, wg: Warpgroup) -> None:  # noqa: B027, this is a default
        """Initialise the barriers of a CTA, on one warpgroup, before the roles start.

        By default, there is nothing to do.
        """

    @abstractmethod
    def roles(self) -> Mapping[str, Role]:
        """Return the coroutine of each role by its name. Each CTA has a warpgroup per role."""

    def check(self) -> Check | None:
        """Compare the result with NumPy's. By default, the result is not checked: None."""
        return None


def specialized(
    producer: Role,
    consumer: Callable[[int, Warpgroup], Coroutine[Any, Any, None]],
    consumers: int,
) -> Mapping[str, Role]:
    """Return the roles of one producer and of ``consumers`` numbered consumers."""
    numbered = {f"consumer {i}": partial(consumer, i) for i in range(consumers)}
    return {"producer": producer, **numbered}


KERNELS: dict[str, dict[str, type[Kernel]]] = defaultdict(dict)
"""Registered kernels by name, each by its module and class. Two under one name are a mistake, which
``sim_tb.kernels.library`` reports."""


def kernel(name: str) -> Callable[[type[Kernel]], type[Kernel]]:
    """Return a class decorator that registers a kernel under ``name``."""

    def register(cls: type[Kernel]) -> type[Kernel]:
        cls.name = name
        KERNELS[name][f"{cls.__module__}.{cls.__qualname__}"] = cls
        return cls

    return register
