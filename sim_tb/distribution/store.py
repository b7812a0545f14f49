"""Results of tasks in an SQLite file: each is there as soon as it is known."""

import sqlite3
from collections.abc import Mapping
from dataclasses import astuple, fields
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

from hw.flow.cache import ROOT, created, digest

Row = TypeVar("Row")

COLUMNS: Mapping[Any, str] = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
PACKAGES = "golden", "hw", "open_tma", "sim_tb"
COMPILED = ".py", ".cpp", ".hpp", ".sv"
"""Suffixes of the files whose contents decide what a simulation does."""


@cache
def code(*more: str) -> str:
    """Return the key of the project's code, with ``more`` folders beside those of the packages.

    It is that of the first call in a process, whose modules do not change any more.
    """
    paths = (path for package in (*PACKAGES, *more) for path in sorted((ROOT / package).rglob("*")))
    return str(
        digest(
            part
            for path in paths
            if path.suffix in COMPILED
            for part in (str(path.relative_to(ROOT)), path.read_text())
        )
    )


class Store(Generic[Row]):
    """Table of an SQLite file, with a row for each task that has ended.

    Parameters
    ----------
    path : Path
        The file. It is made if there is none.
    kind : type
        Dataclass of the rows, whose fields are of type int, float, str or bytes. The table has its
        name.

    Members
    -------
    found : int
        Rows that ``get`` has found.
    """

    def __init__(self, path: Path, kind: type[Row]) -> None:
        created(path.parent)
        self.path, self.kind, self.found = path, kind, 0
        self._file = sqlite3.connect(path, isolation_level=None)
        types = get_type_hints(kind)
        columns = [f"{each.name} {COLUMNS[types[each.name]]}" for each in fields(kind)]  # type: ignore[arg-type]
        self._file.execute(
            f"CREATE TABLE IF NOT EXISTS {kind.__name__} (key TEXT PRIMARY KEY, "
            f"{', '.join(columns)})"
        )

    def __enter__(self) -> "Store[Row]":
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def get(self, key: str) -> Row | None:
        """Return the row of a task; None if there is none."""
        query = f"SELECT * FROM {self.kind.__name__} WHERE key = ?"
        row = self._file.execute(query, (key,)).fetchone()
        self.found += row is not None
        return self.kind(*row[1:]) if row else None

    @property
    def remark(self) -> str:
        """Sentence about the results that are of an earlier run; empty if there are none."""
        return f"{self.found:,} results are of an earlier run: {self.path}" if self.found else ""

    def put(self, key: str, row: Row) -> None:
        """Keep the row of a task."""
        values = key, *astuple(row)  # type: ignore[call-overload]
        places = ", ".join("?" * len(values))
        self._file.execute(f"REPLACE INTO {self.kind.__name__} VALUES ({places})", values)
