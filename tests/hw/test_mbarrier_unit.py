"""mbarrier unit: operation by operation the golden model, at one a clock."""

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from amaranth.sim import Simulator

from golden import mbarrier as golden
from golden.errors import TmaError
from golden.mbarrier import MAX_COUNT, Barrier
from hw.layouts import BarrierOp
from hw.mbarrier_unit import MbarrierUnit
from hw.params import TmaParams

PARAMS = TmaParams()


@dataclass
class Observed:
    """What the unit did: operations in the order of their acceptance, results, faults, memory."""

    accepted: list[tuple[str, int, int]] = field(default_factory=list)
    results: list[tuple[int, int, int, int]] = field(default_factory=list)
    faults: list[tuple[int, int]] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)
    cycles: int = 0
    waited: int = 0
    """Most clocks in a row that a completion waited."""


def operate(
    commands: list[tuple[BarrierOp, int, int]],
    completions: list[tuple[int, int]],
    *,
    seed: int = 0,
    stall: float = 0.5,
    memory: dict[int, int] | None = None,
) -> Observed:
    """Apply (op, address, count) commands and (address, bytes) completions."""
    dut = MbarrierUnit(PARAMS)
    seen = Observed(memory=dict(memory or {}))
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def bench(ctx):
        rng = random.Random(seed)
        todo = {"command": list(enumerate(commands)), "completion": list(enumerate(completions))}
        waiting = quiet = 0
        read: int | None = None
        while quiet < 20:
            for name, queue in todo.items():
                port = getattr(dut, name)
                if ctx.get(port.valid) or not queue or rng.random() < stall:
                    continue
                number, item = queue[0]
                if name == "command":
                    op, address, count = item
                    payload = {"op": op, "address": address, "count": count, "tag": number % 256}
                else:
                    payload = {"request_id": number, "address": item[0], "tx_bytes": item[1]}
                ctx.set(port.payload, payload)
                ctx.set(port.valid, 1)
            ctx.set(dut.result.ready, rng.random() >= stall)
            ctx.set(dut.fault.ready, rng.random() >= stall)
            if read is not None:
                ctx.set(dut.memory.read_data, read)

            taken = []
            for name, queue in todo.items():
                port = getattr(dut, name)
                if ctx.get(port.valid) and ctx.get(port.ready):
                    _, item = queue.pop(0)
                    op = item if name == "command" else (BarrierOp.COMPLETE_TX, *item)
                    seen.accepted.append((name, *op))
                    taken.append(port)
            assert len(taken) <= 1
            is_waiting = ctx.get(dut.completion.valid) and not ctx.get(dut.completion.ready)
            waiting = waiting + 1 if is_waiting else 0
            seen.waited = max(seen.waited, waiting)
            if ctx.get(dut.result.valid) and ctx.get(dut.result.ready):
                result = ctx.get(dut.result.payload)
                seen.results.append((result.tag, result.done, result.error, result.state))
            if ctx.get(dut.fault.valid) and ctx.get(dut.fault.ready):
                fault = ctx.get(dut.fault.payload)
                seen.faults.append((fault.request_id, fault.address))
            read = None
            if ctx.get(dut.memory.read_en):
                read = seen.memory.get(ctx.get(dut.memory.read_address) * 8, 0)
            if ctx.get(dut.memory.write_en):
                address = ctx.get(dut.memory.write_address) * 8
                seen.memory[address] = ctx.get(dut.memory.write_data)
            await ctx.tick()
            for port in taken:
                ctx.set(port.valid, 0)
            quiet = 0 if taken or any(todo.values()) else quiet + 1
            seen.cycles += 1

    sim.run()
    return seen


