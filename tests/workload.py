"""The plan of a test session: simulators are built first, and tests that share are kept together.

Two marks of a test say what the plan needs to know:

``pytest.mark.simulators``
    The test simulates the units that it is parametrized with, or the default unit.
    ``simulators(UNIT, ...)`` names others, and ``simulators.with_args(build)`` a function that
    builds a simulator. All that the selected tests need is built before the first test runs, in
    parallel, each simulator once.
``pytest.mark.spread``
    Any worker may run the test. Without this mark, one worker runs all tests of a file, because
    they share the fixtures of the module and the components that ``tests.hw.simulate`` elaborated.

The longest units of work start first. Workers follow the plan with ``-n`` and ``--dist loadgroup``;
what pytest-xdist 3.8 itself has for groups does not work with pytest 9.2.
"""

import json
import os
import pickle
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from hw.flow.cache import folder
from hw.params import PRESETS, TmaParams

LOOK, PATIENCE = 5.0, 30.0
"""Seconds after which a session says what it builds, and after which it says so again."""


@dataclass(frozen=True)
class Plan:
    """Units of work, and the simulators that they need.

    Parameters
    ----------
    groups : dict
        Name of each test to the name of its unit of work.
    spread : set
        Units of a single test that shares nothing with others.
    simulators : dict
        Name of each simulator to what builds it: a pickled function without parameters.
    """

    groups: dict[str, str] = field(default_factory=dict)
    spread: set[str] = field(default_factory=set)
    simulators: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Iterable[pytest.Item]) -> "Plan":
        """Return the plan of collected tests."""
        plan = cls()
        for item in items:
            group = item.nodeid.partition("::")[0]
            if item.get_closest_marker("spread"):
                group = item.nodeid
                plan.spread.add(group)
            plan.groups[item.nodeid] = group
            if mark := item.get_closest_marker("simulators"):
                for needed in mark.args or units_of(item):
                    name, build = builder(needed)
                    plan.simulators[name] = pickle.dumps(build)
        return plan

    def units(self, seconds: dict[str, float]) -> list[str]:
        """Return the units of work in the order in which they start.

        ``seconds`` says how long units took when they ran last. Units without a time are first,
        then the longest. Of units without a time, those of most tests are first, and tests that
        share nothing are last: they fill what remains until the last worker ends.
        """
        tests = Counter(self.groups.values())

        def rank(unit: str) -> tuple[bool, float, bool, int]:
            return unit in seconds, -seconds.get(unit, 0.0), unit in self.spread, -tests[unit]

        return sorted(tests, key=rank)


