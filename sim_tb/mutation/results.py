"""Results of mutants in an SQLite file: each is there as soon as it is known."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from sim_tb.mutation.suites import Trial, Verdict

SCHEMA = """
CREATE TABLE IF NOT EXISTS trials (suite TEXT, tests TEXT, trials TEXT, PRIMARY KEY (suite, tests));
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
        self.netlist = path.stem
        """Digest of the netlist that the file is named for."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def trials(self, suite: str) -> list[Trial] | None:
        """Return the trials of a suite without a mutant."""
        query = "SELECT trials FROM trials WHERE suite = ? AND tests = ?"
        row = self._file.execute(query, (suite, self._keys[suite])).fetchone()
        return [Trial(**each) for each in json.loads(row[0])] if row else None

    def put_trials(self, suite: str, trials: Sequence[Trial]) -> None:
        """Keep the trials of a suite without a mutant."""
        row = suite, self._keys[suite], json.dumps([asdict(each) for each in trials])
        self._file.execute("REPLACE INTO trials VALUES (?, ?, ?)", row)

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
