"""Fill cutter: each beat of a stretch once, without the gaps between rows, one a clock."""

import random
from dataclasses import replace

import pytest

from hw.generate.fill_cutter import FillCutter
from hw.params import PRESETS, TmaParams
from tests.hw.simulate import Run, run_streams

Beat = tuple[int, int, int, int]  # slot, beat address, valid pieces, last

PARAMS = {
    "16-byte lines": TmaParams(line_bytes=16),
    "32-byte lines": TmaParams(line_bytes=32),
    "128-byte lines": TmaParams(),
    "swizzle 96B": replace(PRESETS["sm_107a"], sub_byte=False, b6p2x16_64=False, line_bytes=64),
}


def random_stretches(rng: random.Random, params: TmaParams) -> list[dict]:
    """Stretches of one to five beats; a third of them has no gaps between rows."""
    every = (1 << params.lanes) - 1
    all_rows = (1 << params.row_mask_bits) - 1
    return [
        {
            "slot": rng.randrange(1 << params.slot_bits),
            "style": {"swizzle": rng.randrange(4), "fill": rng.randrange(2)},
            "row_mask": rng.choice((all_rows, rng.randint(0, all_rows), rng.randint(0, all_rows))),
            "beat": rng.randrange((1 << params.smem_beat_bits) - 5),
            "mask": rng.randint(0, every),
            "extra_beats": rng.choice((0, 0, 1, 2, 4)),
            "last_mask": rng.randint(0, every),
            "last": rng.randrange(2),
        }
        for _ in range(60)
    ]


def ref(stretches: list[dict], params: TmaParams) -> list[Beat]:
    """The beats of stretches, by the definition in ``fill_stretch_layout``."""
    beats = []
    for stretch in stretches:
        for number in range(stretch["extra_beats"] + 1):
            is_last = number == stretch["extra_beats"]
            mask = (1 << params.lanes) - 1
            if number == 0:
                mask = stretch["mask"]
            elif is_last:
                mask = stretch["last_mask"]
            address = stretch["beat"] + number
            valid = 0
            for lane in range(params.lanes):
                piece = address * params.lanes + lane
                is_row = stretch["row_mask"] >> piece % params.row_mask_bits & 1
                valid |= (mask >> lane & is_row) << lane
            beats.append((stretch["slot"], address, valid, is_last and stretch["last"]))
    return beats


def rtl(stretches: list[dict], params: TmaParams, **options) -> tuple[list[Beat], Run]:
    """The beats that the cutter gives."""
    run = run_streams(FillCutter(params), {"i": stretches}, ["o"], **options)
    return [(beat.slot, beat.beat, beat.valid, beat.last) for beat in run.payloads["o"]], run


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PARAMS)
def test_cuts_stretches_into_beats(name: str, seed: int) -> None:
    params = PARAMS[name]
    stretches = random_stretches(random.Random(seed), params)
    assert rtl(stretches, params, seed=seed)[0] == ref(stretches, params)


def test_a_beat_a_clock() -> None:
    """The first one a clock after its stretch, and no clock lost between stretches."""
    params = PARAMS["32-byte lines"]
    stretches = random_stretches(random.Random(1), params)
    _, run = rtl(stretches, params, stall=0)
    cycles = run.cycles["o"]
    assert cycles[0] == run.taken["i"][0] + 1
    assert cycles[-1] - cycles[0] == len(cycles) - 1
