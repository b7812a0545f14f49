"""What the warps of an SM share: pipes that do one thing at a time, in the order of asking."""

from collections import deque
from dataclasses import dataclass

FMA_PER_CLOCK = 2048
"""Dense bf16 multiply-adds per clock of Hopper's four tensor cores together."""

MUFU_PER_CLOCK = 16
"""Exponentials and the like per clock of an SM."""

SMEM_BYTES_PER_CLOCK = 128
"""What shared memory gives or takes per clock, without bank conflicts."""

WARPGROUP_THREADS = 128
REGISTERS = 65536
"""Of an SM, 32 bits each."""


@dataclass(frozen=True)
class Issue:
    """What instructions cost, in slots of a warp scheduler (choice: the model's own numbers).

    All roles share the scheduler that the elected threads are on, which issues an instruction every
    ``interval`` clocks. A warpgroup has a warp on each of the four schedulers, so an instruction of
    all its threads takes a slot of each.

    Parameters
    ----------
    interval : int
        Clocks from an instruction to the next; above 1, issue slots are scarce.
    mbarrier, tma, fence, sync : int
        Slots of an operation on a barrier, of a request to the unit with its coordinates, of a
        fence, of ``bar.sync``.
    wgmma : int
        Slots of one wgmma, of k = 16, with its descriptors.
    chunk : int
        Slots after which other warps get their turn.
    """

    interval: int = 1
    mbarrier: int = 4
    tma: int = 8
    fence: int = 4
    sync: int = 4
    wgmma: int = 4
    chunk: int = 64


class Pipe:
    """Does one thing after the other.

    Members
    -------
    busy : deque of (int, int)
        First cycle of each thing, and the cycle behind its last.
    """

    def __init__(self) -> None:
        self.busy: deque[tuple[int, int]] = deque()
        self.free = 0

    def take(self, now: int, clocks: int) -> int:
        """Reserve so many clocks, from ``now`` on or when the pipe is free; return the end."""
        start = max(now, self.free)
        self.free = start + clocks
        if self.busy and self.busy[-1][1] == start:
            self.busy[-1] = (self.busy[-1][0], self.free)
        elif clocks:
            self.busy.append((start, self.free))
        return self.free
