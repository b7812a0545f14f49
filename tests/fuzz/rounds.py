"""Rounds of random requests, and what a round tells later ones."""

import json
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from sim_tb.coverage import branches
from sim_tb.distribution.store import code
from sim_tb.simulator import runner
from tests.fuzz.compare import differences
from tests.fuzz.draw import Drawn, Row, draw

ROUND = 250
"""Requests of a simulation."""

GENERATION = 8
"""Rounds that know the same corpus, whatever the number of workers is. So the cases of a seed are
always the same."""

CORPUS = 5000
"""Most rows that are changed further: the newest ones."""


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
    guided : bool
        Branches of the RTL are counted.
    corpus : list of Row
        Rows that are changed further.
    """

    seed: int
    number: int
    size: int
    guided: bool
    corpus: list[Row]

    def cases(self) -> list[Drawn]:
        """Return the requests."""
        rng = np.random.default_rng([self.seed, self.number])
        return [draw(rng, index, self.corpus) for index in range(self.size)]


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
    """

    kinds: str
    differing: str
    taken: bytes

    @property
    def different(self) -> list[int]:
        """Indices of the requests that differ."""
        return list(json.loads(self.differing))


def play(round_: Round) -> Ended:
    """Run a round on the golden model and on the RTL."""
    cases = round_.cases()
    with tempfile.TemporaryDirectory() as folder:
        if round_.guided:
            os.environ[runner.COVERAGE_DIRECTORY] = folder
        try:
            found = differences(cases, seed=round_.number + 1)
        finally:
            os.environ.pop(runner.COVERAGE_DIRECTORY, None)
        taken = [
            np.array([count > 0 for _, count in branches.points(path.read_text(), "tma.v")])
            for path in Path(folder).rglob("*.dat")
        ]
    refusals = (drawn.golden.refused for drawn in cases)
    kinds = Counter(
        f"{drawn.case.op} {refused.code.name if refused else ''}"
        for drawn, refused in zip(cases, refusals, strict=True)
    )
    different = [index for index, text in enumerate(found) if text is not None]
    bits = np.packbits(np.logical_or.reduce(taken)).tobytes() if taken else b""
    return Ended(json.dumps(kinds), json.dumps(different), bits)


def case_of(round_: Round, index: int) -> Drawn:
    """Return a request of a round."""
    return round_.cases()[index]


@dataclass
class Fuzzer:
    """Rounds of random requests, a generation at a time.

    Parameters
    ----------
    seed : int
    count : int
        Requests in all.
    guided : bool
        Branches of the RTL are counted, and guide the choice.
    """

    seed: int
    count: int
    guided: bool
    corpus: list[Row] = field(default_factory=list)
    taken: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    kinds: Counter[str] = field(default_factory=Counter)
    """Requests, by operation and the name of their error."""
    begun: int = 0
    """Rounds of earlier generations."""

    def generation(self) -> dict[str, Round]:
        """Return the next rounds by the keys of their results; none behind the last."""
        numbers = range(self.begun, min(self.begun + GENERATION, -(-self.count // ROUND)))
        self.begun = numbers.stop
        rounds = {}
        for number in numbers:
            size = min(ROUND, self.count - number * ROUND)
            key = (
                f"{code('tests')} seed={self.seed} guided={self.guided} round={number} size={size}"
            )
            rounds[key] = Round(self.seed, number, size, self.guided, self.corpus)
        return rounds

    def add(self, round_: Round, ended: Ended) -> None:
        """Take in what a round found; rounds come in order."""
        self.kinds.update(json.loads(ended.kinds))
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
        operations = "load", "store", "reduce"
        table = Table("", *operations, title=f"seed {self.seed}", title_justify="left")
        for error in sorted({kind.partition(" ")[2] for kind in self.kinds}):
            counts = (self.kinds[f"{operation} {error}"] for operation in operations)
            table.add_row(error or "accepted", *(f"{count:,}" if count else "" for count in counts))
        return table
