"""cocotb: an AXI port before the RAM of cocotbext-axi, with pauses, latency and errors.

The environment gives the parameters (``AXI_PARAMS``, JSON), the share of clocks in which a channel
pauses (``AXI_PAUSE``), the latency in clocks and the share of pages that cannot be accessed
(``AXI_FAILS``).
"""

import itertools
import json
import os
import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from cocotbext.axi import AxiBus, AxiRam

from hw.layouts.isa import ElementType, ReductionOp
from hw.layouts.ports import (
    descriptor_fill_layout,
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
)
from hw.params import TmaParams

SIZE = 1 << 20
PAGE = 4096
LINES = 300


class Ram(AxiRam):
    """A RAM with pages that cannot be accessed."""

    def __init__(self, dut, bad_pages: set[int]) -> None:
        super().__init__(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=SIZE)
        self.bad_pages = bad_pages
        for port, access in (self.read_if, "_read"), (self.write_if, "_write"):
            setattr(port, access, self._checked(getattr(port, access)))

    def _checked(self, access):
        async def checked(address, operand):
            if address // PAGE in self.bad_pages:
                raise ValueError("a page that cannot be accessed")
            return await access(address, operand)

        return checked

    def pause(self, share: float, rng: random.Random) -> None:
        """Let each channel pause in a share of the clocks."""
        read, write = self.read_if, self.write_if
        for channel in (read.ar_channel, read.r_channel, write.aw_channel, write.w_channel,
                        write.b_channel):  # fmt: skip
            channel.set_pause_generator(rng.random() < share for _ in itertools.count())


class Source:
    """Offers payloads at a stream into the design."""

    def __init__(self, dut, name: str) -> None:
        self.clk = dut.clk
        self.valid, self.ready, self.payload = (
            getattr(dut, f"{name}__{part}") for part in ("valid", "ready", "payload")
        )
        self.valid.value = 0
        self.waiting: deque[int] = deque()
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await FallingEdge(self.clk)
            if self.waiting:
                self.payload.value = self.waiting[0]
                self.valid.value = 1
                await RisingEdge(self.clk)
                if self.ready.value:
                    self.waiting.popleft()
            else:
                self.valid.value = 0


class Sink:
    """Takes payloads from a stream out of the design, in a share of the clocks."""

    def __init__(self, dut, name: str, share: float, rng: random.Random) -> None:
        self.clk = dut.clk
        self.valid, self.ready, self.payload = (
            getattr(dut, f"{name}__{part}") for part in ("valid", "ready", "payload")
        )
        self.share, self.rng = share, rng
        self.taken: deque[int] = deque()
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await FallingEdge(self.clk)
            self.ready.value = takes = self.rng.random() < self.share
            await RisingEdge(self.clk)
            if takes and self.valid.value:
                self.taken.append(int(self.payload.value))


class Bench:
    """The port, the RAM, and the streams of the unit."""

    def __init__(self, dut) -> None:
        self.dut = dut
        self.params = TmaParams(**json.loads(os.environ["AXI_PARAMS"]))
        self.rng = random.Random(cocotb.RANDOM_SEED)
        pause, fails = float(os.environ["AXI_PAUSE"]), float(os.environ["AXI_FAILS"])
        bad = {page for page in range(SIZE // PAGE) if self.rng.random() < fails}
        self.ram = Ram(dut, bad)
        self.ram.pause(pause, self.rng)
        self.requests, self.writes = Source(dut, "gnic_request"), Source(dut, "gnic_write")
        self.maps = Source(dut, "descriptor_request")
        self.responses, self.acks, self.fills = (
            Sink(dut, name, 1 - pause, self.rng)
            for name in ("gnic_response", "gnic_ack", "descriptor_fill")
        )

    async def reset(self) -> None:
        """Start the clock, reset, and let the port clear its counts."""
        cocotb.start_soon(Clock(self.dut.clk, 10, "ns").start())
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    def fails(self, address: int) -> bool:
        """Return whether an access to ``address`` fails."""
        return address // PAGE in self.ram.bad_pages


def pieces(mask: int) -> int:
    """Return the strobes of the pieces of a mask."""
    return sum(0xFFFF << 16 * number for number in range(mask.bit_length()) if mask >> number & 1)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def copies(dut) -> None:
    """Lines are written or reduced, and read again, each with any free tag, while tensor maps are
    read.
    """
    bench = Bench(dut)
    p, rng, ram = bench.params, bench.rng, bench.ram
    ram.write(0, memory := bytearray(rng.randbytes(SIZE)))
    await bench.reset()
    free, lines = set(range(p.tags)), {}
    lines_left = rng.sample(range(SIZE // p.line_bytes), LINES)
    maps = [64 * rng.randrange(SIZE // 64) for _ in range(20)]
    bench.maps.waiting.extend(maps)
    written = set()
    while lines_left or lines:
        await RisingEdge(dut.clk)
        if lines_left and free:
            line, tag = lines_left.pop(), free.pop()
            at = line * p.line_bytes
            reduces = rng.random() < 0.3
            some = rng.getrandbits(p.line_bytes)
            if reduces:
                some = pieces(rng.randrange(1 << p.lanes))
            strobe = some or (1 << p.line_bytes) - 1
            data = rng.randbytes(p.line_bytes)
            kind = {"enabled": reduces, "element_type": ElementType.U64, "op": ReductionOp.XOR}
            payload = {
                "tag": tag,
                "line": line,
                "reduction": kind,
                "strobe": strobe,
                "data": int.from_bytes(data, "little"),
            }
            bench.writes.waiting.append(gnic_write_layout(p).const(payload).as_value().value)
            lines[tag] = line
            written.add(line)
            if not bench.fails(at):
                for lane in range(p.line_bytes):
                    if strobe >> lane & 1:
                        memory[at + lane] = data[lane] ^ (memory[at + lane] if reduces else 0)
        while bench.acks.taken:
            ack = gnic_ack_layout(p).from_bits(bench.acks.taken.popleft())
            line = lines.pop(ack.tag)
            assert bool(ack.error) == bench.fails(line * p.line_bytes)
            free.add(ack.tag)
    assert ram.read(0, SIZE) == memory
    lines_left = list(written)
    asked: dict[int, int] = {}
    while lines_left or asked:
        await RisingEdge(dut.clk)
        if lines_left and free:
            line, tag = lines_left.pop(), free.pop()
            payload = {"tag": tag, "line": line}
            bench.requests.waiting.append(gnic_request_layout(p).const(payload).as_value().value)
            asked[tag] = line
        while bench.responses.taken:
            response = gnic_response_layout(p).from_bits(bench.responses.taken.popleft())
            at = asked.pop(response.tag) * p.line_bytes
            assert bool(response.error) == bench.fails(at)
            if not response.error:
                assert response.data == int.from_bytes(memory[at : at + p.line_bytes], "little")
            free.add(response.tag)
    while len(bench.fills.taken) < len(maps):
        await RisingEdge(dut.clk)
    for address, bits in zip(maps, bench.fills.taken, strict=True):
        fill = descriptor_fill_layout(p).from_bits(bits)
        assert bool(fill.error) == bench.fails(address)
