"""Circle of roles that wait for each other in a run that hangs, or the chain to what is lost."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from golden import mbarrier
from sim_tb.sm.sanitizer import Sanitizer, TrackedBarrier, TrackedWarpgroup
from sim_tb.sm.sm import SM, Rendezvous

Key = tuple[int, int]
"""CTA and offset of a barrier."""


class Wait(NamedTuple):
    """Cause of a role's wait, in words, and the labels of the roles that could end the wait."""

    what: str
    by: list[str]


class WaitGraph:
    """The wait of each role that has not returned.

    Parameters
    ----------
    sms : sequence of SM
    words : mapping of (int, int) to Barrier
        Words of the barriers in shared memory, by CTA and offset.
    partners : mapping of (int, int) to list of (int, int)
        Barriers of rings: the ones whose waiters complete a barrier, *full* for *empty* and back.
    """

    def __init__(
        self,
        sms: Sequence[SM],
        words: Mapping[Key, mbarrier.Barrier],
        partners: Mapping[Key, list[Key]],
    ) -> None:
        self._sanitizer: Sanitizer = sms[0].sanitizer
        self._words, self._partners = words, partners
        self._groups = {each.label: each for each in self._sanitizer.warpgroups}
        self.waits: dict[str, Wait] = {}
        for group in self._groups.values():
            if group.waiting is not None:
                self.waits[group.label] = self._at_barrier(group, group.waiting.barrier)
        for sm in sms:
            for number, point in sm.rendezvous_points():
                labels = [each.tracked.label for each in sm.warpgroups]
                self._at_rendezvous(f"bar.sync {number}", point, labels)
        everybody = [each.tracked.label for sm in sms for each in sm.warpgroups]
        self._at_rendezvous("barrier.cluster", sms[0].cluster.rendezvous_point, everybody)

    def circle(self) -> list[str]:
        """Return the labels of roles that wait for each other in a circle; empty if there is none.

        Otherwise each waits for the next, and the last for the first.
        """
        for start in self.waits:
            path = self._path(start, start, set())
            if path:
                return path
        return []

    def explained(self) -> str:
        """Return the circle in words, or without one the chain from each role to what is lost."""
        circle = self.circle()
        if circle:
            links = [
                f"{label} waits for {self.waits[label].what}, which "
                f"{label + ' itself' if label == after else after} completes"
                for label, after in zip(circle, [*circle[1:], circle[0]], strict=True)
            ]
            return f"circle: {'; '.join(links)}"
        ends = []
        for label, wait in self.waits.items():
            free = [each for each in wait.by if each not in self.waits]
            if not wait.by:
                ends.append(f"{label} waits for {wait.what}, which nobody is known to complete")
            elif free:
                lost = " and ".join(f"{each} {self._state(each)}" for each in free)
                ends.append(
                    f"{label} waits for {wait.what}, which {' and '.join(wait.by)} could complete, "
                    f"but {lost}"
                )
        return f"lost: {'; '.join(ends)}" if ends else ""

    def _path(self, label: str, goal: str, seen: set[str]) -> list[str]:
        seen.add(label)
        for after in self.waits[label].by:
            if after == goal:
                return [label]
            if after in self.waits and after not in seen:
                rest = self._path(after, goal, seen)
                if rest:
                    return [label, *rest]
        return []

    def _at_barrier(self, group: TrackedWarpgroup, key: Key) -> Wait:
        barrier, word = self._sanitizer.barriers[key], self._words[key]
        what = f"phase {barrier.completed_phases} of {barrier.name}"
        if not word.pending:
            others = [
                each for each in _distinct(barrier) if barrier.requests or each != group.label
            ]
            return Wait(f"the bytes of {what}", others)
        absent = [label for label in barrier.arrivers if label not in barrier.arrivals]
        ctas = range(len(self._sanitizer.shadows))
        everywhere = [(cta, key[1]) for cta in ctas]
        absent = absent or self._users(barrier, [key]) or self._users(barrier, everywhere)
        return Wait(what, absent or [*barrier.arrivals])

    def _users(self, barrier: TrackedBarrier, keys: Sequence[Key]) -> list[str]:
        """Return who has not arrived, and waits or has waited at a barrier that goes with these."""
        partners = {each for key in keys for each in self._partners.get(key, [])}
        return [
            label
            for label, group in self._groups.items()
            if label not in barrier.arrivals
            and (not partners.isdisjoint(group.waits) or _waits_at(group, partners))
        ]

    def _at_rendezvous(self, name: str, point: Rendezvous, labels: Sequence[str]) -> None:
        arrived = [each.tracked.label for each in point.arrived]
        others = [
            label
            for label in labels
            if label not in arrived and label in self._groups and not label.startswith("prologue")
        ]
        for each in point.waiting:
            self.waits[each.tracked.label] = Wait(name, others)

    def _state(self, label: str) -> str:
        group = self._groups[label]
        return "has returned" if group.has_exited else "does not arrive"


def _waits_at(group: TrackedWarpgroup, keys: Collection[Key]) -> bool:
    """Return whether a role waits at one of these barriers."""
    return group.waiting is not None and group.waiting.barrier in keys


def _distinct(barrier: TrackedBarrier) -> list[str]:
    """Return who has announced bytes, or has arrived, in the current phase."""
    return list(dict.fromkeys([label for label, _, _ in barrier.expects] or barrier.arrivals))
