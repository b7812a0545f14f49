"""Bulk groups: how a thread waits for its stores and reductions (PTX ISA).

Groups of one thread complete in the order in which they were committed; requests in a group in any.
"""

from dataclasses import dataclass, field


@dataclass
class _Request:
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

    _requests: dict[int, _Request] = field(default_factory=dict)
    _uncommitted: list[int] = field(default_factory=list)
    _groups: list[list[int]] = field(default_factory=list)
    _issued: int = 0

    def issue(self) -> int:
        """A request that joins the next group; returns its number."""
        number = self._issued
        self._issued += 1
        self._requests[number] = _Request()
        self._uncommitted.append(number)
        return number

    def source_read(self, request: int) -> None:
        """All of the map and of shared memory that the request needs has been read."""
        self._open(request).source_read = True

    def complete(self, request: int) -> None:
        """The writes of the request are performed.

        Raises
        ------
        ValueError
            If its source has not been read, or it is complete already.
        """
        if not self._open(request).source_read:
            raise ValueError(f"request {request} is complete before its source was read")
        self._requests[request].complete = True
        self._retire()

    def _retire(self) -> None:
        """Forget the oldest groups as far as they are complete."""
        while self._groups and all(self._requests[n].complete for n in self._groups[0]):
            for number in self._groups.pop(0):
                del self._requests[number]

    def _open(self, request: int) -> _Request:
        found = self._requests.get(request)
        if found is None or found.complete:
            raise ValueError(f"request {request} is not in flight: {self._issued} were issued")
        return found

    def commit_group(self) -> None:
        """All requests that are in no group yet form the next; an empty group is complete."""
        self._groups.append(self._uncommitted)
        self._uncommitted = []
        self._retire()

    def _older(self, youngest: int) -> list[_Request]:
        if youngest < 0:
            raise ValueError(f"N = {youngest}: must not be negative")
        older = self._groups[: max(len(self._groups) - youngest, 0)]
        return [self._requests[number] for group in older for number in group]

    def wait_group(self, n: int) -> bool:
        """Whether at most the ``n`` youngest groups are pending."""
        return all(request.complete for request in self._older(n))

    def wait_group_read(self, n: int) -> bool:
        """Whether the sources of all but the ``n`` youngest groups have been read."""
        return all(request.source_read for request in self._older(n))
