"""State of a running grid: memories, CTAs, warps, and the fragments of diverged warps."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import ArrayMemory
from sim_tb.ptx.engine import Engine
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.observer import Observer
from sim_tb.ptx.waits import Wait
from sim_tb.sm.costs import Costs
from sim_tb.sm.pipes import SCHEDULERS, SMEM_BYTES_PER_CLOCK
from sim_tb.sm.spans import Span

Lanes = NDArray[Any]
"""Values of the 32 lanes of a warp."""

Mask = NDArray[np.bool_]
"""Lanes of a warp that execute an instruction."""

LANES = 32

BANKS = 32
"""Banks of shared memory, of four bytes each."""

SHARED_START = 0x400
"""First shared address of a kernel; the system has the bytes below (silicon)."""

RANK_SHIFT = 24
"""Bit of a shared address from which it has the rank in the cluster (silicon)."""

PARAM_WINDOW = 0x7D << 40
LOCAL_WINDOW = 0x7E << 40
SHARED_WINDOW = 0x7F << 40
"""Generic addresses of parameters, local memory and shared memory (choice)."""

_WINDOW_BYTES = 1 << 32


class GlobalMemory:
    """Allocations in global memory: one array, of which threads may touch the allocated bytes.

    Parameters
    ----------
    allocations : sequence of (int, ndarray)
        Address and bytes of each allocation, ascending and disjoint; the bytes are copied.
    """

    def __init__(self, allocations: list[tuple[int, NDArray[np.uint8]]]) -> None:
        allocations = sorted(allocations, key=lambda pair: pair[0]) or [(0, np.zeros(0, np.uint8))]
        self.base = allocations[0][0]
        self.starts = np.array([address for address, _ in allocations], np.int64)
        self.ends = np.array([address + data.size for address, data in allocations], np.int64)
        self.bytes = np.zeros(int(self.ends[-1]) - self.base, np.uint8)
        for address, data in allocations:
            self.at(address, data.size)[:] = data
        self.unit = ArrayMemory(self.bytes, self.base)

    def at(self, address: int, size: int) -> NDArray[np.uint8]:
        """Return a view of bytes that lie in one allocation."""
        return self.bytes[address - self.base : address - self.base + size]

    def offsets(self, addresses: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Return offsets in ``bytes``; -1 where ``size`` bytes are in no allocation."""
        place = np.searchsorted(self.starts, addresses, "right") - 1
        inside = (place >= 0) & (addresses + size <= self.ends[place])
        return np.where(inside, addresses - self.base, -1)


@dataclass(eq=False)
class Fragment:
    """Threads of a warp with the same program counter.

    Attributes
    ----------
    pc : int
        Instruction that is next.
    mask : Mask
        The threads.
    wait : Wait or None
        What they wait for.
    cycle : int
        First clock in which they can go on.
    executed : int
        Instructions that they have executed.
    reason : str
        What they have waited for last.
    waits_for_warp : bool
        Whether they are at an ``.aligned`` instruction, and other threads of the warp are not.
    """

    pc: int
    mask: Mask
    wait: Wait | None = None
    cycle: int = 0
    executed: int = 0
    reason: str = ""
    waits_for_warp: bool = False


@dataclass(eq=False)
class NamedBarrier:
    """A ``bar`` barrier: threads that have arrived, completed phases, clock of the last arrival.

    ``ones`` counts the arrived threads whose predicate is true; ``votes`` has this count and that
    of all threads for the last phase.
    ``meeting`` is what the observer knows of the phase.
    """

    arrived: int = 0
    phase: int = 0
    expected: int | None = None
    cycle: int = 0
    ones: int = 0
    votes: tuple[int, int] = (0, 0)
    meeting: object = None


@dataclass(eq=False)
class SubCore:
    """A quarter of an SM: its warp scheduler and its pipes, each free from a clock on."""

    scheduler: int = 0
    mufu: int = 0
    tensor_cores: int = 0


