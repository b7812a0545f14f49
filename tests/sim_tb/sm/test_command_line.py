"""Command line of kernels: list, run, sweep, and messages for wrong input."""

import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from sim_tb.__main__ import main, numbers, parser_of, work_of
from sim_tb.kernels import kernels, library
from sim_tb.kernels.copy import Copy
from sim_tb.simulator.runner import ROOT
from sim_tb.simulator.waves import MAIN_REPORT
from sim_tb.sm import launch
from sim_tb.sm.errors import KernelError
from sim_tb.sm.options import option
from sim_tb.sm.record import Setting

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
    more = ["--memory", "l2,latency=9000/l2,latency=100/latency=100", "--report", str(tmp_path)]
    assert main([*arguments, *more]) == 1
    assert "2 results are of an earlier run" in capsys.readouterr().out


@pytest.mark.simulators
def test_explore(tmp_path, capsys):
    """Each schedule is another run, and the same one with its number again."""
    options = ["--rows", "100", "--report", str(tmp_path)]
    assert main(["run", "copy", "--explore", "2", *options]) == 0
    printed = capsys.readouterr().out
    (low, high) = re.findall(r"2 schedules, ([\d,]+) to ([\d,]+) cycles: 0 failed", printed)[0]
    assert low != high
    assert main(["run", "copy", "--schedule", "2", *options]) == 0
    printed = capsys.readouterr().out
    assert "--watchdog 20000 --schedule 2\n" in printed
    assert re.findall(r"cycles +│ ([\d,]+) ", printed)[0] in (low, high)


@pytest.mark.simulators
def test_explore_names_the_schedules_that_fail(tmp_path, capsys):
    options = ["--memory", "latency=9000", "--watchdog", "2000", "--report", str(tmp_path)]
    slow = ["run", "gemm", *TINY, "--explore", "1", "--issue-interval", "100000"]
    assert main([*slow, *options]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"-m sim_tb run gemm .*--schedule 1\nFAILED: cycle \d+: the kernel", printed)
    assert printed.count("1 schedules") == 1
    for wrong in (["--explore", "0"], ["--explore", "2", "--schedule", "1"]):
        with pytest.raises(SystemExit):
            main(["run", "copy", *wrong])
        assert f"--explore {wrong[1]}: " in capsys.readouterr().err


def test_every_combination():
    loaded = library()
    arguments = ["--stages", "1..5..4", "--memory", "l2/latency=600", "--issue-interval", "2"]
    arguments += ["--cluster", "1x1,2x1"]
    options = parser_of(loaded).parse_args(["sweep", "gemm", *TINY, *arguments])
    work = list(work_of(loaded.kernels["gemm"], options))
    assert [(kernel.stages, kernel.cluster, setting.memory) for kernel, setting in work] == list(
        product((1, 5), ("1x1", "2x1"), ("l2", "latency=600"))
    )
    assert {(kernel.m, kernel.k, setting.issue_interval) for kernel, setting in work} == {(1, 8, 2)}


def test_numbers():
    assert numbers("3") == [3]
    assert numbers("1..4") == [1, 2, 3, 4]
    assert numbers("64..256..96") == [64, 160, 256]
    assert numbers("5,1") == [5, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "gem"], "argument KERNEL: 'gem': must be one of all_gather, conv, "),
        (["run", "gem"], "transpose; did you mean gemm?"),
        (["run", "gemm", "--m", "many"], "argument --m: 'many': must be a whole number"),
        (["run", "gemm", "--m", "1..4"], "argument --m: '1..4': must be a whole number"),
        (["run", "gemm", "--stages", "0"], "run gemm: --stages 0: must be at least 1"),
        (["run", "gemm", "--stages", "6"], "must be at most 233472; stages must be at most 5"),
        (
            ["run", "gemm", "--stage", "6"],
            "--stage: there is no such option; did you mean --st",
        ),
        (["run", "gemm", "--depth=6"], "--depth: there is no such option; see --help"),
        (["run", "gemm", "6"], "6: there is no place for this argument; see --help"),
        (["run", "gemm", "--memory", "l4"], "--memory l4: 'l4': must be one of l2, "),
        (["run", "gemm", "--memory", "latency=0"], "--memory latency=0: latency from 0 to 0: must"),
        (["run", "gemm", "--issue-interval", "0"], "--issue-interval 0: must be at least 1"),
        (["run", "gemm", "--cluster", "3x1"], "--cluster 3x1: must be of 1, 2, 4 or 8"),
        (["run", "gemm", "--a", "a b"], "--a 'a b': No such file or directory"),
        (["run", "copy", "--rows", "100000000000"], "--rows 100000000000: must be at most 42949"),
        (["sweep", "gemm", "--cluster", "1x1,3x1"], "--cluster 3x1: must be of 1, 2, 4 or 8"),
        (["sweep", "gemm", "--stages", "4..1"], "argument --stages: '4..1': must be a..b"),
        (["sweep", "gemm", "--stages", "1..4..0"], "argument --stages: '1..4..0': must be a..b"),
        (["sweep", "gemm", "--stages", "1.."], "argument --stages: '': must be a whole number"),
        (["sweep", "gemm", "--stages", "1..9"], "--stages 6: shared memory: "),
        (["sweep", "gemm", "--k", "8..16..4", "--m", "1"], "gemm: --k 12: a row has 24 bytes"),
    ],
)
def test_wrong_input_is_named(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(launch, "simulate", None)  # no simulation may start
    with pytest.raises(SystemExit) as caught:
        main(arguments, "open-tma")
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.startswith("open-tma ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("directory", ["file", "file/below", "/proc/report"])
def test_a_report_that_cannot_be_written_is_found_first(directory, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "simulate", None)
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(SystemExit) as caught:
        main(["run", "gemm", *TINY, "--report", directory])
    assert caught.value.code == 2
    assert f"gemm: --report {directory}: cannot be written: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyboardInterrupt, 130, "interrupted\n"),
        (MemoryError("1 TiB"), 1, "the memory of this computer is too small: 1 TiB\n"),
        (OSError(28, "No space left", "x"), 1, "x: No space left\n"),
    ],
)
def test_an_end_in_one_line(error, status, line, capsys, monkeypatch, tmp_path):
    def simulate(_work, _params):
        raise error
        yield

    monkeypatch.setattr(launch, "simulate", simulate)
    assert main(["run", "gemm", *TINY, "--report", str(tmp_path)]) == status
    assert capsys.readouterr() == ("", line)


