"""The tables of README.md that follow from the sources.

``python -m hw.tables README.md`` brings them up to date; a test fails when they are not.
"""

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from amaranth.hdl import Shape
from amaranth.lib import wiring

from hw.params import PRESETS, TmaParams, preset_names
from hw.top import Tma, tma_ports


def members(component: type, section: str) -> Iterator[tuple[str, str, str]]:
    """Name, kind and description of each entry under ``section`` of a docstring."""
    text = inspect.getdoc(component) or ""
    body = text.split(f"{section}\n{'-' * len(section)}\n")[1].split("\n\n")[0]
    for entry in re.finditer(r"^(\w+) : (.*)\n((?:    .*\n?)+)", body, re.MULTILINE):
        yield entry[1], entry[2], " ".join(entry[3].split()).replace("``", "`")


def ports() -> str:
    """The streams and interfaces of a unit in a cluster, which has all of them."""
    signature = wiring.Signature(tma_ports(PRESETS["cluster"]))
    widths: dict[str, int] = {}
    for path, member, _ in signature.flatten(signature.create()):
        if len(path) == 1 or path[-1] == "payload":
            widths[path[0]] = Shape.cast(member.shape).width
    rows = ["| port | direction | payload bits | |", "|---|---|---|---|"]
    for name, _, text in members(Tma, "Members"):
        flow = "in" if signature.members[name].flow is wiring.In else "out"
        rows.append(f"| `{name}` | {flow} | {widths.get(name, '')} | {text} |")
    return "\n".join(rows)


def parameters() -> str:
    """The parameters and their presets."""
    presets = preset_names()
    heads = " | ".join(", ".join(names) for names in presets.values())
    rows = [f"| parameter | {heads} | |", "|---|" + "---|" * (len(presets) + 1)]
    known = {field.name for field in dataclasses.fields(TmaParams)}
    for name, _, text in members(TmaParams, "Parameters"):
        known.remove(name)
        values = " | ".join(str(getattr(params, name)) for params in presets)
        rows.append(f"| `{name}` | {values} | {text} |")
    if known:
        raise ValueError(f"TmaParams: {', '.join(sorted(known))} without a description")
    return "\n".join(rows)


TABLES = {"ports": ports, "parameters": parameters}


def filled(text: str, tables: Mapping[str, str]) -> str:
    """``text`` with tables between ``<!-- NAME -->`` and ``<!-- /NAME -->``.

    Raises
    ------
    ValueError
        If there is not one such place for each.
    """
    for name, table in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if text.count(start) != 1 or text.count(end) != 1:
            raise ValueError(f"expected one {start} and one {end}")
        head, rest = text.split(start)
        text = f"{head}{start}\n{table}\n{end}{rest.split(end)[1]}"
    return text


def refreshed(text: str) -> str:
    """``text`` with the tables of README.md made anew."""
    return filled(text, {name: table() for name, table in TABLES.items()})


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(refreshed(path.read_text()))
