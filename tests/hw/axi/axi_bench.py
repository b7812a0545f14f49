"""Builds an ``AxiPort`` for cocotb's own main program, and runs benches of AXI4 with it.

The benches put models of ``cocotbext-axi`` at its signals, which Python must read and write.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results

from hw.axi.port import AxiPort
from hw.flow.cache import cached, digest, sources
from hw.flow.lint import VERILATOR, WAIVERS
from hw.flow.verilog import convert
from hw.params import TmaParams
from sim_tb.simulator import runner

TOP = "axi_port"


class Builder(runner.Verilator):
    """A build with the Verilator of the environment."""

    def _simulator_in_path_build_only(self) -> None:
        self.executable = str(VERILATOR)


def build(params: TmaParams) -> Path:
    """Return the folder of the program, built once for the same sources."""
    flags = [*runner.MAKEFLAGS, "OPT_FAST=-O1"]

    def make(directory: Path) -> None:
        (directory / f"{TOP}.v").write_text(convert(AxiPort(params), TOP))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAKEFLAGS", " ".join(flags))
            patch.delenv("MAKELEVEL", raising=False)
            Builder().build(
                sources=[WAIVERS, directory / f"{TOP}.v"],
                hdl_toplevel=TOP,
                build_dir=directory / "obj",
                build_args=["--assert", "-Wno-fatal", "-CFLAGS", "-std=gnu++20"],
                timescale=("1ns", "1ps"),
                log_file=directory / "build.log",
            )

    key = digest([repr(params), sources("hw"), Path(__file__).read_text(), *flags, *runner.tools()])
    return cached("axi", key, make)


def run(params: TmaParams, module: str, testcase: str, folder: Path, seed: int,
        env: Mapping[str, str]) -> None:  # fmt: skip
    """Run a test of a cocotb module.

    Raises
    ------
    AssertionError
        If it failed, with the end of the log.
    """
    directory = build(params)
    log, results = folder / "log.txt", folder / "results.xml"
    with contextlib.suppress(RuntimeError, SystemExit):
        Builder().test(
            test_module=module,
            hdl_toplevel=TOP,
            hdl_toplevel_lang="verilog",
            testcase=testcase,
            build_dir=directory / "obj",
            test_dir=folder,
            results_xml=str(results),
            seed=seed,
            extra_env=env,
            log_file=log,
        )
    tail = "\n".join(log.read_text().splitlines()[-40:]) if log.exists() else "(no log)"
    assert results.exists(), tail
    assert get_results(results) == (1, 0), f"seed {seed}\n{tail}"
