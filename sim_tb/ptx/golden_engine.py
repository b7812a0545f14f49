"""Engine that is the golden model: each request is complete when it is issued."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from golden import Cluster, TmaError
from golden.mbarrier import Barrier, Op
from sim_tb.ptx.engine import Origin, Reduction
from sim_tb.ptx.machine import Warp
from sim_tb.ptx.waits import Answer
from sim_tb.testbench.requests import GoldenRequest

Result = TypeVar("Result")


class _Pending(Answer):
    """Answer that is there when ``is_complete`` says so, or when ``deadline`` is over."""

    def __init__(self, warp: Warp, is_complete: Callable[[], bool], time_limit: int) -> None:
        super().__init__()
        self._grid = warp.cta.grid
        self._is_complete = is_complete
        self._start = warp.clock
        self._deadline = warp.clock + time_limit

    def is_there(self) -> bool:
        if self.cycle is None and self._is_complete():
            self.give(max(self._start, self._grid.last_event), 1)
        elif self.cycle is None and self._grid.now >= self._deadline:
            self.give(self._deadline)
        return self.cycle is not None


@dataclass(eq=False)
class _Watch:
    """Phase of an mbarrier when it was seen last, and what is called when it changes."""

    phase: int
    call: Callable[[int], None]


class GoldenEngine:
    """Engine that is the golden model: each request is complete when it is issued.

    Parameters
    ----------
    cluster : Cluster
        Golden model of the cluster.
    rank : int
        Rank of the block.
    watches : dict
        What `watch_phase` calls, by rank and offset of the mbarrier, for the whole cluster.
    """

    def __init__(
        self, cluster: Cluster, rank: int, watches: dict[tuple[int, int], "_Watch"]
    ) -> None:
        self._cluster = cluster
        self._rank = rank
        self._watches = watches

    def issue(self, origin: Origin, request: GoldenRequest, map_address: int, policy: int) -> None:  # noqa: ARG002
        """Execute a request."""
        self._checked(
            origin, lambda: self._cluster.issue(request, cta=self._rank, thread=origin.thread)
        )

    def commit_group(self, origin: Origin) -> None:
        """Commit the group; its requests are complete."""
        self._cluster.groups(self._rank, origin.thread).commit_group()

    def wait_group(self, origin: Origin, groups: int, *, read: bool) -> Answer:  # noqa: ARG002
        """Return an answer that is there: all requests are complete."""
        return Answer(origin.warp.clock)

    def store_async(
        self,
        origin: Origin,
        rank: int,
        stores: list[tuple[int, bytes]],
        mbarrier: int,
        reduction: Reduction | None,
    ) -> None:
        """Store or reduce, and signal."""
        cluster = self._cluster
        if reduction is None:
            self._checked(origin, lambda: cluster.st_async(stores, mbarrier, cta=rank))
            return
        values = [(offset, int.from_bytes(data, "little")) for offset, data in stores]
        self._checked(origin, lambda: cluster.red_async(values, *reduction, mbarrier, cta=rank))

    def initialise(self, origin: Origin, offset: int, count: int | None) -> None:
        """Initialise or invalidate."""
        cluster, rank = self._cluster, self._rank
        if count is None:
            self._checked(origin, lambda: cluster.mbarrier_inval(offset, cta=rank))
        else:
            self._checked(origin, lambda: cluster.mbarrier_init(offset, count, cta=rank))

    def watch_phase(self, offset: int, call: Callable[[int], None]) -> None:
        """Look at the mbarrier's phase after each operation of the cluster."""
        key = self._rank, offset
        self._watches[key] = _Watch(self._phase(*key), call)

    def _phase(self, rank: int, offset: int) -> int:
        return Barrier.decode(self._cluster.word(offset, rank)).phase

    def update(
        self, origin: Origin, op: Op, rank: int, offset: int, count: int, lanes: int,
        *, returns: bool,  # noqa: ARG002
    ) -> Answer:  # fmt: skip
        """Change the mbarrier; the answer is there."""
        state = self._checked(
            origin,
            lambda: self._cluster.mbarrier_update(
                op, offset, count, lanes=lanes.bit_count(), cta=rank, issuer=self._rank
            ),
        )
        return Answer(origin.warp.clock, state)

    def test(
        self, origin: Origin, offset: int, phase: int, *, by_state: bool, time_limit: int
    ) -> Answer:
        """Test the phase now and, with a time limit, at each event from now on."""
        cluster, rank = self._cluster, self._rank
        test = cluster.mbarrier_test_wait if by_state else cluster.mbarrier_test_wait_parity

        def is_complete() -> bool:
            return self._checked(origin, lambda: test(offset, phase, cta=rank))

        if is_complete() or not time_limit:
            return Answer(origin.warp.clock, int(is_complete()))
        return _Pending(origin.warp, is_complete, time_limit)

    def fence_tensor_map(self, origin: Origin, address: int) -> Answer:  # noqa: ARG002
        """Do nothing: there is no cache."""
        return Answer(origin.warp.clock)

    def prefetch_tensor_map(self, origin: Origin, address: int) -> None:
        """Do nothing: there is no cache."""

    def _checked(self, origin: Origin, call: Callable[[], Result]) -> Result:
        try:
            result = call()
        except TmaError as error:
            raise origin.error(error) from None
        for (rank, offset), watch in self._watches.items():
            phase = self._phase(rank, offset)
            if phase != watch.phase:
                watch.phase = phase
                watch.call(origin.warp.clock)
        return result
