"""The JSON beside the generated Verilog agrees with the Verilog and with the design's layouts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.lib import wiring

from hw.flow import verilog
from hw.layouts.barriers import BarrierFault, BarrierOp
from hw.layouts.isa import ErrorCode
from hw.params import PRESETS, TmaParams
from hw.reduce.reduction_unit import ReductionUnit
from sim_tb.testbench.interface import Interface
from sim_tb.testbench.models import PORTS
from tests.sim_tb.testbench.stand_in import StandIn


def write(directory: Path, module: str, unit: wiring.Component, params: TmaParams) -> Path:
    """Write the JSON file of a module without its Verilog, which takes seconds to generate."""
    unit._MustUse__silence = True  # it is not elaborated
    path = directory / f"{module}.json"
    path.write_text(json.dumps(verilog.interface(unit, module, params)))
    return path


UNITS = {**PRESETS, "counters": replace(PRESETS["tiny"], counters=True)}


@pytest.fixture(scope="module", params=UNITS.values(), ids=UNITS)
def interface(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Interface:
    params = request.param
    directory = tmp_path_factory.mktemp("generated")
    if params.reductions:
        write(directory, verilog.REDUCTION_MODULE, ReductionUnit(params), params)
    return Interface(write(directory, verilog.MODULE, StandIn(params), params))


def test_streams_are_those_of_the_testbench(interface: Interface) -> None:
    known = set(interface.unit_ports)
    if interface.parameters["reductions"]:
        memory_side = Interface(interface.path.with_name("reduction_unit.json"))
        known |= {f"reduction_{name}" for name in memory_side.ports}
    missing = ["remote_"] if interface.parameters["reductions"] else ["remote_", "reduction_"]
    if not interface.parameters["stores"]:
        missing += ["smem_read", "smem_data", "gnic_write", "gnic_ack", "group_result"]
    missing += [] if interface.parameters["counters"] else ["trace"]
    for name in PORTS:
        if not name.startswith(tuple(missing)):
            assert {f"{name}__valid", f"{name}__ready", f"{name}__payload"} <= known


def test_cluster(tmp_path: Path) -> None:
    params = TmaParams(line_bytes=32, reductions=False, ctas=3, counters=True)
    verilog.generate(params, tmp_path, StandIn(params))
    interface = Interface(tmp_path / "cluster.json")
    assert (interface.module, interface.sms) == ("cluster", 3)
    inside = {"cta_rank", "running", "packet_out", "packet_in", "message_out", "message_in"}
    unit = Interface(tmp_path / "tma.json").ports
    outside = {name for name in unit if name.split("__")[0] not in inside} - {"clk", "rst"}
    assert set(interface.unit_ports) == outside
    assert {f"{name}__ready" for name in PORTS if not name.startswith("reduction_")} < outside
    assert interface.instance.count(".sm_2__") == len(outside)
    assert ".sm_2__request__valid(units[2].request__valid)" in interface.instance
    assert "    .running,\n" in interface.instance
    assert "  request_t request__payload;\n" in interface.wires
    assert interface.unit_ports["error__payload"]["fields"] == unit["error__payload"]["fields"]


def test_fields_fill_their_payload(interface: Interface) -> None:
    for port in interface.ports.values():
        item = port.get("element", port)
        if "fields" in item:
            ends = [field["offset"] + field["width"] for field in item["fields"]]
            assert [0, *ends] == [*(field["offset"] for field in item["fields"]), item["width"]]
        if "element" in port:
            assert port["width"] == port["length"] * item["width"]


def test_enums_are_the_designs(interface: Interface) -> None:
    assert interface.enums["BarrierOp"] == {item.name: item.value for item in BarrierOp}
    assert interface.enums["BarrierFault"] == {item.name: item.value for item in BarrierFault}
    assert interface.enums["ErrorCode"] == {item.name: item.value for item in ErrorCode}


def test_types(interface: Interface) -> None:
    lanes = interface.derived["lanes"]
    assert f"typedef smem_write_element_t [{lanes - 1}:0] smem_write_t;" in interface.types
    assert "  logic [4:0][31:0] coords;\n" in interface.types
    assert "typedef logic [63:0] descriptor_request_t;" in interface.types


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verilog.main(["--preset", "tiny", "--out", str(tmp_path)]) == 0
    assert "gnic_request" in capsys.readouterr().out
    assert Interface(tmp_path / "tma.json").parameters["line_bytes"] == 16
    assert "src" not in (tmp_path / "tma.v").read_text()
