"""Suites of tests of the unit, and their runs on a mutant."""

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hw.flow.cache import cached, digest, sources
from hw.flow.design import Design
from hw.flow.mutate import LIMIT, Mutants, planted
from hw.flow.verilog import MODULE
from hw.params import PRESETS, TmaParams
from hw.top import Tma
from sim_tb.simulator import runner

PARAMS = PRESETS["default"]
"""Parameters of the unit that has the mutants."""

SLOWER = 2
"""Clocks that a mutant has for a test, as a multiple of those that the test takes without it."""

OPTIMISATION = "-O1"
"""Option of g++: most runs are short."""

CLOCK_NS = 2
"""Period of the testbench's clock, in nanoseconds."""

_DURATION = re.compile(r'"sim_time_duration" value="([\d.]+)"')


@dataclass(frozen=True)
class Run:
    """A test of a cocotb module, and its environment."""

    module: str
    test: str
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.test, *self.env.values()])


@dataclass(frozen=True)
class Suite:
    """Tests that are judged together.

    Parameters
    ----------
    runs : list of Run
        In order: the suite ends at the first that fails.
    sources : tuple of str
        Folders whose modules decide whether a run fails.
    """

    runs: list[Run]
    sources: tuple[str, ...]

    @property
    def key(self) -> str:
        """Key of the suite, which changes with its sources."""
        return str(digest([repr(self.runs), sources(*self.sources)]))


def _random(module: str, prefix: str, test: str, models: str, count: int) -> Run:
    return Run(module, test, {f"{prefix}_MODELS": models, f"{prefix}_COUNT": str(count)})


RECORDINGS = "sim_tb.mutation.tb_recordings"
LOADS, STORES = "tests.top.tb_loads", "tests.top.tb_stores"
TESTBENCH = "golden", "sim_tb/testbench"

SUITES = {
    "recordings": Suite(
        [Run(RECORDINGS, "transfers"), Run(RECORDINGS, "programs")],
        (*TESTBENCH, "sim_tb/conformance"),
    ),
    "random": Suite(
        [
            _random(LOADS, "LOADS", "in_flight", "rough", 400),
            _random(STORES, "STORES", "random_stores", "rough", 400),
            _random(LOADS, "LOADS", "in_flight", "fixed", 200),
            _random(STORES, "STORES", "random_stores", "fixed", 200),
        ],
        (*TESTBENCH, "tests/golden", "tests/top"),
    ),
}


@dataclass(frozen=True)
class Verdict:
    """Outcome of a suite on a mutant.

    Parameters
    ----------
    killed_by : str or None
        Run that failed, and how. None: all runs passed.
    seconds : float
        Time of the runs.
    """

    killed_by: str | None
    seconds: float


def plant(count: int, seed: int, params: TmaParams = PARAMS) -> Mutants:
    """Plant mutants in a unit; see ``hw.flow.mutate.planted``."""
    return planted(lambda: Design(Tma(params), MODULE), [repr(params), sources("hw")], count, seed)


def rtl(mutants: Mutants, params: TmaParams = PARAMS) -> Path:
    """Return the folder of Verilog and JSON of the unit with its mutants."""

    def make(directory: Path) -> None:
        shutil.copytree(runner.generate(params), directory, dirs_exist_ok=True)
        (directory / f"{MODULE}.v").write_text(mutants.verilog)

    path: Path = cached("verilog", digest([mutants.verilog, repr(params)]), make)
    return path


def _simulate(run: Run, directory: Path, *plusargs: str) -> Path:
    """Run a test on the unit with its mutants; see ``runner.run``."""
    return runner.run(
        run.module,
        run.test,
        params=PARAMS,
        env=run.env,
        rtl=directory,
        optimisation=OPTIMISATION,
        plusargs=plusargs,
    )


def clocks(suite: str, directory: Path) -> list[int]:
    """Run a suite without a mutant; return the clocks of each of its runs.

    Raises
    ------
    SimulationError
        If a test fails.
    """
    taken = []
    for run in SUITES[suite].runs:
        ended = _simulate(run, directory)
        duration = _DURATION.search((ended / "results.xml").read_text())
        assert duration is not None
        taken.append(round(float(duration[1])) // CLOCK_NS)
    return taken


def judge(number: int, suite: str, limits: list[int], directory: Path) -> Verdict:
    """Run a suite on a mutant, up to the first test that fails.

    Parameters
    ----------
    number : int
        Number of the mutant.
    suite : str
        Name in ``SUITES``.
    limits : list of int
        Clocks after which each of its runs ends; see ``clocks``.
    directory : Path
        Folder of the Verilog; see ``rtl``.
    """
    began = time.monotonic()
    killed_by = None
    for run, limit in zip(SUITES[suite].runs, limits, strict=True):
        try:
            _simulate(run, directory, f"+mutant={number}", f"+clocks={SLOWER * limit}")
        except runner.SimulationError as error:
            killed_by = f"{run}: {_how(str(error))}"
            break
    return Verdict(killed_by, time.monotonic() - began)


def _how(message: str) -> str:
    """Return how a simulation failed."""
    if LIMIT in message:
        return "limit of clocks"
    return "crash" if "the simulator crashed" in message else "failed"