def units_of(item: Any) -> list[TmaParams]:
    """Return the units that a test is parametrized with; the default unit if there is none."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return [value for value in values if isinstance(value, TmaParams)] or [PRESETS["default"]]


def builder(needed: TmaParams | Callable[[], object]) -> tuple[str, Callable[[], object]]:
    """Return the name of a simulator, and the function that builds it."""
    if isinstance(needed, partial):
        function = f"{needed.func.__module__}.{needed.func.__qualname__}"
        return f"{function}{needed.args}", needed
    if not isinstance(needed, TmaParams):
        return f"{needed.__module__}.{needed.__qualname__}", needed
    default = vars(PRESETS["default"])
    names = [name for name, params in PRESETS.items() if params == needed]
    names += [" ".join(f"{k}={v}" for k, v in vars(needed).items() if default.get(k) != v)]
    return f"unit {names[0]}", partial(build_unit, needed)


def build_unit(params: TmaParams) -> None:
    """Build the simulator of a unit or of a cluster, unless there is one."""
    from sim_tb.simulator import runner  # here: a worker needs no cocotb to collect tests

    runner.build_as_asked(params)


def build_pickled(build: bytes) -> float:
    """Build a simulator; return the seconds that it took."""
    from sim_tb.simulator import runner

    runner.console.quiet = True  # the parent process reports
    start = time.monotonic()
    pickle.loads(build)()
    return time.monotonic() - start


def build_simulators(simulators: dict[str, bytes], say: Callable[[str], object]) -> None:
    """Build simulators in as many processes as there are cores.

    Raises
    ------
    pytest.exit.Exception
        If a build fails: otherwise each test of that simulator would try it again.
    """
    if not simulators:
        return
    start = time.monotonic()
    processes = min(len(simulators), os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(build_pickled, build): name for name, build in simulators.items()}
        waiting, ready, patience = set(jobs), 0, LOOK
        while waiting:
            done, waiting = wait(waiting, patience, FIRST_COMPLETED)
            for job in done:
                if error := job.exception():
                    pool.shutdown(cancel_futures=True)
                    pytest.exit(f"{jobs[job]}: {error}", returncode=1)
                ready += 1
                if job.result() > 1:
                    say(f"simulator {ready} of {len(jobs)}, {jobs[job]}: {job.result():.0f} s")
            if not done:
                names = ", ".join(sorted(jobs[job] for job in waiting if job.running()))
                say(f"still building after {time.monotonic() - start:.0f} s: {names}")
                patience = PATIENCE
    say(f"{len(jobs)} simulators are ready after {time.monotonic() - start:.0f} s")


class Scheduling(LoadScopeScheduling):
    """Hands out whole units of work, in the order of a plan.

    ``prepare`` is called when all workers have collected the tests and wait for work. It returns
    the name of each test's unit of work, and the units in order.
    """

    def __init__(
        self, config: Any, log: Any, prepare: Callable[[], tuple[dict[str, str], list[str]]]
    ) -> None:
        super().__init__(config, log)
        self._prepare = prepare
        self._groups: dict[str, str] = {}
        self._places: dict[str, int] = {}

    def schedule(self) -> None:
        """Hand out the first units of work."""
        if not self._groups:
            self._groups, units = self._prepare()
            self._places = {unit: place for place, unit in enumerate(units)}
        super().schedule()

    def _assign_work_unit(self, node: Any) -> None:
        first = min(self.workqueue, key=self._places.__getitem__)
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]


class Workload:
    """Plugin of pytest: makes the plan and follows it.

    With pytest-xdist, the workers collect tests and plan; the controller reads the plan, builds,
    and hands out the tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.plan = Plan()
        self.plans = tempfile.TemporaryDirectory()
        self.times = folder() / "test_seconds.json"
        self.measured: Counter[str] = Counter()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where the controller looks for its plan."""
        node.workerinput["plan"] = f"{self.plans.name}/{node.gateway.id}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Plan; build simulators, unless the controller does."""
        self.plan = Plan.of(session.items)
        if self.worker is not None:
            Path(self.worker["plan"]).write_bytes(pickle.dumps(self.plan))
        elif session.items and not self.config.option.collectonly:
            build_simulators(self.plan.simulators, self.say)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Scheduling | None:
        """Return the scheduler, which begins with the simulators."""

        def prepare() -> tuple[dict[str, str], list[str]]:
            plans = Path(self.plans.name).iterdir()  # they are equal
            self.plan = pickle.loads(next(plans).read_bytes())
            build_simulators(self.plan.simulators, self.say)
            return self.plan.groups, self.plan.units(self.seconds())

        return Scheduling(config, log, prepare) if config.option.dist == "loadgroup" else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the time of a unit of work."""
        self.measured[self.plan.groups.get(report.nodeid, report.nodeid)] += report.duration

    def pytest_unconfigure(self) -> None:
        """Keep the times for the next session."""
        self.plans.cleanup()
        if self.measured and self.worker is None:
            self.times.parent.mkdir(parents=True, exist_ok=True)
            work = self.times.with_suffix(f".{os.getpid()}")
            work.write_text(json.dumps(self.seconds() | self.measured, indent=1))
            work.rename(self.times)

    def seconds(self) -> dict[str, float]:
        """Return how long units of work took when they ran last."""
        return json.loads(self.times.read_text()) if self.times.exists() else {}

    def say(self, line: str) -> None:
        """Print a line."""
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        if terminal and self.config.get_verbosity() >= 0:
            terminal.ensure_newline()
            terminal.write_line(line)
