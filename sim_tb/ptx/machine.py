"""State of a running grid: memories, CTAs, warps, and the fragments of diverged warps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import ArrayMemory, Cluster
from sim_tb.ptx.errors import PtxError

Lanes = NDArray[Any]
"""Values of the 32 lanes of a warp."""

Mask = NDArray[np.bool_]
"""Lanes of a warp that execute an instruction."""

LANES = 32

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


@dataclass
class Wait:
    """Condition that a fragment waits for: it goes on when ``ready`` returns true."""

    ready: Callable[[], bool]
    reason: str


class Yield:
    """Result of an instruction that gives other threads a turn, such as a failed ``try_wait``."""


YIELD = Yield()


@dataclass
class Fragment:
    """Threads of a warp with the same program counter."""

    pc: int
    mask: Mask
    wait: Wait | None = None
    yielded: bool = False


@dataclass
class NamedBarrier:
    """A ``bar`` barrier: threads that have arrived, and number of completed phases."""

    arrived: int = 0
    phase: int = 0
    expected: int | None = None


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
    """

    def __init__(self, cta: "Cta", index: int, registers: list[Lanes]) -> None:
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
        self.cluster_phase = np.full(LANES, -1)
        self.local = np.zeros((LANES, cta.grid.local_bytes), np.uint8)

    def thread_name(self, lane: int) -> str:
        """Return the block and the thread of a lane, for messages."""
        thread = ", ".join(str(int(axis[lane])) for axis in self.thread)
        return f"block ({', '.join(map(str, self.cta.index))}), thread ({thread})"


@dataclass
class Cta:
    """A block: its place in grid and cluster, named barriers and warps."""

    grid: "Grid"
    cluster: "ClusterState"
    index: tuple[int, int, int]
    rank: int
    barriers: dict[int, NamedBarrier] = field(default_factory=dict)
    warps: list[Warp] = field(default_factory=list)

    @property
    def shared_base(self) -> int:
        """Bits that all shared addresses of the block have."""
        return self.rank << RANK_SHIFT


class ClusterState:
    """The blocks that run at the same time as a cluster, and their shared memories.

    Attributes
    ----------
    unit : golden.Cluster
        Shared memories, mbarriers, bulk groups and copies.
    shared : ndarray
        Bytes of all shared memories, one after another.
    ctas : list of Cta
        Blocks by rank.
    arrivals : NamedBarrier
        State of ``barrier.cluster``.
    """

    def __init__(self, memory: GlobalMemory, ctas: int, shared_bytes: int) -> None:
        self.unit = Cluster(memory.unit, ctas, smem_bytes=shared_bytes)
        self.shared_bytes = shared_bytes
        self.shared = np.zeros(ctas * shared_bytes, np.uint8)
        self.unit.smem = [
            self.shared[rank * shared_bytes : (rank + 1) * shared_bytes] for rank in range(ctas)
        ]
        self.ctas: list[Cta] = []
        self.arrivals = NamedBarrier()

    def offsets(self, addresses: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Return offsets in ``shared``; -1 where ``size`` bytes are in no shared memory."""
        rank, offset = addresses >> RANK_SHIFT, addresses & ((1 << RANK_SHIFT) - 1)
        inside = (rank >= 0) & (rank < len(self.unit.smem)) & (offset >= SHARED_START)
        inside &= offset + size <= self.shared_bytes
        return np.where(inside, rank * self.shared_bytes + offset, -1)


@dataclass
class Grid:
    """A launch: sizes, parameters and global memory.

    ``events`` counts changes that other threads may wait for; a grid in which it stands still
    although all threads only poll is a deadlock.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    parameters: NDArray[np.uint8]
    memory: GlobalMemory
    local_bytes: int
    clustered: bool
    lines: list[int]
    events: int = 0
    instructions: int = 0


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
            f"address {int(addresses[lane]):#x} {what} {where} ({size} bytes), "
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
        array, offsets = place(warp, name, addresses - window, size, lanes)
        result[lanes] = array[offsets[lanes][:, None] + np.arange(size)]
    return result


def store(
    warp: Warp, space: str, addresses: NDArray[np.int64], data: NDArray[np.uint8], mask: Mask
) -> None:
    """Write the bytes of each lane, (32, size), at its address; the highest lane wins."""
    size = data.shape[1]
    ranges = [(space, mask, 0)] if space != "generic" else split(addresses, mask)
    for name, lanes, window in ranges:
        array, offsets = place(warp, name, addresses - window, size, lanes)
        array[offsets[lanes][:, None] + np.arange(size)] = data[lanes]
    warp.cta.grid.events += 1
