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
    "line_reducer",
    "host",
    "counters",
    "lemmas",
    "items",
    "clip",
    "products",
    "generator",
    "translation",
    "columns",
    "contexts",
)
"""Modules of ``tests.formal`` with ``PROOFS``."""

ENGINE = "smtbmc yices"

SHARE_CELLS = "flatten\nopt -full\nsplitcells\nopt_merge\nopt_clean\nopt_merge\n"
"""Commands of Yosys for a proof that ``shares_cells``."""

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
    shares_cells : bool
        Equal cells of the specification and the design become one before the solver starts, across
        modules and bit by bit: a product that both have is then no question for it.
    """

    name: str
    spec: Callable[[], Elaboratable]
    depth: int
    cover: int
    bugs: tuple[Bug, ...]
    unbounded: bool = False
    shares_cells: bool = False


@dataclass(frozen=True)
class Lemma:
    """A statement about integers, which does not hold without any one of its premises.

    Each premise that is left out is a planted bug: the solver must find numbers that refute what
    remains.

    Parameters
    ----------
    name : str
    variables : str
        Names of the integers.
    premises : tuple[str, ...]
        Terms of SMT-LIB.
    conclusion : str
        A term of SMT-LIB.
    """

    name: str
    variables: str
    premises: tuple[str, ...]
    conclusion: str

    def text(self, *, without: int | None = None, is_cover: bool = False) -> str:
        """Return the search for a counterexample in SMT-LIB, or with ``is_cover`` for an example.

        ``without``: the number of the premise that is left out.
        """
        premises = [term for number, term in enumerate(self.premises) if number != without]
        claim = self.conclusion if is_cover else f"(not {self.conclusion})"
        lines = (
            "(set-logic QF_NIA)",
            *(f"(declare-const {name} Int)" for name in self.variables.split()),
            *(f"(assert {term})" for term in (*premises, claim)),
            "(check-sat)",
        )
        return "\n".join((*lines, ""))

    def runs(self, area: str, number: int) -> list["Run"]:
        """Return the runs of the lemma, which is ``number`` in ``area``."""
        return [
            Run(area, number, self.name, "smt", 0),
            Run(area, number, self.name, "cover", 0),
            *(
                Run(area, number, f"no premise {term}", "smt", 0, without)
                for without, term in enumerate(self.premises)
            ),
        ]


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
    def proof(self) -> Proof | Lemma:
        """The proof itself."""
        return import_module(f"tests.formal.{self.area}").PROOFS[self.number]

    def netlist(self) -> str:
        """Return the specification with the design, and with the planted bug, as RTLIL.

        A lemma has no design: return its terms in SMT-LIB.
        """
        if isinstance(self.proof, Lemma):
            return self.proof.text(without=self.bug, is_cover=self.mode == "cover")
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
        engine = ENGINE.split()[-1] if isinstance(run.proof, Lemma) else ENGINE
        return LINE.format(verdict, name, engine, run.mode, run.depth, f"{self.seconds:.1f} s")


def runs(area: str) -> list[Run]:
    """Return all runs of ``tests.formal.{area}``: each proof, its cover, and each bug."""
    found = []
    for number, proof in enumerate(import_module(f"tests.formal.{area}").PROOFS):
        if isinstance(proof, Lemma):
            found += proof.runs(area, number)
            continue
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
        solve = _solve_lemma if isinstance(run.proof, Lemma) else _solve
        passed, log = solve(run, run.netlist())
    except Exception:
        passed, log = False, traceback.format_exc()
    return Outcome(run, passed, time.monotonic() - start, log)


def _solve_lemma(run: Run, terms: str) -> tuple[bool, str]:
    """Search for numbers that meet ``terms``: there are some if a premise is missing."""
    solver = Path(sys.executable).with_name("yices-smt2")
    result = subprocess.run(
        [solver, "--timeout=60"],
        input=terms,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    is_found = run.bug is not None or run.mode == "cover"
    return result.stdout.split() == ["sat" if is_found else "unsat"], terms + result.stdout


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
            f"[script]\nread_rtlil top.il\nprep -top top\nmemory_map\n"
            f"{SHARE_CELLS if run.proof.shares_cells else ''}[files]\n{top}\n"
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
