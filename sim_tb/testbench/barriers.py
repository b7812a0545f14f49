"""Barrier commands of one SM's threads, and waits at mbarriers."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from golden.mbarrier import MAX_COUNT, Barrier, init
from sim_tb.testbench.bridge import BarrierCommandRecord, Bridge, Bytes, EventKind, EventRecord
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.events import TIMEOUT, Events
from sim_tb.testbench.results import BarrierResult, WaitResult

TIME_LIMIT = 1 << 20
"""Default time limit of a ``try_wait``, in clocks."""

RETRY = 32
"""Clocks until a ``try_wait`` is repeated for which the unit had no place to wait."""

BARRIER_BYTES = 8

PARITY_OPS = ("TEST_WAIT_PARITY", "TRY_WAIT_PARITY")

Watcher = Callable[[int, Barrier], None]


def operand(op: str, count: int) -> int:
    """Return ``count`` as the unit takes it, with 21 bits: all illegal counts act alike."""
    return count & 1 if op in PARITY_OPS else min(count, MAX_COUNT + 1)


@dataclass(frozen=True)
class Command:
    """A barrier command: ``op`` is a name of ``BarrierOp``.

    The operands are those of ``hw.layouts.barriers.BarrierCommand``, but INIT takes the expected
    arrivals as its ``count``, and ``v1`` if the barrier is of layout v1.
    """

    op: str
    address: int
    count: int = 0
    lanes: int = 1
    state: int = 0
    time_limit: int = 0
    v1: bool = False


class Barriers:
    """Barrier commands of one SM.

    Parameters
    ----------
    bridge : Bridge
    events : Events
    smem : array of bytes
        Shared memory, which contains the barriers.
    enums : mapping
        The design's ``BarrierOp`` and ``BarrierFault``: name to number.
    """

    def __init__(
        self, bridge: Bridge, events: Events, smem: Bytes, enums: Mapping[str, Mapping[str, int]]
    ) -> None:
        self._bridge = bridge
        self._events = events
        self._smem = smem
        self._ops = enums["BarrierOp"]
        self._faults = {code: name for name, code in enums["BarrierFault"].items()}
        self._watchers: dict[int, list[Watcher]] = {}
        events.handle(EventKind.PHASE_CHANGE, self._notify_watchers)

    def reset(self) -> None:
        """Forget all watchers."""
        self._watchers.clear()

    def read(self, address: int, *, v1: bool = False) -> Barrier:
        """Return the fields of the barrier at ``address``; ``v1``: the unit has layout v1."""
        word = self._smem[address : address + BARRIER_BYTES].view(np.uint64)[0]
        return Barrier.decode(int(word), v1=v1)

    def unwatch(self, address: int) -> None:
        """Forget what ``watch`` was told to call at this address."""
        self._watchers.pop(address, None)

    def watch(self, address: int, call: Watcher, *, awaited: bool = True) -> None:
        """Call ``call(cycle, barrier)`` at each change of the barrier's phase.

        With ``awaited`` off, a change does not wake Python: the call comes with the next event.
        """
        self._watchers.setdefault(address, []).append(call)
        self._bridge.watch(address, awaited)

    # Commands

    def send(
        self,
        op: str,
        address: int,
        count: int = 0,
        *,
        lanes: int = 1,
        state: int = 0,
        time_limit: int = TIME_LIMIT,
        v1: bool = False,
    ) -> int:
        """Queue a barrier command; return its number, for ``result``.

        Commands go to the unit in the order of these calls. The operands are those of `Command`.
        """
        number = self._events.new_number()
        self._events.expect(
            EventKind.BARRIER_RESULT,
            number,
            f"result of {op} at 0x{address:x}",
            lambda: self._state_of(address),
        )
        command = Command(op, address, count, lanes, state, time_limit, v1)
        self._queue(command, number)
        return number

    async def result(self, number: int, timeout: int | None = TIMEOUT) -> BarrierResult:
        """Return the unit's answer to the command ``number``; call it once for each ``send``.

        Raises
        ------
        WaitTimeoutError
            If it does not come within ``timeout`` clocks.
        """
        pending = self._events.expected(EventKind.BARRIER_RESULT, number)
        return self._result(await self._events.wait(pending, timeout))

    async def command(
        self,
        op: str,
        address: int,
        count: int = 0,
        timeout: int | None = TIMEOUT,
        *,
        lanes: int = 1,
        state: int = 0,
        time_limit: int = TIME_LIMIT,
        v1: bool = False,
    ) -> BarrierResult:
        """Carry out a barrier command: ``send`` and ``result`` in one."""
        number = self.send(
            op, address, count, lanes=lanes, state=state, time_limit=time_limit, v1=v1
        )
        return await self.result(number, timeout)

    async def execute(
        self, commands: Sequence[Command], timeout: int | None = TIMEOUT
    ) -> list[BarrierResult]:
        """Carry out several commands in order, without a wait between them; return their results.

        Python wakes once, when the last result comes.
        """
        pending = []
        for index, command in enumerate(commands, 1):
            number = self._events.new_number()
            what = f"result of {command.op} at 0x{command.address:x}"
            pending.append(self._events.expect(EventKind.BARRIER_RESULT, number, what))
            self._queue(command, number, quiet=index < len(commands))
        if pending:
            await self._events.wait(pending[-1], timeout)
        return [self._result(await self._events.wait(each)) for each in pending]

    def post(
        self,
        op: str,
        address: int,
        count: int,
        on_fault: Callable[[str], None],
        *,
        lanes: int = 1,
    ) -> None:
        """Queue a barrier command whose result matters only if it is a fault.

        ``on_fault`` is called with the fault's name in ``BarrierFault``.
        """
        number = self._events.new_number()

        def check(event: EventRecord) -> None:
            if (fault := self._fault(event.c)) is not None:
                on_fault(fault)

        self._events.call(EventKind.BARRIER_RESULT, number, check)
        self._queue(Command(op, address, count, lanes), number, quiet=True)

    def call(
        self,
        op: str,
        address: int,
        count: int,
        answer: Callable[[BarrierResult, int], None],
        *,
        lanes: int = 1,
        state: int = 0,
        time_limit: int = 0,
    ) -> None:
        """Queue a barrier command; ``answer`` is called with its result and the cycle.

        If the thread waits, the call comes at the end of the wait, with ``waits`` set.
        """
        number = self._events.new_number()

        def wait_ended(event: EventRecord) -> None:
            answer(BarrierResult(bool(event.a), True, self._fault(event.b), 0), int(event.cycle))

        def answered(event: EventRecord) -> None:
            result = self._result(event)
            if result.waits:
                self._events.call(EventKind.WAIT_END, number, wait_ended)
            else:
                answer(result, int(event.cycle))

        self._events.call(EventKind.BARRIER_RESULT, number, answered)
        self._queue(Command(op, address, count, lanes, state, time_limit), number)

    # Waits

    async def try_wait(
        self,
        address: int,
        parity: int | None = None,
        *,
        state: int | None = None,
        time_limit: int = TIME_LIMIT,
        v1: bool = False,
        timeout: int | None = TIMEOUT,
    ) -> WaitResult:
        """Carry out ``mbarrier.try_wait`` for the phase of ``parity``, or of ``state``.

        Parameters
        ----------
        address : int
            Offset of the barrier in shared memory.
        parity, state : int, optional
            Exactly one of them.
        time_limit : int
            Clocks that the unit suspends the thread at most.
        v1 : bool
            Wait for the conditional phase of layout v1.
        timeout : int, optional
            Clocks after which the simulation gives up; None: never.

        Raises
        ------
        ValueError
            If both or none of ``parity`` and ``state`` are given.
        WaitTimeoutError
            If the unit does not answer within ``timeout`` clocks.
        """
        if (parity is None) == (state is None):
            raise ValueError("try_wait needs either a parity or a state")
        op, phase = ("TRY_WAIT", state) if parity is None else ("TRY_WAIT_PARITY", parity)
        began = self._events.cycle
        number = self.send(op, address, parity or 0, state=state or 0, time_limit=time_limit, v1=v1)
        what = f"phase {phase} of the barrier at 0x{address:x}"
        result = self._events.expected(EventKind.BARRIER_RESULT, number)
        result.what = what
        end = self._events.expect(EventKind.WAIT_END, number, what, result.detail)
        answer = self._result(await self._events.wait(result, timeout))
        if not answer.waits:
            self._events.forget(EventKind.WAIT_END, number)
            return WaitResult(answer.done, False, answer.fault, self._events.cycle)
        event = await self._events.wait(end, timeout, began)
        return WaitResult(bool(event.a), True, self._fault(event.b), int(event.cycle))

    async def wait(
        self,
        address: int,
        parity: int,
        timeout: int | None = TIMEOUT,
        *,
        time_limit: int = TIME_LIMIT,
    ) -> int:
        """Repeat ``mbarrier.try_wait.parity`` until the phase of ``parity`` is complete.

        Each ``try_wait`` goes to the unit behind all commands that are queued.

        Returns
        -------
        int
            Cycle of the unit's answer.

        Raises
        ------
        CheckError
            If the unit answers with a fault.
        WaitTimeoutError
            If the phase does not complete within ``timeout`` clocks.
        """
        began = self._events.cycle
        while True:
            remaining = None if timeout is None else timeout - (self._events.cycle - began)
            answer = await self.try_wait(address, parity, time_limit=time_limit, timeout=remaining)
            if answer.fault is not None:
                raise CheckError(
                    f"waiting for phase {parity} of the barrier at 0x{address:x}: {answer.fault}"
                )
            if answer.done:
                return answer.cycle
            if not answer.waited:
                await self._events.cycles(RETRY)

    def _queue(self, command: Command, number: int, *, quiet: bool = False) -> None:
        is_init = command.op == "INIT"
        record = BarrierCommandRecord(
            not_before=self._bridge.not_before,
            state=init(command.count, v1=command.v1) if is_init else command.state,
            op=self._ops[command.op],
            address=command.address,
            count=operand(command.op, command.count),
            lanes=command.lanes,
            time_limit=command.time_limit,
            v1=command.v1,
            quiet=quiet,
            id=number,
        )
        self._bridge.command(ctypes.byref(record))

    def _result(self, event: EventRecord) -> BarrierResult:
        return BarrierResult(bool(event.a), bool(event.b), self._fault(event.c), int(event.d))

    def _fault(self, code: int) -> str | None:
        return self._faults[int(code)] if code else None

    def _state_of(self, address: int) -> str:
        return f"barrier 0x{address:x}: {self.read(address)}"

    def _notify_watchers(self, event: EventRecord) -> None:
        for call in self._watchers.get(event.id, []):
            call(int(event.cycle), Barrier.decode(int(event.a)))
