"""Store tracker: one end for each store, at its last answer; each failure is reported once."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from golden.errors import ErrorCode
from hw.params import TmaParams
from hw.store.store_tracker import StoreTracker
from tests.hw.simulate import Run, run_streams, simulation

PARAMS = TmaParams(requests_in_flight=4)
OUTPUTS = ["o", "source_read", "complete", "error"]


@dataclass
class Store:
    """A request: its jobs, and the reports of its lines."""

    number: int
    jobs: int
    reports: list[dict] = field(default_factory=list)
    slot: int | None = None
    read: bool = False  # its source; the last line is answered after that

    @property
    def group(self) -> dict[str, int]:
        index = self.number % PARAMS.bulk_groups
        return {"joined": self.number % 3 > 0, "thread": 2 * self.number, "index": index}

    @property
    def failed(self) -> list[int]:
        return [reported["line"] for reported in self.reports if reported["failed"]]

    def inputs(self) -> list[dict]:
        return [
            {
                "first": job == 0,
                "last": job == self.jobs - 1,
                "group": self.group,
                "transfer": {"request_id": 3 * self.number, "mbarrier": 0, "pieces": 0},
                "walk": {"start": 10 * self.number + job},
            }
            for job in range(self.jobs)
        ]


def random_store(rng: random.Random, number: int) -> Store:
    """Return a store whose number of lines comes with any of its answers, or by itself."""
    store = Store(number, rng.choice((1, 1, 2, 3)))
    lines = rng.choice((0, 1, 1, 2, 3, 9, 30))
    fails = rng.choice((0, 0, 0, 0.2, 1))
    for _ in range(lines):
        failed = rng.random() < fails
        line = rng.randrange(1 << PARAMS.line_address_bits)
        store.reports.append(
            {"answered": 1, "failed": failed, "line": line, "total_valid": 0, "total_lines": 0}
        )
    if lines and rng.random() < 0.6:
        rng.choice(store.reports).update(total_valid=1, total_lines=lines)
    else:
        alone = {
            "answered": 0,
            "failed": rng.getrandbits(1),
            "line": 7,
            "total_valid": 1,
            "total_lines": lines,
        }
        store.reports.insert(rng.randint(0, lines), alone)
    return store


class Driver:
    """Reports lines of open stores to the tracker, in the clocks that ``may_report`` gives."""

    def __init__(
        self, stores: list[Store], seed: int, may_report: Callable[[int], bool] = lambda _: True
    ):
        self.stores = stores
        self.rng = random.Random(seed)
        self.may_report = may_report
        self.open: dict[int, Store] = {}  # by slot
        self.jobs = self.completed = self.read = self.most = 0
        self.reading: list[Store] = []
        self.reported: list[Store] = []  # the store of each report

    def feed(self, run: Run, cycle: int) -> dict[str, list]:
        threads = {store.group["thread"]: store for store in self.stores}
        for group in run.payloads["complete"][self.completed :]:
            slot = threads[group.thread].slot
            assert slot is not None
            del self.open[slot]
        self.completed = len(run.payloads["complete"])
        slots = []
        order = [(store, job) for store in self.stores for job in range(store.jobs)]
        for number, passed in enumerate(run.payloads["o"][self.jobs :], self.jobs):
            store, job = order[number]
            if job == 0:
                assert passed.slot not in self.open, "a slot given twice"
                store.slot = passed.slot
                self.open[passed.slot] = store
            assert (passed.slot, passed.last) == (store.slot, job == store.jobs - 1)
            assert passed.walk.start == 10 * store.number + job
            if passed.last:
                self.reading.append(store)
                slots.append(store.slot)
        self.jobs = len(run.payloads["o"])
        for store in self.reading[self.read : len(run.taken["slot_read"])]:
            store.read = True
        self.read = len(run.taken["slot_read"])
        self.most = max(self.most, len(self.open))
        return {"slot_read": slots, "performed": self.next_report(cycle)}

    def next_report(self, cycle: int) -> list[dict]:
        able = [store for store in self.open.values() if len(store.reports) > (not store.read)]
        if not able or not self.may_report(cycle):
            return []
        store = self.rng.choice(able)
        self.reported.append(store)
        return [store.reports.pop(0) | {"slot": store.slot}]


def track(stores: list[Store], drive: Driver, **options) -> Run:
    jobs = [job for store in stores for job in store.inputs()]
    inputs: dict[str, list] = {"i": jobs, "slot_read": [], "performed": []}
    return run_streams(
        simulation(StoreTracker, PARAMS), inputs, OUTPUTS, feed=drive.feed, **options
    )


def as_tuple(group) -> tuple[int, int, int]:
    return group.joined, group.thread, group.index


@pytest.mark.parametrize(
    ("seed", "stall", "stalls"),
    [(0, 0.3, {}), (1, 0.6, {}), (2, 0, {}), (3, 0.1, {"error": 0.95}), (4, 0, {"complete": 0.9})],
)
def test_every_store_ends_once(seed, stall, stalls):
    rng = random.Random(seed)
    stores = [random_store(rng, number) for number in range(60)]
    failed = {store.number: store.failed[-1] for store in stores if store.failed}
    drive = Driver(stores, seed)
    run = track(stores, drive, seed=seed, stall=stall, stalls=stalls)

    # The source of each store, in the order of the slots.
    groups = [tuple(store.group.values()) for store in drive.reading]
    assert len(groups) == len(stores)
    assert [as_tuple(group) for group in run.payloads["source_read"]] == groups
    assert run.offered["source_read"] == [cycle + 1 for cycle in run.taken["slot_read"]]

    # The end of each, once, two clocks after its last report and behind the end before; of a failed
    # one, once there is room.
    last_told = dict(
        zip((store.number for store in drive.reported), run.taken["performed"], strict=True)
    )
    in_order = sorted(stores, key=lambda store: last_told[store.number])
    groups = [tuple(store.group.values()) for store in in_order]
    assert [as_tuple(group) for group in run.payloads["complete"]] == groups
    before = [-1, *run.cycles["complete"]]
    for store, offered, end in zip(in_order, run.offered["complete"], before, strict=False):
        wanted = max(last_told[store.number] + 2, end + 1)
        assert offered == wanted or (store.number in failed and offered > wanted)

    records = [
        (record.request_id, record.code.value, record.dim, record.value)
        for record in run.payloads["error"]
    ]
    assert records == [
        (3 * n, ErrorCode.GMEM_FAULT, 0, failed[n] * PARAMS.line_bytes)
        for n in (store.number for store in in_order)
        if n in failed
    ]
    assert drive.most == PARAMS.requests_in_flight


def test_a_store_waits_for_a_slot():
    """Nothing is reported: as many stores as slots pass, and one more when one has ended."""
    stores = [Store(number, 2) for number in range(7)]
    for store in stores:
        store.reports = [
            {"answered": 1, "failed": 0, "line": 5, "total_valid": 1, "total_lines": 1}
        ]
    drive = Driver(stores, 0, lambda cycle: cycle in (50, 90))
    run = track(stores, drive, stall=0, until=lambda run: len(run.payloads["o"]) == 12)
    assert run.cycles["o"][7] < 20
    assert 50 < run.cycles["o"][8] < 60
    assert 90 < run.cycles["o"][10] < 100


@pytest.mark.parametrize("slots", [1, 2])
def test_one_answer_a_clock(slots):
    """The answers are of one slot, or of two slots in turn."""
    stores = [Store(number, 1) for number in range(slots)]
    reported = {"answered": 1, "failed": 0, "line": 5, "total_valid": 0, "total_lines": 0}
    for store in stores:
        store.reports = [{**reported, "total_valid": n == 20, "total_lines": 40} for n in range(40)]
    drive = Driver(stores, 0)
    run = track(stores, drive, stall=0)
    times = run.taken["performed"]
    assert len(times) == 40 * slots
    assert times[-1] - times[-39] == 38
    assert len(run.payloads["complete"]) == slots
