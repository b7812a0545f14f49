"""Rules of accesses to shared and global memory: which are ordered, and which proxy sees what."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from golden import Swizzle
from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer.barrier import TrackedBarrier
from sim_tb.sm.sanitizer.clocks import GLOBAL, HAPPENED, LOOSE, SHARED, Rows, Threads
from sim_tb.sm.sanitizer.flags import Flags
from sim_tb.sm.sanitizer.global_memory import GlobalMemory
from sim_tb.sm.sanitizer.shadow import (
    WORD,
    Instruction,
    Run,
    Shadow,
    Words,
    Write,
    byte_range,
    distinct,
    scattered,
)
from sim_tb.sm.sanitizer.warpgroups import BulkThread, TrackedWarpgroup
from sim_tb.sm.smem import MBARRIER_BYTES, SmemLayout, Tile

WARPS = 4
"""Warps of a warpgroup."""

WGMMA_ROWS = 64
"""Rows of a tile that a warpgroup shares out as wgmma does: each warp has a quarter of them."""


class Access(IntEnum):
    """Kind of an access of threads to memory."""

    READ, WRITE, ATOMIC = range(3)


@dataclass
class Attempt:
    """An access that is about to happen.

    Parameters
    ----------
    threads : Threads
        Threads that execute the instruction.
    text : str
        Instruction and operand.
    cycle : int
    shadow : Shadow
        Memory that is accessed.
    known : array of shape (rows, components)
        Clock of the warp, or what all warps know.
    visible : int
        Row of the writes to this memory that the async proxy can see.
    by_unit : bool
        The access is one of the async proxy.
    own : dict of int to int
        Component of the warp that executes it, and the event up to which a fence or a barrier
        stands between its accesses and a request.
    reads_as : Swizzle, optional
        Swizzle of a read. None: a write, or a read of bytes without a layout.
    strong : bool
        Atomic, or another strong access.
    """

    threads: Threads
    text: str
    cycle: int
    shadow: Shadow
    known: Rows
    visible: int = SHARED
    by_unit: bool = False
    own: dict[int, int] = field(default_factory=dict)
    reads_as: Swizzle | None = None
    strong: bool = False

    def __str__(self) -> str:
        return f"{self.threads.label}: {self.text} in cycle {self.cycle}"

    @property
    def proxy(self) -> str:
        """Performer of the access, in words."""
        return "the tensor cores" if self.text.startswith("wgmma") else "the unit"


class Memory(Flags):
    """Follows accesses to the shared memory of all CTAs and to global memory.

    Parameters
    ----------
    layout, ctas, cluster
        As in `Tracking`. ``cluster`` None: all CTAs are of one.
    smem_bytes : int
        Size of the shared memory of each CTA.
    device : Device
        Global memory.
    """

    def __init__(
        self,
        layout: SmemLayout,
        smem_bytes: int,
        ctas: int,
        device: Device,
        cluster: int | None = None,
    ) -> None:
        super().__init__(layout, ctas, cluster or ctas, device)
        self._smem_words = smem_bytes // WORD
        self.shadows = [self._new_shadow(cta) for cta in range(ctas)]
        self.global_memory = GlobalMemory(device)
        self._parts: dict[tuple[Tile, bool, int], list[Words]] = {}

    def _new_shadow(self, cta: int) -> Shadow:
        def where(word: int) -> str:
            return f"{word * WORD:#x} of {self.label(cta, 'shared memory')}"

        return Shadow(self._smem_words, where, is_written=False)

    # Threads

    def thread_read(
        self,
        threads: Threads,
        instruction: str,
        tile: Tile,
        cycle: int,
        *,
        columns: bool = False,
        cta: int | None = None,
    ) -> None:
        """Check and record a read of a tile: each warp reads its rows, or its columns."""
        text = f"{instruction} of {tile.name}"
        self._check_phase(threads, text, tile, cycle)
        shadow = self.shadows[threads.group.cta if cta is None else cta]
        for warp, words, attempt in self._by_warps(threads, tile, columns, text, cycle, shadow):
            attempt.reads_as = tile.swizzle
            self._check_after_writes(attempt, shadow.runs(words))
            shadow.read(words, threads.group.warps[warp], threads.group.time(warp))
        self.progress += 1

    def thread_write(
        self,
        threads: Threads,
        instruction: str,
        tile: Tile,
        cycle: int,
        *,
        columns: bool = False,
        cta: int | None = None,
    ) -> None:
        """Check and record a write of a tile: each warp writes its rows, or its columns."""
        text = f"{instruction} of {tile.name}"
        self._check_phase(threads, text, tile, cycle)
        shadow = self.shadows[threads.group.cta if cta is None else cta]
        source = Instruction(text, threads.label, cycle)
        for warp, words, attempt in self._by_warps(threads, tile, columns, text, cycle, shadow):
            self._write_by_warp(attempt, warp, words, source, tile.swizzle)
        self.progress += 1

    def shared_access(
        self,
        threads: Threads,
        text: str,
        addresses: NDArray[np.int64],
        size: int,
        cycle: int,
        access: Access,
        *,
        cta: int | None = None,
    ) -> None:
        """Check and record an access to ``size`` bytes of shared memory at one address per thread.

        The addresses are those of the first warp's lanes, then those of the next warp's.
        """
        shadow = self.shadows[threads.group.cta if cta is None else cta]
        for warp, part in zip(threads.numbers, _by_warp(threads, addresses), strict=True):
            words, repeated = scattered(part, size)
            attempt = self._by_warp(threads, warp, text, cycle, shadow)
            self._access(attempt, warp, words, access, repeated, strong=access == Access.ATOMIC)
        self.progress += 1

    def global_access(
        self,
        threads: Threads,
        text: str,
        addresses: NDArray[np.int64],
        size: int,
        cycle: int,
        access: Access,
        *,
        strong: bool = False,
    ) -> None:
        """Check and record an access to ``size`` bytes of global memory at one address per thread.

        ``strong``: ``.relaxed``, ``.acquire``, ``.release`` or ``.volatile``. Two strong accesses
        do not race. Atomics are always strong.
        """
        strong = strong or access == Access.ATOMIC
        if strong:
            places = distinct(addresses).tolist()
            self.strong_access(threads, places, writes=access != Access.READ)
        for warp, part in zip(threads.numbers, _by_warp(threads, addresses), strict=True):
            found, repeated = self.global_memory.scattered(part, size)
            if found is not None:
                attempt = self._by_warp(threads, warp, text, cycle, found.shadow)
                attempt.visible = GLOBAL
                self._access(attempt, warp, found.words, access, repeated, strong=strong)
        if addresses.size and threads.group.is_new(text, int(addresses[0]), cycle):
            self.progress += 1

    def _access(
        self,
        attempt: Attempt,
        warp: int,
        words: Words,
        access: Access,
        repeated: int | None,
        *,
        strong: bool,
    ) -> None:
        attempt.strong = strong
        group: TrackedWarpgroup = attempt.threads.group
        if access == Access.READ:
            self._check_after_writes(attempt, attempt.shadow.runs(words))
            if not strong:
                attempt.shadow.read(words, group.warps[warp], group.time(warp))
            return
        if repeated is not None and not strong:
            lanes = "two lanes" if len(group.warps) == 1 else f"two lanes of warp {warp}"
            raise KernelError(
                f"{attempt}: {lanes} write {repeated:#x}: which value stays is "
                "undefined; let one lane write, or use an atomic operation"
            )
        source = Instruction(attempt.text, attempt.threads.label, attempt.cycle)
        self._write_by_warp(attempt, warp, words, source)

    def _by_warp(
        self, threads: Threads, warp: int, text: str, cycle: int, shadow: Shadow
    ) -> Attempt:
        group: TrackedWarpgroup = threads.group
        return Attempt(threads, text, cycle, shadow, group.rows[warp])

    def _by_warps(
        self, threads: Threads, tile: Tile, columns: bool, text: str, cycle: int, shadow: Shadow
    ) -> Iterator[tuple[int, Words, Attempt]]:
        """Yield each warp, the words of its rows of a tile, or of its columns, and its attempt."""
        shares = self._shares(threads, tile, columns=columns)
        for warp, words in zip(threads.numbers, shares, strict=True):
            yield warp, words, self._by_warp(threads, warp, text, cycle, shadow)

    def _write_by_warp(
        self,
        attempt: Attempt,
        warp: int,
        words: Words,
        source: Instruction,
        swizzle: Swizzle | None = None,
    ) -> None:
        group: TrackedWarpgroup = attempt.threads.group
        event = group.warps[warp], group.time(warp)
        write = Write(source, *event, by_unit=False, swizzle=swizzle, strong=attempt.strong)
        self.write(attempt, words, write)

    def _shares(self, threads: Threads, tile: Tile, *, columns: bool) -> list[Words]:
        """Return the words of a tile that each warp accesses."""
        key = tile, columns, len(threads.numbers)
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = [_words(part) for part in _divide(*key)]
        return parts

    def _check_phase(self, threads: Threads, text: str, tile: Tile, cycle: int) -> None:
        """Check that threads and unit agree on the phase of a tile's swizzle."""
        repeat = tile.swizzle.repeat
        if tile.origin % repeat:
            span = tile.swizzle.span or repeat
            raise KernelError(
                f"{threads.label}: {text} in cycle {cycle}: the tile is at {tile.origin:#x}, so "
                f"the phase of its swizzle {tile.swizzle.short_names[0]} is off by "
                f"{tile.origin % repeat / span:g} of {repeat // span} rows: the unit takes the "
                f"phase from the address, the threads take it from the row; align the tile to "
                f"{repeat} bytes"
            )

    # Barriers in shared memory

    def hold_barrier(self, threads: Threads, barrier: TrackedBarrier, cycle: int) -> None:
        """Record that bytes of shared memory become a barrier."""
        text = f"mbarrier.init of {barrier.name}"
        self._barrier_bytes(threads, barrier, text, cycle, barrier)

    def release_barrier(self, threads: Threads, barrier: TrackedBarrier, cycle: int) -> None:
        """Record that bytes of shared memory are a barrier no longer."""
        text = f"mbarrier.inval of {barrier.name}"
        self._barrier_bytes(threads, barrier, text, cycle, None)

    def _barrier_bytes(
        self,
        threads: Threads,
        barrier: TrackedBarrier,
        text: str,
        cycle: int,
        storage: TrackedBarrier | None,
    ) -> None:
        words, warp = byte_range(barrier.address, MBARRIER_BYTES), threads.lead
        shadow, group = self.shadows[barrier.cta], threads.group
        attempt = self._by_warp(threads, warp, text, cycle, shadow)
        write = Write(
            Instruction(text, threads.label, cycle), group.warps[warp], group.time(warp), False
        )
        if storage is not None:
            self._check_after_all(attempt, words, shadow.runs(words))
        write.storage = storage
        shadow.write(words, shadow.runs(words), write)

    # Rules

    def write(self, attempt: Attempt, words: Words, write: Write) -> None:
        """Check and record a write."""
        runs = attempt.shadow.runs(words)
        self._check_after_all(attempt, words, runs)
        attempt.shadow.write(words, runs, write)

    def read(self, attempt: Attempt, words: Words, component: int, time: int) -> None:
        """Check and record a read."""
        self._check_after_writes(attempt, attempt.shadow.runs(words))
        attempt.shadow.read(words, component, time)

    def _check_after_writes(
        self, attempt: Attempt, runs: Iterable[Run], *, overwrites: bool = False
    ) -> None:
        """Check that an access is ordered behind the last writes of its words.

        An access by the async proxy needs the fence between the proxies. A read must have the
        swizzle of the write. Words of shared memory that were never written may be overwritten,
        but not read.

        Raises
        ------
        KernelError
            If one of these rules is broken.
        """
        known = attempt.known
        for run in runs:
            write = run.write
            if write is None:
                if overwrites or attempt.shadow.is_written:
                    continue
                raise KernelError(
                    f"{attempt} reads {attempt.shadow.where(run.word)}, which nobody has written; "
                    "load or store there first"
                )
            if write.storage is not None:
                raise KernelError(self._on_barrier(attempt, run, write.storage))
            if attempt.strong and write.strong:
                continue
            if write.time > known[HAPPENED, write.component]:
                where = attempt.shadow.where(run.word)
                raise KernelError(f"{attempt}, at {where}: {self._unordered(attempt, write)}")
            sees = known[attempt.visible if attempt.by_unit and not write.by_unit else HAPPENED]
            if write.time > sees[write.component]:
                where = attempt.shadow.where(run.word)
                raise KernelError(f"{attempt}, at {where}: {self._unseen(attempt, write)}")
            if attempt.reads_as is not None and write.swizzle not in (None, attempt.reads_as):
                raise KernelError(
                    f"{attempt}, at {attempt.shadow.where(run.word)}: it reads with swizzle "
                    f"{attempt.reads_as.short_names[0]} the data that {write.source} wrote with "
                    f"swizzle {write.swizzle.short_names[0]}; use one swizzle for the tile and for "
                    "the tensor map"
                )

    def _check_after_all(self, attempt: Attempt, words: Words, runs: list[Run]) -> None:
        """Check that a write is ordered behind the last reads and writes of its words.

        Raises
        ------
        KernelError
            If the write is not.
        """
        shadow, happened = attempt.shadow, attempt.known[HAPPENED]
        for component, reads in shadow.reads.items():
            known = attempt.own.get(component, int(happened[component]))
            word = reads.first_after(words, known)
            if word is not None:
                raise KernelError(self._overwrites(attempt, word, component))
        self._check_after_writes(attempt, runs, overwrites=True)

    # Messages

    def _on_barrier(self, attempt: Attempt, run: Run, barrier: TrackedBarrier) -> str:
        return (
            f"{attempt} accesses {attempt.shadow.where(run.word)}, where {barrier.name} is a live "
            "barrier: its word is not there for ordinary accesses; call mbarrier_inval before its "
            "bytes are used again, or use other bytes"
        )

    def _overwrites(self, attempt: Attempt, word: int, component: int) -> str:
        """Return why a write may come before a read, in words, and a remedy."""
        shadow, last = attempt.shadow, attempt.shadow.last_write(word)
        reader = self.components.names[component]
        data = "the data there" if last is None else f"the data that {last.source} wrote there"
        text = (
            f"{attempt} overwrites {shadow.where(word)} before its release: {reader} reads {data}, "
        )
        time = int(shadow.reads[component].times[word])
        if not self._is_committed(component, time):
            return (
                f"{text}and its group was never committed: a wait covers committed groups only; "
                "commit the group after its last instruction, and wait for it"
            )
        if component in attempt.own:
            return (
                f"{text}and nothing but the order of the program stands between this read and the "
                "write by the async proxy; call fence_proxy_async, or let threads meet at a "
                "barrier, between them"
            )
        if time <= attempt.known[LOOSE, component]:
            return f"{text}and {self._narrow(attempt)}"
        if component in attempt.threads.group.warps:
            return (
                f"{text}and nothing orders the warps of a warpgroup but a barrier; let them meet "
                "at a named barrier (bar_sync) between the read and the write"
            )
        return f"{text}and {self._unfinished(attempt, component, time)}"

    def _unfinished(self, attempt: Attempt, component: int, time: int) -> str:
        """Return what is missing between a read and a write, in words."""
        for group in self.warpgroups:
            if component == group.wgmma_groups and time > group.wgmma_waited:
                return "no wait covers its group; call wgmma_wait_group before the release"
            for bulk in group.bulk.values():
                if component == bulk.reads:
                    return self._unread(attempt.threads, group, bulk, time)
        return (
            "nothing orders this read before the write; wait for a barrier or a group that the "
            "reader completes"
        )

    def _unread(
        self, threads: Threads, group: TrackedWarpgroup, bulk: BulkThread, time: int
    ) -> str:
        """Return what is missing between a store's read and a write, in words."""
        meet = f"arrive at a barrier that {threads.label} waits for"
        if group is threads.group:
            meet = "let the warps meet at a named barrier (bar_sync)"
        if group.rows[:, HAPPENED, bulk.reads].max() < time:
            return (
                f"the thread of {group.label} that issued it has not waited for its bulk group; "
                f"call wait_group there, then {meet}"
            )
        return f"only the thread that has waited for its bulk group knows that; {meet}"

    def _is_committed(self, component: int, time: int) -> bool:
        """Return whether an event is not one of a bulk or wgmma group that is open."""
        for group in self.warpgroups:
            if component == group.wgmma_groups:
                return time <= group.wgmma_committed
            for bulk in group.bulk.values():
                if component in (bulk.reads, bulk.writes):
                    return time <= bulk.committed
        return True

    def _narrow(self, attempt: Attempt) -> str:
        return (
            f"the only synchronisation between them is too narrow: {attempt.threads.group.narrow}; "
            "use scope .cluster, with release and acquire, between threads of different CTAs"
        )

    def _tell(self, attempt: Attempt) -> str:
        """Return what lets the threads know of something, in words."""
        text = f"arrive at a barrier that {attempt.threads.label} waits for"
        if attempt.visible == GLOBAL:
            text += ", or write a flag with .release that it reads with .acquire"
        return text

    def _unseen(self, attempt: Attempt, write: Write) -> str:
        """Return why the async proxy may not see a write, in words, and a remedy."""
        effect = f"{attempt.proxy} may not see an earlier write ({write.source})"
        if write.time <= attempt.known[SHARED, write.component]:
            return (
                f"fence.proxy.async.shared::cta covers shared memory only, and {effect}; call "
                "fence_proxy_async without shared_cta"
            )
        return (
            f"without fence.proxy.async, {effect}; call fence_proxy_async after the write and "
            "before the request"
        )

    def _unordered(self, attempt: Attempt, write: Write) -> str:
        """Return why a write may not have happened yet for the threads, in words, and a remedy."""
        threads, barrier = attempt.threads, write.barrier
        if write.time <= attempt.known[LOOSE, write.component]:
            return f"{write.source} writes there, and {self._narrow(attempt)}"
        if barrier is None:
            if write.by_unit:
                return (
                    f"{write.source} writes there, and the threads do not know that it is "
                    "complete; let its thread wait for the bulk group (wait_group, not .read), and "
                    f"then {self._tell(attempt)}"
                )
            if write.component in threads.group.warps:
                writer = self.components.names[write.component]
                return (
                    f"nothing orders it behind {write.source}, by {writer}: only a barrier orders "
                    "the warps of a warpgroup; let them meet at a named barrier (bar_sync) after "
                    "the write"
                )
            return f"nothing orders it behind {write.source}; let the writer {self._tell(attempt)}"
        text = f"{write.source} writes there and signals {barrier.name}"
        if barrier.cta != threads.group.cta:
            return (
                f"{text}, a barrier of another CTA; let a warpgroup of that CTA wait for it and "
                "arrive at a barrier of this CTA"
            )
        last_wait = threads.group.waits.get(
            (barrier.cta, barrier.address), "it has never waited for this barrier"
        )
        return (
            f"{text}, and the warpgroup has not waited for that phase: {last_wait}; check barrier "
            "and parity of the wait"
        )


