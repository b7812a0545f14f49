"""Icarus Verilog, where it is installed; no package of PyPI has it."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

WAYS = ("-g2005", "-g2005-sv", "-g2012")
"""The versions of Verilog and SystemVerilog that a file is tested with."""

installed = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog (iverilog) is not installed"
)


def run(arguments: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile with ``arguments`` without a message, and run the program, whose file is in
    ``folder``. Its exit status is 1 if it stopped.
    """
    program = folder / "program.vvp"
    command = ["iverilog", "-o", program, *arguments]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (compiled.stderr, compiled.returncode) == ("", 0)
    return subprocess.run(["vvp", "-N", program], capture_output=True, text=True, check=False)
