"""A behavioural SM: its pipes, its counters, and the time that instructions take on it.

Requests and barrier operations go through the ports of the unit. Instructions take slots of a warp
scheduler, and products take as long as Hopper's tensor cores need. The activities of each role are
recorded, for the report and for the ledger of a hang.

The instructions are in ``barriers``, ``copies``, ``memory``, ``wgmma`` and
``synchronisation``, each a part of ``warps.Warps``.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cocotb.triggers import Event
from numpy.typing import NDArray

from golden import DataType, ReductionOp
from sim_tb.sm.costs import Cost, Costs
from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError, described
from sim_tb.sm.pipes import MUFU_PER_CLOCK, REGISTERS, SCHEDULERS, Pipe
from sim_tb.sm.sanitizer import Sanitizer, Scope, Threads, TrackedRequest
from sim_tb.sm.schedule import Delays
from sim_tb.sm.smem import LANES, PIECE_BYTES, Mbarrier, SmemLayout, Tile
from sim_tb.sm.spans import Span
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError

Array = NDArray[Any]

PIECE = np.dtype((np.void, PIECE_BYTES))

SOURCES = {
    "AccessMode": "such as AccessMode.TILE",
    "Accumulator": "as accumulator returns it",
    "BarrierState": "as mbarrier_arrive_state returns it",
    "DataType": "such as DataType.UINT32",
    "GlobalPointer": "as tensor.at returns it",
    "Mbarrier": "as smem.mbarrier or smem.ring returns it",
    "ReductionOp": "such as ReductionOp.ADD",
    "Rendezvous": "as cluster_arrive returns it",
    "Tensor": "as device.tensor or device.empty returns it",
    "TensorMapHandle": "as device.tensor_map or device.im2col_map returns it",
    "Tile": "as smem.tile returns it",
}
"""Where operands of instructions come from, by the type of the operand."""

MAX_LEAD = 64
"""Clocks that a warpgroup may run ahead of the simulation, so that it sleeps less often."""


@dataclass
class Counters:
    """Totals and lists of events of the warpgroups of an SM.

    Members
    -------
    fma : int
        Multiply-adds.
    bank_conflicts : int
        Clocks lost to bank conflicts.
    waits : list of (str, int)
        Name of the barrier and clocks of each wait.
    phase_completions : list of (int, str)
        Cycle and name of the barrier of each completed phase.
    """

    fma: int = 0
    bank_conflicts: int = 0
    waits: list[tuple[str, int]] = field(default_factory=list)
    phase_completions: list[tuple[int, str]] = field(default_factory=list)


class Issuer:
    """Warps of a CTA that execute one role in lock-step: their issue slots and their time.

    Parameters
    ----------
    sm : SM
    role : str
        Name of the role.
    warps : int
        Number of the warps.

    Members
    -------
    thread : int
        Number in the CTA of the elected thread, which owns the bulk groups.
    registers : int
        Registers per thread.
    ready_cycle : int
        First cycle in which it can execute the next instruction.
    activity : (str, int), optional
        What it waits for, and since which cycle.
    tracked : TrackedWarpgroup
        How the sanitizer tracks it.
    """

    def __init__(self, sm: "SM", role: str, warps: int) -> None:
        self.sm = sm
        self.role = role
        self.warps = warps
        self.thread = sum(each.threads for each in sm.warpgroups)
        self.registers = 0
        self.ready_cycle = 0
        self.activity: tuple[str, int] | None = None
        self.tracked = sm.sanitizer.add_warpgroup(sm.cta, role, warps)
        self._delays = Delays(sm.schedule, sm.cta, role)
        self._last_span: int | None = None
        sm.warpgroups.append(self)

    @property
    def threads(self) -> int:
        """Number of threads."""
        return self.warps * LANES

    @property
    def cta(self) -> int:
        """Rank of its CTA in the cluster (``%cluster_ctarank``)."""
        return self.sm.cta

    @property
    def block_idx(self) -> tuple[int, int, int]:
        """Index of its CTA in the grid, x, y and z (``%ctaid``)."""
        return self.sm.block_idx

    @property
    def grid_dim(self) -> tuple[int, int, int]:
        """CTAs of the grid in x, y and z (``%nctaid``)."""
        return self.sm.cluster.grid

    @property
    def thread_idx(self) -> NDArray[np.int64]:
        """Number in the CTA of each thread of the role (``%tid.x``)."""
        return np.arange(self.thread, self.thread + self.threads)

    @property
    def all(self) -> Threads:
        """All threads."""
        return self.tracked.all

    @property
    def elected(self) -> Threads:
        """Lane 0 of warp 0, which ``elect.sync`` chooses."""
        return self.tracked.elected

    @property
    def leaders(self) -> Threads:
        """Lane 0 of each warp."""
        return self.tracked.leaders

    def select(self, warps: int, lanes: int = (1 << LANES) - 1) -> Threads:
        """Return the lanes of a mask in each warp of a mask."""
        return self.tracked.threads(warps, lanes)

    @property
    def clock(self) -> int:
        """First cycle in which it can execute the next instruction, at the earliest the present."""
        return max(self.sm.env.cycle, self.ready_cycle)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record the time of the ``with`` block as a span called ``name``."""
        start = self.clock
        self.activity = name, start
        yield
        self.activity = None
        self._add_span(name, start, self.clock)

    def _add_span(self, name: str, start: int, end: int) -> None:
        spans, last = self.sm.spans, self._last_span
        if last is not None and (spans[last].name, spans[last].end) == (name, start):
            spans[last] = spans[last]._replace(end=end)
        elif end > start:
            self._last_span = len(spans)
            spans.append(Span(self.role, name, start, end))

    async def issue(self, slots: int, name: str = "issue") -> None:
        """Take ``slots`` issue slots, in turns with the other warpgroups.

        The warpgroup may then be up to ``MAX_LEAD`` clocks ahead of the simulation. The testbench
        hands its requests to the unit in the cycle of their first slot.
        """
        costs = self.sm.costs
        delay = self._delays.draw()
        if delay:
            self.ready_cycle = self.clock + delay
        while slots > 0:
            clocks = min(slots, costs.chunk) * costs.interval
            slots -= costs.chunk
            await self._use(self.sm.scheduler, clocks, name)

    async def _execute(self, instruction: str, cost: Cost) -> None:
        """Take the slots of an instruction, and wait for the rest of its clocks."""
        await self.issue(cost.slots)
        ready = self.sm.env.not_before + cost.clocks
        if ready > self.ready_cycle:
            self._add_span(f"wait {instruction}", self.ready_cycle, ready)
            self.ready_cycle = ready

    async def _use(self, pipe: Pipe, clocks: int, name: str) -> None:
        """Use a pipe for ``clocks`` cycles, as soon as the warpgroup and the pipe are free."""
        if self.ready_cycle > self.sm.env.cycle + MAX_LEAD:
            await self.sm.until(self.ready_cycle)
        self.ready_cycle = pipe.reserve(self.clock, clocks)
        self.sm.env.not_before = self.ready_cycle - clocks
        self._add_span(name, self.ready_cycle - clocks, self.ready_cycle)

    async def alu(self, elements: int, operations: int = 1) -> None:
        """Execute ``operations`` arithmetic instructions on each of ``elements`` values."""
        lanes = LANES * min(self.warps, SCHEDULERS)
        await self.issue(-(-elements * operations // lanes), "math")
        self.sm.sanitizer.registers_written(self.tracked.all)

    async def mufu(self, elements: int) -> None:
        """Execute ``ex2.approx`` or another special function on each of ``elements`` values."""
        await self._use(self.sm.mufu, -(-elements // MUFU_PER_CLOCK), "math")
        self.sm.sanitizer.registers_written(self.tracked.all)

    def _request(
        self, text: str, tx_bytes: int = 0, tensor_map: int | None = None
    ) -> TrackedRequest:
        """Return a new request of this role, which the report and the sanitizer follow."""
        cycle = self.sm.env.not_before
        request = TrackedRequest(None, text, self.cta, self.role, cycle, tx_bytes, tensor_map)
        self.sm.cluster.requests.append(request)
        return request

    def _require_reduction(
        self, instruction: str, reduction: tuple[DataType, ReductionOp] | None
    ) -> None:
        """Check the types of a reduction's operands."""
        if reduction is not None:
            data_type, op = reduction
            self.require(instruction, data_type=(data_type, DataType), op=(op, ReductionOp))

    def require_own(self, instruction: str, *handles: Tile | Mbarrier) -> None:
        """Check that tiles or barriers are in shared memory of the own CTA.

        Raises
        ------
        KernelError
            If ``mapa`` moved one of them to another CTA.
        """
        for handle in handles:
            if handle.cta not in (None, self.cta):
                raise KernelError(
                    f"{self.tracked.label}: {instruction} in cycle {self.sm.env.cycle}: "
                    f"{handle.name} is that of CTA {handle.cta}: must be in shared memory of the "
                    f"own CTA, {self.cta}"
                )

    def require(self, instruction: str, **operands: tuple[object, type]) -> None:
        """Check the types of operands, each given by its name.

        Raises
        ------
        KernelError
            If an operand has another type. The text names both, and what returns such an object.
        """
        for name, (value, kind) in operands.items():
            if not isinstance(value, kind):
                raise KernelError(
                    f"{self.role}: {instruction} in cycle {self.sm.env.cycle}: {name} is "
                    f"{described(value)}: must be a {kind.__name__}, {SOURCES[kind.__name__]}"
                )


class SM:
    """An SM with one CTA, around the unit of ``env``.

    Members
    -------
    env : Environment
    device : Device
    layout : SmemLayout
    sanitizer : Sanitizer
    costs : Costs
    cluster : ClusterRun
    schedule : int, optional
        Seed of a random schedule.
    scheduler, tensor_cores, smem_port, mufu : Pipe
    spans : list of Span
        Activities of the warpgroups.
    counters : Counters
    block_idx : (int, int, int)
        Index of the CTA in the grid: x, y and z.
    load_bytes : int
        Bytes that the loads of this SM write to shared memory, in all receivers together.
    warpgroups : list of Issuer
    """

    def __init__(
        self, env: Environment, device: Device, layout: SmemLayout, sanitizer: Sanitizer,
        costs: Costs, cluster: "ClusterRun", schedule: int | None = None,
    ) -> None:  # fmt: skip
        self.env = env
        self.device = device
        self.layout = layout
        self.sanitizer = sanitizer
        self.costs = costs
        self.cluster = cluster
        self.schedule = schedule
        self.scheduler, self.tensor_cores = Pipe(), Pipe()
        self.smem_port, self.mufu = Pipe(), Pipe()
        self.spans: list[Span] = []
        self.counters = Counters()
        self.load_bytes = 0
        self.block_idx = 0, 0, 0
        self.warpgroups: list[Issuer] = []
        self._rendezvous: dict[int, Rendezvous] = {}
        self._registers_released = Event()
        cluster.sms.append(self)

    @property
    def cta(self) -> int:
        """Number of the SM, which is the rank of its CTA in the cluster."""
        return self.env.sm

    def begin_cta(self, block: tuple[int, int, int]) -> None:
        """Begin with the CTA that has this index in the grid."""
        self.block_idx = block
        self.warpgroups.clear()
        self._rendezvous.clear()

    def of(self, cta: int | None) -> "SM":
        """Return the SM of a CTA of the cluster; None: this one."""
        return self if cta is None else self.cluster.sms[cta]

    async def until(self, cycle: int) -> None:
        """Wait until ``cycle``; return at once if it is over."""
        clocks = cycle - self.env.cycle
        if clocks > 0:
            await self.env.cycles(clocks)

    def arrive(self, issuer: Issuer, number: int, threads: int, *, waits: bool) -> "Rendezvous":
        """Let a role arrive at named barrier ``number`` of ``threads`` threads.

        Raises
        ------
        KernelError
            If other roles have come with another number of threads, or too many have come.
        """
        point = self._rendezvous.get(number)
        if point is None:
            point = self._rendezvous[number] = Rendezvous(self.sanitizer, lambda: threads)
        about = f"{issuer.role}: bar {number}, {threads} in cycle {self.env.cycle}"
        if point.count != threads:
            first = point.arrived[0].role
            raise KernelError(
                f"{about}: {first} waits there for {point.count} threads: all must give the same "
                "number"
            )
        point.arrive(issuer, waits=waits)
        if point.threads > threads:
            who = ", ".join(f"{each.threads} of {each.role}" for each in point.arrived)
            raise KernelError(
                f"{about}: {point.threads} threads have arrived: {who}; raise the number of "
                "threads, or use another barrier"
            )
        if point.check():
            del self._rendezvous[number]
        return point

    def rendezvous_points(self) -> "list[tuple[int, Rendezvous]]":
        """Return number and state of each named barrier at which warpgroups wait."""
        return list(self._rendezvous.items())

    async def set_registers(self, issuer: Issuer, registers: int) -> None:
        """Give each thread of a role ``registers`` registers, once the SM has enough."""
        before, issuer.registers = issuer.registers, registers
        if registers < before:
            self._registers_released.set()
            self._registers_released = Event()
            return
        while self._registers_in_use > REGISTERS:
            issuer.registers = before
            await self._registers_released.wait()
            issuer.registers = registers

    @property
    def _registers_in_use(self) -> int:
        return sum(each.registers * each.threads for each in self.warpgroups)

    def read(self, tile: Tile) -> Array:
        """Return the current elements of a tile, without the swizzle."""
        if tile.row_bytes % PIECE_BYTES:
            return self._narrow(tile).copy()
        rows = self.env.smem.view(PIECE).take(tile.pieces)
        return rows.view(tile.dtype).reshape(tile.shape)

    def _narrow(self, tile: Tile) -> Array:
        """Return the bytes of a tile whose rows are no whole pieces; it has no swizzle.

        Raises
        ------
        KernelError
            If it has several rows: the unit writes each row from a whole piece on.
        """
        if tile.shape[0] > 1:
            raise KernelError(
                f"{tile.name}: a row has {tile.row_bytes} bytes: must be a multiple of "
                f"{PIECE_BYTES}, or the only row"
            )
        part = self.env.smem[tile.address : tile.address + tile.nbytes]
        return part.view(tile.dtype).reshape(tile.shape)

    def write(self, tile: Tile, values: Array) -> None:
        """Write elements to a tile, with its swizzle.

        Raises
        ------
        KernelError
            If shape or type of ``values`` is not the tile's.
        """
        tile.check_values(tile.name, values)
        if tile.row_bytes % PIECE_BYTES:
            self._narrow(tile)[...] = values
            return
        rows = np.ascontiguousarray(values).view(np.uint8)
        self._smem_pieces[tile.pieces] = rows.reshape(tile.shape[0], -1, PIECE_BYTES)

    @property
    def _smem_pieces(self) -> NDArray[np.uint8]:
        return self.env.smem.reshape(-1, PIECE_BYTES)


class Rendezvous:
    """Roles that meet at a named barrier, or at the barrier of the cluster.

    Parameters
    ----------
    sanitizer : Sanitizer
    count : function
        Number of threads that must arrive.
    scope : Scope
        Scope of the release and of the acquire.

    Members
    -------
    arrived, waiting : list of Issuer
        Roles that have arrived, and those of them that wait for the others.
    complete : Event
        Set when all have arrived.
    """

    def __init__(
        self, sanitizer: Sanitizer, count: Callable[[], int], scope: Scope = Scope.CTA
    ) -> None:
        self._sanitizer, self._count, self._scope = sanitizer, count, scope
        self._meeting = sanitizer.meeting()
        self.arrived: list[Issuer] = []
        self.waiting: list[Issuer] = []
        self.complete = Event()

    @property
    def count(self) -> int:
        """Number of threads that must arrive."""
        return self._count()

    @property
    def threads(self) -> int:
        """Number of threads that have arrived."""
        return sum(each.threads for each in self.arrived)

    def arrive(self, issuer: Issuer, *, waits: bool, relaxed: bool = False) -> None:
        """Let a role arrive; with ``waits`` it calls ``wait`` next."""
        self.arrived.append(issuer)
        if waits:
            self.waiting.append(issuer)
        self._sanitizer.arrive_at(self._meeting, issuer.all, self._scope, relaxed=relaxed)

    def check(self) -> bool:
        """Let the roles go on if all have arrived; return whether they have."""
        if self.threads >= self.count:
            self.complete.set()
        return self.complete.is_set()

    async def wait(self, issuer: Issuer) -> None:
        """Wait until all have arrived."""
        await self.complete.wait()
        self._sanitizer.leave(self._meeting, issuer.all)


class ClusterRun:
    """State that the CTAs of a cluster share during a run.

    Parameters
    ----------
    ctas : int
        CTAs of the cluster.
    grid : (int, int, int)
        CTAs of the grid.

    Members
    -------
    sms : list of SM
        All SMs, by number; each adds itself. If there are more than CTAs of a cluster, each CTA is
        a cluster of its own.
    error : CheckError, optional
        First failure of any CTA.
    failed : Event
        Set when ``error`` is.
    requests : list of TrackedRequest
        All requests of the run, for the report.
    unstarted : collection of list of (int, int, int)
        Indices of the CTAs of each cluster that has not started.
    """

    def __init__(self, ctas: int, grid: tuple[int, int, int]) -> None:
        self.ctas = ctas
        self.grid = grid
        self.unstarted: Collection[list[tuple[int, int, int]]] = ()
        self.sms: list[SM] = []
        self.error: CheckError | None = None
        self.failed = Event()
        self.requests: list[TrackedRequest] = []
        self._point: Rendezvous | None = None

    def fail(self, error: CheckError) -> None:
        """End the run with this failure, unless there is an earlier one."""
        if self.error is None:
            self.error = error
        self.failed.set()

    @property
    def rendezvous_point(self) -> Rendezvous:
        """State of ``barrier.cluster``, at which all threads that have not returned arrive."""
        if self._point is None:
            self._point = Rendezvous(self.sms[0].sanitizer, self._threads, Scope.CLUSTER)
        return self._point

    def _threads(self) -> int:
        running = (each for sm in self.sms for each in sm.warpgroups if not each.tracked.has_exited)
        return sum(each.threads for each in running)

    def arrive(self, issuer: Issuer, *, waits: bool, relaxed: bool = False) -> Rendezvous:
        """Let a role arrive at ``barrier.cluster``."""
        point = self.rendezvous_point
        point.arrive(issuer, waits=waits, relaxed=relaxed)
        self.check()
        return point

    def check(self) -> None:
        """Let the roles at ``barrier.cluster`` go on if all others have arrived or returned."""
        if self._point is not None and self._point.arrived and self._point.check():
            self._point = None
