"""All entries of the catalogue, and what the code says about each of them."""

import re
from collections.abc import Iterable
from pathlib import Path

from hw.params import PRESETS
from sim_tb.report.markdown import filled
from sim_tb.sm import launch
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.record import Record, Setting
from tests.mistakes import (
    clusters,
    coordinates,
    deadlocks,
    descriptors,
    lifetime,
    maps,
    phases,
    proxies,
    scopes,
    stores,
    swizzle,
    transactions,
    wgmma,
)
from tests.mistakes.form import Mistake, message
from tests.top.units import CLUSTER

PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"

GROUPS = [
    maps.GROUP,
    coordinates.GROUP,
    swizzle.GROUP,
    transactions.GROUP,
    phases.GROUP,
    lifetime.GROUP,
    proxies.GROUP,
    scopes.GROUP,
    clusters.GROUP,
    stores.GROUP,
    descriptors.GROUP,
    wgmma.GROUP,
    deadlocks.GROUP,
]
MISTAKES = [mistake for group in GROUPS for mistake in group.mistakes]

UNITS = PRESETS["default"], CLUSTER
"""Unit of the kernels of one CTA, and unit of the others."""

SETTING = Setting(watchdog=1024)


def said(mistakes: Iterable[Mistake]) -> dict[str, tuple[str, str]]:
    """Return what the code says about the wrong and the mended of each entry, by its name.

    All kernels of a unit run in one simulation.
    """
    mistakes = list(mistakes)
    messages = {
        each.name: (each.wrong(), each.mended())
        for each in mistakes
        if not isinstance(each.wrong, Kernel)
    }
    kernels = [each for each in mistakes if isinstance(each.wrong, Kernel)]
    for unit in UNITS:
        on_unit = [each for each in kernels if each.wrong.ctas == unit.ctas]
        work = [(kernel, SETTING) for each in on_unit for kernel in (each.wrong, each.mended)]
        records = launch.run(work, unit)
        for each, wrong, mended in zip(on_unit, records, records, strict=True):
            messages[each.name] = message(wrong.error), failure(mended)
    return messages


def failure(record: Record) -> str:
    """Return why a run is not right, in words; empty if it is."""
    return record.error or (record.check if record.wrong else "")


def entries(page: str) -> list[tuple[str, list[str]]]:
    """Return title and names of entries of each group of the document."""
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    found = [(text.partition("\n")[0], re.findall(r"^<!-- ([^/].*) -->$", text, re.MULTILINE))
             for text in sections]  # fmt: skip
    return [(title, names) for title, names in found if names]


def quoted(page: str, messages: dict[str, tuple[str, str]]) -> str:
    """Return the document with the messages about the wrong ones between their markers."""
    return filled(page, {name: f"```\n{wrong}\n```" for name, (wrong, _) in messages.items()})
