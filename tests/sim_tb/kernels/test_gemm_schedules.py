"""GEMMs with each schedule: the same bits, and the advantage of each schedule."""

import pytest

from sim_tb.kernels.gemm import Gemm
from sim_tb.kernels.gemm_multistage import GemmMultistage
from sim_tb.kernels.gemm_pingpong import GemmPingPong
from sim_tb.kernels.gemm_split_k import GemmSplitK
from sim_tb.sm import launch
from sim_tb.sm.costs import Costs
from sim_tb.sm.record import Setting

pytestmark = pytest.mark.simulators

SCHEDULES = Gemm, GemmPingPong, GemmMultistage, GemmSplitK
SIZES = (130, 72, 72), (1, 1, 8), (65, 131, 136)
DEEP = {"m": 128, "n": 128, "k": 1024}
STEP_FMA_CLOCKS = 512
"""Clocks of the tensor cores per step of 128 x 128 x 64."""

STEP_LINES = 256
"""Lines of the two tiles of a step; the memory port transfers one line per clock."""

SCARCE = {"promotion": 2}
"""Two instructions on each accumulator in each step take half of the issue slots."""

TURNS = {"m": 512, "n": 128, "k": 192}
"""Four tiles of three steps."""


@pytest.fixture(scope="module")
def records():
    """Records of all runs of this file, from one simulation."""
    work = [
        (schedule(m=m, n=n, k=k, stages=stages), Setting())
        for schedule in SCHEDULES
        for (m, n, k), stages in zip(SIZES, (1, 4, 3), strict=True)
    ]
    work += [(Gemm(**DEEP, stages=stages), Setting()) for stages in (1, 2, 3, 4)]
    work += [(schedule(**DEEP, **SCARCE), Setting()) for schedule in (Gemm, GemmMultistage)]
    work += [(Gemm(**DEEP, stages=4), Setting(memory="latency=1200"))]
    work += [(GemmPingPong(**TURNS), Setting())]
    return list(launch.run(work))


def deep(records, kernel, stages=4, memory="l2", promotion=0):
    """The record of the GEMM with a large K that has these options."""
    selected = [
        record
        for record in records
        if record.kernel == kernel
        and record.options["k"] == DEEP["k"]
        and record.options["stages"] == stages
        and record.options["promotion"] == promotion
        and record.setting.memory == memory
    ]
    (record,) = selected
    return record


def test_each_equals_numpy_bit_for_bit(records):
    assert {record.kernel for record in records} == {schedule.name for schedule in SCHEDULES}
    for record in records:
        assert not record.error
        assert not record.wrong
        options = record.options
        assert record.check.endswith(f"bit for bit: {options['m'] * options['n']} elements")


def test_one_stage_starves_and_three_suffice(records):
    starvation = [deep(records, "gemm", stages).starvation for stages in (1, 2, 3, 4)]
    assert starvation[0] > 0.4
    assert starvation[0] > starvation[1] > starvation[2]
    assert max(starvation[2:]) < 0.01


def test_overlap_pays_what_the_latency_says(records):
    """With one stage a step takes release, latency, transfer and product; with four a product."""
    serialized, overlapped = (deep(records, "gemm", stages).cycles for stages in (1, 4))
    steps = DEEP["k"] // 64
    latency = deep(records, "gemm", 1).latency
    expected = (Costs().arrival + latency + STEP_LINES + STEP_FMA_CLOCKS) / STEP_FMA_CLOCKS
    gain = (serialized - overlapped) / steps / STEP_FMA_CLOCKS + 1
    assert gain == pytest.approx(expected, rel=0.1)


def test_more_latency_wants_more_stages(records):
    slow = deep(records, "gemm", memory="latency=1200")
    assert slow.starvation > 0.05 > deep(records, "gemm", 4).starvation


def test_specialization_pays_where_issue_slots_are_scarce(records):
    """Without a producer both warpgroups promote at the same time, and the tensor cores idle."""
    specialized = deep(records, "gemm", **SCARCE)
    multistage = deep(records, "gemm_multistage", **SCARCE)
    assert specialized.starvation < 0.01
    assert multistage.starvation > 0.2
    assert multistage.cycles > 1.25 * specialized.cycles


def test_the_next_turn_begins_when_the_last_product_is_issued(records):
    """The arrival that passes the turn on takes no time from the tensor cores."""
    (record,) = (each for each in records if each.options["m"] == TURNS["m"])
    assert record.starvation < 0.01