@dataclass
class WrongCopy(Copy):
    """A copy with an error of Python in ``host`` or in ``smem``."""

    error: str = option("", "method with an error, or MemoryError")

    def host(self, device):
        super().host(device)
        if self.error == "host":
            self.x.missing()
        if self.error == "MemoryError":
            raise MemoryError("Unable to allocate 1 TiB")

    def smem(self, smem):
        assert self.x.name == "x"  # ``host`` is called first
        super().smem(smem)
        if self.error == "smem":
            smem.tile("t", (1, 16))


def test_host_and_layout_are_tried_first(monkeypatch):
    """Errors of Python are found before a simulator is built; the kernel keeps no tensors."""
    monkeypatch.setattr(launch, "simulate", None)
    kernel = WrongCopy()
    launch.validate(kernel, Setting())
    assert not hasattr(kernel, "x")
    for method, error in (("host", "AttributeError: .*missing"), ("smem", "TypeError: .*dtype")):
        with pytest.raises(KernelError, match=rf"^{method}: {error}") as caught:
            launch.validate(WrongCopy(error=method), Setting())
        frames = re.findall(r'^  File "(.*)", line \d+, in (\w+)$', str(caught.value), re.MULTILINE)
        assert frames == [(__file__, method)]
    with pytest.raises(ValueError, match="do not fit into this computer's memory: Unable to al"):
        launch.validate(WrongCopy(error="MemoryError"), Setting())


def make(*words, target="sim"):
    """The commands that make would run for a target, without the set-up."""
    command = ["make", "--no-print-directory", "-n", "-o", "setup", target, *words]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=ROOT, env=mine, capture_output=True, text=True, check=False)


def test_make_sim():
    printed = make("M=64", "STAGES=2", "CLUSTER=2x1", "A=my x.npy").stdout
    made = shlex.split(printed.replace("\\\n", " "))
    assert made[made.index("-m") :] == [
        *("-m", "sim_tb", "run", "gemm", "--report", str(MAIN_REPORT)),
        *("--m", "64", "--stages", "2", "--cluster", "2x1", "--a", "my x.npy"),
    ]
    assert "run gemm_split_k --report" in make("EPILOGUE=reduce").stdout
    wrong = make("EPILOGUE=add")
    assert wrong.returncode
    assert "EPILOGUE = add: must be store or reduce" in wrong.stderr


@pytest.mark.parametrize(
    ("target", "variable", "message"),
    [
        (
            "sim",
            "STAGE=2",
            "STAGE: make sim takes M, N, K, STAGES, EPILOGUE, CLUSTER, A, B, SIM",
        ),
        ("sim", "STAGE=2", "did you mean STAGES?"),
        ("sim", "m=64", "did you mean M?"),
        ("test", "STAGES=2", "STAGES: make test takes no variables"),
        ("conformance", "MODEL=rough", "did you mean MODELS?"),
        ("readme", "MEASURE=no", "MEASURE = no: must be 1"),
    ],
)
def test_make_refuses_unknown_variables(target, variable, message):
    made = make(variable, target=target)
    assert made.returncode
    assert message in made.stderr


def test_make_takes_each_variable_of_the_help():
    helps = re.findall(r"^([a-z-]+):.*## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target, text in helps:
        names = re.findall(r"\b([A-Z]+)=", text)
        values = dict.fromkeys(names, "1") | {"EPILOGUE": "store", "SIM": "icarus"}
        alone = {"SIM"}  # an SM alone, without CLUSTER
        for group in ({*names} - alone, {*names} & alone):
            made = make(*(f"{name}={values[name]}" for name in sorted(group)), target=target)
            assert not made.returncode, made.stderr
