"""Rules of requests to the unit: what they read and write, their bulk groups, and their maps."""

from collections.abc import Iterable, Sequence

from golden import Plan, Swizzle
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer.barrier import TrackedBarrier
from sim_tb.sm.sanitizer.barriers import Barriers
from sim_tb.sm.sanitizer.clocks import GLOBAL, Threads
from sim_tb.sm.sanitizer.global_memory import GlobalBytes
from sim_tb.sm.sanitizer.memory import Attempt
from sim_tb.sm.sanitizer.requests import TrackedRequest
from sim_tb.sm.sanitizer.shadow import Words, Write, byte_range
from sim_tb.sm.sanitizer.warpgroups import TrackedWarpgroup

MOST_PENDING = 64
"""Most groups of a thread that are kept after their reads are over, until their writes are."""


class Transfers(Barriers):
    """Follows requests to the unit. One thread issues each: the first one of ``threads``."""

    def box(
        self,
        plan: Plan,
        coords: Sequence[int],
        offsets: Sequence[int] = (),
        halo: Sequence[int] = (),
    ) -> GlobalBytes | None:
        """Return what a tensor request touches of global memory.

        ``halo`` are halo and offset of ``im2col::w``.
        """
        return self.global_memory.box(plan, coords, offsets, halo)

    def bytes(self, address: int, size: int) -> GlobalBytes | None:
        """Return a range of global memory."""
        return self.global_memory.bytes(address, size)

    def load(
        self,
        threads: Threads,
        request: TrackedRequest,
        receivers: Iterable[int],
        address: int,
        size: int,
        swizzle: Swizzle | None,
        signals: int,
        source: GlobalBytes | None = None,
        *,
        signal_cta: int | None = None,
        reduces: bool = False,
        by_unit: bool = True,
    ) -> None:
        """Check and record a load, or what another request writes to shared memory.

        Parameters
        ----------
        threads : Threads
            Threads that issue the request.
        request : TrackedRequest
            The load.
        receivers : iterable of int
            CTAs whose shared memory is written.
        address, size : int
            Bytes that are written in each of them.
        swizzle : Swizzle, optional
            None: bytes without a layout.
        signals : int
            Offset of the barrier of each receiver that counts the bytes.
        source : GlobalBytes, optional
            Global memory that is read.
        signal_cta : int, optional
            CTA whose barrier counts the bytes. None: each receiver's own.
        reduces : bool
            The bytes are combined with those in shared memory, element by element.
        by_unit : bool
            The request is one of the async proxy. ``st.async`` and ``red.async`` are not.
        """
        words = self._smem_words_of(threads, request, address, size)
        for cta in receivers:
            holder = cta if signal_cta is None else signal_cta
            barrier = self.barrier_at(
                threads, request.text, holder, signals, request.cycle, by_unit=True
            )
            barrier.requests.append(request)
            self.check_excess(barrier, request.cycle)
            event = barrier.component, barrier.time
            if source is not None:
                attempt = self._by_unit(threads, request, source)
                self.read(attempt, source.words, *event)
            if request.tensor_map is not None:
                self.map_users[request.tensor_map][barrier.component] = barrier.time, request
            attempt = self._by_unit(threads, request, None, cta)
            attempt.strong, attempt.by_unit = reduces, by_unit
            write = Write(request, *event, True, swizzle, barrier, strong=reduces)
            self.write(attempt, words, write)
        self.in_flight.add(request)
        self.progress += 1

    def store(
        self,
        threads: Threads,
        request: TrackedRequest,
        address: int,
        size: int,
        swizzle: Swizzle | None,
        barrier: TrackedBarrier | None = None,
        target: GlobalBytes | None = None,
        *,
        reduces: bool = False,
    ) -> None:
        """Check and record a request that reads shared memory.

        The read lasts until a wait for the bulk group returns, or, for a DSMEM request, until the
        phase of ``barrier`` completes. ``target`` is what it writes of global memory, with
        ``reduces`` by a reduction.
        """
        words = self._smem_words_of(threads, request, address, size)
        attempt = self._by_unit(threads, request, None, threads.group.cta)
        attempt.reads_as = swizzle
        if barrier is not None:
            self.read(attempt, words, barrier.component, barrier.time)
        else:
            bulk = self.bulk_thread(threads)
            group = bulk.committed + 1
            self.read(attempt, words, bulk.reads, group)
            if target is not None:
                attempt = self._by_unit(threads, request, target)
                attempt.strong = reduces
                write = Write(request, bulk.writes, group, True, strong=reduces)
                self.write(attempt, target.words, write)
            if request.tensor_map is not None:
                self.map_users[request.tensor_map][bulk.reads] = group, request
            bulk.open.append(request)
            self.in_flight.add(request)
        self.progress += 1

    def _by_unit(
        self,
        threads: Threads,
        request: TrackedRequest,
        place: GlobalBytes | None,
        cta: int = 0,
    ) -> Attempt:
        """Return the access of a request to global memory, or to the shared memory of a CTA."""
        group: TrackedWarpgroup = threads.group
        shadow = self.shadows[cta] if place is None else place.shadow
        attempt = Attempt(threads, request.text, request.cycle, shadow, group.rows[threads.lead])
        attempt.by_unit = True
        attempt.own = {group.warps[threads.lead]: int(group.separated[threads.lead])}
        if place is not None:
            attempt.visible = GLOBAL
        return attempt

    def _smem_words_of(
        self, threads: Threads, request: TrackedRequest, address: int, size: int
    ) -> Words:
        beyond = address + size - self.layout.bytes
        if beyond > 0:
            raise KernelError(
                f"{threads.label}: {request.text} in cycle {request.cycle} accesses bytes "
                f"{address:#x} to {address + size - 1:#x} of shared memory: {beyond} bytes beyond "
                f"the end of the kernel's layout, {self.layout.bytes:#x}; allocate them in smem()"
            )
        return byte_range(address, size)

    # Bulk groups

    def commit(self, threads: Threads) -> None:
        """Follow ``cp.async.bulk.commit_group``, of each thread."""
        for warp in threads.numbers:
            bulk = threads.group.bulk.get(warp)
            if bulk is not None:
                bulk.committed += 1
                bulk.pending.append(bulk.open)
                bulk.open = []
        self.progress += 1

    def group_wait_returned(
        self, threads: Threads, groups: int, cycle: int, *, read: bool = False
    ) -> None:
        """Follow the end of a wait for all but the youngest ``groups`` groups of each thread.

        With ``read`` only their reads of shared memory are over. A thread learns of its own groups
        only: others must meet it at a barrier.
        """
        for warp in threads.numbers:
            bulk = threads.group.bulk.get(warp)
            if bulk is None:
                continue
            done = bulk.committed - groups
            own = threads.group.rows[warp]
            own[:, bulk.reads] = max(done, int(own[0, bulk.reads]))
            finished = len(bulk.pending) - groups
            if read:
                finished -= MOST_PENDING
            else:
                own[:, bulk.writes] = max(done, int(own[0, bulk.writes]))
            for group in bulk.pending[: max(0, finished)]:
                for request in group:
                    request.done = cycle
                    self.in_flight.discard(request)
            del bulk.pending[: max(0, finished)]
        self.progress += 1
