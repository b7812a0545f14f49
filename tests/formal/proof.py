"""What a proof is, and how it is run: on the real design, and on a copy with a planted bug."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable

AREAS = "queue", "completion", "mbarrier", "coalescer", "crossbar", "bulk_group"
"""Modules of ``tests.formal`` with ``PROOFS``."""

ENGINE = "smtbmc yices"

LINE = "{:<6}  {:<60}  {:<12}  {:<5}  {:>6}  {:>7}"
HEADER = LINE.format("", "proof; bugs planted into its target", "engine", "mode", "clocks", "time")


@dataclass(frozen=True)
class Bug:
    """A change of ``module``'s source that a proof must notice within ``depth`` clocks.

    ``old`` stands there exactly once; ``name`` says what breaks.
    """

    name: str
    module: str
    old: str
    new: str
    depth: int

    def source(self) -> str:
        """Return the changed source.

        Raises
        ------
        ValueError
            If the design has changed so that ``old`` is not there, or more than once.
        """
        source = Path(importlib.util.find_spec(self.module).origin).read_text()
        found = source.count(self.old)
        if found != 1:
            raise ValueError(
                f"bug {self.name!r} of {self.module}: its old text is there {found} times: "
                f"{self.old!r}"
            )
        return source.replace(self.old, self.new)

    def plant(self) -> None:
        """Make ``module`` the changed one, for this process; nothing may have imported it."""
        assert self.module not in sys.modules, f"{self.module} is imported already\n"
        spec = importlib.util.find_spec(self.module)
        sys.modules[self.module] = module = importlib.util.module_from_spec(spec)
        exec(compile(self.source(), spec.origin, "exec"), module.__dict__)


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
    """One run of the solver: ``mode`` of proof ``number`` in ``area``, perhaps with a bug."""

    area: str
    number: int
    name: str
    mode: str
    depth: int
    bug: Bug | None = None


@dataclass(frozen=True)
class Outcome:
    """``log`` says what went wrong."""

    run: Run
    passed: bool
    seconds: float
    log: str = field(repr=False)

    def __str__(self) -> str:
        run = self.run
        verdict = ("caught" if run.bug else "passed") if self.passed else "FAILED"
        name = f"  with {run.bug.name}" if run.bug else run.name
        return LINE.format(verdict, name, ENGINE, run.mode, run.depth, f"{self.seconds:.1f} s")


def runs(area: str) -> list[Run]:
    """All runs of ``tests.formal.{area}``: each proof, its cover, and each bug."""
    found = []
    for number, proof in enumerate(import_module(f"tests.formal.{area}").PROOFS):
        mode = "prove" if proof.unbounded else "bmc"
        assert proof.bugs, f"{proof.name}: without a planted bug\n"
        found += [
            Run(area, number, proof.name, mode, proof.depth),
            Run(area, number, proof.name, "cover", proof.cover),
            *(Run(area, number, proof.name, "bmc", bug.depth, bug) for bug in proof.bugs),
        ]
    return found


def execute(run: Run) -> Outcome:
    """Execute ``run`` in this process, which has imported nothing of ``hw`` so far."""
    start = time.monotonic()
    try:
        if run.bug:
            run.bug.plant()
        proof = import_module(f"tests.formal.{run.area}").PROOFS[run.number]
        passed, log = _solve(run, rtlil.convert(proof.spec(), platform="formal", ports=[]))
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
            f"expect {'fail' if run.bug else 'pass'}\n[engines]\n{ENGINE}\n"
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
