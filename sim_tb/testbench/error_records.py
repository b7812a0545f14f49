"""Error records of one SM's unit."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from sim_tb.testbench.bridge import EventKind, EventRecord
from sim_tb.testbench.events import TIMEOUT, Events, Pending
from sim_tb.testbench.results import ErrorRecord


class ErrorRecords:
    """Error records that no test has taken yet, oldest first; it can be iterated over.

    Parameters
    ----------
    events : Events
    codes : mapping
        Name of an error code to its number.
    notify : callable
        Called at each new record.
    """

    def __init__(
        self, events: Events, codes: Mapping[str, int], notify: Callable[[], None]
    ) -> None:
        self._events = events
        self._notify = notify
        self._causes = {code: name for name, code in codes.items()}
        self._records: deque[ErrorRecord] = deque()
        self._awaited: Pending | None = None
        events.handle(EventKind.ERROR_RECORD, self._add)

    def reset(self) -> None:
        """Forget all records."""
        self._records.clear()
        self._awaited = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ErrorRecord]:
        return iter(self._records)

    def take_all(self) -> list[ErrorRecord]:
        """Return all records that have come, and remove them."""
        taken = list(self._records)
        self._records.clear()
        return taken

    async def take_next(self, timeout: int = TIMEOUT) -> ErrorRecord:
        """Return the oldest record and remove it; wait for one if there is none.

        Raises
        ------
        WaitTimeoutError
            If none comes within ``timeout`` clocks.
        """
        if not self._records:
            self._awaited = Pending("an error record")
            await self._events.wait(self._awaited, timeout)
        return self._records.popleft()

    def _add(self, event: EventRecord) -> None:
        code = int(event.a)
        cause = self._causes.get(code, f"code {code}")
        dim, value, cycle, cta = int(event.b), int(event.c), int(event.cycle), int(event.d)
        self._records.append(ErrorRecord(int(event.id), code, cause, dim, value, cycle, cta))
        self._notify()
        if self._awaited is not None:
            self._awaited.resolve(event)
            self._awaited = None
