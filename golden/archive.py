"""Archives of arrays, ``.npz`` files: they are read without pickles, and errors are plain words."""

import io
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NPY = b"\x93NUMPY"
"""First bytes of a ``.npy`` file, and of each array of an archive."""

_KINDS = {"integer": "iu", "number": "iuf", "text": "U", "flag": "b"}
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, MemoryError),
    *(NotImplementedError, RuntimeError),  # a compression that Python lacks; a password
)


class VectorError(ValueError):
    """A file is no file of vectors, or lacks what was asked for."""


def read_arrays(
    path: Path,
    kind: str = "a file of vectors",
    required: Sequence[str] = (),
    optional: Sequence[str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an ``.npz`` archive. Nothing is unpickled.

    Parameters
    ----------
    path : Path
        File to read.
    kind : str
        Kind of file that it must be, for messages: ``a timing file``.
    required : sequence of str
        Names of arrays that the file must have.
    optional : sequence of str or None
        Names of further arrays to return where the file has them; None: all arrays.

    Raises
    ------
    VectorError
        If the file cannot be read, if it is no archive or damaged, if a required array is missing,
        or if an array holds Python objects. The message names the file, the reason, and what the
        file must be.
    """
    start = f"{path}: not {kind}:"
    plural = "s" * (len(required) > 1)
    wanted = "must be an .npz file"
    if required:
        wanted += f" with the array{plural} {', '.join(required)}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise VectorError(f"{start} {error.strerror or error}: {wanted}") from error
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _DAMAGE as error:
        raise VectorError(f"{start} {_mistaken(data)}: {wanted}") from error
    with archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        missing = [name for name in required if name not in present]
        if missing:
            has = f"the file has {', '.join(present)}" if present else "the file has no arrays"
            raise VectorError(f"{start} no {', '.join(missing)}: {has}, {wanted}")
        if optional is None:
            optional = [name for name in present if name not in required]
        names = [name for name in (*required, *optional) if name in present]
        return {name: _array(start, archive, name) for name in names}


def _mistaken(data: bytes) -> str:
    """Return a text that says what a file is that is no archive."""
    if not data:
        return "the file is empty"
    if data.startswith(NPY):
        return "the file is a single array (.npy)"
    if data.startswith(b"PK"):
        return "the archive is damaged or cut off"
    return "the file is no archive"


def _array(start: str, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return an array of an archive; ``start`` begins the message of an error."""
    try:
        return array_of(archive.read(f"{name}.npy"))
    except (*_DAMAGE, KeyError) as error:
        reason = error if isinstance(error, VectorError) else "is damaged"
        raise VectorError(f"{start} the array {name} {reason}") from error


def array_of(data: bytes) -> NDArray[Any]:
    """Return the array that the contents of a ``.npy`` file hold. Nothing is unpickled.

    Raises
    ------
    VectorError
        If the contents are damaged, or hold Python objects; the message is the end of a sentence.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, which fails in many ways
        has_objects = data.startswith(NPY) and b"'|O'" in data[: 1 << 16]
        fault = "holds Python objects: must hold numbers or text" if has_objects else "is damaged"
        raise VectorError(fault) from error
    return array


def check_fields(path: Path, kind: str, table: NDArray[Any], fields: Mapping[str, str]) -> None:
    """Refuse an array ``cases`` that is no list of records with the given fields.

    Parameters
    ----------
    path : Path
        File of the array.
    kind : str
        Kind of file that it must be, for messages: ``a timing file``.
    table : ndarray
        The array; it must be structured and have one axis. It may have further fields.
    fields : mapping from str to str
        Kind of each field: ``integer``, ``number``, ``text`` or ``flag``; ``integer 5`` is an array
        of five integers.

    Raises
    ------
    VectorError
        If a field is missing or of another kind. The message names the file and the field.
    """
    start = f"{path}: not {kind}:"
    if table.ndim != 1:
        raise VectorError(f"{start} cases has {table.ndim} axes: must be a list of records")
    missing = sorted(set(fields) - set(table.dtype.names or ()))
    if missing:
        raise VectorError(f"{start} cases without the fields {', '.join(missing)}")
    for field, wanted in fields.items():
        name, _, count = wanted.partition(" ")
        given = table.dtype[field]
        shape = (int(count),) if count else ()
        if given.base.kind not in _KINDS[name] or given.shape != shape:
            raise VectorError(f"{start} the field {field} of cases is {given}: must be {wanted}")
