"""What lasted how long."""

from typing import NamedTuple


class Span(NamedTuple):
    """Something that lasted from cycle ``start`` to cycle ``end``."""

    track: str
    name: str
    start: int
    end: int
