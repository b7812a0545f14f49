"""Comparison of the golden model with the RTL, case by case, and files of the cases that differ."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from golden.vectors import Outcome
from hw.params import PRESETS, TmaParams
from sim_tb.conformance import rtl
from tests.fuzz.draw import BLOB, Drawn


def differences(
    cases: Sequence[Drawn], params: TmaParams = PRESETS["default"], seed: int = 1
) -> list[str | None]:
    """Run cases on a unit; return for each how it differs from the golden model, or None."""
    got = rtl.outcomes([drawn.case for drawn in cases], params=params, seed=seed)
    return [difference(drawn.golden, outcome) for drawn, outcome in zip(cases, got, strict=True)]


def difference(golden: Outcome, simulated: Outcome) -> str | None:
    """Return the first difference of two outcomes, or None."""
    if golden.note or simulated.note:
        return golden.note or simulated.note
    if simulated.refused != golden.refused:
        names = (str(outcome.refused or "accepted") for outcome in (golden, simulated))
        return "golden model: {}; RTL: {}".format(*names)
    if golden.refused is None and simulated.bytes != golden.bytes:
        return f"golden model: {golden.bytes} bytes counted; RTL: {simulated.bytes}"
    if simulated.memory is None or golden.memory is None:
        return None
    differ = np.flatnonzero(simulated.memory != golden.memory)
    return f"{differ.size} bytes differ, the first at {differ[0]:#x}" if differ.size else None


def write(path: Path, cases: Sequence[Drawn]) -> None:
    """Write a file of vectors with the golden model's results, for ``make conformance``."""
    blob, rows = [BLOB], []
    end = BLOB.size
    for drawn in cases:
        row = drawn.case.fields.copy()
        memory = drawn.golden.memory
        if memory is not None and drawn.golden.refused is None:
            row["expect"] = end, memory.size
            blob.append(memory)
            end += memory.size
        rows.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, cases=np.array(rows), blob=np.concatenate(blob))
