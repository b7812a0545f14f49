"""Suites of tests, and their runs on a mutant of the unit."""

import inspect
import json
import pkgutil
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path

from hw.flow.cache import ROOT, cached, digest, simulated, sources
from hw.flow.design import Design
from hw.flow.mutate import LIMIT, Mutant, Mutants, planted
from hw.flow.verilog import MODULE
from hw.params import PRESETS, TmaParams
from sim_tb.mutation.blocks import judge as block_judge
from sim_tb.mutation.blocks.netlist import unit_cells
from sim_tb.simulator import runner

SMALL = replace(
    PRESETS["default"], line_bytes=32, tags=16, requests_in_flight=16, setup_pipelines=1, streams=1
)
"""Parameters of the unit in designs whose mutants are around it."""


@dataclass(frozen=True)
class Subject:
    """Design with mutants.

    Parameters
    ----------
    params : TmaParams
        The design is ``hw.flow.cache.simulated`` of these.
    packages : tuple of str
        Packages of ``hw`` whose blocks have the mutants. Default: all blocks.
    stand_ins : tuple of str
        Classes of them that are for simulations only, and have none.
    """

    params: TmaParams
    packages: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()

    @property
    def kinds(self) -> set[str]:
        """Names of the classes of blocks that have mutants."""
        return {
            name
            for package in self.packages
            for module in pkgutil.iter_modules([str(ROOT / "hw" / package)], f"hw.{package}.")
            for name, item in vars(import_module(module.name)).items()
            if inspect.isclass(item) and item.__module__ == module.name
        } - {*self.stand_ins}

    @property
    def key(self) -> list[str]:
        """Everything that the design depends on."""
        return [repr(self.params), sources("hw")]

    def design(self) -> Design:
        """Return the elaborated design."""
        return Design(simulated(self.params), MODULE)


SUBJECTS = {
    "unit": Subject(PRESETS["default"]),
    "axi": Subject(
        replace(SMALL, axi_data_bits=64, axi_prefetch=True), ("axi",), ("MemoryAdapter",)
    ),
    "tlb": Subject(replace(SMALL, tlb_entries=4), ("translate",)),
    "contexts": Subject(replace(SMALL, contexts=2), ("context",)),
}
"""Designs by the name that the command line takes."""

SLOWER = 2
"""Clocks that a mutant has for a test, as a multiple of those that the test takes without it."""

OPTIMISATION = "-O1"
"""Option of g++: most runs are short."""

CLOCK_NS = 2
"""Period of the testbench's clock, in nanoseconds."""

_DURATION = re.compile(r'"sim_time_duration" value="([\d.]+)"')


@dataclass(frozen=True)
class Run:
    """A test of a cocotb module, or some, and their environment."""

    module: str
    test: str | tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        name = self.test if isinstance(self.test, str) else self.module.rpartition(".")[2]
        return " ".join([name, *self.env.values()])


