"""Request generator: every piece once, by the fewest lines, one a clock."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from amaranth.sim import Simulator

from hw.params import PRESETS, TmaParams
from hw.setup.block import SetupBlock
from tests.hw.boxes import Box, Pieces, random_box
from tests.hw.generate.columns import channel_of, one_stream, setup, with_slots
from tests.hw.generate.generators import Lines
from tests.hw.golden_requests import KINDS, arch_of, expected, random_requests
from tests.hw.setup.test_block import box_input
from tests.hw.simulate import Run, run_streams, simulation
from tests.quick import quick

SEED = 1


ONE_STREAM = one_stream(PRESETS["default"])


def jobs_of(boxes: list[Box], params: TmaParams, **changes) -> list[dict]:
    inputs = {"i": [box_input(box, **changes) for box in boxes]}
    run = run_streams(simulation(SetupBlock, one_stream(params)), inputs, ["job"], stall=0)
    return [
        {
            "channel": channel_of(job, params),
            "slot": slot % params.requests_in_flight,
            "last": 1,
            "walk": job.walk,
        }
        for slot, job in enumerate(run.payloads["job"])
    ]


def generate(boxes: list[Box], params: TmaParams, **options) -> Run:
    return run_streams(
        simulation(Lines, params),
        {"i": jobs_of(boxes, params)},
        ["line", "fill"],
        **options,
    )


def covered(run: Run, params: TmaParams) -> dict[int, Pieces]:
    """Return, by slot, the pieces that lines and fill cover; assert that none comes twice."""
    boxes: dict[int, Pieces] = {}

    def cover(slot: int, smem: int, source: tuple[int, int] | None) -> None:
        pieces = boxes.setdefault(slot, {})
        assert smem not in pieces, "covered twice"
        pieces[smem] = source

    for line in run.payloads["line"]:
        use = line.use
        assert use.valid, "a line without use"
        assert use.tail & ~use.valid == 0
        for lane in range(params.lanes):
            if use.valid >> lane & 1:
                tail = use.tail >> lane & 1 and use.tail_bytes
                piece = use.source[lane] if params.gathers_rows else lane
                source = (line.line * params.lanes + piece, tail or 16)
                cover(use.slot, (use.origin + lane) % (1 << params.smem_piece_bits), source)
    for beat in run.payloads["fill"]:
        for lane in range(params.lanes):
            if beat.valid >> lane & 1:
                cover(beat.slot, beat.beat * params.lanes + lane, None)
    return boxes


@pytest.mark.parametrize("line_bytes", quick([128, 16, 32, 64], 2))
def test_covers_each_box_once(line_bytes):
    params = replace(ONE_STREAM, line_bytes=line_bytes)
    rng = random.Random(SEED)
    boxes = [random_box(rng) for _ in range(120)]
    run = generate(boxes, params, seed=SEED)
    assert covered(run, params) == {slot: box.pieces() for slot, box in enumerate(boxes)}


@pytest.mark.parametrize("kind", ["load_im2col", "sm_100a_im2col_w_128", "sm_100a_gather4"])
def test_covers_a_chain_of_walks_once(kind):
    """Fill continues from walk to walk, and ends with the request."""
    rng = np.random.default_rng(1)
    params = one_stream(PRESETS[KINDS[kind]])
    loads = random_requests(rng, kind, 10)
    jobs = with_slots(setup(loads, params), params)
    run = run_streams(simulation(Lines, params), {"i": jobs}, ["line", "fill"], stall=0.3)
    wanted = {slot: expected(load, arch_of(kind)) for slot, load in enumerate(loads)}
    assert covered(run, params) == wanted
    with_fill = [slot for slot, pieces in wanted.items() if None in pieces.values()]
    assert [beat.slot for beat in run.payloads["fill"] if beat.last] == with_fill


@pytest.mark.parametrize("line_bytes", quick([64, 16, 128], 1))
def test_no_beat_of_a_box_is_filled_twice(line_bytes):
    """A beat is filled once even if several rows share it."""
    params = replace(ONE_STREAM, line_bytes=line_bytes)
    rng = random.Random(line_bytes)
    run = generate([random_box(rng) for _ in range(60)], params, seed=line_bytes)
    beats = [(beat.slot, beat.beat) for beat in run.payloads["fill"] if beat.valid]
    assert len(beats) == len(set(beats))


def test_fill_of_a_request_ends_once():
    params = ONE_STREAM
    rng = random.Random(1)
    boxes = [random_box(rng) for _ in range(60)]
    run = generate(boxes, params, stall=0.2)
    with_fill = [slot for slot, box in enumerate(boxes) if None in box.pieces().values()]
    assert [beat.slot for beat in run.payloads["fill"] if beat.last] == with_fill


def flat(
    width: int, rows: int, pitch: int, smem: int = 0, column: int = 0, swizzle: int = 0
) -> Box:
    """Return a box of ``rows`` rows of ``width`` bytes; rows of the tensor have ``pitch`` bytes."""
    return Box(
        format=0,
        swizzle=swizzle,
        fill=0,
        address=0,
        dims=(pitch, 4096),
        strides=(pitch,),
        box=(width, rows),
        element_strides=(1, 1),
        coords=(column, 0),
        smem_address=smem,
    )


def test_one_line_a_clock_across_rows_runs_and_boxes():
    """Rows of one and of several lines, merged rows, unaligned rows: a line in each clock."""
    boxes = [
        flat(128, 40, 1024, swizzle=3),
        flat(64, 33, 1024),
        flat(128, 20, 128, column=0, swizzle=3),
        flat(240, 17, 4096, column=80),
        flat(16, 30, 256),
    ] * 3
    run = generate(boxes, ONE_STREAM, stall=0)
    cycles = run.cycles["line"]
    assert cycles[-1] - cycles[0] == len(cycles) - 1
    assert not run.payloads["fill"]


def test_merged_rows_cost_their_lines():
    run = generate([flat(32, 64, 32)], ONE_STREAM, stall=0)
    assert len(run.payloads["line"]) == 32 * 64 // 128


@pytest.mark.parametrize("line_bytes", quick([32, 16, 128], 1))
def test_short_rows_that_end_behind_the_tensor_are_merged(line_bytes):
    """Each row has a tail; rows of 1 to 8 pieces begin anywhere in a line, whole and clipped."""
    params = replace(ONE_STREAM, line_bytes=line_bytes)
    cases = [(row, number) for row in range(1, 9) for number in range(8)]
    boxes = [
        replace(
            flat(16 * row, 21, 16 * row, smem=128 * number),
            dims=(16 * row - 1 - number, 40),
            address=16 * number,
            coords=(16 * (number == 6 and row > 1), number - 3),
        )
        for row, number in cases
    ]
    run = generate(boxes, params, seed=line_bytes)
    pieces = [box.pieces() for box in boxes]
    assert covered(run, params) == dict(enumerate(pieces))
    requests = Counter(line.use.slot for line in run.payloads["line"])
    for slot, (row, number) in enumerate(cases):
        lines = {source[0] // params.lanes for source in pieces[slot].values() if source}
        if row < 8 and number != 6:
            assert requests[slot] == len(lines), (row, number)


@pytest.mark.parametrize("line_bytes", quick([64, 32, 128], 1))
def test_rows_that_share_a_line_are_read_with_it(line_bytes):
    """Rows of a few pieces lie apart in either memory, some outside, some with tails."""
    params = replace(ONE_STREAM, line_bytes=line_bytes)
    swizzles = {1: 0, 2: 1, 4: 2, 3: 0}
    cases = [
        (row, pitch, number, step)
        for row, pitch in ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (3, 3), (3, 4))
        for number, step in enumerate(step for step in range(row, 8) if (step, pitch) != (row, row))
    ]
    boxes = [
        replace(
            flat(
                *(16 * row, 19, 16 * step),
                smem=512 * number,
                swizzle=swizzles[pitch] if pitch != row else 0,
            ),
            dims=(16 * row - number, 40),
            address=16 * (3 * number % 8),
            coords=(0, 5 * number - 6),
        )
        for row, pitch, number, step in cases
    ]
    run = generate(boxes, params, seed=line_bytes)
    assert covered(run, params) == {slot: box.pieces() for slot, box in enumerate(boxes)}
    requests = Counter(line.use.slot for line in run.payloads["line"])
    for slot, ((row, pitch, _, step), box) in enumerate(zip(cases, boxes, strict=True)):
        first = box.address // 16 + step * max(box.coords[1], 0)
        rows = sum(0 <= box.coords[1] + number < box.dims[1] for number in range(box.box[1]))
        starts = [first + step * number for number in range(rows)]
        assert requests[slot] == requests_for(params.lanes, starts, row, pitch), (row, pitch, step)


@pytest.mark.parametrize("preset", quick(["sm_107a", "default"], 1))
def test_rows_outside_between_rows_that_share_a_line_are_filled(preset):
    """Short rows lie a few pieces apart in up to five dimensions, and cross the edges of all; some
    rows are partly outside.
    """
    rng = random.Random(SEED)
    params = one_stream(PRESETS[preset])
    boxes = []
    for number in range(112):
        row, rank = rng.randint(1, 3), rng.randint(3, 5)
        shape = [rng.choice((1, 2, 3)) for _ in range(rank - 1)]
        steps = [rng.choice((0, 1, 2, 3, 4, 7)) for _ in shape]
        coords = [rng.choice((0, -1, 1)) for _ in shape]
        width, column = 16 * rng.randint(1, row), 16 * rng.choice((0, 0, -1, 1 - row))
        boxes.append(
            replace(
                flat(
                    16 * row, 1, 16, smem=2048 * number, swizzle=rng.randint(0, 2) if row < 3 else 0
                ),
                dims=(width - rng.choice((0, 1)), *(n + rng.choice((0, 1)) for n in shape)),
                strides=tuple(16 * step for step in steps),
                address=16 * rng.randrange(8),
                box=(16 * row, *shape),
                element_strides=(1,) * rank,
                coords=(column, *coords),
            )
        )
    run = generate(boxes, params, seed=SEED)
    assert covered(run, params) == {slot: box.pieces() for slot, box in enumerate(boxes)}


@pytest.mark.parametrize("preset", quick(["sm_107a", "default"], 1))
def test_rows_partly_outside_that_share_a_line_are_read_with_it(preset):
    """Some rows of 2 to 8 pieces end behind the tensor or begin in front of it."""
    params = one_stream(PRESETS[preset])
    cases = [
        (pitch, row, low) for pitch in range(2, 9) for row in range(1, pitch) for low in (0, 1)
    ]
    boxes = [
        replace(
            flat(16 * pitch, 21, 16 * (row + number % 2), smem=4096 * number),
            dims=(16 * row - number % 3, 18),
            address=16 * (3 * number % 8),
            coords=(-16 * low, 0),
        )
        for number, (pitch, row, low) in enumerate(cases)
    ]
    run = generate(boxes, params, seed=SEED)
    assert covered(run, params) == {slot: box.pieces() for slot, box in enumerate(boxes)}
    requests = Counter(line.use.slot for line in run.payloads["line"])
    for slot, ((pitch, row, low), box) in enumerate(zip(cases, boxes, strict=True)):
        starts = [(box.address + box.strides[0] * number) // 16 for number in range(18)]
        wanted = requests_for(params.lanes, starts, row, pitch, low)
        assert requests[slot] == wanted, (pitch, row, low)


def requests_for(
    lanes: int, starts: list[int], row: int, pitch: int, smem: int | None = None
) -> int:
    """Return the number of line requests for rows at ``starts``.

    Rows of a line need one request if they fit in as many pieces of shared memory as a line has. If
    ``smem`` is given, the first row begins at that piece, and the rows must fit in its beat.
    """
    requests = 0
    while starts:
        first = starts[0]
        end = first - first % lanes + lanes
        room = max(lanes - (0 if smem is None else smem % lanes) - row, 0) // pitch
        together = sum(start + row <= end for start in starts[: room + 1])
        requests += 1 if together else 2
        taken = max(together, 1)
        starts = starts[taken:]
        smem = None if smem is None else smem + taken * pitch
    return requests


def test_a_box_outside_fills_a_beat_a_clock_and_reads_nothing():
    outside = Box(
        format=0,
        swizzle=0,
        fill=0,
        address=0,
        dims=(16, 16),
        strides=(16,),
        box=(16, 256),
        element_strides=(1, 1),
        coords=(0, 100),
        smem_address=0,
    )
    run = generate([outside], ONE_STREAM, stall=0)
    assert not run.payloads["line"]
    cycles = run.cycles["fill"]
    assert len(cycles) == cycles[-1] - cycles[0] + 1 == 32


def test_fill_hides_behind_lines():
    """Every row is half outside: lines and fill leave in the same clocks."""
    clipped = Box(
        format=0,
        swizzle=0,
        fill=0,
        address=0,
        dims=(128, 64),
        strides=(1024,),
        box=(256, 64),
        element_strides=(1, 1),
        coords=(0, 0),
        smem_address=0,
    )
    run = generate([clipped] * 4, ONE_STREAM, stall=0)
    lines, fills = run.cycles["line"], run.cycles["fill"]
    assert len(lines) == len(fills) == 4 * 64
    assert lines[-1] - lines[0] == fills[-1] - fills[0] == 4 * 64 - 1


@pytest.mark.parametrize("columns", [(96, -16), (64, 0), (192, -16), (160, 0)])
@pytest.mark.parametrize("rows", [1, 2, 16])
def test_fill_costs_no_clock(rows, columns):
    """Rows end outside on one side or both: the clocks are the larger of lines and beats."""
    width, column = columns
    clipped = Box(
        format=0,
        swizzle=0,
        fill=0,
        address=0,
        dims=(width - 32, 64),
        strides=(1024,),
        box=(width, rows),
        element_strides=(1, 1),
        coords=(column, 0),
        smem_address=0,
    )
    count = 12
    run = generate([clipped] * count, ONE_STREAM, stall=0)
    assert run.payloads["fill"]
    beats = -(-width * rows // 128)
    lines = len(run.payloads["line"]) / count
    for cycles in run.cycles["line"], run.cycles["fill"]:
        assert cycles[-1] - cycles[0] < count * max(lines, beats)


def streams_of(boxes: list[tuple[int, Box]], params: TmaParams) -> list[dict]:
    """Return jobs of boxes with their streams; a job's slot is the number of its box."""
    jobs = jobs_of([box for _, box in boxes], params)
    return [job | {"channel": number} for job, (number, _) in zip(jobs, boxes, strict=True)]


