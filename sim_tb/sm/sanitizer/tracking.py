"""State that all parts of the sanitizer share: the CTAs, their warpgroups, and the components."""

from collections.abc import Sequence

from sim_tb.sm.sanitizer.barrier import TrackedBarrier
from sim_tb.sm.sanitizer.clocks import Components, Meeting, Scope, Threads
from sim_tb.sm.sanitizer.requests import TrackedRequest
from sim_tb.sm.sanitizer.warpgroups import BulkThread, Place, TrackedWarpgroup
from sim_tb.sm.smem import SmemLayout


class Tracking:
    """Warpgroups, barriers and requests of all CTAs.

    Parameters
    ----------
    layout : SmemLayout
        Layout of the shared memory of each CTA.
    ctas : int
    cluster : int
        CTAs of a cluster.

    Members
    -------
    progress : int
        Number of the events so far. The watchdog ends a run in which it stays the same.
    in_flight : list of TrackedRequest
        Requests that may not be complete.
    barriers : dict of (int, int) to TrackedBarrier
        Barriers by CTA and offset.
    warpgroups : list of TrackedWarpgroup
        Warpgroups of the CTAs that run.
    """

    def __init__(self, layout: SmemLayout, ctas: int, cluster: int) -> None:
        self.layout = layout
        self.ctas, self.cluster = ctas, cluster
        self.components = Components()
        self.warpgroups: list[TrackedWarpgroup] = []
        self.barriers: dict[Place, TrackedBarrier] = {}
        self.in_flight: set[TrackedRequest] = set()
        self.progress = 0

    def label(self, cta: int, name: str) -> str:
        """Return a name with the number of the CTA if there are several."""
        return name if self.ctas == 1 else f"{name} of CTA {cta}"

    def add_warpgroup(self, cta: int, role: str, warps: int) -> TrackedWarpgroup:
        """Add the warps of a role of a CTA; return how they are tracked."""
        warpgroup = TrackedWarpgroup(self.components, cta, self.label(cta, role), warps)
        self.warpgroups.append(warpgroup)
        return warpgroup

    def bulk_thread(self, threads: Threads) -> BulkThread:
        """Return the bulk groups of the elected thread among these threads."""
        group: TrackedWarpgroup = threads.group
        bulk = group.bulk.get(threads.lead)
        if bulk is None:
            names = f"a store of {group.label}", f"a store of {group.label}"
            bulk = BulkThread(*map(self.components.add, names))
            group.bulk[threads.lead] = bulk
        return bulk

    def sync(
        self,
        threads: Sequence[Threads],
        scope: Scope = Scope.CTA,
        *,
        relaxed: bool = False,
    ) -> None:
        """Follow the end of a ``bar.sync``, or with cluster scope of a ``barrier.cluster``.

        ``relaxed``: the arrivals are, so that it orders nothing.
        """
        meeting = self.meeting()
        for each in threads:
            self.arrive_at(meeting, each, scope, relaxed=relaxed)
        for each in threads:
            self.leave(meeting, each)

    def meeting(self) -> Meeting:
        """Return a barrier of threads at which none has arrived."""
        return Meeting(self.components)

    def arrive_at(
        self, meeting: Meeting, threads: Threads, scope: Scope, *, relaxed: bool = False
    ) -> None:
        """Follow an arrival at a barrier of threads (``bar.arrive``, or the first half of a sync).

        ``relaxed``: it orders nothing.
        """
        if scope >= Scope.CLUSTER and not relaxed:
            self.publish_barriers(threads)
        if relaxed:
            meeting.merge_loosely(threads.published())
            meeting.narrow = f"the arrival at barrier.cluster by {threads.label} is relaxed"
        else:
            meeting.merge(threads.published())
        threads.tick()
        self.progress += 1

    def leave(self, meeting: Meeting, threads: Threads) -> None:
        """Follow the end of a wait at a barrier of threads, at which all have arrived."""
        threads.learn(meeting.rows)
        threads.group.narrow = meeting.narrow or threads.group.narrow
        threads.tick()
        self.progress += 1

    def publish_barriers(self, threads: Threads) -> None:
        """Let other CTAs and the unit see the barriers that these threads have initialised."""
        group: TrackedWarpgroup = threads.group
        own = {group.warps[warp]: group.time(warp) for warp in threads.numbers}
        for barrier in self.barriers.values():
            component = barrier.initialised[0]
            if barrier.published is None and component in own:
                barrier.published = component, own[component]

    def fence_async(
        self, threads: Threads, *, shared: bool = True, global_memory: bool = True
    ) -> None:
        """Follow ``fence.proxy.async``: the async proxy sees all writes that the threads know of.

        PTX asks for a fence on the path from the write to the request, so it may follow the write
        in the thread that wrote, or precede the request in one that has synchronised with it.
        """
        for warp in threads.numbers:
            threads.group.see(warp, shared=shared, global_memory=global_memory)
        if shared:
            self.publish_barriers(threads)
        threads.tick()
        self.progress += 1
