"""Recorded parts of ``complete_tx``: ``cases`` with the fields ``request``, ``expected``, ``ends``.

In each case a barrier has all of its arrivals and waits for fewer bytes than one request brings. If
a partial sum of the request's bytes meets the expected bytes exactly, the phase ends there. Each
case was recorded three times.
"""

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from golden import mbarrier
from golden.archive import VectorError
from golden.mbarrier import Op
from sim_tb.conformance.barriers import LANES
from sim_tb.conformance.clusters import stored_bytes
from sim_tb.conformance.form import Arrays, Form

RUNS = 3

FIELDS = {"request": (), "expected": (), "ends": (RUNS,), "word_after": (RUNS,)}

PART_BYTES = 16
"""A part has a multiple of these bytes."""

REQUEST = re.compile(
    r"(?P<kind>dcopy|dred|bulk)_(?P<size>\d+)_\d+_\d+"
    r"|(?P<tile>tile|tileoob)_(?P<box>\d+x\d+)_sw\d"
    r"|(?P<multicast>mc3)_(?P<bytes>\d+)"
    rf"|(?P<store>stas)_(?P<form>[\w.]+)x{LANES}"
    rf"|(?P<reduction>redas)_x{LANES}"
)
"""Name of a request: its kind, and the bytes that it brings, in one form or another."""


def request_bytes(name: str) -> int:
    """Return the bytes that a request brings, by its name.

    Raises
    ------
    ValueError
        If the name has another form.
    """
    found = REQUEST.fullmatch(name)
    if found is None:
        raise ValueError(f"{name}: unknown request")
    if found["box"]:
        return prod(int(extent) for extent in found["box"].split("x"))
    if found["form"]:
        return LANES * len(stored_bytes(found["form"], 0))
    if found["reduction"]:
        return LANES * 4
    return int(found["size"] or found["bytes"])


@dataclass(frozen=True)
class PartFile:
    """Cases of a file."""

    rows: NDArray[Any]

    @property
    def kinds(self) -> list[str]:
        """Kind of request of each case."""
        return [str(name).partition("_")[0] for name in self.rows["request"]]

    def check(self, number: int) -> str | None:
        """Compare a case with the golden barrier; return the first difference, or None.

        The word is that of one ``complete_tx`` of all bytes, or that of a phase that ended at a
        part. The parts of a request that does not read global memory are the same in each run.
        """
        row = self.rows[number]
        name, expected = str(row["request"]), int(row["expected"])
        about = f"{name}[{number}]: {expected} of {request_bytes(name)} bytes expected"
        waits = mbarrier.update(mbarrier.init(1), Op.ARRIVE_EXPECT_TX, expected)
        rest = request_bytes(name) - expected
        once = mbarrier.update(waits, Op.COMPLETE_TX, expected + rest, remote=True)
        part = mbarrier.update(waits, Op.COMPLETE_TX, expected, remote=True)
        early = mbarrier.update(part, Op.COMPLETE_TX, rest, remote=True)
        for run, (ends, word) in enumerate(
            zip(row["ends"].tolist(), row["word_after"].tolist(), strict=True)
        ):
            if word != (early if ends else once):
                wanted = early if ends else once
                return f"{about}: word of run {run}: expected {word:#018x}, got {wanted:#018x}"
            if ends and expected % PART_BYTES:
                return f"{about}: the phase ended at a part of {expected % PART_BYTES} bytes"
        if len(set(row["ends"].tolist())) > 1 and not name.startswith(("bulk", "tile", "mc")):
            return f"{about}: the runs differ"
        return None


def is_part_file(arrays: Arrays) -> bool:
    """Return whether the arrays are those of a file of parts."""
    cases = arrays.get("cases")
    return cases is not None and "ends" in (cases.dtype.names or ())


def part_file(path: Path, arrays: Arrays) -> PartFile:
    """Return the cases of a file.

    Raises
    ------
    VectorError
        If the file does not have the form.
    """
    rows = Form(path, arrays).rows("cases", FIELDS)
    for name in sorted(set(rows["request"].tolist())):
        try:
            request_bytes(name)
        except (ValueError, KeyError) as error:
            raise VectorError(f"{path}: {name}: unknown request") from error
    return PartFile(rows)
