"""Recorded edits of tensor maps by ``tensormap.replace``: the arrays ``before`` and others.

Each row has the 32 words of a map, and up to 12 edits with the words after each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import TmaError, tensormap_replace
from golden.descriptor import WORDS
from sim_tb.conformance.form import Arrays, Form

LAST = 99
"""Field that ends the edits of a row."""

INDEXED = {"box_dim", "global_dim", "global_stride", "element_stride"}
"""Fields that have an index."""

KIND = "tensormap_replace"


@dataclass(frozen=True)
class ReplacementFile:
    """Edits of a file.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Arrays of the file.
    fields : list of str
        Names of the fields.
    """

    arrays: Arrays
    fields: list[str]

    def __len__(self) -> int:
        return len(self.arrays["before"])

    @property
    def kinds(self) -> list[str]:
        """Kind of each row: all rows have the same."""
        return [KIND] * len(self)

    def check(self, row: int) -> str | None:
        """Edit the map of a row with the golden model; return the first difference, or None."""
        before: NDArray[np.uint32] = self.arrays["before"][row]
        for number, (name, value, index, after) in enumerate(self._edits(row)):
            about = f"{KIND}[{row}]: edit {number}, {name} = {value:#x}"
            place = index if name in INDEXED else None
            try:
                edited = tensormap_replace(before.astype("<u4").tobytes(), name, value, place)
            except TmaError as error:
                return f"{about}: silicon finished it, got {error}"
            differ = np.flatnonzero(np.frombuffer(edited, "<u4") != after)
            if differ.size:
                word = int(differ[0])
                got = int(np.frombuffer(edited, "<u4")[word])
                return f"{about}: word w{word}: expected {int(after[word]):#010x}, got {got:#010x}"
            before = after
        return None

    def _edits(self, row: int) -> Iterator[tuple[str, int, int, Any]]:
        """Yield name, value, index and the words afterwards of each edit of a row."""
        for n, field in enumerate(self.arrays["field"][row].tolist()):
            if field == LAST:
                return
            value, index = int(self.arrays["value"][row, n]), int(self.arrays["index"][row, n])
            yield self.fields[field], value, index, self.arrays["after"][row, n]


def is_replacement_file(arrays: Arrays) -> bool:
    """Return whether the arrays are those of a file of edits."""
    return {"before", "field", "after"} <= arrays.keys()


def replacement_file(path: Path, arrays: Arrays) -> ReplacementFile:
    """Return the edits of a file.

    Raises
    ------
    VectorError
        If the file does not have the form.
    """
    form = Form(path, arrays)
    rows = len(form.unsigned("before", (None, WORDS), 32))
    edits = form.unsigned("after", (rows, None, WORDS), 32).shape[1]
    for name in ("field", "index", "value"):
        form.unsigned(name, (rows, edits))
    names = form.names("fields")
    form.check_index("field", arrays["field"][arrays["field"] != LAST], len(names))
    return ReplacementFile(arrays, names)
