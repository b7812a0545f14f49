"""SystemVerilog types and templates, and the descriptions for FuseSoC and Bender."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from amaranth.lib import wiring

from hw.flow import packages, verilog
from hw.flow.cache import generated
from hw.flow.lint import VERILATOR
from hw.flow.system_verilog import template, typed
from hw.params import PRESETS, TmaParams
from hw.top import tma_ports
from tests.sim_tb.testbench.stand_in import StandIn
from tests.top.units import HOST, TINY


def described(params: TmaParams) -> dict:
    """The contents of ``tma.json``, without an elaborated unit."""
    return verilog.interface(wiring.Signature(tma_ports(params)).create(), "tma", params)


def fields_of(item: dict, path: str = "") -> list[tuple[str, int, int]]:
    """Return path, offset and width of all fields in ``item``, also of those inside fields."""
    found = []
    for field in item.get("fields", ()):
        if field["width"]:
            inside = f"{path}.{field['name']}"
            found.append((inside, field["offset"], field["width"]))
            found += [
                (inner, field["offset"] + offset, width)
                for inner, offset, width in fields_of(field, inside)
            ]
    return found


def run_checks(interface: dict, shift: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compare each field, set to ones, with the bits of the payload at its offset and ``shift``.

    Verilator does so when it elaborates the module.
    """
    checks = []
    for port in interface["ports"]:
        kind, width = port["name"].removesuffix("__payload") + "_t", port["width"]
        for path, offset, bits in fields_of(port):
            number, ones = len(checks), (1 << bits) - 1
            expected = (ones << offset + shift) & ((1 << width) - 1)
            checks.append(
                f"  function automatic logic [{width - 1}:0] f{number}();\n"
                f"    {kind} item;\n    item = '0;\n    item{path} = {bits}'h{ones:x};\n"
                f"    return item;\n  endfunction\n"
                f'  if (f{number}() != {width}\'h{expected:x}) $error("{path}");\n'
            )
    assert len(checks) >= 80
    package = typed(interface).partition("endpackage\n")[0] + "endpackage\n"
    # Enumerations take no other values than their members: here they are numbers.
    text = re.sub(r"enum (logic \[\d+:0\]|logic) \{[^}]*\}", r"\1", package)
    module = f"module check;\n  import tma_pkg::*;\n{''.join(checks)}endmodule\n"
    (folder / "check.sv").write_text(text + module)
    command = [VERILATOR, "--lint-only", "check.sv"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_fields_are_where_the_layouts_have_them(tmp_path: Path) -> None:
    interface = described(PRESETS["sm_107a"])
    ran = run_checks(interface, 0, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "coords" in run_checks(interface, 1, tmp_path).stderr  # the checks can fail


UNITS = {name: PRESETS[name] for name in ("tiny", "axi", "cluster")} | {"host": HOST}


@pytest.fixture(scope="module", params=UNITS.values(), ids=UNITS)
def written(request, tmp_path_factory) -> Path:
    """The folder of the files of a unit."""
    params = request.param
    folder = tmp_path_factory.mktemp("rtl")
    verilog.generate(params, folder, StandIn(params))
    return folder


def test_descriptions_list_all_sources(written: Path) -> None:
    files = {path.name for path in written.glob("*.v")} | {
        path.name for path in written.glob("*.sv") if "template" not in path.name
    }
    for name in packages.CORE, packages.BENDER:
        listed = re.findall(r"^ *- (\S+\.s?v)$", (written / name).read_text(), re.MULTILINE)
        assert set(listed) == files
        assert len(listed) == len(files)


def test_templates_are_legal(written: Path) -> None:
    """Each template, inside a module, passes Verilator with the typed module and the Verilog."""
    for path in written.glob("*_template.sv"):
        module = path.name.removesuffix("_template.sv")
        (written / "use.sv").write_text(f'module use_it;\n`include "{path.name}"\nendmodule\n')
        needed = [f"{name}.v" for name in ("tma", module)]
        sources = [*dict.fromkeys(needed), f"{module}.sv", "use.sv"]
        options = ["-Wno-UNDRIVEN", "-Wno-UNUSEDSIGNAL", "--top-module", "use_it"]
        command = [VERILATOR, "--lint-only", "-Wall", *options, packages.WAIVERS, *sources]
        ran = subprocess.run(command, cwd=written, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (written / "use.sv").unlink()


def test_a_port_of_the_template_is_missing() -> None:
    """The declarations and the connections are those of all ports."""
    interface = described(PRESETS["tiny"])
    text = template(interface)
    for port in interface["ports"]:
        assert re.search(rf"^  \S.* {port['name']};$", text, re.MULTILINE)
        assert f".{port['name']}({port['name']})" in text


@pytest.mark.skipif(shutil.which("fusesoc") is None, reason="FuseSoC (fusesoc) is not installed")
def test_fusesoc_lints(tmp_path: Path, monkeypatch) -> None:
    rtl = generated(TINY)
    monkeypatch.setenv("PATH", str(VERILATOR.parent), prepend=":")
    command = ["fusesoc", "--cores-root", rtl, "run", "--target", "lint", "open-tma:ip:tma"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
