"""Rules of mbarriers: initialisation, arrivals, bytes, waits, phases."""

import numpy as np

from golden import mbarrier
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer.barrier import TrackedBarrier
from sim_tb.sm.sanitizer.clocks import HAPPENED, LOOSE, Scope, Threads
from sim_tb.sm.sanitizer.memory import Memory
from sim_tb.sm.sanitizer.requests import TrackedRequest
from sim_tb.sm.sanitizer.warpgroups import BarrierWait, TrackedWarpgroup, Waited


class Barriers(Memory):
    """Follows operations on mbarriers."""

    # Initialisation

    def barrier_init(
        self, threads: Threads, address: int, count: int, cycle: int
    ) -> TrackedBarrier:
        """Follow ``mbarrier.init``; return how the barrier is tracked.

        Raises
        ------
        KernelError
            If the count is illegal, which the unit does not tell, the barrier is in use, or its
            bytes are.
        """
        cta = threads.group.cta
        name = self.label(cta, self.layout.name(address))
        about = f"{threads.label}: mbarrier.init of {count} on {name} in cycle {cycle}"
        if not 1 <= count <= mbarrier.MAX_COUNT:
            raise KernelError(
                f"{about}: the count must be from 1 to {mbarrier.MAX_COUNT}: no phase of this "
                "barrier completes as its arrivals come"
            )
        before = self.barriers.get((cta, address))
        if before is not None and not before.invalidated:
            raise KernelError(
                f"{about}: this barrier is already initialised; initialise it once, or call "
                "mbarrier_inval first"
            )
        if before is None:
            component, base = self.components.add(f"a request that signals {name}"), 0
        else:
            component, base = before.component, before.time
        group: TrackedWarpgroup = threads.group
        event = group.warps[threads.lead], group.time(threads.lead), cycle
        barrier = TrackedBarrier(
            self.components, cta, address, name, count, component, base, event, threads.label
        )
        self.hold_barrier(threads, barrier, cycle)
        self.barriers[cta, address] = barrier
        self.progress += 1
        return barrier

    def barrier_inval(self, threads: Threads, address: int, cycle: int) -> None:
        """Follow ``mbarrier.inval``.

        Raises
        ------
        KernelError
            If the barrier is not initialised, or its phase has begun.
        """
        instruction = "mbarrier.inval"
        barrier = self.barrier_at(threads, instruction, threads.group.cta, address, cycle)
        if barrier.arrivals or barrier.expects or barrier.requests:
            raise KernelError(
                f"{threads.label}: {instruction} on {barrier.name} in cycle {cycle}: phase "
                f"{barrier.completed_phases} has begun: {barrier.arrived} arrivals; "
                f"{barrier.transfers()}; wait for this phase first"
            )
        waiting = [
            each.label
            for each in self.warpgroups
            if each.waiting and each.waiting.barrier == (barrier.cta, address)
        ]
        if waiting:
            raise KernelError(
                f"{threads.label}: {instruction} on {barrier.name} in cycle {cycle}: "
                f"{' and '.join(waiting)} waits for its phase {barrier.completed_phases}; "
                "invalidate it after the last wait"
            )
        barrier.invalidated = f"{threads.label} in cycle {cycle}"
        self.release_barrier(threads, barrier, cycle)
        self.progress += 1

    def fence_mbarrier_init(self, threads: Threads) -> None:
        """Follow ``fence.mbarrier_init.release.cluster``."""
        self.publish_barriers(threads)
        threads.tick()
        self.progress += 1

    def barrier_at(
        self,
        threads: Threads,
        instruction: str,
        cta: int,
        address: int,
        cycle: int,
        *,
        by_unit: bool = False,
    ) -> TrackedBarrier:
        """Return the barrier that an instruction names, or with ``by_unit`` that a request signals.

        Raises
        ------
        KernelError
            If the barrier was never initialised, or was invalidated: the unit does not tell, as to
            it every word is a barrier. Or if nothing orders the instruction behind the
            initialisation.
        """
        barrier = self.barriers.get((cta, address))
        name = self.label(cta, self.layout.name(address))
        about = f"{threads.label}: {instruction} on {name} in cycle {cycle}: this barrier was"
        if barrier is None:
            inside = self._live_barrier_around(cta, address)
            if inside is not None:
                raise KernelError(
                    f"{threads.label}: {instruction} in cycle {cycle}: {address:#x} is inside of "
                    f"{inside.name}, at {inside.address:#x}: a barrier is aligned to 8 bytes; use "
                    "its own address"
                )
            raise KernelError(
                f"{about} never initialised; call mbarrier_init for it in the prologue"
            )
        if barrier.invalidated:
            raise KernelError(
                f"{about} invalidated by {barrier.invalidated}; call mbarrier_init before it is "
                "used again"
            )
        if cta != threads.group.cta:
            self._check_alive(f"{threads.label}: {instruction} on {name} in cycle {cycle}", cta)
        self._check_visible(threads, barrier, about, by_unit=by_unit)
        return barrier

    def _check_alive(self, about: str, cta: int) -> None:
        """Check that a CTA whose shared memory is accessed has not ended."""
        members = [each for each in self.warpgroups if each.cta == cta]
        if all(each.has_exited for each in members):
            raise KernelError(
                f"{about}: CTA {cta} has ended, and its shared memory with it; let all CTAs of the "
                "cluster meet at a barrier.cluster before the last role of a CTA returns"
            )

    def _live_barrier_around(self, cta: int, address: int) -> TrackedBarrier | None:
        around = self.barriers.get((cta, address & ~7))
        return None if around is None or around.invalidated else around

    def _check_visible(
        self, threads: Threads, barrier: TrackedBarrier, about: str, *, by_unit: bool
    ) -> None:
        """Check that an operation is ordered behind the initialisation of its barrier."""
        component, time, cycle = barrier.initialised
        rows = threads.group.rows
        place = f"{barrier.initialised_by} in cycle {cycle}"
        for warp in threads.numbers:
            if rows[warp, HAPPENED, component] < time:
                meet = "a barrier.cluster" if threads.group.cta != barrier.cta else "a bar.sync"
                raise KernelError(
                    f"{about} initialised by {place}, and nothing orders this operation behind "
                    f"that; let both meet at {meet} after the initialisation"
                )
        if not by_unit and threads.group.cta == barrier.cta:
            return
        published, lead = barrier.published, threads.lead
        if published is None or rows[lead, HAPPENED, published[0]] < published[1]:
            who = "the unit" if by_unit else "another CTA"
            raise KernelError(
                f"{about} initialised by {place}, without fence.mbarrier_init: {who} may not see "
                "the initialisation; call fence_mbarrier_init after mbarrier_init, and before the "
                "threads meet"
            )

    # Arrivals

    def arrive(
        self,
        threads: Threads,
        barrier: TrackedBarrier,
        cycle: int,
        count: int = 1,
        tx_bytes: int = 0,
        *,
        scope: Scope = Scope.CTA,
        relaxed: bool = False,
        drop: bool = False,
    ) -> None:
        """Follow ``mbarrier.arrive``: each thread arrives ``count`` times.

        With ``tx_bytes`` each one also has ``expect_tx``; with ``drop`` it is ``arrive_drop``.

        Raises
        ------
        KernelError
            If the current phase has all of its arrivals, and waits for bytes; or if it has all of
            them now, and more bytes come than it expects.
        """
        arrivals = threads.count * count
        if barrier.arrived + arrivals > barrier.count:
            raise KernelError(self._too_many(threads, barrier, cycle, arrivals))
        self._check_turn(threads, barrier, cycle)
        text = f"the arrival by {threads.label} in cycle {cycle}"
        barrier.receive(threads, text, scope, relaxed=relaxed)
        if threads.group.cta != barrier.cta:
            group: TrackedWarpgroup = threads.group
            for warp in threads.numbers:
                barrier.remote[group.warps[warp]] = group.time(warp), text
        barrier.arrivals[threads.label] = barrier.arrivals.get(threads.label, 0) + arrivals
        barrier.arrivers[threads.label] = threads.count
        barrier.dropped += arrivals if drop else 0
        threads.tick()
        self.expect_tx(threads, barrier, cycle, tx_bytes)
        self.check_excess(barrier, cycle)

    def _check_turn(self, threads: Threads, barrier: TrackedBarrier, cycle: int) -> None:
        """Check that an arrival cannot count for the phase of the one before.

        Raises
        ------
        KernelError
            If that phase has completed, and the threads do not know.
        """
        group: TrackedWarpgroup = threads.group
        if barrier.count == 1 or group.cta != barrier.cta:
            return  # nobody else arrives; or loads of another CTA tell what is not followed
        now = barrier.time, group.waited_loads
        for warp in threads.numbers:
            time, loads = barrier.last_arrivals.get(group.warps[warp], now)
            is_known = group.rows[warp, LOOSE, barrier.component] >= time
            if time < barrier.time and loads == group.waited_loads and not is_known:
                raise KernelError(
                    f"{threads.label}: an arrival at {barrier.name} in cycle {cycle} may run "
                    f"ahead: it counts for phase {barrier.completed_phases}, but nothing orders it "
                    f"behind the end of phase {time - barrier.base - 1}, in which {threads.label} "
                    "has arrived before; wait for that phase, or for someone who has, before the "
                    "next arrival"
                )
            barrier.last_arrivals[group.warps[warp]] = now

    def _too_many(
        self, threads: Threads, barrier: TrackedBarrier, cycle: int, arrivals: int
    ) -> str:
        about = f"{barrier.name} in cycle {cycle}"
        if threads.count > 1 and arrivals > barrier.count:
            lanes, warps = threads.lanes.bit_count(), len(threads.numbers)
            each = f"{lanes} lanes of {warps} warps" if warps > 1 else f"{lanes} lanes"
            return (
                f"{threads.label}: {arrivals} arrivals at {about}, where {barrier.count} are "
                f"expected per phase: each of the {each} arrives; let one elected lane arrive, or "
                f"initialise the barrier with {arrivals}"
            )
        over = barrier.arrived + arrivals - barrier.count
        many = "one arrival" if over == 1 else f"{over} arrivals"
        waits = f" and waits for {barrier.expected_bytes} bytes" if barrier.expected_bytes else ""
        full = "already has all of its" if barrier.arrived == barrier.count else "takes"
        return (
            f"{threads.label}: {many} too many at {about}: phase {barrier.completed_phases} {full} "
            f"{barrier.count} arrivals ({barrier.who_arrived() or 'nobody yet'}){waits}; wait for "
            "the phase before the next arrival, or raise the count of mbarrier_init"
        )

    def check_excess(self, barrier: TrackedBarrier, cycle: int) -> None:
        """Check that a phase that waits for bytes only does not get more than it expects.

        Raises
        ------
        KernelError
            If it does.
        """
        excess = barrier.load_bytes - barrier.expected_bytes
        if barrier.arrived >= barrier.count and excess > 0:
            raise KernelError(
                f"{barrier.name}: phase {barrier.completed_phases} has all of its arrivals in "
                f"cycle {cycle}, but {barrier.mismatch()}. Silicon signals the bytes of a request "
                "in parts: the phase may end at a part, before all bytes have come"
            )

    def expect_tx(
        self, threads: Threads, barrier: TrackedBarrier, cycle: int, tx_bytes: int
    ) -> None:
        """Follow ``mbarrier.expect_tx``, of each thread."""
        if tx_bytes:
            barrier.expects.append((threads.label, cycle, tx_bytes * threads.count))
        self.progress += 1

    def complete_tx(
        self, threads: Threads, barrier: TrackedBarrier, cycle: int, tx_bytes: int
    ) -> None:
        """Follow ``mbarrier.complete_tx``, of each thread."""
        text, size = "mbarrier.complete_tx", tx_bytes * threads.count
        group = threads.group
        request = TrackedRequest(None, text, group.cta, threads.label, cycle, size)
        barrier.requests.append(request)
        self.check_excess(barrier, cycle)
        self.progress += 1

    def phase_completed(self, barrier: TrackedBarrier, cycle: int) -> None:
        """Follow the completion of a phase."""
        self.progress += 1
        for request in barrier.requests:
            request.done = cycle
            self.in_flight.discard(request)
        barrier.complete()

    # Waits

    def wait_begins(
        self, threads: Threads, barrier: TrackedBarrier, parity: int, cycle: int
    ) -> None:
        """Follow the begin of a wait for the phase of ``parity``."""
        threads.group.waiting = BarrierWait((barrier.cta, barrier.address), parity, cycle)

    def wait_returned(
        self,
        threads: Threads,
        barrier: TrackedBarrier,
        parity: int,
        cycle: int,
        scope: Scope = Scope.CTA,
        *,
        relaxed: bool = False,
    ) -> None:
        """Follow the end of a wait for the phase of ``parity``."""
        completed = barrier.completed_phases
        phase = max(completed - ((completed - 1) % 2 != parity), 0)
        key, group = (barrier.cta, barrier.address), threads.group
        group.waiting = None
        before = group.waits.get(key)
        again = before is not None and before.phases == phase
        group.waits[key] = Waited(phase, parity, cycle, scope, again)
        if phase > 0:
            group.waited_loads += barrier.has_loads(phase)
            rows = barrier.known_after(phase, scope)
            narrow = barrier.narrow
            if relaxed or (scope == Scope.CTA and barrier.has_far_events(phase)):
                which = "is relaxed" if relaxed else f"has scope {scope}"
                narrow = f"the wait for {barrier.name} by {threads.label} in cycle {cycle} {which}"
            group.narrow = narrow or group.narrow
            if relaxed:
                threads.learn_loosely(rows)
                loose = group.rows[:, LOOSE, barrier.component]
                loose[threads.index] = np.maximum(loose[threads.index], barrier.base + phase)
            else:
                threads.learn(rows)
                threads.learn_events(barrier.component, barrier.base + phase)
        self.progress += 1
