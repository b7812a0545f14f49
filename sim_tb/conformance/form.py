"""Checks of the arrays of a recording."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.archive import VectorError

Arrays = Mapping[str, NDArray[Any]]
"""Arrays of a file by name."""

TEXT_FIELDS = {"name", "set", "request"}
"""Fields of structured arrays that are text."""


class Form:
    """Checks of the arrays of one file; each names the file in its error.

    Parameters
    ----------
    path : Path
        Name of the file, for messages.
    arrays : mapping of str to ndarray
        Arrays of the file.

    Raises
    ------
    VectorError
        By every method, if the file does not have the form.
    """

    def __init__(self, path: Path, arrays: Arrays) -> None:
        self.path = path
        self.arrays = arrays

    def rows(self, name: str, fields: Mapping[str, tuple[int, ...]]) -> NDArray[Any]:
        """Return a structured array of one dimension that has these fields, of these shapes.

        Fields in ``TEXT_FIELDS`` are text, all others are integers or truth values.
        """
        array = self._array(name, (None,))
        missing = [field for field in fields if field not in (array.dtype.names or ())]
        if missing:
            raise VectorError(f"{self.path}: {name} without the fields {', '.join(missing)}")
        for field, shape in fields.items():
            found = array.dtype[field]
            if found.shape != shape:
                raise VectorError(
                    f"{self.path}: {field} of {name} has shape {found.shape}: must have {shape}"
                )
            if found.base.kind not in ("U" if field in TEXT_FIELDS else "iub"):
                kind = "text" if field in TEXT_FIELDS else "integers"
                raise VectorError(
                    f"{self.path}: {field} of {name} has type {found.base}: must be {kind}"
                )
        return array

    def unsigned(
        self, name: str, shape: tuple[int | None, ...], bits: int | None = None
    ) -> NDArray[Any]:
        """Return an array of unsigned numbers of this shape; None stands for any extent or size."""
        array = self._array(name, shape)
        if array.dtype.kind != "u" or bits not in (None, 8 * array.dtype.itemsize):
            size = "" if bits is None else f" of {bits} bits"
            raise VectorError(
                f"{self.path}: {name} has type {array.dtype}: must be unsigned numbers{size}"
            )
        return array

    def names(self, name: str) -> list[str]:
        """Return an array of text as a list."""
        array = self._array(name, (None,))
        if array.dtype.kind != "U":
            raise VectorError(f"{self.path}: {name} has type {array.dtype}: must be text")
        return [str(item) for item in array]

    def check_index(self, what: str, index: NDArray[Any], length: int) -> None:
        """Refuse numbers that are not from 0 to ``length`` - 1; ``what`` names them."""
        wrong = np.flatnonzero((index < 0) | (index >= length))
        if wrong.size:
            value = index.ravel()[wrong[0]]
            raise VectorError(
                f"{self.path}: {what} of row {wrong[0]} is {value}: must be from 0 to {length - 1}"
            )

    def check_range(self, what: str, first: NDArray[Any], count: NDArray[Any], length: int) -> None:
        """Refuse ranges that are not inside of ``length`` items; ``what`` names them."""
        start, size = first.astype(np.float64), count.astype(np.float64)
        wrong = np.flatnonzero((start < 0) | (size < 0) | (start + size > length))
        if wrong.size:
            row = wrong[0]
            raise VectorError(
                f"{self.path}: {what} of row {row} are {count[row]} from {first[row]} on: the file "
                f"has {length}"
            )

    def _array(self, name: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        array = self.arrays.get(name)
        if array is None:
            raise VectorError(f"{self.path}: there is no array {name}")
        fits = len(shape) == array.ndim and all(
            want in (None, got) for want, got in zip(shape, array.shape, strict=True)
        )
        if not fits:
            wanted = " x ".join("any" if extent is None else str(extent) for extent in shape)
            raise VectorError(f"{self.path}: {name} has shape {array.shape}: must be {wanted}")
        return array
