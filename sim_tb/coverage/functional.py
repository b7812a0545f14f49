"""What the unit's simulations covered: ``make coverage``.

Two answers: which kinds of accepted loads they had, alone and in pairs, and which branches of the
RTL all of them took, stores included (``sim_tb.coverage.branches``). The exit status is 1 if a
simulation failed, or if a branch was not taken and no explanation says why.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from golden.enums import Arch, DataType
from golden.geometry import Geometry, Operands
from golden.model import operands_of
from golden.request import BulkLoad, Load, Request
from golden.vectors import read_cases
from hw.params import PRESETS as PARAMS
from sim_tb.coverage import branches
from sim_tb.simulator import runner
from sim_tb.simulator.progress import progress_bar
from sim_tb.testbench.models import PRESETS as MODELS

SAMPLES = "COVERAGE_SAMPLES"
"""Environment variable: the directory where the benches record their requests."""

OUT = Path("build/coverage")
SILICON = runner.ROOT / "tests" / "silicon" / "transfers.npz"
EXPLANATIONS = runner.ROOT / "tests" / "coverage" / "uncovered.toml"

LOADS = "tests.top.tb_loads"
STORES = "tests.top.tb_stores"
EDGES = "tests.top.tb_edges"
ALONE = ("fixed", "rough")
"""Models with which random loads also run one at a time."""

WORKERS = 2

ABSENT = "-"
"""What a bulk load has in place of all that a tensor map says."""


# Kinds of requests


class Mode(StrEnum):
    """How the tensor is walked, named as in ``AccessMode``; or no tensor at all."""

    TILE = "tile"
    IM2COL = "im2col"
    TILE_GATHER4 = "gather4"
    IM2COL_W = "im2col_w"
    IM2COL_W_128 = "im2col_w_128"
    BULK = "bulk"


class Rank(StrEnum):
    """Dimensions of the tensor."""

    ONE = "1"
    TWO = "2"
    THREE = "3"
    FOUR = "4"
    FIVE = "5"


class Size(StrEnum):
    """Bytes of an element, or the packed type."""

    ONE = "1B"
    TWO = "2B"
    FOUR = "4B"
    EIGHT = "8B"
    U4_8B = "16U4_ALIGN8B"
    U4_16B = "16U4_ALIGN16B"
    U6_16B = "16U6_ALIGN16B"


class Swizzling(StrEnum):
    """Of shared memory, in the order of ``Swizzle``."""

    NONE = "none"
    B32 = "32B"
    B64 = "64B"
    B128 = "128B"
    ATOM_32B = "128B_ATOM_32B"
    ATOM_32B_FLIP_8B = "128B_ATOM_32B_FLIP_8B"
    ATOM_64B = "128B_ATOM_64B"
    B96 = "96B"


class Interleaving(StrEnum):
    """Of channels, in the order of ``Interleave``."""

    NONE = "none"
    B16 = "16B"
    B32 = "32B"


class Fill(StrEnum):
    """Of what is outside, in the order of ``OobFill``."""

    ZERO = "zero"
    NAN = "nan"


class Alignment(StrEnum):
    """Of the first byte of the box in global memory, wherever the tensor ends."""

    LINE = "128B"
    B32 = "32B"
    B16 = "16B"


class Side(StrEnum):
    """Where the box leaves the tensor, over all dimensions.

    Of im2col, where its pixels do. ``OUTSIDE``: there is nothing of the tensor in it.
    """

    INSIDE = "inside"
    LOW = "low"
    HIGH = "high"
    BOTH = "both"
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Sample:
    """A load, as far as coverage tells loads apart; a bulk load has mode and alignment alone."""

    mode: Mode
    rank: Rank | None
    size: Size | None
    swizzle: Swizzling | None
    interleave: Interleaving | None
    fill: Fill | None
    alignment: Alignment
    side: Side | None

    @property
    def bins(self) -> tuple[StrEnum | None, ...]:
        """The fields, in the order of ``DIMENSIONS``."""
        return tuple(getattr(self, name) for name in DIMENSIONS)

    def __str__(self) -> str:
        return " ".join(item or ABSENT for item in self.bins)

    @classmethod
    def parse(cls, text: str) -> "Sample":
        """The inverse of ``str``."""
        words = zip(DIMENSIONS.values(), text.split(), strict=True)
        bins: list[Any] = [None if word == ABSENT else kind(word) for kind, word in words]
        return cls(*bins)


DIMENSIONS: dict[str, Any] = {
    "mode": Mode,
    "rank": Rank,
    "size": Size,
    "swizzle": Swizzling,
    "interleave": Interleaving,
    "fill": Fill,
    "alignment": Alignment,
    "side": Side,
}
"""The fields of a ``Sample``, and their bins."""

SHOWN = 20
"""Holes of the full cross that are printed."""

PACKED = (Size.U4_8B, Size.U4_16B, Size.U6_16B)
WIDE_PACKED = (Size.U4_16B, Size.U6_16B)
HOPPER_SWIZZLES = (Swizzling.NONE, Swizzling.B32, Swizzling.B64, Swizzling.B128)
ROWS_OF_128 = (Swizzling.NONE, Swizzling.B128, Swizzling.ATOM_32B, Swizzling.ATOM_64B)


def classify(request: Load | BulkLoad) -> Sample:
    """The kind of a load that the golden model accepts."""
    if isinstance(request, BulkLoad):
        align = _alignment(request.gmem_address)
        return Sample(Mode.BULK, None, None, None, None, None, align, None)
    plan = Geometry(request.tensor_map, request.mode, arch=Arch.SM_100A)
    d, kind = plan.descriptor, plan.data_type
    where = operands_of(request)
    start = int(plan.spread(0, where).gmem[0, 0])
    packed = DataType.PACKED_16U4_ALIGN8B
    return Sample(
        Mode[plan.mode.name],
        list(Rank)[d.rank - 1],
        PACKED[kind - packed] if kind.is_sub_byte else Size(f"{kind.itemsize}B"),
        list(Swizzling)[plan.swizzle],
        list(Interleaving)[d.interleave or 0],
        list(Fill)[d.oob_fill],
        _alignment(start),
        _side(plan, where),
    )


def _alignment(address: int) -> Alignment:
    if address % 128 == 0:
        return Alignment.LINE
    return Alignment.B32 if address % 32 == 0 else Alignment.B16


def _side(plan: Geometry, where: Operands) -> Side:
    if not plan.spread(0, where).inside.any():
        return Side.OUTSIDE
    bounded = list(plan.bounded)
    positions = plan.positions(where)[bounded]
    low = bool((positions < 0).any())
    high = bool((positions >= np.array(plan.limits)[bounded, None]).any())
    if not plan.interleaved:
        low |= where.coords[0] < 0
        high |= where.coords[0] + plan.row_elements > plan.limits[0]
    return (Side.INSIDE, Side.LOW, Side.HIGH, Side.BOTH)[low + 2 * high]


def impossible(sample: Sample, arch: Arch = Arch.SM_100A) -> str:
    """Why a unit of ``arch`` accepts no such load; empty if there are some.

    The rules are those of ``golden.map_rules`` and ``golden.geometry``.
    """
    s = sample
    if s.mode is Mode.BULK:
        rest = s.rank or s.size or s.swizzle or s.interleave or s.fill or s.side
        return "a bulk load has no tensor map" if rest else ""
    if None in s.bins:
        return "a tensor map says it all"
    interleaved = s.interleave is not Interleaving.NONE
    later_mode = s.mode not in (Mode.TILE, Mode.IM2COL)
    later_swizzle = s.swizzle not in HOPPER_SWIZZLES
    wide = s.mode in (Mode.IM2COL_W, Mode.IM2COL_W_128)
    im2col = wide or s.mode is Mode.IM2COL
    few = s.rank in (Rank.ONE, Rank.TWO)
    flip = s.swizzle is Swizzling.ATOM_32B_FLIP_8B
    rules = (
        (arch is Arch.SM_90A and later_mode, "the mode is later than Hopper"),
        (arch is Arch.SM_90A and later_swizzle, "the swizzle is later than Hopper"),
        (arch is Arch.SM_90A and s.size in PACKED, "packed types are later than Hopper"),
        (few and im2col, "im2col has channels, pixels and images"),
        (few and interleaved, "interleaved maps have slices of channels"),
        (s.mode is Mode.TILE_GATHER4 and s.rank is not Rank.TWO, "gather4 takes rows of a matrix"),
        (s.mode is Mode.TILE_GATHER4 and interleaved, "gather4 takes rows of a matrix"),
        (wide and interleaved, "im2col::w is for maps without interleave"),
        (wide and s.swizzle is Swizzling.NONE, "im2col::w is for swizzled maps"),
        (wide and flip, "im2col::w is not for the swizzle that flips"),
        (s.swizzle is Swizzling.B96 and interleaved, "96B is for maps without interleave"),
        (s.fill is Fill.NAN and s.size is Size.ONE, "no float has a byte"),
        (s.fill is Fill.NAN and s.size in PACKED, "NaN is for floats, which are not packed"),
        (s.size in PACKED and interleaved, "packed types are not interleaved"),
        (
            s.size in WIDE_PACKED
            and s.swizzle not in ROWS_OF_128
            and not (flip and s.size is Size.U4_16B),
            "a row has 128 bytes, and some swizzles are not for it",
        ),
        (
            s.size is Size.U6_16B and s.swizzle is Swizzling.ATOM_64B,
            "this swizzle is for stores of the type only",
        ),
        (
            s.alignment is Alignment.B16
            and (s.interleave is Interleaving.B32 or s.size in WIDE_PACKED),
            "base, strides and the start of a row are multiples of 32 bytes",
        ),
        (
            s.rank is Rank.ONE
            and s.size in WIDE_PACKED
            and s.side not in (Side.INSIDE, Side.OUTSIDE),
            "box, start and end of the tensor are multiples of 128 elements",
        ),
    )
    return next((reason for broken, reason in rules if broken), "")


@cache
def every(arch: Arch) -> tuple[Sample, ...]:
    """All samples that are possible."""
    bulk = (Sample(Mode.BULK, None, None, None, None, None, item, None) for item in Alignment)
    tensor = (Sample(*bins) for bins in itertools.product(*DIMENSIONS.values()))
    return (*bulk, *(sample for sample in tensor if not impossible(sample, arch)))


def record(request: Request) -> None:
    """Note a request that the golden model accepts, where ``make coverage`` asks for it."""
    directory = os.environ.get(SAMPLES)
    if directory is not None and isinstance(request, Load | BulkLoad):
        with Path(directory, f"{os.getpid()}.txt").open("a") as file:
            print(classify(request), file=file)


def recorded(directory: Path) -> Counter[Sample]:
    """What was recorded."""
    lines: Counter[str] = Counter()
    for file in directory.glob("*.txt"):
        lines.update(file.read_text().splitlines())
    return Counter({Sample.parse(line): count for line, count in lines.items()})


# The report of kinds


@dataclass(frozen=True)
class Cross:
    """Two dimensions: their pairs of bins that are possible, and how often each was hit."""

    first: str
    second: str
    hits: dict[tuple[StrEnum, StrEnum], int]

    @property
    def name(self) -> str:
        """``mode x rank``."""
        return f"{self.first} x {self.second}"

    @property
    def hit(self) -> int:
        """Pairs that were hit."""
        return sum(count > 0 for count in self.hits.values())

    @property
    def holes(self) -> list[tuple[StrEnum, StrEnum]]:
        """Pairs that were not."""
        return [pair for pair, count in self.hits.items() if not count]


class Kinds:
    """What was recorded, beside what is possible.

    Parameters
    ----------
    samples : Counter of Sample
    arch : Arch, optional
        Of the unit; the first that accepts all samples.
    """

    def __init__(self, samples: Counter[Sample], arch: Arch | None = None) -> None:
        self.samples = samples
        later = any(impossible(sample, Arch.SM_90A) for sample in samples)
        self.arch = arch or (Arch.SM_100A if later else Arch.SM_90A)
        self.possible = every(self.arch)

    @cached_property
    def wrong(self) -> list[str]:
        """Samples that are not possible, with the reason: these rules are wrong, or the bench."""
        verdicts = ((sample, impossible(sample, self.arch)) for sample in self.samples)
        return [f"{sample}: {reason}" for sample, reason in verdicts if reason]

    @cached_property
    def holes(self) -> list[Sample]:
        """Of the full cross."""
        return [sample for sample in self.possible if sample not in self.samples]

    @cached_property
    def bins(self) -> dict[str, dict[StrEnum, int]]:
        """How often each bin was hit, by dimension."""
        return {name: self._counts(name) for name in DIMENSIONS}

    def _counts(self, name: str) -> dict[StrEnum, int]:
        counts = dict.fromkeys(DIMENSIONS[name], 0)
        possible = {getattr(sample, name) for sample in self.possible}
        for sample, count in self.samples.items():
            if getattr(sample, name) is not None:
                counts[getattr(sample, name)] += count
        return {bin_: count for bin_, count in counts.items() if bin_ in possible}

    @cached_property
    def crosses(self) -> list[Cross]:
        """Every pair of dimensions."""
        return [self._cross(*names) for names in itertools.combinations(DIMENSIONS, 2)]

    def _cross(self, first: str, second: str) -> Cross:
        hits: Counter[tuple[Any, Any]] = Counter()
        for sample in self.possible:
            hits[getattr(sample, first), getattr(sample, second)] += 0
        for sample, count in self.samples.items():
            hits[getattr(sample, first), getattr(sample, second)] += count
        return Cross(first, second, {pair: hits[pair] for pair in hits if None not in pair})

    def show(self, console: Console) -> None:
        """Print all of it."""
        total = self.samples.total()
        table = Table(title=f"{total} accepted loads, by dimension", title_justify="left")
        table.add_column("dimension")
        table.add_column("bins and how often each was hit")
        for name, counts in self.bins.items():
            cells = (
                f"{bin_} {count}" if count else f"[red]{bin_} 0[/red]"
                for bin_, count in counts.items()
            )
            table.add_row(name, "   ".join(cells))
        console.print(table)
        table = Table("pair of dimensions", title=f"pairs of bins, {self.arch.name}",
                      title_justify="left")  # fmt: skip
        for heading in "hit", "possible", "holes":
            table.add_column(heading, justify="right")
        for cross in self.crosses:
            holes = len(cross.holes)
            mark = f"[red]{holes}" if holes else ""
            table.add_row(cross.name, str(cross.hit), str(len(cross.hits)), mark)
        hit = sum(cross.hit for cross in self.crosses)
        pairs = sum(len(cross.hits) for cross in self.crosses)
        table.add_section()
        table.add_row("all", str(hit), str(pairs), str(pairs - hit))
        console.print(table)
        for line in self.hole_lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for sample in self.holes[:SHOWN]:
            console.print(f"hole: {sample}", markup=False, highlight=False)
        rest = len(self.holes) - SHOWN
        if rest > 0:
            console.print(f"and {rest} holes more in kinds.json", highlight=False)
        hit = len(self.possible) - len(self.holes)
        console.print(
            f"full cross: {hit} of {len(self.possible)} possible combinations were hit",
            highlight=False,
        )
        for line in self.wrong:
            console.print(f"not possible, but recorded: {line}", markup=False, highlight=False)

    def hole_lines(self) -> Iterator[str]:
        """The holes in words: a bin that was never hit once, not again with every other."""
        never = {
            (name, bin_)
            for name, counts in self.bins.items()
            for bin_ in counts
            if not counts[bin_]
        }
        for name, bin_ in sorted(never):
            yield f"hole: {name} {bin_}, with anything"
        for cross in self.crosses:
            rows: dict[StrEnum, list[StrEnum]] = {}
            for one, other in cross.holes:
                if (cross.first, one) not in never and (cross.second, other) not in never:
                    rows.setdefault(one, []).append(other)
            for one, others in rows.items():
                yield f"hole: {cross.first} {one} with {cross.second} {', '.join(others)}"

    def summary(self) -> dict[str, Any]:
        """All numbers and every hole."""
        return {
            "arch": self.arch.name,
            "loads": self.samples.total(),
            "bins": self.bins,
            "pairs": {
                cross.name: {
                    "hit": cross.hit,
                    "possible": len(cross.hits),
                    "holes": cross.holes,
                }
                for cross in self.crosses
            },
            "full": {"possible": len(self.possible), "holes": [str(item) for item in self.holes]},
        }


# The simulations


@dataclass(frozen=True)
class Job:
    """A command that simulates."""

    name: str
    command: tuple[str, ...]


def jobs(preset: str, seeds: int, count: int) -> list[Job]:
    """All simulations of a unit, loads first; recorded transfers are for the default one."""
    found = []
    options: tuple[str, ...]
    if preset == "default":
        options = ("--target", "rtl", "--kinds", silicon_kinds())
        found.append(Job("recorded transfers", ("sim_tb.conformance", str(SILICON), *options)))
    found.append(Job("edges", ("sim_tb.runner", EDGES, "--preset", preset)))
    for seed, models in itertools.product(range(1, seeds + 1), MODELS):
        env = ("--env", f"LOADS_MODELS={models}", "--env", f"LOADS_COUNT={count}")
        options = ("--preset", preset, "--seed", str(seed), *env)
        if (seed, models) == (1, "fixed"):  # with the rules, which need no other
            found.append(Job("rules and loads", ("sim_tb.runner", LOADS, *options)))
            continue
        for test in ("one_at_a_time", "in_flight") if models in ALONE else ("in_flight",):
            command = ("sim_tb.runner", LOADS, test, *options)
            found.append(Job(f"{test}, {models}, seed {seed}", command))
    for seed, models in itertools.product(range(1, seeds + 1), MODELS):
        env = ("--env", f"STORES_MODELS={models}", "--env", f"STORES_COUNT={count}")
        tests = () if (seed, models) == (1, "fixed") else ("random_stores",)  # with the rules
        options = ("--preset", preset, "--seed", str(seed), *env)
        command = ("sim_tb.runner", STORES, *tests, *options)
        name = tests[0] if tests else "rules and stores"
        found.append(Job(f"{name}, {models}, seed {seed}", command))
    return found


def silicon_kinds() -> str:
    """The kinds of recorded cases of which the RTL takes all."""
    verdicts: dict[str, bool] = {}
    for case in read_cases(SILICON):
        verdicts[case.kind] = verdicts.get(case.kind, True) and not case.is_multicast
    return ",".join(kind for kind, taken in verdicts.items() if taken)


def simulate(preset: str, selected: Sequence[Job], directory: Path, console: Console) -> list[str]:
    """Run the jobs on the build that counts; return what the failed ones said."""
    kinds, ways = directory / "kinds", directory / "branches"
    for made in kinds, ways:
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
    env = {
        **os.environ,
        SAMPLES: str(kinds.resolve()),
        runner.COVERAGE_DIRECTORY: str(ways.resolve()),
    }
    runner.build(PARAMS[preset], coverage=True)
    failed = []
    with (
        progress_bar(console) as progress,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        task = progress.add_task("simulations", total=len(selected))
        runs = {pool.submit(_run, job, env): job for job in selected}
        for run in as_completed(runs):
            progress.update(task, advance=1, description=runs[run].name)
            result = run.result()
            if result.returncode:
                failed.append(f"{runs[run].name} failed\n{result.stdout}{result.stderr}")
    return failed


def _run(job: Job, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", "-m", *job.command]
    return subprocess.run(
        command, env=env, cwd=runner.ROOT, capture_output=True, text=True, check=False
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m sim_tb.coverage", description=__doc__)
    parser.add_argument(
        "--preset", choices=PARAMS, default="default", help="of the unit; default %(default)s"
    )
    parser.add_argument("--seeds", type=int, default=3, help="of random loads; default %(default)s")
    parser.add_argument(
        "--count", type=int, default=400, help="random loads a run; default %(default)s"
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIRECTORY")
    parser.add_argument(
        "--report", action="store_true", help="no simulation: what the last ones left"
    )
    options = parser.parse_args(arguments)
    if min(options.seeds, options.count) < 1:
        parser.error("--seeds and --count must be at least 1")
    console = Console()
    if not options.report:
        selected = jobs(options.preset, options.seeds, options.count)
        failed = simulate(options.preset, selected, options.out, console)
        if failed:
            print(*failed, sep="\n", file=sys.stderr)
            return 1
    kinds = Kinds(recorded(options.out / "kinds"))
    counts = branches.read(options.out / "branches")
    verdict = branches.judge(counts.missed, branches.explanations(EXPLANATIONS, options.preset))
    with (options.out / "report.txt").open("w") as file:
        for where in console, Console(file=file, width=100):
            kinds.show(where)
            branches.show(counts, verdict, where)
    for name, contents in (
        ("kinds", kinds.summary()),
        ("branches", branches.summary(counts, verdict)),
    ):
        (options.out / f"{name}.json").write_text(json.dumps(contents, indent=1) + "\n")
    console.print(f"{options.out}/report.txt, kinds.json, branches.json", highlight=False)
    return 0 if verdict.is_clean and not kinds.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
