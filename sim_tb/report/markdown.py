"""Tables in Markdown documents: the functions of ``hw.flow.tables``, with types."""

from collections.abc import Iterable, Mapping, Sequence

from hw.flow import tables


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return str(tables.table(head, rows))


def filled(text: str, contents: Mapping[str, str]) -> str:
    """Return ``text`` with each table between its markers.

    Raises
    ------
    ValueError
        If ``text`` does not have the markers of each table exactly once.
    """
    return str(tables.filled(text, contents))
