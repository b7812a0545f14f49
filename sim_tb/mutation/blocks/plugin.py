"""Plugin of pytest that puts another engine under Amaranth's simulator.

The environment variable ``BLOCK_TESTS`` names a JSON file that says which. With ``notes``, tests
run as usual, and the file of this name says afterwards which blocks each test simulates, its steps
in time and its seconds, and which signals tests read. With ``mutant``, tests run on netlists with
this mutant in them, 0 for none; a test fails if it takes longer than ``steps`` allows. Only
``tests`` run, in this order. The file ``results`` says afterwards which failed, how the last one
did, and which mutants have a place in the netlists of each test, exact or near. The modules of
tests know nothing of it.
"""

import json
import os
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


class OnMutant:
    """Runs tests on a mutant."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.test = ""
        self.steps = 0
        self.number = job["mutant"]
        self.limits = job["steps"]
        self.order = {test: number for number, test in enumerate(job["tests"])}
        self.file = Path(job["results"])
        self.failed: list[str] = []
        self.how = ""
        self.netlists: dict[str, set[Compiled]] = defaultdict(set)
        self.mutants = [Mutant(**each) for each in job["mutants"]]
        self.unit = Path(job["unit"])
        self.read = {kind: set(map(tuple, paths)) for kind, paths in job["read"].items()}
        engine.NetlistEngine.compile = staticmethod(self.compile)
        engine.NetlistEngine.mutant = self.number
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
            (item for item in items if item.nodeid in self.limits),
            key=lambda item: self.order[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test."""
        if report.failed:
            self.failed.append(report.nodeid)
            message = getattr(report.longrepr, "reprcrash", None)
            self.how = str(message.message if message else report.longrepr).splitlines()[0][:200]

    def pytest_sessionfinish(self) -> None:
        """Write the results."""
        places = {}
        for test, netlists in self.netlists.items():
            exact = {n for each in netlists for n, is_exact in each.planted.items() if is_exact}
            near = {n for each in netlists for n in each.planted} - exact
            places[test] = {"exact": sorted(exact), "near": sorted(near)}
        results = {"failed": self.failed, "how": self.how, "places": places}
        self.file.write_text(json.dumps(results))


def pytest_configure(config: pytest.Config) -> None:
    """Register what the environment asks for."""
    job = json.loads(Path(os.environ[VARIABLE]).read_text())
    plugin = Notes(job["notes"]) if "notes" in job else OnMutant(job)
    config.pluginmanager.register(plugin)
