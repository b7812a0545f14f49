"""Comparison of a kernel's result with NumPy's."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Check:
    """Outcome of a comparison.

    Parameters
    ----------
    name : str
        Name of the result.
    elements : int
        Number of elements compared.
    error : float
        Greatest difference, relative to the greatest expected magnitude.
    limit : float
        Greatest difference allowed. 0: the bits must be equal.
    wrong : str
        Description of the first element whose difference is too large; empty if there is none.
    """

    name: str
    elements: int
    error: float
    limit: float
    wrong: str = ""

    def __str__(self) -> str:
        if self.wrong:
            return f"WRONG: {self.wrong}"
        if not self.limit:
            return f"{self.name} equals NumPy's, bit for bit: {self.elements} elements"
        return (
            f"{self.name} equals NumPy's: {self.elements} elements, greatest error "
            f"{self.error:.2e} (limit {self.limit:g})"
        )


def equal(name: str, got: NDArray[Any], expected: NDArray[Any], limit: float = 0.0) -> Check:
    """Compare a result with NumPy's.

    Parameters
    ----------
    name : str
        Name of the result, for the message.
    got : array
        Result of the kernel.
    expected : array
        Result of NumPy, of the same shape.
    limit : float
        Greatest difference allowed, relative to the greatest expected magnitude. 0: the bits must
        be equal.
    """
    if not limit:
        width = f"u{got.dtype.itemsize}"
        got_bits = np.ascontiguousarray(got).view(width)
        expected_bits = np.ascontiguousarray(expected.astype(got.dtype)).view(width)
        error, different = 0.0, np.argwhere(got_bits != expected_bits)
    else:
        wide = expected.astype(np.float64)
        scale = float(np.abs(wide).max()) or 1.0
        errors = np.abs(got.astype(np.float64) - wide) / scale
        error, different = float(errors.max(initial=0)), np.argwhere(~(errors <= limit))
    wrong = ""
    if different.size:
        where = tuple(int(i) for i in different[0])
        wrong = (
            f"{len(different)} of {got.size} elements differ; first {name}{list(where)}: expected "
            f"{expected[where]!r}, got {got[where]!r}"
        )
    return Check(name, got.size, error, limit, wrong)
