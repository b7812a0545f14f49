"""A host of ``tma_host`` in cocotb: registers, rings of records, and the memory behind AXI4.

The memory has a hash of its address in each byte, as the golden model's ``HashedMemory``, but for a
part that can be written.
"""

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiResp, AxiSlave

from golden.mbarrier import init
from golden.memory import Addresses, Bytes, hashed
from hw.host.registers import Register
from hw.layouts.barriers import BarrierOp
from hw.layouts.host import (
    BARRIER_OPERATIONS,
    COMPLETION_BYTES,
    RECORD_BYTES,
    Completion,
    CompletionKind,
    HostError,
    record_layout,
)
from hw.layouts.isa import Operation
from hw.params import TmaParams

FIRST, SIZE = 0x4000_0000, 0x40_0000
"""Address and bytes of the memory that can be written."""

REQUESTS, COMPLETIONS, MAPS, IMAGE, STORES = (FIRST + n * 0x8_0000 for n in range(5))
"""Addresses of the rings, of tensor maps, of images of shared memory, and of stored tensors."""

PAGE = 4096
PATIENCE = 20_000
"""Clocks after which a wait fails."""


class Memory:
    """Memory behind AXI4, and global memory of the golden model.

    Parameters
    ----------
    rng : random.Random
    latency : int
        Most clocks that an access takes.
    """

    def __init__(self, rng: random.Random, latency: int) -> None:
        self.rng, self.latency = rng, latency
        self.clk = None
        self.bytes = np.zeros(SIZE, np.uint8)
        self.bad_pages: set[int] = set()

    async def _wait(self, address: int) -> None:
        if self.latency and self.rng.random() < 0.2:
            await ClockCycles(self.clk, self.rng.randrange(1, self.latency + 1))
        if address // PAGE in self.bad_pages:
            raise ValueError("a page that cannot be accessed")

    async def _read(self, address: int, length: int) -> bytes:
        await self._wait(address)
        return self.get(address, length)

    async def _write(self, address: int, data: bytes) -> None:
        await self._wait(address)
        self.put(address, data)

    def get(self, address: int, length: int) -> bytes:
        """Return bytes."""
        if FIRST <= address <= FIRST + SIZE - length:
            return self.bytes[address - FIRST :][:length].tobytes()
        return self.read(address + np.arange(length, dtype=np.uint64)).tobytes()

    def put(self, address: int, data: bytes) -> None:
        """Write bytes; those outside of the part that can be written are lost."""
        if FIRST <= address <= FIRST + SIZE - len(data):
            self.bytes[address - FIRST :][: len(data)] = np.frombuffer(data, np.uint8)

    def read(self, addresses: Addresses) -> Bytes:
        """Return the bytes at ``addresses``, for the golden model."""
        found = hashed(addresses)
        place = (addresses & np.uint64(0xFFFF_FFFF)).astype(np.int64) - FIRST
        kept = (place >= 0) & (place < SIZE)
        found[kept] = self.bytes[place[kept]]
        return found

    def write(self, addresses: Addresses, data: Bytes) -> None:
        """Refuse a write of the golden model, which has a memory of its own for stores."""
        raise AssertionError(f"{addresses} are written")


@dataclass
class Ring:
    """A ring as a host knows it: its address, its records as a power of two, and an index."""

    address: int
    size: int
    index: int = 0
    round: int = 0
    """Rounds of ``index``."""

    def advance(self) -> None:
        """Go on to the next record."""
        self.index += 1
        if self.index == 1 << self.size:
            self.index, self.round = 0, self.round + 1


