"""Icarus Verilog: simulates a unit with four states, from X at power-up."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim_tb.four_state.program import Program
from sim_tb.sm.smem import PIECE_BYTES

BENCH = Path(__file__).with_name("bench.sv")
COMPILER, SIMULATOR = "iverilog", "vvp"
PACKAGE = "iverilog"
"""Debian's package of Icarus Verilog."""

REGISTER = re.compile(r"^(  reg (?:\[\d+:0\] )?\S+) +=.*;$", re.MULTILINE)
MEMORY = re.compile(r"^  initial begin\n(?:    \S+ ?\[\d+\] = .*\n)+  end\n", re.MULTILINE)
"""Initial value of a register, and initial contents of a memory, in the Verilog of a unit."""


class IcarusError(Exception):
    """The simulation cannot be run, or ends with a failure. The text says why."""


@dataclass(frozen=True)
class Outcome:
    """End of a simulation without a failure: counts of clocks and lines."""

    clocks: int
    lines_read: int
    lines_written: int


def powered_up(verilog: str) -> str:
    """Return the Verilog of a unit without initial values, so that registers and memories are X."""
    return MEMORY.sub("", REGISTER.sub(r"\1 ;", verilog))


def require_icarus() -> None:
    """Check that Icarus Verilog is installed.

    Raises
    ------
    IcarusError
        If it is not. The text names Debian's package.
    """
    for program in COMPILER, SIMULATOR:
        if shutil.which(program) is None:
            raise IcarusError(
                f"{program}, a program of Icarus Verilog, is not installed: "
                f"apt-get install --no-install-recommends {PACKAGE}"
            )


def replay(program: Program, rtl: Path, directory: Path, verilog: str | None = None) -> Outcome:
    """Replay a program on the unit of the folder ``rtl``; files are written to ``directory``.

    Parameters
    ----------
    program : Program
        Instructions, data and memories.
    rtl : Path
        Folder of ``tma.v`` and ``tma.vh``.
    directory : Path
        Existing folder.
    verilog : str, optional
        Text in place of that of ``tma.v``.

    Raises
    ------
    IcarusError
        If Icarus Verilog is not installed, an output of the unit has an X, or bytes are wrong.
    """
    require_icarus()
    unit = directory / "tma.v"
    unit.write_text(powered_up((rtl / "tma.v").read_text() if verilog is None else verilog))
    data = np.concatenate(program.data)
    _write(directory / "data.hex", data)
    _write(directory / "global.hex", program.before)
    _write(directory / "expected.hex", program.after)
    (directory / "program.hex").write_text("".join(f"{word:x}\n" for word in program.words))
    sizes = {
        "STEPS": len(program.words),
        "DATA": len(data),
        "GLOBAL": program.before.size // PIECE_BYTES,
        "BASE": f"64'd{program.base // PIECE_BYTES}",
    }
    defined = [f"-D{name}={value}" for name, value in sizes.items()]
    command = [COMPILER, "-g2012", "-s", "bench", "-I", str(rtl), *defined, "-o", "bench.vvp"]
    _run([*command, "tma.v", str(BENCH)], directory)
    text = _run([SIMULATOR, "-N", "bench.vvp"], directory)
    found = re.search(r"^(\d+) clocks, (\d+) lines read, (\d+) lines written", text, re.MULTILINE)
    if found is None:
        raise IcarusError(text)
    return Outcome(*map(int, found.groups()))


def _write(path: Path, contents: NDArray[np.uint8]) -> None:
    """Write a file of pieces for ``$readmemh``: byte 0 of a piece is its lowest."""
    pieces = contents.reshape(-1, PIECE_BYTES)[:, ::-1]
    path.write_text("".join(f"{piece.tobytes().hex()}\n" for piece in np.ascontiguousarray(pieces)))


def _run(command: list[str], directory: Path) -> str:
    """Run a command; return what it prints.

    Raises
    ------
    IcarusError
        If it fails.
    """
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise IcarusError(f"{done.stdout}{done.stderr}".strip())
    return done.stdout
