"""Builds a component for cocotb's own main program, and runs benches with it.

The benches put models of ``cocotbext-axi`` at its ports, which Python must read and write.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from amaranth.lib import wiring
from cocotb_tools.check_results import get_results

from hw.flow.cache import cached, digest, sources
from hw.flow.lint import VERILATOR, WAIVERS
from hw.flow.verilog import convert
from hw.params import TmaParams
from sim_tb.simulator import runner

FLAGS = (*runner.MAKEFLAGS, "OPT_FAST=-O0", "OPT_GLOBAL=-O0")
ARGUMENTS = ("--assert", "-Wno-fatal", "--output-split", "20000", "-CFLAGS", "-std=gnu++20")


class Builder(runner.Verilator):
    """A build with the Verilator of the environment, in which Python sees only the ports."""

    def _simulator_in_path_build_only(self) -> None:
        self.executable = str(VERILATOR)

    def _build_command(self) -> list[list[str]]:
        commands = super()._build_command()
        return [[word for word in line if word != "--public-flat-rw"] for line in commands]


@dataclass(frozen=True)
class Bench:
    """A component in a program for cocotb.

    Parameters
    ----------
    unit : callable
        Makes the component from its parameters.
    top : str
        Name of its module.
    params : TmaParams
    """

    unit: Callable[[TmaParams], wiring.Component]
    top: str
    params: TmaParams

    def build(self) -> Path:
        """Return the folder of the program, built once for the same sources."""
        visible = f'`verilator_config\npublic_flat_rw -module "{self.top}" -var "*"\n'

        def make(directory: Path) -> None:
            (directory / "visible.vlt").write_text(visible)
            (directory / f"{self.top}.v").write_text(convert(self.unit(self.params), self.top))
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("MAKEFLAGS", runner.make_flags(FLAGS))
                patch.delenv("MAKELEVEL", raising=False)
                Builder().build(
                    sources=[WAIVERS, directory / "visible.vlt", directory / f"{self.top}.v"],
                    hdl_toplevel=self.top,
                    build_dir=directory / "obj",
                    build_args=ARGUMENTS,
                    timescale=("1ns", "1ps"),
                    log_file=directory / "build.log",
                )

        parts = [repr(self.params), sources("hw"), visible, *ARGUMENTS, *FLAGS, *runner.tools()]
        return cached(self.top, digest(parts), make)

    def run(self, module: str, testcase: str, folder: Path, seed: int,
            env: Mapping[str, str]) -> None:  # fmt: skip
        """Run a test of a cocotb module.

        Raises
        ------
        AssertionError
            If it failed, with the end of the log.
        """
        directory = self.build()
        log, results = folder / "log.txt", folder / "results.xml"
        with contextlib.suppress(RuntimeError, SystemExit):
            Builder().test(
                test_module=module,
                hdl_toplevel=self.top,
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
