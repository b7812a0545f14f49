"""Blocks of a grid, cluster after cluster, on as many SMs as there are."""

import warnings
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from golden import Cluster, TmaWarning
from sim_tb.ptx.engine import TIME_LIMIT, Engine
from sim_tb.ptx.golden_engine import GoldenEngine
from sim_tb.ptx.kernel import Kernel
from sim_tb.ptx.machine import LANES, Activity, ClusterState, Cta, Grid, Lanes, Warp
from sim_tb.ptx.scheduler import Scheduler

_IDLE_LIMITS = 3
"""Time limits of ``try_wait`` that pass without any event, after which there is a deadlock."""


class Slot(Protocol):
    """SMs on which clusters run, one after another."""

    def begin(self) -> tuple[NDArray[np.uint8], Sequence[Engine]]:
        """Return the shared memories, a row for each block, and the engines of a new cluster."""


class GridRun:
    """A grid that runs.

    Parameters
    ----------
    kernel : Kernel
    state : Grid
    slots : sequence of Slot
    smem_bytes : int
        Bytes of shared memory of a block.
    """

    def __init__(self, kernel: Kernel, state: Grid, slots: Sequence[Slot], smem_bytes: int) -> None:
        self._kernel = kernel
        self.state = state
        self._smem_bytes = smem_bytes
        self._scheduler = Scheduler(state, kernel.steps, kernel.ranks, kernel.block_ends)
        x, y, z = (
            range(0, extent, step) for extent, step in zip(state.grid, state.cluster, strict=True)
        )
        self._unstarted = deque((i, j, k) for k in z for j in y for i in x)
        self._running: list[tuple[Slot, ClusterState]] = []
        count = len(slots) * int(np.prod(state.cluster))
        self.activities = [Activity() for _ in range(count)]
        self._places = {id(slot): number for number, slot in enumerate(slots)}
        for slot in slots:
            self._begin(slot, 0)

    @property
    def is_running(self) -> bool:
        """True if there are threads that have not left the kernel."""
        return bool(self._scheduler.warps)

    @property
    def clusters(self) -> list[ClusterState]:
        """Clusters that run."""
        return [cluster for _, cluster in self._running]

    def run(self, until: int | None = None) -> int | None:
        """Run all warps up to clock ``until``, as `Scheduler.run` does, and begin clusters."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", TmaWarning)
            while True:
                at = self._scheduler.run(until)
                ended = [
                    (slot, cluster)
                    for slot, cluster in self._running
                    if not any(warp.fragments for cta in cluster.ctas for warp in cta.warps)
                ]
                for slot, cluster in ended:
                    self._running.remove((slot, cluster))
                    if self._unstarted:
                        self.state.observer.end(cluster.ctas)
                    last = max(warp.clock for cta in cluster.ctas for warp in cta.warps)
                    self._begin(slot, last + self.state.costs.block_start)
                if not (ended and self._running):
                    return at

    def raise_deadlock(self) -> None:
        """Raise the error of threads that wait forever."""
        raise self._scheduler.deadlock()

    def _begin(self, slot: Slot, clock: int) -> None:
        """Begin the next cluster of the grid, if there is one."""
        if not self._unstarted:
            return
        state, kernel = self.state, self._kernel
        first = self._unstarted.popleft()
        rows, engines = slot.begin()
        cluster = ClusterState(rows, self._smem_bytes)
        x, y, z = state.cluster
        ranks = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
        warps = -(-state.block[0] * state.block[1] * state.block[2] // LANES)
        for rank, (offset, engine) in enumerate(zip(ranks, engines, strict=True)):
            index = first[0] + offset[0], first[1] + offset[1], first[2] + offset[2]
            cta = Cta(state, cluster, index, rank, engine)
            cta.activity = self.activities[self._places[id(slot)] * len(ranks) + rank]
            cta.warps = [Warp(cta, number, _registers(kernel), clock) for number in range(warps)]
            cluster.ctas.append(cta)
        first_sm = self._places[id(slot)] * len(ranks)
        for cta, observed in zip(
            cluster.ctas, state.observer.begin(cluster.ctas, first_sm), strict=True
        ):
            cta.engine = observed
            self._scheduler.add(cta.warps)
        self._running.append((slot, cluster))


def _registers(kernel: Kernel) -> list[Lanes]:
    """Return the registers of a warp, all zero."""
    return [np.zeros(LANES, dtype) for dtype in kernel.dtypes]


class GoldenSlot:
    """A cluster of golden models, with shared memories of its own.

    Parameters
    ----------
    state : Grid
    smem_bytes : int
        Bytes of shared memory of a block.
    """

    def __init__(self, state: Grid, smem_bytes: int) -> None:
        self._memory = state.memory.unit
        self._shape = int(np.prod(state.cluster)), smem_bytes

    def begin(self) -> tuple[NDArray[np.uint8], Sequence[Engine]]:
        """Return new shared memories, all zero, and their engines."""
        rows = np.zeros(self._shape, np.uint8)
        cluster = Cluster(self._memory, len(rows), smem_bytes=self._shape[1])
        cluster.smem = list(rows)
        watches: dict[tuple[int, int], Any] = {}
        return rows, [GoldenEngine(cluster, rank, watches) for rank in range(len(rows))]


def run_golden(kernel: Kernel, state: Grid, clusters: int, smem_bytes: int) -> None:
    """Run a grid with the golden model as engine, ``clusters`` clusters at a time.

    Raises
    ------
    PtxError
        If a thread makes a mistake, or threads wait for each other forever.
    """
    slots = [GoldenSlot(state, smem_bytes) for _ in range(clusters)]
    run = GridRun(kernel, state, slots, smem_bytes)
    idle, events = 0, -1
    run.run()
    while run.is_running:
        idle = idle + 1 if state.events == events else 0
        if idle > _IDLE_LIMITS:
            run.raise_deadlock()
        events = state.events
        state.now += TIME_LIMIT  # nothing but the end of a time limit can let a thread go on
        state.stirred = True
        run.run()
    state.observer.end_grid()
