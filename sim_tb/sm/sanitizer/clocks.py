"""Vector clocks: which events each warp knows of, and which of them the async proxy can see.

A *component* is a counter of events. Each warp has one, for its own accesses; so have the wgmma
groups of a warpgroup, the bulk groups of a thread, and the phases of a barrier. A clock holds a
number per component: that many events of it are known to have happened (Flanagan and Freund 2009).
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from sim_tb.sm.smem import LANES

ALL_LANES = (1 << LANES) - 1

HAPPENED, LOOSE, SHARED, GLOBAL = range(4)
"""Rows of a clock: events that are known; those that would be known if every release and acquire
had the widest scope; writes to shared and to global memory that the async proxy can see."""

ROWS = 4
FIRST_CAPACITY = 64

Rows = NDArray[np.int64]
"""Clock of shape (``ROWS``, components)."""


class Scope(IntEnum):
    """Scope of a release or an acquire: threads outside of it learn nothing."""

    CTA, CLUSTER, GPU, SYSTEM = range(4)

    def __str__(self) -> str:
        return f".{self.name.lower()}"


class Components:
    """Names and numbers of the components of all clocks. Those that are dropped are used again.

    Members
    -------
    names : list of str
        Name of each component in messages; empty if it is free. Component 0 is never used.
    capacity : int
        Components that the clocks have room for.
    """

    def __init__(self) -> None:
        self.names = ["unused"]
        self.capacity = FIRST_CAPACITY
        self._free: list[int] = []
        self._clocks: WeakSet[Clock] = WeakSet()

    def __len__(self) -> int:
        """Return the number of components in use."""
        return len(self.names) - 1 - len(self._free)

    def add(self, name: str) -> int:
        """Return a component for new events."""
        if self._free:
            number = self._free.pop()
            self.names[number] = name
            return number
        self.names.append(name)
        if len(self.names) > self.capacity:
            self.capacity *= 2
            for clock in self._clocks:
                clock.widen(self.capacity)
        return len(self.names) - 1

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget components to which no clock and no access refers any more."""
        for number in numbers:
            self.names[number] = ""
            self._free.append(number)
            for clock in self._clocks:
                clock.rows[..., number] = 0

    def is_known(self, number: int, except_for: "Sequence[Clock]") -> bool:
        """Return whether any other clock has events of a component."""
        return any(
            clock not in except_for and bool(clock.rows[..., HAPPENED, number].any())
            for clock in self._clocks
        )

    def forget(self, clock: "Clock") -> None:
        """Let a clock be, which is not used any more."""
        self._clocks.discard(clock)

    def register(self, clock: "Clock") -> None:
        """Keep a clock as wide as the others."""
        self._clocks.add(clock)


class Clock:
    """One clock or several, of shape (..., ``ROWS``, components)."""

    def __init__(self, components: Components, *shape: int) -> None:
        self.rows: Rows = np.zeros((*shape, ROWS, components.capacity), np.int64)
        components.register(self)

    def widen(self, capacity: int) -> None:
        """Make room for more components."""
        more = [(0, 0)] * (self.rows.ndim - 1) + [(0, capacity - self.rows.shape[-1])]
        self.rows = np.pad(self.rows, more)

    def merge(self, rows: Rows) -> None:
        """Add the events that other rows know."""
        np.maximum(self.rows, rows, out=self.rows)

    def merge_loosely(self, rows: Rows) -> None:
        """Add events that a narrow scope, or relaxed semantics, keeps from being known."""
        loose = self.rows[..., LOOSE, :]
        np.maximum(loose, rows[..., LOOSE, :], out=loose)


class Meeting(Clock):
    """Knowledge of the threads that have arrived at a barrier of threads, together.

    Members
    -------
    narrow : str
        Description of the last relaxed arrival.
    """

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self.narrow = ""


class Threads:
    """Threads of one role that execute an instruction together: warps, and lanes in each.

    Warps that execute the same instruction stay warps of their own: none learns of another.
    The lanes of a warp are convergent: they are ordered from one instruction to the next, as by
    ``__syncwarp`` (PTX orders them only there), and unordered within one.

    Parameters
    ----------
    group : TrackedWarpgroup
    warps, lanes : int
        Masks: bit i is warp i, and lane i of each of these warps.
    """

    def __init__(self, group: Any, warps: int, lanes: int = ALL_LANES) -> None:
        self.group = group
        self.warps, self.lanes = warps, lanes
        self.numbers = [warp for warp in range(warps.bit_length()) if warps >> warp & 1]
        first, last = self.numbers[0], self.numbers[-1]
        is_run = last - first + 1 == len(self.numbers)
        self.index: slice | list[int] = slice(first, last + 1) if is_run else self.numbers

    @property
    def count(self) -> int:
        """Number of threads."""
        return len(self.numbers) * self.lanes.bit_count()

    @property
    def lead(self) -> int:
        """Number of the first warp."""
        return self.numbers[0]

    @property
    def label(self) -> str:
        """Role, in a cluster with the CTA."""
        return str(self.group.label)

    @property
    def rows(self) -> Rows:
        """Clocks of the warps, of shape (warps, ``ROWS``, components)."""
        rows: Rows = self.group.rows[self.index]
        return rows

    def published(self) -> Rows:
        """Return what the warps know together, as one clock."""
        rows = self.rows
        together: Rows = rows[0] if len(rows) == 1 else rows.max(axis=0)
        return together

    def learn(self, rows: Rows) -> None:
        """Add the events that a clock knows, which threads have published at a barrier."""
        separated, own = self.group.separated, self.group.warps
        for warp in self.numbers:
            separated[warp] = max(separated[warp], rows[HAPPENED, own[warp]])
        if isinstance(self.index, slice):
            own = self.group.rows[self.index]
            np.maximum(own, rows, out=own)
        else:
            self.group.rows[self.index] = np.maximum(self.rows, rows)

    def learn_loosely(self, rows: Rows) -> None:
        """Add events that a narrow scope, or relaxed semantics, keeps from being known."""
        for warp in self.numbers:
            loose = self.group.rows[warp, LOOSE]
            np.maximum(loose, rows[LOOSE], out=loose)

    def learn_events(self, component: int, time: int) -> None:
        """Add the events of one component up to number ``time``."""
        own = self.group.rows
        for warp in self.numbers:
            column = own[warp, :, component]
            np.maximum(column, time, out=column)

    def tick(self) -> None:
        """Begin a new event of each warp: others do not know of the accesses that follow."""
        self.group.tick(self.numbers)
