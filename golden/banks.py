"""Bank conflicts of threads that read a box in shared memory.

Shared memory serves 8 threads that read 16 bytes each in one wavefront if they touch all 32 banks.
"""

import numpy as np
from numpy.typing import NDArray

from golden.enums import LINE, PIECE

GROUPS = LINE // PIECE
"""Groups of 4 banks, 16 bytes wide each, and so the threads that read in one wavefront."""


def conflicts(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the accesses to each group of 4 banks when threads read columns.

    Parameters
    ----------
    addresses : array of shape (rows, columns)
        Byte addresses of pieces. Each thread reads one piece; one read covers 8 rows of a column.

    Returns
    -------
    array of shape (reads, columns, 8)
        Accesses to each bank group. The largest count of a read is its number of wavefronts.

    Examples
    --------
    >>> rows = np.arange(8)[:, None] * 128
    >>> conflicts(rows).max(), conflicts(rows ^ (rows >> 3 & 0x70)).max()
    (np.int64(8), np.int64(1))
    """
    hits = addresses[..., None] // PIECE % GROUPS == np.arange(GROUPS)
    return np.add.reduceat(hits.astype(np.int64), np.arange(0, len(hits), GROUPS), axis=0)
