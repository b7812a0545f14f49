"""Bulk groups, by which a thread waits for its stores and reductions (PTX ISA).

Groups of one thread complete in the order in which they were committed. Requests of one group
complete in any order.
"""

from dataclasses import dataclass, field


@dataclass
class _Progress:
    """Progress of a request: its source has been read, its writes have been performed."""

    source_read: bool = False
    complete: bool = False


@dataclass
class BulkGroups:
    """The bulk groups of one thread.

    Examples
    --------
    >>> groups = BulkGroups()
    >>> store = groups.issue()
    >>> groups.commit_group()
    >>> groups.wait_group(0), groups.wait_group(1)
    (False, True)
    >>> groups.source_read(store)
    >>> groups.wait_group_read(0), groups.wait_group(0)
    (True, False)
    >>> groups.complete(store)
    >>> groups.wait_group(0)
    True
    """

    _requests: dict[int, _Progress] = field(default_factory=dict)
    _uncommitted: list[int] = field(default_factory=list)
    _groups: list[list[int]] = field(default_factory=list)
    _issued: int = 0

    def issue(self) -> int:
        """Add a request to the next group; return the request's number."""
        number = self._issued
        self._issued += 1
        self._requests[number] = _Progress()
        self._uncommitted.append(number)
        return number

    def source_read(self, request: int) -> None:
        """Note that the request has read its tensor map and its shared memory."""
        self._in_flight(request).source_read = True

    def complete(self, request: int) -> None:
        """Note that the writes of the request are performed.

        Raises
        ------
        ValueError
            If the request's source has not been read, or the request is already complete.
        """
        if not self._in_flight(request).source_read:
            raise ValueError(f"request {request} must not complete before its source was read")
        self._requests[request].complete = True
        self._retire()

    def _retire(self) -> None:
        """Remove the oldest groups that are complete."""
        while self._groups and all(self._requests[n].complete for n in self._groups[0]):
            for number in self._groups.pop(0):
                del self._requests[number]

    def _in_flight(self, request: int) -> _Progress:
        progress = self._requests.get(request)
        if progress is None or progress.complete:
            raise ValueError(f"request {request} is not in flight: {self._issued} were issued")
        return progress

    def commit_group(self) -> None:
        """Form a group of all requests that are in no group; an empty group is complete."""
        self._groups.append(self._uncommitted)
        self._uncommitted = []
        self._retire()

    def _all_but_youngest(self, youngest: int) -> list[_Progress]:
        if youngest < 0:
            raise ValueError(f"N = {youngest}: must not be negative")
        older = self._groups[: max(len(self._groups) - youngest, 0)]
        return [self._requests[number] for group in older for number in group]

    def wait_group(self, n: int) -> bool:
        """Return whether all groups but the ``n`` youngest are complete."""
        return all(request.complete for request in self._all_but_youngest(n))

    def wait_group_read(self, n: int) -> bool:
        """Return whether the sources of all groups but the ``n`` youngest have been read."""
        return all(request.source_read for request in self._all_but_youngest(n))
