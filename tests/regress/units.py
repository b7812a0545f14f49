"""Units of tests, which a worker runs in a process of pytest."""

import io
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hw.flow.cache import ROOT, digest

TAIL = 60
"""Lines of pytest's output that are kept if a test fails."""


class CollectionError(RuntimeError):
    """pytest cannot collect the tests; the text is its output."""


@dataclass(frozen=True)
class Unit:
    """Tests of one process.

    Parameters
    ----------
    name : str
        A file, a long test of a file, or such a test with one set of its parameters.
    tests : tuple of str
        Their names for pytest.
    """

    name: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """Outcome of a unit.

    Parameters
    ----------
    name : str
    passed, skipped, failed : int
        Tests. An error in a fixture is a failure.
    seconds : float
        Time of the process.
    output : str
        End of pytest's output if a test failed; else empty.
    """

    name: str
    passed: int
    skipped: int
    failed: int
    seconds: float
    output: str


class Collector:
    """Plugin of pytest that keeps the collected tests."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take the tests."""
        self.items = session.items


def collected(arguments: Sequence[str]) -> list[Unit]:
    """Return the units of the tests that arguments of pytest select.

    A long test, with all its parameters, is a unit of its own; if it is marked ``spread``, with
    each set of them. All other tests of a file are one: they share what is slow to make.

    Raises
    ------
    CollectionError
        If pytest cannot collect them.
    """
    collector, output = Collector(), io.StringIO()
    with redirect_stdout(output):
        status = pytest.main(["--collect-only", "-q", *arguments], plugins=[collector])
    if status:
        raise CollectionError(output.getvalue())
    units = defaultdict(list)
    for item in collector.items:
        name = item.nodeid.partition("::")[0]
        if item.get_closest_marker("regress"):
            is_spread = item.get_closest_marker("spread")
            name = item.nodeid if is_spread else item.nodeid.partition("[")[0]
        units[name].append(item.nodeid)
    return [Unit(name, tuple(tests)) for name, tests in units.items()]


def run(unit: Unit) -> Ended:
    """Run the tests of a unit in a process of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        names, report = Path(folder) / "tests", Path(folder) / "report.xml"
        names.write_text("\n".join(unit.tests))
        command = [sys.executable, "-W", "error", "-m", "pytest", "-q", f"--junitxml={report}"]
        ended = subprocess.run(
            [*command, f"@{names}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        output = ended.stdout + ended.stderr
        if not report.exists():
            return Ended(unit.name, 0, 0, len(unit.tests), 0, output[-10000:])
        (suite,) = ElementTree.parse(report).getroot()
    tests, failures, errors, skipped = (
        int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = max(failures + errors, int(ended.returncode != 0))
    tail = "\n".join(output.splitlines()[-TAIL:]) if failed else ""
    passed = tests - failures - errors - skipped
    return Ended(unit.name, passed, skipped, failed, float(suite.attrib["time"]), tail)


def sources() -> str:
    """Return the key of all files that git knows, or would add: what a result depends on."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = sorted(filter(None, listed.stdout.split("\0")))
    paths = [ROOT / name for name in names]
    return str(
        digest(
            part
            for name, path in zip(names, paths, strict=True)
            if path.is_file()
            for part in (name, digest([path.read_bytes().hex()]))
        )
    )
