"""Synchronisation through global memory: releases and acquires at an address, and fences."""

from collections.abc import Iterable

from sim_tb.sm.device import Device
from sim_tb.sm.sanitizer.clocks import HAPPENED, LOOSE, Clock, Components, Scope, Threads
from sim_tb.sm.sanitizer.tensor_maps import TensorMaps
from sim_tb.sm.smem import SmemLayout


class Flag:
    """Clocks that releases at an address have published: to their CTA, to their cluster, to all.

    Parameters
    ----------
    components : Components
    cluster : int
        CTAs of a cluster.
    """

    def __init__(self, components: Components, cluster: int) -> None:
        self._components, self._cluster = components, cluster
        self._clocks: dict[tuple[Scope, int], Clock] = {}

    def _levels(self, cta: int) -> list[tuple[Scope, Clock]]:
        """Return the clock of each scope around a CTA."""
        places = (Scope.CTA, cta), (Scope.CLUSTER, cta // self._cluster), (Scope.GPU, 0)
        for place in places:
            if place not in self._clocks:
                self._clocks[place] = Clock(self._components)
        return [(place[0], self._clocks[place]) for place in places]

    def publish(self, clock: Clock, cta: int, scope: Scope) -> None:
        """Add what a release in a CTA publishes at a scope."""
        for least, level in self._levels(cta):
            if scope >= least:
                level.merge(clock.rows)
            else:
                level.merge_loosely(clock.rows)

    def seen(self, clock: Clock, cta: int, scope: Scope) -> None:
        """Add to ``clock`` what an acquire in a CTA sees at a scope."""
        for least, level in self._levels(cta):
            if scope >= least:
                clock.merge(level.rows)
            else:
                clock.merge_loosely(level.rows)


class Flags(TensorMaps):
    """Follows releases, acquires and fences of global memory."""

    def __init__(self, layout: SmemLayout, ctas: int, cluster: int, device: Device) -> None:
        super().__init__(layout, ctas, cluster, device)
        self.flags: dict[int, Flag] = {}

    def release(self, threads: Threads, address: int, scope: Scope) -> None:
        """Follow ``st.release``, ``atom.release`` or ``red.release`` at an address."""
        self._publish(threads, [address], scope, fenced=False)
        threads.tick()

    def acquire(self, threads: Threads, address: int, scope: Scope) -> None:
        """Follow ``ld.acquire`` or ``atom.acquire`` of an address."""
        flag = self.flags.get(address)
        if flag is not None:
            seen = Clock(self.components)
            flag.seen(seen, threads.group.cta, scope)
            threads.learn(seen.rows)
            if (seen.rows[LOOSE] > seen.rows[HAPPENED]).any():
                threads.group.narrow = f"the flag at {address:#x} is used at scope {scope}"

    def fence(self, threads: Threads, scope: Scope) -> None:
        """Follow ``fence.acq_rel``, such as ``__threadfence``.

        Strong writes that follow publish what the threads know now; what strong reads before it
        have seen is known from now on.
        """
        group = threads.group
        if group.pending is not None:
            threads.learn(group.pending.rows)
            group.pending = None
        if group.fenced is None or group.fenced_scope != scope:
            group.fenced, group.fenced_scope = Clock(self.components), scope
        group.fenced.merge(threads.published())
        threads.tick()

    def _publish(
        self, threads: Threads, addresses: Iterable[int], scope: Scope, *, fenced: bool
    ) -> None:
        """Publish at flags what the threads know, or with ``fenced`` what they knew at a fence."""
        group = threads.group
        clock = group.fenced
        if not fenced:
            clock = Clock(self.components)
            clock.merge(threads.published())
        for address in addresses if clock is not None else ():
            flag = self.flags.get(address)
            if flag is None:
                flag = self.flags[address] = Flag(self.components, self.cluster)
            flag.publish(clock, group.cta, scope)

    def strong_access(self, threads: Threads, addresses: Iterable[int], *, writes: bool) -> None:
        """Follow relaxed strong accesses: with fences around them they synchronise."""
        group = threads.group
        for address in addresses:
            flag = self.flags.get(address)
            if flag is not None:
                if group.pending is None:
                    group.pending = Clock(self.components)
                flag.seen(group.pending, group.cta, Scope.SYSTEM)
        if writes and group.fenced is not None:
            self._publish(threads, addresses, group.fenced_scope, fenced=True)