@dataclass
class Host:
    """A host, and the test bench around the unit.

    Parameters
    ----------
    dut : the design
    params : TmaParams
    rng : random.Random
    pause : float
        Share of the clocks in which each channel of both buses pauses.
    latency : int
        See ``Memory``.
    """

    dut: Any
    params: TmaParams
    rng: random.Random
    pause: float = 0.0
    latency: int = 0
    completions: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        dut, rng = self.dut, self.rng
        self.memory = Memory(rng, self.latency)
        self.memory.clk = dut.clk
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
        self.slave = AxiSlave(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, target=None)
        self.slave.read_if._read = self.memory._read
        self.slave.write_if._write = self.memory._write
        self.master.read_if.log.setLevel("WARNING")
        for part in self.slave.read_if, self.slave.write_if, self.master.write_if:
            part.log.setLevel("ERROR")
        if self.pause:
            for part in (self.slave.read_if, self.slave.write_if, self.master.read_if,
                         self.master.write_if):  # fmt: skip
                for name in "ar_channel", "r_channel", "aw_channel", "w_channel", "b_channel":
                    if hasattr(part, name):
                        pauses = (rng.random() < self.pause for _ in itertools.count())
                        getattr(part, name).set_pause_generator(pauses)

    # Registers and shared memory

    async def get(self, address: int) -> int | None:
        """Read a register or a word of shared memory; return None if that is refused."""
        answer = await self.master.read(address, 4)
        return int.from_bytes(answer.data, "little") if answer.resp == AxiResp.OKAY else None

    async def set(self, address: int, value: int, count: int = 4) -> bool:
        """Write a register, or bytes of a word; return whether that is accepted."""
        answer = await self.master.write(address, value.to_bytes(count, "little"))
        return bool(answer.resp == AxiResp.OKAY)

    async def take_error(self) -> tuple[HostError, int | None]:
        """Return the error that is kept and its value, and clear it."""
        code, value = await self.get(Register.ERROR), await self.get(Register.ERROR_VALUE)
        assert await self.set(Register.ERROR, 0)
        return HostError(code), value

    async def until(self, wanted: int, mask: int = 1) -> None:
        """Wait until bits of STATUS have a value."""
        for _ in range(PATIENCE):
            if await self.get(Register.STATUS) & mask == wanted:
                return
        raise AssertionError(f"STATUS & {mask} is not {wanted}")

    # Rings

    async def start(self, request_size: int = 6, completion_size: int = 6) -> None:
        """Reset the unit, and set up the rings."""
        cocotb.start_soon(Clock(self.dut.clk, 10, "ns").start())
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await self.until(1)
        await self.open(request_size, completion_size)

    async def open(self, request_size: int, completion_size: int, offset: int = 0) -> None:
        """Set up the rings and enable them."""
        self.requests = Ring(REQUESTS + offset, request_size)
        self.answers = Ring(COMPLETIONS + offset, completion_size)
        self.memory.put(self.answers.address, bytes(COMPLETION_BYTES << completion_size))
        for name, ring in ("REQUEST", self.requests), ("COMPLETION", self.answers):
            assert await self.set(Register[f"{name}_BASE_LOW"], ring.address)
            assert await self.set(Register[f"{name}_BASE_HIGH"], 0)
            assert await self.set(Register[f"{name}_SIZE"], ring.size)
        assert await self.set(Register.CONTROL, 1)

    async def close(self) -> None:
        """Disable the rings, and wait until all that was begun has ended."""
        assert await self.set(Register.CONTROL, 0)
        await self.until(1)

    def record(self, operation: int, **values: Any) -> int:
        """Return a request record."""
        flags = {name: values.pop(name, 0) for name in ("fence", "notify", "joins_group", "v1")}
        fields = {"operation": operation, "flags": flags, **values}
        return record_layout(self.params).const(fields).as_value().value

    def barrier(self, operation: BarrierOp, mbarrier: int, **values: Any) -> int:
        """Return the record of a barrier operation."""
        return self.record(BARRIER_OPERATIONS + operation.value, mbarrier=mbarrier, **values)

    def request(self, operation: Operation, **values: Any) -> int:
        """Return the record of a request."""
        return self.record(operation.value, **values)

    async def post(self, records: Iterable[int], *, rings: bool = True) -> None:
        """Write records to the ring, as there is room, and ring the doorbell behind the last."""
        for record in records:
            ring = self.requests
            free = 0
            for _ in range(PATIENCE):
                free = (await self.get(Register.REQUEST_HEAD) - ring.index - 1) % (1 << ring.size)
                if free:
                    break
                assert await self.set(Register.REQUEST_TAIL, ring.index)
                await self.poll()
            assert free, "the ring stays full"
            place = ring.address + ring.index * RECORD_BYTES
            self.memory.put(place, record.to_bytes(RECORD_BYTES, "little"))
            ring.advance()
        if rings:
            assert await self.set(Register.REQUEST_TAIL, self.requests.index)

    async def poll(self) -> None:
        """Take the completion records that are in memory, and tell the unit."""
        ring, old = self.answers, self.answers.index
        while True:
            place = ring.address + ring.index * COMPLETION_BYTES
            bits = int.from_bytes(self.memory.get(place, COMPLETION_BYTES), "little")
            record = Completion.from_bits(bits)
            if record.phase != 1 - ring.round % 2:
                break
            assert record.zero == 0
            self.completions.append(record)
            ring.advance()
        if ring.index != old:
            assert await self.set(Register.COMPLETION_HEAD, ring.index)

    async def take(self, kind: CompletionKind, request_id: int) -> Any:
        """Wait for a completion record, and take it."""
        for _ in range(PATIENCE // 20):
            await self.poll()
            for record in self.completions:
                if (record.kind, record.request_id) == (kind, request_id):
                    self.completions.remove(record)
                    return record
            await ClockCycles(self.dut.clk, 20)
        raise AssertionError(f"no record of {kind.name} {request_id}: {self.completions}")

    # Shared memory by bulk copies

    async def save(self, address: int, count: int, smem_address: int = 0) -> Bytes:
        """Store bytes of shared memory when all that was begun has ended; return them."""
        number = 0x7F
        await self.post(
            [
                self.request(Operation.BULK_STORE, fence=1, global_address=address, size=count,
                             smem_address=smem_address, byte_mask=0xFFFF),
                self.request(Operation.COMMIT_GROUP),
                self.request(Operation.WAIT_GROUP, request_id=number),
            ]
        )  # fmt: skip
        await self.take(CompletionKind.GROUP, number)
        return np.frombuffer(self.memory.get(address, count), np.uint8)

    async def fill(self, data: Bytes, mbarrier: int, smem_address: int = 0) -> None:
        """Load bytes into shared memory when all that was begun has ended."""
        self.memory.put(IMAGE, data.tobytes())
        operation = self.request(Operation.BULK_LOAD, global_address=IMAGE, size=len(data),
                                 smem_address=smem_address, mbarrier=mbarrier)  # fmt: skip
        done = await self.load(operation, mbarrier, len(data))
        assert done.detail

    async def load(self, record: int, mbarrier: int, count: int, limit: int = PATIENCE) -> Any:
        """Post a load of so many bytes behind a new barrier, and wait for it."""
        number = 0x7E
        await self.post(
            [
                self.barrier(BarrierOp.INIT, mbarrier, fence=1, size=1,
                             global_address=init(1)),
                self.barrier(BarrierOp.ARRIVE_EXPECT_TX, mbarrier, size=count),
                record,
                self.barrier(BarrierOp.TRY_WAIT_PARITY, mbarrier, notify=1, request_id=number,
                             coords=[limit, 0, 0, 0, 0]),
            ]
        )  # fmt: skip
        return await self.take(CompletionKind.BARRIER, number)
