"""Explanation of a run that hangs: the likely causes, and the state of all that waits."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from golden import mbarrier
from sim_tb.sm.circle import WaitGraph
from sim_tb.sm.pipes import REGISTERS, WARPGROUP_THREADS
from sim_tb.sm.sanitizer import Sanitizer, TrackedWarpgroup
from sim_tb.sm.sm import SM
from sim_tb.sm.smem import LANES

Key = tuple[int, int]
"""CTA and offset of a barrier."""

GROUP_WAITS = "wait read", "wait group"
"""Activities of a role that waits for a bulk group."""


def is_at_work(sms: Sequence[SM]) -> bool:
    """Return whether a unit owes something: bytes of a load, or the end of a wait for a group.

    The walk over a box outside of its tensor takes hundreds of clocks in which no port has a
    transfer.
    """
    waits = [wg.activity[0] for sm in sms for wg in sm.warpgroups if wg.activity is not None]
    if any(name in GROUP_WAITS for name in waits):
        return True
    for (cta, address), barrier in sms[0].sanitizer.barriers.items():
        if barrier.requests and not barrier.invalidated:
            missing = sms[cta].env.barriers.read(address).tx_count
            if missing != barrier.expected_bytes - barrier.load_bytes:
                return True
    return False


def ledger(sms: Sequence[SM]) -> str:
    """Return the state of a run that hangs, in words.

    The text has likely causes first, then the circle of roles that wait for each other, barriers,
    requests in flight, warpgroups, and what is outstanding in the units.
    """
    sanitizer = sms[0].sanitizer
    words = {key: sms[key[0]].env.barriers.read(key[1]) for key in sanitizer.barriers}
    hang = Hang(sanitizer, words)
    circle = WaitGraph(sms, words, hang.partners).explained()
    rows = [*_rendezvous(sms), *_registers(sms), *_loops(sms), *hang.causes()]
    rows += [*([circle] if circle else []), "barriers:"]
    for key, word in words.items():
        barrier = sanitizer.barriers[key]
        rows.append(
            f"  {barrier.name}: phase {word.phase}, {word.pending} of {word.expected} arrivals "
            f"pending, tx-count {word.tx_count}; {barrier.completed_phases} phases completed"
        )
    requests = sorted(sanitizer.in_flight, key=lambda each: each.cycle)
    in_flight = [f"  {request}" for request in requests]
    rows += ["requests in flight:", *(in_flight or ["  none"]), "warpgroups:"]
    for sm in sms:
        for wg in sm.warpgroups:
            if wg.activity is not None:
                activity, start = wg.activity
                rows.append(f"  {wg.tracked.label}: in '{activity}' since cycle {start}")
            elif wg.tracked.repeats is not None:
                access, start = wg.tracked.repeats
                rows.append(f"  {wg.tracked.label}: repeats '{access}' since cycle {start}")
    return "\n".join([*rows, "unit:", sms[0].env.shared.ledger()])


def _rendezvous(sms: Sequence[SM]) -> Iterator[str]:
    """Yield a sentence for each ``bar.sync`` and ``barrier.cluster`` that is incomplete."""
    named = [(f"bar.sync {number}", each) for sm in sms for number, each in sm.rendezvous_points()]
    for name, point in [*named, ("barrier.cluster", sms[0].cluster.rendezvous_point)]:
        if point.arrived:
            labels = ", ".join(warpgroup.tracked.label for warpgroup in point.arrived)
            yield (
                f"{name}: {point.threads} of {point.count} threads have arrived: {labels}; "
                "let the others arrive, or lower the number"
            )


def _registers(sms: Sequence[SM]) -> Iterator[str]:
    """Yield a sentence for each ``setmaxnreg`` that waits for registers."""
    for sm in sms:
        for wg in sm.warpgroups:
            if wg.activity is not None and wg.activity[0] == "setmaxnreg":
                taken = sum(each.registers for each in sm.warpgroups)
                yield (
                    f"{wg.tracked.label}: setmaxnreg waits for registers: the warpgroups hold "
                    f"{taken} of {REGISTERS // WARPGROUP_THREADS} per thread; let another role "
                    "release more of them, or ask for fewer"
                )


def _loops(sms: Sequence[SM]) -> Iterator[str]:
    """Yield a sentence for each role that reads the same words again and again."""
    run = sms[0].cluster
    unstarted, grid = sum(map(len, run.unstarted)), prod(run.grid)
    remedy = "let someone write what this loop waits for"
    if unstarted:
        remedy = (
            f"{unstarted} of {grid} CTAs of the grid have not started, as no SM is free: let no "
            "CTA wait for a later one, or start as many as there are SMs"
        )
    for each in sms[0].sanitizer.warpgroups:
        if each.repeats is not None and each.waiting is None and not each.has_exited:
            access, start = each.repeats
            yield f"{each.label}: repeats {access} since cycle {start}: {remedy}"


class Hang:
    """Barriers and warpgroups of a run in which nothing happens any more.

    Parameters
    ----------
    sanitizer : Sanitizer
    words : mapping of (int, int) to Barrier
        Words of the barriers in shared memory, by CTA and offset.
    """

    def __init__(self, sanitizer: Sanitizer, words: Mapping[Key, mbarrier.Barrier]) -> None:
        self.barriers = sanitizer.barriers
        self.words = words
        self.warpgroups = {each.label: each for each in sanitizer.warpgroups}
        self.full_of: dict[Key, Key] = {}
        self.empty_of: dict[Key, list[Key]] = {}
        for cta in range(len(sanitizer.shadows)):
            for ring in sanitizer.layout.rings:
                stages = [(cta, empty.address) for empty in ring.empty]
                for full, empty in zip(ring.full, stages, strict=True):
                    self.full_of[empty] = cta, full.address
                    self.empty_of[cta, full.address] = stages

    @property
    def partners(self) -> dict[Key, list[Key]]:
        """Barriers of rings: the *empty* ones of each *full*, the *full* ones of each *empty*."""
        pairs = [(empty, full) for full, stages in self.empty_of.items() for empty in stages]
        partners = dict(self.empty_of)
        for empty, full in pairs:
            partners[empty] = [*partners.get(empty, []), full]
        return partners

    def causes(self) -> list[str]:
        """Return a sentence for each barrier that holds up a warpgroup, the likely causes first.

        A barrier is no likely cause if the warpgroups that should arrive there wait elsewhere.
        """
        causes: list[str] = []
        consequences: list[str] = []
        for key, word in self.words.items():
            barrier, waiters = self.barriers[key], self.waiters(key)
            phase = barrier.completed_phases
            if mismatch := barrier.mismatch():
                causes.append(f"{barrier.name}: {mismatch}")
            elif word.pending and (barrier.arrivals or waiters):
                reason, is_cause = self.explanation(key)
                facts = [
                    f"{word.pending} of {barrier.count} arrivals are missing in phase {phase}",
                    f"arrived: {barrier.who_arrived() or 'nobody'}",
                    *(
                        f"{wg.label} waits with parity {phase % 2} since cycle {wg.waiting.cycle}"
                        for wg in waiters
                        if wg.waiting
                    ),
                ]
                sentence = f"{barrier.name}: {'; '.join([*facts, reason])}"
                (causes if is_cause else consequences).append(sentence)
            elif waiters and barrier.requests:
                requests = "; ".join(map(str, barrier.requests))
                causes.append(
                    f"{barrier.name}: the bytes of phase {phase} have not arrived: {requests}; if "
                    "the memory is that slow, raise --watchdog"
                )
        return causes + consequences

    def waiters(self, key: Key) -> list[TrackedWarpgroup]:
        """Return the warpgroups that wait for the current phase of a barrier."""
        parity = self.barriers[key].completed_phases % 2
        return [
            each
            for each in self.warpgroups.values()
            if each.waiting and (each.waiting.barrier, each.waiting.parity) == (key, parity)
        ]

    def explanation(self, key: Key) -> tuple[str, bool]:
        """Return why arrivals are missing, with a remedy, and whether the barrier is a cause."""
        barrier, phase = self.barriers[key], self.barriers[key].completed_phases
        if barrier.arrivals:
            remedy = "add the missing arrivals, or lower the count of mbarrier_init"
            alone = all(barrier.arrivers[label] == 1 for label in barrier.arrivals)
            if alone and barrier.count % LANES == 0:
                remedy += (
                    f": {barrier.count} is the number of all threads, but one elected thread of "
                    "each role arrives"
                )
            return "; ".join([*self._holders(key), remedy]), True
        waiters = self.waiters(key)
        early = [each.label for each in waiters if _phases(each, key) < phase]
        if early:
            return (
                f"phase {phase - 1} has completed, and {' and '.join(early)} never waited for it: "
                f"to wait for phase {phase - 1}, use parity {(phase - 1) % 2}"
            ), True
        if barrier.expects:
            label, _, size = barrier.expects[0]
            return (
                f"{label} announced {size} bytes and did not arrive: use mbarrier_arrive_expect_tx"
            ), True
        if key in self.full_of:
            return self._of_empty(key)
        absent = sorted(barrier.arrivers)
        if absent:
            states = [
                f"{label} arrived in phases before, and {self._state(label)}" for label in absent
            ]
            return "; ".join(states), not all(self.warpgroups[label].waiting for label in absent)
        if any(self._is_first_wait(empty) for empty in self.empty_of.get(key, [])):
            return "the producer waits for an empty stage", False
        if key in self.empty_of:
            return "let the producer call mbarrier_arrive_expect_tx before its loads", True
        return f"let a role call mbarrier_arrive{self._or_parity(key)}", True

    def _of_empty(self, key: Key) -> tuple[str, bool]:
        """Return the same as ``explanation`` for a barrier *empty* at which nobody has arrived."""
        full = self.barriers.get(self.full_of[key])
        remedy = "let each consumer call mbarrier_arrive when it has read the stage"
        if full is None or self._is_first_wait(key):
            return f"{remedy}{self._or_parity(key)}", True
        if full.completed_phases <= self.barriers[key].completed_phases:
            return f"the stage waits for phase {full.completed_phases} of {full.name}", False
        holders = self._holders(key)
        if not holders:
            return f"nobody has waited for phase {full.completed_phases - 1} of {full.name}", False
        return "; ".join([*holders, remedy]), True

    def _holders(self, key: Key) -> list[str]:
        """Return in words which consumers have the data of a stage and have not released it."""
        empty, full_key = self.barriers[key], self.full_of.get(key)
        full = self.barriers.get(full_key) if full_key else None
        if full_key is None or full is None or full.completed_phases <= empty.completed_phases:
            return []
        return [
            f"{each.label} has waited for phase {full.completed_phases - 1} of {full.name}, and "
            f"{self._state(each.label)}"
            for each in self.warpgroups.values()
            if _phases(each, full_key) == full.completed_phases and each.label not in empty.arrivals
        ]

    def _is_first_wait(self, key: Key) -> bool:
        """Return whether a warpgroup waits at a new barrier, and has never waited there before."""
        return not self.barriers[key].completed_phases and any(
            key not in each.waits for each in self.waiters(key)
        )

    def _or_parity(self, key: Key) -> str:
        if not self._is_first_wait(key):
            return ""
        return ", or use parity 1 for a first wait that must return at once"

    def _state(self, label: str) -> str:
        """Return what a warpgroup does instead of an arrival, in words."""
        warpgroup = self.warpgroups[label]
        if warpgroup.waiting:
            barrier = self.barriers[warpgroup.waiting.barrier]
            return f"now waits for phase {barrier.completed_phases} of {barrier.name}"
        return "has returned" if warpgroup.has_exited else "has not arrived since"


def _phases(warpgroup: TrackedWarpgroup, key: Key) -> int:
    """Return the phases of a barrier that the last wait of a warpgroup found completed."""
    waited = warpgroup.waits.get(key)
    return 0 if waited is None else waited.phases
