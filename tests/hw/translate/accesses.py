"""Accesses of random kinds to the pages of a page table, and what must become of them."""

from dataclasses import dataclass, field
from typing import Any

from hw.layouts.translation import PageFault
from hw.params import TmaParams
from tests.hw.simulate import Run
from tests.hw.translate.walking import INPUTS, PageTable, Version

KINDS = "read", "prefetch", "write", "map"
PORTS = dict(
    zip(KINDS, ("gnic_request", "gnic_request", "gnic_write", "descriptor_request"), strict=True)
)


@dataclass
class Access:
    """An access to a virtual page; ``place`` is the line, or of a map the address, in the page."""

    kind: str
    number: int
    page: int
    place: int
    tag: int


@dataclass
class Traffic:
    """Accesses that have been asked for, and tags that are free.

    ``asked`` has the accesses of each port, in order.
    """

    params: TmaParams
    table: PageTable
    share: float = 0.5
    count: int = 200
    asked: dict[str, list[Access]] = field(
        default_factory=lambda: {port: [] for port in INPUTS[:3]}
    )
    answered: dict[str, int] = field(default_factory=dict)
    free: dict[str, list[int]] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        self.free = {kind: list(range(self.params.tags)) for kind in ("read", "write")}

    def take_tags_back(self, run: Run) -> None:
        """Take the tags of all answers back."""
        for kind, port in (("read", "gnic_response"), ("write", "gnic_ack")):
            answers = run.payloads[port][self.answered.get(port, 0) :]
            self.answered[port] = len(run.payloads[port])
            for answer in answers:
                assert answer.tag not in self.free[kind], f"{port}: tag {answer.tag} twice"
                self.free[kind].append(answer.tag)

    def access(self, kind: str, page: int, place: int) -> dict[str, list[Any]]:
        """Return the inputs of a new access; none without a free tag."""
        p = self.params
        if kind in self.free and not self.free[kind]:
            return {}
        tag = self.free[kind].pop(0) if kind in self.free else 0
        self.made += 1
        access = Access(kind, self.made, page, place, tag)
        port = PORTS[kind]
        self.asked[port].append(access)
        if kind == "map":
            return {port: [page << p.tlb_page_bits | place]}
        line = page << p.page_line_bits | place
        payload = {"tag": tag, "line": line, "attributes": {"cache_policy": self.made}}
        payload |= {"data": self.made} if kind == "write" else {"prefetch": kind == "prefetch"}
        return {port: [payload]}

    def feed(self, run: Run) -> dict[str, list[Any]]:
        """Return the inputs of a random access, now and then."""
        self.take_tags_back(run)
        rng, p = self.table.rng, self.params
        if self.made >= self.count or rng.random() >= self.share:
            return {}
        kind = rng.choices(KINDS, (6, 1, 5, 1))[0]
        page = rng.choice([*self.table.versions][: rng.choice((2, 8, 100))])
        bits = p.tlb_page_bits - 6 if kind == "map" else p.page_line_bits
        return self.access(kind, page, rng.getrandbits(bits) << (6 if kind == "map" else 0))


class Invalidations:
    """Changes of pages, each with an invalidation of the page or of all."""

    def __init__(self, table: PageTable, share: float) -> None:
        self.table = table
        self.share = share
        self.waiting: list[list[Version]] = []
        self.accepted = 0

    def change(self, page: int, *, everything: bool) -> list[dict[str, Any]]:
        """Give a page another translation; return the invalidation."""
        old = [self.table.remap(page)]
        if everything:
            old += [
                version for versions in self.table.versions.values() for version in versions[:-1]
            ]
        self.waiting.append([version for version in old if version.dropped is None])
        return [{"page": 0 if everything else page, "all": everything}]

    def feed(self, run: Run) -> list[dict[str, Any]]:
        """Return a random invalidation, now and then."""
        for clock in run.taken["tlb_invalidate"][self.accepted :]:
            for version in self.waiting[self.accepted]:
                version.dropped = clock if version.dropped is None else version.dropped
            self.accepted += 1
        rng = self.table.rng
        if rng.random() >= self.share:
            return []
        return self.change(rng.choice([*self.table.versions]), everything=rng.random() < 0.3)


def check(params: TmaParams, table: PageTable, traffic: Traffic, run: Run) -> None:
    """Check that each access went to memory once, or failed, by a legal translation."""
    p = params
    to_memory = {
        port: {each.attributes.cache_policy: each for each in run.payloads[port]}
        for port in ("memory_request", "memory_write")
    }
    for port, found in to_memory.items():
        assert len(found) == len(run.payloads[port]), f"{port}: an access went out twice"
    written = [each.attributes.cache_policy for each in run.payloads["memory_write"]]
    assert written == sorted(written), "writes changed their order"

    answers: dict[str, dict[int, list[Any]]] = {"gnic_response": {}, "gnic_ack": {}}
    for port, by_tag in answers.items():
        for answer in run.payloads[port]:
            by_tag.setdefault(answer.tag, []).append(answer)
    fills = iter(run.payloads["descriptor_fill"])
    maps = iter(run.payloads["memory_descriptor_request"])
    for port, accesses in traffic.asked.items():
        for access, clock in zip(accesses, run.taken[port], strict=True):
            legal = table.legal(access.page, clock)
            where = f"{access}, looked up in clock {clock}: legal are {legal}"
            pages = {page for page, present, _ in legal if present}
            may_be_absent = any(not present for _, present, _ in legal)
            if access.kind == "map":
                fill = next(fills)
                assert fill.page == (PageFault.ABSENT if fill.error else PageFault.NONE)
                if fill.error:
                    assert may_be_absent, where
                    continue
                address = next(maps)
                assert fill.words[0] | fill.words[1] << 32 == address
                assert address >> p.tlb_page_bits in pages, where
                assert address % (1 << p.tlb_page_bits) == access.place
                continue
            is_write = access.kind == "write"
            got = to_memory["memory_write" if is_write else "memory_request"].get(access.number)
            if got is not None:
                if is_write:
                    assert got.data == access.number
                    pages = {page for page, present, writable in legal if present and writable}
                assert got.line >> p.page_line_bits in pages, where
                assert got.line % (1 << p.page_line_bits) == access.place
            if access.kind == "prefetch":
                assert got is not None or may_be_absent, where
                continue
            assert got is None or got.tag == access.tag
            answer = answers["gnic_ack" if is_write else "gnic_response"][access.tag].pop(0)
            assert answer.error == (got is None), where
            if got is not None:
                assert answer.page == PageFault.NONE
                assert is_write or answer.data == got.line
            elif answer.page == PageFault.ABSENT:
                assert may_be_absent, where
            else:
                assert answer.page == PageFault.READ_ONLY
                assert is_write, where
                assert any(present and not writable for _, present, writable in legal), where
    left = [answer for by_tag in answers.values() for each in by_tag.values() for answer in each]
    assert not left, "more answers than accesses"
    assert next(fills, None) is next(maps, None) is None
