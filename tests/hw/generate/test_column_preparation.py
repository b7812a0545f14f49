"""Column preparation: counts of pixels and sums of steps, by the definition of a column."""

import random

from hw.generate.column_preparation import ColumnPreparation
from hw.generate.walk_limits import LEAP
from hw.layouts.columns import POSITION_BITS, RESTART_BITS, WHEELS
from hw.layouts.isa import ReductionOp
from hw.params import TmaParams
from tests.hw.paced import Paced
from tests.hw.simulate import run_streams

PARAMS = TmaParams(streams=1)
MOST = (1 << PARAMS.pixel_bits) - 1
ADDRESSES = 1 << PARAMS.piece_address_bits


def random_level(rng: random.Random) -> dict:
    """A dimension whose positions are near its edges, or far from them."""
    far = rng.choice((4, 40, 3000, (1 << POSITION_BITS - 1) - 1))
    far_restart = min(far, (1 << RESTART_BITS - 1) - 1)
    return {
        "absent": rng.random() < 0.2,
        **{name: rng.randint(-far, far) for name in ("position", "last")},
        "restart": rng.randint(-far_restart, far_restart),
        "limit": rng.randrange(min(far, 1 << 32)),
        "stride_less_one": rng.randrange(8),
        "step": rng.randrange(1 << 40),
        "address": rng.randrange(ADDRESSES),
        "restart_address": rng.randrange(ADDRESSES),
    }


def random_job(rng: random.Random, number: int) -> dict:
    levels = [random_level(rng) for _ in range(WHEELS + 1)]
    return {
        "slot": number,
        "walk": {
            "has_data": rng.random() < 0.8,
            "smem_begin": number,
            "write_mode": {"reduction": {"enabled": 1, "op": ReductionOp(number % 8)}},
        },
        "column": {
            "enabled": 1,
            "pixels": rng.randrange(1, 1025),
            "dense": rng.randrange(2),
            "levels": levels,
        },
    }


