"""Waves of a simulated test: ``make waves TEST=name``.

The test is repeated. A trace and a save file for GTKWave are left under ``build/waves/``. The save
file groups the signals by block, in pipeline order, shows enumerations and states by name, and
shows the whole trace.
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from vcd.gtkw import GTKWColor, GTKWSave

from sim_tb.command_line import Parser, entry_point

WAVES = Path("build/waves")
TRACE_DIRECTORY = "TMA_WAVES"
"""Environment variable: directory in which the runner leaves a trace of each run."""

MAIN_JOB = "sim"
"""Name of the job that ``make sim`` runs."""

MAIN_REPORT = Path("build/sim")
"""Report of that job."""

SCOPE = "tb_top.dut"
"""Scope of a unit that is alone."""

SLICE = "tb_top.dut.sm_{}.unit"
"""Scope of a unit in a cluster, by number of the SM."""

GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("request", "", ("request",)),
    (
        "bulk groups",
        "",
        (
            "bulk_groups__o",
            "dispatcher__released",
            "store_tracker__source_read",
            "store_tracker__complete",
            "group_result",
        ),
    ),
    ("request queue", "", ("request_queue__tensor", "request_queue__bulk")),
    (
        "descriptor cache",
        "",
        (
            "descriptor_request",
            "descriptor_fill",
            "descriptor_prefetch",
            "descriptor_invalidate",
            "descriptor_cache__o",
        ),
    ),
    ("setup block", "", ("setup_block__job", "setup_block__error")),
    ("bulk setup", "", ("bulk_setup__job",)),
    ("completion tracker, open", "", ("completion_tracker__o",)),
    (
        "request generator, walk",
        "request_generator.lane_0.run_walker",
        ("state", "steps_left_", "fire"),
    ),
    ("request generator", "", ("request_generator__line", "request_generator__fill")),
    ("gnic", "", ("gnic_request", "gnic_response", "gnic__o")),
    ("response path", "", ("response_path__o",)),
    ("lane network", "", ("smem_write", "lane_network__written", "lane_network__filled")),
    (
        "completion tracker, end",
        "",
        ("completion_tracker__completion", "completion_tracker__error"),
    ),
    (
        "mbarrier unit",
        "",
        (
            *("barrier_command", "barrier_result", "barrier_wake", "mbarrier_unit__update"),
            *("barrier_memory", "mbarrier_unit__fault"),
        ),
    ),
    (
        "cluster port",
        "",
        (
            *("packet_out", "packet_in", "message_out", "message_in"),
            *("remote_command", "remote_store"),
        ),
    ),
    ("dispatcher", "", ("dispatcher__load", "dispatcher__store")),
    ("store generator", "", ("store_tracker__o", "store_generator__line")),
    ("store path", "", ("smem_read", "smem_data", "store_path__o")),
    ("gnic, writes", "", ("gnic_write", "gnic_ack", "gnic_write__performed")),
    ("errors", "", ("error",)),
)
"""Groups of the save file: title, module below the unit, and names or prefixes of streams and
signals.
"""

WINDOW = 1600, 1000
SIGNALS = 320
PIXELS = 940
"""Sizes of GTKWave's window, of its list of signals, and of its waves, in pixels."""

FRAME = 200
"""Pixels that GTKWave calls a frame. A zoom of -z shows 2**z units of time in a frame."""

TAIL_BYTES = 1 << 22
"""Bytes at the end of a VCD that certainly have its last time."""

FST_END = 17
"""Byte offset of the last time in an FST: 8 bytes, big-endian."""

MODULE = re.compile(r"^module (?:\\(\S+) |(\w+))\s*\((.*?)^endmodule", re.DOTALL | re.MULTILINE)
NET = re.compile(
    r"(?P<attributes>(?:^ *\(\*.*\*\)\n)*)"
    r"^ *(?:input|output|wire|reg) (?:\[(?P<high>\d+):0\] )?(?:\\(?P<escaped>\S+) |(?P<plain>\w+))"
    r"[^;]*;",
    re.MULTILINE,
)
MEMBER = re.compile(r'enum_value_([01]+) = "(\w+)"')


@dataclass(frozen=True)
class Net:
    """A signal of the Verilog. ``members`` are the names of an enumeration by value, in binary."""

    name: str
    width: int
    members: dict[str, str] = field(default_factory=dict)


def nets(verilog: str, module: str) -> dict[str, Net]:
    """Return the named signals of a module of generated Verilog.

    If there is no such module, as in a stand-in for the unit, the result is empty.
    """
    for match in MODULE.finditer(verilog):
        if (match[1] or match[2]) == module:
            break
    else:
        return {}
    signals: dict[str, Net] = {}
    for net in NET.finditer(match[3]):
        name = net["escaped"] or net["plain"]
        if "$" not in name and name not in signals:
            members = dict(MEMBER.findall(net["attributes"]))
            signals[name] = Net(name, int(net["high"] or 0) + 1, members)
        elif name in signals and net["attributes"]:
            members = dict(MEMBER.findall(net["attributes"])) or signals[name].members
            signals[name] = Net(name, signals[name].width, members)
    return signals


