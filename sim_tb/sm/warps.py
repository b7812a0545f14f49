"""Warps of a CTA, as the roles of a kernel drive them: each coroutine is an instruction of PTX."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sim_tb.sm.barriers import BarrierInstructions
from sim_tb.sm.clusters import ClusterInstructions
from sim_tb.sm.copies import CopyInstructions
from sim_tb.sm.errors import KernelError
from sim_tb.sm.global_memory import GlobalInstructions
from sim_tb.sm.memory import MemoryInstructions
from sim_tb.sm.sm import Issuer
from sim_tb.sm.synchronisation import SynchronisationInstructions
from sim_tb.sm.wgmma import TensorCoreInstructions

WARPGROUP_WARPS = 4


class Warps(
    BarrierInstructions,
    CopyInstructions,
    ClusterInstructions,
    GlobalInstructions,
    MemoryInstructions,
    SynchronisationInstructions,
    Issuer,
):
    """Warps of a CTA with one role.

    Each coroutine is an instruction and has its name in PTX. Instructions of a single thread are
    executed by an elected thread. All instructions take issue slots.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse instructions of warpgroups in words."""
            if hasattr(TensorCoreInstructions, name):
                raise KernelError(
                    f"{self.role}: {name}: all four warps of a warpgroup must execute it, and the "
                    f"role has {self.warps}: leave out the decorator warps"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class Warpgroup(TensorCoreInstructions, Warps):
    """A warpgroup: four warps, which can also use the tensor cores."""


Role = Callable[[Warpgroup], Coroutine[Any, Any, None]]
"""Program of a warpgroup, or of as many warps as the decorator ``warps`` says."""

AnyRole = TypeVar("AnyRole", bound=Callable[..., Coroutine[Any, Any, None]])


def warps(number: int) -> Callable[[AnyRole], AnyRole]:
    """Return a decorator of a role, which is then executed by ``number`` warps.

    Raises
    ------
    ValueError
        If the number is not from 1 to 4, the warps of a warpgroup.
    """
    if not 1 <= number <= WARPGROUP_WARPS:
        raise ValueError(f"warps({number}): must be from 1 to {WARPGROUP_WARPS}")

    def decorate(role: AnyRole) -> AnyRole:
        role.__dict__["warps"] = number
        return role

    return decorate


def warps_of(role: Role) -> int:
    """Return the number of warps that execute a role: what ``warps`` says, else a warpgroup."""
    program = getattr(role, "func", role)  # of functools.partial
    return int(getattr(program, "warps", WARPGROUP_WARPS))
