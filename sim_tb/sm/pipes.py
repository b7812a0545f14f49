"""Pipes that the warpgroups of an SM share. Each pipe serves its users one by one, in order."""

from collections import deque

FMA_PER_CLOCK = 2048
"""Dense bf16 multiply-adds per clock of Hopper's four tensor cores together."""

MUFU_PER_CLOCK = 16
"""Exponentials and other special functions per clock of an SM."""

SMEM_BYTES_PER_CLOCK = 128
"""Bytes that shared memory reads or writes per clock, without bank conflicts."""

WARPGROUP_THREADS = 128
SCHEDULERS = 4
"""Warp schedulers of an SM. A warpgroup has a warp on each of them."""

REGISTERS = 65536
"""Registers of an SM, 32 bits each."""


class Pipe:
    """A pipe that serves one use after the other.

    Members
    -------
    busy : deque of (int, int)
        Busy intervals: the first cycle, and the cycle after the last.
    free_from : int
        Cycle from which on the pipe is free.
    """

    def __init__(self) -> None:
        self.busy: deque[tuple[int, int]] = deque()
        self.free_from = 0

    def reserve(self, earliest: int, clocks: int) -> int:
        """Reserve ``clocks`` cycles as soon as the pipe is free, from cycle ``earliest`` on.

        Return the cycle after the last reserved one.
        """
        start = max(earliest, self.free_from)
        self.free_from = start + clocks
        if self.busy and self.busy[-1][1] == start:
            self.busy[-1] = (self.busy[-1][0], self.free_from)
        elif clocks:
            self.busy.append((start, self.free_from))
        return self.free_from
