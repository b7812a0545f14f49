"""Engine: the interface between threads and what carries out their asynchronous work.

``sim_tb.ptx.golden_engine`` has one that is the golden model, ``sim_tb.ptx.unit`` the one in front
of the simulated unit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from golden import DataType, ReductionOp
from golden.mbarrier import Op
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.syntax import Instruction
from sim_tb.ptx.waits import Answer
from sim_tb.testbench.requests import GoldenRequest

TIME_LIMIT = 20_000
"""Clocks that a thread is suspended at most in ``mbarrier.try_wait`` (choice)."""

Reduction = tuple[DataType, ReductionOp]


@dataclass(frozen=True)
class Origin:
    """An instruction as a thread executes it: the place of a request, for messages.

    Parameters
    ----------
    instruction : Instruction
    warp : Warp
        The warp that executes it.
    lane : int
        The thread, or the first of several.
    """

    instruction: Instruction
    warp: Any
    lane: int

    @property
    def thread(self) -> int:
        """Number of the thread in its block."""
        return int(self.warp.first_thread) + self.lane

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

    def watch_phase(self, offset: int, call: Callable[[int], None]) -> None:
        """Call ``call`` with the clock whenever a phase of an mbarrier of the block completes.

        It is the mbarrier that `initialise` has initialised last at this offset.
        """

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
