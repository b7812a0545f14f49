"""Sanitizer: detects mistakes of kernels that hang or corrupt data on silicon, and names them.

The sanitizer decides with vector clocks, as FastTrack does (Flanagan and Freund 2009), whether two
accesses are ordered. A *component* is a counter of events. Each warpgroup has three: its own
accesses, its wgmma groups, and its bulk groups. Each barrier has one: its phases. A vector clock
holds one number per component: that many events of it are known to have happened.

An arrival merges the clock of the warpgroup into the phase of the barrier. A wait merges the clock
of the phase into that of the warpgroup. A load is an event of its barrier's phase, a store's read
is an event of its bulk group.

Shared memory is shadowed in pieces of 16 bytes: the last write, and the latest read by each
component. An access that is not ordered behind an earlier one is a race, and is reported even if it
is harmless in this simulation.

A second vector clock of each warpgroup holds the writes that the async proxy can see.
``fence.proxy.async`` copies the first clock to the second. Merges apply to both.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden import Swizzle, mbarrier
from sim_tb.sm.errors import KernelError
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout, Tile

COMPONENTS = 1024
"""Most components of a vector clock: three per warpgroup and one per barrier."""

HAPPENED, VISIBLE = 0, 1
"""Rows of ``VectorClocks.clocks``: events that are known, and those that the async proxy sees."""


@dataclass
class TrackedRequest:
    """A request to the unit.

    Members
    -------
    number : int, optional
        Request id; None until the request is issued.
    text : str
        Instruction, tensor and coordinates.
    cta : int
    role : str
    cycle : int
        Cycle in which the request was issued.
    tx_bytes : int
        Bytes that the barrier of a load counts. 0: the request is a store.
    tensor_map : int, optional
        Address of the tensor map.
    done : int, optional
        Cycle in which the phase of the barrier completed, or a wait for the bulk group returned.
    """

    number: int | None
    text: str
    cta: int
    role: str
    cycle: int
    tx_bytes: int = 0
    tensor_map: int | None = None
    done: int | None = None

    def __str__(self) -> str:
        size = f", {self.tx_bytes} bytes" if self.tx_bytes else ""
        number = "" if self.number is None else f" {self.number}"
        return f"request{number} ({self.text} by {self.role} in cycle {self.cycle}{size})"


class VectorClocks:
    """The two vector clocks of a warpgroup or of a phase: rows ``HAPPENED`` and ``VISIBLE``."""

    def __init__(self) -> None:
        self.clocks = np.zeros((2, COMPONENTS), np.int64)

    def merge(self, clocks: NDArray[np.int64]) -> None:
        """Add the events of other clocks."""
        np.maximum(self.clocks, clocks, out=self.clocks)


class BarrierWait(NamedTuple):
    """A wait at a barrier that has not returned: CTA and offset of the barrier, parity, cycle."""

    barrier: tuple[int, int]
    parity: int
    cycle: int


class TrackedWarpgroup(VectorClocks):
    """A warpgroup, as the sanitizer sees it.

    Members
    -------
    cta : int
    label : str
        Role, in a cluster with the number of the CTA.
    accesses, wgmma_groups, bulk_groups : int
        Components of its own accesses, its wgmma groups and its bulk groups.
    committed : dict of int to int
        Number of committed groups, by component.
    open_requests : list of TrackedRequest
        Stores since the last ``commit_group``.
    pending_groups : list of list of TrackedRequest
        Bulk groups that no wait has covered.
    waiting : BarrierWait, optional
        Wait that it is in.
    last_waits : dict of (int, int) to str
        Description of the last wait, by CTA and offset of the barrier.
    waited_phases : dict of (int, int) to int
        Number of phases that its last wait found completed, by CTA and offset of the barrier.
    has_exited : bool
    """

    def __init__(self, cta: int, label: str, components: tuple[int, int, int]) -> None:
        super().__init__()
        self.cta, self.label = cta, label
        self.accesses, self.wgmma_groups, self.bulk_groups = components
        self.committed = {self.wgmma_groups: 0, self.bulk_groups: 0}
        self.open_requests: list[TrackedRequest] = []
        self.pending_groups: list[list[TrackedRequest]] = []
        self.waiting: BarrierWait | None = None
        self.last_waits: dict[tuple[int, int], str] = {}
        self.waited_phases: dict[tuple[int, int], int] = {}
        self.has_exited = False
        self.tick()

    def tick(self) -> None:
        """Begin a new event: others do not know of the accesses that follow."""
        self.clocks[HAPPENED, self.accesses] += 1

    @property
    def time(self) -> int:
        """Number of the event that its next access belongs to."""
        return int(self.clocks[HAPPENED, self.accesses])


@dataclass
class TrackedBarrier:
    """A barrier of a CTA, as the sanitizer sees it.

    Members
    -------
    cta, address, name, count
        CTA, offset in shared memory, name, and arrivals per phase.
    component : int
        Component of its phases.
    completed_phases : int
    current : VectorClocks
        Clocks of the current phase.
    completed : dict of int to array
        Clocks of the last two completed phases, by number.
    expects : list of (str, int, int)
        Warpgroup, cycle and bytes of each ``expect_tx`` of the current phase.
    requests : list of TrackedRequest
        Loads of the current phase.
    arrivals : list of str
        Warpgroups that have arrived in the current phase.
    arrivers : set of str
        Warpgroups that have arrived in any phase.
    invalidated : str
        Warpgroup and cycle of ``mbarrier.inval``; empty as long as the barrier is valid.
    """

    cta: int
    address: int
    name: str
    component: int
    count: int
    completed_phases: int = 0
    current: VectorClocks = field(default_factory=VectorClocks)
    completed: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    expects: list[tuple[str, int, int]] = field(default_factory=list)
    requests: list[TrackedRequest] = field(default_factory=list)
    arrivals: list[str] = field(default_factory=list)
    arrivers: set[str] = field(default_factory=set)
    invalidated: str = ""

    @property
    def expected_bytes(self) -> int:
        """Bytes that ``expect_tx`` announced in the current phase."""
        return sum(count for _, _, count in self.expects)

    @property
    def load_bytes(self) -> int:
        """Bytes of the loads of the current phase."""
        return sum(request.tx_bytes for request in self.requests)

    def transfers(self) -> str:
        """Return each ``expect_tx`` and each load of the current phase, in words."""
        expects = ", ".join(
            f"{count} bytes by {label} in cycle {cycle}" for label, cycle, count in self.expects
        )
        requests = "; ".join(map(str, self.requests))
        return f"expect_tx: {expects or 'none'}; loads: {requests or 'none'}"

    def mismatch(self) -> str:
        """Return how ``expect_tx`` and the loads differ, in words; empty if they agree."""
        difference = self.expected_bytes - self.load_bytes
        if not difference:
            return ""
        size = f"{abs(difference)} bytes too {'large' if difference > 0 else 'small'}"
        return (
            f"expect_tx is {size}: {self.transfers()}; expect the bytes of all loads that signal "
            "the barrier in this phase"
        )


@dataclass(frozen=True)
class Access:
    """An access to shared memory that is about to happen.

    Parameters
    ----------
    warpgroup : TrackedWarpgroup
        Warpgroup that executes the instruction.
    text : str
        Instruction and operand.
    cta : int
        CTA that the shared memory belongs to.
    pieces : slice
    cycle : int
    by_unit : bool
        The unit accesses shared memory (async proxy), not the threads.
    reads_as : Swizzle, optional
        Swizzle of a read. None: a write, or a read of bytes without a layout.
    """

    warpgroup: TrackedWarpgroup
    text: str
    cta: int
    pieces: slice
    cycle: int
    by_unit: bool = False
    reads_as: Swizzle | None = None

    def __str__(self) -> str:
        return f"{self.warpgroup.label}: {self.text} in cycle {self.cycle}"


@dataclass(frozen=True)
class Write:
    """The last write to a piece of shared memory.

    Parameters
    ----------
    source : str or TrackedRequest
        Instruction that wrote the piece.
    component, time : int
        Event that the write belongs to.
    by_unit : bool
        The unit wrote (async proxy), not the threads.
    swizzle : Swizzle, optional
        None: bytes without a layout.
    barrier : TrackedBarrier, optional
        Barrier of a load.
    """

    source: str | TrackedRequest
    component: int
    time: int
    by_unit: bool
    swizzle: Swizzle | None = None
    barrier: TrackedBarrier | None = None


class ReadTimes:
    """Latest read of each piece by one component, as the number of its event; 0: none."""

    def __init__(self, pieces: int) -> None:
        self.times = np.zeros(pieces, np.int64)
        self.latest = 0

    def first_after(self, pieces: slice, time: int) -> int | None:
        """Return the first of these pieces that was read in an event after ``time``, if any."""
        if self.latest <= time:
            return None
        late = np.flatnonzero(self.times[pieces] > time)
        return (pieces.start or 0) + int(late[0]) if late.size else None


class SmemShadow:
    """Last write and latest reads of each piece of a CTA's shared memory."""

    def __init__(self, pieces: int) -> None:
        self.writes: list[Write] = []
        self.reads: dict[int, ReadTimes] = {}
        self._last_writes = np.full(pieces, -1, np.int32)

    def write(self, pieces: slice, write: Write) -> None:
        """Record a write."""
        self._last_writes[pieces] = len(self.writes)
        self.writes.append(write)

    def read(self, pieces: slice, component: int, time: int) -> None:
        """Record a read that belongs to event ``time`` of a component."""
        reads = self.reads.get(component)
        if reads is None:
            reads = self.reads[component] = ReadTimes(self._last_writes.size)
        reads.times[pieces] = time
        reads.latest = max(reads.latest, time)

    def last_writes(self, pieces: slice) -> Iterator[tuple[int, Write | None]]:
        """Yield the first piece of each run with one last write, and that write, if any."""
        numbers = self._last_writes[pieces]
        starts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        for start in (0, *starts.tolist()):
            number = numbers[start]
            yield pieces.start + start, None if number < 0 else self.writes[number]

    def last_write(self, piece: int) -> Write:
        """Return the last write to a piece that was written."""
        return self.writes[int(self._last_writes[piece])]