def leaf_nets(known: dict[str, Net], prefix: str) -> Iterator[Net]:
    """Yield the signals of the stream ``prefix``: valid, ready, then payload fields without fields.

    If there is no such stream, yield the signals whose names begin with ``prefix``.
    """
    own = [net for net in known.values() if net.name.split("__payload")[0] == prefix]
    names = [net.name for net in own]
    if not own:
        plain = (net for net in known.values() if net.name.startswith(prefix))
        yield from (net for net in plain if "." not in net.name and "[" not in net.name)
        return
    for part in ("valid", "ready"):
        if (net := known.get(f"{prefix}__{part}")) is not None:
            yield net
    for net in own:
        inner = any(name.startswith((f"{net.name}.", f"{net.name}[")) for name in names)
        if not inner and net.width:
            yield net


def last_time(trace: Path) -> int:
    """Return the last time in a trace, in its units of time; 0 if there is none."""
    with trace.open("rb") as file:
        if trace.suffix != ".vcd":
            file.seek(FST_END)
            return int.from_bytes(file.read(8), "big")
        file.seek(max(0, trace.stat().st_size - TAIL_BYTES))
        times = re.findall(rb"^#(\d+)$", file.read(), re.MULTILINE)
    return int(times[-1]) if times else 0


def write_save_file(trace: Path, verilog: Path, top: str = "tma", sms: int = 1) -> Path:
    """Write the save file of a trace; return its path, ``<trace>.gtkw``.

    Verilator's traces carry no names of enumerations, so files with the names are written, too.

    Parameters
    ----------
    trace : Path
        Trace of a unit, or of a cluster.
    verilog : Path
        Verilog of the unit.
    top : str
        The unit's module.
    sms : int
        Number of SMs.
    """
    text = verilog.read_text()
    path = trace.with_suffix(".gtkw")
    names = trace.parent / "names"
    names.mkdir(exist_ok=True)
    modules = {module: nets(text, f"{top}.{module}" if module else top) for _, module, _ in GROUPS}
    units = [("", SCOPE)]
    if sms > 1:
        units = [(f"SM {sm}, ", SLICE.format(sm)) for sm in range(sms)]
    with path.open("w") as file:
        save = GTKWSave(file)
        save.dumpfile(str(trace.resolve()))
        save.treeopen(f"{SCOPE}.")
        save.zoom_markers(-math.log2(max(1, last_time(trace) * FRAME / PIXELS)))
        save.size(*WINDOW)
        save.signals_width(SIGNALS)
        save.sst_expanded(True)
        save.trace("tb_top.clk")
        for sm, (owner, unit) in enumerate(units):
            for number, (title, module, prefixes) in enumerate(GROUPS):
                scope = f"{unit}.{module}" if module else unit
                if not any(any(leaf_nets(modules[module], prefix)) for prefix in prefixes):
                    continue  # the unit does not have the block
                with save.group(owner + title, closed=sm + number > 0 and len(prefixes) > 4):
                    for prefix in prefixes:
                        save.blank(label=prefix if not module else "")
                        for net in leaf_nets(modules[module], prefix):
                            _trace(save, scope, net, names, trace.suffix == ".vcd")
    return path


def _trace(save: GTKWSave, scope: str, net: Net, names: Path, vcd: bool) -> None:
    escape = "\\" if vcd and re.search(r"\W", net.name) else ""  # as GTKWave names them
    suffix = f"[{net.width - 1}:0]" if net.width > 1 else ""
    path = f"{scope}.{escape}{net.name}{suffix}"
    short = net.name.rpartition("__")[2].removeprefix("payload.").replace(".", "/")
    if not net.members:
        save.trace(path, alias=short, datafmt="hex")
        return
    listing = "".join(f"{value} {name}\n" for value, name in sorted(net.members.items()))
    file = names / f"{net.name}.txt"
    file.write_text(listing)
    save.trace(
        path,
        alias=short,
        datafmt="bin",
        color=GTKWColor.yellow,
        translate_filter_file=str(file.resolve()),
    )


def select(name: str) -> str:
    """Return the id of the test ``name``: the whole id, its last part, or a part of it.

    Raises
    ------
    ValueError
        If no test or several tests match; the message names the first ones.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/top", "tests/sim_tb"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    ids = [line for line in listing.splitlines() if "::" in line]
    exact = [test for test in ids if test == name or test.endswith(f"::{name}")]
    matches = exact or [test for test in ids if name in test]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ValueError(f"TEST={name}: no simulated test has this name; "
                         f"{MAIN_JOB} is the main job")  # fmt: skip
    first = "\n  ".join(matches[:10])
    raise ValueError(f"TEST={name}: {len(matches)} tests match; choose one, such as\n  {first}")


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.waves", description=__doc__)
    parser.add_argument("test", help=f"a test of tests/sim_tb, or {MAIN_JOB} for the main job")
    options = parser.parse_args(arguments)
    try:
        if options.test == MAIN_JOB:
            command = [sys.executable, "-m", "sim_tb", "run", "gemm", "--report", str(MAIN_REPORT)]
        else:
            pytest = [sys.executable, "-W", "error", "-m", "pytest", "--no-header"]
            command = [*pytest, select(options.test)]
    except ValueError as error:
        parser.error(str(error))
    before = {path: path.stat().st_mtime for path in WAVES.glob("*.gtkw")}
    environment = {**os.environ, TRACE_DIRECTORY: str(WAVES.resolve())}
    status = subprocess.run(command, env=environment, check=False).returncode
    console = Console(highlight=False, soft_wrap=True)
    written = [path for path in WAVES.glob("*.gtkw") if path.stat().st_mtime != before.get(path)]
    for path in sorted(written):
        console.print(f"gtkwave {path}")
    if not written:
        console.print(f"{options.test}: no trace, because the test does not simulate the unit")
    return status or not written


if __name__ == "__main__":
    sys.exit(main())
