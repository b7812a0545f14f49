"""``tma_host`` with a host and a memory of ``cocotbext-axi``, against the golden model."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from hw.host_top import HostTma
from tests.hw.cocotb_bench import Bench
from tests.quick import quick
from tests.top.units import HOST

BENCH = Bench(HostTma, "tma_host", HOST)
RULES = [
    *("bad_accesses_are_refused", "bad_records_are_refused", "faults_are_reported"),
    *("rings_that_fail", "barriers_and_waits", "fences", "shared_memory_and_small_rings"),
    *("a_host_that_is_slow", "counters_and_events"),
]
RANDOM = "random_loads_are_right", "random_stores_are_right", "any_records"


def run(testcase: str, folder: Path, seed: int, pause: float, count: int) -> None:
    env = {
        "HOST_PARAMS": json.dumps(asdict(HOST)),
        "HOST_PAUSE": str(pause),
        "HOST_COUNT": str(count),
    }
    BENCH.run("tests.hw.host.tb_host", testcase, folder, seed, env)


@pytest.mark.simulators.with_args(BENCH.build)
@pytest.mark.parametrize("pause", [0.0, pytest.param(0.3, marks=pytest.mark.regress)])
@pytest.mark.parametrize("testcase", RULES)
def test_rules(testcase: str, pause: float, tmp_path: Path) -> None:
    run(testcase, tmp_path, 1, pause, 0)


@pytest.mark.simulators.with_args(BENCH.build)
@pytest.mark.parametrize(("seed", "pause"), quick([(1, 0.3), (2, 0.0), (3, 0.3), (4, 0.6)], 1))
@pytest.mark.parametrize("testcase", RANDOM)
def test_random(testcase: str, seed: int, pause: float, tmp_path: Path) -> None:
    run(testcase, tmp_path, seed, pause, 5)
