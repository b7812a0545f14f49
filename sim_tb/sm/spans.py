"""Spans of time, from which timelines are drawn."""

from typing import NamedTuple


class Span(NamedTuple):
    """One activity on one track of a timeline, from cycle ``start`` to cycle ``end`` - 1."""

    track: str
    name: str
    start: int
    end: int