def model(
    accepted: list[tuple[str, BarrierOp, int, int]], memory: dict[int, int]
) -> tuple[list[tuple[int, int, int]], list[int], dict[int, int]]:
    """Results, addresses of faults, and memory, by the golden model in the order of acceptance."""
    results, faults = [], []
    functions = {
        BarrierOp.ARRIVE: golden.arrive,
        BarrierOp.EXPECT_TX: golden.expect_tx,
        BarrierOp.ARRIVE_EXPECT_TX: golden.arrive_expect_tx,
        BarrierOp.COMPLETE_TX: golden.complete_tx,
    }
    memory = dict(memory)
    for source, op, address, count in accepted:
        before = memory.get(address, 0)
        done = error = 0
        if op is BarrierOp.INIT:
            error = not 1 <= count <= MAX_COUNT
            if not error:
                memory[address] = golden.init(count)
        elif op is BarrierOp.INVAL:
            memory[address] = golden.inval()
        elif op is BarrierOp.TEST_WAIT_PARITY:
            error = Barrier.decode(before).lock
            done = not error and golden.test_wait_parity(before, count & 1)
        else:
            try:
                memory[address] = functions[op](before, count)
            except TmaError as fault:
                memory[address] = fault.value
                error = 1
        if source == "command":
            results.append((int(done), int(error), before))
        elif error:
            faults.append(address)
    return results, faults, memory


def check(seen: Observed, memory: dict[int, int] | None = None) -> None:
    results, faults, after = model(seen.accepted, memory or {})
    assert [result[1:] for result in seen.results] == results
    assert [result[0] for result in seen.results] == [n % 256 for n in range(len(results))]
    assert [address for _, address in seen.faults] == faults
    assert {a: w for a, w in seen.memory.items() if w} == {a: w for a, w in after.items() if w}


@pytest.mark.parametrize("stall", [0, 0.5, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_is_the_golden_model(seed, stall):
    rng = random.Random(seed)
    addresses = [0, 8, 64, 0x38000]
    small = [0, 1, 1, 1, 2, 16, 100]
    edge = [MAX_COUNT, MAX_COUNT + 1, 2 * MAX_COUNT, 1 << 20, (1 << 21) - 1]
    commands = []
    for _ in range(300):
        op = rng.choice([*BarrierOp, BarrierOp.TEST_WAIT_PARITY, BarrierOp.INIT])
        count = rng.choice(small) if rng.random() < 0.9 else rng.choice(edge)
        if op is BarrierOp.INIT and rng.random() < 0.9:
            count = rng.choice((1, 2, 3))
        commands.append((op, rng.choice(addresses), count))
    completions = [(rng.choice(addresses), rng.choice([*small, MAX_COUNT])) for _ in range(200)]
    seen = operate(commands, completions, seed=seed, stall=stall)
    assert len(seen.accepted) == 500
    check(seen)


@pytest.mark.parametrize("address", [0, 1000 * 8])
def test_one_operation_a_clock_on_one_barrier(address):
    commands = [(BarrierOp.INIT, address, 1), *[(BarrierOp.ARRIVE, address, 1)] * 100]
    seen = operate(commands, [], stall=0)
    check(seen)
    assert seen.cycles <= 101 + 24  # 20 of them after the last
    assert Barrier.decode(seen.memory[address]).phase == 0


def test_commands_and_completions_take_turns():
    memory = {0: golden.init(1), 8: golden.init(1)}
    commands = [(BarrierOp.EXPECT_TX, 0, 16)] * 50
    seen = operate(commands, [(8, 16)] * 50, stall=0, memory=memory)
    check(seen, memory)
    sources = [source for source, *_ in seen.accepted]
    assert all(a != b for a, b in pairwise(sources[2:91]))
    assert seen.waited <= 1


@pytest.mark.parametrize(("count", "word"), [(1, 0x7FFFF800_001FFFFE), (32, 0x7FFF0000_001FFFC0)])
def test_words_of_the_compiler(count, word):
    assert operate([(BarrierOp.INIT, 0, count)], []).memory[0] == word


def test_a_completion_that_cannot_be_taken_names_its_request():
    memory = {0: golden.init(1)}
    seen = operate([], [(0, MAX_COUNT), (0, 16)], memory=memory)
    check(seen, memory)
    assert seen.faults == [(1, 0)]
