"""Suites of tests, and their runs on a mutant of the unit."""

import inspect
import json
import pkgutil
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hw.flow.cache import ROOT, cached, digest, simulated, sources
from hw.flow.design import Design
from hw.flow.mutate import LIMIT, Mutant, Mutants, acting, planted
from hw.flow.verilog import MODULE
from hw.params import PRESETS, TmaParams
from sim_tb.mutation.blocks import judge as block_judge
from sim_tb.mutation.blocks.netlist import unit_cells
from sim_tb.mutation.tb_mutants import ENDS, PLAN
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

_CLOCKS = re.compile(r"^clocks (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """Tests of a cocotb module, and their environment."""

    module: str
    tests: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.module.rpartition(".")[2], *self.env.values()])


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
    return Run(module, (test,), {f"{prefix}_MODELS": models, f"{prefix}_COUNT": str(count)})


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
    "short_rows_of_all_steps",
    "rows_of_pixels",
    "fill_of_all_streams",
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
    "groups_are_left_in_the_same_clocks",
)
EDGES = (
    "every_operation_is_the_golden_models",
    "errors_of_all_kinds_wait_for_their_port",
    "errors_of_stores_wait_for_their_port",
    "completions_of_many_barriers",
    "waits_end",
    "time_limits_count_from_any_clock",
    "an_error_wakes_all_waiters",
    "as_many_waits_as_there_are_places",
    "addresses_of_maps_and_hints_have_any_bits",
    "as_many_loads_in_flight_as_there_are_slots",
    "lines_wait_in_every_lane",
    "barriers_outside_shared_memory_or_misaligned_are_refused",
    "ctas_outside_the_cluster_are_refused",
    "completions_wait_for_the_operations_of_threads",
)
FAULTS = (
    "an_answer_that_comes_late",
    "an_answer_that_is_lost",
    "a_barrier_that_is_changed_under_a_load",
)
TESTBENCH = "golden", "sim_tb/testbench"

SUITES = {
    "recordings": Suite(
        [Run(RECORDINGS, ("transfers", "programs"))],
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
            Run("tests.top.tb_reset", ("reset_at_any_clock",), {"RESET_COUNT": "20"}),
            Run("tests.top.tb_faults", FAULTS, {"FAULTS_CLOCKS": "20000"}),
            *(
                _random(LOADS, "LOADS", "hints_go_with_every_line", models, 100)
                for models in ("fixed", "rough")
            ),
            _random(LOADS, "LOADS", "offsets_are_limited", "fixed", 100),
            Run(LOADS, ("every_kind",), {"LOADS_MODELS": "rough", "LOADS_EVERY": "20"}),
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


@dataclass(frozen=True)
class Trial:
    """A test of a suite, and what is known of it from a simulation without a mutant.

    Parameters
    ----------
    test : str
        Name of the test.
    clocks : int
        Clocks that it takes.
    acting : list of int
        Numbers of the mutants that would change their bit in it. No other mutant is noticed.
    """

    test: str
    clocks: int
    acting: list[int]


def trials(suite: str, subject: str, mutants: Mutants) -> list[Trial]:
    """Run a suite without a mutant.

    The blocks' own tests are one trial, which all mutants act in.

    Raises
    ------
    SimulationError
        If a test fails.
    """
    directory = rtl(mutants, subject)
    if not SUITES[suite].runs:
        tests = block_tests(directory)
        return [Trial(suite, tests.clocks, [mutant.number for mutant in mutants.planted])]
    made = []
    for run in SUITES[suite].runs:
        plan = [_planned(run, test, [mutants.observe]) for test in run.tests]
        for end in _simulate(run, plan, subject, directory):
            output = str(end["output"])
            if not end["passed"]:
                message = f"{run}: {end['test']} fails without a mutant\n{output}"
                raise runner.SimulationError(message)
            clocks = int(_CLOCKS.findall(output)[-1])
            made.append(
                Trial(str(end["test"]), clocks, sorted(acting(output) | mutants.unobserved))
            )
    return made


def judge(
    numbers: Sequence[int], suite: str, known: Sequence[Trial], subject: str, directory: Path
) -> dict[int, Verdict]:
    """Run a suite on mutants, on each up to the first test that fails; return their verdicts.

    A test is run on the mutants that act in it.

    Parameters
    ----------
    numbers : sequence of int
        Numbers of the mutants.
    suite : str
        Name in ``SUITES``.
    known : sequence of Trial
        Its trials without a mutant; see ``trials``.
    subject : str
        Name in ``SUBJECTS``.
    directory : Path
        Folder of the Verilog; see ``rtl``.
    """
    if not SUITES[suite].runs:
        return _judge_by_blocks(numbers, directory)
    seconds = dict.fromkeys(numbers, 0.0)
    killed_by: dict[int, str] = {}
    left = iter(known)
    for run in SUITES[suite].runs:
        plan = [
            _planned(
                run,
                test,
                [
                    number
                    for number in numbers
                    if number in trial.acting and number not in killed_by
                ],
                SLOWER * trial.clocks,
            )
            for test, trial in zip(run.tests, left, strict=False)
        ]
        if not any(trial["mutants"] for trial in plan):
            continue
        for end in _simulate(run, plan, subject, directory):
            number = int(end["mutant"])
            seconds[number] += float(end["seconds"])
            if not end["passed"]:
                killed_by[number] = f"{run}: {end['test']}: {_how(end)}"
    return {number: Verdict(killed_by.get(number), seconds[number]) for number in numbers}


def _judge_by_blocks(numbers: Sequence[int], directory: Path) -> dict[int, Verdict]:
    """Run the blocks' own tests on mutants; each has an equal share of the time."""
    began = time.monotonic()
    tests = block_tests(directory)
    killed_by = tests.judge([tests.planted[number - 1] for number in numbers])
    seconds = (time.monotonic() - began) / len(numbers)
    return {number: Verdict(killed_by.get(number), seconds) for number in numbers}


def _planned(run: Run, test: str, mutants: Sequence[int], limit: int = 0) -> dict[str, Any]:
    """Return a trial of a plan; see ``tb_mutants``."""
    return {"test": f"{run.module}:{test}", "mutants": list(mutants), "limit": limit}


def _simulate(
    run: Run, plan: Sequence[Mapping[str, Any]], subject: str, directory: Path
) -> list[dict[str, Any]]:
    """Carry out a plan on a design with its mutants; return how its processes ended."""
    with TemporaryDirectory(prefix="mutants") as folder:
        path = Path(folder, "plan.json")
        path.write_text(json.dumps(plan))
        ended = runner.run(
            "sim_tb.mutation.tb_mutants",
            params=SUBJECTS[subject].params,
            env={**run.env, PLAN: str(path)},
            rtl=directory,
            optimisation=OPTIMISATION,
        )
        shutil.rmtree(ended)
        ends: list[dict[str, Any]] = json.loads(path.with_name(ENDS).read_text())
        return ends


def _how(end: Mapping[str, Any]) -> str:
    """Return how a process ended whose test did not pass."""
    if LIMIT in end["output"]:
        return "limit of clocks"
    return "crash" if end["crashed"] else "failed"
