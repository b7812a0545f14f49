"""Run walker: each run of a walk once, in order, and each step to the fill collector."""

import random
from dataclasses import dataclass, field
from itertools import combinations, product

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.row_preparation import RowPreparation
from hw.generate.run_walker import RunWalker
from hw.layouts.jobs import slot_walk_layout
from hw.layouts.lines import fill_step_layout, run_layout
from hw.params import TmaParams
from tests.hw.generate.walks import Rows, random_walk, rows_of, runs_of
from tests.hw.paced import Paced
from tests.hw.simulate import Run, run_streams
from tests.quick import quick

PARAMS = {
    "32-byte lines": TmaParams(line_bytes=32),
    "128-byte lines": TmaParams(),
    "no gathered rows": TmaParams(line_bytes=64, short_rows=False),
}


class PreparedWalker(wiring.Component):
    """The walker behind the preparation of rows, where there is one."""

    def __init__(self, params: TmaParams, *, store: bool = False) -> None:
        self.params = params
        self.store = store
        fill = {} if store else {"fill": Out(stream.Signature(fill_step_layout(params)))}
        super().__init__(
            {
                "i": In(stream.Signature(slot_walk_layout(params))),
                "run": Out(stream.Signature(run_layout(params, store))),
                **fill,
            }
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.walker = walker = RunWalker(self.params, store=self.store)
        if self.params.gathers_rows:
            m.submodules.preparation = preparation = Paced(RowPreparation(self.params))
            i, walks = preparation.i, preparation.o
        else:
            i = walker.i
        m.d.comb += [
            i.valid.eq(self.i.valid),
            self.i.ready.eq(i.ready),
            *(i.p[name].eq(self.i.p[name]) for name in self.i.p.shape().members),
        ]
        if self.params.gathers_rows:
            m.d.comb += [
                walker.i.valid.eq(walks.valid),
                walks.ready.eq(walker.i.ready),
                *(walker.i.p[name].eq(walks.p[name]) for name in walker.i.p.shape().members),
            ]
        connect(m, walker.run, flipped(self.run))
        if not self.store:
            connect(m, walker.fill, flipped(self.fill))
        return m


@dataclass
class Steps:
    """Runs, and steps of fill: tuples of the fields that count."""

    run: list[tuple] = field(default_factory=list)
    fill: list[tuple] = field(default_factory=list)


def random_jobs(rng: random.Random, params: TmaParams, number: int) -> list[dict]:
    """Walks, and some prefetches, of several requests."""
    return [
        {
            "slot": rng.randrange(params.requests_in_flight),
            "last": rng.randrange(2),
            "walk": random_walk(rng, params) | {"prefetch": rng.random() < 0.1},
        }
        for _ in range(number)
    ]


def gathered(walk: dict, params: TmaParams) -> list[tuple]:
    """The runs of a walk, short rows that share a line as one: start, smem, extra rows."""
    runs = []
    rows = rows_of(walk, params) if params.gathers_rows else None
    to_skip = 0
    for start, smem, left in runs_of(walk):
        if to_skip:
            to_skip -= 1
            continue
        if rows and walk["run"] == walk["row_pieces"]:
            lanes = params.lanes
            fits = rows.fit(lanes, start % lanes), rows.fit_in_smem(lanes, smem % lanes)
            to_skip = min(left, *fits)
        runs.append((start, smem, to_skip))
    return runs


def gather_of(extra: int, rows: Rows | None) -> tuple:
    """The fields of a run for rows that share its line; the steps count only if there are any."""
    return (extra, rows.row_step, rows.smem_step) if extra else (0,)


def gather_in(run, params: TmaParams) -> tuple:
    """The same fields of a run of the walker."""
    if not params.gathers_rows or not run.gather.extra_rows:
        return (0,)
    return run.gather.extra_rows, run.gather.row_step, run.gather.smem_step


def ref(jobs: list[dict], params: TmaParams) -> Steps:
    """The steps of walks of loads, by the definition of a walk."""
    steps = Steps()
    for job in jobs:
        walk, slot = job["walk"], job["slot"]
        runs = gathered(walk, params) if walk["has_data"] else [None]
        rows = rows_of(walk, params)
        for number, run in enumerate(runs):
            is_first, is_last = number == 0, number == len(runs) - 1
            place: tuple = ()
            if run is not None:
                start, smem, extra = run
                tail = walk["tail_bytes"], walk["row_pieces"]
                steps.run.append(
                    (
                        slot,
                        walk["prefetch"],
                        start,
                        smem,
                        walk["run"],
                        *tail,
                        gather_of(extra, rows),
                    )
                )
                more = extra * rows.smem_step if extra else 0
                inner = rows.fill & ((1 << more) - 1) if extra else 0
                place = smem, walk["smem_extent"] + more, inner
            chain = (
                is_first and walk["first"] and (walk["smem_begin"],),
                is_last and walk["last"] and (walk["smem_end"],),
            )
            if not walk["prefetch"]:
                steps.fill.append((slot, run is not None, *place, *chain, is_last and job["last"]))
    return steps


def rtl(jobs: list[dict], params: TmaParams, **options) -> tuple[Steps, Run]:
    """The steps that the walker gives."""
    run = run_streams(PreparedWalker(params), {"i": jobs}, ["run", "fill"], **options)
    steps = Steps()
    for step in run.payloads["run"]:
        place = step.start, step.smem, step.pieces
        tail = step.tail_bytes, step.row_pieces
        steps.run.append((step.slot, step.prefetch, *place, *tail, gather_in(step, params)))
    for step in run.payloads["fill"]:
        place: tuple = ()
        if step.has_run:
            inner = step.inner_fill if params.gathers_rows else 0
            place = step.start, step.extent, inner
        chain = (
            step.first_of_chain and (step.chain_begin,),
            step.last_of_chain and (step.chain_end,),
        )
        steps.fill.append((step.slot, step.has_run, *place, *chain, step.last_of_request))
    return steps, run


@pytest.mark.parametrize("seed", quick(range(2), 1))
@pytest.mark.parametrize("name", PARAMS)
def test_steps_through_walks_of_loads(name: str, seed: int) -> None:
    params = PARAMS[name]
    jobs = random_jobs(random.Random(seed), params, 40)
    assert rtl(jobs, params, seed=seed, stall=0.3)[0] == ref(jobs, params)


def ref_stored(jobs: list[dict], params: TmaParams) -> list[tuple]:
    """The runs of walks of stores, by the definition of a walk.

    A walk without runs is a run without pieces if it ends its request, and nothing otherwise.
    """
    wanted = []
    for job in jobs:
        walk = job["walk"]
        rows = rows_of(walk, params)
        runs = [
            (start, smem, walk["run"], gather_of(extra, rows))
            for start, smem, extra in gathered(walk, params)
        ]
        if not walk["has_data"]:  # rows of no pieces
            runs = [(walk["start"], walk["smem_start"], 0, None)] if job["last"] else []
        for number, run in enumerate(runs):
            wanted.append((job["slot"], *run, number == len(runs) - 1 and job["last"]))
    return wanted


def rtl_stored(jobs: list[dict], params: TmaParams, **options) -> list[tuple]:
    """The runs of the walker of stores."""
    run = run_streams(PreparedWalker(params, store=True), {"i": jobs}, ["run"], **options)
    return [
        (
            run.slot,
            run.start,
            run.smem,
            run.pieces,
            gather_in(run, params) if run.pieces else None,
            run.last,
        )
        for run in run.payloads["run"]
    ]


@pytest.mark.parametrize("seed", quick(range(2), 1))
@pytest.mark.parametrize("name", PARAMS)
def test_steps_through_walks_of_stores(name: str, seed: int) -> None:
    params = PARAMS[name]
    jobs = random_jobs(random.Random(seed), params, 40)
    for job in jobs:
        job["walk"]["store"] = 1
    assert rtl_stored(jobs, params, seed=seed, stall=0.3) == ref_stored(jobs, params)


def test_a_step_a_clock() -> None:
    """The first one two clocks after its walk is prepared, the next walk with the last step."""
    params = PARAMS["32-byte lines"]
    jobs = random_jobs(random.Random(1), params, 20)
    for job in jobs:
        job["walk"]["prefetch"] = 0
    steps, run = rtl(jobs, params, stall=0)
    cycles = run.cycles["fill"]
    first = run.taken["i"][0] + 2 + 2
    assert cycles == list(range(first, first + len(steps.fill)))
    assert len(run.taken["i"]) == len(jobs)


def test_short_rows_at_all_places_of_lines_and_beats() -> None:
    """Rows of one loop, with a gap or with fill between them."""
    params = PARAMS["128-byte lines"]
    rng = random.Random(3)
    jobs = []
    for line_lane, beat_lane in product(range(params.lanes), repeat=2):
        for _ in range(6):
            row = rng.randint(1, 3)
            steps = {"global_step": rng.randint(1, 7), "smem_step": rng.randint(row, 7)}
            loops = [{"last": 0, "global_step": 0, "smem_step": 0} for _ in range(4)]
            loops[0] = {"last": 5, **steps}
            fields = {
                "has_data": 1,
                "prefetch": 0,
                "start": 64 + line_lane,
                "smem_start": 64 + beat_lane,
                "run": row,
                "row_pieces": row,
                "loops": loops,
            }
            walk = random_walk(rng, params) | fields
            jobs.append({"slot": 1, "last": 1, "walk": walk})
    assert rtl(jobs, params, stall=0)[0] == ref(jobs, params)


@pytest.mark.parametrize("store", [False, True], ids=["load", "store"])
def test_short_rows_behind_a_step_of_each_loop(store: bool) -> None:
    """Rows of each loop, few or many, begin at each place of a line and of a beat. They follow
    other rows behind a step of a loop around them.
    """
    params = PARAMS["128-byte lines"]
    rng = random.Random(5)
    lanes = params.lanes
    jobs = []
    nests = [*combinations(range(4), 2), (3, None)]
    for (level, around), lane, beat_lane in product(nests, range(lanes), range(lanes)):
        row = rng.choice((1, rng.randint(1, 3)))
        most = rng.choice((row, 7))  # ``row``: without gaps
        loops = [{"last": 0, "global_step": 0, "smem_step": 0} for _ in range(4)]
        loops[level] = {
            "last": rng.choice((1, 3, 7, 8, 19, 1 << rng.randrange(8))),
            **{name: rng.randint(row, most) for name in ("global_step", "smem_step")},
        }
        starts = {"start": 64 + lane, "smem_start": 64 + beat_lane}
        if around is not None:
            loops[around] = {"last": 1, "global_step": 64 + lane, "smem_step": 64 + beat_lane}
            starts = {"start": 64, "smem_start": 64}
        fields = {"has_data": 1, "prefetch": 0, "run": row, "row_pieces": row, "store": store}
        walk = random_walk(rng, params) | fields | starts | {"loops": loops}
        jobs.append({"slot": 1, "last": 1, "walk": walk})
    if store:
        assert rtl_stored(jobs, params, stall=0) == ref_stored(jobs, params)
    else:
        assert rtl(jobs, params, stall=0)[0] == ref(jobs, params)
