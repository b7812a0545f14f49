"""Plugin of pytest that puts another engine under Amaranth's simulator.

The environment variable ``BLOCK_TESTS`` names a JSON file that says which. With ``notes``, tests
run as usual, and the file of this name says afterwards which blocks each test simulates, its steps
in time and its seconds, and which signals tests read. Otherwise tests run on netlists, only
``tests`` and in this order, and a test fails if it takes longer than ``steps`` allows. The file
``results`` says afterwards which failed, and which mutants have a place in the netlists of each
test, exact or near. With ``plan``, each test runs on the mutants that it names, up to the first
test that fails on them, and the file says which killed them. The modules of tests know nothing of
it.
"""

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amaranth.sim import pysim

from hw.flow.mutate import Mutant
from sim_tb.mutation.blocks import engine
from sim_tb.mutation.blocks.netlist import Compiled, blocks

VARIABLE = "BLOCK_TESTS"

SECONDS = 3600
"""Time after which a test on a mutant is stopped: a loop of Python does not end."""

PASSED, FAILED = 100, 101
"""Exit status of the process of a mutant. One that crashes has another one."""

SLOWER = 2
"""Steps that a test may take on a mutant, as a multiple of those that it takes without."""


class Notes:
    """Notes what each test simulates and reads."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)
        self.test = ""
        self.tests: dict[str, dict[str, Any]] = {}
        self.read: dict[str, set[engine.Path]] = defaultdict(set)
        engine.NotingEngine.advanced = staticmethod(self.advanced)
        engine.NotingEngine.reads = staticmethod(self.reads)
        pysim.PySimEngine = engine.NotingEngine
        self._tops: dict[int, tuple[Any, list[str], list[str]]] = {}

    def advanced(self, design: Any) -> None:
        """Note a step of the test that runs."""
        note = self.tests[self.test]
        note["steps"] += 1
        if id(design) not in self._tops:
            found = blocks(design)
            outer = [
                name for name, module in ((kind, module) for module, kind in found.items())
                if not any(module.startswith(f"{other}.") for other in found)
            ]  # fmt: skip
            self._tops[id(design)] = design, outer, sorted(set(found.values()))
        _, outer, inner = self._tops[id(design)]
        note["outer"] = sorted({*note["outer"], *outer})
        note["inner"] = sorted({*note["inner"], *inner})

    def reads(self, design: Any, path: engine.Path | None) -> None:
        """Note a signal that the test that runs reads."""
        if path is None:
            self.tests[self.test]["memory"] = True
        else:
            self.read[engine.kind(design)].add(path)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the seconds of a test."""
        self.test = item.nodeid
        self.tests[self.test] = {"steps": 0, "outer": [], "inner": [], "memory": False}
        began = time.monotonic()
        result = yield
        self.tests[self.test]["seconds"] = time.monotonic() - began
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether a test passed."""
        if report.when == "call":
            self.tests[report.nodeid]["passed"] = report.passed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the tests that simulate whole units."""
        items[:] = [item for item in items if not item.get_closest_marker("simulators")]

    def pytest_sessionfinish(self) -> None:
        """Write the notes."""
        tests = {name: note for name, note in self.tests.items() if note["steps"]}
        read = {kind: sorted(paths) for kind, paths in sorted(self.read.items())}
        self.file.write_text(json.dumps({"tests": tests, "read": read}, indent=1))


class OnNetlists:
    """Runs tests on netlists, without a mutant."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.test = ""
        self.steps = 0
        self.limits = job["steps"]
        self.order = {test: number for number, test in enumerate(job["tests"])}
        self.file = Path(job["results"])
        self.failed: list[str] = []
        self.netlists: dict[str, set[Compiled]] = defaultdict(set)
        self.mutants = [Mutant(**each) for each in job["mutants"]]
        self.unit = Path(job["unit"])
        self.read = {kind: set(map(tuple, paths)) for kind, paths in job["read"].items()}
        engine.NetlistEngine.compile = staticmethod(self.compile)
        engine.NetlistEngine.begins = staticmethod(self.begins)
        engine.NetlistEngine.mutant = 0
        engine.NetlistEngine.advanced = staticmethod(self.advanced)
        pysim.PySimEngine = engine.NetlistEngine

    def compile(self, design: Any) -> Compiled:
        """Compile a block that a test simulates."""
        read = self.read.get(engine.kind(design), set())
        build = partial(Compiled, mutants=self.mutants, unit=self.unit)
        try:
            made = engine.compiled(design, read, build)
        except Exception as error:
            pytest.exit(f"{self.test}: {error}", returncode=70)
        return made

    def begins(self) -> None:
        """Do nothing in front of a simulation."""

    def advanced(self, netlist: Compiled) -> None:
        """Count a step of the test that runs."""
        self.netlists[self.test].add(netlist)
        self.steps += 1
        if self.steps > SLOWER * self.limits.get(self.test, 10**9) + 1000:
            raise engine.MutantError("limit of clocks")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Begin to count."""
        self.test, self.steps = item.nodeid, 0
        return (yield)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that the job names."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order),
            key=lambda item: self.order[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the results."""
        places = {}
        for test, netlists in self.netlists.items():
            exact = {n for each in netlists for n, is_exact in each.planted.items() if is_exact}
            near = {n for each in netlists for n in each.planted} - exact
            places[test] = {"exact": sorted(exact), "near": sorted(near)}
        self.file.write_text(json.dumps({"failed": self.failed, "places": places}))


class OnMutants(OnNetlists):
    """Runs tests on mutants, each test on each mutant in a process of its own.

    The processes fork off when the test has compiled its first netlist, and the test ends there.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self.plan: dict[str, list[int]] = job["plan"]
        self.killed_by: dict[int, str] = {}
        self.is_child = False
        self.message = self.file.with_name("message")

    @property
    def left(self) -> list[int]:
        """Mutants on which the test that runs has not run yet."""
        return [number for number in self.plan[self.test] if number not in self.killed_by]

    def pytest_runtest_setup(self) -> None:
        """Leave out a test whose mutants are all killed."""
        if not self.left:
            pytest.skip("no mutant is left")

    def begins(self) -> None:
        """Go on with each mutant in a process of its own."""
        if self.is_child:
            return
        for number in self.left:
            self.message.write_text("crash")
            if (child := os.fork()) == 0:
                self.is_child = True
                engine.NetlistEngine.mutant = number
                signal.alarm(SECONDS)
                return
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != PASSED:
                self.killed_by[number] = f"{self.test}: {self.message.read_text()}"
        pytest.skip("each mutant had its process")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """End the process of a mutant with its test."""
        if not self.is_child or (call.when == "setup" and call.excinfo is None):
            return
        if call.excinfo is not None:
            self.message.write_text(call.excinfo.exconly().splitlines()[0][:200])
        os._exit(PASSED if call.excinfo is None else FAILED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Stop if a test did not come to its mutants."""
        if report.when == "call" and not report.skipped:
            pytest.exit(f"{report.nodeid}: it simulated nothing", returncode=70)

    def pytest_sessionfinish(self) -> None:
        """Write the results."""
        self.file.write_text(json.dumps({"killed_by": self.killed_by}))


def pytest_configure(config: pytest.Config) -> None:
    """Register what the environment asks for."""
    job = json.loads(Path(os.environ[VARIABLE]).read_text())
    if "notes" in job:
        config.pluginmanager.register(Notes(job["notes"]))
    else:
        config.pluginmanager.register(OnMutants(job) if "plan" in job else OnNetlists(job))
