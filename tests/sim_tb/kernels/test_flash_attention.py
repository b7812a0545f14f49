"""FlashAttention: equal to NumPy for ragged sequences, masks, both head widths and rings."""

from types import SimpleNamespace

import numpy as np
import pytest

from sim_tb.kernels.flash_attention import LIMIT, FlashAttention
from sim_tb.sm.device import Device
from sim_tb.sm.launch import run
from sim_tb.sm.record import Setting

CASES = [
    {"seq": 1, "heads": 1, "stages": 1},
    {"seq": 64, "heads": 3, "stages": 2},
    {"seq": 200, "heads": 2, "stages": 2},
    {"seq": 257, "heads": 1, "stages": 3, "causal": 1},
    {"seq": 130, "heads": 2, "stages": 1, "causal": 1},
    {"seq": 129, "heads": 1, "stages": 1, "head_dim": 128},
    {"seq": 200, "heads": 2, "stages": 3, "head_dim": 128, "causal": 1},
]


def name(case):
    return " ".join(f"{option}={value}" for option, value in case.items())


@pytest.fixture(scope="module")
def records():
    """Records of all cases, from one simulation."""
    jobs = [(FlashAttention(**case), Setting()) for case in CASES]
    return dict(zip(map(name, CASES), run(jobs), strict=True))


@pytest.mark.simulators
@pytest.mark.parametrize("case", CASES, ids=name)
def test_equals_numpy(records, case):
    kernel, record = FlashAttention(**case), records[name(case)]
    assert not record.error
    assert not record.wrong, record.check
    elements = kernel.heads * kernel.seq * kernel.head_dim
    assert record.check.startswith(f"O equals NumPy's: {elements} elements")
    # Both products, on whole tiles of 128 queries and 64 keys.
    blocks = [(m, n) for _, m in kernel.blocks() for n in kernel.key_blocks(m)]
    assert record.total("fma") == len(blocks) * 2 * 128 * 64 * kernel.head_dim
    assert record.total("bank_conflicts") == 0
    # Rows of O end where the sequence does.
    assert record.total("store_bytes") == 2 * elements
    tile = 2 * 64 * kernel.head_dim
    queries = len(list(kernel.blocks()))
    assert record.total("load_bytes") == 2 * tile * (queries + len(blocks))


def test_wholly_masked_blocks_are_skipped():
    causal, full = FlashAttention(seq=300, causal=1), FlashAttention(seq=300)
    assert [len(causal.key_blocks(m)) for _, m in causal.blocks()] == [2, 4, 5] * 2
    assert [len(full.key_blocks(m)) for _, m in full.blocks()] == [5, 5, 5] * 2
    assert causal.flops == 4 * 2 * 64 * np.tri(300, dtype=int).sum()
    assert full.flops == 4 * 2 * 64 * 300**2


@pytest.mark.parametrize(("error", "wrong"), [(0, False), (2 * LIMIT, True)])
def test_a_result_beyond_the_limit_is_wrong(error, wrong):
    kernel = FlashAttention(seq=1, heads=1)
    kernel.host(Device(SimpleNamespace(place=lambda *_: None, place_map=id)))
    values = kernel.inputs[2].astype(np.float32)
    values[values == values.max()] *= 1 + error
    kernel.o.array[...] = values
    assert bool(kernel.check().wrong) == wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 96}, "head_dim = 96: must be 64 or 128"),
        ({"causal": 2}, "causal = 2: must be from 0 to 1"),
        ({"seq": 0}, "seq = 0: must be at least 1"),
        ({"stages": 20}, "shared memory: V.* would end at byte .*: must be at most 23"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        list(run([(FlashAttention(**options), Setting())]))
