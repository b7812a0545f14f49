"""Simulations of a soak run, each without a reset."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hw.params import PRESETS, TmaParams
from open_tma.installation import python
from sim_tb.distribution.store import code
from sim_tb.simulator import runner
from sim_tb.testbench import models
from tests.top.units import CLUSTER

DESIGNS: dict[str, TmaParams] = {
    "unit": replace(PRESETS["default"], counters=True),
    "cluster": CLUSTER,
}
"""Design by the name of its test in ``tb_soak``."""

MEMORIES = tuple(name for name in models.PRESETS)
"""All models of memories; they follow each other in each simulation."""

CLOCKS = 2_000_000
"""Clocks of a simulation."""


@dataclass(frozen=True)
class Task:
    """A simulation: name of the design, its parameters, seed, and clocks of random requests."""

    design: str
    params: TmaParams
    seed: int
    clocks: int
    memories: tuple[str, ...] = MEMORIES


@dataclass(frozen=True)
class Ended:
    """Totals of a simulation.

    Parameters
    ----------
    design : str
    seed : int
    clocks : int
        All clocks, those of the probes included.
    requests, refused : int
        Random requests, and those of them that were refused; of a cluster, refusals are compared
        and not counted.
    longest : int
        Longest wait in clocks: of a unit for a request, of a cluster for a round.
    """

    design: str
    seed: int
    clocks: int
    requests: int
    refused: int
    longest: int


@dataclass(frozen=True)
class Failed:
    """A simulation with a request that is stuck, a wrong result, or a lost place.

    Parameters
    ----------
    task : Task
    reason : str
        Report of the simulator.
    """

    task: Task
    reason: str

    def __str__(self) -> str:
        options = f"--design {self.task.design} --seed {self.task.seed} --clocks {self.task.clocks}"
        return f"{self.reason}\nfailed: {python()} -m tests.soak {options}"


def tasks(design: str, clocks: int, seed: int) -> Iterator[tuple[str, Task]]:
    """Yield simulations that have ``clocks`` clocks together, with their keys."""
    for number in range(-(-clocks // CLOCKS)):
        size = min(CLOCKS, clocks - number * CLOCKS)
        task = Task(design, DESIGNS[design], seed + number, size)
        yield f"{code('tests')} {design} seed={task.seed} clocks={size}", task


def simulate(task: Task) -> Ended | Failed:
    """Run a simulation."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        env = {
            "SOAK_CLOCKS": str(task.clocks),
            "SOAK_MODELS": ",".join(task.memories),
            "SOAK_REPORT": str(path),
        }
        test = "tests.soak.tb_soak", task.design
        try:
            runner.run(*test, params=task.params, seed=task.seed, env=env)
        except runner.SimulationError as error:
            return Failed(task, str(error))
        return Ended(task.design, task.seed, **json.loads(path.read_text()))
