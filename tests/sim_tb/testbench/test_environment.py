"""The testbench itself: its environment works, and it notices a faulty unit."""

import re
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results

from sim_tb.simulator import runner
from sim_tb.simulator.waves import FRAME, PIXELS
from tests.sim_tb.simulator.gtkwave import unread
from tests.sim_tb.testbench import stand_in

MODULE = "tests.sim_tb.testbench.tb_stand_in"
CLUSTER_MODULE = "tests.sim_tb.testbench.tb_stand_in_cluster"


pytestmark = pytest.mark.simulators.with_args(stand_in.build_unit)


@pytest.fixture(scope="module")
def cluster() -> Path:
    """The directory with the Verilog of three stand-ins in a cluster."""
    return stand_in.rtl(stand_in.CLUSTER)


@pytest.fixture(scope="module")
def rtl() -> Path:
    """The directory with the Verilog of one stand-in."""
    return stand_in.rtl(stand_in.UNIT)


def test_environment(rtl: Path) -> None:
    run = runner.run(MODULE, rtl=rtl)
    assert get_results(run / "results.xml") == (28, 0)


@pytest.mark.simulators.with_args(stand_in.build_cluster)
@pytest.mark.regress
def test_cluster_environment(cluster: Path) -> None:
    run = runner.run(CLUSTER_MODULE, rtl=cluster)
    assert get_results(run / "results.xml") == (8, 0)


def test_a_failure_says_how_to_repeat_it(rtl: Path) -> None:
    with pytest.raises(runner.SimulationError) as caught:
        runner.run("tests.sim_tb.testbench.tb_failing", "fails", rtl=rtl, seed=7)
    text = str(caught.value)
    assert "1 of 1 tests failed" in text
    assert "AssertionError: on purpose" in text
    last = text.splitlines()[-1]
    assert last.startswith(
        "reproduce: .venv/bin/python -m sim_tb.runner tests.sim_tb.testbench.tb_failing fails"
    )
    assert "--seed 7" in last


def test_no_test_is_a_failure(rtl: Path) -> None:
    with pytest.raises(runner.SimulationError, match=r"0 tests ran|crashed"):
        runner.run(MODULE, "no_such_test", rtl=rtl)


def test_a_crash_is_a_failure(rtl: Path) -> None:
    with pytest.raises(runner.SimulationError, match="crashed"):
        runner.run("tests.sim_tb.testbench.tb_failing", "crashes", rtl=rtl)


def test_an_assertion_ends_the_simulation(rtl: Path) -> None:
    """The message of the assertion is in the error."""
    with pytest.raises(runner.SimulationError, match="stand-in: an assertion fails on purpose"):
        runner.run("tests.sim_tb.testbench.tb_failing", "breaks_an_assertion", rtl=rtl)


@pytest.mark.simulators.with_args(stand_in.build_unit_with_waves)
def test_waves_are_left(rtl: Path, tmp_path: Path) -> None:
    waves = tmp_path / ("copies.fst" if runner.fst() else "copies.vcd")
    run = runner.run(MODULE, "errors_arrive", rtl=rtl, waves=waves)
    assert waves.stat().st_size > (1_000 if runner.fst() else 10_000)  # FST is compressed
    text = waves.with_suffix(".gtkw").read_text()
    assert " tb_top.dut.request__valid\n" in text
    results = (run / "results.xml").read_text()
    ended = float(re.search(r'"sim_time_stop" value="([\d.]+)"', results)[1])
    picoseconds = 2 ** -float(re.search(r"^\*(\S+) ", text, re.MULTILINE)[1]) * PIXELS / FRAME
    assert picoseconds == pytest.approx(1000 * ended, rel=0.01)
    if not runner.fst():
        header = waves.read_text().partition("$enddefinitions")[0]
        assert header.count("$var") > 200
        assert list(unread(header)) == []


@pytest.mark.regress
def test_waves_of_a_cluster_are_left(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "fst", lambda: False)
    waves = tmp_path / "copies.vcd"
    runner.run(CLUSTER_MODULE, "all_at_once", rtl=cluster, waves=waves)
    assert " tb_top.dut.sm_2.unit.request__valid\n" in waves.with_suffix(".gtkw").read_text()
    header = waves.read_text().partition("$enddefinitions")[0]
    assert list(unread(header)) == []
    design = header.partition("\n  $scope module dut $end")[2]
    assert design.partition("\n  $upscope $end")[0].count("$scope module unit $end") == 3


def test_a_build_is_kept(rtl: Path) -> None:
    first = runner.build(rtl=rtl)
    program = first.directory / "obj" / runner.TOP
    finished = program.stat().st_mtime_ns
    assert runner.build(rtl=rtl) == first
    assert program.stat().st_mtime_ns == finished
