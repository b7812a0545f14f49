"""Chooses the blocks' own tests that judge a mutant, and runs them on it.

The tests of a class are those with an outermost block of this class: the tests in the file that is
named for it, ``test_run_walker.py`` for ``RunWalker``; if there are none, those with the fewest
outermost blocks. A mutant is judged by the tests of its class; if there are none, or none has a
place for it, by those of the next block around it. Tests that have an exact place for it go before
those that have a near one only, which judge if there are no others. Tests that fail on a netlist
without a mutant are left out.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from hw.flow.cache import ROOT, cached, digest, sources
from hw.flow.macros import constant
from hw.flow.mutate import Mutant
from sim_tb.mutation.blocks.netlist import Cells
from sim_tb.mutation.blocks.plugin import VARIABLE

PLUGIN = "sim_tb.mutation.blocks.plugin"

TESTS = ROOT / "tests" / "hw"

OTHERS = "axi", "flow", "host", "translate"
"""Folders of tests of what the unit with the mutants does not have."""

SOURCES = "golden", "hw", "tests/golden", "tests/hw", "sim_tb/mutation/blocks"
"""Folders that decide what the tests of a block say."""


class BlockTests:
    """The blocks' own tests as judges of the mutants of a unit.

    Parameters
    ----------
    planted : sequence of Mutant
        All mutants of the unit.
    cells : Path
        File of the unit's cells.
    """

    def __init__(self, planted: Sequence[Mutant], cells: Path) -> None:
        self.planted = planted
        self._cells = cells
        self._groups: dict[tuple[str, int], list[Mutant]] = {}
        self._fitness: dict[tuple[str, int], dict[str, Any]] = {}
        self._key = [sources(*SOURCES), cells.read_text()]

    @cached_property
    def unit(self) -> Cells:
        """Cells of the unit."""
        return Cells.from_json(self._cells.read_text())

    @cached_property
    def notes(self) -> Any:
        """Blocks that each test simulates, and signals that tests read; see ``plugin``."""

        def make(directory: Path) -> None:
            folders = [each for each in TESTS.iterdir() if each.is_dir()]
            files = [*TESTS.glob("test_*.py"), *(each for each in folders if each.name[0] != "_")]
            chosen = sorted(str(each) for each in files if each.name not in OTHERS)
            run, noted = run_pytest([*chosen, "-m", "not regress"], {}, "notes")
            if run.returncode:
                raise RuntimeError(f"tests of blocks fail: {run.stdout[-1000:]}")
            (directory / "notes.json").write_text(json.dumps(noted))

        directory = cached("mutant_notes", digest(self._key), make)
        return json.loads((directory / "notes.json").read_text())

    @property
    def clocks(self) -> int:
        """Number of clocks that all tests take; a clock has two steps."""
        return sum(int(note["steps"]) for note in self.notes["tests"].values()) // 2

    def tests(self, kind: str) -> list[str]:
        """Return the tests of a class, the shortest first."""
        notes = self.notes["tests"]
        found = {name: len(note["outer"]) for name, note in notes.items() if kind in note["outer"]}
        file = f"/test_{constant(kind).lower()}.py::"
        fewest = min(found.values(), default=0)
        chosen = [name for name in found if file in name]
        chosen = chosen or [name for name, blocks in found.items() if blocks == fewest]
        return sorted(chosen, key=lambda name: (notes[name]["seconds"], name))

    def judges(self, mutant: Mutant) -> list[str]:
        """Return the classes around a mutant that have tests, its own first."""
        judges = []
        module = self.unit.block(mutant.module)
        while "." in module:
            if self.tests(kind := self.unit.blocks.get(module, "")):
                judges.append(kind)
            module = module.rpartition(".")[0]
        return judges

    def judge(self, mutants: Sequence[Mutant]) -> dict[int, str]:
        """Return, for the numbers of the mutants on which a test fails, the test, and how."""
        killed_by: dict[int, str] = {}
        rank = 0
        while mutants:
            groups: dict[str, list[Mutant]] = {}
            for mutant in mutants:
                for kind in self.judges(mutant)[rank : rank + 1]:
                    groups.setdefault(kind, []).append(mutant)
            left = []
            for kind, group in groups.items():
                tests = {mutant.number: self._places(mutant, kind, rank) for mutant in group}
                killed_by |= self._run_on_mutants(kind, rank, tests)
                left += [mutant for mutant in group if not tests[mutant.number]]
            mutants, rank = left, rank + 1
        return killed_by

    def _places(self, mutant: Mutant, kind: str, rank: int) -> list[str]:
        """Return the tests of a class that have an exact place for a mutant, or else a near one."""
        fitness = self.fitness(kind, rank)
        for place in "exact", "near":
            if tests := [
                test
                for test in self.tests(kind)
                if test not in fitness["failed"]
                and mutant.number in fitness["places"].get(test, {}).get(place, [])
            ]:
                return tests
        return []

    def _run_on_mutants(
        self, kind: str, rank: int, tests: Mapping[int, Sequence[str]]
    ) -> dict[int, str]:
        """Run the tests of each mutant; return the mutants on which one fails, and how."""
        plan = {
            test: [number for number, chosen in tests.items() if test in chosen]
            for test in self.tests(kind)
        }
        plan = {test: numbers for test, numbers in plan.items() if numbers}
        if not plan:
            return {}
        job = self._job([*plan], self._judged(kind, rank))
        results = self._run([*plan], {**job, "plan": plan})
        return {int(number): how for number, how in results["killed_by"].items()}

    def fitness(self, kind: str, rank: int) -> dict[str, Any]:
        """Return what the tests of a class do on netlists without a mutant.

        ``failed`` has the tests that fail: they cannot run on a netlist. ``places`` has the mutants
        that have an exact place in the netlists of each test, and those that have a near one. The
        mutants are those whose judge of this ``rank`` the class is.
        """
        mutants = self._judged(kind, rank)

        def make(directory: Path) -> None:
            tests = self.tests(kind)
            results = self._run(tests, self._job(tests, mutants))
            (directory / "fitness.json").write_text(json.dumps(results))

        if (kind, rank) not in self._fitness:
            directory = cached(
                "mutant_judges", digest([*self._key, kind, *map(repr, mutants)]), make
            )
            found = json.loads((directory / "fitness.json").read_text())
            for test in found["failed"]:
                print(f"not run on mutants: {test}")
            self._fitness[kind, rank] = found
        return self._fitness[kind, rank]

    def _judged(self, kind: str, rank: int) -> list[Mutant]:
        """Return the mutants whose judge of this rank is a class."""
        if (kind, rank) not in self._groups:
            found = [each for each in self.planted if self.judges(each)[rank : rank + 1] == [kind]]
            self._groups[kind, rank] = found
        return self._groups[kind, rank]

    def _job(self, tests: list[str], mutants: list[Mutant]) -> dict[str, Any]:
        """Return what the plugin reads to run tests on netlists with mutants."""
        notes = self.notes
        return {
            "tests": tests,
            "mutants": [asdict(each) for each in mutants],
            "unit": str(self._cells),
            "steps": {test: notes["tests"][test]["steps"] for test in tests},
            "read": notes["read"],
        }

    def _run(self, tests: list[str], job: dict[str, Any]) -> dict[str, Any]:
        files = sorted({test.partition("::")[0] for test in tests})
        _, results = run_pytest(files, job, "results")
        return results


def run_pytest(
    arguments: list[str], job: dict[str, Any], result: str
) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    """Run pytest with the plugin.

    Parameters
    ----------
    arguments : list of str
        Arguments of pytest.
    job : dict
        What the plugin reads.
    result : str
        Key of the file that it writes.

    Returns
    -------
    process
    written : dict
        What the plugin wrote.

    Raises
    ------
    RuntimeError
        If pytest neither passed nor failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, written = Path(folder, "job.json"), Path(folder, "written.json")
        wanted.write_text(json.dumps({**job, result: str(written)}))
        command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, *arguments]
        env = {**os.environ, VARIABLE: str(wanted)}
        run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if run.returncode not in (0, 1):
            raise RuntimeError(f"pytest failed: {run.stdout[-1000:]}{run.stderr[-1000:]}")
        return run, json.loads(written.read_text())
