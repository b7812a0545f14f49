"""Parameters: what is out of range is refused by name, value and limit; the ends are legal."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Fragment

from hw.params import PRESETS, SMEM_BYTES_MAX, SMEM_BYTES_MIN, TmaParams
from hw.top import Tma
from tests.hw.drawn import drawn
from tests.quick import quick

REFUSED = [
    ({"line_bytes": 24}, "line_bytes = 24: must be a power of two from 16 to 128"),
    ({"tags": 1}, "tags = 1: must be a power of two from 2 to 4096"),
    ({"request_queue_depth": 1}, "request_queue_depth = 1: must be from 2 to 1024"),
    ({"setup_pipelines": 6}, "setup_pipelines = 6: must be from 1 to 5"),
    ({"completions_waiting": 1}, "completions_waiting = 1: must be 0, or from 2 to 8"),
    ({"smem_bytes": 1920}, "smem_bytes = 1920: must be a multiple of 128 from 2048 to 1048448"),
    ({"smem_bytes": 2100}, "smem_bytes = 2100: must be a multiple of 128 from 2048 to 1048448"),
    ({"smem_bytes": 1 << 20}, "smem_bytes = 1048576: must be a multiple of 128"),
    ({"streams": 2, "threads": 32}, "streams = 2: must be at most 1, the warps of threads = 32"),
    ({"stores": False}, "reductions = True: must be False without stores"),
    (
        {"sub_byte": True, "swizzle_atoms": True, "line_bytes": 64},
        "sub_byte = True: must be False with lines of less",
    ),
    ({"sub_byte": True}, "sub_byte = True: must be False without swizzle_atoms"),
    ({"b6p2x16_64": True}, "b6p2x16_64 = True: must be False without sub_byte"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_refused(changes: dict[str, int], message: str):
    with pytest.raises(ValueError, match="must be") as caught:
        TmaParams(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize("smem_bytes", [SMEM_BYTES_MIN, SMEM_BYTES_MAX])
def test_counters_hold_the_largest_box(smem_bytes: int):
    """A row of 2 KiB, and a box that fills shared memory, are counted by every width."""
    params = TmaParams(smem_bytes=smem_bytes)
    assert 1 << params.box_piece_bits > max(2048, smem_bytes) // 16
    assert 1 << params.smem_piece_bits >= 2 * smem_bytes // 16


def test_presets_are_legal():
    for params in PRESETS.values():
        assert replace(params) == params


@pytest.mark.parametrize("seed", quick(range(60), 12))
def test_drawn_parameters_make_a_unit(seed: int):
    """Every block fits its neighbours, whatever the features and the ends of the ranges."""
    params = drawn(random.Random(seed))
    print(f"tests/hw/test_params.py -k 'unit and {seed}': {params}")
    Fragment.get(Tma(params), None)
