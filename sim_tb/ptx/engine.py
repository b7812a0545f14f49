"""What carries out the asynchronous work of threads: requests, bulk groups and mbarriers.

An `Engine` serves one block. `GoldenEngine` has the golden model, which executes each request when
it is issued. ``sim_tb.ptx.unit`` has the engine in front of the simulated unit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from golden import Cluster, DataType, ReductionOp, TmaError
from golden.mbarrier import Op
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.machine import Answer, Warp
from sim_tb.ptx.syntax import Instruction
from sim_tb.testbench.requests import GoldenRequest

TIME_LIMIT = 20_000
"""Clocks that a thread is suspended at most in ``mbarrier.try_wait`` (choice)."""

Reduction = tuple[DataType, ReductionOp]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Origin:
    """An instruction as a thread executes it: the place of a request, for messages.

    Parameters
    ----------
    instruction : Instruction
    warp : Warp
    lane : int
        The thread, or the first of several.
    """

    instruction: Instruction
    warp: Warp
    lane: int

    @property
    def thread(self) -> int:
        """Number of the thread in its block."""
        return self.warp.first_thread + self.lane

    def error(self, text: object) -> PtxError:
        """Return the error of this instruction in this thread."""
        where = self.warp.thread_name(self.lane)
        return PtxError(f"{self.instruction.opcode}: {text}, {where}", self.instruction.line)


class Engine(Protocol):
    """Requests, bulk groups and mbarriers of the threads of a block.

    Methods that return an `Answer` return at once; the answer may come later. Addresses in shared
    memory are byte offsets in the memory of the block with the given rank in the cluster. All
    methods raise `PtxError` for a mistake of the thread, or the run raises it later.
    """

    def issue(self, origin: Origin, request: GoldenRequest, map_address: int, policy: int) -> None:
        """Issue a request, with the generic address of its tensor map and its L2 cache policy."""

    def commit_group(self, origin: Origin) -> None:
        """Commit the bulk group of a thread."""

    def wait_group(self, origin: Origin, groups: int, *, read: bool) -> Answer:
        """Wait until all but the ``groups`` youngest bulk groups are complete, or read."""

    def store_async(
        self,
        origin: Origin,
        rank: int,
        stores: list[tuple[int, bytes]],
        mbarrier: int,
        reduction: Reduction | None,
    ) -> None:
        """Store or reduce bytes, at an offset for each thread, and signal an mbarrier there."""

    def initialise(self, origin: Origin, offset: int, count: int | None) -> None:
        """Initialise an mbarrier of the block for ``count`` arrivals; None: invalidate it."""

    def update(
        self, origin: Origin, op: Op, rank: int, offset: int, count: int, lanes: int,
        *, returns: bool,
    ) -> Answer:  # fmt: skip
        """Count arrivals or bytes at an mbarrier, ``count`` for all threads of the mask ``lanes``.

        With ``returns``, the answer's value is the state of the mbarrier before; 0 for one of
        another block. Without, the answer is there at once.
        """

    def test(
        self, origin: Origin, offset: int, phase: int, *, by_state: bool, time_limit: int
    ) -> Answer:
        """Test whether a phase is complete, and wait for it for ``time_limit`` clocks at most.

        ``phase`` is a parity, or with ``by_state`` the state that an arrival returned.
        """

    def fence_tensor_map(self, origin: Origin, address: int) -> Answer:
        """Let the threads' later requests see changes of the tensor map at a generic address."""

    def prefetch_tensor_map(self, origin: Origin, address: int) -> None:
        """Fetch the tensor map at a generic address before a request needs it."""


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


class GoldenEngine:
    """Engine that is the golden model: each request is complete when it is issued.

    Parameters
    ----------
    cluster : Cluster
        Golden model of the cluster.
    rank : int
        Rank of the block.
    """

    def __init__(self, cluster: Cluster, rank: int) -> None:
        self._cluster = cluster
        self._rank = rank

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

    @staticmethod
    def _checked(origin: Origin, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except TmaError as error:
            raise origin.error(error) from None
