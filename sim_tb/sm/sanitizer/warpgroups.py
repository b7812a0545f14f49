"""Warpgroups, and other warps of one role, as the sanitizer sees them: a clock for each warp."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sim_tb.sm.sanitizer.clocks import (
    ALL_LANES,
    GLOBAL,
    HAPPENED,
    LOOSE,
    SHARED,
    Clock,
    Components,
    Scope,
    Threads,
)
from sim_tb.sm.sanitizer.requests import TrackedRequest

MOST_RECENT = 64
"""Accesses to global memory that a loop without progress may repeat."""

Place = tuple[int, int]
"""CTA and offset of a barrier."""


class BarrierWait(NamedTuple):
    """A wait at a barrier that has not returned."""

    barrier: Place
    parity: int
    cycle: int


class Waited(NamedTuple):
    """The last wait of a warpgroup at a barrier: phases that it found completed.

    ``again`` is True if the wait before it had found the same ones.
    """

    phases: int
    parity: int
    cycle: int
    scope: Scope
    again: bool

    def __str__(self) -> str:
        text = (
            f"its last wait, for parity {self.parity}, returned in cycle {self.cycle}, when "
            f"{self.phases} phases had completed"
        )
        if self.again:
            text += (
                ", as at the wait before: two waits with one parity; let the parity follow the "
                "uses of this barrier, not an index that skips some"
            )
        return text


class BulkThread:
    """The bulk groups of one thread.

    Members
    -------
    reads, writes : int
        Components of the groups: their reads of shared memory, and their writes.
    committed : int
        Number of committed groups.
    open : list of TrackedRequest
        Requests since the last ``commit_group``.
    pending : list of list of TrackedRequest
        Groups that no wait has covered.
    """

    def __init__(self, reads: int, writes: int) -> None:
        self.reads, self.writes = reads, writes
        self.committed = 0
        self.open: list[TrackedRequest] = []
        self.pending: list[list[TrackedRequest]] = []


class TrackedWarpgroup(Clock):
    """Warps of one role, as the sanitizer sees them: their clocks, and what they wait for.

    Members
    -------
    cta : int
    label : str
        Role, in a cluster with the number of the CTA.
    rows : array of shape (warps, rows, components)
    warps : list of int
        Component of each warp's own accesses.
    separated : array of shape (warps)
        Event of each warp up to which a fence or a barrier stands between its reads and a request
        that it issues: the order of its program is not enough.
    wgmma_groups : int
        Component of its wgmma groups.
    wgmma_committed, wgmma_waited : int
        Number of committed wgmma groups, and of those that a wait covers.
    wgmma_fences : int
        Number of ``wgmma.fence`` so far, from 1.
    registers_written : int
        That number when threads last computed something.
    bulk : dict of int to BulkThread
        Bulk groups by the warp whose elected thread owns them.
    waiting : BarrierWait, optional
        Wait at an mbarrier that it is in.
    blocked : (str, int), optional
        What else it waits for, and since which cycle.
    waits : dict of (int, int) to Waited
        Last wait at each barrier, by CTA and offset of the barrier.
    waited_loads : int
        Number of waits for phases in which loads signalled: the loads came behind all that their
        threads had waited for, which arrivals do not tell.
    fenced, fenced_scope : Clock, Scope
        What it knew at its last fence, which later strong writes publish, and the fence's scope.
    pending : Clock, optional
        What strong reads have seen since its last fence.
    narrow : str
        Description of the last release or acquire whose scope was too narrow.
    repeats : (str, int), optional
        Access to global memory that it repeats, as a loop does that waits for a flag, and since
        which cycle.
    has_exited : bool
    """

    def __init__(self, components: Components, cta: int, label: str, warps: int) -> None:
        super().__init__(components, warps)
        self.cta, self.label = cta, label
        names = [f"warp {warp} of {label}" for warp in range(warps)] if warps > 1 else [label]
        self.warps = [components.add(name) for name in names]
        self.separated = np.zeros(warps, np.int64)
        self.wgmma_groups = components.add(f"a wgmma of {label}")
        self.wgmma_committed = self.wgmma_waited = 0
        self.wgmma_fences, self.registers_written = 1, 0
        self.bulk: dict[int, BulkThread] = {}
        self.waiting: BarrierWait | None = None
        self.blocked: tuple[str, int] | None = None
        self.waits: dict[Place, Waited] = {}
        self.waited_loads = 0
        self.narrow = ""
        self.fenced: Clock | None = None
        self.fenced_scope = Scope.CTA
        self.pending: Clock | None = None
        self.repeats: tuple[str, int] | None = None
        self._recent: dict[tuple[str, int], int] = {}
        self.has_exited = False
        self.tick(range(warps))

    @cached_property
    def all(self) -> Threads:
        """All threads."""
        return Threads(self, (1 << len(self.warps)) - 1)

    @cached_property
    def elected(self) -> Threads:
        """Lane 0 of warp 0, which ``elect.sync`` chooses."""
        return Threads(self, 1, 1)

    @cached_property
    def leaders(self) -> Threads:
        """Lane 0 of each warp."""
        return Threads(self, self.all.warps, 1)

    def threads(self, warps: int | None = None, lanes: int = ALL_LANES) -> Threads:
        """Return the threads of these masks of warps and lanes; default: of all warps."""
        return Threads(self, self.all.warps if warps is None else warps, lanes)

    @property
    def components(self) -> list[int]:
        """All of its components."""
        bulk = [number for each in self.bulk.values() for number in (each.reads, each.writes)]
        return [*self.warps, self.wgmma_groups, *bulk]

    def is_new(self, text: str, address: int, cycle: int) -> bool:
        """Return whether an access to global memory is none of the latest ones again."""
        first = self._recent.get((text, address))
        if first is not None:
            self.repeats = text, first
            return False
        self.repeats = None
        if len(self._recent) == MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[text, address] = cycle
        return True

    def tick(self, warps: Iterable[int]) -> None:
        """Begin a new event of these warps."""
        for warp in warps:
            own = self.warps[warp]
            self.rows[warp, HAPPENED, own] += 1
            self.rows[warp, LOOSE, own] = self.rows[warp, HAPPENED, own]

    def see(self, warp: int, *, shared: bool, global_memory: bool) -> None:
        """Let the async proxy see all writes that a warp knows of."""
        rows = self.rows[warp]
        self.separated[warp] = self.time(warp)
        if shared:
            rows[SHARED] = rows[HAPPENED]
        if global_memory:
            rows[GLOBAL] = rows[HAPPENED]

    def time(self, warp: int) -> int:
        """Return the number of the event that the next access of a warp belongs to."""
        return int(self.rows[warp, HAPPENED, self.warps[warp]])
