"""Command line of kernels: list, run, sweep, and messages for wrong input."""

import json
import os
import re
import subprocess

import pytest

from sim_tb.__main__ import main, numbers, parser_of, work_of
from sim_tb.kernels import kernels
from sim_tb.simulator.runner import ROOT
from sim_tb.simulator.waves import MAIN_REPORT
from sim_tb.sm import launch

TINY = ["--m", "1", "--n", "1", "--k", "8"]


def test_list(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # so that no cell is wrapped
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for name in kernels():
        assert re.search(rf"^│ {name} +│", printed, re.MULTILINE)
    assert "--stages: stages of the ring [4]" in printed


@pytest.mark.simulators
def test_run(tmp_path, capsys):
    output = tmp_path / "out"
    arguments = ["run", "gemm", *TINY, "--stages", "2", "--memory", "l2,latency=100"]
    assert main([*arguments, "--issue-interval", "2", "--report", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "gemm --seed 1 --stages 2 --promotion 0 --m 1 --n 1 --k 8 --cluster 1x1" in printed
    assert "--memory l2,latency=100 --issue-interval 2 --watchdog 20000" in printed
    assert "C equals NumPy's, bit for bit: 1 elements" in printed
    assert re.search(r"bytes into shared memory +│ 32,768 ", printed)
    assert re.search(r"lines read +│ 2 ", printed)
    for name in ("report.html", "timeline.png", "timeline.json"):
        assert f"{output}/{name}" in printed
    events = json.loads((output / "timeline.json").read_text())["traceEvents"]
    assert {"stmatrix", "wait full[0]", "mma"} <= {event["name"] for event in events}


@pytest.mark.simulators
def test_sweep(tmp_path, capsys):
    """A run that hangs is reported as failed, and the next one runs."""
    arguments = ["sweep", "gemm", *TINY, "--stages", "1", "--watchdog", "2000"]
    memory = ["--memory", "l2,latency=9000/l2,latency=100"]
    assert main([*arguments, *memory, "--report", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    rows = [
        [cell.strip() for cell in line.split("│")]
        for line in printed.splitlines()
        if line.startswith("│ l2")
    ]
    assert [row[-2] for row in rows] == ["failed", "right"]
    text = (tmp_path / "report.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    hangs, runs = json.loads(data)["records"]
    assert (hangs["failed"], runs["failed"]) == (True, False)
    assert "latency=9000" in hangs["title"]
    assert "the kernel hangs: no progress since cycle" in hangs["verdict"]
    assert f"{hangs['title']}\n{hangs['verdict']}" in printed


def test_every_combination():
    known = kernels()
    arguments = ["--stages", "1..5..4", "--memory", "l2/latency=600", "--issue-interval", "2"]
    options = parser_of(known).parse_args(["sweep", "gemm", *TINY, *arguments])
    work = list(work_of(known["gemm"], options))
    assert [(kernel.stages, setting.memory) for kernel, setting in work] == [
        (1, "l2"), (1, "latency=600"), (5, "l2"), (5, "latency=600"),
    ]  # fmt: skip
    assert {(kernel.m, kernel.k, setting.issue_interval) for kernel, setting in work} == {(1, 8, 2)}


def test_numbers():
    assert numbers("3") == [3]
    assert numbers("1..4") == [1, 2, 3, 4]
    assert numbers("64..256..96") == [64, 160, 256]
    assert numbers("5,1") == [5, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "gem"], "argument KERNEL: invalid choice: 'gem' (choose from"),
        (["run", "gemm", "--m", "many"], "argument --m: 'many': must be a whole number"),
        (["run", "gemm", "--m", "1..4"], "argument --m: '1..4': must be a whole number"),
        (["run", "gemm", "--stages", "0"], "--stages 0: stages = 0: must be at least 1"),
        (["run", "gemm", "--stages", "6"], "--stages 6: shared memory: "),
        (["run", "gemm", "--depth", "6"], "unrecognized arguments: --depth 6"),
        (["run", "gemm", "--memory", "l4"], "memory = l4: must be one of l2, "),
        (["run", "gemm", "--issue-interval", "0"], "issue_interval = 0: must be at least 1"),
        (["run", "gemm", "--cluster", "3x1"], "cluster = 3x1: must be of 1, 2, 4 or 8"),
        (["sweep", "gemm", "--stages", "4..1"], "argument --stages: '4..1': must be a..b"),
        (["sweep", "gemm", "--stages", "1..4..0"], "argument --stages: '1..4..0': must be a..b"),
        (["sweep", "gemm", "--stages", "1.."], "argument --stages: '': must be a whole number"),
        (["sweep", "gemm", "--stages", "1..9"], "--stages 6: shared memory: "),
        (["sweep", "gemm", "--k", "8..16..4", "--m", "1"], "--k 12: k = 12: a row has 24 bytes"),
    ],
)
def test_wrong_input_is_named(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(launch, "run", None)  # no simulation may start
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def make(*variables):
    """The commands that ``make sim`` would run, without the set-up."""
    command = ["make", "--no-print-directory", "-n", "-o", "setup", "sim", *variables]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=ROOT, env=mine, capture_output=True, text=True, check=False)


def test_make_sim():
    made = make("M=64", "STAGES=2", "CLUSTER=2x1", "A=x.npy").stdout.replace("\\\n", " ").split()
    assert made[made.index("-m") :] == [
        *("-m", "sim_tb", "run", "gemm", "--report", str(MAIN_REPORT)),
        *("--m", "64", "--stages", "2", "--cluster", "2x1", "--a", "x.npy"),
    ]
    assert "run gemm_split_k --report" in make("EPILOGUE=reduce").stdout
    wrong = make("EPILOGUE=add")
    assert wrong.returncode
    assert "EPILOGUE = add: must be store or reduce" in wrong.stderr