def pixels_until(end: int, position: int, stride: int) -> int:
    """Pixels from ``position`` on that lie in front of ``end``."""
    return min(max(-(-(end - position) // stride), 0), MOST)


def counts(level: dict, position: int) -> dict[str, int]:
    stride = level["stride_less_one"] + 1
    to_wrap = max(pixels_until(level["last"] + 1, position, stride), 1)
    return {
        "before": pixels_until(0, position, stride),
        "to_limit": pixels_until(level["limit"] + 1, position, stride),
        "to_wrap": 1 if level["absent"] else to_wrap,
    }


def turned(levels: list[dict], level: int) -> tuple[int, list[int]]:
    """The address of the pixel, and the next addresses of H, D and N, after a step of a level."""
    address = levels[level]["address"] + levels[level]["step"]
    following = [each["address"] + each["step"] for each in levels[1:]]
    following[level - 1] = address + levels[level]["step"]
    for below in reversed(range(level)):
        address += levels[below]["restart_address"]
        if below:
            following[below - 1] = address + levels[below]["step"]
    return address % ADDRESSES, [each % ADDRESSES for each in following]


def near_job(rng: random.Random, number: int) -> dict:
    """A column of few pixels, near the edges of the tensor."""
    levels = [
        random_level(rng)
        | {
            "position": rng.randint(-1, 3),
            "restart": rng.randint(-1, 3),
            "last": rng.randint(1, 4),
            "limit": rng.randint(2, 4),
            "stride_less_one": rng.randrange(2),
        }
        for _ in range(WHEELS + 1)
    ]
    job = random_job(rng, number)
    return job | {"column": job["column"] | {"pixels": rng.randrange(1, 9), "levels": levels}}


def outside_behind(job: dict) -> set[str]:
    """Why the pixels behind the first walk are all outside the tensor.

    The walk ends with its row. Behind it there is one row at most, which is outside in H, D or N;
    or all are behind the last image.
    """
    column = job["column"]
    levels, pixels = column["levels"], column["pixels"]
    first, row = (counts(levels[0], levels[0][name])["to_wrap"] for name in ("position", "restart"))
    if first > LEAP and not column["dense"]:
        return set()
    positions = [level["position"] for level in levels]
    moves = 1
    while moves < WHEELS and counts(levels[moves], positions[moves])["to_wrap"] == 1:
        positions[moves] = levels[moves]["restart"]
        moves += 1
    positions[moves] += levels[moves]["stride_less_one"] + 1
    reasons = set()
    if pixels - first <= row:
        reasons = {
            name
            for name, level, position in zip("HDN", levels[1:], positions[1:], strict=True)
            if not 0 <= position <= level["limit"]
        }
    if moves == WHEELS and positions[WHEELS] > levels[WHEELS]["limit"]:
        reasons.add("last image")
    return reasons


def test_a_column_ends_where_the_rest_is_outside() -> None:
    """Each reason decides alone in some columns whose first walk is not their end otherwise."""
    rng = random.Random(4)
    jobs = [near_job(rng, number) for number in range(2000)]
    run = run_streams(Paced(ColumnPreparation(PARAMS)), {"i": jobs}, ["o"], seed=4, stall=0)
    decided = []
    for job, got in zip(jobs, run.payloads["o"], strict=True):
        limits = got.column.limits
        reasons = outside_behind(job)
        ends = limits.is_outside or got.column.pixels <= limits.most
        assert got.column.ends == (ends or bool(reasons)), (job, reasons)
        if not ends:
            decided.append(frozenset(reasons))
    for alone in ("H", "D", "N", "last image"):
        assert decided.count(frozenset({alone})) >= 10, alone
    assert decided.count(frozenset()) >= 100


def test_counts_and_sums() -> None:
    rng = random.Random(1)
    jobs = [random_job(rng, number) for number in range(200)]
    run = run_streams(Paced(ColumnPreparation(PARAMS)), {"i": jobs}, ["o"], seed=1, stall=0.3)
    assert len(run.payloads["o"]) == len(jobs)
    for job, got in zip(jobs, run.payloads["o"], strict=True):
        column, levels = got.column, job["column"]["levels"]
        assert (got.slot, got.walk.smem_begin) == (job["slot"], job["walk"]["smem_begin"])
        assert got.walk.write_mode.reduction.op == job["walk"]["write_mode"]["reduction"]["op"]
        assert column.pixels == job["column"]["pixels"]
        for number, level in enumerate(levels):
            parts = {"image": column.image}
            if number < WHEELS:
                parts = {"position": column.first[number], "restart": column.restart[number]}
            for name, part in parts.items():
                wanted = counts(level, level["position" if name == "image" else name])
                for count in ("before", "to_limit", *(["to_wrap"] if number < WHEELS else [])):
                    assert getattr(part, count) == wanted[count], (number, name, count)
        beside = (
            not level["absent"] and (level["last"] < 0 or level["restart"] > level["limit"])
            for level in levels[:WHEELS]
        )
        is_outside = not job["walk"]["has_data"] or any(beside) or column.image.to_limit == 0
        to_wrap = column.first[0].to_wrap
        most = to_wrap if job["column"]["dense"] else min(to_wrap, LEAP)
        limits = column.limits
        assert (limits.most, limits.stays, limits.is_outside) == (most, most < to_wrap, is_outside)
        assert limits.wraps == sum((column.first[n].to_wrap == 1) << n - 1 for n in (1, 2))
        assert column.ends == (is_outside or column.pixels <= most or bool(outside_behind(job)))
        first = [each["address"] + each["step"] for each in levels[1:]]
        assert list(column.next_address) == [each % ADDRESSES for each in first]
        for level in range(1, WHEELS + 1):
            turn, base = getattr(column, f"turn_{level}"), column.next_address[level - 1]
            address, following = turned(levels, level)
            assert (base + turn.address) % ADDRESSES == address
            sums = [(base + added) % ADDRESSES for added in turn.next_address]
            assert sums == following[:level]


def test_a_job_a_clock() -> None:
    rng = random.Random(2)
    jobs = [random_job(rng, number) for number in range(10)]
    run = run_streams(Paced(ColumnPreparation(PARAMS)), {"i": jobs}, ["o"], stall=0)
    assert run.taken["i"] == list(range(10))
    assert run.cycles["o"] == list(range(5, 15))
