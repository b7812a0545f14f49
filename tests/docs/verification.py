"""Tables of docs/verification.md: ``make verification`` writes them.

Each figure is read where a command left it, and a stage is claimed only if its evidence is there:
tests and proofs from the code, branches and edges from docs/coverage.json, mutants from
docs/mutation.md. Coverage of a file that has changed since it was measured is no evidence.
"""

import argparse
import ast
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from hw.flow.cache import ROOT
from hw.flow.tables import HW, STAGES, Tables, read_table, table, write_tables
from sim_tb.coverage.evidence import EVIDENCE, key_of
from tests.formal.proof import AREAS, Proof

PAGE = ROOT / "docs" / "verification.md"
MUTATION = ROOT / "docs" / "mutation.md"
TESTS = ROOT / "tests" / "hw"

LEAST_TOGGLES, LEAST_KILLED, LEAST_MUTANTS = 0.98, 0.97, 10
"""Shares of edges and of mutants that V3 needs, and number of mutants."""

ABSENT = "-"
MAX_TESTS = 3
"""Most tests of a block that are named."""


@dataclass(frozen=True)
class Points:
    """Numbers of points: reached, explained, and neither."""

    reached: int
    explained: int
    missed: int

    @property
    def share(self) -> float:
        """Share of the points without explanation that simulations reached."""
        reachable = self.reached + self.missed
        return self.reached / reachable if reachable else 1.0

    def __str__(self) -> str:
        if not self.reached + self.explained + self.missed:
            return "none"
        share = "100%" if not self.missed else f"{int(1000 * self.share) / 10:.1f}%"
        return f"{share} of {self.reached + self.missed}"


@dataclass(frozen=True)
class Block:
    """A block: its file, and the evidence for its stages.

    Parameters
    ----------
    file : str
        Python file.
    contract : bool
        Its classes have docstrings.
    tests : tuple of str
        Files in ``tests/hw`` that import it; if there are none, those of the blocks that do.
    proofs : tuple of Proof
        Proofs that notice a bug planted into it.
    branches, toggles : Points, optional
        Coverage. None, if the file is not in the default unit.
    stale : bool
        The coverage is that of another state of the file.
    killed, mutants : int
        Mutants in the block that tests killed, and all that are not equivalent.
    """

    file: str
    contract: bool
    tests: tuple[str, ...]
    proofs: tuple[Proof, ...]
    branches: Points | None
    toggles: Points | None
    stale: bool
    killed: int
    mutants: int

    @property
    def design(self) -> str:
        """Stage of the design."""
        if not self.contract:
            return "D0"
        return "D1" if self.branches is None else "D2"

    @property
    def verification(self) -> str:
        """Stage of the verification."""
        if not self.tests:
            return "V0"
        if self.branches is None or self.toggles is None or self.stale:
            return "V1"
        if self.branches.missed or not self.proofs:
            return "V1"
        tried = self.mutants >= LEAST_MUTANTS and self.killed >= LEAST_KILLED * self.mutants
        return "V3" if tried and self.toggles.share >= LEAST_TOGGLES else "V2"

    @property
    def row(self) -> list[str]:
        """Cells of the table."""
        path = Path(self.file)
        proofs = [
            f"{proof.name} ({'unbounded' if proof.unbounded else f'{proof.depth} clocks'})"
            for proof in self.proofs
        ]
        coverage = [str(points or ABSENT) for points in (self.branches, self.toggles)]
        if self.stale:
            coverage = ["changed since"] * 2
        return [
            f"[{path.parent.name}/{path.stem}](../{self.file})",
            ", ".join(f"[{Path(file).stem}](../{file})" for file in self.tests[:MAX_TESTS])
            + (f" and {more} more" if (more := len(self.tests) - MAX_TESTS) > 0 else "")
            or ABSENT,
            "; ".join(proofs) or ABSENT,
            *coverage,
            f"{self.killed} of {self.mutants}" if self.mutants else ABSENT,
            f"{self.design} {self.verification}",
        ]


def _classes(path: Path) -> dict[str, str | None]:
    """Return the public classes of a file, and their docstrings."""
    nodes = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    return {node.name: ast.get_docstring(node) for node in nodes if node.name[0] != "_"}


@cache
def _imports(folder: Path, pattern: str) -> dict[str, tuple[str, ...]]:
    """Return the files of a folder that import each module of ``hw``."""
    found = defaultdict(set)
    for path in folder.rglob(pattern):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hw."):
                found[node.module].add(str(path.relative_to(ROOT)))
    return {module: tuple(sorted(files)) for module, files in found.items()}


