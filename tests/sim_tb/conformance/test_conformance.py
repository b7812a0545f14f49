"""Every recorded transfer, and recorded programs of barriers and clusters, through the RTL."""

from dataclasses import replace
from pathlib import Path

import pytest

from golden.vectors import check, read_arrays, read_cases
from hw.params import TmaParams
from sim_tb.conformance import rtl
from sim_tb.conformance.barriers import barrier_file
from sim_tb.conformance.clusters import ClusterProgram, cluster_file
from sim_tb.conformance.command import NOTES, main
from sim_tb.conformance.instructions import Error
from sim_tb.conformance.memory_side import MemorySide
from sim_tb.conformance.recordings import Clusters
from sim_tb.conformance.rtl import outcomes
from sim_tb.simulator import runner
from tests.quick import quick
from tests.sim_tb.conformance.ended_at_a_part import ENDED_AT_A_PART
from tests.top.units import CLUSTER

pytestmark = [pytest.mark.simulators(), pytest.mark.spread]

SILICON = runner.ROOT / "tests" / "silicon"
CASES = {"transfers": 1438 + 1303, "workloads": 132}
"""Loads, stores and reductions in each file, without multicasts."""


@pytest.mark.parametrize(
    ("models", "every"), quick([("fixed", 1), ("rough", 4), ("random", 1), ("rough", 1)], 2)
)
@pytest.mark.parametrize("name", ["transfers", "workloads"])
def test_recorded_transfers(name: str, models: str, every: int) -> None:
    cases = [case for case in read_cases(Path(SILICON, f"{name}.npz")) if not case.is_multicast]
    assert len(cases) == CASES[name]
    cases = cases[::every]
    found = outcomes(cases, memory=MemorySide(models))
    wrong = [check(case, outcome) for case, outcome in zip(cases, found, strict=True)]
    assert [text for text in wrong if text] == []


@pytest.mark.regress
@pytest.mark.parametrize("models", ["fixed", "rough"])
@pytest.mark.parametrize("name", ["transfers", "workloads"])
@pytest.mark.parametrize("port", ["axi", "tlb"])
def test_recorded_transfers_by_port(port: str, name: str, models: str) -> None:
    """With ``transfers``, also the multicasts, whose cluster has such a port at each SM."""
    arguments = [str(SILICON / f"{name}.npz"), "--target", "rtl", "--port", port]
    assert main([*arguments, "--models", models]) == 0


@pytest.mark.simulators(CLUSTER)
@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_recorded_multicasts(models: str) -> None:
    """Multicasts run on four SMs; with ``rough``, each receiver stalls independently."""
    cases = [case for case in read_cases(Path(SILICON, "transfers.npz")) if case.is_multicast]
    assert len(cases) == 60
    found = outcomes(cases, memory=MemorySide(models), cluster=CLUSTER)
    wrong = [check(case, outcome) for case, outcome in zip(cases, found, strict=True)]
    assert [text for text in wrong if text] == []


BARRIERS = SILICON / "barriers.npz"


@pytest.mark.parametrize("models", ["fixed", "rough"])
def test_some_barrier_programs(models: str) -> None:
    """Each tenth program; with ``rough``, commands and results wait."""
    file = barrier_file(BARRIERS, read_arrays(BARRIERS))
    programs = [file[number] for number in range(0, len(file), 10)]
    runs = rtl.barrier_results(programs, memory=MemorySide(models))
    wrong = [program.check(run) for program, run in zip(programs, runs, strict=True)]
    assert [text for text in wrong if text] == []


PAIR = MemorySide(port="axi").of(
    replace(CLUSTER, ctas=2, line_bytes=32, tags=16, setup_pipelines=1, cta_group_2=False)
)
"""Two SMs, each with an AXI4 port."""


def fits(program: ClusterProgram, cluster: TmaParams = CLUSTER) -> bool:
    """Return whether a cluster of the other tests can run a program as silicon does.

    It has no im2col, and more shared memory than the programs.
    """
    is_im2col = any("IM_" in step.name for step in program.steps)
    leaves_memory = program.error is Error.ILLEGAL_ADDRESS or program.name == "dcopy_dst_edge"
    return program.ctas <= cluster.ctas and not is_im2col and not leaves_memory


@pytest.mark.simulators(CLUSTER)
@pytest.mark.parametrize(("name", "step"), [("clusters", 7), ("clusters_odd", 3)])
def test_some_cluster_programs(name: str, step: int) -> None:
    path = SILICON / f"{name}.npz"
    file = cluster_file(path, read_arrays(path))
    programs = [file[number] for number in range(0, len(file), step) if fits(file[number])]
    runs = rtl.cluster_outcomes(programs, cluster=CLUSTER)
    verdicts = list(map(Clusters(file).verdict, programs, runs))
    assert [verdict.difference for verdict in verdicts if verdict.difference] == []
    notes = {verdict.note for verdict in verdicts if verdict.note}
    assert notes <= set(ENDED_AT_A_PART["rtl"])


@pytest.mark.regress
@pytest.mark.simulators(PAIR)
@pytest.mark.parametrize(("name", "step"), [("clusters", 3), ("clusters_odd", 2)])
def test_some_cluster_programs_by_axi(name: str, step: int) -> None:
    path = SILICON / f"{name}.npz"
    file = cluster_file(path, read_arrays(path))
    programs = [program for program in file if fits(program, PAIR)][::step]
    assert len(programs) > 40
    runs = rtl.cluster_outcomes(programs, cluster=PAIR)
    verdicts = list(map(Clusters(file).verdict, programs, runs))
    assert [verdict.difference for verdict in verdicts if verdict.difference] == []


@pytest.mark.regress
@pytest.mark.parametrize("models", ["fixed", "rough"])
@pytest.mark.parametrize("name", ["clusters", "clusters_odd"])
@pytest.mark.parametrize(
    "port",
    [
        pytest.param(port, marks=pytest.mark.simulators(MemorySide(port=port).of(rtl.CLUSTER)))
        for port in ("gnic", "axi", "tlb")
    ],
)
def test_all_cluster_programs(
    port: str, name: str, models: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(SILICON / f"{name}.npz"), "--target", "rtl", "--models", models]
    assert main([*arguments, "--port", port]) == 0
    lines = capsys.readouterr().out.splitlines()
    notes = {line.strip() for line in lines[lines.index(NOTES) + 1 : -1]} if NOTES in lines else {}
    # Signals that wait for the mbarrier unit are added up: with stalls, fewer parts are left.
    assert set(notes) <= set(ENDED_AT_A_PART["rtl"])


@pytest.mark.regress
@pytest.mark.parametrize("port", ["gnic", "axi"])
def test_all_barrier_programs(port: str) -> None:
    assert main([str(BARRIERS), "--target", "rtl", "--port", port]) == 0
