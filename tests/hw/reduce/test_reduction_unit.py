"""Reduction unit: the golden model's results, in order, at one sector per clock."""

from itertools import product

import numpy as np
import pytest

from golden.reduction import BULK_PAIRS, TENSOR_PAIRS
from hw.layouts.isa import BULK_REDUCTIONS, REDUCTIONS, ElementType, ReductionOp
from hw.layouts.ports import SECTOR_BYTES
from hw.reduce.reduction_unit import PAIRS, REPORTS, WRITE_LATENCY
from tests.hw.verilated import (
    BASE,
    FORMATS,
    GOLDEN_OPS,
    GOLDEN_TYPES,
    PARAMS,
    check,
    executable,
    golden,
    make_requests,
    run,
)

pytestmark = pytest.mark.simulators.with_args(executable)

ALL_PAIRS = [(op, kind) for kind, ops in PAIRS.items() for op in ops]
OF_INTEGERS = [(op, kind) for op, kind in ALL_PAIRS if kind not in FORMATS]
EXTREMES = [
    (op, kind)
    for kind in (ElementType.F16, ElementType.BF16)
    for op in (ReductionOp.MIN, ReductionOp.MAX)
]


def names(pair: tuple[ReductionOp, ElementType]) -> str:
    return "_".join(part.name for part in pair)


def dtype(kind: ElementType) -> np.dtype:
    return np.dtype(f"u{GOLDEN_TYPES[kind].itemsize}")


def sectors(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 256, (count, SECTOR_BYTES), dtype=np.uint8)


def model(memory: np.ndarray, requests: np.ndarray) -> np.ndarray:
    """Return memory after the requests, applied one after another."""
    memory = memory.copy()
    for request in requests:
        kind = ElementType(request["element_type"])
        row = memory[int(request["sector"]) - BASE]
        memory_operand, source_operand = row.view(dtype(kind)), request["data"].view(dtype(kind))
        after = golden(ReductionOp(request["op"]), kind, memory_operand, source_operand).view(
            np.uint8
        )
        for piece in range(2):
            if request["pieces"] >> piece & 1:
                row[16 * piece :][:16] = after[16 * piece :][:16]
    return memory


def mixed(rng: np.random.Generator, where: np.ndarray, pieces=3) -> np.ndarray:
    """Return requests of random pairs for the sectors ``where``."""
    chosen = rng.choice([(op.value, kind.value) for op, kind in ALL_PAIRS], len(where))
    return make_requests(where, *chosen.T, sectors(rng, len(where)), pieces)


def test_pairs_are_those_of_the_golden_model():
    for pairs, expected in (REDUCTIONS, TENSOR_PAIRS), (BULK_REDUCTIONS, BULK_PAIRS):
        own = {(GOLDEN_TYPES[kind], GOLDEN_OPS[op]) for kind in pairs for op in pairs[kind]}
        assert own == {(kind, op) for kind, op in expected if kind in GOLDEN_TYPES.values()}
        assert all(set(pairs[kind]) <= set(PAIRS[kind]) for kind in pairs)


@pytest.mark.parametrize("stall", [0, 0.3, 0.8])
@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("seed", range(2))
def test_requests_take_effect_in_order(seed, count, stall):
    rng = np.random.default_rng([seed, count])
    memory = sectors(rng, count)
    where = rng.integers(0, count, 2000)
    requests = mixed(rng, where, rng.integers(0, 4, len(where)))
    ran = run(memory, requests, stall=stall, seed=seed)
    assert (ran.memory == model(memory, requests)).all()
    assert (ran.tags == requests["tag"]).all()
    assert (ran.done > ran.accepted + WRITE_LATENCY).all()
    assert (ran.accepted[REPORTS:] > ran.done[:-REPORTS]).all()


def test_a_sector_a_clock():
    rng = np.random.default_rng(0)
    memory = sectors(rng, 5000)
    requests = mixed(rng, rng.permutation(5000))
    ran = run(memory, requests)
    assert (ran.memory == model(memory, requests)).all()
    assert (np.diff(ran.accepted) == 1).all()
    assert (ran.done - ran.accepted == WRITE_LATENCY + 1).all()


@pytest.mark.parametrize("pair", ALL_PAIRS, ids=names)
def test_rate_of_one_sector(pair):
    rng = np.random.default_rng(0)
    memory = sectors(rng, 1)
    op, kind = (part.value for part in pair)
    requests = make_requests(np.zeros(100, int), op, kind, sectors(rng, 100))
    ran = run(memory, requests)
    assert (ran.memory == model(memory, requests)).all()
    assert (np.diff(ran.accepted) == WRITE_LATENCY + 1).all()


def test_pieces_of_one_sector_do_not_wait_for_each_other():
    rng = np.random.default_rng(0)
    memory = sectors(rng, 1)
    requests = mixed(rng, np.zeros(100, int), np.arange(100) % 2 + 1)
    ran = run(memory, requests)
    assert (ran.memory == model(memory, requests)).all()
    assert (np.diff(ran.accepted)[::2] == 1).all()


def test_pairs_that_do_not_exist_leave_memory_as_it_is():
    pairs = {(op.value, kind.value) for op, kind in ALL_PAIRS}
    others = np.array([pair for pair in product(range(8), range(16)) if pair not in pairs])
    rng = np.random.default_rng(0)
    memory = sectors(rng, len(others))
    requests = make_requests(np.arange(len(others)), *others.T, sectors(rng, len(others)))
    assert (run(memory, requests).memory == memory).all()


@pytest.mark.parametrize("pair", OF_INTEGERS, ids=names)
def test_integers(pair):
    op, kind = pair
    bits = 8 * dtype(kind).itemsize
    near = [0, 1 << (bits // 2), 1 << (bits - 2), 1 << (bits - 1), (1 << bits) - 1]
    corners = sorted({(word + by) % (1 << bits) for word in near for by in range(-2, 3)})
    m, s = (word.reshape(-1) for word in np.meshgrid(*[np.array(corners, dtype(kind))] * 2))
    check(op, kind, m, s)
    rng = np.random.default_rng(0)
    m, s = (rng.integers(0, 1 << bits, 1 << 17, dtype(kind)) for _ in range(2))
    check(op, kind, m, s)
    check(op, kind, m, m + rng.integers(-2, 3, len(m)).astype(dtype(kind)))


@pytest.mark.parametrize("pair", EXTREMES, ids=names)
def test_extremes_of_halves(pair):
    op, kind = pair
    assert sum(check(op, kind, *words) for words in FORMATS[kind].pairs(0)) == 1 << 19


@pytest.mark.regress
@pytest.mark.parametrize("pair", EXTREMES, ids=names)
def test_many_extremes_of_halves(pair):
    op, kind = pair
    for seed in range(32):
        for words in FORMATS[kind].pairs(seed):
            check(op, kind, *words, f"seed {seed}")


def test_tags_come_back():
    rng = np.random.default_rng(0)
    requests = mixed(rng, np.arange(4 * PARAMS.tags))
    requests["tag"] = rng.permutation(len(requests)) % PARAMS.tags
    assert (run(sectors(rng, len(requests)), requests).tags == requests["tag"]).all()
