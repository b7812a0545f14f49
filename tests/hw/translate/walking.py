"""A page table with a walker and a memory, around the translation of addresses in a simulation."""

import random
from dataclasses import dataclass, field
from typing import Any

from hw.params import TmaParams
from tests.hw.simulate import Run

OUTPUTS = (
    *("gnic_response", "descriptor_fill", "gnic_ack", "walk_request"),
    *("memory_request", "memory_descriptor_request", "memory_write"),
)
INPUTS = (
    *("gnic_request", "descriptor_request", "gnic_write", "walk_response", "tlb_invalidate"),
    *("memory_response", "memory_descriptor_fill", "memory_ack"),
)

Translated = tuple[int, bool, bool]
"""Physical page, whether it is present, and whether it is writable."""


@dataclass
class Version:
    """A translation of a page, until the clock in which its invalidation was accepted."""

    translation: Translated
    dropped: int | None = None


@dataclass
class PageTable:
    """Pages, each with all translations that it has had; the last one counts."""

    params: TmaParams
    rng: random.Random
    pages: int
    absent: float = 0.15
    read_only: float = 0.15
    versions: dict[int, list[Version]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = self.rng.sample(range(1 << self.params.page_number_bits), self.pages)
        self.versions = {number: [Version(self._drawn())] for number in numbers}

    def _drawn(self) -> Translated:
        page = self.rng.getrandbits(self.params.page_number_bits)
        return page, self.rng.random() >= self.absent, self.rng.random() >= self.read_only

    def remap(self, number: int) -> Version:
        """Give a page another translation; return the old one."""
        old = self.versions[number][-1]
        self.versions[number].append(Version(self._drawn()))
        return old

    def of(self, number: int) -> Translated:
        """Return the translation of a page."""
        return self.versions[number][-1].translation

    def legal(self, number: int, clock: int) -> list[Translated]:
        """Return the translations that an access may use which was looked up in this clock."""
        return [
            version.translation
            for version in self.versions[number]
            if version.dropped is None or version.dropped >= clock
        ]


class Walker:
    """Answers walks in any order, in ``share`` of the clocks.

    It reads the page table at the question, or with ``late`` now and then at the answer. ``held``
    are pages whose walks wait until they are removed from it.
    """

    def __init__(self, table: PageTable, share: float, *, late: bool = True) -> None:
        self.table = table
        self.share = share
        self.late = late
        self.held: set[int] = set()
        self.open: list[tuple[int, int, Translated]] = []
        self.ids: set[int] = set()
        self.seen = 0

    def feed(self, run: Run) -> list[dict[str, Any]]:
        rng = self.table.rng
        for question in run.payloads["walk_request"][self.seen :]:
            assert question.id not in self.ids, "two walks under way with one number"
            self.ids.add(question.id)
            self.open.append((question.id, question.page, self.table.of(question.page)))
        self.seen = len(run.payloads["walk_request"])
        ready = [walk for walk in self.open if walk[1] not in self.held]
        if not ready or rng.random() >= self.share:
            return []
        walk = rng.choice(ready)
        self.open.remove(walk)
        number, page, then = walk
        self.ids.discard(number)
        is_late = self.late and rng.random() < 0.5
        physical, present, writable = self.table.of(page) if is_late else then
        fields = {"page": physical, "present": present, "writable": writable}
        return [{"id": number, "translation": fields}]


class Memory:
    """Answers reads and writes in any order, and tensor maps in order."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng = rng
        self.share = share
        self.seen: dict[str, int] = {}
        self.open: dict[str, list[Any]] = {"memory_response": [], "memory_ack": []}
        self.maps: list[int] = []

    def _new(self, run: Run, name: str) -> list[Any]:
        payloads = run.payloads[name][self.seen.get(name, 0) :]
        self.seen[name] = len(run.payloads[name])
        return payloads

    def feed(self, run: Run) -> dict[str, list[Any]]:
        for read in self._new(run, "memory_request"):
            if not read.prefetch:
                self.open["memory_response"].append({"tag": read.tag, "data": read.line})
        for write in self._new(run, "memory_write"):
            self.open["memory_ack"].append({"tag": write.tag})
        self.maps += self._new(run, "memory_descriptor_request")
        given: dict[str, list[Any]] = {}
        for name, answers in self.open.items():
            if answers and self.rng.random() < self.share:
                given[name] = [answers.pop(self.rng.randrange(len(answers)))]
        if self.maps and self.rng.random() < self.share:
            address = self.maps.pop(0)
            words = [address & 0xFFFFFFFF, address >> 32, *[0] * 14]
            given["memory_descriptor_fill"] = [{"words": words}]
        return given
