"""Accumulators of wgmma: registers that threads may read only when the tensor cores are done."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sim_tb.sm.errors import KernelError

Values = NDArray[np.float32]


class Owner(Protocol):
    """The warpgroup whose registers they are, as the sanitizer tracks it.

    Members
    -------
    label : str
    wgmma_fences : int
        Number of its ``wgmma.fence`` so far.
    wgmma_committed, wgmma_waited : int
        Number of its committed wgmma groups, and of those that a wait covers.
    """

    label: str
    wgmma_fences: int
    wgmma_committed: int
    wgmma_waited: int


class Accumulator:
    """Accumulators of a warpgroup, m x n values of float32 in registers.

    ``wgmma`` adds to them asynchronously. Threads may read and write them after a
    ``wgmma_wait_group`` that covers the last product, and a product may follow their write only
    after a ``wgmma_fence`` (PTX ISA, wgmma.mma_async).

    Parameters
    ----------
    owner : Owner
    values : array
        Values at first, which threads have written.
    clock : callable
        Returns the present cycle, for messages.

    Members
    -------
    touched : int
        Number of the owner's fences when threads wrote last.
    touch : str
        What wrote then, in words.
    """

    def __init__(self, owner: Owner, values: Values, clock: Callable[[], int] = lambda: 0) -> None:
        self._owner = owner
        self._array = values
        self._clock = clock
        self._group, self._product = 0, ""
        self._whole: Accumulator | None = None
        self._touched, self._touch = owner.wgmma_fences, "at first"

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self._array.shape

    @property
    def size(self) -> int:
        """Number of values."""
        return self._array.size

    @property
    def _state(self) -> "Accumulator":
        return self if self._whole is None else self._whole

    @property
    def touched(self) -> int:
        """Number of the owner's fences when threads wrote last."""
        return self._state._touched

    @property
    def touch(self) -> str:
        """Last write by threads, in words."""
        return self._state._touch

    def in_group(self, number: int, product: str) -> None:
        """Take part in a wgmma group, by a product that is given in words."""
        self._state._group, self._state._product = number, product

    def columns(self, start: int, stop: int) -> "Accumulator":
        """Return a view of columns ``start`` to ``stop`` - 1, for products of their own."""
        view = Accumulator(self._owner, self._array[:, start:stop], self._clock)
        view._whole = self._state
        return view

    @property
    def values(self) -> Values:
        """The values, which cannot be written through this array.

        Raises
        ------
        KernelError
            If the tensor cores may still be adding to them.
        """
        self._check("reads")
        view = self._array.view()
        view.flags.writeable = False
        return view

    def write(self, values: Any) -> None:
        """Write new values, as instructions of threads do.

        Raises
        ------
        KernelError
            If the tensor cores may still be adding to the old ones.
        """
        self._check("writes")
        self._array[...] = values
        self._state._touched = self._owner.wgmma_fences
        self._state._touch = "after its last product"

    @property
    def in_flight(self) -> Values:
        """The array itself, for the tensor cores."""
        return self._array

    def _check(self, verb: str) -> None:
        group, owner = self._state._group, self._owner
        if group > owner.wgmma_waited:
            state = "is not committed" if group > owner.wgmma_committed else "may be in flight"
            raise KernelError(
                f"{owner.label} {verb} an accumulator of a wgmma whose group {state}, in cycle "
                f"{self._clock()} ({self._state._product}): the registers change until then; call "
                "wgmma_commit_group and wgmma_wait_group first"
            )
