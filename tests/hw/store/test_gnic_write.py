"""GNIC write port: tags, answers out of order, and the number of lines of each store."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from amaranth.sim import Simulator

from hw.params import PIECE_BYTES, TmaParams
from hw.store.gnic_write import GnicWrite
from tests.hw.simulate import Run, run_streams

PARAMS = TmaParams(line_bytes=32, tags=8, requests_in_flight=8, cp_mask=True)
SLOTS = PARAMS.requests_in_flight


def line_of(number: int, slot: int, valid: int, last: bool) -> dict:
    return {
        "last": last,
        "write_mode": {
            "reduction": {"enabled": number % 2, "op": number % 8, "element_type": number % 11},
            "byte_mask": number * 40503 % (1 << 16),
        },
        "attributes": {"l2_promotion": number % 4, "cache_policy": 5 * number},
        "slot": slot,
        "line": number,
        "valid": valid,
        "has_pieces": valid != 0,
        "data": [number * 7 + lane for lane in range(PARAMS.lanes)],
    }


@dataclass
class Store:
    """A request and its lines; ``writes`` are the lines with pieces."""

    lines: list[dict] = field(default_factory=list)

    @property
    def slot(self) -> int:
        return self.lines[0]["slot"]

    @property
    def writes(self) -> list[dict]:
        return [line for line in self.lines if line["valid"]]


def random_stores(rng: random.Random, count: int) -> list[Store]:
    """Return stores; a slot comes again after ``SLOTS`` others, a third ends with an empty line."""
    stores, number = [], 1000
    for request in range(count):
        lines = []
        for _ in range(rng.choice((0, 1, 1, 2, 5, 20))):
            valid = rng.randrange(1, 1 << PARAMS.lanes)
            lines.append(line_of(number, request % SLOTS, valid, False))
            number += 1
        if not lines or rng.random() < 0.3:
            lines.append(line_of(number, request % SLOTS, 0, True))
            number += 1
        lines[-1]["last"] = True
        stores.append(Store(lines))
    return stores


class Memory:
    """Memory that answers writes in any order, fails every fifth line, and checks the tags."""

    def __init__(self, rng: random.Random, share: float, most: int = PARAMS.tags):
        self.rng = rng
        self.share = share
        self.most = most
        self.seen = self.given = 0
        self.open: dict[int, int] = {}  # tag -> line
        self.order: list[int] = []  # tags, as answered
        self.answered: list[int] = []  # lines, as answered
        self.fullest = 0

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        for tag in self.order[self.given : len(run.taken["ack"])]:
            del self.open[tag]
        self.given = len(run.taken["ack"])
        for write in run.payloads["request"][self.seen :]:
            assert write.tag not in self.open, "a tag in flight twice"
            self.open[write.tag] = write.line
        self.seen = len(run.payloads["request"])
        self.fullest = max(self.fullest, len(self.open))
        free = [tag for tag in self.open if tag not in self.order[self.given :]]
        if not free or self.rng.random() >= self.share:
            return {}
        tag = self.rng.choice(free)
        self.order.append(tag)
        self.answered.append(self.open[tag])
        return {"ack": [{"tag": tag, "error": self.open[tag] % 5 == 0}]}


def run_of(stores: list[Store], memory: Memory, **options) -> Run:
    inputs = {"i": [line for store in stores for line in store.lines], "ack": []}
    return run_streams(
        GnicWrite(PARAMS), inputs, ["request", "performed"], feed=memory.feed, **options
    )


@pytest.mark.parametrize("seed", range(3))
def test_every_line_is_written_and_accounted_for(seed):
    rng = random.Random(seed)
    stores = random_stores(rng, 60)
    memory = Memory(rng, 0.4)
    run = run_of(stores, memory, seed=seed, stall=0.3)
    writes = [line for store in stores for line in store.writes]
    for line, got in zip(writes, run.payloads["request"], strict=True):
        assert got.line == line["line"]
        assert got.attributes.cache_policy == line["attributes"]["cache_policy"]
        assert got.attributes.l2_promotion.value == line["attributes"]["l2_promotion"]
        reduction = line["write_mode"]["reduction"]
        assert got.reduction.enabled == reduction["enabled"]
        assert got.reduction.op.value == reduction["op"]
        assert got.reduction.element_type.value == reduction["element_type"]
        data = sum(piece << 128 * lane for lane, piece in enumerate(line["data"]))
        assert got.data == data
        masks = (line["write_mode"]["byte_mask"] * (line["valid"] >> n & 1) for n in range(2))
        assert got.strobe == sum(mask << PIECE_BYTES * lane for lane, mask in enumerate(masks))

    of_line = {line["line"]: store for store in stores for line in store.lines}
    ends: Counter[int] = Counter()
    answered = deque(memory.answered)
    empty = deque(store for store in stores if not store.lines[-1]["valid"])
    for news in run.payloads["performed"]:
        if news.answered:
            line = answered.popleft()
            store = of_line[line]
            assert (news.slot, news.failed) == (store.slot, line % 5 == 0)
            assert not news.failed or news.line == line
            assert news.total_valid == (line == store.lines[-1]["line"])
        else:
            store = empty.popleft()
            assert news.total_valid
            assert news.slot == store.slot
        if news.total_valid:
            assert news.total_lines == len(store.writes)
            ends[stores.index(store)] += 1
    assert not answered
    assert not empty
    assert ends == Counter(range(len(stores)))


def test_a_line_waits_for_a_tag():
    """Nothing is answered at first: as many writes as tags go out; each answer frees one."""
    stores = [Store([line_of(n, 0, 3, n == 19) for n in range(20)])]
    memory = Memory(random.Random(0), 1)

    def late(run: Run, cycle: int) -> dict[str, list]:
        memory.share = cycle >= 50
        return memory.feed(run, cycle)

    inputs = {"i": stores[0].lines, "ack": []}
    run = run_streams(
        GnicWrite(PARAMS), inputs, ["request", "performed"], feed=late, stall=0, quiet=60
    )
    times = run.cycles["request"]
    assert len(times) == 20
    assert times[PARAMS.tags - 1] < 20
    assert times[PARAMS.tags] >= 50
    assert memory.fullest == PARAMS.tags


def test_one_write_and_one_answer_a_clock():
    """Lines of many stores, none without pieces; a tag comes back after three clocks."""
    stores = [Store([line_of(8 * n + k, n % 4, 3, k == 7) for k in range(8)]) for n in range(12)]
    run = run_of(stores, Memory(random.Random(0), 1), stall=0)
    for name in ("request", "performed"):
        times = run.cycles[name]
        assert len(times) == times[-1] - times[0] + 1 == 96
    assert run.cycles["request"][0] == run.taken["i"][0]
    assert run.cycles["performed"][0] - run.taken["ack"][0] == 2


def test_stores_without_lines_do_not_wait_for_tags():
    """All tags are in flight, and no answer comes."""
    full = Store([line_of(n, 0, 3, n == PARAMS.tags - 1) for n in range(PARAMS.tags)])
    nothing = [Store([line_of(100 + n, 1 + n, 0, True)]) for n in range(5)]
    run = run_of([full, *nothing], Memory(random.Random(0), 0), stall=0)
    assert [(news.slot, news.total_lines) for news in run.payloads["performed"]] == [
        (1 + n, 0) for n in range(5)
    ]
    times = run.cycles["performed"]
    assert times[-1] - times[0] == 4


@pytest.mark.parametrize("seed", range(3))
def test_wrong_tags_are_dropped_and_reported(seed):
    """Answers of random tags among the right ones: only those of tags in flight count."""
    rng = random.Random(seed)
    dut = GnicWrite(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    performed: list[int] = []
    expected: list[int] = []
    wrong: list[int] = []
    reported: list[int] = []

    @sim.add_testbench
    async def drive(ctx):
        number, offered, moved = 0, None, False
        memory: dict[int, int] = {}  # tag -> line
        ctx.set(dut.i.valid, 1)
        for clock in range(3000):
            last = clock > 2950
            valid = 0 if rng.random() < 0.2 else 3
            if clock == 0 or moved:
                ctx.set(dut.i.p, line_of(number, number % SLOTS, valid, True))
                ctx.set(dut.i.valid, not last)
            ctx.set(dut.request.ready, rng.random() < 0.7)
            ctx.set(dut.performed.ready, last or rng.random() < 0.7)
            ctx.set(dut.wrong_tag.ready, last or rng.random() < 0.5)
            if offered is None and not last and rng.random() < 0.6:
                right = memory and rng.random() < 0.6
                offered = rng.choice(list(memory)) if right else rng.randrange(PARAMS.tags)
                ctx.set(dut.ack.p, {"tag": offered, "error": 1})
            ctx.set(dut.ack.valid, offered is not None)
            taken = offered is not None and ctx.get(dut.ack.ready)
            asks = ctx.get(dut.request.valid) and ctx.get(dut.request.ready)
            tag, line = ctx.get(dut.request.p.tag), ctx.get(dut.request.p.line)
            moved = ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            number += moved
            if ctx.get(dut.wrong_tag.valid) and ctx.get(dut.wrong_tag.ready):
                reported.append(ctx.get(dut.wrong_tag.payload))
            if ctx.get(dut.performed.valid) and ctx.get(dut.performed.ready):
                news = ctx.get(dut.performed.p)
                if news.answered:
                    performed.append(news.line)
            if taken:
                if offered in memory:
                    expected.append(memory.pop(offered))
                else:
                    wrong.append(offered)
                offered = None
            if asks:
                assert tag not in memory, "a tag in flight twice"
                memory[tag] = line
            await ctx.tick()

    sim.run()
    assert performed == expected
    assert reported == wrong
    assert min(len(performed), len(reported)) > 100
