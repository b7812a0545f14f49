"""Line cutter: the pieces of each run, line by line, one line a clock."""

import random
from itertools import product

import pytest
from amaranth.lib.data import Layout

from hw.generate.line_cutter import LineCutter
from hw.layouts.lines import run_layout
from hw.params import TmaParams
from tests.hw.simulate import Run, run_streams

PARAMS = {
    "16-byte lines": TmaParams(line_bytes=16),
    "32-byte lines": TmaParams(line_bytes=32),
    "128-byte lines": TmaParams(),
    "no gathered rows": TmaParams(line_bytes=64, short_rows=False),
}

Place = tuple[int, int, bool]
"""Shared-memory piece, piece of the line that goes there, and whether it ends a row."""


def random_start(rng: random.Random, params: TmaParams) -> int:
    """The first piece of a run: small, so that lines are next to each other, or any."""
    if rng.random() < 0.5:
        return rng.randrange(1 << 10)
    return rng.randrange((1 << params.piece_address_bits) - 8 * params.lanes)


def random_smem(rng: random.Random, params: TmaParams) -> int:
    """The first piece of a run in shared memory."""
    return rng.randrange(1 << rng.choice((12, params.smem_piece_bits - 1)))


def gathered(
    rng: random.Random, params: TmaParams, row: int, steps: tuple[int, int], *, store: bool = False
) -> dict:
    """The fields of a run for any number of rows that share a line; of a store they are two."""
    lanes = params.lanes
    row_step, smem_step = steps
    in_smem = 1 if store else (lanes - row) // smem_step
    extra_rows = rng.randint(0, min((lanes - row) // row_step, in_smem))
    lane = rng.randint(0, lanes - row - extra_rows * row_step)
    return {
        "start": random_start(rng, params) // lanes * lanes + lane,
        "pieces": row,
        "gather": {"extra_rows": extra_rows, "row_step": row_step, "smem_step": smem_step},
    }


def random_run(rng: random.Random, params: TmaParams) -> dict:
    """A run of a load: long, of several short rows, or of rows that are gathered."""
    lanes = params.lanes
    row = rng.randint(1, 7)
    run = {
        "prefetch": rng.randrange(2),
        "slot": rng.randrange(params.requests_in_flight),
        "tail_bytes": rng.randrange(16),
        "start": random_start(rng, params),
        "smem": random_smem(rng, params),
        "pieces": rng.randint(1, 4 * lanes),
        "row_pieces": rng.choice((0, row)),
    }
    if params.gathers_rows and row < lanes and rng.random() < 0.5:
        steps = rng.randint(1, 7), rng.randint(row, 7)
        run |= {"row_pieces": row, **gathered(rng, params, row, steps)}
    return run


def random_stored_run(rng: random.Random, params: TmaParams) -> dict:
    """A run of a store: long, of rows that are gathered, or of no pieces."""
    last = rng.randrange(2)
    row = rng.randint(1, 7)
    run = {
        "last": last,
        "slot": rng.randrange(params.requests_in_flight),
        "start": random_start(rng, params),
        "smem": random_smem(rng, params),
        "pieces": rng.randint(1, 4 * params.lanes) if not last or rng.random() < 0.7 else 0,
    }
    if params.gathers_rows and row < params.lanes and run["pieces"] and rng.random() < 0.5:
        steps = rng.randint(row, 7), rng.randint(row, 7)
        run |= gathered(rng, params, row, steps, store=True)
    return run


def moves_of(run: dict) -> list[tuple[int, int]]:
    """The pieces of global and of shared memory that belong together, row by row."""
    gather = run.get("gather", {"extra_rows": 0, "row_step": 0, "smem_step": 0})
    return [
        (
            run["start"] + row * gather["row_step"] + number,
            run["smem"] + row * gather["smem_step"] + number,
        )
        for row in range(gather["extra_rows"] + 1)
        for number in range(run["pieces"])
    ]


def ref(runs: list[dict], params: TmaParams) -> list[tuple]:
    """The lines of runs of loads, by the definition of a run."""
    lines = []
    for run in runs:
        places: dict[int, list[Place]] = {}
        for number, (piece, smem) in enumerate(moves_of(run)):
            row = run["row_pieces"] or run["pieces"]
            line, lane = divmod(piece, params.lanes)
            places.setdefault(line, []).append((smem, lane, number % row == row - 1))
        lines += [
            (run["prefetch"], run["slot"], line, run["tail_bytes"], sorted(places[line]))
            for line in sorted(places)
        ]
    return lines


def rtl(runs: list[dict], params: TmaParams, **options) -> tuple[list[tuple], Run]:
    """The lines that the cutter gives."""
    run = run_streams(LineCutter(params), {"i": runs}, ["o"], **options)
    lines = []
    for line in run.payloads["o"]:
        use = line.use
        assert use.tail & ~use.valid == 0
        places = [
            (
                (use.origin + place) % (1 << params.smem_piece_bits),
                use.source[place] if params.gathers_rows else place,
                bool(use.tail >> place & 1),
            )
            for place in range(params.lanes)
            if use.valid >> place & 1
        ]
        lines.append((line.prefetch, use.slot, line.line, use.tail_bytes, places))
    return lines, run


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PARAMS)
def test_cuts_runs_of_loads(name: str, seed: int) -> None:
    params = PARAMS[name]
    rng = random.Random(seed)
    runs = [random_run(rng, params) for _ in range(80)]
    assert rtl(runs, params, seed=seed)[0] == ref(runs, params)


def ref_stored(runs: list[dict], params: TmaParams) -> list[tuple]:
    """The lines of runs of stores: pieces of global and of shared memory that belong together."""
    lines = []
    for run in runs:
        pieces: dict[int, list[tuple[int, int]]] = {}
        for piece, smem in moves_of(run):
            pieces.setdefault(piece // params.lanes, []).append((piece, smem))
        if not pieces:
            pieces[run["start"] // params.lanes] = []
        for line in sorted(pieces):
            is_last = run["last"] and line == max(pieces)
            lines.append((is_last, run["slot"], line, sorted(pieces[line])))
    return lines


def rtl_stored(runs: list[dict], params: TmaParams, **options) -> list[tuple]:
    """The lines that the cutter of stores gives."""
    run = run_streams(LineCutter(params, store=True), {"i": runs}, ["o"], **options)
    lanes = range(params.lanes)
    lines = []
    for line in run.payloads["o"]:
        second = line.second if params.gathers_rows else 0
        assert second & ~line.valid == 0
        origins = {
            lane: line.second_origin if second >> lane & 1 else line.origin
            for lane in lanes
            if line.valid >> lane & 1
        }
        moves = [
            (line.line * params.lanes + lane, (origin + lane) % (1 << params.smem_piece_bits))
            for lane, origin in origins.items()
        ]
        lines.append((line.last, line.slot, line.line, moves))
    return lines


def test_gathers_rows_of_all_steps() -> None:
    """Each number of rows in a line of eight pieces, of each length and with all steps."""
    params = PARAMS["128-byte lines"]
    rng = random.Random(3)
    loads, stores = [], []
    for row, row_step, smem_step in product(range(1, 8), range(1, 8), range(1, 8)):
        in_line = (8 - row) // row_step
        most = min(in_line, (8 - row) // smem_step)
        for extra_rows in range(1, max(most, 1) + 1 if smem_step >= row else 0):
            steps = {"row_step": row_step, "smem_step": smem_step}
            lane = rng.randint(0, max(8 - row - extra_rows * row_step, 0))
            start = random_start(rng, params) // 8 * 8 + lane
            rows = {"start": start, "pieces": row, "gather": {"extra_rows": extra_rows, **steps}}
            if extra_rows <= most:
                loads.append(random_run(rng, params) | rows | {"row_pieces": row})
            if row_step >= row and extra_rows == 1 <= in_line:
                stores.append(random_stored_run(rng, params) | rows)
    assert rtl(loads, params, stall=0)[0] == ref(loads, params)
    assert rtl_stored(stores, params, stall=0) == ref_stored(stores, params)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PARAMS)
def test_cuts_runs_of_stores(name: str, seed: int) -> None:
    """The last line of a request is marked; a run without pieces is one line without pieces."""
    params = PARAMS[name]
    rng = random.Random(seed)
    runs = [random_stored_run(rng, params) for _ in range(60)]
    assert rtl_stored(runs, params, seed=seed) == ref_stored(runs, params)


@pytest.mark.parametrize("store", [False, True], ids=["load", "store"])
def test_fields_of_a_run_are_in_all_of_its_lines(store: bool) -> None:
    """All bits of the attributes and styles change from run to run, with stalls."""
    params = TmaParams()
    layout = run_layout(params, store)
    names = ["write_mode", "attributes", "style"] if store else ["attributes", "style"]
    shapes = {name: Layout.cast(layout.members[name]) for name in names}
    rng = random.Random(3)
    runs, wanted = [], []
    for _ in range(80):
        lines = rng.randint(1, 3)
        bits = {name: rng.getrandbits(shape.size) for name, shape in shapes.items()}
        run = {name: shape.from_bits(bits[name]) for name, shape in shapes.items()}
        start = random_start(rng, params) // params.lanes * params.lanes
        place = {"start": start, "smem": random_smem(rng, params)}
        runs.append({**place, "pieces": lines * params.lanes, **run})
        wanted += [bits] * lines
    taken = run_streams(LineCutter(params, store=store), {"i": runs}, ["o"], seed=4).payloads["o"]
    got = [
        {
            name: getattr(line.use if name == "style" and not store else line, name).as_bits()
            for name in names
        }
        for line in taken
    ]
    assert got == wanted


def test_a_line_a_clock() -> None:
    """The first one two clocks after its run, and no clock lost between runs."""
    params = PARAMS["32-byte lines"]
    rng = random.Random(1)
    _, run = rtl([random_run(rng, params) for _ in range(40)], params, stall=0)
    cycles = run.cycles["o"]
    assert cycles[0] == run.taken["i"][0] + 2
    assert cycles[-1] - cycles[0] == len(cycles) - 1
