"""Launches: a kernel with its memory, run through the simulated unit or with the golden model."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from golden.enums import SMEM_BYTES
from hw.params import PRESETS, TmaParams
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.grid import run_golden
from sim_tb.ptx.kernel import Kernel, Kernels, align_up
from sim_tb.ptx.machine import GlobalMemory, Grid
from sim_tb.ptx.sanitizer import SanitizingObserver
from sim_tb.simulator import jobs
from sim_tb.sm.record import Setting

COCOTB_MODULE = "sim_tb.ptx.tb_launch"

ENGINES = ("unit", "golden")
"""Engines for copies and mbarrier operations: the simulated unit, or the golden model."""

_MOST_CTAS = 16

_PAGE = 4096
"""Alignment of the variables of a file in global memory, and their distance from arrays."""

_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables of the simulator: products of a warp are too small for several threads."""

Bytes = NDArray[np.uint8]
Size = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel.

    Parameters
    ----------
    text : str
        PTX.
    entry : str
        Name of the kernel.
    grid, block, cluster : sequence of int
        One to three extents; ``cluster`` None is a launch without clusters.
    smem : int
        Bytes of dynamic shared memory.
    parameters : ndarray
        Bytes of all parameters, at the offsets of `Kernel.parameters`.
    allocations : list of (int, ndarray)
        Address and bytes of each allocation in global memory.
    sms : int
        SMs: so many blocks run at the same time, if their clusters fit. 0: one cluster.
    sanitize : bool
        Whether the sanitizer follows the threads.
    """

    text: str
    entry: str
    grid: Sequence[int]
    block: Sequence[int]
    cluster: Sequence[int] | None
    smem: int
    parameters: Bytes
    allocations: list[tuple[int, Bytes]]
    sms: int = 0
    sanitize: bool = False

    @property
    def cluster_size(self) -> Size:
        """Blocks of a cluster in x, y and z.

        Raises
        ------
        PtxError
            If the extents are wrong.
        """
        return _extents("cluster", self.cluster or (1, 1, 1), _MOST_CTAS)

    @property
    def ctas(self) -> int:
        """Blocks that run at the same time."""
        return self.clusters * int(np.prod(self.cluster_size))

    @property
    def clusters(self) -> int:
        """Clusters that run at the same time.

        Raises
        ------
        PtxError
            If there are fewer SMs than blocks in a cluster, or more than a simulation can have.
        """
        size = int(np.prod(self.cluster_size))
        if self.sms and not size <= self.sms <= _MOST_CTAS:
            raise PtxError(
                f"sms = {self.sms}: must be from {size}, the blocks of a cluster, to {_MOST_CTAS}"
            )
        most = int(np.prod(_extents("grid", self.grid, 1 << 31))) // size
        return max(1, min(self.sms // size, most))

    def state(self, kernel: Kernel) -> Grid:
        """Return the state at the start.

        Raises
        ------
        PtxError
            If extents or sizes are wrong.
        """
        blocks = _extents("grid", self.grid, 1 << 31)
        threads = _extents("block", self.block, 1024)
        size = self.cluster_size
        for axis in range(3):
            if blocks[axis] % size[axis]:
                raise PtxError(f"grid = {blocks}: must be multiples of cluster = {size}")
        room = SMEM_BYTES - kernel.shared_bytes
        if not 0 <= self.smem <= room:
            raise PtxError(f"smem = {self.smem}: must be from 0 to {room} for {kernel.name}")
        end = max((address + data.size for address, data in self.allocations), default=0)
        variables = align_up(end, _PAGE) + _PAGE
        data = [(variables, np.frombuffer(kernel.data, np.uint8))] if kernel.data else []
        memory = GlobalMemory([*self.allocations, *data])
        state = Grid(
            blocks, threads, size, self.parameters, memory, kernel.local_bytes,
            bool(self.cluster), kernel.lines, variables, self.smem,
        )  # fmt: skip
        if self.sanitize:
            shared = kernel.shared_bytes + self.smem
            state.observer = SanitizingObserver(kernel, state, self.ctas, shared)
        return state


@dataclass(frozen=True)
class Result:
    """Result of a launch.

    Parameters
    ----------
    allocations : list of ndarray
        Bytes of each allocation after the launch; empty if there is an error.
    instructions : int
        Instructions that warps executed.
    cycles : int
        Clocks.
    seconds : float
        Time that the launch took here.
    error : Exception, optional
        What ended the launch: `PtxError`, a mistake of the kernel; or `CheckError`, one of the
        unit.
    dirty : bool
        Whether the unit has requests that do not end, so that it cannot be used again.
    """

    allocations: list[Bytes] = field(default_factory=list)
    instructions: int = 0
    cycles: int = 0
    seconds: float = 0.0
    error: Exception | None = None
    dirty: bool = False


def _extents(name: str, values: Sequence[int], most: int) -> Size:
    """Return one to three extents as three."""
    extents = tuple(int(value) for value in values)
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise PtxError(f"{name} = {extents}: must be one to three extents of at least 1")
    x, y, z = (*extents, 1, 1)[:3]
    if x * y * z > most:
        raise PtxError(f"{name} = {extents}: must be at most {most} together")
    return x, y, z


def result_of(state: Grid, launch: Launch, seconds: float) -> Result:
    """Return the result of a launch that ended without an error."""
    memory = state.memory
    after = [memory.at(address, data.size).copy() for address, data in launch.allocations]
    return Result(after, state.instructions, state.now, seconds)


def run_on_golden(kernel: Kernel, launch: Launch) -> Result:
    """Run a launch with the golden model as engine.

    Raises
    ------
    PtxError
        If the launch is wrong, or the kernel makes a mistake.
    """
    start = time.perf_counter()
    state = launch.state(kernel)
    run_golden(kernel, state, launch.clusters, kernel.shared_bytes + launch.smem)
    return result_of(state, launch, time.perf_counter() - start)


def run_on_unit(
    launches: Sequence[Launch],
    setting: Setting | None = None,
    params: TmaParams = PRESETS["default"],
) -> Iterator[Result]:
    """Run launches through the simulated unit, one after another; yield their results.

    A mistake of a kernel is in its result. Neighbouring launches with the same number of SMs share
    a simulation.

    Parameters
    ----------
    launches : sequence of Launch
        What to run.
    setting : Setting, optional
        Surroundings of the units.
    params : TmaParams
        Parameters of each unit. The launch overrides the number of CTAs.

    Raises
    ------
    PtxError
        If a launch is wrong.
    SimulationError
        If the simulation breaks off.
    """
    setting = setting or Setting()
    for unit, group in groupby(launches, lambda launch: replace(params, ctas=launch.ctas)):
        remaining = deque((launch, setting) for launch in group)
        while remaining:
            results = jobs.results(COCOTB_MODULE, list(remaining), env=_ENVIRONMENT, params=unit)
            with closing(results):
                for result in results:
                    remaining.popleft()
                    yield result
                    if result.dirty:
                        break  # a reset does not free a unit with stuck requests: start a new one


def run(launch: Launch, engine: str = "unit", setting: Setting | None = None) -> Result:
    """Run a launch.

    Parameters
    ----------
    launch : Launch
        What to run.
    engine : str
        One of `ENGINES`.
    setting : Setting, optional
        Surroundings of the unit.

    Raises
    ------
    PtxError
        If the launch is wrong, or the kernel makes a mistake.
    CheckError
        If the unit is wrong.
    """
    if engine not in ENGINES:
        raise PtxError(f"engine = {engine!r}: must be one of {', '.join(ENGINES)}")
    kernel = Kernels(launch.text).kernel(launch.entry)
    if engine == "golden":
        return run_on_golden(kernel, launch)
    launch.state(kernel)
    (result,) = run_on_unit([launch], setting)
    if result.error is not None:
        raise result.error
    return result
