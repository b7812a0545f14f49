"""GEMMs of every schedule: the same bits, and what each schedule is for."""

import pytest

from sim_tb import launch
from sim_tb.kernels.gemm import Gemm
from sim_tb.kernels.gemm_multistage import GemmMultistage
from sim_tb.kernels.gemm_pingpong import GemmPingPong
from sim_tb.kernels.gemm_split_k import GemmSplitK
from sim_tb.record import Setting

pytestmark = pytest.mark.simulators

SCHEDULES = Gemm, GemmPingPong, GemmMultistage, GemmSplitK
SIZES = (130, 72, 72), (1, 1, 8), (65, 131, 136)
DEEP = {"m": 128, "n": 128, "k": 1024}
STEP_FMA_CLOCKS = 512
"""What the tensor cores take for a step of 128 x 128 x 64."""

STEP_LINES = 256
"""What the two tiles of a step take on the memory port, a line a clock."""

SCARCE = {"promotion": 2}
"""Each accumulator takes two instructions in each step: half of the issue slots."""


@pytest.fixture(scope="module")
def records():
    """All runs of this file, in one simulation."""
    work = [
        (schedule(m=m, n=n, k=k, stages=stages), Setting())
        for schedule in SCHEDULES
        for (m, n, k), stages in zip(SIZES, (1, 4, 3), strict=True)
    ]
    work += [(Gemm(**DEEP, stages=stages), Setting()) for stages in (1, 2, 3, 4)]
    work += [(schedule(**DEEP, **SCARCE), Setting()) for schedule in (Gemm, GemmMultistage)]
    work += [(Gemm(**DEEP, stages=4), Setting(memory="latency=1200"))]
    return list(launch.run(work))


def deep(records, kernel, stages=4, memory="l2", promotion=0):
    found = [
        record
        for record in records
        if record.kernel == kernel
        and record.options["k"] == DEEP["k"]
        and record.options["stages"] == stages
        and record.options["promotion"] == promotion
        and record.setting.memory == memory
    ]
    assert len(found) == 1
    return found[0]


def test_each_equals_numpy_bit_for_bit(records):
    assert {record.kernel for record in records} == {schedule.name for schedule in SCHEDULES}
    for record in records:
        assert not record.error
        assert not record.wrong
        options = record.options
        assert record.check.endswith(f"bit for bit: {options['m'] * options['n']} elements")


def test_one_stage_starves_and_three_suffice(records):
    starved = [deep(records, "gemm", stages).starved for stages in (1, 2, 3, 4)]
    assert starved[0] > 0.4
    assert starved[0] > starved[1] > starved[2]
    assert max(starved[2:]) < 0.01


def test_overlap_pays_what_the_latency_says(records):
    """Serialized, a step takes latency, transfer and product; overlapped, the longest of these."""
    serialized, overlapped = (deep(records, "gemm", stages).cycles for stages in (1, 4))
    steps = DEEP["k"] // 64
    latency = deep(records, "gemm", 1).latency
    expected = (latency + STEP_LINES + STEP_FMA_CLOCKS) / STEP_FMA_CLOCKS
    gained = (serialized - overlapped) / steps / STEP_FMA_CLOCKS + 1
    assert gained == pytest.approx(expected, rel=0.1)


def test_more_latency_wants_more_stages(records):
    slow = deep(records, "gemm", memory="latency=1200")
    assert slow.starved > 0.05 > deep(records, "gemm", 4).starved


def test_specialization_pays_where_issue_slots_are_scarce(records):
    """Without a producer the warpgroups go in step: nobody multiplies while both do the rest."""
    specialized = deep(records, "gemm", **SCARCE)
    multistage = deep(records, "gemm_multistage", **SCARCE)
    assert specialized.starved < 0.01
    assert multistage.starved > 0.2
    assert multistage.cycles > 1.25 * specialized.cycles
