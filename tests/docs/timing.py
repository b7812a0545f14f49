"""Timing diagrams of docs/integration.md: ``python -m tests.docs.timing`` writes docs/timing.

Each diagram shows clocks of a simulation of the RTL, which a test repeats.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from golden import TensorMap, mbarrier
from hw.axi.port import AxiPort
from hw.flow.cache import ROOT
from hw.host.front_end import HostFrontEnd
from hw.host.registers import Register
from hw.layouts.axi import Response
from hw.layouts.barriers import BarrierOp
from hw.layouts.isa import Operation
from hw.params import PRESETS
from hw.top import Tma
from tests.docs.ports import handshake, lanes, name_of, receive, send, simulation
from tests.docs.waves import Recorder, Wave, drawn

FOLDER = ROOT / "docs" / "timing"

LINE = 32
UNIT = replace(PRESETS["tiny"], line_bytes=LINE, stores=True, bulk=True)
"""A unit with two lanes."""
AXI = replace(PRESETS["axi"], line_bytes=LINE)
"""A line is a burst of four beats."""
HOST = PRESETS["host"]

MAP, TENSOR, TILE, BARRIER = 0x40, 0x1000, 0x400, 8
BOX_BYTES, INSIDE = 4 * 64, 2 * 64
"""A box of four rows of 64 bytes. Its last two rows are outside the tensor."""
STORED = 2 * LINE
"""Bytes of a bulk store."""
START = 40
"""Clocks after a reset in which the AXI4 port clears its memories, and more."""


@cache
def requests() -> Recorder:
    """Simulate a load and a request that is refused, and as another part a store."""
    unit = Tma(UNIT)
    simulator = simulation(unit)
    recorder = Recorder(
        simulator,
        handshake("request", unit.request, request_id=str)
        | handshake("descriptor_request", unit.descriptor_request, payload=hex)
        | handshake("descriptor_fill", unit.descriptor_fill, words="w0 to w15")
        | handshake("error", unit.error, request_id=str, code=name_of)
        | handshake("gnic_request", unit.gnic_request, tag=str, line=hex)
        | handshake("gnic_response", unit.gnic_response, tag=str)
        | lanes("smem_write", unit.smem_write)
        | lanes("smem_read", unit.smem_read)
        | handshake("smem_data", unit.smem_data)
        | handshake("gnic_write", unit.gnic_write, tag=str, line=hex)
        | handshake("gnic_ack", unit.gnic_ack, tag=str)
        | handshake("group_result", unit.group_result, request_id=str)
        | handshake("barrier_command", unit.barrier_command, op=name_of, tag=str)
        | handshake("barrier_result", unit.barrier_result, tag=str, waits=str)
        | handshake("barrier_wake", unit.barrier_wake, tag=str, done=str),
    )
    tensor_map = TensorMap.tiled("u32", TENSOR, (16, 8), (64,), (16, 4)).encode()
    words = [int.from_bytes(tensor_map[n : n + 4], "little") for n in range(0, 64, 4)]

    async def thread(ctx: Any) -> None:
        ctx.set(unit.error.ready, 1)
        await ctx.tick().until(unit.control.idle)
        commands = (
            {"op": BarrierOp.INIT, "state": mbarrier.init(1)},
            {"op": BarrierOp.ARRIVE_EXPECT_TX, "lanes": 1, "count": BOX_BYTES},
            {"op": BarrierOp.TRY_WAIT_PARITY, "time_limit": 1000},
        )
        for tag, command in enumerate(commands):
            await send(ctx, unit.barrier_command, {"address": BARRIER, "tag": tag, **command})
        request = {
            "operation": Operation.TENSOR_LOAD,
            "request_id": 1,
            "global_address": MAP,
            "rank": 2,
            "coords": [0, 6, 0, 0, 0],
            "smem_address": TILE,
            "mbarrier": BARRIER,
        }
        misaligned = {"request_id": 2, "coords": [1, 0, 0, 0, 0]}
        await send(ctx, unit.request, request)
        await send(ctx, unit.request, request | misaligned)
        await ctx.tick().until(unit.control.idle)
        recorder.end_part()
        await ctx.tick()
        store = {"operation": Operation.BULK_STORE, "request_id": 3, "size": STORED}
        store |= {"smem_address": TILE, "global_address": TENSOR, "byte_mask": 0xFFFF}
        await send(ctx, unit.request, store)
        await send(ctx, unit.request, {"operation": Operation.COMMIT_GROUP, "request_id": 4})
        await send(ctx, unit.request, {"operation": Operation.WAIT_GROUP, "request_id": 5})

    async def results(ctx: Any) -> None:
        ctx.set(unit.barrier_result.ready, 1)
        ctx.set(unit.barrier_wake.ready, 1)
        (done,) = await ctx.tick().sample(unit.barrier_wake.p.done).until(unit.barrier_wake.valid)
        assert done
        assert (await receive(ctx, unit.group_result)).request_id == 5
        await ctx.tick().repeat(2)

    async def maps(ctx: Any) -> None:
        assert await receive(ctx, unit.descriptor_request) == MAP
        await ctx.tick().repeat(2)
        await send(ctx, unit.descriptor_fill, {"words": words})

    async def global_memory(ctx: Any) -> None:
        """Take two reads, and answer the second one first."""
        for _ in range(INSIDE // LINE // 2):
            reads = [await receive(ctx, unit.gnic_request) for _ in range(2)]
            await ctx.tick().repeat(3)
            for read in reversed(reads):
                await send(ctx, unit.gnic_response, {"tag": read.tag})
        writes = [await receive(ctx, unit.gnic_write) for _ in range(STORED // LINE)]
        await ctx.tick().repeat(3)
        for write in writes:
            await send(ctx, unit.gnic_ack, {"tag": write.tag})

    async def shared_memory(ctx: Any) -> None:
        """Take two beats, and let the next one wait for a clock."""
        for n in range(BOX_BYTES // LINE):
            if n and n % 2 == 0:
                ctx.set(unit.smem_write.ready, 0)
                await ctx.tick().until(unit.smem_write.valid)
            ctx.set(unit.smem_write.ready, 1)
            await ctx.tick().until(unit.smem_write.valid)
        for _ in range(STORED // LINE):
            await receive(ctx, unit.smem_read)
            await send(ctx, unit.smem_data, [0] * UNIT.lanes)

    async def barrier_memory(ctx: Any) -> None:
        port, held = unit.barrier_memory, {}
        async for _, _, reads, read, writes, write, value in ctx.tick().sample(
            *(port.read_en, port.read_address, port.write_en, port.write_address, port.write_data)
        ):
            if reads:
                ctx.set(port.read_data, held.get(read, 0))
            if writes:
                held[write] = value

    for drive in thread, results, maps, global_memory, shared_memory:
        simulator.add_testbench(drive)
    simulator.add_process(barrier_memory)
    simulator.run()
    return recorder


@cache
def axi_read() -> Recorder:
    """Simulate two reads at the AXI4 port, whose beats are mixed."""
    port = AxiPort(AXI)
    simulator = simulation(port)
    texts = {"arid": str, "araddr": hex, "arlen": str, "rid": str, "rdata": hex}
    waves = handshake("gnic_request", port.gnic_request, tag=str, line=hex)
    for channel, fields in ("ar", ("id", "addr", "len")), ("r", ("id", "data")):
        valid = getattr(port, f"m_axi_{channel}valid")
        waves[f"m_axi_{channel}valid"] = Wave(valid)
        waves[f"m_axi_{channel}ready"] = Wave(getattr(port, f"m_axi_{channel}ready"))
        for field in fields:
            value = getattr(port, f"m_axi_{channel}{field}")
            waves[f"m_axi_{channel}{field}"] = Wave(value, texts[channel + field], valid)
    waves["m_axi_rlast"] = Wave(port.m_axi_rlast)
    waves |= handshake("gnic_response", port.gnic_response, tag=str)
    recorder = Recorder(simulator, waves)

    async def unit(ctx: Any) -> None:
        await ctx.tick().repeat(START)
        for tag in range(2):
            read = {"tag": tag, "line": 8 + 4 * tag}
            await send(ctx, port.gnic_request, read)
        for _ in range(2):
            await receive(ctx, port.gnic_response)
        await ctx.tick().repeat(2)

    async def memory(ctx: Any) -> None:
        ctx.set(port.m_axi_arready, 1)
        for _ in range(2):
            await ctx.tick().until(port.m_axi_arvalid)
        await ctx.tick().repeat(2)
        for number, beat in (0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3):
            ctx.set(port.m_axi_rid, number)
            ctx.set(port.m_axi_rdata, 16 * number + beat)
            ctx.set(port.m_axi_rlast, int(beat == 3))
            ctx.set(port.m_axi_rvalid, 1)
            await ctx.tick().until(port.m_axi_rready)
        ctx.set(port.m_axi_rlast, 0)
        ctx.set(port.m_axi_rvalid, 0)

    simulator.add_testbench(unit)
    simulator.add_testbench(memory)
    simulator.run()
    return recorder


@cache
def register_write() -> Recorder:
    """Simulate a write of a register of the host front end, and one that is refused."""
    front_end = HostFrontEnd(HOST)
    simulator = simulation(front_end)
    recorder = Recorder(
        simulator,
        handshake("s_axi_aw", front_end.aw, addr=hex)
        | handshake("s_axi_w", front_end.w, data=hex)
        | handshake("s_axi_b", front_end.b, resp=name_of),
    )

    async def write(ctx: Any, register: Register, value: int) -> Response:
        await send(ctx, front_end.aw, {"addr": register})
        await send(ctx, front_end.w, {"data": value, "strb": 0xF})
        return (await receive(ctx, front_end.b)).resp

    async def host(ctx: Any) -> None:
        await ctx.tick()
        assert await write(ctx, Register.REQUEST_SIZE, 4) == Response.OKAY
        assert await write(ctx, Register.STATUS, 1) == Response.SLVERR
        await ctx.tick().repeat(2)

    simulator.add_testbench(host)
    simulator.run()
    return recorder


def diagrams() -> dict[str, str]:
    """Return the SVG of each diagram, by the name of its file."""
    unit, axi, registers = requests(), axi_read(), register_write()
    request = "request", "descriptor_request", "descriptor_fill", "error"
    barrier = "barrier_command", "barrier_result", "barrier_wake"
    lines = "gnic_request", "gnic_response"
    store = "request", "smem_read", "smem_data", "gnic_write", "gnic_ack", "group_result"
    writes = "s_axi_aw", "s_axi_w", "s_axi_b"
    read = "gnic_request", "m_axi_ar", "m_axi_r", "gnic_response"
    sources = {
        "request": unit.diagram("A load, and a request that is refused", request, 2),
        "gnic_read": unit.diagram("Reads of lines", lines, 1),
        "smem_write": unit.diagram("Writes to shared memory", ["smem_write"], 1),
        "store": unit.diagram("A store of two lines, and a wait for it", store, 1, part=1),
        "mbarrier": unit.diagram("Operations on an mbarrier", barrier, 3),
        "axi_read": axi.diagram("Two lines of four beats", read, 1),
        "register_write": registers.diagram("Two writes of registers", writes, 2),
    }
    return {f"{name}.svg": drawn(source) for name, source in sources.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the diagrams."""
    argparse.ArgumentParser(prog="python -m tests.docs.timing", description=__doc__).parse_args(
        arguments
    )
    FOLDER.mkdir(exist_ok=True)
    for name, svg in diagrams().items():
        (FOLDER / name).write_text(svg)
        print(f"docs/timing/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
