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

SYMPTOMS = {
    "`CUDA_ERROR_INVALID_VALUE` (1) from the encoder": r"INVALID_VALUE",
    "illegal address (700)": r"illegal (memory access|address)",
    "illegal instruction (715)": r"illegal instruction",
    "misaligned address (716)": r"misaligned address",
    "launch failure (719)": r"launch failure",
    "the kernel hangs": r"\bhang|forever",
    "slow": r"\bslow\b|serialises",
}
"""Words of the document that stand for what is seen on a GPU."""

OTHERWISE = "wrong values, mostly now and then"

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
    found = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        names = re.findall(r"^<!-- ([^/].*) -->$", section, re.MULTILINE)
        found.append((section.partition("\n")[0], names))
    return found


def by_symptom(page: str) -> str:
    """Return a list of the entries of the document by what is seen on a GPU."""
    listed: dict[str, list[str]] = {symptom: [] for symptom in [*SYMPTOMS, OTHERWISE]}
    for title, gpu in re.findall(r"^### (.*)\n\n- \*\*On the GPU:\*\* (.*)", page, re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        found = [name for name, words in SYMPTOMS.items() if re.search(words, gpu, re.IGNORECASE)]
        for symptom in found or [OTHERWISE]:
            listed[symptom].append(f"[{title}](#{anchor})")
    lines = [f"- **{symptom}:** {'; '.join(links)}" for symptom, links in listed.items()]
    return "\n".join(lines)


def quoted(page: str, messages: dict[str, tuple[str, str]]) -> str:
    """Return the document with its list of symptoms and its messages."""
    contents = {name: f"```\n{wrong}\n```" for name, (wrong, _) in messages.items()}
    return filled(page, {"symptoms": by_symptom(page)} | contents)
