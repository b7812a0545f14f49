"""A barrier as the sanitizer sees it: its phases, and what arrivals and transfers brought."""

from sim_tb.sm.sanitizer.clocks import LOOSE, Clock, Components, Rows, Scope, Threads
from sim_tb.sm.sanitizer.requests import TrackedRequest


class TrackedBarrier:
    """A barrier of a CTA, as the sanitizer sees it.

    A wait at CTA scope learns of the arrivals of its own CTA (``near``), one at cluster scope also
    of those of other CTAs at cluster scope (``far``).

    Members
    -------
    cta, address, name, count
        CTA, offset in shared memory, name, and arrivals per phase.
    component : int
        Component of its phases.
    base : int
        Events of the component before this barrier, from an earlier barrier at the same place.
    initialised : (int, int, int)
        Component, event and cycle of ``mbarrier.init``.
    published : (int, int), optional
        Component and event of the fence behind ``mbarrier.init``.
    completed_phases : int
    near, far : Clock
        What a wait for the current phase will know.
    expects : list of (str, int, int)
        Threads, cycle and bytes of each ``expect_tx`` of the current phase.
    requests : list of TrackedRequest
        Loads of the current phase.
    arrivals : dict of str to int
        Arrivals in the current phase, by role.
    arrivers : dict of str to int
        Roles that have arrived in any phase, with the threads of their last arrival.
    last_arrivals : dict of int to (int, int)
        Phase in which each warp has arrived last, as an event, and the loads that its role had
        waited for, by the component of the warp.
    remote : dict of int to (int, str)
        Last arrival of each component of another CTA: event, and description.
    narrow : str
        Description of the last arrival whose scope is too narrow for the waiting CTA.
    invalidated : str
        Threads and cycle of ``mbarrier.inval``; empty as long as the barrier is valid.
    """

    def __init__(
        self, components: Components, cta: int, address: int, name: str, count: int,
        component: int, base: int, initialised: tuple[int, int, int], by: str,
    ) -> None:  # fmt: skip
        self.cta, self.address, self.name, self.count = cta, address, name, count
        self.component, self.base = component, base
        self.initialised, self.initialised_by = initialised, by
        self.published: tuple[int, int] | None = None
        self.completed_phases = 0
        self.near, self.far = Clock(components), Clock(components)
        self._completed = [(Clock(components), Clock(components)) for _ in range(2)]
        self._has_loads = [False, False]
        self.expects: list[tuple[str, int, int]] = []
        self.requests: list[TrackedRequest] = []
        self.arrivals: dict[str, int] = {}
        self.arrivers: dict[str, int] = {}
        self.last_arrivals: dict[int, tuple[int, int]] = {}
        self.remote: dict[int, tuple[int, str]] = {}
        self.dropped = 0
        self.narrow = ""
        self.invalidated = ""

    @property
    def clocks(self) -> list[Clock]:
        """All of its clocks."""
        return [self.near, self.far, *(clock for pair in self._completed for clock in pair)]

    @property
    def time(self) -> int:
        """Event of the component that the current phase is."""
        return self.base + self.completed_phases + 1

    @property
    def arrived(self) -> int:
        """Arrivals in the current phase."""
        return sum(self.arrivals.values())

    @property
    def expected_bytes(self) -> int:
        """Bytes that ``expect_tx`` announced in the current phase."""
        return sum(count for _, _, count in self.expects)

    @property
    def load_bytes(self) -> int:
        """Bytes of the loads of the current phase."""
        return sum(request.tx_bytes for request in self.requests)

    def who_arrived(self) -> str:
        """Return who has arrived in the current phase, in words."""
        return ", ".join(
            label if count == 1 else f"{label} {count} times"
            for label, count in self.arrivals.items()
        )

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

    def receive(self, threads: Threads, text: str, scope: Scope, *, relaxed: bool) -> None:
        """Take over what arriving threads know."""
        rows = threads.published()
        is_own = threads.group.cta == self.cta
        if relaxed or not (is_own or scope >= Scope.CLUSTER):
            self.narrow = f"{text} is relaxed" if relaxed else f"{text} has scope {scope}"
            self.near.merge_loosely(rows)
            self.far.merge_loosely(rows)
            return
        self.far.merge(rows)
        if is_own:
            self.near.merge(rows)
        else:
            self.near.merge_loosely(rows)

    def complete(self) -> None:
        """Begin the next phase."""
        arrived = [warp for warp, (time, _) in self.last_arrivals.items() if time == self.time]
        if len(arrived) == len(self.arrivals) == 1:
            del self.last_arrivals[arrived[0]]  # the order of its program separates the phases
        self.completed_phases += 1
        self._has_loads[self.completed_phases % 2] = bool(self.requests)
        snapshots = self._completed[self.completed_phases % 2]
        for snapshot, clock in zip(snapshots, (self.near, self.far), strict=True):
            snapshot.rows[...] = clock.rows
        self.count -= self.dropped
        self.dropped = 0
        self.expects.clear()
        self.requests.clear()
        self.arrivals.clear()

    def known_after(self, phase: int, scope: Scope) -> Rows:
        """Return what a wait for one of the last two phases knows."""
        near, far = self._completed[phase % 2]
        return near.rows if scope == Scope.CTA else far.rows

    def has_loads(self, phase: int) -> bool:
        """Return whether loads signalled the barrier in one of the last two phases."""
        return self._has_loads[phase % 2]

    def has_far_events(self, phase: int) -> bool:
        """Return whether a wait at CTA scope misses events of a phase."""
        near, far = self._completed[phase % 2]
        return bool((far.rows[:LOOSE] > near.rows[:LOOSE]).any())
