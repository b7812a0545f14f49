"""The files of ``make verilog``: what each says of itself, macros of ports, and old files."""

import dataclasses
import json
import re
import tomllib

import pytest
from amaranth.lib import wiring

from hw.flow import verilog
from hw.flow.cache import ROOT
from hw.flow.design import Design
from hw.flow.macros import macros
from hw.flow.tables import port_widths
from hw.layouts.ports import request_layout, smem_write_layout
from hw.params import PRESETS, options_of, parameters
from hw.top import tma_ports
from tests.sim_tb.testbench.stand_in import StandIn

CUSTOM = dataclasses.replace(PRESETS["tiny"], tags=16)


@pytest.fixture(scope="module", params=["tiny", None])
def written(request, tmp_path_factory):
    """The folder of a unit, and its preset."""
    params = CUSTOM if request.param is None else PRESETS[request.param]
    folder = tmp_path_factory.mktemp("rtl")
    verilog.generate(params, folder, StandIn(params))
    return folder, request.param


def test_heads(written):
    """Licence, version, preset and parameters are in each file."""
    folder, preset = written
    params = CUSTOM if preset is None else PRESETS[preset]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in "tma.v", "tma.vh":
        head = (folder / name).read_text().partition("\n\n")[0].splitlines()
        assert head[0] == "// SPDX-License-Identifier: Apache-2.0"
        assert f"open-tma {version}," in head[1]
        assert f"// Preset: {preset or 'none'}" in head
        assert f"//   tags = {params.tags}" in head
    interface = json.loads((folder / "tma.json").read_text())
    assert interface["license"] == "Apache-2.0"
    assert (interface["version"], interface["preset"]) == (version, preset)
    assert interface["parameters"] == dataclasses.asdict(params)
    assert interface["memories"] == list(Design(StandIn(params), "tma").memories())


def test_the_command_in_the_head_writes_the_same_file(written, tmp_path, monkeypatch):
    folder, _ = written
    text = (folder / "tma.v").read_text()
    (options,) = re.findall(r"^// Written by: python -m hw\.verilog(.*)$", text, re.MULTILINE)
    monkeypatch.setattr("hw.top.Tma", StandIn)
    assert verilog.main([*options.split(), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "tma.v").read_text() == text


@pytest.mark.parametrize("params", [*PRESETS.values(), CUSTOM])
def test_options_give_their_parameters(params):
    words = options_of(params)
    preset = words[1] if words[:1] == ["--preset"] else "default"
    assert parameters(preset, words[1::2] if words[:1] == ["--set"] else []) == params


def test_settings_change_a_preset():
    changed = parameters("tiny", ["tags=0x80", "stores=True", "bulk=1"])
    assert changed == dataclasses.replace(PRESETS["tiny"], tags=128, stores=True, bulk=True)


@pytest.mark.parametrize(
    ("preset", "setting", "text"),
    [
        ("default", "tags=many", "'tags=many': the value must be a number"),
        ("default", "stores=2", "'stores=2': the value must be 0, 1, False or True"),
        ("default", "tags=3", "tags = 3: must be a power of two from 2 to 4096"),
        ("default", "tags", "'tags': expected name=value, with a name of "),
        ("default", "tag=4", "'tag=4': expected name=value, with a name of address_bits, "),
        ("none", "tags=4", "no preset 'none': must be one of default, "),
    ],
)
def test_wrong_settings_are_named(preset, setting, text, capsys):
    with pytest.raises(SystemExit):
        verilog.main(["--preset", preset, "--set", setting])
    assert text in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        verilog.main(["--preset", "tiny", "--out", str(tmp_path / "file" / "rtl")])
    assert "Not a directory" in capsys.readouterr().err


def test_files_of_another_preset_are_removed(tmp_path):
    """Other files stay."""
    (tmp_path / "cluster.json").write_text(json.dumps({"module": "cluster"}))
    (tmp_path / "reduction_unit.json").write_text(json.dumps(["another project's"]))
    for name in "cluster.v", "cluster.vh", "reduction_unit.v", "own.v":
        (tmp_path / name).touch()
    verilog.generate(CUSTOM, tmp_path, StandIn(CUSTOM))
    assert {path.name for path in tmp_path.iterdir()} == {
        *("tma.v", "tma.vh", "tma.json", "tma.sv", "tma_template.sv"),
        *("open-tma.core", "Bender.yml", "lint.vlt"),
        *("own.v", "reduction_unit.v", "reduction_unit.json"),
    }


def described(params):
    """The contents of ``tma.json``, without an elaborated unit."""
    return verilog.interface(wiring.Signature(tma_ports(params)).create(), "tma", params)


@pytest.mark.parametrize("params", PRESETS.values(), ids=PRESETS)
def test_macros(params):
    """Each has one definition; fields are where the layouts have them."""
    text = macros(described(params))
    found = re.findall(r"^`define (\w+)(\(\w+\))? (.*)$", text, re.MULTILINE)
    values = {name: value for name, _, value in found}
    assert len(values) == len(found)
    assert values["TMA_LINE_BYTES"] == str(params.line_bytes)
    assert ("TMA_STORES" in values) == params.stores
    assert values["TMA_BARRIER_OP_ARRIVE_EXPECT_TX"] == "4'd3"

    request = request_layout(params)
    assert values["TMA_REQUEST_BITS"] == str(request.size)
    for name in "rank", "mbarrier", "thread":
        field = request[name]
        assert values[f"TMA_REQUEST_{name.upper()}"] == f"{field.offset} +: {field.width}"
    assert values["TMA_REQUEST_COORDS"] == f"{request['coords'].offset} + 32 * (i) +: 32"
    for i in range(params.lanes):
        lane = smem_write_layout(params)[i]
        for name, field in lane.shape:
            place, width = values[f"TMA_SMEM_WRITE_{name.upper()}"].split(" +: ")
            assert eval(place, {"i": i}) == lane.offset + field.offset
            assert int(width) == field.width


def test_widths_of_the_table_in_the_readme():
    """They are those that ``make verilog`` writes."""
    widths = port_widths(PRESETS["default"])
    for port in described(PRESETS["default"])["ports"]:
        stem, _, part = port["name"].rpartition("__")
        assert part != "payload" or widths[stem] == port["width"]
