"""Runs hardware in Amaranth's simulator: streams with random stalls, and plain functions.

Each run of streams checks the stream law: a payload that a component offers stays offered,
unchanged, until it is taken.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Module, ShapeLike, Signal, Value
from amaranth.sim import Simulator


def evaluate(
    build: Callable[..., Value],
    shapes: Sequence[ShapeLike],
    samples: Sequence[Sequence[Any]],
) -> list[Any]:
    """Return the value of ``build(m, *signals)`` for each of ``samples``.

    ``build`` makes combinational logic in the module ``m``; ``signals`` have ``shapes``.
    """
    m = Module()
    signals = [Signal(shape, name=f"input_{n}") for n, shape in enumerate(shapes)]
    result = build(m, *signals)
    output = Signal(len(Value.cast(result)))
    m.d.comb += output.eq(result)
    sim = Simulator(m)
    values = []

    @sim.add_testbench
    async def bench(ctx):
        for sample in samples:
            for signal, value in zip(signals, sample, strict=True):
                ctx.set(signal, value)
            values.append(ctx.get(output))

    sim.run()
    return values


@dataclass
class Run:
    """Payloads of each output stream, and the clocks of all transfers."""

    payloads: dict[str, list[Any]] = field(default_factory=dict)
    cycles: dict[str, list[int]] = field(default_factory=dict)
    """Clocks in which each payload was taken from the output."""
    offered: dict[str, list[int]] = field(default_factory=dict)
    """Clocks in which the component began to offer each payload."""
    taken: dict[str, list[int]] = field(default_factory=dict)
    """Clocks in which the component took each payload of an input."""


def run_streams(
    dut,
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str],
    *,
    seed: int = 0,
    stall: float = 0.5,
    stalls: Mapping[str, float] | None = None,
    feed: Callable[[Run, int], Mapping[str, Sequence[Any]]] | None = None,
    prepare: Callable[[Any], Awaitable[None]] | None = None,
    until: Callable[[Run], bool] | None = None,
    quiet: int = 100,
    limit: int = 100_000,
) -> Run:
    """Feed ``inputs`` to the ports of ``dut``, and collect the payloads of ``outputs``.

    Each port stalls in the fraction ``stall`` of the clocks; ``stalls`` gives fractions for single
    ports. ``feed`` is called in each clock with the run and the clock, and returns further inputs,
    by port. ``prepare`` is called first, with the simulator's context. The run ends when all inputs
    are taken and no port moved for ``quiet`` clocks, or when ``until`` returns True.

    Raises
    ------
    AssertionError
        If a port breaks the stream law, or the run does not end within ``limit`` clocks.
    """
    run = Run(
        payloads={name: [] for name in outputs},
        cycles={name: [] for name in outputs},
        offered={name: [] for name in outputs},
        taken={name: [] for name in inputs},
    )
    shares = dict.fromkeys((*inputs, *outputs), stall) | dict(stalls or {})
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def bench(ctx):
        if prepare is not None:
            await prepare(ctx)
        rng = random.Random(seed)
        pending = {name: list(payloads) for name, payloads in inputs.items()}
        offered: dict[str, Any] = {}
        idle = 0
        for cycle in range(limit):
            for name, payloads in feed(run, cycle).items() if feed else ():
                pending[name] += payloads
            for name, queue in pending.items():
                port = getattr(dut, name)
                if not ctx.get(port.valid) and queue and rng.random() >= shares[name]:
                    ctx.set(port.payload, queue.pop(0))
                    ctx.set(port.valid, 1)
            for name in outputs:
                ctx.set(getattr(dut, name).ready, rng.random() >= shares[name])
            moved = False
            taken_ports = []
            for name in pending:
                port = getattr(dut, name)
                if ctx.get(port.valid) and ctx.get(port.ready):
                    run.taken[name].append(cycle)
                    taken_ports.append(port)
            for name in outputs:
                port = getattr(dut, name)
                valid, payload = ctx.get(port.valid), ctx.get(port.payload)
                if name in offered:
                    assert valid, f"{name}: a payload was withdrawn before it was taken"
                    assert payload == offered.pop(name), (
                        f"{name}: a payload changed before it was taken"
                    )
                elif valid:
                    run.offered[name].append(cycle)
                if valid and ctx.get(port.ready):
                    run.payloads[name].append(payload)
                    run.cycles[name].append(cycle)
                    moved = True
                elif valid:
                    offered[name] = payload
            await ctx.tick()
            for port in taken_ports:
                ctx.set(port.valid, 0)
            idle = 0 if moved or taken_ports or any(pending.values()) else idle + 1
            if (until and until(run)) or idle > quiet:
                return
        raise AssertionError(f"still busy after {limit} clocks: {run}")

    sim.run()
    return run
