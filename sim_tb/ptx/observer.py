"""Observer: the interface to a checker of accesses and synchronisation, and one without effect."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim_tb.ptx.engine import Engine

Mask = NDArray[np.bool_]

Cta: TypeAlias = Any
Warp: TypeAlias = Any
NamedBarrier: TypeAlias = Any
"""Parts of ``sim_tb.ptx.machine``, which imports this module."""


class Observer:
    """Listener of a grid that does nothing. ``sim_tb.ptx.sanitizer`` has one that checks."""

    is_active = False
    """True if it is told of instructions and of stores."""

    def begin(self, ctas: list[Cta], first: int) -> list[Engine]:  # noqa: ARG002
        """Follow the begin of a cluster on SM ``first`` and later ones; return its engines."""
        return [cta.engine for cta in ctas]

    def end(self, ctas: list[Cta]) -> None:
        """Follow the end of a cluster."""

    def end_grid(self) -> None:
        """Follow the end of the grid."""

    def exits(self, warp: Warp) -> None:
        """Follow a warp that has left the kernel."""

    def executes(self, warp: Warp, pc: int) -> None:
        """Follow an instruction of a warp before it is executed."""

    def reads(
        self, warp: Warp, space: str, addresses: NDArray[np.int64], size: int, mask: Mask
    ) -> None:
        """Follow a load of ``size`` bytes at an address of each thread in ``mask``."""

    def writes(
        self,
        warp: Warp,
        space: str,
        addresses: NDArray[np.int64],
        data: NDArray[np.uint8],
        mask: Mask,
        *,
        changes: bool,
    ) -> None:
        """Follow a store of the bytes of each thread, (32, size), before it happens.

        ``changes`` is false if all of these bytes are there already.
        """

    def updates(
        self, warp: Warp, space: str, addresses: NDArray[np.int64], size: int, mask: Mask
    ) -> None:
        """Follow an atomic operation."""

    def fence(self, warp: Warp, mask: Mask) -> None:
        """Follow a fence, the instruction that the warp executes now."""

    def arrive(self, warp: Warp, mask: Mask, barrier: NamedBarrier) -> object:  # noqa: ARG002
        """Follow an arrival at a barrier of threads; return the meeting, for `leave`."""
        return None

    def leave(self, warp: Warp, mask: Mask, meeting: object) -> None:
        """Follow the end of a wait at a barrier of threads."""

    def product(self, warp: Warp, descriptor: int, places: NDArray[np.int64]) -> None:
        """Follow a ``wgmma`` that reads an operand at these offsets in shared memory."""

    def copy_map(self, warp: Warp, lane: int, address: int) -> None:
        """Follow ``tensormap.cp_fenceproxy`` to a map in global memory, before it happens."""
