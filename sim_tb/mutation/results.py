"""Results of mutants in an SQLite file: each is there as soon as it is known."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from sim_tb.mutation.suites import Verdict

SCHEMA = """
CREATE TABLE IF NOT EXISTS clocks (suite TEXT, tests TEXT, clocks TEXT, PRIMARY KEY (suite, tests));
CREATE TABLE IF NOT EXISTS verdicts (
    mutant TEXT, suite TEXT, tests TEXT, killed_by TEXT, seconds REAL, PRIMARY KEY (mutant, suite)
);
CREATE TABLE IF NOT EXISTS proofs (mutant TEXT PRIMARY KEY, equivalent INTEGER);
"""


class Results:
    """Results of the mutants of one netlist.

    A mutant is known by the options that plant it. What killed a mutant stays when tests change; a
    mutant that lived has no verdict then. A proof needs no tests.

    Parameters
    ----------
    path : Path
        The file.
    keys : mapping of str to str
        Key of each suite by its name, which changes with its tests.
    """

    def __init__(self, path: Path, keys: Mapping[str, str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.executescript(SCHEMA)
        self._keys = keys

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def clocks(self, suite: str) -> list[int] | None:
        """Return the clocks of the runs of a suite without a mutant."""
        query = "SELECT clocks FROM clocks WHERE suite = ? AND tests = ?"
        row = self._file.execute(query, (suite, self._keys[suite])).fetchone()
        return [int(word) for word in row[0].split()] if row else None

    def put_clocks(self, suite: str, clocks: list[int]) -> None:
        """Keep the clocks of the runs of a suite without a mutant."""
        row = suite, self._keys[suite], " ".join(map(str, clocks))
        self._file.execute("REPLACE INTO clocks VALUES (?, ?, ?)", row)

    def verdict(self, mutant: str, suite: str) -> Verdict | None:
        """Return the verdict of a suite on a mutant."""
        query = (
            "SELECT killed_by, seconds FROM verdicts WHERE mutant = ? AND suite = ?"
            " AND (killed_by IS NOT NULL OR tests = ?)"
        )
        row = self._file.execute(query, (mutant, suite, self._keys[suite])).fetchone()
        return Verdict(*row) if row else None

    def put_verdict(self, mutant: str, suite: str, verdict: Verdict) -> None:
        """Keep the verdict of a suite on a mutant."""
        row = mutant, suite, self._keys[suite], verdict.killed_by, verdict.seconds
        self._file.execute("REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?)", row)

    def equivalent(self, mutant: str) -> bool | None:
        """Return whether a mutant is proved to be equivalent; None if nobody tried."""
        query = "SELECT equivalent FROM proofs WHERE mutant = ?"
        row = self._file.execute(query, (mutant,)).fetchone()
        return bool(row[0]) if row else None

    def put_equivalent(self, mutant: str, *, equivalent: bool) -> None:
        """Keep whether a mutant is proved to be equivalent."""
        self._file.execute("REPLACE INTO proofs VALUES (?, ?)", (mutant, int(equivalent)))