def _by_warp(threads: Threads, addresses: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Divide addresses, one per thread, among the warps."""
    flat = np.asarray(addresses, np.int64).reshape(-1)
    if flat.size % len(threads.numbers):
        raise ValueError(f"{flat.size} addresses: must be one for each of {threads.count} threads")
    return list(flat.reshape(len(threads.numbers), -1))


def _divide(tile: Tile, columns: bool, warps: int) -> list[NDArray[np.int64]]:
    """Return the addresses of the words of a tile that each of some warps accesses.

    Rows of a tile of 64, 128, ... rows are divided as wgmma divides them: of each 64 rows, 16 to
    each warp. Rows of other tiles, and columns, are divided evenly; a tile with fewer rows than
    warps is divided by bytes.
    """
    item = tile.dtype.itemsize
    elements = tile.addresses(item).reshape(tile.shape[0], -1)
    rows = len(elements)
    if columns:
        shares = np.array_split(elements, warps, axis=1)
    elif rows % WGMMA_ROWS == 0 and warps == WARPS:
        quarters = elements.reshape(-1, WARPS, WGMMA_ROWS // WARPS, elements.shape[1])
        shares = [quarters[:, warp] for warp in range(WARPS)]
    else:
        shares = np.array_split(elements if rows >= warps else elements.reshape(-1), warps)
    return [scattered(share.reshape(-1), item)[0] for share in shares]


def _words(words: NDArray[np.int64]) -> Words:
    """Return words as a slice if they are consecutive."""
    if words.size and int(words[-1]) - int(words[0]) + 1 == words.size:
        return slice(int(words[0]), int(words[-1]) + 1)
    return words
