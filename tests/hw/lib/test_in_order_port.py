"""In-order port: each user gets its answers; one read per clock, in turn."""

import random
from collections import deque
from dataclasses import replace

import pytest

from hw.layouts.ports import lanes_layout, smem_read_layout
from hw.lib.in_order_port import InOrderPort
from hw.params import TmaParams
from tests.hw.simulate import run_streams, simulation

PARAMS = TmaParams(line_bytes=32, smem_reads=4, ctas=2)


OUTSTANDING = 24


class Ports(InOrderPort):
    """Read port of two users, with a name for each user's port, which the simulation needs."""

    def __init__(self, params: TmaParams) -> None:
        super().__init__(smem_read_layout(params), lanes_layout(params), 2, OUTSTANDING)

    def __getattr__(self, name):
        if name.startswith(("read_", "data_")):
            side, user = name.split("_")
            return {"read": self.i, "data": self.answer}[side][int(user)]
        names = {"smem_read": "o", "smem_data": "o_answer"}
        if name in names:
            return getattr(self, names[name])
        raise AttributeError(name)


def reads(params: TmaParams, user: int, number: int) -> list[list[dict[str, int]]]:
    """Return reads of different beats and lanes."""
    lanes = range(params.lanes)
    return [
        [{"valid": (at >> lane & 1) ^ 1, "beat": 1000 * user + 100 * lane + at} for lane in lanes]
        for at in range(number)
    ]


def answer(read) -> list[int]:
    """Return the data of a read, lane by lane."""
    return [(lane["beat"] + 1) * 0x9E3779B97F4A7C15 % (1 << 128) + lane["valid"] for lane in read]


def simulate(params, numbers, *, latency=lambda: 1, answers=True, **options):
    """Run ``numbers`` reads of each user; memory answers in order after ``latency`` clocks."""
    waiting: deque[tuple[int, list[int]]] = deque()
    seen = 0
    sent = {f"read_{user}": reads(params, user, number) for user, number in enumerate(numbers)}

    def feed(run, cycle):
        nonlocal seen
        for read in run.payloads["smem_read"][seen:]:
            lanes = [{"valid": lane.valid, "beat": lane.beat} for lane in read]
            waiting.append((cycle - 1 + latency(), answer(lanes)))
            seen += 1
        ripe = []
        while answers and waiting and waiting[0][0] <= cycle:
            ripe.append(waiting.popleft()[1])
        return {"smem_data": ripe}

    outputs = ["smem_read", "data_0", "data_1"]
    run = run_streams(
        simulation(Ports, params), {**sent, "smem_data": []}, outputs, feed=feed, **options
    )
    return sent, run


def check(sent, run):
    for user in range(2):
        got = [list(item) for item in run.payloads[f"data_{user}"]]
        assert got == [answer(read) for read in sent[f"read_{user}"]]
    asked = [
        [{"valid": lane.valid, "beat": lane.beat} for lane in read]
        for read in run.payloads["smem_read"]
    ]
    for user in range(2):
        mine = [read for read in asked if read[0]["beat"] // 1000 == user]
        assert mine == sent[f"read_{user}"]


@pytest.mark.parametrize("params", [PARAMS, replace(PARAMS, line_bytes=16)])
@pytest.mark.parametrize("seed", range(4))
def test_each_gets_its_answers(seed, params):
    rng = random.Random(seed)
    ports = ["read_0", "read_1", "data_0", "data_1", "smem_read", "smem_data"]
    stalls = {port: rng.choice((0, 0.3, 0.8)) for port in ports}
    numbers = rng.choice(((90, 90), (90, 20), (0, 60)))
    sent, run = simulate(
        params, numbers, latency=lambda: rng.randrange(1, 40), seed=seed, stalls=stalls
    )
    check(sent, run)


@pytest.mark.parametrize("latency", [1, 2, 10, 23])
def test_a_read_a_clock_in_turn(latency):
    """The reads that may be unanswered hide a memory latency of 23 clocks."""
    sent, run = simulate(PARAMS, (50, 50), latency=lambda: latency, stall=0)
    check(sent, run)
    assert run.cycles["smem_read"] == list(range(100))
    assert [read[0].beat // 1000 for read in run.payloads["smem_read"]] == [0, 1] * 50
    first = max(2, latency)  # of the first answer
    assert run.cycles["data_0"] == list(range(first, first + 100, 2))
    assert run.cycles["data_1"] == list(range(first + 1, first + 100, 2))


def test_one_alone_has_all_clocks():
    sent, run = simulate(PARAMS, (0, 60), stall=0)
    check(sent, run)
    assert run.cycles["smem_read"] == list(range(60))
    assert run.cycles["data_1"] == list(range(2, 62))


def test_reads_wait_while_none_is_answered():
    clocks = iter(range(100))
    _, run = simulate(
        PARAMS, (50, 50), stall=0, answers=False, until=lambda _: next(clocks, None) is None
    )
    assert len(run.payloads["smem_read"]) == OUTSTANDING


def test_an_answer_waits_for_its_user_only():
    """Only the answers behind one that is not taken wait."""
    clocks = iter(range(100))
    _, run = simulate(
        PARAMS,
        (0, 3),
        stall=0,
        stalls={"data_0": 1},
        until=lambda _: next(clocks, None) is None,
    )
    assert len(run.payloads["data_1"]) == 3
    clocks = iter(range(100))
    _, run = simulate(
        PARAMS,
        (2, 3),
        stall=0,
        stalls={"data_1": 1},
        until=lambda _: next(clocks, None) is None,
    )
    assert len(run.payloads["data_0"]) == 1
