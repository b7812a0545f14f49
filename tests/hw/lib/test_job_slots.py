"""Job slots: one slot for all jobs of a request, and no slot for two requests at once."""

import random

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import data

from hw.layouts.isa import GLOBAL_ADDRESS_BITS, ErrorCode
from hw.layouts.translation import PageFault, cause_field
from hw.lib.job_slots import JobSlots, failure
from hw.params import TmaParams
from tests.hw.simulate import Run, evaluate, run_streams

PARAMS = TmaParams(requests_in_flight=4, im2col=False)


def jobs_of(rng: random.Random, requests: int) -> list[dict]:
    """Jobs of ``requests`` requests, numbered by ``start``; one request in five is a prefetch."""
    jobs = []
    for _ in range(requests):
        count, prefetch = rng.choice((1, 1, 2, 4)), rng.random() < 0.2
        for number in range(count):
            walk = {"start": len(jobs), "prefetch": prefetch}
            jobs.append({"first": number == 0, "last": number == count - 1, "walk": walk})
    return jobs


class Holder:
    """Returns the slots of requests whose last job has left, in random order."""

    def __init__(self, jobs: list[dict], seed: int, rate: float) -> None:
        self.jobs = jobs
        self.rng = random.Random(seed)
        self.rate = rate
        self.current: int | None = None
        self.complete: list[int] = []
        self.seen = 0
        self.most = 0

    def feed(self, run: Run, _cycle: int) -> dict[str, list[int]]:
        for job in run.payloads["o"][self.seen :]:
            source = self.jobs[self.seen]
            self.seen += 1
            if source["walk"]["prefetch"]:
                continue
            if source["first"]:
                assert job.slot not in self.complete, "a slot has two holders"
                self.current = job.slot
            assert job.slot == self.current, "a request has two slots"
            if source["last"]:
                self.complete.append(job.slot)
        self.most = max(self.most, len(self.complete))
        if self.complete and self.rng.random() < self.rate:
            return {"returned": [self.complete.pop(self.rng.randrange(len(self.complete)))]}
        return {}


@pytest.mark.parametrize(("seed", "rate"), [(0, 0.1), (1, 0.3), (2, 1.0)])
def test_slots_of_requests(seed, rate):
    jobs = jobs_of(random.Random(seed), 60)
    holder = Holder(jobs, seed, rate)
    run = run_streams(
        JobSlots(PARAMS),
        {"i": jobs, "returned": []},
        ["o"],
        seed=seed,
        stalls={"returned": 0},
        feed=holder.feed,
    )
    got = run.payloads["o"]
    assert [job.walk.start for job in got] == list(range(len(jobs)))
    assert [bool(job.last) for job in got] == [job["last"] for job in jobs]
    assert [bool(job.walk.prefetch) for job in got] == [job["walk"]["prefetch"] for job in jobs]
    if rate < 1:
        assert holder.most == PARAMS.requests_in_flight


def test_a_job_a_clock():
    """The jobs of a request pass without a clock between, and without latency."""
    jobs = [{"first": n == 0, "last": n == 19, "walk": {"start": n}} for n in range(20)]
    run = run_streams(JobSlots(PARAMS), {"i": jobs}, ["o"], stall=0)
    assert run.cycles["o"] == run.taken["i"]
    assert run.cycles["o"][-1] - run.cycles["o"][0] == 19


def test_only_prefetches_pass_without_a_free_slot():
    """Nothing is returned: five requests need a slot, and four get one."""
    kinds = [False] * 4 + [True, False, True]
    jobs = [
        {"first": 1, "last": 1, "walk": {"start": n, "prefetch": prefetch}}
        for n, prefetch in enumerate(kinds)
    ]
    clocks = iter(range(60))
    run = run_streams(
        JobSlots(PARAMS), {"i": jobs}, ["o"], stall=0, until=lambda _: next(clocks, None) is None
    )
    assert [job.walk.start for job in run.payloads["o"]] == list(range(5))
    assert {job.slot for job in run.payloads["o"][:4]} == set(range(4))


@pytest.mark.parametrize("tlb_entries", [0, 4])
@pytest.mark.parametrize("axi_data_bits", [0, 64])
@pytest.mark.parametrize("line_bytes", [16, 128])
def test_failure(line_bytes, axi_data_bits, tlb_entries):
    params = TmaParams(line_bytes=line_bytes, axi_data_bits=axi_data_bits, tlb_entries=tlb_entries)
    last = (1 << params.line_address_bits) - 1
    fields = cause_field(params)
    cause = data.StructLayout(fields)
    faults = [
        {"decode": 0, "page": PageFault.NONE},
        {"decode": 1, "page": PageFault.NONE},
        {"decode": 1, "page": PageFault.ABSENT},
        {"decode": 0, "page": PageFault.READ_ONLY},
        {"decode": 1, "page": PageFault.ABSENT},
    ]
    samples = [  # receiver absent, cause, location
        (absent, {name: fault[name] for name in fields}, location)
        for absent, fault, location in zip((0, 0, 0, 0, 1), faults, (5, last, 6, 8, 7), strict=True)
    ]

    def part(number: int):
        def build(m: Module, *signals):
            return Value.cast(failure(m, params, *signals)[number])

        return evaluate(build, [1, cause, params.line_address_bits], samples)

    assert part(0) == [*[ErrorCode.GMEM_FAULT.value] * 4, ErrorCode.DST_CTA.value]
    dims = [2, 3, 3, 2] if axi_data_bits else [0] * 4
    if tlb_entries:
        dims[2:] = [4, 5]
    assert part(1) == [*dims, 0]
    addresses = [location * line_bytes % (1 << GLOBAL_ADDRESS_BITS) for *_, location in samples[:4]]
    assert part(2) == [*addresses, 7]
