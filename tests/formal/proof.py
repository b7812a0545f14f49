"""Proofs, and how they are run: on the design as it is, and with a planted bug."""

import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Module

from tests.formal.inside import Inside

AREAS = (
    "queue",
    "completion",
    "mbarrier",
    "coalescer",
    "crossbar",
    "bulk_group",
    "fill",
    "cutter",
    "request_queue",
    "walk",
    "jobs",
    "odometer",
    "lane_network",
    "axi",
    "axi_answers",
    "host",
    "counters",
)
"""Modules of ``tests.formal`` with ``PROOFS``."""

ENGINE = "smtbmc yices"

LINE = "{:<6}  {:<60}  {:<12}  {:<5}  {:>6}  {:>7}"
HEADER = LINE.format("", "proof; bugs planted into its target", "engine", "mode", "clocks", "time")


@dataclass(frozen=True)
class Bug:
    """A change of a block that a proof must notice within ``depth`` clocks.

    Parameters
    ----------
    name : str
        What breaks.
    block : type
        Class of the block.
    change : Callable[[Elaboratable, Inside], None]
        Called with each block of the class and its inside, when it has been elaborated. It adds
        statements to ``inside.module``: as the last ones they win over those of the block.
    depth : int
    """

    name: str
    block: type[Elaboratable]
    change: Callable[[Elaboratable, Inside], None]
    depth: int

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Change every block of the class that is elaborated in this context."""
        elaborate = self.block.elaborate

        def elaborate_with_bug(component: Elaboratable, platform: object) -> Module:
            module = elaborate(component, platform)
            self.change(component, Inside(self.block.__name__, module))
            return module

        self.block.elaborate = elaborate_with_bug
        try:
            yield
        finally:
            self.block.elaborate = elaborate


@dataclass(frozen=True)
class Proof:
    """A specification, how far it is searched, and the bugs that it must notice.

    Parameters
    ----------
    name : str
    spec : Callable[[], Elaboratable]
    depth : int
        Clocks that are searched; with ``unbounded``, over which the induction goes.
    cover : int
        Clocks within which the spec's ``Cover`` is reached: the assumptions leave something.
    bugs : tuple[Bug, ...]
        At least one.
    unbounded : bool
        Holds for any number of clocks, by induction.
    """

    name: str
    spec: Callable[[], Elaboratable]
    depth: int
    cover: int
    bugs: tuple[Bug, ...]
    unbounded: bool = False


@dataclass(frozen=True)
class Run:
    """One run of the solver: ``mode`` of proof ``number`` in ``area``.

    ``bug`` is the number of the planted bug among those of the proof, if there is one, and
    ``name`` is that of the proof or of the bug.
    """

    area: str
    number: int
    name: str
    mode: str
    depth: int
    bug: int | None = None

    @property
    def proof(self) -> Proof:
        """The proof itself."""
        return import_module(f"tests.formal.{self.area}").PROOFS[self.number]

    def netlist(self) -> str:
        """Return the specification with the design, and with the planted bug, as RTLIL."""
        bug = nullcontext() if self.bug is None else self.proof.bugs[self.bug].planted()
        with bug:
            return rtlil.convert(self.proof.spec(), platform="formal", ports=[])


@dataclass(frozen=True)
class Outcome:
    """``log`` says what went wrong."""

    run: Run
    passed: bool
    seconds: float
    log: str = field(repr=False)

    def __str__(self) -> str:
        run = self.run
        is_planted = run.bug is not None
        verdict = ("caught" if is_planted else "passed") if self.passed else "FAILED"
        name = f"  with {run.name}" if is_planted else run.name
        return LINE.format(verdict, name, ENGINE, run.mode, run.depth, f"{self.seconds:.1f} s")


def runs(area: str) -> list[Run]:
    """Return all runs of ``tests.formal.{area}``: each proof, its cover, and each bug."""
    found = []
    for number, proof in enumerate(import_module(f"tests.formal.{area}").PROOFS):
        mode = "prove" if proof.unbounded else "bmc"
        assert proof.bugs, f"{proof.name}: without a planted bug\n"
        found += [
            Run(area, number, proof.name, mode, proof.depth),
            Run(area, number, proof.name, "cover", proof.cover),
            *(
                Run(area, number, bug.name, "bmc", bug.depth, index)
                for index, bug in enumerate(proof.bugs)
            ),
        ]
    return found


def execute(run: Run) -> Outcome:
    """Execute ``run``; an exception is a failure, with its traceback as the log."""
    start = time.monotonic()
    try:
        passed, log = _solve(run, run.netlist())
    except Exception:
        passed, log = False, traceback.format_exc()
    return Outcome(run, passed, time.monotonic() - start, log)


def _solve(run: Run, netlist: str) -> tuple[bool, str]:
    tools = {"YOSYS": "yosys", "SMTBMC": "yosys-smtbmc", "WITNESS": "yosys-witness"}
    environment = os.environ | {name: f"yowasp-{tool}" for name, tool in tools.items()}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder, "top.il")
        top.write_text(netlist)
        job = Path(folder, "proof.sby")
        job.write_text(
            f"[options]\nmode {run.mode}\ndepth {run.depth}\n"
            f"expect {'pass' if run.bug is None else 'fail'}\n[engines]\n{ENGINE}\n"
            f"[script]\nread_rtlil top.il\nprep -top top\nmemory_map\n[files]\n{top}\n"
        )
        result = subprocess.run(
            ["yowasp-sby", "-f", job.name],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return result.returncode == 0, result.stdout
