"""Simulator of the example of docs/integration.md, as Verilator builds it."""

import os
import shutil
import subprocess
from pathlib import Path

from hw.flow.cache import ROOT, cached, digest, generated
from hw.flow.lint import VERILATOR
from sim_tb.simulator.runner import MAKEFLAGS, make_flags, tools
from tests.top.units import TINY

EXAMPLE = ROOT / "docs" / "load_tile.v"

ARGUMENTS = ("--binary", "--timing", "--top-module", "load_tile", "-Wno-fatal", "--Mdir", "obj")
FLAGS = (*MAKEFLAGS, "VM_PARALLEL_BUILDS=0", "OPT_FAST=-O0", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0")
"""Options of Verilator and make: a program of few files, not optimised, takes the least time."""


def build_example() -> Path:
    """Build the example around the unit ``TINY`` with Verilator; return the cached folder."""
    rtl = generated(TINY)
    files = {name: (rtl / name).read_text() for name in ("tma.v", "tma.vh")}
    files[EXAMPLE.name] = EXAMPLE.read_text()

    def make(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)
        built = subprocess.run(
            [VERILATOR, *ARGUMENTS, "tma.v", EXAMPLE.name],
            cwd=folder,
            env={**os.environ, "MAKEFLAGS": make_flags(FLAGS)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stdout + built.stderr
        shutil.move(folder / "obj" / "Vload_tile", folder / "load_tile")
        shutil.rmtree(folder / "obj")

    contents = (part for item in files.items() for part in item)
    return cached("load_tile", digest([*contents, *ARGUMENTS, *FLAGS, *tools()]), make)
