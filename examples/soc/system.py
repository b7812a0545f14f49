"""System: builds the simulator of the example SoC and its programs, and runs them.

What was built stays in the cache, by a hash of its contents (``hw.flow.cache``).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import pythondata_cpu_picorv32

from hw.flow.cache import cached, digest, generated
from hw.flow.lint import VERILATOR, WAIVERS
from hw.params import PRESETS
from sim_tb.simulator.runner import MAKEFLAGS, make_flags, tools

HERE = Path(__file__).parent
DRIVER = HERE.parent / "driver"
CPU = Path(pythondata_cpu_picorv32.data_location, "picorv32.v")
UNIT = PRESETS["host"]
INTERCONNECT = HERE / "interconnect.py"
LITEX = ("litex", "migen")
"""Packages that the interconnect is made with."""

FLAGS = (*MAKEFLAGS, "OPT_FAST=-O1")
VERILATOR_ARGUMENTS = (
    *("--cc", "--exe", "--build", "-j", "2", "-O3", "--top-module", "soc", "--Mdir", "obj"),
    *("-o", "soc", "-CFLAGS", "-std=gnu++20", "-LDFLAGS", "-rdynamic", "-LDFLAGS", "-ldl"),
)

COMPILER = "riscv64-unknown-elf-gcc"
OBJCOPY = "riscv64-unknown-elf-objcopy"
PACKAGE = "gcc-riscv64-unknown-elf"
"""Cross compiler, and the package of Debian that has it."""

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
RISCV = (
    *("-march=rv32imc", "-mabi=ilp32", "-ffreestanding", "-nostdlib", "-O2"),
    *("-fno-tree-loop-distribute-patterns", "-Wl,--build-id=none"),
)
NATIVE = ("-O2", "-shared", "-fPIC")

DATA, PROGRAM, PARAMETERS, RESULTS = 0, 0x0080_0000, 0x0088_0000, 0x008C_0000
"""Addresses in the memory; ``platform.h`` has the same."""

FAILED = 124
"""Exit status of the simulator if the program did not end."""


class SocError(RuntimeError):
    """A program or the simulator failed."""


@dataclass(frozen=True)
class Run:
    """Outcome of a program.

    Parameters
    ----------
    status : int
        What the program returned.
    clocks : int
        Clocks from the reset to its end.
    console : str
        What it printed.
    memory : bytes
        Memory that was asked for.
    """

    status: int
    clocks: int
    console: str
    memory: bytes


def interconnect() -> str:
    """Return the Verilog of the interconnect."""

    def make(directory: Path) -> None:
        # A process of its own: LiteX adds names to modules, and its warnings are no errors.
        with (directory / "interconnect.v").open("w") as file:
            subprocess.run([sys.executable, INTERCONNECT], stdout=file, check=True)

    versions = (f"{name} {version(name)}" for name in LITEX)
    folder = cached("interconnect", digest([INTERCONNECT.read_text(), *versions]), make)
    return (folder / "interconnect.v").read_text()


@cache
def simulator() -> Path:
    """Return the simulator of the system, built if it is not there."""
    unit = generated(UNIT)
    files = {
        path.name: path.read_text()
        for path in (
            *(HERE / name for name in ("soc.vlt", "soc.v", "ram.v", "harness.cpp")),
            *(CPU, WAIVERS, unit / "tma_host.v", unit / "tma.v"),
        )
    }
    files["interconnect.v"] = interconnect()
    names = sorted(files, key=lambda name: not name.endswith(".vlt"))
    arguments = (*VERILATOR_ARGUMENTS, *names)
    parts = [*files.values(), *arguments, *FLAGS, *tools(), version("pythondata-cpu-picorv32")]
    return cached("soc", digest(parts), partial(_build_simulator, files, arguments)) / "soc"


def _build_simulator(files: Mapping[str, str], arguments: Sequence[str], directory: Path) -> None:
    for name, text in files.items():
        (directory / name).write_text(text)
    environment = {**os.environ, "MAKEFLAGS": make_flags(FLAGS)}
    environment.pop("MAKELEVEL", None)
    _call([VERILATOR, *arguments], cwd=directory, env=environment)
    shutil.move(directory / "obj" / "soc", directory)
    shutil.rmtree(directory / "obj")


def _call(command: Sequence[str | Path], **options: object) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode:
        raise SocError(f"{Path(command[0]).name} failed:\n{result.stdout}{result.stderr}")


def has_compiler() -> bool:
    """Return whether the cross compiler is installed."""
    return shutil.which(COMPILER) is not None


def program(source: Path, *, native: bool = False) -> Path:
    """Return a program with the driver, compiled for the processor, or natively as a library.

    Raises
    ------
    SocError
        If there is no compiler, or it fails.
    """
    if not native and not has_compiler():
        raise SocError(f"there is no {COMPILER}: apt-get install {PACKAGE}")
    files = [source, *(DRIVER / name for name in ("tma.c", "tma_map.c"))]
    headers = [*DRIVER.glob("*.h"), HERE / "platform.h"]
    machine = [HERE / "start.S", HERE / "support.c", HERE / "soc.ld"]
    texts = [path.read_text() for path in (*files, *sorted(headers), *machine)]
    key = digest([*texts, *WARNINGS, *RISCV, *NATIVE, str(native)])
    make = partial(_compile_native if native else _compile, files)
    return cached("soc_program", key, make) / ("program.so" if native else "program.bin")


def _compile(files: Sequence[Path], directory: Path) -> None:
    elf = directory / "program.elf"
    inputs = [HERE / "start.S", *files, HERE / "support.c"]
    includes = [f"-I{DRIVER}", f"-I{HERE}", "-DTMA_PLATFORM"]
    script = ["-T", HERE / "soc.ld", "-o", elf]
    _call([COMPILER, *WARNINGS, *RISCV, *includes, *inputs, *script, "-lgcc"])
    _call([OBJCOPY, "-O", "binary", elf, directory / "program.bin"])


def _compile_native(files: Sequence[Path], directory: Path) -> None:
    includes = [f"-I{DRIVER}", f"-I{HERE}", "-DTMA_PLATFORM", "-DSOC_NATIVE", "-Dmain=program"]
    _call(["gcc", *WARNINGS, *NATIVE, *includes, *files, "-o", directory / "program.so"])


def run(
    source: Path,
    load: Mapping[int, bytes],
    dump: tuple[int, int],
    *,
    native: bool = False,
    limit: int = 100_000_000,
) -> Run:
    """Run a program in the system.

    Parameters
    ----------
    source : Path
        The program in C.
    load : mapping of int to bytes
        Contents of the memory at the start, by address.
    dump : tuple of int
        Address and length of the memory that is returned.
    native : bool
        The program runs on this processor instead of that of the system, and its accesses go
        through the bus of the system.
    limit : int
        Clocks after which the run fails.

    Raises
    ------
    SocError
        If something cannot be built, or the program does not end.
    """
    binary = program(source, native=native)
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [simulator(), "--native" if native else "--program", binary]
        command += ["--limit", str(limit)]
        for address, contents in load.items():
            file = Path(folder, f"{address:x}")
            file.write_bytes(contents)
            command += ["--load", str(address), file]
        dumped = Path(folder, "dump")
        command += ["--dump", *map(str, dump), dumped]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode in range(FAILED):
            clocks = int(result.stderr.rsplit("clocks: ", 1)[1])
            return Run(result.returncode, clocks, result.stdout, dumped.read_bytes())
    raise SocError(f"status {result.returncode}: {result.stdout}{result.stderr}")
