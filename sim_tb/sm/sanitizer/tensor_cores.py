"""Rules of wgmma: its reads of shared memory, and the order of its accesses to registers."""

import numpy as np

from golden import Swizzle
from sim_tb.sm.accumulators import Accumulator
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer.clocks import Threads
from sim_tb.sm.sanitizer.memory import Attempt
from sim_tb.sm.sanitizer.shadow import Words, byte_range
from sim_tb.sm.sanitizer.transfers import Transfers
from sim_tb.sm.sanitizer.warpgroups import TrackedWarpgroup
from sim_tb.sm.smem import Tile


class TensorCores(Transfers):
    """Follows wgmma. A warpgroup executes it together, and its groups are the warpgroup's."""

    def wgmma(
        self,
        threads: Threads,
        accumulator: Accumulator,
        a: object,
        b: Tile,
        cycle: int,
    ) -> None:
        """Check and record a ``wgmma.mma_async``.

        The tensor cores read the operands in shared memory (async proxy) until a wait for the
        group returns. They read what all four warps know to be there.

        Raises
        ------
        KernelError
            If an operand may not be there, or registers were touched without ``wgmma.fence``.
        """
        group: TrackedWarpgroup = threads.group
        for tile in (a, b):
            if not isinstance(tile, Tile):
                continue
            text = f"wgmma of {tile.name}"
            self._check_phase(threads, text, tile, cycle)
            words = byte_range(tile.address, tile.nbytes)
            self.wgmma_reads(threads, text, words, tile.swizzle, cycle)
        about = f"{threads.label}: wgmma in cycle {cycle}"
        if accumulator.touched >= group.wgmma_fences:
            raise KernelError(
                f"{about} adds to an accumulator that threads wrote {accumulator.touch}, without "
                "wgmma.fence: the tensor cores may use the old registers; call wgmma_fence after "
                "the write and before the first wgmma"
            )
        if isinstance(a, np.ndarray) and group.registers_written >= group.wgmma_fences:
            raise KernelError(
                f"{about} reads A from registers that threads may have written since the last "
                "wgmma.fence; call wgmma_fence after the last instruction that writes A"
            )
        accumulator.in_group(group.wgmma_committed + 1, about)
        self.progress += 1

    def wgmma_reads(
        self, threads: Threads, text: str, words: Words, swizzle: Swizzle, cycle: int
    ) -> None:
        """Check and record that the tensor cores read words of shared memory, until a wait.

        Raises
        ------
        KernelError
            If the data may not be there.
        """
        group: TrackedWarpgroup = threads.group
        known = threads.rows.min(axis=0)
        attempt = Attempt(threads, text, cycle, self.shadows[group.cta], known, by_unit=True)
        attempt.reads_as = swizzle
        self.read(attempt, words, group.wgmma_groups, group.wgmma_committed + 1)

    def wgmma_fence(self, threads: Threads) -> None:
        """Follow ``wgmma.fence``."""
        threads.group.wgmma_fences += 1
        self.progress += 1

    def registers_written(self, threads: Threads) -> None:
        """Follow an instruction of threads whose results may become A of a wgmma."""
        threads.group.registers_written = threads.group.wgmma_fences

    def wgmma_commit(self, threads: Threads) -> None:
        """Follow ``wgmma.commit_group``."""
        threads.group.wgmma_committed += 1
        self.progress += 1

    def wgmma_wait_returned(self, threads: Threads, groups: int) -> None:
        """Follow the end of a wait for all but the youngest ``groups`` wgmma groups."""
        group: TrackedWarpgroup = threads.group
        done = group.wgmma_committed - groups
        group.wgmma_waited = max(group.wgmma_waited, done)
        threads.learn_events(group.wgmma_groups, done)
        self.progress += 1