class Sanitizer:
    """Follows the warpgroups of all CTAs. Raises ``KernelError`` at the instruction that is wrong.

    Parameters
    ----------
    layout : SmemLayout
        Layout of the shared memory of each CTA.
    smem_bytes : int
        Size of the shared memory of each CTA.
    ctas : int

    Members
    -------
    progress : int
        Number of the events so far. The watchdog ends a run in which it stays the same.
    requests : list of TrackedRequest
    barriers : dict of (int, int) to TrackedBarrier
        Barriers by CTA and offset.
    """

    def __init__(self, layout: SmemLayout, smem_bytes: int, ctas: int) -> None:
        self.layout = layout
        self.smem_bytes = smem_bytes
        self.shadows = [SmemShadow(smem_bytes // PIECE_BYTES) for _ in range(ctas)]
        self.warpgroups: list[TrackedWarpgroup] = []
        self.barriers: dict[tuple[int, int], TrackedBarrier] = {}
        self.requests: list[TrackedRequest] = []
        self.progress = 0
        self._components = ["unused"]
        self._map_versions: dict[int, tuple[int, str]] = {}
        self._acquired: dict[tuple[int, int], int] = defaultdict(int)
        self._map_users: dict[int | None, dict[int, tuple[int, TrackedRequest]]] = defaultdict(dict)

    # Warpgroups

    def add_warpgroup(self, cta: int, role: str) -> TrackedWarpgroup:
        """Add a warpgroup; return how it is tracked."""
        label = self._label(cta, role)
        accesses, wgmma_groups, bulk_groups = map(
            self._component, (label, f"a wgmma of {label}", f"a store of {label}")
        )
        warpgroup = TrackedWarpgroup(cta, label, (accesses, wgmma_groups, bulk_groups))
        self.warpgroups.append(warpgroup)
        return warpgroup

    def _component(self, reader: str) -> int:
        """Return a new component. ``reader`` names it in messages about its reads."""
        if len(self._components) == COMPONENTS:
            raise KernelError(
                f"the sanitizer has {COMPONENTS} vector clock components: use fewer CTAs, roles or "
                "barriers"
            )
        self._components.append(reader)
        return len(self._components) - 1

    def _label(self, cta: int, name: str) -> str:
        return name if len(self.shadows) == 1 else f"{name} of CTA {cta}"

    # Barriers

    def barrier_init(
        self, warpgroup: TrackedWarpgroup, address: int, count: int, cycle: int
    ) -> TrackedBarrier:
        """Follow ``mbarrier.init``; return how the barrier is tracked.

        Raises
        ------
        KernelError
            If the count is illegal, which the unit does not tell, or the barrier is in use.
        """
        name = self._label(warpgroup.cta, self.layout.name(address))
        about = f"{warpgroup.label}: mbarrier.init of {count} on {name} in cycle {cycle}"
        if not 1 <= count <= mbarrier.MAX_COUNT:
            raise KernelError(
                f"{about}: the count must be from 1 to {mbarrier.MAX_COUNT}: no phase of this "
                "barrier completes as its arrivals come"
            )
        before = self.barriers.get((warpgroup.cta, address))
        if before is not None and not before.invalidated:
            raise KernelError(
                f"{about}: this barrier is already initialised; initialise it once, or call "
                "mbarrier_inval first"
            )
        component = self._component(f"a DSMEM copy that signals {name}")
        barrier = TrackedBarrier(warpgroup.cta, address, name, component, count)
        self.barriers[warpgroup.cta, address] = barrier
        self.progress += 1
        return barrier

    def barrier_inval(self, warpgroup: TrackedWarpgroup, address: int, cycle: int) -> None:
        """Follow ``mbarrier.inval``.

        Raises
        ------
        KernelError
            If the barrier is not initialised, or its phase has begun.
        """
        instruction = "mbarrier.inval"
        barrier = self.barrier_at(warpgroup, instruction, warpgroup.cta, address, cycle)
        if barrier.arrivals or barrier.expects or barrier.requests:
            raise KernelError(
                f"{warpgroup.label}: {instruction} on {barrier.name} in cycle {cycle}: phase "
                f"{barrier.completed_phases} has begun: {len(barrier.arrivals)} arrivals; "
                f"{barrier.transfers()}; wait for this phase first"
            )
        barrier.invalidated = f"{warpgroup.label} in cycle {cycle}"
        self.progress += 1

    def barrier_at(
        self, warpgroup: TrackedWarpgroup, instruction: str, cta: int, address: int, cycle: int
    ) -> TrackedBarrier:
        """Return the barrier that an instruction names.

        Raises
        ------
        KernelError
            If the barrier was never initialised, or was invalidated. The unit does not tell: to it,
            every word is a barrier.
        """
        barrier = self.barriers.get((cta, address))
        name = self._label(cta, self.layout.name(address))
        about = f"{warpgroup.label}: {instruction} on {name} in cycle {cycle}: this barrier was"
        if barrier is None:
            raise KernelError(
                f"{about} never initialised; call mbarrier_init for it in the prologue"
            )
        if barrier.invalidated:
            raise KernelError(
                f"{about} invalidated by {barrier.invalidated}; call mbarrier_init before it is "
                "used again"
            )
        return barrier

    def arrive(
        self,
        warpgroup: TrackedWarpgroup,
        barrier: TrackedBarrier,
        cycle: int,
        arrivals: int,
        tx_bytes: int,
    ) -> None:
        """Follow ``mbarrier.arrive``, with ``tx_bytes`` also ``expect_tx``.

        Raises
        ------
        KernelError
            If the current phase has all of its arrivals, and waits for bytes; or if it has all of
            them now, and more bytes come than it expects.
        """
        if len(barrier.arrivals) + arrivals > barrier.count:
            arrived = ", ".join(barrier.arrivals)
            raise KernelError(
                f"{warpgroup.label}: one arrival too many at {barrier.name} in cycle {cycle}: "
                f"phase {barrier.completed_phases} already has all of its {barrier.count} arrivals "
                f"({arrived}) and waits for {barrier.expected_bytes} bytes; wait for the phase "
                "before the next arrival, or raise the count of mbarrier_init"
            )
        barrier.current.merge(warpgroup.clocks)
        barrier.arrivals += [warpgroup.label] * arrivals
        barrier.arrivers.add(warpgroup.label)
        warpgroup.tick()
        self.expect_tx(warpgroup, barrier, cycle, tx_bytes)
        self._check_excess(barrier, cycle)

    def _check_excess(self, barrier: TrackedBarrier, cycle: int) -> None:
        """Check that a phase that waits for bytes only does not get more than it expects.

        Raises
        ------
        KernelError
            If it does.
        """
        excess = barrier.load_bytes - barrier.expected_bytes
        if len(barrier.arrivals) >= barrier.count and excess > 0:
            raise KernelError(
                f"{barrier.name}: phase {barrier.completed_phases} has all of its arrivals in "
                f"cycle {cycle}, but {barrier.mismatch()}. Silicon signals the bytes of a request "
                "in parts: the phase may end at a part, before all bytes have come"
            )

    def expect_tx(
        self, warpgroup: TrackedWarpgroup, barrier: TrackedBarrier, cycle: int, tx_bytes: int
    ) -> None:
        """Follow ``mbarrier.expect_tx``."""
        if tx_bytes:
            barrier.expects.append((warpgroup.label, cycle, tx_bytes))
        self.progress += 1

    def phase_completed(self, barrier: TrackedBarrier, cycle: int) -> None:
        """Follow the completion of a phase."""
        self.progress += 1
        barrier.completed_phases += 1
        barrier.completed[barrier.completed_phases] = barrier.current.clocks.copy()
        barrier.completed.pop(barrier.completed_phases - 2, None)
        for request in barrier.requests:
            request.done = cycle
        barrier.expects.clear()
        barrier.requests.clear()
        barrier.arrivals.clear()

    def wait_begins(
        self, warpgroup: TrackedWarpgroup, barrier: TrackedBarrier, parity: int, cycle: int
    ) -> None:
        """Follow the begin of a wait for the phase of ``parity``."""
        warpgroup.waiting = BarrierWait((barrier.cta, barrier.address), parity, cycle)

    def wait_returned(
        self, warpgroup: TrackedWarpgroup, barrier: TrackedBarrier, parity: int, cycle: int
    ) -> None:
        """Follow the end of a wait for the phase of ``parity``."""
        phase = barrier.completed_phases - ((barrier.completed_phases - 1) % 2 != parity)
        key = barrier.cta, barrier.address
        warpgroup.waiting = None
        warpgroup.waited_phases[key] = max(phase, 0)
        warpgroup.last_waits[key] = (
            f"its last wait, for parity {parity}, returned in cycle {cycle}, when "
            f"{max(phase, 0)} phases had completed"
        )
        if phase > 0:
            warpgroup.merge(barrier.completed[phase])
            warpgroup.clocks[:, barrier.component] = np.maximum(
                warpgroup.clocks[:, barrier.component], phase
            )
        self.progress += 1

    def sync(self, warpgroups: Sequence[TrackedWarpgroup]) -> None:
        """Follow ``bar.sync`` or ``barrier.cluster``: all clocks are merged."""
        clocks = np.maximum.reduce([warpgroup.clocks for warpgroup in warpgroups])
        for warpgroup in warpgroups:
            warpgroup.merge(clocks)
            warpgroup.tick()
        self.progress += 1

    # Proxies

    def fence_async(self, warpgroup: TrackedWarpgroup) -> None:
        """Follow ``fence.proxy.async``: the unit sees all writes that the warpgroup knows of."""
        warpgroup.clocks[VISIBLE] = warpgroup.clocks[HAPPENED]
        warpgroup.tick()
        self.progress += 1

    def replace_map(self, warpgroup: TrackedWarpgroup, address: int, text: str) -> None:
        """Check and record a change of a tensor map in global memory.

        Raises
        ------
        KernelError
            If a request that uses the map may still be in flight.
        """
        for component, (time, request) in self._map_users[address].items():
            if time > warpgroup.clocks[HAPPENED, component]:
                raise KernelError(
                    f"{text} changes the tensor map at {address:#x}, which {request} may still be "
                    "using; wait for this request's barrier or bulk group first"
                )
        version, _ = self._map_versions.get(address, (0, ""))
        self._map_versions[address] = version + 1, text
        self.progress += 1

    def acquire_map(self, warpgroup: TrackedWarpgroup, address: int) -> None:
        """Follow ``fence.proxy.tensormap`` acquire, which holds for all warpgroups of the CTA."""
        self._acquired[warpgroup.cta, address] = self._map_versions.get(address, (0, ""))[0]
        self.progress += 1

    def use_map(self, warpgroup: TrackedWarpgroup, text: str, address: int, cycle: int) -> None:
        """Check the use of a tensor map by a request.

        Raises
        ------
        KernelError
            If the map was changed and the CTA has not acquired it since then.
        """
        version, change = self._map_versions.get(address, (0, ""))
        if self._acquired[warpgroup.cta, address] < version:
            raise KernelError(
                f"{warpgroup.label}: {text} in cycle {cycle} uses the tensor map at {address:#x} "
                f"after {change}, without fence.proxy.tensormap acquire: the descriptor cache may "
                "hold the old map; call fence_proxy_tensormap before the request"
            )

    # Shared memory

    def thread_read(
        self,
        warpgroup: TrackedWarpgroup,
        instruction: str,
        tile: Tile,
        cycle: int,
        *,
        wgmma: bool = False,
    ) -> None:
        """Check and record a read of a tile by threads.

        With ``wgmma`` the tensor cores read it, until a wait for the wgmma group returns.
        """
        access = self._thread_access(warpgroup, instruction, tile, cycle, tile.swizzle)
        self._check_after_writes(access)
        shadow = self.shadows[warpgroup.cta]
        if wgmma:
            group = warpgroup.committed[warpgroup.wgmma_groups] + 1
            shadow.read(access.pieces, warpgroup.wgmma_groups, group)
        else:
            shadow.read(access.pieces, warpgroup.accesses, warpgroup.time)
        self.progress += 1

    def thread_write(
        self, warpgroup: TrackedWarpgroup, instruction: str, tile: Tile, cycle: int
    ) -> None:
        """Check and record a write of a tile by threads."""
        access = self._thread_access(warpgroup, instruction, tile, cycle, None)
        self._check_after_all(access)
        text = f"{access.text} by {warpgroup.label} in cycle {cycle}"
        write = Write(text, warpgroup.accesses, warpgroup.time, False, tile.swizzle)
        self.shadows[warpgroup.cta].write(access.pieces, write)
        self.progress += 1

    def load(
        self,
        warpgroup: TrackedWarpgroup,
        request: TrackedRequest,
        receivers: Iterable[int],
        address: int,
        size: int,
        swizzle: Swizzle | None,
        signals: int,
    ) -> None:
        """Check and record a load.

        Parameters
        ----------
        warpgroup : TrackedWarpgroup
            Warpgroup that issues the request.
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
        """
        pieces = self._piece_range(warpgroup, request, address, size)
        for cta in receivers:
            barrier = self.barrier_at(warpgroup, request.text, cta, signals, request.cycle)
            self._check_after_all(
                Access(warpgroup, request.text, cta, pieces, request.cycle, by_unit=True)
            )
            barrier.requests.append(request)
            self._check_excess(barrier, request.cycle)
            time = barrier.completed_phases + 1
            self._map_users[request.tensor_map][barrier.component] = time, request
            barrier.current.merge(warpgroup.clocks)
            write = Write(request, barrier.component, time, True, swizzle, barrier)
            self.shadows[cta].write(pieces, write)
        self.requests.append(request)
        self.progress += 1

    def store(
        self,
        warpgroup: TrackedWarpgroup,
        request: TrackedRequest,
        address: int,
        size: int,
        swizzle: Swizzle | None,
        barrier: TrackedBarrier | None = None,
    ) -> None:
        """Check and record a request that reads shared memory.

        The read lasts until a wait for the bulk group returns, or, for a DSMEM copy, until the
        phase of ``barrier`` completes.
        """
        pieces = self._piece_range(warpgroup, request, address, size)
        shadow = self.shadows[warpgroup.cta]
        self._check_after_writes(
            Access(warpgroup, request.text, warpgroup.cta, pieces, request.cycle, True, swizzle)
        )
        if barrier is None:
            group = warpgroup.committed[warpgroup.bulk_groups] + 1
            shadow.read(pieces, warpgroup.bulk_groups, group)
            self._map_users[request.tensor_map][warpgroup.bulk_groups] = group, request
            warpgroup.open_requests.append(request)
            self.requests.append(request)
        else:
            shadow.read(pieces, barrier.component, barrier.completed_phases + 1)
        self.progress += 1

    def commit(self, warpgroup: TrackedWarpgroup, component: int) -> None:
        """Follow the commit of a bulk group or of a wgmma group, as ``component`` says."""
        warpgroup.committed[component] += 1
        if component == warpgroup.bulk_groups:
            warpgroup.pending_groups.append(warpgroup.open_requests)
            warpgroup.open_requests = []
        self.progress += 1

    def group_wait_returned(
        self,
        warpgroup: TrackedWarpgroup,
        component: int,
        groups: int,
        cycle: int,
        *,
        read: bool = False,
    ) -> None:
        """Follow the end of a wait for all but the youngest ``groups`` groups.

        With ``read`` only their reads of shared memory are over.
        """
        warpgroup.clocks[:, component] = np.maximum(
            warpgroup.clocks[:, component], warpgroup.committed[component] - groups
        )
        if component == warpgroup.bulk_groups and not read:
            done = max(0, len(warpgroup.pending_groups) - groups)
            for group in warpgroup.pending_groups[:done]:
                for request in group:
                    request.done = cycle
            del warpgroup.pending_groups[:done]
        self.progress += 1

    # Rules

    def _thread_access(
        self,
        warpgroup: TrackedWarpgroup,
        instruction: str,
        tile: Tile,
        cycle: int,
        reads_as: Swizzle | None,
    ) -> Access:
        """Return an access to a tile by threads, after a check of the swizzle's phase."""
        text = f"{instruction} of {tile.name}"
        access = Access(warpgroup, text, warpgroup.cta, tile.piece_range, cycle, reads_as=reads_as)
        repeat = tile.swizzle.repeat
        if tile.origin % repeat:
            span = tile.swizzle.span or repeat
            raise KernelError(
                f"{access}: the tile is at {tile.origin:#x}, so the phase of its swizzle "
                f"{tile.swizzle.short_names[0]} is off by {tile.origin % repeat / span:g} of "
                f"{repeat // span} rows: the unit takes the phase from the address, the threads "
                f"take it from the row; align the tile to {repeat} bytes"
            )
        return access

    def _piece_range(
        self, warpgroup: TrackedWarpgroup, request: TrackedRequest, address: int, size: int
    ) -> slice:
        beyond = address + size - self.layout.bytes
        if beyond > 0:
            raise KernelError(
                f"{warpgroup.label}: {request.text} in cycle {request.cycle} accesses bytes "
                f"{address:#x} to {address + size - 1:#x} of shared memory: {beyond} bytes beyond "
                f"the end of the kernel's layout, {self.layout.bytes:#x}; allocate them in smem()"
            )
        return slice(address // PIECE_BYTES, -(-(address + size) // PIECE_BYTES))

    def _check_after_writes(self, access: Access, *, overwrites: bool = False) -> None:
        """Check that an access is ordered behind the last writes of its pieces.

        An access by the unit needs the fence between the proxies. A read must have the swizzle of
        the write. Pieces that were never written may be overwritten, but not read.

        Raises
        ------
        KernelError
            If one of these rules is broken.
        """
        warpgroup, clocks = access.warpgroup, access.warpgroup.clocks
        for piece, write in self.shadows[access.cta].last_writes(access.pieces):
            where = f"{piece * PIECE_BYTES:#x} of shared memory"
            if write is None:
                if overwrites:
                    continue
                raise KernelError(
                    f"{access} reads {where}, which nobody has written; load or store there first"
                )
            if write.time > clocks[HAPPENED, write.component]:
                raise KernelError(f"{access}, at {where}: {_unordered(warpgroup, write)}")
            if (
                access.by_unit
                and not write.by_unit
                and write.time > clocks[VISIBLE, write.component]
            ):
                raise KernelError(
                    f"{access}, at {where}: without fence.proxy.async, the unit may not see an "
                    f"earlier write ({write.source}); call fence_proxy_async after the write and "
                    "before the request"
                )
            if access.reads_as is not None and write.swizzle not in (None, access.reads_as):
                raise KernelError(
                    f"{access}, at {where}: it reads with swizzle "
                    f"{access.reads_as.short_names[0]} the data that {write.source} wrote with "
                    f"swizzle {write.swizzle.short_names[0]}; use one swizzle for the tile and for "
                    "the tensor map"
                )

    def _check_after_all(self, access: Access) -> None:
        """Check that a write is ordered behind the last reads and writes of its pieces.

        Raises
        ------
        KernelError
            If the write is not.
        """
        shadow = self.shadows[access.cta]
        for component, reads in shadow.reads.items():
            known = int(access.warpgroup.clocks[HAPPENED, component])
            piece = reads.first_after(access.pieces, known)
            if piece is not None:
                raise KernelError(
                    f"{access} overwrites {piece * PIECE_BYTES:#x} of shared memory before its "
                    f"release: {self._components[component]} reads the data that "
                    f"{shadow.last_write(piece).source} wrote there, and nothing orders this read "
                    "before the write; wait for a barrier or a group that the reader completes"
                )
        self._check_after_writes(access, overwrites=True)

    # The end

    def exit_warpgroup(self, warpgroup: TrackedWarpgroup, cycle: int) -> None:
        """Follow the return of a role.

        Raises
        ------
        KernelError
            If the warpgroup is the last one of its CTA, and requests may still read the shared
            memory of the CTA, which is free for the next CTA then.
        """
        warpgroup.has_exited = True
        members = [other for other in self.warpgroups if other.cta == warpgroup.cta]
        if not all(other.has_exited for other in members):
            return
        known = np.maximum.reduce([other.clocks[HAPPENED] for other in members])
        shadow = self.shadows[warpgroup.cta]
        for component, reads in shadow.reads.items():
            piece = reads.first_after(slice(None), int(known[component]))
            if piece is not None:
                raise KernelError(
                    f"{warpgroup.label}: the CTA ends in cycle {cycle} while "
                    f"{self._components[component]} may still read the data that "
                    f"{shadow.last_write(piece).source} wrote at {piece * PIECE_BYTES:#x} of "
                    "shared memory; wait for this read before the last role returns"
                )

    def end_kernel(self) -> None:
        """Follow the end of the kernel.

        Raises
        ------
        KernelError
            If loads are in flight, or expected: nobody owns the shared memory that they write.
        """
        for barrier in self.barriers.values():
            if barrier.requests or barrier.expects:
                raise KernelError(
                    f"the kernel ends before phase {barrier.completed_phases} of {barrier.name} "
                    f"has completed: {barrier.transfers()}; wait for this phase before the last "
                    "role returns"
                )


def _unordered(warpgroup: TrackedWarpgroup, write: Write) -> str:
    """Return why a write may not have happened yet for a warpgroup, in words, and a remedy."""
    barrier = write.barrier
    if barrier is None:
        return (
            f"nothing orders it behind {write.source}; let the writer arrive at a barrier that "
            f"{warpgroup.label} waits for"
        )
    text = f"{write.source} writes there and signals {barrier.name}"
    if barrier.cta != warpgroup.cta:
        return (
            f"{text}, a barrier of another CTA; let a warpgroup of that CTA wait for it and arrive "
            "at a barrier of this CTA"
        )
    last_wait = warpgroup.last_waits.get(
        (barrier.cta, barrier.address), "it has never waited for this barrier"
    )
    return (
        f"{text}, and the warpgroup has not waited for that phase: {last_wait}; check barrier and "
        "parity of the wait"
    )
