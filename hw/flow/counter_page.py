"""Tables of docs/counters.md, from the sources: ``python -m hw.counter_page docs/counters.md``."""

import argparse
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from amaranth.hdl import Shape

from hw.flow.cache import ROOT
from hw.flow.tables import Tables, table, with_tables, write_tables
from hw.layouts.monitor import Counter, EventKind, EventRecord

PAGE = ROOT / "docs" / "counters.md"

ENTRY = re.compile(r"^(\w+) : (.*(?:\n {4}.*)*)", re.MULTILINE)


def described(kind: type) -> dict[str, str]:
    """Return the entry of each member in the docstring of ``kind``."""
    body = (inspect.getdoc(kind) or "").split("Members\n-------\n")[1]
    return {found[1]: found[2] for found in ENTRY.finditer(body)}


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def counters() -> str:
    """Return the table of the counters."""
    entries = described(Counter)
    rows = []
    for counter in Counter:
        unit, _, text = entries.pop(counter.name).partition("\n")
        rows.append([f"{counter.value}", f"`{counter.name}`", unit, _plain(text)])
    if entries:
        raise ValueError(f"Counter: there is no {', '.join(entries)}")
    return table(("number", "counter", "unit", "meaning"), rows)


def kinds() -> str:
    """Return the table of the kinds of events."""
    entries = described(EventKind)
    rows = [[f"{kind.value}", f"`{kind.name}`", _plain(entries[kind.name])] for kind in EventKind]
    return table(("kind", "name", "meaning"), rows)


def record() -> str:
    """Return the table of the fields of a record."""
    entries = described(EventRecord)
    rows = []
    for name, field in EventRecord.as_shape():
        last = field.offset + Shape.cast(field.shape).width - 1
        bits = f"{last}:{field.offset}" if last > field.offset else f"{last}"
        rows.append([bits, f"`{name}`", _plain(entries[str(name)])])
    return table(("bits", "field", "meaning"), rows)


TABLES: Tables = {"counters": counters, "kinds": kinds, "record": record}
"""Tables of the page."""


def refreshed(text: str) -> str:
    """Return the text of the page with its tables written again."""
    return with_tables(text, TABLES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables into the file that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hw.counter_page", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=PAGE)
    write_tables(parser, parser.parse_args(arguments).file, TABLES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
