"""GEMM: runs the program ``gemm.c`` in the system, and compares its result with NumPy's."""

import struct
from dataclasses import dataclass

import numpy as np

from examples.soc.system import DATA, HERE, PARAMETERS, RESULTS, Run, run

SOURCE = HERE / "gemm.c"
LIMITS = {"m": 512, "n": 512, "k": 1024}
"""Largest extents: the matrices have 7 MiB."""

AREA = 0x0010_0000
"""Bytes of memory for each matrix; the result is the last one."""


@dataclass(frozen=True)
class Product:
    """Outcome of a product.

    Parameters
    ----------
    run : Run
        The run of the program.
    c : ndarray
        The product, as the unit stored it.
    expected : ndarray
        NumPy's product.
    behind : ndarray
        Bytes of the memory behind the last row of ``c``, which must be as before. The unit stores
        whole pieces of 16 bytes, as Hopper does: what is behind the other rows may change.
    clocks, wait_clocks, interrupts, error : int
        As in ``gemm.c``.
    """

    run: Run
    c: np.ndarray
    expected: np.ndarray
    behind: np.ndarray
    clocks: int
    wait_clocks: int
    interrupts: int
    error: int

    @property
    def is_right(self) -> bool:
        """True if the program succeeded, and its product is NumPy's."""
        same = np.array_equal(self.c, self.expected) and (self.behind == FILLER).all()
        return self.run.status == 0 and self.error == 0 and bool(same)


FILLER = 0xA5
"""Byte of memory that the product does not write."""


def pitch(columns: int, itemsize: int) -> int:
    """Return the bytes from row to row, a multiple of 16."""
    return -(-columns * itemsize // 16) * 16


def padded(matrix: np.ndarray) -> bytes:
    """Return a matrix whose rows have their pitch."""
    columns = matrix.shape[1]
    width = pitch(columns, matrix.itemsize) // matrix.itemsize
    return np.pad(matrix, ((0, 0), (0, width - columns))).tobytes()


def multiply(
    m: int, n: int, k: int, *, seed: int = 1, interrupts: bool = True, native: bool = False
) -> Product:
    """Multiply two random matrices in the system.

    Raises
    ------
    ValueError
        If an extent is out of range.
    SocError
        If the program does not end.
    """
    for (name, limit), value in zip(LIMITS.items(), (m, n, k), strict=True):
        if not 1 <= value <= limit:
            raise ValueError(f"{name} = {value}: must be from 1 to {limit}")
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-(1 << 15), 1 << 15, (rows, k), np.int16) for rows in (m, n))
    places = DATA, DATA + AREA, DATA + 2 * AREA
    pitches = pitch(k, 2), pitch(k, 2), pitch(n, 4)
    parameters = struct.pack("<10I", m, n, k, *places, *pitches, interrupts)
    size = m * pitches[2]
    load = {
        places[0]: padded(a),
        places[1]: padded(b),
        places[2]: bytes([FILLER]) * (size + 64),
        PARAMETERS: parameters,
    }
    first, last = places[2], RESULTS + 16
    ran = run(SOURCE, load, (first, last - first), native=native, limit=10_000_000_000)
    clocks, wait_clocks, taken, error = struct.unpack_from("<4I", ran.memory, RESULTS - first)
    rows = np.frombuffer(ran.memory, np.uint8, size).reshape(m, pitches[2])
    return Product(
        run=ran,
        c=np.ascontiguousarray(rows[:, : 4 * n]).view(np.int32),
        expected=(a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32),
        behind=np.frombuffer(ran.memory, np.uint8, 64, size),
        clocks=clocks,
        wait_clocks=wait_clocks,
        interrupts=taken,
        error=error,
    )
