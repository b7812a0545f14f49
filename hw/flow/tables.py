"""Markdown tables, and those tables of README.md that follow from the sources of ``hw``.

``python -m hw.tables README.md`` writes ports, parameters and blocks into README.md; a test fails
if they are stale. The other tables of README.md are written by ``sim_tb.report.readme``.
"""

import argparse
import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from amaranth.hdl import Shape
from amaranth.lib import wiring

from hw.params import PRESETS, TmaParams
from hw.top import Tma, tma_ports

HW = Path(__file__).resolve().parents[1]
STAGES = (
    "front",
    "setup",
    "generate",
    "load",
    "store",
    "barrier",
    "cluster",
    "reduce",
    "translate",
    "axi",
    "host",
    "context",
    "monitor",
    "lib",
)
"""Packages with blocks, in the order of a request's way."""

WITHOUT_BLOCKS = {"flow", "layouts"}
"""Packages without blocks."""

ENTRIES = 16
"""Entries of the TLB whose ports are listed."""

# Markdown


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def markers(name: str) -> tuple[str, str]:
    """Return the lines in front of the table ``name`` and behind it."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def _parts(text: str, name: str) -> tuple[str, str, str]:
    """Return the text in front of the table ``name``, the table, and the text behind it."""
    start, end = markers(name)
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"expected one {start} and one {end}")
    before, _, rest = text.partition(start)
    contents, _, after = rest.partition(end)
    return before, contents, after


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Return ``text`` with each table between its markers.

    Raises
    ------
    ValueError
        If ``text`` does not have the markers of each table exactly once.
    """
    for name, contents in tables.items():
        before, _, after = _parts(text, name)
        start, end = markers(name)
        text = f"{before}{start}\n{contents}\n{end}{after}"
    return text


Tables = Mapping[str, Callable[[], str]]
"""Function that returns each table of a file, by the name of its markers."""


def with_tables(text: str, tables: Tables) -> str:
    """Return ``text`` with each of its tables written again."""
    return filled(text, {name: make() for name, make in tables.items()})


def write_tables(parser: argparse.ArgumentParser, path: Path, tables: Tables) -> None:
    """Write the tables of a file again; end with a message of ``parser`` if that is impossible."""
    try:
        path.write_text(with_tables(path.read_text(), tables))
    except OSError as error:
        parser.error(f"{path}: {error.strerror}")


def read_table(text: str, name: str) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the Markdown table between the markers ``name``."""
    lines = _parts(text, name)[1].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[0], cells[2:]


# Sources


def members(component: type, section: str) -> Iterator[tuple[str, str]]:
    """Yield name and description of each entry under ``section`` of a docstring."""
    text = inspect.getdoc(component) or ""
    body = text.split(f"{section}\n{'-' * len(section)}\n")[1].split("\n\n")[0]
    for entry in re.finditer(r"^(\w+) : .*\n((?:    .*\n?)+)", body, re.MULTILINE):
        yield entry[1], " ".join(entry[2].split()).replace("``", "`")


def port_widths(params: TmaParams) -> dict[str, int | None]:
    """Return the payload bits of each port of a unit; None for a port without payload."""
    signature = wiring.Signature(tma_ports(params))
    widths: dict[str, int | None] = dict.fromkeys(signature.members)
    for path, member, _ in signature.flatten(signature.create()):
        if len(path) == 1 or path[-1] == "payload":
            widths[path[0]] = Shape.cast(member.shape).width
    return widths


def ports() -> str:
    """Return the ports of a unit: widths of ``default``, and of ``cluster`` for its own ports.

    The widths of the ports of a TLB are those with ``ENTRIES`` entries.
    """
    default, cluster = (
        dataclasses.replace(PRESETS[name], counters=True) for name in ("default", "cluster")
    )
    with_tlb = dataclasses.replace(cluster, tlb_entries=ENTRIES)
    widths, cluster_widths = port_widths(default), port_widths(cluster)
    uncounted, tlb_widths = port_widths(PRESETS["cluster"]), port_widths(with_tlb)
    loads_only = port_widths(dataclasses.replace(default, stores=False, reductions=False))
    signature = wiring.Signature(tma_ports(with_tlb))
    rows = []
    for name, text in members(Tma, "Members"):
        flow = "in" if signature.members[name].flow is wiring.In else "out"
        condition = "" if name in loads_only else "`stores`"
        condition = condition if name in uncounted or name not in cluster_widths else "`counters`"
        width = "" if tlb_widths[name] is None else f"{widths.get(name)}"
        if name not in cluster_widths:
            width, condition = f"{tlb_widths[name]} ({ENTRIES} entries)", "`tlb_entries`"
        elif name not in widths:
            width, condition = f"{cluster_widths[name]} (`cluster`)", "`ctas` > 1"
        rows.append([f"`{name}`", flow, width, condition, text])
    return table(("port", "direction", "payload bits", "present with", "function"), rows)


def parameters() -> str:
    """Return the parameters and their values in each preset.

    Raises
    ------
    ValueError
        If a parameter is not described in the docstring of ``TmaParams``.
    """
    undescribed = {field.name for field in dataclasses.fields(TmaParams)}
    rows = []
    for name, text in members(TmaParams, "Parameters"):
        undescribed.remove(name)
        values = [str(getattr(params, name)) for params in PRESETS.values()]
        rows.append([f"`{name}`", *values, text])
    if undescribed:
        raise ValueError(f"TmaParams: no description of {', '.join(sorted(undescribed))}")
    return table(("parameter", *PRESETS, "meaning"), rows)


def summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, without the name of the block."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]
    name, colon, rest = sentence.partition(": ")
    if colon and name.lower().removesuffix("s") == path.stem.replace("_", " ").removesuffix("s"):
        sentence = rest[0].upper() + rest[1:]
    return sentence.replace("``", "`").replace("|", "\\|")


def blocks() -> str:
    """Return the blocks of each stage with the first sentence of their modules.

    Raises
    ------
    ValueError
        If ``hw`` has a package that is not known here.
    """
    packages = {path.parent.name for path in HW.glob("*/__init__.py")}
    if unknown := packages - {*STAGES} - WITHOUT_BLOCKS:
        raise ValueError(f"hw/flow/tables.py: unknown packages {', '.join(sorted(unknown))}")
    rows = []
    for stage in STAGES:
        label = f"[{stage}](hw/{stage})"
        for path in sorted((HW / stage).glob("*.py")):
            if path.stem == "__init__":
                continue
            link = f"[{path.stem.replace('_', ' ')}](hw/{stage}/{path.name})"
            rows.append([label, link, summary(path)])
            label = ""
    return table(("stage", "block", "function"), rows)


TABLES: Tables = {"ports": ports, "parameters": parameters, "blocks": blocks}
"""Tables of README.md."""


def refreshed(text: str) -> str:
    """Return the text of README.md with the tables of ``TABLES`` written again."""
    return with_tables(text, TABLES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables into the file that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hw.tables", description="Write the tables of ports, parameters and blocks."
    )
    parser.add_argument("file", type=Path, help="a Markdown file with the tables' markers")
    write_tables(parser, parser.parse_args(arguments).file, TABLES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
