"""The sanitizer: all of its parts, and the ends of roles, of CTAs and of the kernel."""

import numpy as np

from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer.clocks import HAPPENED, Threads
from sim_tb.sm.sanitizer.shadow import Shadow
from sim_tb.sm.sanitizer.tensor_cores import TensorCores
from sim_tb.sm.sanitizer.warpgroups import TrackedWarpgroup
from sim_tb.sm.smem import SmemLayout


class Sanitizer(TensorCores):
    """Follows the threads of all CTAs. Raises ``KernelError`` at the instruction that is wrong.

    Parameters are those of `Memory`, members those of `Tracking`.
    """

    def __init__(
        self,
        layout: SmemLayout,
        smem_bytes: int,
        ctas: int,
        device: Device,
        cluster: int | None = None,
    ) -> None:
        super().__init__(layout, smem_bytes, ctas, device, cluster)
        self._running: set[int] = set()
        self._retired: list[int] = []
        self._forgotten = self.components.add("a CTA that has ended")

    def begin_roles(self, cta: int) -> None:
        """Follow the end of the prologue of a CTA: a ``__syncthreads``, and nothing more."""
        self.launch()
        self.sync([each.all for each in self.warpgroups if each.cta == cta])
        self._running.add(cta)

    def blocked(self, threads: Threads, what: str | None, cycle: int) -> None:
        """Follow a wait for something else than an mbarrier; None: it is over."""
        threads.group.blocked = None if what is None else (what, cycle)

    def exit_warpgroup(self, warpgroup: TrackedWarpgroup, cycle: int) -> None:
        """Follow the return of a role.

        Raises
        ------
        KernelError
            If it is the last one of its CTA, and others may still access the shared memory of the
            CTA, which is free for the next CTA then.
        """
        warpgroup.has_exited = True
        self.progress += 1
        members = [other for other in self.warpgroups if other.cta == warpgroup.cta]
        if warpgroup.cta not in self._running or not all(each.has_exited for each in members):
            return
        known = np.max([each.rows[:, HAPPENED].max(axis=0) for each in members], axis=0)
        about = f"{warpgroup.label}: the CTA ends in cycle {cycle} while "
        shadow = self.shadows[warpgroup.cta]
        for component, reads in shadow.reads.items():
            word = reads.first_after(slice(0, shadow.words), int(known[component]))
            if word is not None:
                raise KernelError(
                    f"{about}{self.components.names[component]} may still read the data that "
                    f"{_source(shadow, word)} wrote at {shadow.where(word)}; wait for this read "
                    "before the last role returns"
                )
        for write in shadow.writes.values():
            barrier = write.barrier
            is_own = barrier is not None and barrier.cta == warpgroup.cta
            if barrier is not None and is_own and write.time > known[write.component]:
                raise KernelError(
                    f"{about}{write.source} may still write to its shared memory: nobody of the "
                    f"CTA has waited for phase {write.time - barrier.base - 1} of {barrier.name}; "
                    "wait for this phase before the last role returns"
                )
        for barrier in self.barriers.values():
            if barrier.cta != warpgroup.cta or barrier.invalidated:
                continue
            for component, (time, text) in barrier.remote.items():
                if time > known[component]:
                    raise KernelError(
                        f"{about}{text} at {barrier.name} may still come: the shared memory of a "
                        "CTA that has ended must not be accessed; wait for this phase, or let all "
                        "CTAs meet at a barrier.cluster, before the last role returns"
                    )

    def end_cta(self, cta: int) -> None:
        """Forget a CTA that has ended, so that the next one may run on its SM.

        What it did to global memory stays. Nobody can come to know of it any more, unless somebody
        does already.
        """
        members = [each for each in self.warpgroups if each.cta == cta]
        self._retired += dict.fromkeys(number for each in members for number in each.components)
        for barrier in self.barriers.values():
            if barrier.cta == cta:
                self._retired.append(barrier.component)
                for clock in barrier.clocks:
                    self.components.forget(clock)
        self.barriers = {key: each for key, each in self.barriers.items() if key[0] != cta}
        self.warpgroups = [each for each in self.warpgroups if each.cta != cta]
        self.shadows[cta] = self._new_shadow(cta)
        self._running.discard(cta)
        self._recycle(members)

    def _recycle(self, members: list[TrackedWarpgroup]) -> None:
        """Drop components of ended CTAs that nothing refers to any more."""
        shadows = [*self.shadows, *self.global_memory]
        still = set()
        for number in self._retired:
            is_known = self.components.is_known(number, members)
            for shadow in shadows:
                if is_known:
                    if shadow.refers_to(number):
                        still.add(number)
                else:
                    shadow.rename(number, self._forgotten)
        for users in self.map_users.values():
            for number in self._retired:
                users.pop(number, None)
        self.components.drop(number for number in self._retired if number not in still)
        self._retired = [number for number in self._retired if number in still]

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

    def sizes(self) -> dict[str, int]:
        """Return the numbers of records that it keeps."""
        shadows = [*self.shadows, *self.global_memory]
        return {
            "components": len(self.components),
            "barriers": len(self.barriers),
            "warpgroups": len(self.warpgroups),
            "writes": sum(len(each.writes) for each in shadows),
            "readers": sum(len(each.reads) for each in shadows),
            "requests": len(self.in_flight),
            "flags": len(self.flags),
            "maps": sum(map(len, self.map_users.values())),
            "waits": sum(len(each.waits) for each in self.warpgroups),
        }


def _source(shadow: Shadow, word: int) -> str:
    write = shadow.last_write(word)
    return "the host" if write is None else str(write.source)
