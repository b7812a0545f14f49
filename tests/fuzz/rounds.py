"""Rounds of random requests, and what a round tells later ones."""

import json
import os
import random
import shlex
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from hw.flow.verilog import MODULE
from hw.params import PRESETS, TmaParams, options_of
from sim_tb.coverage.counts import branches_taken
from sim_tb.distribution.store import code
from sim_tb.simulator import runner
from tests.fuzz import programs
from tests.fuzz.compare import differences, write
from tests.fuzz.draw import Drawn, Row, draw
from tests.fuzz.shrink import shrunk
from tests.hw.drawn import drawn as drawn_params

ROUND = 2000
"""Requests of a simulation. It takes two seconds to start."""

GENERATION = 16
"""Rounds that know the same corpus, whatever the number of workers is. So the cases of a seed are
always the same. The first of them counts branches, in four times the time of another."""

NUMBERS = (
    *("line_bytes", "request_queue_depth", "descriptor_cache_entries", "setup_pipelines", "tags"),
    *("requests_in_flight", "lane_depth", "smem_reads", "threads", "bulk_groups", "streams"),
    *("barrier_waiters", "completions_waiting", "jobs_waiting", "short_rows"),
)
"""Parameters that change no result."""

CORPUS = 5000
"""Most rows that are changed further: the newest ones."""


@dataclass(frozen=True)
class Ended:
    """Findings of a round.

    Parameters
    ----------
    kinds : str
        JSON: requests by operation and name of their error, as "load " or "store STRIDE".
    differing : str
        JSON: indices of the requests that differ.
    taken : bytes
        A bit for each point of the RTL's branches, in the order of the simulator: it was taken.
        Empty if the round counted none.
    """

    kinds: str
    differing: str
    taken: bytes

    @classmethod
    def of(cls, kinds: Counter[str], found: list[str | None], taken: bytes = b"") -> "Ended":
        """Return the findings, with the difference of each case or None."""
        different = [index for index, text in enumerate(found) if text is not None]
        return cls(json.dumps(kinds), json.dumps(different), taken)

    @property
    def different(self) -> list[int]:
        """Indices of the requests that differ."""
        return list(json.loads(self.differing))


@dataclass(frozen=True)
class Round:
    """A simulation of random requests.

    Parameters
    ----------
    seed : int
        Seed of the run.
    number : int
        Number of the round in the run.
    size : int
        Requests.
    counted : bool
        Branches of the RTL are counted.
    params : TmaParams
        Parameters of the unit.
    corpus : list of Row
        Rows that are changed further.
    """

    seed: int
    number: int
    size: int
    counted: bool
    params: TmaParams
    corpus: list[Row]

    def cases(self) -> list[Drawn]:
        """Return the requests."""
        rng = np.random.default_rng([self.seed, self.number])
        return [draw(rng, index, self.corpus) for index in range(self.size)]

    def play(self) -> Ended:
        """Run the requests on the golden model and on the RTL."""
        cases = self.cases()
        with tempfile.TemporaryDirectory() as folder:
            if self.counted:
                os.environ[runner.COVERAGE_DIRECTORY] = folder
            try:
                found = differences(cases, self.params, seed=self.number + 1)
            finally:
                os.environ.pop(runner.COVERAGE_DIRECTORY, None)
            taken = [
                np.array(branches_taken(path, f"{MODULE}.v"))
                for path in Path(folder).rglob("*.dat")
            ]
        refusals = (drawn.golden.refused for drawn in cases)
        kinds = Counter(
            f"{drawn.case.op} {refused.code.name if refused else ''}"
            for drawn, refused in zip(cases, refusals, strict=True)
        )
        bits = np.packbits(np.logical_or.reduce(taken)).tobytes() if taken else b""
        return Ended.of(kinds, found, bits)

    def report(self, index: int, path: Path) -> list[str]:
        """Make a request that differs as simple as possible; write its file, and describe it."""

        def differs(cases: Sequence[Drawn]) -> list[bool]:
            return [text is not None for text in differences(cases, self.params)]

        smallest = shrunk(self.cases()[index], differs)
        write(path, [smallest])
        text = differences([smallest], self.params)[0]
        port = " PORT=contexts" if self.params.contexts > 1 else ""
        lines = [f"{smallest.case.request()}\n  {text}"]
        lines.append(f"  make conformance VECTORS={path} TARGET=rtl{port}")
        if options := options_of(self.params):
            lines.append(f"  the unit has {shlex.join(options)}")
        return lines


