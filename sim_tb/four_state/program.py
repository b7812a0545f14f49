"""Programs of the bench: the unit's share of a GEMM, as one thread, with the expected results."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from golden import ArrayMemory, Cluster, Load, Store
from golden.mbarrier import init
from sim_tb.kernels.common import store_tile
from sim_tb.kernels.gemm import CONSUMERS, ROWS, Gemm, consumer_rows, product_of
from sim_tb.sm.device import HEAP, TENSOR_ALIGN, Device, TensorMapHandle, align_up
from sim_tb.sm.errors import KernelError
from sim_tb.sm.smem import PIECE_BYTES, Mbarrier, SmemLayout, Tile
from sim_tb.sm.warps import Warpgroup
from sim_tb.testbench.barriers import TIME_LIMIT
from sim_tb.testbench.global_memory import MAP_BYTES
from sim_tb.testbench.interface import Interface, Layout

MAPS = HEAP - TENSOR_ALIGN
"""Address of the first tensor map: just before the tensors, so that global memory is one array."""

OPCODE_BITS = 4


class Opcode(IntEnum):
    """Instructions of the bench. The operand is in the bits from ``OPCODE_BITS`` on."""

    REQUEST = 0
    """Send a request; the operand is its payload."""
    GROUP_WAIT = 1
    """Send a request that waits for bulk groups, and wait for its end."""
    BARRIER = 2
    """Send a command to a barrier, and wait for its result, and for its wake if it waits."""
    WRITE = 3
    """Write to shared memory: number of the first piece, pieces, and the first piece of data, 32
    bits each.
    """
    CHECK = 4
    """Compare shared memory with data; the operand is that of WRITE."""


def packed(layout: Layout, values: Any) -> int:
    """Return the bits of a payload. Fields without a value are 0."""
    if "element" in layout:
        width = int(layout["element"]["width"])
        return sum(packed(layout["element"], each) << i * width for i, each in enumerate(values))
    if "fields" in layout:
        return sum(
            packed(each, values[each["name"]]) << int(each["offset"])
            for each in layout["fields"]
            if each["name"] in values
        )
    if "enum" in layout and isinstance(values, str):
        return int(layout["members"][values])
    return int(values) & (1 << int(layout["width"])) - 1


@dataclass
class Program:
    """Instructions, their data, and global memory before and after them.

    Members
    -------
    words : list of int
        Instructions, with the opcode in the lowest bits.
    data : list of array
        Pieces of the instructions WRITE and CHECK, of shape (pieces, 16).
    before, after : array of bytes
        Global memory from ``base`` on.
    base : int
    loads, stores : int
        Numbers of tensor loads and tensor stores.
    """

    words: list[int] = field(default_factory=list)
    data: list[NDArray[np.uint8]] = field(default_factory=list)
    before: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    after: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    base: int = MAPS
    loads: int = 0
    stores: int = 0


class Places:
    """Global memory of the program before it runs: arrays by address."""

    def __init__(self) -> None:
        self.arrays: dict[int, NDArray[Any]] = {}
        self._next_map = MAPS

    def place(self, address: int, array: NDArray[Any]) -> None:
        """Place the bytes of ``array`` at ``address``."""
        self.arrays[address] = array.reshape(-1).view(np.uint8)

    def place_map(self, words: NDArray[np.uint32]) -> int:
        """Place the words of a tensor map; return their address."""
        address, self._next_map = self._next_map, self._next_map + MAP_BYTES
        self.place(address, words)
        return address

    def flat(self) -> NDArray[np.uint8]:
        """Return the bytes from ``MAPS`` to the end of the last array, in whole lines."""
        end = max(address + array.size for address, array in self.arrays.items())
        memory = np.zeros(align_up(end - MAPS, TENSOR_ALIGN), np.uint8)
        for address, array in self.arrays.items():
            memory[address - MAPS :][: array.size] = array
        return memory

    def put_back(self, memory: NDArray[np.uint8]) -> None:
        """Copy the bytes of ``flat`` to the arrays."""
        for address, array in self.arrays.items():
            array[:] = memory[address - MAPS :][: array.size]


class Thread:
    """A thread that records its instructions, named as those of ``sim_tb.sm.warps.Warps``.

    The golden model executes each at once, so that the contents of shared memory are known.

    Parameters
    ----------
    interface : Interface
        Layouts of the unit's payloads.
    device : Device
        Tensor maps.
    golden : Cluster
        Memories, and the golden model of the unit.
    program : Program
        The instructions are added to it.
    """

    thread = 0
    threads = 128

    def __init__(
        self, interface: Interface, device: Device, golden: Cluster, program: Program
    ) -> None:
        self._request = interface.ports["request__payload"]
        self._command = interface.ports["barrier_command__payload"]
        self._device = device
        self._golden = golden
        self._program = program
        self._requests = 0
        self._pieces = 0

    # Barriers

    async def mbarrier_init(self, barrier: Mbarrier, count: int) -> None:
        """``mbarrier.init``."""
        self._golden.mbarrier_init(barrier.address, count)
        self._send("INIT", barrier, state=init(count))

    async def mbarrier_arrive(self, barrier: Mbarrier, **_: Any) -> None:
        """``mbarrier.arrive``."""
        self._golden.mbarrier_arrive(barrier.address)
        self._send("ARRIVE", barrier, count=1)

    async def mbarrier_arrive_expect_tx(self, barrier: Mbarrier, tx_bytes: int) -> None:
        """``mbarrier.arrive.expect_tx``."""
        self._golden.mbarrier_arrive_expect_tx(barrier.address, tx_bytes)
        self._send("ARRIVE_EXPECT_TX", barrier, count=tx_bytes)

    async def mbarrier_try_wait_parity(self, barrier: Mbarrier, parity: int, **_: Any) -> None:
        """``mbarrier.try_wait.parity``; the instructions so far must complete the phase.

        Raises
        ------
        KernelError
            If they do not, so that a single thread would wait for ever.
        """
        if not self._golden.mbarrier_test_wait_parity(barrier.address, parity):
            raise KernelError(f"{barrier.name}: no instruction completes the phase")
        self._send("TRY_WAIT_PARITY", barrier, count=parity, time_limit=TIME_LIMIT)

    def _send(self, op: str, barrier: Mbarrier, **operands: int) -> None:
        values = {"op": op, "address": barrier.address, "lanes": 1, **operands}
        self._add(Opcode.BARRIER, packed(self._command, values))

    # Copies

    async def cp_async_bulk_tensor(
        self, tile: Tile, tensor_map: TensorMapHandle, coords: Sequence[int], barrier: Mbarrier
    ) -> None:
        """``cp.async.bulk.tensor``, global to shared memory."""
        offset, mbarrier = tile.address, barrier.address
        box = self._map(tensor_map), tuple(coords)
        self._golden.issue(Load(*box, smem_address=offset, mbarrier=mbarrier))
        self._issue("TENSOR_LOAD", tensor_map, coords, smem_address=offset, mbarrier=mbarrier)
        self._program.loads += 1

    async def cp_async_bulk_tensor_store(
        self, tensor_map: TensorMapHandle, coords: Sequence[int], tile: Tile
    ) -> None:
        """``cp.async.bulk.tensor``, shared to global memory."""
        store = Store(self._map(tensor_map), tuple(coords), smem_address=tile.address)
        self._golden.issue(store)
        self._issue("TENSOR_STORE", tensor_map, coords, smem_address=tile.address)
        self._program.stores += 1

    async def commit_group(self) -> None:
        """``cp.async.bulk.commit_group``."""
        self._add(Opcode.REQUEST, self._payload("COMMIT_GROUP"))

    async def wait_group(self, groups: int, *, read: bool = False) -> None:
        """``cp.async.bulk.wait_group``, with ``read`` ``.read``."""
        operation = "WAIT_GROUP_READ" if read else "WAIT_GROUP"
        self._add(Opcode.GROUP_WAIT, self._payload(operation, groups=groups))

    def _map(self, tensor_map: TensorMapHandle) -> bytes:
        return self._device.maps[tensor_map.address].tobytes()

    def _issue(
        self, operation: str, tensor_map: TensorMapHandle, coords: Sequence[int], **operands: int
    ) -> None:
        walk = {"global_address": tensor_map.address, "rank": len(coords), "coords": coords}
        self._add(Opcode.REQUEST, self._payload(operation, **walk, **operands))

    def _payload(self, operation: str, **operands: Any) -> int:
        self._requests += 1
        values = {"operation": operation, "request_id": self._requests, **operands}
        return packed(self._request, values)

    # Shared memory

    async def stmatrix(self, tile: Tile, values: NDArray[Any]) -> None:
        """``stmatrix`` of a whole tile."""
        rows = np.ascontiguousarray(values).view(np.uint8)
        self._shared[tile.pieces] = rows.reshape(tile.shape[0], -1, PIECE_BYTES)
        self._access(Opcode.WRITE, tile)

    def check(self, tile: Tile) -> None:
        """Compare a tile with that of the golden model."""
        self._access(Opcode.CHECK, tile)

    async def fence_proxy_async(self, **_: Any) -> None:
        """``fence.proxy.async``: the bench needs none."""

    async def bar_sync(self, number: int, threads: int) -> None:
        """``bar.sync``: there is a single thread."""

    @property
    def _shared(self) -> NDArray[np.uint8]:
        return self._golden.smem[0].reshape(-1, PIECE_BYTES)

    def _access(self, opcode: Opcode, tile: Tile) -> None:
        pieces = self._shared[tile.piece_range].copy()
        first = tile.piece_range.start
        self._add(opcode, first | len(pieces) << 32 | self._pieces << 64)
        self._program.data.append(pieces)
        self._pieces += len(pieces)

    def _add(self, opcode: Opcode, operand: int) -> None:
        self._program.words.append(opcode | operand << OPCODE_BITS)


def gemm_program(gemm: Gemm, interface: Interface) -> Program:
    """Return the loads of a GEMM, with a check of each stage, and its stores if the unit has them.

    One thread does what all roles do: it fills the ring of stages as far as they reach, then waits
    for each, compares it, releases it and fills it again. The operands are those of the kernel.

    Raises
    ------
    KernelError
        If the golden model's C is not NumPy's.
    """
    places = Places()
    device = Device(places, gemm.arch)
    gemm.host(device)
    layout = SmemLayout(interface.parameters["smem_bytes"])
    gemm.smem(layout)
    program = Program(before=places.flat())
    program.after = program.before.copy()
    golden = Cluster(ArrayMemory(program.after, MAPS), smem_bytes=layout.limit)
    thread = Thread(interface, device, golden, program)
    asyncio.run(_run(gemm, thread, stores=bool(interface.parameters["stores"])))
    places.put_back(program.after)
    if interface.parameters["stores"]:
        check = gemm.check()
        if check.wrong:
            raise KernelError(str(check))
    return program


async def _run(gemm: Gemm, thread: Thread, *, stores: bool) -> None:
    wg, pipeline = cast(Warpgroup, thread), gemm.pipeline
    filled, used = pipeline.producer_state(), pipeline.consumer_state()
    steps = gemm.steps()

    async def fill(number: int) -> None:
        for corner in islice(steps, number):
            await pipeline.producer_acquire(wg, filled)
            await gemm.load_stage(wg, filled, gemm.map_a, gemm.map_b, corner)

    await pipeline.init(wg, 1)
    await fill(pipeline.stages)
    for m, n, k_steps in gemm.tiles():
        for _ in k_steps:
            await pipeline.consumer_wait(wg, used)
            thread.check(gemm.tile_a[used.index])
            thread.check(gemm.tile_b[used.index])
            await pipeline.consumer_release(wg, used)
            used.advance()
            await fill(1)
        if stores:
            await _store(gemm, wg, m, n, k_steps)
    if stores:
        await wg.wait_group(0)


async def _store(gemm: Gemm, wg: Warpgroup, m: int, n: int, k_steps: range) -> None:
    a, b = gemm.operands
    for number in range(CONSUMERS):
        rows = consumer_rows(number)
        values = np.zeros((ROWS, gemm.tile_b[0].shape[0]), np.float32)
        part = product_of(a[m + rows.start : m + rows.stop], b[n : n + values.shape[1]], k_steps)
        values[: part.shape[0], : part.shape[1]] = part
        await store_tile(wg, gemm.staging[number], values, gemm.map_c, (n, m + rows.start))
