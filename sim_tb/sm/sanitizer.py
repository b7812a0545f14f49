"""Sanitizer: finds the mistakes of kernels that hang or corrupt on silicon, and names them.

It follows who knows of what. Each warp, each barrier and each of a warp's groups has a clock; a
warp's *knowledge* is a vector of them: up to which event of every other it is sure that it has
happened. Arriving at a barrier puts the warp's knowledge into the phase, waiting takes it out; a
load happens with the phase of its barrier, a store's reading with the wait for its bulk group.
Shared memory is shadowed piece by piece of 16 bytes: who wrote it last and who has read it since.
An access of which the next one cannot know is a race, whoever wins it here (vector clocks as in
FastTrack, Flanagan and Freund 2009).

A second vector holds what the warp knows to be visible to the async proxy: it grows at
``fence.proxy.async`` and travels with the first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden import Swizzle, mbarrier
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout, Tile
from sim_tb.testbench.errors import CheckError

COMPONENTS = 1024
"""Most clocks: three of each warp and one of each barrier."""


class KernelError(CheckError):
    """The kernel is wrong; the text names the mistake."""


@dataclass
class Request:
    """What is known of a request of the unit.

    ``text`` names instruction, tensor and coordinates. ``done`` is the cycle at which its barrier's
    phase completed or its group was waited for.
    """

    number: int
    text: str
    cta: int
    role: str
    cycle: int
    tx_bytes: int = 0
    tensor_map: int | None = None
    barrier: str = ""
    done: int | None = None

    def __str__(self) -> str:
        size = f", {self.tx_bytes} bytes" if self.tx_bytes else ""
        return f"request {self.number} ({self.text} of {self.role} in cycle {self.cycle}{size})"


@dataclass(frozen=True)
class Access:
    """Who wrote a piece last: at which time of which component, by threads (``generic``) or not."""

    what: "str | Request"
    component: int
    time: int
    generic: bool
    swizzle: Swizzle | None = None
    barrier: "Barrier | None" = None


class Knower:
    """Something that has knowledge: row 0, and row 1 of what the async proxy sees."""

    def __init__(self) -> None:
        self.knows = np.zeros((2, COMPONENTS), np.int64)

    def learn(self, other: NDArray[np.int64]) -> None:
        """Know what the other one knows, too."""
        np.maximum(self.knows, other, out=self.knows)


class Thread(Knower):
    """A warp, as the sanitizer sees it.

    ``clock``, ``wgmma`` and ``groups`` are components: of its own accesses, of its wgmma groups and
    of its bulk groups. ``committed`` counts the groups of the latter two.
    """

    def __init__(self, cta: int, role: str, components: tuple[int, int, int]) -> None:
        super().__init__()
        self.cta, self.role = cta, role
        self.clock, self.wgmma, self.groups = components
        self.committed = {self.wgmma: 0, self.groups: 0}
        self.open: list[Request] = []
        self.pending: list[list[Request]] = []
        self.waited: dict[tuple[int, int], str] = {}
        self.is_over = False
        self.tick()

    def tick(self) -> None:
        """What comes is later than what others know of now."""
        self.knows[0, self.clock] += 1

    @property
    def now(self) -> int:
        """The time of its next access."""
        return int(self.knows[0, self.clock])


@dataclass
class Barrier:
    """A barrier of a CTA. ``before`` is the knowledge that its last two phases completed with."""

    cta: int
    address: int
    name: str
    component: int
    count: int
    flips: int = 0
    gathering: Knower = field(default_factory=Knower)
    before: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    expects: list[tuple[str, int, int]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    arrivals: list[str] = field(default_factory=list)

    @property
    def expected(self) -> int:
        """Bytes that expect_tx of this phase said."""
        return sum(count for _, _, count in self.expects)

    @property
    def requested(self) -> int:
        """Bytes that requests of this phase bring."""
        return sum(request.tx_bytes for request in self.requests)

    def balance(self) -> str:
        """Both, and who."""
        expects = ", ".join(f"{n} of {role} in cycle {cycle}" for role, cycle, n in self.expects)
        requests = "; ".join(map(str, self.requests))
        return f"expect_tx: {expects or 'none'}; counted: {requests or 'none'}"


class Reads:
    """When a component has read each piece last, and any of them; 0 is never."""

    def __init__(self, pieces: int) -> None:
        self.times = np.zeros(pieces, np.int64)
        self.latest = 0

    def late(self, span: slice, known: int) -> int | None:
        """The first piece of a span that it has read later than that is known."""
        if self.latest <= known:
            return None
        late = np.flatnonzero(self.times[span] > known)
        return (span.start or 0) + int(late[0]) if late.size else None


class Shadow:
    """The pieces of a CTA's shared memory: who wrote each last, and who has read it since."""

    def __init__(self, pieces: int) -> None:
        self.accesses: list[Access] = []
        self.readers: dict[int, Reads] = {}
        self._writers = np.full(pieces, -1, np.int32)

    def write(self, span: slice, access: Access) -> None:
        """The pieces of a span are overwritten."""
        self._writers[span] = len(self.accesses)
        self.accesses.append(access)

    def read(self, span: slice, component: int, time: int) -> None:
        """The pieces of a span are read."""
        reads = self.readers.get(component)
        if reads is None:
            reads = self.readers[component] = Reads(self._writers.size)
        reads.times[span] = time
        reads.latest = max(reads.latest, time)

    def writers(self, span: slice) -> Iterator[tuple[int, Access | None]]:
        """The parts of a span that were written at once: first piece, and who, if anybody."""
        numbers = self._writers[span]
        starts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        for start in (0, *starts.tolist()):
            number = numbers[start]
            yield span.start + start, None if number < 0 else self.accesses[number]

    def writer(self, piece: int) -> Access:
        """Who wrote a piece that was read."""
        return self.accesses[int(self._writers[piece])]