@dataclass(frozen=True)
class ClusterRound:
    """A simulation of random programs on a cluster; parameters as of ``Round``."""

    seed: int
    number: int
    size: int

    def cases(self) -> list[programs.Drawn]:
        """Return the programs."""
        rng = np.random.default_rng([self.seed, self.number])
        return [programs.draw(rng) for _ in range(self.size)]

    def play(self) -> Ended:
        """Run the programs on the golden model and on the RTL."""
        cases = self.cases()
        found = programs.differences(cases, seed=self.number + 1)
        errors = (case.golden.results[-1].error for case in cases)
        return Ended.of(
            Counter(f"program {error.name if error else ''}" for error in errors), found
        )

    def report(self, index: int, path: Path) -> list[str]:
        """Make a program that differs as simple as possible; write its file, and describe it."""
        seed = self.number + 1
        smallest = programs.shrunk(self.cases()[index], seed)
        programs.write(path, smallest)
        text = programs.differences([smallest], seed)[0]
        command = f"  make conformance VECTORS={path} TARGET=rtl"
        return [f"{smallest.program}\n  {text}", command]


def play(round_: Round | ClusterRound) -> Ended:
    """Run a round on the golden model and on the RTL."""
    return round_.play()


def units(seed: int, count: int) -> list[TmaParams]:
    """Return the default unit, and ``count`` units of random widths, depths and numbers.

    All of them carry out the same requests with the same results.
    """
    default, rng = PRESETS["default"], random.Random(seed)
    found = [default]
    while len(found) <= count:
        chosen = drawn_params(rng, ctas=1)
        with suppress(ValueError):  # a number needs a feature that the default unit lacks
            found.append(replace(default, **{name: getattr(chosen, name) for name in NUMBERS}))
    return found


@dataclass
class Fuzzer:
    """Rounds of random requests, a generation at a time.

    Parameters
    ----------
    seed : int
    count : int
        Requests in all.
    guided : bool
        The first round of each generation counts branches of the RTL, which guide the choice.
    units : list of TmaParams
        Units that take turns.
    clusters : bool
        Rounds have programs of clusters in place of requests.
    """

    seed: int
    count: int
    guided: bool
    units: list[TmaParams] = field(default_factory=lambda: [PRESETS["default"]])
    clusters: bool = False
    corpus: list[Row] = field(default_factory=list)
    taken: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    kinds: Counter[str] = field(default_factory=Counter)
    """Requests, by operation and the name of their error."""
    begun: int = 0
    """Rounds of earlier generations."""

    def generation(self) -> dict[str, Round | ClusterRound]:
        """Return the next rounds by the keys of their results; none behind the last."""
        numbers = range(self.begun, min(self.begun + GENERATION, -(-self.count // ROUND)))
        self.begun = numbers.stop
        rounds: dict[str, Round | ClusterRound] = {}
        for number in numbers:
            size = min(ROUND, self.count - number * ROUND)
            if self.clusters:
                which = f"clusters seed={self.seed} round={number} size={size}"
                key = f"{code('tests')} {which}"
                rounds[key] = ClusterRound(self.seed, number, size)
                continue
            unit = self.units[number % len(self.units)]
            which = f"seed={self.seed} guided={self.guided} round={number} size={size}"
            key = " ".join([code("tests"), which, *options_of(unit)])
            counted = self.guided and number % GENERATION == 0
            rounds[key] = Round(self.seed, number, size, counted, unit, self.corpus)
        return rounds

    def add(self, round_: Round | ClusterRound, ended: Ended) -> None:
        """Take in what a round found; rounds come in order."""
        self.kinds.update(json.loads(ended.kinds))
        if not isinstance(round_, Round) or not round_.counted:
            return
        taken = np.frombuffer(ended.taken, np.uint8)
        if not self.taken.size:
            self.taken = np.zeros_like(taken)
        if (taken & ~self.taken).any():
            self.taken = self.taken | taken
            rows = [drawn.case.fields for drawn in round_.cases()]
            self.corpus = [*self.corpus, *rows][-CORPUS:]

    @property
    def points(self) -> int:
        """Points of the RTL's branches that were taken."""
        return int(np.unpackbits(self.taken).sum())

    def table(self) -> Table:
        """Return the requests by operation and error."""
        operations = ("program",) if self.clusters else ("load", "store", "reduce")
        table = Table("", *operations, title=f"seed {self.seed}", title_justify="left")
        for error in sorted({kind.partition(" ")[2] for kind in self.kinds}):
            counts = (self.kinds[f"{operation} {error}"] for operation in operations)
            table.add_row(error or "accepted", *(f"{count:,}" if count else "" for count in counts))
        return table