def test_streams_take_turns():
    """A box of 228 KiB, half of it outside, and small ones: lines and beats of fill alternate."""
    params = replace(ONE_STREAM, streams=2)
    large = replace(flat(912, 256, 1024), format=7, dims=(228, 128), box=(228, 256))
    small = flat(128, 8, 1024, swizzle=3)
    small = replace(small, dims=(1024, 4))
    jobs = streams_of([(0, large), *[(1, small)] * 12], params)
    run = run_streams(simulation(Lines, params), {"i": jobs}, ["line", "fill"], stall=0)
    wanted = {slot: box.pieces() for slot, box in enumerate([large] + [small] * 12)}
    assert covered(run, params) == wanted

    lines = [line.use.slot for line in run.payloads["line"]]
    first = lines.index(1)
    assert first <= 16
    assert all((slot == 0) == (at % 2 == 0) for at, slot in enumerate(lines[first - 1 : 90]))
    cycles = run.cycles["line"]
    assert cycles[-1] - cycles[0] == len(cycles) - 1

    beats = run.payloads["fill"]
    assert all(beat.stream == (beat.slot != 0) for beat in beats)
    ends = [beat.slot for beat in beats if beat.last]
    assert sorted(ends) == list(range(13))


def test_beats_of_streams_take_turns():
    """Two boxes of different streams are outside."""
    params = replace(ONE_STREAM, streams=2)
    outside = replace(flat(128, 64, 128, swizzle=3), coords=(0, 5000))
    jobs = streams_of([(0, outside), (1, outside)], params)
    run = run_streams(simulation(Lines, params), {"i": jobs}, ["line", "fill"], stall=0)
    slots = [beat.slot for beat in run.payloads["fill"]]
    assert slots[:2] == [0, 0] or slots[:2] == [0, 1]
    first = slots.index(1)
    assert slots[first:126] == [1, 0] * ((126 - first) // 2) + [1] * ((126 - first) % 2)
    cycles = run.cycles["fill"]
    assert cycles[-1] - cycles[0] == len(cycles) - 1 == 127


@pytest.mark.parametrize("streams", [2, 4])
def test_streams_at_random(streams):
    params = replace(ONE_STREAM, streams=streams, jobs_waiting=2)
    rng = random.Random(streams)
    boxes = [(rng.randrange(streams), random_box(rng)) for _ in range(40)]
    jobs = streams_of(boxes, params)
    run = run_streams(
        simulation(Lines, params), {"i": jobs}, ["line", "fill"], seed=streams, stall=0.3
    )
    assert covered(run, params) == {slot: box.pieces() for slot, (_, box) in enumerate(boxes)}
    for number in range(streams):
        mine = [beat.slot for beat in run.payloads["fill"] if beat.stream == number]
        assert mine == sorted(mine)
        assert all(boxes[slot][0] == number for slot in mine)


@pytest.mark.parametrize("streams", [1, 2])
def test_freed_as_the_last_job_leaves_the_queue(streams):
    """``freed`` comes once for each request, of any number of jobs, while others wait behind it."""
    params = replace(one_stream(PRESETS["sm_107a"]), streams=streams)
    requests = random_requests(np.random.default_rng(4), "sm_100a_gather4", 6)
    requests += random_requests(np.random.default_rng(4), "load_im2col", 6)
    jobs = with_slots(setup(requests, params), params)
    dut = Lines(params)
    freed = [0] * streams
    if streams > 1:
        jobs = [job | {"channel": job["slot"] % streams} for job in jobs]
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        ctx.set(dut.line.ready, 1)
        ctx.set(dut.fill.ready, 1)
        waiting = list(jobs)
        for _ in range(6000):
            if waiting:
                ctx.set(dut.i.p, waiting[0])
            ctx.set(dut.i.valid, bool(waiting))
            if waiting and ctx.get(dut.i.ready):
                waiting.pop(0)
            for number in range(streams):
                freed[number] += ctx.get(dut.freed) >> number & 1
            await ctx.tick()
        assert not waiting

    sim.run()
    assert freed == [12 // streams] * streams


def test_stalled_fill_stops_the_walk_and_loses_nothing():
    params = ONE_STREAM
    rng = random.Random(5)
    boxes = [random_box(rng) for _ in range(30)]
    run = generate(boxes, params, stall=0.9, seed=5)
    assert covered(run, params) == {slot: box.pieces() for slot, box in enumerate(boxes)}