def _tests_of(module: str) -> tuple[str, ...]:
    """Return the tests of a module of ``hw``, or else those of the modules that import it."""
    direct = _imports(TESTS, "test_*.py").get(module, ())
    if direct:
        return direct
    users = _imports(HW, "*.py").get(module, ())
    outer = (user.removesuffix(".py").replace("/", ".") for user in users)
    return tuple(sorted({test for user in outer for test in _tests_of(user)}))


@cache
def _proofs() -> dict[str, tuple[Proof, ...]]:
    """Return the proofs of each file."""
    found: dict[str, dict[str, Proof]] = defaultdict(dict)
    for area in AREAS:
        for proof in import_module(f"tests.formal.{area}").PROOFS:
            for bug in proof.bugs if isinstance(proof, Proof) else ():
                file = Path(inspect.getfile(bug.block))
                if file.is_relative_to(ROOT):
                    found[str(file.relative_to(ROOT))][proof.name] = proof
    return {file: tuple(proofs.values()) for file, proofs in found.items()}


@cache
def _mutants() -> dict[str, tuple[int, int]]:
    """Return the mutants of each class that were killed, and those that are not equivalent."""
    head, rows = read_table(MUTATION.read_text(), "unit")
    columns = [head.index(name) for name in ("mutants", "equivalent", "explained", "alive")]
    found = {}
    for row in rows:
        mutants, equivalent, *living = (int(row[column]) for column in columns)
        found[row[0]] = mutants - equivalent - sum(living), mutants - equivalent
    return found


@cache
def blocks() -> list[Block]:
    """Return all blocks of ``hw``, in the order of a request's way."""
    measured = json.loads(EVIDENCE.read_text())["files"]
    found = []
    for path in (path for stage in STAGES for path in sorted((HW / stage).glob("*.py"))):
        classes, file = _classes(path), str(path.relative_to(ROOT))
        figures = measured.get(file, {})
        points = [Points(*figures[name]) if name in figures else None for name in COUNTED]
        if any(points):
            points = [item or Points(0, 0, 0) for item in points]
        mutants = [_mutants()[name] for name in classes if name in _mutants()]
        if classes:
            found.append(
                Block(
                    file=file,
                    contract=all(classes.values()),
                    tests=_tests_of(file.removesuffix(".py").replace("/", ".")),
                    proofs=_proofs().get(file, ()),
                    branches=points[0],
                    toggles=points[1],
                    stale=bool(figures) and figures["key"] != key_of(file),
                    killed=sum(killed for killed, _ in mutants),
                    mutants=sum(number for _, number in mutants),
                )
            )
    return found


COUNTED = "branches", "toggles"


def block_table() -> str:
    """Return the evidence and the stages of each block."""
    head = "block", "tests", "proofs", "branches", "edges", "mutants killed", "stages"
    return table(head, (block.row for block in blocks()))


def stage_table() -> str:
    """Return the number of blocks in each stage."""
    stages = [stage for block in blocks() for stage in (block.design, block.verification)]
    names = [f"{kind}{number}" for kind in "DV" for number in range(4)]
    return table(names, [[str(stages.count(name)) for name in names]])


def total_table() -> str:
    """Return the branches and edges of all files of ``hw`` in the default unit."""
    measured = json.loads(EVIDENCE.read_text())["files"].values()
    rows = []
    for name, label in zip(COUNTED, ("branches", "edges of registers"), strict=True):
        numbers = [figures[name] for figures in measured if name in figures]
        total = Points(*map(sum, zip(*numbers, strict=True)))
        cells = total.reached, total.explained, total.missed
        rows.append([label, *map(str, cells), f"{int(1000 * total.share) / 10:.1f}%"])
    return table(("", "reached", "explained", "neither", "reached of those not explained"), rows)


def cross_table() -> str:
    """Return the crosses of requests."""
    crosses = json.loads(EVIDENCE.read_text())["crosses"]
    rows = [[noun, str(hit), str(possible)] for noun, (hit, possible) in crosses.items()]
    return table(("cross", "combinations simulated", "legal combinations"), rows)


TABLES: Tables = {
    "stages": stage_table,
    "blocks": block_table,
    "totals": total_table,
    "crosses": cross_table,
}
"""Tables of docs/verification.md."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables of the page; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.verification", description=__doc__)
    parser.parse_args(arguments)
    write_tables(parser, PAGE, TABLES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