@dataclass(frozen=True)
class Suite:
    """Tests that are judged together.

    Parameters
    ----------
    runs : list of Run
        In order: the suite ends at the first that fails. Without any, the suite is the blocks' own
        tests.
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
LOAD_RULES = (
    "an_edit_is_seen_after_invalidation",
    "a_fill_in_flight_is_overtaken",
    "a_prefetched_map_is_not_fetched_again",
    "unreadable_lines_are_an_error",
    "an_unreadable_map_is_an_error",
    "prefetches_ask_for_lines_and_nothing_else",
    "memory_is_read_inside_the_tensor_only",
)
STORE_RULES = (
    "read_is_before_done",
    "groups_are_the_threads_own",
    "a_load_joins_until_its_map_is_read",
    "refused_stores_leave_nothing",
    "unwritable_lines_are_an_error",
    "padding_of_a_row_is_written",
    "corners_are_limited",
    "slots_and_tags_are_used_again",
    "two_stores_to_the_same_bytes",
    "a_load_behind_a_store",
    "shared_memory_is_written_again_behind_a_read_wait",
    "reductions_to_one_address",
    "a_line_a_clock_both_ways",
    "far_and_large",
    "all_threads_wait",
)
EDGES = (
    "every_operation_is_the_golden_models",
    "errors_of_all_kinds_wait_for_their_port",
    "completions_of_many_barriers",
    "an_error_wakes_all_waiters",
    "waits_end",
    "as_many_loads_in_flight_as_there_are_slots",
    "barriers_outside_shared_memory_or_misaligned_are_refused",
)
FAULTS = (
    "an_answer_that_comes_late",
    "an_answer_that_is_lost",
    "a_barrier_that_is_changed_under_a_load",
)
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
    "directed": Suite(
        [
            Run(LOADS, LOAD_RULES),
            Run(STORES, STORE_RULES),
            Run("tests.top.tb_edges", EDGES),
            Run("tests.top.tb_reset", ("drain", "idle_waits_for_all")),
            Run("tests.top.tb_faults", FAULTS, {"FAULTS_CLOCKS": "20000"}),
            *(
                _random(LOADS, "LOADS", "hints_go_with_every_line", models, 100)
                for models in ("fixed", "rough")
            ),
            _random(LOADS, "LOADS", "offsets_are_limited", "fixed", 100),
            Run(LOADS, "every_kind", {"LOADS_MODELS": "rough", "LOADS_EVERY": "20"}),
        ],
        (*TESTBENCH, "tests/golden", "tests/top"),
    ),
    "blocks": Suite([], block_judge.SOURCES),
}


AROUND_THE_UNIT = "recordings", "random"
"""Suites that fit every design. Others know the lines, the rates and the blocks of the unit."""


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


def plant(count: int, seed: int, name: str) -> Mutants:
    """Plant mutants in a design of ``SUBJECTS``; see ``hw.flow.mutate.planted``."""
    subject = SUBJECTS[name]
    return planted(subject.design, subject.key, count, seed, subject.kinds)


def rtl(mutants: Mutants, name: str) -> Path:
    """Return the folder of Verilog and JSON of a design of ``SUBJECTS`` with its mutants.

    ``mutants.json`` lists the mutants, and ``cells.json`` the cells of the unit, for the
    blocks' own tests.
    """
    subject = SUBJECTS[name]
    cells = unit_cells(subject.design, subject.key)
    listed = json.dumps([asdict(each) for each in mutants.planted])

    def make(directory: Path) -> None:
        shutil.copytree(runner.generate(subject.params), directory, dirs_exist_ok=True)
        (directory / f"{MODULE}.v").write_text(mutants.verilog)
        (directory / "mutants.json").write_text(listed)
        shutil.copy(cells, directory)

    key = digest([mutants.verilog, repr(subject.params), listed, cells.read_text()])
    path: Path = cached("verilog", key, make)
    return path


@cache
def block_tests(directory: Path) -> block_judge.BlockTests:
    """Return the blocks' own tests as judges of the mutants of ``directory``; see ``rtl``."""
    listed = json.loads((directory / "mutants.json").read_text())
    return block_judge.BlockTests([Mutant(**each) for each in listed], directory / "cells.json")


def _simulate(run: Run, subject: str, directory: Path, *plusargs: str) -> Path:
    """Run tests on a design with its mutants; see ``runner.run``."""
    several = not isinstance(run.test, str)
    names = {"COCOTB_TEST_FILTER": f"({'|'.join(run.test)})$"} if several else {}
    return runner.run(
        run.module,
        None if several else run.test,
        params=SUBJECTS[subject].params,
        env={**run.env, **names},
        rtl=directory,
        optimisation=OPTIMISATION,
        plusargs=plusargs,
    )


def clocks(suite: str, subject: str, directory: Path) -> list[int]:
    """Run a suite without a mutant; return the clocks of each of its runs, or of all.

    Raises
    ------
    SimulationError
        If a test fails.
    """
    if not SUITES[suite].runs:
        return [block_tests(directory).clocks]
    taken = []
    for run in SUITES[suite].runs:
        ended = _simulate(run, subject, directory)
        durations = _DURATION.findall((ended / "results.xml").read_text())
        assert len(durations) == (1 if isinstance(run.test, str) else len(run.test)), run
        taken.append(round(sum(map(float, durations))) // CLOCK_NS)
    return taken


def judge(number: int, suite: str, limits: list[int], subject: str, directory: Path) -> Verdict:
    """Run a suite on a mutant, up to the first test that fails.

    Parameters
    ----------
    number : int
        Number of the mutant.
    suite : str
        Name in ``SUITES``.
    limits : list of int
        Clocks that each of its runs takes without a mutant; see ``clocks``.
    subject : str
        Name in ``SUBJECTS``.
    directory : Path
        Folder of the Verilog; see ``rtl``.
    """
    began = time.monotonic()
    killed_by = None
    if not SUITES[suite].runs:
        tests = block_tests(directory)
        killed_by = tests.judge(tests.planted[number - 1])
        return Verdict(killed_by, time.monotonic() - began)
    for run, limit in zip(SUITES[suite].runs, limits, strict=True):
        try:
            _simulate(run, subject, directory, f"+mutant={number}", f"+clocks={SLOWER * limit}")
        except runner.SimulationError as error:
            killed_by = f"{run}: {_how(str(error))}"
            break
    return Verdict(killed_by, time.monotonic() - began)


def _how(message: str) -> str:
    """Return how a simulation failed."""
    if LIMIT in message:
        return "limit of clocks"
    return "crash" if "the simulator crashed" in message else "failed"
