"""Requests of a trace: the events of each request, put together."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from hw.layouts.isa import Operation
from hw.layouts.monitor import EventKind
from sim_tb.trace.records import Event

GROUPS = (Operation.COMMIT_GROUP, Operation.WAIT_GROUP, Operation.WAIT_GROUP_READ)

WITHOUT_SLOT = (EventKind.ACCEPTED, EventKind.MAP_HIT, EventKind.MAP_MISS, EventKind.REFUSED)
"""Kinds of events of a request that has no slot yet."""

ENDS = (EventKind.REFUSED, EventKind.ENDED, EventKind.FAILED)


@dataclass
class Request:
    """A request of a trace.

    Parameters
    ----------
    number : int
        Number of the request in the trace.
    is_store : bool
    stream, request_id : int
    operation : Operation, optional
        None if the trace begins behind its acceptance.
    events : list of Event
    """

    number: int
    is_store: bool
    stream: int
    request_id: int
    operation: Operation | None = None
    events: list[Event] = field(default_factory=list)

    def at(self, *kinds: EventKind) -> int | None:
        """Return the clock of the first event of these kinds; None if there is none."""
        return next((event.clock for event in self.events if event.kind in kinds), None)

    @property
    def name(self) -> str:
        """Operation and id."""
        operation = "request" if self.operation is None else self.operation.name.lower()
        return f"{operation} {self.request_id}"

    @property
    def end(self) -> Event | None:
        """Event that ended the request; None if the trace ends before, or if it is a prefetch."""
        return next((event for event in self.events if event.kind in ENDS), None)


class Requests:
    """Requests of a trace, in the order of their first events.

    Up to OPENED an event names its request by id, stream and direction, afterwards by its slot.
    Requests of the same names are told apart by their order: the oldest one comes first.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.all: list[Request] = []
        self._by_name: dict[tuple[bool, int, int], list[Request]] = defaultdict(list)
        self._by_slot: dict[tuple[bool, int], Request] = {}
        for event in events:
            if event.kind is not EventKind.SAMPLE:
                self._add(event)

    def _add(self, event: Event) -> None:
        if event.kind is EventKind.ACCEPTED:
            request = self._begin(event)
            request.operation = Operation(event.argument)
            if request.operation not in GROUPS:
                self._by_name[event.is_store, event.stream, event.request_id].append(request)
        elif event.kind in WITHOUT_SLOT or event.kind is EventKind.OPENED:
            request = self._waiting(event)
        else:
            key = event.is_store, event.slot
            request = self._by_slot.get(key) or self._begin(event)
            self._by_slot[key] = request
        request.events.append(event)
        if event.kind is EventKind.OPENED:
            self._by_slot[event.is_store, event.slot] = request
        elif event.kind in (EventKind.ENDED, EventKind.FAILED):
            del self._by_slot[event.is_store, event.slot]

    def _begin(self, event: Event) -> Request:
        request = Request(len(self.all), event.is_store, event.stream, event.request_id)
        self.all.append(request)
        return request

    def _waiting(self, event: Event) -> Request:
        """Return the oldest request of the names of ``event`` that it can belong to.

        A map event belongs to the first one without it. A request that is opened or refused leaves
        the list.
        """
        waiting = self._by_name[event.is_store, event.stream, event.request_id]
        is_end = event.kind in (EventKind.OPENED, EventKind.REFUSED)
        for request in waiting:
            has_map = request.at(EventKind.MAP_HIT, EventKind.MAP_MISS) is not None
            if is_end or not has_map:
                if is_end:
                    waiting.remove(request)
                return request
        return self._begin(event)
