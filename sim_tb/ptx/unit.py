"""Engine of a block that stands before the simulated unit of its SM."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import BulkLoad, DsmemCopy, Load, TmaError
from golden.mbarrier import Op
from sim_tb.ptx.engine import Origin, Reduction
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.machine import Grid
from sim_tb.ptx.waits import Answer
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.requests import GoldenRequest
from sim_tb.testbench.results import BarrierResult


class UnitEngine:
    """Engine that hands requests and mbarrier operations to the unit, at the warp's clock.

    Parameters
    ----------
    state : Grid
    env : Environment
        Environment of the unit of the block's SM.
    first : int
        SM of the block of rank 0, which the unit counts from 0 over all clusters.
    mistakes : list of PtxError
        Receives mistakes that the unit finds.
    order : dict
        Clock of the last operation on each mbarrier of the cluster, by rank and offset. Operations
        on an mbarrier keep the order in which threads execute them.
    """

    def __init__(
        self,
        state: Grid,
        env: Environment,
        first: int,
        mistakes: list[PtxError],
        order: dict[tuple[int, int], int],
    ) -> None:
        self._state = state
        self._env = env
        self._first = first
        self._mistakes = mistakes
        self._order = order
        self._origins: dict[int, Origin] = {}
        self._with_groups: set[int] = set()
        self._watches: dict[int, Callable[[int], None]] = {}
        env.errors.take_all()

    # Requests

    def issue(self, origin: Origin, request: GoldenRequest, map_address: int, policy: int) -> None:
        """Hand a request to the unit."""
        if isinstance(request, Load | BulkLoad | DsmemCopy):
            request = self._placed(request)
        else:
            self._with_groups.add(origin.thread)
        self._at(origin.warp.clock)
        number = self._checked(
            origin,
            lambda: self._env.requests.submit(request, map_address, policy, origin.thread),
        )
        self._origins[number] = origin

    def _placed(self, request: Any) -> Any:
        """Return a request with the numbers of SMs in place of ranks."""
        if not self._first:
            return request
        changes: dict[str, int] = {}
        for name in ("dst_cta", "mbarrier_cta"):
            if getattr(request, name, None) is not None:
                changes[name] = getattr(request, name) + self._first
        if getattr(request, "cta_mask", None) is not None:
            changes["cta_mask"] = request.cta_mask << self._first
        return replace(request, **changes)

    def commit_group(self, origin: Origin) -> None:
        """Commit the group, if the thread has ever issued a request that joins one."""
        if origin.thread in self._with_groups:
            self._at(origin.warp.clock)
            self._env.requests.commit_group(origin.thread)

    def wait_group(self, origin: Origin, groups: int, *, read: bool) -> Answer:
        """Wait for the unit's answer, if the thread has ever issued such a request."""
        answer = Answer()
        if origin.thread not in self._with_groups:
            answer.give(origin.warp.clock)
            return answer
        self._at(origin.warp.clock)
        self._env.requests.call_group(
            groups, lambda cycle: self._give(answer, cycle, 1), read=read, thread=origin.thread
        )
        return answer

    def store_async(
        self,
        origin: Origin,
        rank: int,
        stores: list[tuple[int, bytes]],
        mbarrier: int,
        reduction: Reduction | None,
    ) -> None:
        """Hand the stores to the unit, one for each thread."""
        if self._env.shared.interface.sms == 1:
            raise origin.error("needs a launch with clusters: a unit that is alone has no network")
        store = self._env.remote.store
        for offset, data in stores:
            values = np.frombuffer(data, np.uint8)
            where = self._first + rank, offset, values, mbarrier
            number = self._checked(origin, partial(store, *where, reduction=reduction))
            self._origins[number] = origin

    # Mbarriers

    def initialise(self, origin: Origin, offset: int, count: int | None) -> None:
        """Queue ``INIT`` or ``INVAL``."""
        self._at(self._in_order(origin.warp.cta.rank, offset, origin.warp.clock))
        barriers, refused = self._env.barriers, self._refused(origin)
        barriers.unwatch(offset)
        if count is None:
            barriers.post("INVAL", offset, 0, refused)
            return

        def finish(result: BarrierResult, _cycle: int) -> None:
            if result.fault is not None:
                refused(result.fault)
            call = self._watches.pop(offset, None)
            if call is not None:  # not before: the initialisation changes the phase, too
                barriers.watch(offset, lambda cycle, _: call(cycle), awaited=False)

        self._checked(origin, partial(barriers.call, "INIT", offset, count, finish))

    def watch_phase(self, offset: int, call: Callable[[int], None]) -> None:
        """Follow the phases that the unit completes after an initialisation under way."""
        self._watches[offset] = call

    def update(
        self, origin: Origin, op: Op, rank: int, offset: int, count: int, lanes: int,
        *, returns: bool,
    ) -> Answer:  # fmt: skip
        """Queue the operation; one on another block's mbarrier is answered at once."""
        env, costs, clock = self._env, self._state.costs, origin.warp.clock
        number, is_own = lanes.bit_count(), self._first + rank == env.sm
        delay = 0 if returns or op.expects_tx or not op.arrives else costs.arrival
        answer = Answer()
        if not is_own:
            self._at(self._in_order(rank, offset, clock + delay + costs.release))
            request = env.remote.send_barrier(
                self._first + rank, op.name, offset, count, lanes=number
            )
            self._origins[request] = origin
            answer.give(clock)
            return answer
        self._at(self._in_order(rank, offset, clock + delay))
        if not returns:
            env.barriers.post(op.name, offset, count, self._refused(origin), lanes=number)
            answer.give(clock)
            return answer
        least = clock + costs.arrival_state

        def finish(result: BarrierResult, cycle: int) -> None:
            if result.fault is not None:
                self._refused(origin)(result.fault)
            self._give(answer, max(least, cycle), result.state)

        state = lanes if op.no_complete else 0
        env.barriers.call(op.name, offset, count, finish, lanes=number, state=state)
        return answer

    def test(
        self, origin: Origin, offset: int, phase: int, *, by_state: bool, time_limit: int
    ) -> Answer:
        """Queue ``TRY_WAIT`` or ``TEST_WAIT``."""
        costs, answer = self._state.costs, Answer()
        self._at(self._in_order(origin.warp.cta.rank, offset, origin.warp.clock))
        least = origin.warp.clock + (costs.try_wait if time_limit else costs.test_wait).clocks
        op = ("TRY_WAIT" if time_limit else "TEST_WAIT") + ("" if by_state else "_PARITY")
        parity, state = (0, phase) if by_state else (phase, 0)

        def finish(result: BarrierResult, cycle: int) -> None:
            if result.fault is not None:
                self._refused(origin)(result.fault)
            self._state.events += result.done
            self._give(answer, max(least, cycle), int(result.done))

        self._env.barriers.call(op, offset, parity, finish, state=state, time_limit=time_limit)
        return answer

    # Tensor maps

    def fence_tensor_map(self, origin: Origin, address: int) -> Answer:
        """Remove a map from the descriptor cache."""
        answer = Answer()
        least = origin.warp.clock + self._state.costs.fence_tensormap.clocks
        self._env.descriptors.call_invalidate(
            address, lambda cycle: self._give(answer, max(least, cycle))
        )
        return answer

    def prefetch_tensor_map(self, origin: Origin, address: int) -> None:  # noqa: ARG002
        """Hand the prefetch to the unit."""
        self._env.descriptors.call_prefetch(address, lambda _cycle: None)

    # Parts

    def check_errors(self) -> None:
        """Add the mistakes for which the unit has sent error records."""
        for record in self._env.errors.take_all():
            origin = self._origins.get(record.request_id)
            text = (
                f"the unit refused it: {record.cause}, dimension {record.dim}, value "
                f"{record.value:#x}; docs/errors.md explains the causes"
            )
            if origin is None:
                self._mistakes.append(PtxError(f"request {record.request_id}: {text}"))
            else:
                self._mistakes.append(origin.error(text))

    def _in_order(self, rank: int, offset: int, clock: int) -> int:
        """Return the clock of an operation on an mbarrier, not before that of the last one."""
        key = rank, offset
        self._order[key] = max(clock, self._order.get(key, 0))
        return self._order[key]

    def _at(self, clock: int) -> None:
        self._env.not_before = clock

    def _give(self, answer: Answer, cycle: int, value: int = 0) -> None:
        """Give an answer, and let Python look after the waits."""
        answer.give(cycle, value)
        self._state.stirred = True
        self._env.resume()

    def _refused(self, origin: Origin) -> Callable[[str], None]:
        """Return what notes a fault of an mbarrier operation."""

        def note(fault: str) -> None:
            self._mistakes.append(origin.error(f"the mbarrier is at fault: {fault}"))
            self._env.resume()

        return note

    @staticmethod
    def _checked(origin: Origin, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (TmaError, ValueError) as error:
            raise origin.error(error) from None


class UnitSlot:
    """SMs of a cluster, on which clusters run one after another.

    Parameters
    ----------
    state : Grid
    envs : sequence of Environment
        By rank.
    """

    def __init__(self, state: Grid, envs: Sequence[Environment]) -> None:
        self._mistakes: list[PtxError] = []
        self._envs = envs
        self._state = state
        self._engines: list[UnitEngine] = []

    def begin(self) -> tuple[NDArray[np.uint8], Sequence[UnitEngine]]:
        """Return the shared memories, as the last cluster left them, and new engines."""
        first = self._envs[0].sm
        rows = self._envs[0].shared.smem[first : first + len(self._envs)]
        order: dict[tuple[int, int], int] = {}
        self._engines = [
            UnitEngine(self._state, env, first, self._mistakes, order) for env in self._envs
        ]
        return rows, self._engines

    def check(self) -> None:
        """Raise the first mistake that a unit has found.

        Raises
        ------
        PtxError
            With the line of the request, or of the operation.
        """
        for engine in self._engines:
            engine.check_errors()
        if self._mistakes:
            raise self._mistakes[0]
