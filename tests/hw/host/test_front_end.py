"""Host front end: the address map of the AXI4-Lite port, and what a host sees of the unit."""

import random

import pytest

from hw.host.front_end import HostFrontEnd
from hw.host.registers import Register
from hw.layouts.axi import Response
from hw.layouts.barriers import BarrierOp
from hw.layouts.host import BARRIER_OPERATIONS, RECORD_BYTES, WINDOW_BITS, record_layout
from hw.params import PRESETS
from tests.hw.simulate import Run, run_streams, simulation

PARAMS = PRESETS["host"]
WINDOW = 1 << WINDOW_BITS
ADDRESSES = {
    Register.ID: None,
    0x50: None,
    WINDOW - 4: None,
    WINDOW: 0,
    WINDOW + 0x1234: 0x1234,
    WINDOW + PARAMS.smem_bytes - 4: PARAMS.smem_bytes - 4,
    WINDOW + PARAMS.smem_bytes: None,
    2 * WINDOW - 4: None,
}
"""Offset in shared memory of each address of the bus; None where there is none."""


@pytest.mark.parametrize("is_write", [0, 1])
def test_addresses(is_write: int) -> None:
    """Each access has one answer, of the memory or of the registers; none is lost."""
    rng = random.Random(is_write)
    addresses = [rng.choice(list(ADDRESSES)) for _ in range(60)]
    words = [rng.getrandbits(32) for _ in addresses]

    left = iter(words)
    answered: list[int] = []

    def feed(run: Run, _cycle: int) -> dict[str, list]:
        if len(answered) == len(run.payloads["smem_access"]) or rng.random() < 0.5:
            return {}
        answered.append(next(left))
        return {"smem_answer": [{"data": answered[-1], "error": 0}]}

    inputs: dict[str, list] = {"smem_answer": []}
    channel = "aw" if is_write else "ar"
    inputs[channel] = [{"addr": address, "prot": 0} for address in addresses]
    if is_write:
        inputs["w"] = [{"data": word, "strb": 5} for word in words]
    outputs = ["smem_access", "b", "r"]
    run = run_streams(simulation(HostFrontEnd, PARAMS), inputs, outputs, feed=feed, seed=1)
    offsets = [ADDRESSES[address] for address in addresses]
    assert [access.address for access in run.payloads["smem_access"]] == [
        offset for offset in offsets if offset is not None
    ]
    assert all(access.is_write == is_write for access in run.payloads["smem_access"])
    answers = run.payloads["b" if is_write else "r"]
    memory = iter(words)
    for address, offset, answer in zip(addresses, offsets, answers, strict=True):
        is_refused = offset is None and (is_write or address != Register.ID)
        assert answer.resp == (Response.SLVERR if is_refused else Response.OKAY)
        if offset is not None and not is_write:
            assert answer.data == next(memory)


def test_the_unit_is_not_idle_before_it_has_noticed_a_record() -> None:
    """STATUS.IDLE is 0 behind the last record, although ``idle`` of the unit is still 1."""
    sim = simulation(HostFrontEnd, PARAMS)
    dut = sim.dut

    async def drive(ctx) -> None:
        async def put(port, **fields) -> None:
            ctx.set(port.payload, fields)
            ctx.set(port.valid, 1)
            while not ctx.get(port.ready):
                await ctx.tick()
            await ctx.tick()
            ctx.set(port.valid, 0)

        async def write(register: Register, data: int) -> None:
            await put(dut.aw, addr=register, prot=0)
            await put(dut.w, data=data, strb=15)
            while not ctx.get(dut.b.valid):
                await ctx.tick()
            assert ctx.get(dut.b.p.resp) is Response.OKAY
            await ctx.tick()

        async def status() -> int:
            await put(dut.ar, addr=Register.STATUS, prot=0)
            while not ctx.get(dut.r.valid):
                await ctx.tick()
            data = ctx.get(dut.r.p.data)
            await ctx.tick()
            return data

        for port in dut.b, dut.r, dut.record_fetch, dut.barrier_command:
            ctx.set(port.ready, 1)
        ctx.set(dut.idle, 1)
        await ctx.tick().repeat(10)
        assert await status() == 1
        for register in Register.REQUEST_SIZE, Register.COMPLETION_SIZE:
            await write(register, 2)
        await write(Register.CONTROL, 1)
        await write(Register.REQUEST_TAIL, 1)
        assert await status() & 1 == 0
        operation = BARRIER_OPERATIONS + BarrierOp.ARRIVE.value
        record = record_layout(PARAMS).const({"operation": operation}).as_value().value
        words = [record >> 32 * n & 0xFFFF_FFFF for n in range(RECORD_BYTES // 4)]
        await put(dut.record_fill, words=words, error=0)
        while not ctx.get(dut.barrier_command.valid):
            await ctx.tick()
        await ctx.tick()
        assert await status() & 1 == 0
        await ctx.tick().repeat(10)
        assert await status() == 1

    sim.run(drive)
