"""Runs hardware in Amaranth's simulator: streams with random stalls, and plain functions.

Each run of streams checks the stream law: a payload that a component offers stays offered,
unchanged, until it is taken.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
    async def drive(ctx):
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


class Simulation:
    """A component in Amaranth's simulator, elaborated and compiled once and run many times.

    Elaboration takes longer than most runs. Each run begins from the reset state.
    """

    def __init__(self, dut):
        self.dut = dut
        self._simulator: Simulator | None = None
        self._drive: Callable[[Any], Awaitable[None]] | None = None

    def run(self, drive: Callable[[Any], Awaitable[None]]) -> None:
        """Run the component until the coroutine function ``drive`` returns."""
        if self._simulator is None:
            self._simulator = Simulator(self.dut)
            self._simulator.add_clock(1e-9)
            self._simulator.add_testbench(self._run_drive)
        else:
            self._simulator.reset()
        self._drive = drive
        try:
            self._simulator.run()
        except BaseException:
            self._simulator = None  # the coroutine that failed still waits in it
            raise

    async def _run_drive(self, ctx) -> None:
        await self._drive(ctx)


@lru_cache(maxsize=32)
def simulation(component: Callable[..., Any], *arguments: Any, **options: Any) -> Simulation:
    """Return the simulation of ``component(*arguments, **options)``, shared by all its callers."""
    return Simulation(component(*arguments, **options))


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

    ``dut`` is a component, or a ``Simulation`` of one that is run several times. Each port stalls
    in the fraction ``stall`` of the clocks; ``stalls`` gives fractions for single ports. ``feed``
    is called in each clock with the run and the clock, and returns further inputs, by port.
    ``prepare`` is called first, with the simulator's context. The run ends when all inputs are
    taken and no port moved for ``quiet`` clocks, or when ``until`` returns True.

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
    sim = dut if isinstance(dut, Simulation) else Simulation(dut)
    dut = sim.dut

    # Looked up once: a name of a port costs more than its value.
    ports = {name: getattr(dut, name) for name in (*inputs, *outputs)}
    valids = {name: port.valid for name, port in ports.items()}
    readies = {name: port.ready for name, port in ports.items()}
    payloads = {name: port.payload for name, port in ports.items()}

    async def drive(ctx):
        if prepare is not None:
            await prepare(ctx)
        rng = random.Random(seed)
        pending = {name: list(items) for name, items in inputs.items()}
        offering: set[str] = set()
        offered: dict[str, Any] = {}
        idle = 0
        for cycle in range(limit):
            for name, more in feed(run, cycle).items() if feed else ():
                pending[name] += more
            for name, queue in pending.items():
                if name not in offering and queue and rng.random() >= shares[name]:
                    ctx.set(payloads[name], queue.pop(0))
                    ctx.set(valids[name], 1)
                    offering.add(name)
            for name in outputs:
                ctx.set(readies[name], rng.random() >= shares[name])
            moved = False
            done = []
            for name in pending:
                if name in offering and ctx.get(readies[name]):
                    run.taken[name].append(cycle)
                    done.append(name)
            for name in outputs:
                valid = ctx.get(valids[name])
                payload = ctx.get(payloads[name]) if valid else None
                if name in offered:
                    assert valid, f"{name}: withdrew the payload that it offered"
                    assert payload == offered.pop(name), (
                        f"{name}: changed the payload that it offered"
                    )
                elif valid:
                    run.offered[name].append(cycle)
                if valid and ctx.get(readies[name]):
                    run.payloads[name].append(payload)
                    run.cycles[name].append(cycle)
                    moved = True
                elif valid:
                    offered[name] = payload
            await ctx.tick()
            for name in done:
                ctx.set(valids[name], 0)
                offering.remove(name)
            idle = 0 if moved or done or any(pending.values()) else idle + 1
            if (until and until(run)) or idle > quiet:
                return
        raise AssertionError(f"still busy after {limit} clocks: {run}")

    sim.run(drive)
    return run
