"""Events of one SM: coroutines wait for them, and functions are called at them."""

import ctypes
from collections.abc import Callable

from cocotb.triggers import Event

from sim_tb.testbench.bridge import Bridge, EventKind, EventRecord
from sim_tb.testbench.errors import CheckError, WaitTimeoutError

TIMEOUT = 1_000_000
"""Default number of clocks after which a wait fails."""

Handler = Callable[[EventRecord], None]


class Pending:
    """An event that has not come yet.

    Parameters
    ----------
    what : str
        Description for the message of a timeout: "waited ... clocks for <what>".
    detail : callable, optional
        Returns a line that a timeout's message adds, such as the state of a barrier.
    """

    def __init__(self, what: str, detail: Callable[[], str] | None = None) -> None:
        self.what = what
        self.detail = detail
        self.event = Event()
        self.record: EventRecord | None = None
        self.watches = False

    def resolve(self, record: EventRecord) -> None:
        """Hand ``record`` to the coroutine that waits."""
        self.record = record
        self.event.set()


def group_wait(thread: int, request_id: int) -> int:
    """Return the number of a wait for bulk groups. Waits of several threads may have one id."""
    return thread << 32 | request_id


class Events:
    """Events of one SM.

    An event is known by its kind and a number. ``expect`` and ``wait`` are for one event that a
    coroutine waits for, ``call`` is for one event, ``handle`` is for all events of a kind.

    Parameters
    ----------
    bridge : Bridge
    ledger : callable
        Returns everything that is outstanding, for the message of a timeout.
    """

    def __init__(self, bridge: Bridge, ledger: Callable[[], str]) -> None:
        self._bridge = bridge
        self._shared_ledger = ledger
        self._cycle = ctypes.c_uint64.from_address(bridge.cycle())
        self._last_number = 0
        self._pending: dict[tuple[EventKind, int], Pending] = {}
        self._calls: dict[tuple[EventKind, int], Handler] = {}
        self._handlers: dict[EventKind, Handler] = {}
        self._alarms: dict[int, Pending] = {}
        self.timers_begun = 0
        self._pause: Pending | None = None
        self._failure: CheckError | None = None

    def reset(self) -> None:
        """Forget all pending events. Handlers stay."""
        self._pending.clear()
        self._calls.clear()
        self._alarms.clear()
        self._failure = None
        self._wake_on(set(EventKind) - {EventKind.REQUEST_ACCEPTED})

    @property
    def cycle(self) -> int:
        """Clock edges since reset; at an event, the edge at which it happened."""
        return self._cycle.value

    def new_number(self) -> int:
        """Return a number for the next event."""
        self._last_number = (self._last_number + 1) & 0xFFFFFFFF
        return self._last_number

    def expect(
        self, kind: EventKind, number: int, what: str, detail: Callable[[], str] | None = None
    ) -> Pending:
        """Return the event of ``kind`` and ``number``, which has not come yet, for ``wait``."""
        pending = self._pending[kind, number] = Pending(what, detail)
        if kind is EventKind.REQUEST_ACCEPTED:
            self._wake_on(set(EventKind))
        return pending

    def expected(self, kind: EventKind, number: int) -> Pending:
        """Return the event that an earlier ``expect`` announced.

        Raises
        ------
        KeyError
            If there is none, or if it has come.
        """
        return self._pending[kind, number]

    def forget(self, kind: EventKind, number: int) -> None:
        """Withdraw an ``expect``."""
        del self._pending[kind, number]

    def call(self, kind: EventKind, number: int, function: Handler) -> None:
        """Call ``function`` at the event of ``kind`` and ``number``. Nothing waits for it."""
        self._calls[kind, number] = function

    def handle(self, kind: EventKind, function: Handler) -> None:
        """Call ``function`` at every event of ``kind``."""
        self._handlers[kind] = function

    async def wait(
        self, pending: Pending, timeout: int | None = TIMEOUT, began: int | None = None
    ) -> EventRecord:
        """Wait for ``pending``; return its record.

        Parameters
        ----------
        pending : Pending
            An event that ``expect`` or ``expected`` returned.
        timeout : int, optional
            Clocks after which the wait fails; None: never.
        began : int, optional
            Cycle from which ``timeout`` counts; default: the present one.

        Raises
        ------
        WaitTimeoutError
            If the event does not come in time.
        CheckError
            If a check of the testbench fails before or during the wait.
        """
        self._raise_failure()
        if not pending.event.is_set():
            if timeout is not None:
                clocks = timeout if began is None else timeout - (self.cycle - began)
                self._set_alarm(pending, clocks)
            await pending.event.wait()
        self._raise_failure()
        if pending.record is None:
            detail = "" if pending.detail is None else f"\n{pending.detail()}"
            raise WaitTimeoutError(
                f"waited {timeout} clocks for {pending.what}{detail}\n{self._shared_ledger()}"
            )
        return pending.record

    async def wait_for(
        self, kind: EventKind, number: int, what: str, timeout: int | None = TIMEOUT
    ) -> int:
        """Wait for the event of ``kind`` and ``number``, which has not come yet; return its cycle.

        ``what``, ``timeout`` and errors are as in ``expect`` and ``wait``.
        """
        record = await self.wait(self.expect(kind, number, what), timeout)
        return int(record.cycle)

    async def cycles(self, count: int, *, watches: bool = False) -> None:
        """Wait for ``count`` clocks. ``watches``: it does not count as one of the ``timers``."""
        pending = Pending(f"{count} clocks")
        pending.watches = watches
        self.timers_begun += not watches
        self._set_alarm(pending, count)
        await pending.event.wait()
        self._raise_failure()

    async def pause(self, clocks: int) -> None:
        """Wait for ``clocks`` clocks, or until ``resume`` is called."""
        pending = self._pause = Pending(f"{clocks} clocks")
        self._set_alarm(pending, clocks)
        await pending.event.wait()
        self._pause = None
        self._raise_failure()

    def resume(self) -> None:
        """End ``pause``, if a coroutine is there."""
        if self._pause is not None:
            self._pause.event.set()

    @property
    def timers(self) -> int:
        """Number of waits that the time ends, those that only watch left out."""
        waits = self._alarms.values()
        return sum(not (pending.watches or pending.event.is_set()) for pending in waits)

    def dispatch(self) -> None:
        """Hand the events that C++ reported to the coroutines and functions they are for."""
        for record in self._bridge.events():
            self._dispatch(record)

    def _dispatch(self, record: EventRecord) -> None:
        kind, number = record.kind, record.id
        if kind == EventKind.GROUP_RESULT:
            number = group_wait(record.a, record.id)
        if kind == EventKind.ALARM:
            pending = self._alarms.pop(number, None)
            if pending is not None and not pending.event.is_set():
                pending.event.set()
        elif kind in self._handlers:
            self._handlers[kind](record)
        elif (kind, number) in self._calls:
            self._calls.pop((kind, number))(record)
        elif (kind, number) in self._pending:
            self._pending.pop((kind, number)).resolve(record)

    def fail_waits(self, failure: CheckError) -> bool:
        """Raise ``failure`` in every present and future wait; return whether there is one now."""
        self._failure = failure
        known = [*self._pending.values(), *self._alarms.values()]
        waiting = [pending for pending in known if not pending.event.is_set()]
        self._pending.clear()
        self._calls.clear()
        for pending in waiting:
            pending.event.set()
        return bool(waiting)

    def outstanding(self) -> list[str]:
        """Return a line for each event that is expected."""
        return [f"waiting for {pending.what}" for pending in self._pending.values()]

    def _wake_on(self, kinds: set[EventKind]) -> None:
        self._bridge.wake_on(sum(1 << kind for kind in kinds))

    def _set_alarm(self, pending: Pending, clocks: int) -> None:
        number = self.new_number()
        self._alarms[number] = pending
        self._bridge.alarm(self.cycle + clocks, number)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