class Warp:
    """32 threads: registers, place in the block, fragments.

    Attributes
    ----------
    registers : list of ndarray
        One array of 32 lanes for each register of the kernel: bool for ``.pred``, otherwise
        unsigned words of the register's width (8-bit registers have 16 bits).
    cta : Cta
        Block of the warp.
    index : int
        Number of the warp in its block.
    thread : tuple of ndarray
        ``%tid`` in x, y and z, as uint32.
    live : Mask
        Threads that exist and have not left the kernel.
    fragments : list of Fragment
        Live threads by program counter.
    pc : int
        Program counter of the instruction that executes now.
    cluster_phase : ndarray
        Phase of the cluster barrier at which each thread arrived last.
    cluster_meeting : object
        What the observer knows of that phase.
    clock : int
        Clock in which the warp executes its next instruction, at the earliest.
    core : SubCore
        Quarter of the SM that executes the warp.
    pending : dict of int to int
        Clock from which on a register has its value, for registers that instructions under way
        write.
    product_groups : list of int
        Clock at which each committed group of ``wgmma`` is complete.
    carry : Mask
        Carry of each thread (``.cc``).
    copy_groups : list of int
        Clock at which each committed group of ``cp.async`` is complete.
    copies_end : int
        Clock at which the last ``cp.async`` is complete.
    latency : int
        Clocks until the results of the instruction that executes now are there; 0: at once.
    last_span : int or None
        Number of its last activity among those of the SM.
    at : int or None
        Clock of the next instruction; None: all fragments wait.
    """

    def __init__(self, cta: "Cta", index: int, registers: list[Lanes], clock: int = 0) -> None:
        x, y, z = cta.grid.block
        linear = LANES * index + np.arange(LANES)
        self.registers = registers
        self.cta = cta
        self.index = index
        self.thread = tuple(
            axis.astype(np.uint32) for axis in (linear % x, linear // x % y, linear // (x * y))
        )
        self.live: Mask = linear < x * y * z
        self.fragments = [Fragment(0, self.live.copy())]
        self.pc = 0
        self.clock = clock
        self.core = cta.cores[index % SCHEDULERS]
        self.pending: dict[int, int] = {}
        self.product_groups: list[int] = []
        self.carry: Mask = np.zeros(LANES, bool)
        self.copy_groups: list[int] = []
        self.copies_end = clock
        self.latency = 0
        self.last_span: int | None = None
        self.at: int | None = clock
        self.cluster_phase = np.full(LANES, -1)
        self.cluster_meeting: object = None
        self.local = np.zeros((LANES, cta.grid.local_bytes), np.uint8)

    @property
    def first_thread(self) -> int:
        """Number in the block of lane 0."""
        return LANES * self.index

    def thread_name(self, lane: int) -> str:
        """Return the block and the thread of a lane, for messages."""
        thread = ", ".join(str(int(axis[lane])) for axis in self.thread)
        return f"block ({', '.join(map(str, self.cta.index))}), thread ({thread})"


@dataclass(eq=False)
class Activity:
    """Activities of an SM, for the report.

    Attributes
    ----------
    spans : list of Span
        Activities of the warps.
    products : list of (int, int)
        Intervals in which tensor cores were busy.
    fma : int
        Multiply-adds.
    bank_conflicts : int
        Clocks that accesses to shared memory have lost to bank conflicts.
    """

    spans: list[Span] = field(default_factory=list)
    products: list[tuple[int, int]] = field(default_factory=list)
    fma: int = 0
    bank_conflicts: int = 0

    def add_span(self, warp: "Warp", name: str, start: int, end: int) -> None:
        """Add an activity of a warp, unless it lengthens its last one."""
        last = warp.last_span
        if last is not None and (self.spans[last].name, self.spans[last].end) == (name, start):
            self.spans[last] = self.spans[last]._replace(end=end)
        elif end > start:
            warp.last_span = len(self.spans)
            self.spans.append(Span(f"warp {warp.index}", name, start, end))


@dataclass(eq=False)
class Cta:
    """A block: its place in grid and cluster, its part of an SM, named barriers and warps.

    Parameters
    ----------
    grid : Grid
    cluster : ClusterState
    index : tuple of int
        ``%ctaid``.
    rank : int
        Rank in the cluster.
    engine : Engine
        What carries out the requests and mbarrier operations of its threads.

    Attributes
    ----------
    cores : list of SubCore
        Quarters of the SM.
    port_free : int
        Clock from which on the port of L1 and shared memory is free.
    activity : Activity
        What happened on the SM.
    """

    grid: "Grid"
    cluster: "ClusterState"
    index: tuple[int, int, int]
    rank: int
    engine: Engine
    barriers: dict[int, NamedBarrier] = field(default_factory=dict)
    warps: list[Warp] = field(default_factory=list)
    cores: list[SubCore] = field(default_factory=lambda: [SubCore() for _ in range(SCHEDULERS)])
    port_free: int = 0
    activity: Activity = field(default_factory=Activity)

    @property
    def shared_base(self) -> int:
        """Bits that all shared addresses of the block have."""
        return self.rank << RANK_SHIFT


class ClusterState:
    """The blocks that run at the same time as a cluster, and their shared memories.

    Parameters
    ----------
    shared : ndarray
        Bytes of the shared memories: a row for each block.
    size : int
        Bytes of a row that the kernel may use.

    Attributes
    ----------
    ctas : list of Cta
        Blocks by rank.
    arrivals : NamedBarrier
        State of ``barrier.cluster``.
    """

    def __init__(self, shared: NDArray[np.uint8], size: int) -> None:
        self.rows = shared
        self.size = size
        self.shared = shared.reshape(-1)
        self.ctas: list[Cta] = []
        self.arrivals = NamedBarrier()

    def offsets(self, addresses: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Return offsets in ``shared``; -1 where ``size`` bytes are in no shared memory."""
        rank, offset = addresses >> RANK_SHIFT, addresses & ((1 << RANK_SHIFT) - 1)
        inside = (rank >= 0) & (rank < len(self.rows)) & (offset >= SHARED_START)
        inside &= offset + size <= self.size
        return np.where(inside, rank * self.rows.shape[1] + offset, -1)


@dataclass(eq=False)
class Grid:
    """A launch: sizes, parameters and global memory.

    ``variables`` is the address of the variables of the file in global memory.
    ``events`` counts changes that other threads may wait for; a grid in which it stands still
    although all threads only poll, which ``polls`` counts, is a deadlock. ``last_event`` is the
    clock of the last one. With ``stirred``, a wait may be over. ``now`` is the clock up to which
    all warps have run. With ``keeps_spans``, the activities of warps are recorded.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    parameters: NDArray[np.uint8]
    memory: GlobalMemory
    local_bytes: int
    clustered: bool
    lines: list[int]
    variables: int = 0
    dynamic_smem: int = 0
    costs: Costs = field(default_factory=Costs)
    observer: Observer = field(default_factory=Observer)
    keeps_spans: bool = False
    blocks: list[int] = field(default_factory=list)
    events: int = 0
    polls: int = 0
    last_event: int = 0
    stirred: bool = False
    now: int = 0
    instructions: int = 0


def unsigned(address: int) -> int:
    """Return an address of 64 bits as a number without sign."""
    return address & ((1 << 64) - 1)


def split(addresses: NDArray[np.int64], mask: Mask) -> list[tuple[str, Mask, int]]:
    """Return space, lanes and first generic address of each window that addresses are in."""
    result = []
    rest = mask.copy()
    for space, window in (
        ("shared", SHARED_WINDOW),
        ("local", LOCAL_WINDOW),
        ("param", PARAM_WINDOW),
    ):
        lanes = rest & (addresses >= window) & (addresses < window + _WINDOW_BYTES)
        if lanes.any():
            result.append((space, lanes, window))
            rest &= ~lanes
    if rest.any():
        result.append(("global", rest, 0))
    return result


def place(
    warp: Warp, space: str, addresses: NDArray[np.int64], size: int, mask: Mask
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the array of a state space, and the offset of each lane in it.

    Raises
    ------
    PtxError
        If an address is not aligned, or its bytes are outside: with address, thread and line.
    """
    grid = warp.cta.grid
    if space == "shared":
        array, offsets = warp.cta.cluster.shared, warp.cta.cluster.offsets(addresses, size)
    elif space == "global":
        array, offsets = grid.memory.bytes, grid.memory.offsets(addresses, size)
    elif space == "local":
        array, inside = warp.local.reshape(-1), addresses + size <= warp.local.shape[1]
        inside &= addresses >= 0
        offsets = np.where(inside, addresses + np.arange(LANES) * warp.local.shape[1], -1)
    else:
        array, inside = grid.parameters, addresses + size <= grid.parameters.size
        offsets = np.where(inside & (addresses >= 0), addresses, -1)
    bad = mask & ((offsets < 0) | (addresses % size != 0))
    if bad.any():
        lane = int(np.argmax(bad))
        what = "is outside" if offsets[lane] < 0 else f"is no multiple of {size}:"
        where = f"{space} memory" if offsets[lane] < 0 else f"{space} access"
        raise PtxError(
            f"address {unsigned(int(addresses[lane])):#x} {what} {where} ({size} bytes), "
            f"{warp.thread_name(lane)}",
            grid.lines[warp.pc],
        )
    return array, offsets


def load(
    warp: Warp, space: str, addresses: NDArray[np.int64], size: int, mask: Mask
) -> NDArray[np.uint8]:
    """Return the bytes at the address of each lane, (32, size); 0 where ``mask`` is false."""
    result = np.zeros((LANES, size), np.uint8)
    ranges = [(space, mask, 0)] if space != "generic" else split(addresses, mask)
    for name, lanes, window in ranges:
        inside = addresses - window
        array, offsets = place(warp, name, inside, size, lanes)
        warp.cta.grid.observer.reads(warp, name, inside, size, lanes)
        result[lanes] = array[offsets[lanes][:, None] + np.arange(size)]
        warp.latency = max(warp.latency, _load_latency(warp, name, inside, size, lanes))
    return result


def _load_latency(
    warp: Warp, space: str, addresses: NDArray[np.int64], size: int, lanes: Mask
) -> int:
    """Return the clocks until a load has its data."""
    costs = warp.cta.grid.costs
    if space in ("global", "local"):
        return costs.global_load + _use_port(warp, int(lanes.sum()) * size)
    if space != "shared":
        return costs.parameter_load
    if (addresses[lanes] >> RANK_SHIFT != warp.cta.rank).any():
        return costs.cluster_load
    return costs.shared_load + _use_shared(warp, addresses[lanes], size)


def store(
    warp: Warp, space: str, addresses: NDArray[np.int64], data: NDArray[np.uint8], mask: Mask
) -> None:
    """Write the bytes of each lane, (32, size), at its address; the highest lane wins."""
    size, observer = data.shape[1], warp.cta.grid.observer
    ranges = [(space, mask, 0)] if space != "generic" else split(addresses, mask)
    for name, lanes, window in ranges:
        inside = addresses - window
        array, offsets = place(warp, name, inside, size, lanes)
        target = offsets[lanes][:, None] + np.arange(size)
        if observer.is_active:
            changes = bool((array[target] != data[lanes]).any())
            observer.writes(warp, name, inside, data, lanes, changes=changes)
        array[target] = data[lanes]
        if name == "shared":
            _use_shared(warp, inside[lanes], size)
        elif name == "global":
            _use_port(warp, int(lanes.sum()) * size)
    changed(warp)


def _use_shared(warp: Warp, addresses: NDArray[np.int64], size: int) -> int:
    """Use the port of the shared memory; return the clocks that the access waits and takes."""
    least = addresses.size * size
    clocks = shared_passes(addresses, size)
    warp.cta.activity.bank_conflicts += clocks - -(-least // SMEM_BYTES_PER_CLOCK)
    return _use_port(warp, clocks * SMEM_BYTES_PER_CLOCK)


def _use_port(warp: Warp, size: int) -> int:
    """Use the port of L1 and shared memory; return the clocks that the access waits and takes."""
    cta = warp.cta
    cta.port_free = max(warp.clock, cta.port_free) + -(-size // SMEM_BYTES_PER_CLOCK)
    return cta.port_free - warp.clock


def shared_passes(addresses: NDArray[np.int64], size: int) -> int:
    """Return the clocks of an access to shared memory: those of its most used bank.

    Threads with 8 or 16 bytes each go in groups whose bytes fill all banks once.
    """
    words = addresses >> 2
    if size <= 4:
        banks = np.unique(words) & (BANKS - 1)
        return int(np.bincount(banks).max())
    count = size // 4
    group = np.arange(addresses.size) // (BANKS // count)
    every = (group << 40)[:, None] + words[:, None] + np.arange(count)
    banks = np.unique(every)
    used = np.bincount((banks >> 40) * BANKS + (banks & (BANKS - 1)), minlength=BANKS)
    used = np.pad(used, (0, -used.size % BANKS))
    return int(used.reshape(-1, BANKS).max(axis=1).sum())


def read_bytes(warp: Warp, space: str, address: int, size: int, lane: int) -> bytes:
    """Return the ``size`` bytes, a multiple of 16, at an address of a thread."""
    one = np.arange(LANES) == lane
    where = np.full(LANES, address, np.int64)
    name, _, window = split(where, one)[0] if space == "generic" else (space, one, 0)
    array, first = place(warp, name, where - window, 16, one)
    place(warp, name, where - window + size - 16, 16, one)
    return array[first[lane] : first[lane] + size].tobytes()


def write_bytes(warp: Warp, space: str, address: int, data: bytes, lane: int) -> None:
    """Write bytes, a multiple of 16, at an address of a thread."""
    one = np.arange(LANES) == lane
    where = np.full(LANES, address, np.int64)
    name, _, window = split(where, one)[0] if space == "generic" else (space, one, 0)
    array, first = place(warp, name, where - window, 16, one)
    place(warp, name, where - window + len(data) - 16, 16, one)
    array[first[lane] : first[lane] + len(data)] = np.frombuffer(data, np.uint8)
    changed(warp)


def changed(warp: Warp) -> None:
    """Note a change that other threads may wait for."""
    grid = warp.cta.grid
    grid.events += 1
    grid.last_event = max(grid.last_event, warp.clock)
    grid.stirred = True
