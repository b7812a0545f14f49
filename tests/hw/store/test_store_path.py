"""Store path: every line with the bytes of its swizzled addresses, in order, a line a clock."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

import pytest

from golden import Swizzle
from golden.geometry import swizzled
from hw.layouts.isa import Packing, SwizzleAtom
from hw.layouts.isa import Swizzle as Span
from hw.params import PRESETS, TmaParams
from hw.store.store_path import COMPLETE_LINES, StorePath
from tests.hw.simulate import Run, run_streams, simulation

PIECES = 1 << TmaParams().smem_piece_bits
"""Pieces of shared memory."""

BLOCK = 8
"""Pieces that a swizzle moves about among each other."""

STYLES = {
    Swizzle.NONE: (Span.NONE, SwizzleAtom.ATOM_16B),
    Swizzle.SWIZZLE_32B: (Span.SPAN_32B, SwizzleAtom.ATOM_16B),
    Swizzle.SWIZZLE_64B: (Span.SPAN_64B, SwizzleAtom.ATOM_16B),
    Swizzle.SWIZZLE_128B: (Span.SPAN_128B, SwizzleAtom.ATOM_16B),
    Swizzle.SWIZZLE_128B_ATOM_32B: (Span.SPAN_128B, SwizzleAtom.ATOM_32B),
    Swizzle.SWIZZLE_128B_ATOM_64B: (Span.SPAN_128B, SwizzleAtom.ATOM_64B),
    Swizzle.SWIZZLE_96B: (Span.SPAN_32B, SwizzleAtom.ATOM_16B),
}
"""Those of stores. 96B is 32B on rows of another length."""

HOPPER = tuple(Swizzle(number) for number in range(4))
OF_SIXES = (
    Swizzle.NONE,
    Swizzle.SWIZZLE_128B,
    Swizzle.SWIZZLE_128B_ATOM_32B,
    Swizzle.SWIZZLE_128B_ATOM_64B,
)


def word(piece: int) -> int:
    """Return the contents of a piece of shared memory."""
    mixed = (piece + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835
    return (mixed ^ mixed >> 77) % (1 << 128)


def moved(piece: int, swizzle: Swizzle) -> int:
    return int(swizzled(16 * piece, swizzle)) // 16


def packed_row(row: int, swizzle: Swizzle) -> int:
    """Return six bits of each of 128 bytes, packed, the first one lowest."""
    pieces = (word(moved(BLOCK * row + n, swizzle)) for n in range(BLOCK))
    codes = b"".join(piece.to_bytes(16, "little") for piece in pieces)
    return sum((code & 0x3F) << 6 * n for n, code in enumerate(codes))


@dataclass(frozen=True)
class Line:
    """A line of a store, as the generator gives it."""

    number: int
    origin: int
    valid: int
    swizzle: Swizzle = Swizzle.NONE
    packs: bool = False
    short_rows: bool = False
    last: bool = False
    slot: int = 0
    second: int = 0
    """Those of ``valid`` that are the second row, whose lane 0 is at ``second_origin``."""
    second_origin: int = 0

    def sources(self) -> dict[int, int]:
        """Return, for each lane, the piece of shared memory before the swizzle."""
        origins = self.origin, self.second_origin
        lanes = (lane for lane in range(self.valid.bit_length()) if self.valid >> lane & 1)
        return {lane: (origins[self.second >> lane & 1] + lane) % PIECES for lane in lanes}

    def reads(self) -> list[int]:
        """Return the pieces of shared memory that the line needs."""
        sources = self.sources().values()
        if self.packs:
            rows = {piece // BLOCK for piece in sources}
            sources = [BLOCK * row + n for row in rows for n in range(BLOCK)]
        return [moved(piece, self.swizzle) for piece in sources]

    def data(self) -> dict[int, int]:
        """Return the bytes of each lane."""
        if not self.packs:
            return {lane: word(moved(at, self.swizzle)) for lane, at in self.sources().items()}
        places = {lane: divmod(piece, BLOCK) for lane, piece in self.sources().items()}
        rows = {row: packed_row(row, self.swizzle) for row, _ in places.values()}
        if self.short_rows:  # the second row of a block starts at its fifth piece
            places = {lane: (row, n - n // 4) for lane, (row, n) in places.items()}
        return {lane: rows[row] >> 128 * n & (1 << 128) - 1 for lane, (row, n) in places.items()}

    def payload(self, params: TmaParams) -> dict:
        span, atom = STYLES[self.swizzle]
        style = {"swizzle": span, "fill": 0, "round_tf32": 0}
        if params.swizzle_atoms:
            style["atom"] = atom
        if params.sub_byte:
            style["packing"] = Packing.BYTES_12 if self.packs else Packing.NONE
        if params.b6p2x16_64:
            style["short_rows"] = self.short_rows
        writing = {}
        if params.reductions:
            of = {"enabled": self.number % 2, "op": self.number % 8, "element_type": 3}
            writing["reduction"] = of
        if params.cp_mask:
            writing["byte_mask"] = self.number % 65521
        rows = {}
        if params.gathers_rows:
            rows = {"second": self.second, "second_origin": self.second_origin}
        return {
            "last": self.last,
            "write_mode": writing,
            "attributes": {"l2_promotion": self.number % 4, "cache_policy": 3 * self.number},
            "slot": self.slot,
            "style": style,
            "line": self.number,
            "origin": self.origin,
            "valid": self.valid,
            **rows,
        }


class SharedMemory:
    """Shared memory that answers reads in order, each some clocks later."""

    def __init__(self, params: TmaParams, seed: int, latency: tuple[int, int]):
        self.params = params
        self.rng = random.Random(seed)
        self.latency = latency
        self.seen = 0
        self.waiting: deque[tuple[int, list[int]]] = deque()

    def feed(self, run: Run, cycle: int) -> dict[str, list]:
        reads = run.payloads["smem_read"]
        while self.seen < len(reads):
            words = [
                word(lane.beat * self.params.lanes + number)
                if lane.valid
                else self.rng.getrandbits(128)
                for number, lane in enumerate(lanes_of(self.params, reads[self.seen]))
            ]
            asked = run.cycles["smem_read"][self.seen]
            self.waiting.append((asked + self.rng.randint(*self.latency), words))
            self.seen += 1
        answers = []
        while self.waiting and self.waiting[0][0] <= cycle:
            answers.append(self.waiting.popleft()[1])
        return {"smem_data": answers}


def lanes_of(params: TmaParams, beat) -> Iterator:
    return (beat[lane] for lane in range(params.lanes))


def fetch(
    params: TmaParams, lines: list[Line], *, latency: tuple[int, int], seed: int = 0, stall: float
) -> Run:
    memory = SharedMemory(params, seed, latency)
    run = run_streams(
        simulation(StorePath, params),
        {"i": [line.payload(params) for line in lines], "smem_data": []},
        ["o", "smem_read", "source_read"],
        feed=memory.feed,
        seed=seed,
        stall=stall,
        quiet=30,
    )
    check(params, lines, run)
    return run


def check(params: TmaParams, lines: list[Line], run: Run) -> None:
    """Compare the bytes and the reads, and when the source of each request is reported as read."""
    written = run.payloads["o"]
    assert [line.line for line in written] == [line.number for line in lines]
    for line, got in zip(lines, written, strict=True):
        given = line.payload(params)
        for name in ("last", "slot", "valid"):
            assert getattr(got, name) == given[name]
        assert got.attributes.cache_policy == given["attributes"]["cache_policy"]
        assert got.attributes.l2_promotion.value == given["attributes"]["l2_promotion"]
        if params.reductions:
            assert got.write_mode.reduction.enabled == given["write_mode"]["reduction"]["enabled"]
            assert got.write_mode.reduction.op.value == given["write_mode"]["reduction"]["op"]
        if params.cp_mask:
            assert got.write_mode.byte_mask == given["write_mode"]["byte_mask"]
        assert {lane: got.data[lane] for lane in line.sources()} == line.data(), line

    # Each piece is read once for each line that needs it; a line is read at its last answer.
    owners: dict[int, deque[int]] = {}
    for number, line in enumerate(lines):
        for piece in line.reads():
            owners.setdefault(piece, deque()).append(number)
    read = list(run.taken["i"])
    order: list[list[int]] = [[] for _ in range(params.lanes)]
    for beat, cycle in zip(run.payloads["smem_read"], run.taken["smem_data"], strict=True):
        assert any(lane.valid for lane in lanes_of(params, beat)), "a read of nothing"
        for number, lane in enumerate(lanes_of(params, beat)):
            if lane.valid:
                line = owners[lane.beat * params.lanes + number].popleft()
                read[line] = max(read[line], cycle)
                order[number].append(line)
    assert not any(owners.values())
    assert all(numbers == sorted(numbers) for numbers in order), "an older line is read later"

    lasts = [number for number, line in enumerate(lines) if line.last]
    assert run.payloads["source_read"] == [lines[number].slot for number in lasts]
    all_read = list(accumulate(read, max))
    for number, offered, taken in zip(
        lasts, run.offered["source_read"], run.cycles["source_read"], strict=True
    ):
        assert all_read[number] < offered
        assert taken < run.offered["o"][number]

    # ``smem_reads`` lines wait for their bytes at most, and those behind them for ``o``.
    most = params.smem_reads + COMPLETE_LINES
    for late in range(most, len(lines)):
        assert run.taken["i"][late] > run.cycles["o"][late - most]


def random_lines(
    rng: random.Random, params: TmaParams, swizzles: tuple[Swizzle, ...], count: int
) -> list[Line]:
    """Return lines anywhere; some begin at the end of the address space and wrap."""
    lanes = params.lanes
    lines: list[Line] = []
    while len(lines) < count:
        first = rng.randrange(lanes)
        pieces = rng.choice((lanes - first, rng.randint(1, lanes - first)))
        smem = rng.choice((rng.randrange(256), rng.randrange(PIECES - lanes)))
        last = rng.random() < 0.3
        valid = 0 if last and rng.random() < 0.3 else (1 << pieces) - 1 << first
        packs = params.sub_byte and rng.random() < 0.4
        short_rows = params.b6p2x16_64 and rng.random() < 0.5
        if packs:  # of a row of six pieces, or of three
            row = 3 if short_rows else 6
            begin = rng.randrange(row)
            start = rng.choice((0, 4)) if short_rows else 0
            smem = smem // BLOCK * BLOCK + start + begin
            valid &= (1 << first + row - begin) - 1
        second = second_smem = 0
        if params.gathers_rows and not packs and rng.random() < 0.4:
            # Two rows, each of them in a beat of its own or in the same one.
            row = rng.randint(1, lanes // 2)
            first = rng.randint(0, lanes - 2 * row)
            begin = rng.randint(first + row, lanes - row)
            smem, second_smem = (
                rng.randrange(PIECES // lanes) * lanes + rng.randint(0, lanes - row) for _ in "12"
            )
            second = (1 << row) - 1 << begin
            valid = (1 << row) - 1 << first | second
            second_smem -= begin
        of_sixes = (*OF_SIXES, Swizzle.SWIZZLE_64B) if short_rows else OF_SIXES
        swizzle = rng.choice(of_sixes if packs else swizzles)
        lines.append(
            Line(
                number=1000 + len(lines),
                origin=(smem - first) % PIECES,
                valid=valid,
                swizzle=swizzle,
                packs=packs,
                short_rows=short_rows,
                last=last,
                slot=rng.randrange(params.requests_in_flight),
                second=second,
                second_origin=second_smem % PIECES,
            )
        )
    lines[-1] = replace(lines[-1], last=True)
    return lines


SMALL = TmaParams(smem_reads=4, requests_in_flight=8)


@pytest.mark.parametrize(
    ("params", "swizzles", "stall"),
    [
        (SMALL, HOPPER, 0),
        (TmaParams(), HOPPER, 0.1),
        (replace(SMALL, line_bytes=32), HOPPER, 0.5),
        (replace(SMALL, line_bytes=16), HOPPER, 0.3),
        (replace(PRESETS["sm_107a"], smem_reads=8), tuple(STYLES), 0.3),
    ],
    ids=["128", "default", "32", "16", "sm_107a"],
)
def test_lines_get_the_bytes_of_their_addresses(params, swizzles, stall):
    rng = random.Random(len(swizzles) + params.lanes)
    lines = random_lines(rng, params, swizzles, 100)
    fetch(params, lines, latency=(1, 9), seed=params.lanes, stall=stall)


def run_of_lines(first: int, count: int, swizzle: Swizzle, params: TmaParams) -> list[Line]:
    """Return full lines of one run to the pieces from ``first`` on; the store ends with them."""
    lanes = params.lanes
    return [
        Line(n, first + n * lanes, (1 << lanes) - 1, swizzle, last=n == count - 1)
        for n in range(count)
    ]


LATENCY = 12


@pytest.mark.parametrize(
    ("swizzle", "first"),
    [
        (Swizzle.NONE, 3),
        (Swizzle.SWIZZLE_32B, 0),
        (Swizzle.SWIZZLE_64B, 5),
        (Swizzle.SWIZZLE_128B, 1),
    ],
)
def test_a_line_a_clock(swizzle, first):
    """Also if the two parts of a line need the same lanes."""
    params = TmaParams()
    lines = run_of_lines(first, 64, swizzle, params)
    run = fetch(params, lines, latency=(LATENCY, LATENCY), stall=0)
    times = run.cycles["o"]
    assert times[-1] - times[0] <= len(lines) + 2


def test_full_lines_keep_the_lanes_busy_however_they_come():
    """Lines of many stores at once: at least nine lines in ten clocks."""
    params = TmaParams()
    lines = run_of_lines(3, 100, Swizzle.SWIZZLE_128B, params)
    random.Random(7).shuffle(lines)
    run = fetch(params, lines, latency=(LATENCY, LATENCY), stall=0)
    assert run.cycles["o"][-1] - run.cycles["o"][0] <= len(lines) / 0.9


def test_a_report_stays_until_it_is_taken():
    """While the places for complete lines fill up; ``run_streams`` sees a report that is withdrawn.

    Each line ends a store, and has to wait for its report and for a place.
    """
    params = SMALL
    lines = [replace(line, last=True) for line in run_of_lines(0, 40, Swizzle.NONE, params)]
    fetch(params, lines, latency=(1, 1), seed=1, stall=0.6)


@pytest.mark.parametrize(("reads", "latency"), [(4, 5), (32, 6), (64, 7)])
def test_latency_of_a_line(reads, latency):
    params = TmaParams(smem_reads=reads)
    run = fetch(params, run_of_lines(0, 1, Swizzle.NONE, params), latency=(1, 1), stall=0)
    assert run.cycles["o"][0] - run.taken["i"][0] == latency