class Sanitizer:
    """Watches the warps of all CTAs; ``CheckError`` is raised where the mistake is made.

    Parameters
    ----------
    layout : SmemLayout
        Of the shared memory of each CTA.
    smem_bytes : int
    ctas : int
    """

    def __init__(self, layout: SmemLayout, smem_bytes: int, ctas: int) -> None:
        self.layout = layout
        self.smem_bytes = smem_bytes
        self.shadows = [Shadow(smem_bytes // PIECE_BYTES) for _ in range(ctas)]
        self.threads: list[Thread] = []
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.requests: list[Request] = []
        self.progress = 0
        self._owners = ["nobody"]
        self._patched: dict[int, tuple[int, str]] = {}
        self._acquired: dict[tuple[int, int], int] = defaultdict(int)
        self._users: dict[int | None, dict[int, tuple[int, Request]]] = defaultdict(dict)

    # Who there is

    def thread(self, cta: int, role: str) -> Thread:
        """A warp that takes part; it knows what has happened so far."""
        label = self._label(cta, role)
        clock, wgmma, groups = map(
            self._component, (label, f"a wgmma of {label}", f"a store of {label}")
        )
        thread = Thread(cta, label, (clock, wgmma, groups))
        self.threads.append(thread)
        return thread

    def _component(self, owner: str) -> int:
        if len(self._owners) == COMPONENTS:
            raise KernelError(f"more than {COMPONENTS} warps and barriers to watch")
        self._owners.append(owner)
        return len(self._owners) - 1

    def _label(self, cta: int, role: str) -> str:
        return role if len(self.shadows) == 1 else f"{role} of CTA {cta}"

    # Barriers

    def init(self, thread: Thread, address: int, count: int) -> Barrier:
        """``mbarrier.init``."""
        name = self._label(thread.cta, self.layout.name(address))
        barrier = Barrier(thread.cta, address, name, self._component(name), count)
        self.barriers[thread.cta, address] = barrier
        self.progress += 1
        return barrier

    def barrier(self, thread: Thread, what: str, cta: int, address: int) -> Barrier:
        """The barrier that an instruction names.

        Raises
        ------
        KernelError
            If it was never initialised.
        """
        found = self.barriers.get((cta, address))
        if found is None:
            name = self._label(cta, self.layout.name(address))
            raise KernelError(f"{thread.role}: {what} on {name}, which was never initialised")
        return found

    def arrive(
        self, thread: Thread, barrier: Barrier, cycle: int, arrivals: int, tx_bytes: int
    ) -> None:
        """An arrival releases what the warp did before; ``tx_bytes``: of ``expect_tx``.

        Raises
        ------
        KernelError
            If the phase has all of its arrivals, and has not completed.
        """
        if len(barrier.arrivals) + arrivals > barrier.count:
            there = ", ".join(barrier.arrivals)
            raise KernelError(
                f"{thread.role}: arrives at {barrier.name} in cycle {cycle}, whose phase "
                f"{barrier.flips} has all of its {barrier.count} arrivals ({there}) and waits for "
                f"{barrier.expected} bytes"
            )
        barrier.gathering.learn(thread.knows)
        barrier.arrivals += [thread.role] * arrivals
        thread.tick()
        self.expect(thread, barrier, cycle, tx_bytes)

    def expect(self, thread: Thread, barrier: Barrier, cycle: int, tx_bytes: int) -> None:
        """``expect_tx``."""
        if tx_bytes:
            barrier.expects.append((thread.role, cycle, tx_bytes))
        self.progress += 1

    def flipped(self, barrier: Barrier, cycle: int) -> None:
        """A phase has completed.

        Raises
        ------
        KernelError
            If requests of it are still on their way: ``expect_tx`` was too small.
        """
        self.progress += 1
        barrier.flips += 1
        barrier.before[barrier.flips] = barrier.gathering.knows.copy()
        barrier.before.pop(barrier.flips - 2, None)
        for request in barrier.requests:
            request.done = cycle
        difference = barrier.requested - barrier.expected
        if difference:
            raise KernelError(
                f"{barrier.name}: phase {barrier.flips - 1} completed in cycle {cycle} with "
                f"expect_tx {difference} bytes too small: {barrier.balance()}"
            )
        barrier.expects.clear()
        barrier.requests.clear()
        barrier.arrivals.clear()

    def waited(self, thread: Thread, barrier: Barrier, parity: int, cycle: int) -> None:
        """A wait for the phase of ``parity`` is over: the warp knows what the phase knows."""
        phase = barrier.flips - ((barrier.flips - 1) % 2 != parity)
        thread.waited[barrier.cta, barrier.address] = (
            f"it waited for parity {parity} in cycle {cycle}, when {max(phase, 0)} phases had "
            "completed"
        )
        if phase > 0:
            thread.learn(barrier.before[phase])
            thread.knows[:, barrier.component] = np.maximum(
                thread.knows[:, barrier.component], phase
            )
        self.progress += 1

    def sync(self, threads: Sequence[Thread]) -> None:
        """``bar.sync`` or ``barrier.cluster``: each knows what all know."""
        everything = np.maximum.reduce([thread.knows for thread in threads])
        for thread in threads:
            thread.learn(everything)
            thread.tick()
        self.progress += 1

    # Proxies

    def fence_async(self, thread: Thread) -> None:
        """``fence.proxy.async``: what the warp knows of is visible to the unit."""
        thread.knows[1] = thread.knows[0]
        thread.tick()
        self.progress += 1

    def patched(self, thread: Thread, address: int, what: str) -> None:
        """A tensor map in global memory is about to be changed.

        Raises
        ------
        KernelError
            If requests that use it may still be on their way.
        """
        for component, (time, request) in self._users[address].items():
            if time > thread.knows[0, component]:
                raise KernelError(
                    f"{what} changes the tensor map at {address:#x} that {request} uses: nothing "
                    "says that it is done"
                )
        version, _ = self._patched.get(address, (0, ""))
        self._patched[address] = version + 1, what
        self.progress += 1

    def acquired(self, thread: Thread, address: int) -> None:
        """``fence.proxy.tensormap`` acquire by a warp of the CTA."""
        self._acquired[thread.cta, address] = self._patched.get(address, (0, ""))[0]
        self.progress += 1

    def uses_map(self, thread: Thread, text: str, address: int) -> None:
        """A request names a tensor map.

        Raises
        ------
        KernelError
            If it was changed, and the CTA has not acquired it since.
        """
        version, what = self._patched.get(address, (0, ""))
        if self._acquired[thread.cta, address] < version:
            raise KernelError(
                f"{thread.role}: {text} uses the tensor map at {address:#x} after {what}, without "
                "fence.proxy.tensormap acquire: the descriptor cache may hold the old one"
            )

    # Shared memory

    def reads(
        self, thread: Thread, what: str, tile: Tile, cycle: int, *, wgmma: bool = False
    ) -> None:
        """Threads read a tile, or with ``wgmma`` tensor cores do until the group is waited for."""
        self._phase(thread, what, tile)
        shadow, span = self.shadows[thread.cta], tile.span
        self._after_writes(thread, what, tile.name, thread.cta, span, cycle, reads=tile.swizzle)
        if wgmma:
            shadow.read(span, thread.wgmma, thread.committed[thread.wgmma] + 1)
        else:
            shadow.read(span, thread.clock, thread.now)
        self.progress += 1

    def writes(self, thread: Thread, what: str, tile: Tile, cycle: int) -> None:
        """Threads write a tile."""
        self._phase(thread, what, tile)
        self._after_all(thread, what, tile.name, thread.cta, tile.span, cycle)
        how = f"{what} {tile.name} by {thread.role} in cycle {cycle}"
        access = Access(how, thread.clock, thread.now, True, tile.swizzle)
        self.shadows[thread.cta].write(tile.span, access)
        self.progress += 1

    def load(
        self,
        thread: Thread,
        request: Request,
        receivers: Iterable[int],
        address: int,
        size: int,
        swizzle: Swizzle | None,
        signals: int,
    ) -> None:
        """A request writes ``size`` bytes at ``address`` of each receiver's shared memory, whose
        barrier at offset ``signals`` counts them. Without ``swizzle`` it writes bytes, whatever
        they mean.
        """
        span = self._range(thread, request, address, size)
        for cta in receivers:
            barrier = self.barrier(thread, request.text, cta, signals)
            request.barrier = barrier.name
            self._after_all(thread, request.text, "", cta, span, request.cycle, proxy=True)
            barrier.requests.append(request)
            self._users[request.tensor_map][barrier.component] = barrier.flips + 1, request
            barrier.gathering.learn(thread.knows)
            time = barrier.flips + 1
            access = Access(request, barrier.component, time, False, swizzle, barrier)
            self.shadows[cta].write(span, access)
        self.requests.append(request)
        self.progress += 1

    def store(
        self,
        thread: Thread,
        request: Request,
        address: int,
        size: int,
        swizzle: Swizzle | None,
        barrier: Barrier | None = None,
    ) -> None:
        """A request reads shared memory: until its bulk group is waited for, or until the phase
        of ``barrier`` (DSMEM) completes.
        """
        span = self._range(thread, request, address, size)
        shadow = self.shadows[thread.cta]
        self._after_writes(
            thread, request.text, "", thread.cta, span, request.cycle, proxy=True, reads=swizzle
        )
        if barrier is None:
            group = thread.committed[thread.groups] + 1
            shadow.read(span, thread.groups, group)
            self._users[request.tensor_map][thread.groups] = group, request
            thread.open.append(request)
            self.requests.append(request)
        else:
            shadow.read(span, barrier.component, barrier.flips + 1)
        self.progress += 1

    def commit(self, thread: Thread, component: int) -> None:
        """A group of bulk requests, or of wgmma, is complete."""
        thread.committed[component] += 1
        if component == thread.groups:
            thread.pending.append(thread.open)
            thread.open = []
        self.progress += 1

    def group_waited(
        self, thread: Thread, component: int, groups: int, cycle: int, *, read: bool = False
    ) -> None:
        """All but the youngest ``groups`` are over, as far as they ``read``."""
        thread.knows[:, component] = np.maximum(
            thread.knows[:, component], thread.committed[component] - groups
        )
        if component == thread.groups and not read:
            over = max(0, len(thread.pending) - groups)
            for request in (request for group in thread.pending[:over] for request in group):
                request.done = cycle
            del thread.pending[:over]
        self.progress += 1

    # Rules

    def _phase(self, thread: Thread, what: str, tile: Tile) -> None:
        repeat = tile.swizzle.repeat
        if tile.origin % repeat:
            span = tile.swizzle.span or repeat
            raise KernelError(
                f"{thread.role}: {what} {tile.name} at {tile.origin:#x}: the phase of its swizzle "
                f"{tile.swizzle.short_names[0]} is off by {tile.origin % repeat / span:g} rows of "
                f"{repeat // span}: the unit takes it from the address, the threads from the row; "
                f"align the tile to {repeat} bytes"
            )

    def _range(self, thread: Thread, request: Request, address: int, size: int) -> slice:
        if address + size > self.layout.bytes:
            raise KernelError(
                f"{thread.role}: {request.text}: bytes {address:#x} to {address + size:#x} of "
                f"shared memory: {address + size - self.layout.bytes} bytes beyond the end of what "
                f"the kernel has, {self.layout.bytes:#x}"
            )
        return slice(address // PIECE_BYTES, -(-(address + size) // PIECE_BYTES))

    def _after_writes(
        self,
        thread: Thread,
        what: str,
        name: str,
        cta: int,
        span: slice,
        cycle: int,
        *,
        proxy: bool = False,
        reads: Swizzle | None = None,
        overwrites: bool = False,
    ) -> None:
        """Whoever wrote the pieces has done so for all that the warp knows; with ``proxy`` for all
        that the unit sees. Who reads them with a swizzle does it with that of the write.
        """
        what = f"{what} {name}" if name else what
        for piece, access in self.shadows[cta].writers(span):
            where = f"{piece * PIECE_BYTES:#x}"
            if access is None:
                if overwrites:
                    continue
                raise KernelError(
                    f"{thread.role}: {what} in cycle {cycle}: nobody has written shared memory at "
                    f"{where}"
                )
            if access.time > thread.knows[0, access.component]:
                raise KernelError(
                    f"{thread.role}: {what} in cycle {cycle}, at {where} of shared memory: "
                    + self._unknown(thread, access)
                )
            if proxy and access.generic and access.time > thread.knows[1, access.component]:
                raise KernelError(
                    f"{thread.role}: {what} in cycle {cycle}: without fence.proxy.async, the unit "
                    f"may not see what was written before ({access.what})"
                )
            if reads is not None and access.swizzle not in (None, reads):
                raise KernelError(
                    f"{thread.role}: {what} with swizzle {reads.short_names[0]}: it was written "
                    f"with swizzle {access.swizzle.short_names[0]} by {access.what}"
                )

    def _unknown(self, thread: Thread, access: Access) -> str:
        barrier = access.barrier
        if barrier is None:
            return f"nothing orders it behind {access.what}"
        waited = thread.waited.get((barrier.cta, barrier.address), "it never waited for it")
        if barrier.cta != thread.cta:
            waited = "it is a barrier of another CTA"
        return (
            f"{access.what} writes there, and the warp has not waited for that phase of "
            f"{barrier.name}: {waited}"
        )

    def _after_all(
        self,
        thread: Thread,
        what: str,
        name: str,
        cta: int,
        span: slice,
        cycle: int,
        *,
        proxy: bool = False,
    ) -> None:
        """Whoever wrote or read the pieces has done so: they may be overwritten."""
        shadow = self.shadows[cta]
        for component, reads in shadow.readers.items():
            piece = reads.late(span, int(thread.knows[0, component]))
            if piece is not None:
                what = f"{what} {name}" if name else what
                raise KernelError(
                    f"{thread.role}: {what} in cycle {cycle} overwrites shared memory at "
                    f"{piece * PIECE_BYTES:#x} before its release: {self._owners[component]} reads "
                    f"there what {shadow.writer(piece).what} wrote, and nothing orders the two"
                )
        self._after_writes(thread, what, name, cta, span, cycle, proxy=proxy, overwrites=True)

    # The end

    def exits(self, thread: Thread) -> None:
        """A warp has come to its end.

        Raises
        ------
        KernelError
            If it is the last one of its CTA, and requests may still read the CTA's shared memory,
            which now belongs to nobody.
        """
        thread.is_over = True
        threads = [other for other in self.threads if other.cta == thread.cta]
        if not all(other.is_over for other in threads):
            return
        knows = np.maximum.reduce([other.knows[0] for other in threads])
        shadow = self.shadows[thread.cta]
        for component, reads in shadow.readers.items():
            piece = reads.late(slice(None), int(knows[component]))
            if piece is not None:
                raise KernelError(
                    f"{thread.role}: the CTA ends while {self._owners[component]} may read what "
                    f"{shadow.writer(piece).what} wrote at {piece * PIECE_BYTES:#x} of shared "
                    "memory: nobody has waited for that"
                )

    def ended(self) -> None:
        """The kernel has ended.

        Raises
        ------
        KernelError
            If loads are on their way: the shared memory that they write belongs to nobody now.
        """
        for barrier in self.barriers.values():
            if barrier.requests or barrier.expects:
                raise KernelError(
                    f"the kernel ends with loads on their way to {barrier.name}: "
                    f"{barrier.balance()}"
                )

    def diagnosis(self, words: dict[tuple[int, int], mbarrier.Barrier]) -> list[str]:
        """What of the barriers explains that nothing happens any more; their words are given."""
        rows = []
        for key, word in words.items():
            barrier = self.barriers[key]
            difference = barrier.expected - barrier.requested
            if difference and (barrier.requests or barrier.expects):
                size = f"{abs(difference)} bytes too {'large' if difference > 0 else 'small'}"
                rows.append(f"{barrier.name}: expect_tx is {size}: {barrier.balance()}")
            elif word.pending and barrier.arrivals:
                rows.append(
                    f"{barrier.name}: {word.pending} of {barrier.count} arrivals are missing; "
                    f"there were: {', '.join(barrier.arrivals)}"
                )
        return rows
