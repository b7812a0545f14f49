"""The main job: a GEMM on the behavioural SM through the RTL, checked and pictured."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from hw.params import PRESETS, TmaParams
from sim_tb import runner
from sim_tb.gemm_kernel import (
    ACTIVITY,
    CONSUMERS,
    JOB,
    STAGING_BYTES,
    TILE_K,
    TILE_M,
    TILE_N,
    Epilogue,
    Grid,
    Layout,
    accumulate,
    passes,
)
from sim_tb.sm import Span
from sim_tb.timeline import picture, trace_events

OUTPUT = Path("build/sim")
BF16 = np.dtype(ml_dtypes.bfloat16)
DEFAULT_M, DEFAULT_N, DEFAULT_K, DEFAULT_STAGES = 328, 200, 456, 4
LEAST_STAGES = 3
SEED = 1
REDUCED_NAN = np.uint32(0x7FFF_FFFF).view(np.float32)
"""What a reduction in float32 makes of every sum that is not a number."""


def unit_of(grid: Grid) -> TmaParams:
    """The unit of each SM."""
    return replace(PRESETS["default"], ctas=grid.ctas)


def operand(
    name: str, path: Path | None, shape: tuple[int | None, int | None]
) -> NDArray[np.generic]:
    """A matrix in bf16: from ``path``, else random of ``shape``.

    Raises
    ------
    ValueError
        If the file is no matrix of floats, or of another shape than asked for.
    """
    if path is None:
        rng = np.random.default_rng([SEED, ord(name)])
        rows, columns = shape
        assert rows is not None
        assert columns is not None
        return rng.standard_normal((rows, columns)).astype(BF16)
    try:
        matrix = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name} = {path}: {error}") from error
    if matrix.dtype.kind == "V" and matrix.dtype.itemsize == BF16.itemsize:
        matrix = matrix.view(BF16)  # how NumPy loads what it saved of ml_dtypes
    if matrix.ndim != 2 or not (matrix.dtype == BF16 or matrix.dtype.kind == "f"):
        raise ValueError(
            f"{name} = {path}: a {matrix.dtype} array of shape {matrix.shape}: must be "
            "a matrix of floats"
        )
    for axis, (got, wanted) in enumerate(zip(matrix.shape, shape, strict=True)):
        if wanted is not None and got != wanted:
            raise ValueError(f"{name} = {path}: shape {matrix.shape}: axis {axis} must be {wanted}")
    return np.ascontiguousarray(matrix.astype(BF16))


def operands(
    options: argparse.Namespace,
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """A and B as the options say.

    Raises
    ------
    ValueError
        If sizes contradict each other or a rule of the tensor map.
    """
    for name in ("M", "N", "K"):
        size = getattr(options, name)
        if size is not None and size < 1:
            raise ValueError(f"{name} = {size}: must be at least 1")
    m, n, k = options.M, options.N, options.K
    if options.A is None:
        m = DEFAULT_M if m is None else m
    if options.B is None:
        n = DEFAULT_N if n is None else n
    if options.A is None and options.B is None:
        k = DEFAULT_K if k is None else k
    if options.A is not None:
        a = operand("A", options.A, (m, k))
        b = operand("B", options.B, (n, a.shape[1]))
    else:
        b = operand("B", options.B, (n, k))
        a = operand("A", None, (m, b.shape[1]))
    if a.shape[1] * BF16.itemsize % 16:
        raise ValueError(
            f"K = {a.shape[1]}: a row has {a.shape[1] * BF16.itemsize} bytes, and a "
            "tensor map's strides must be multiples of 16: K must be one of 8"
        )
    return a, b


def reference(
    a: NDArray[np.generic], b: NDArray[np.generic], epilogue: Epilogue
) -> NDArray[np.float32]:
    """A @ B.T in the order of the kernel: over k, from 0 up, in each pass. Knows no tiles."""
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    totals = []
    for k_steps in passes(a.shape[1], epilogue):
        part = slice(k_steps.start, k_steps.stop)
        total = np.zeros((a.shape[0], b.shape[0]), np.float32)
        accumulate(total, wide_a[:, part], wide_b[:, part])
        totals.append(total)
    if epilogue is Epilogue.STORE:
        return totals[0]
    c = np.zeros_like(totals[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for total in totals:
            c += total
    c[np.isnan(c)] = REDUCED_NAN
    return c


def rows_of(spans: Sequence[Span], busy: Sequence[Sequence[int]]) -> list[Span]:
    """The rows of a single SM's picture: its warps, its stages, its tensor cores."""
    tracks = ("producer", "stage", "consumer", "staging")
    rows = [
        span
        for track in tracks
        for span in sorted(spans, key=lambda span: span.track)
        if span.track.split()[0] == track
    ]
    return rows + [Span("tensor cores", "mma", *times) for times in busy]


def cluster_rows(sms: Sequence[Sequence[Span]]) -> list[Span]:
    """A row for each SM: when its consumers multiply, write results, or wait for tiles."""
    waits = ("wait full", "wait group", "wait read")
    return [
        Span(f"SM {number}", span.name, span.start, span.end)
        for number, spans in enumerate(sms)
        for span in sorted(spans, key=lambda span: not span.name.startswith(waits))
        if span.track.split()[0] == "consumer"
    ]


def report(
    job: Path,
    a: NDArray[np.generic],
    b: NDArray[np.generic],
    stages: int,
    epilogue: Epilogue,
    grid: Grid,
) -> int:
    """Compare, print, and draw; return the exit status."""
    console = Console()
    summary = json.loads((job / "summary.json").read_text())
    sms = [[Span(**span) for span in spans] for spans in summary["spans"]]
    cycles = summary["cycles"]
    per = "per clock" if grid.ctas == 1 else "per clock\nand SM"
    with np.load(job / "activity.npz") as file:
        activity = {f"{name.replace('_', ' ')}\n{per}": file[name] for name in ACTIVITY}
    cores = summary["tensor_cores"]
    rows = rows_of(sms[0], cores[0]) if grid.ctas == 1 else cluster_rows(sms)
    (m, k), n = a.shape, b.shape[0]
    tiles = f"tiles {TILE_M} x {TILE_N} x {TILE_K}"
    cluster = "" if grid.ctas == 1 else f", cluster {grid}"
    title = f"GEMM {m} x {n} x {k}, {tiles}, {stages} stages, epilogue {epilogue}{cluster}"
    picture(job / "timeline.png", rows, activity, title, grid.ctas)
    everything = [
        [*spans, *(Span("tensor cores", "mma", *times) for times in busy)]
        for spans, busy in zip(sms, cores, strict=True)
    ]
    trace_events(job / "timeline.json", everything, activity)

    console.print(title, highlight=False)
    table = Table(show_header=False)
    table.add_row("cycles", f"{cycles}")
    table.add_row("bytes into shared memory", f"{summary['load_bytes']}")
    table.add_row("load bytes per cycle", f"{summary['load_bytes'] / cycles:.1f}")
    table.add_row("128-byte lines read", f"{summary['lines_read']}")
    if grid.ctas > 1:
        alone = summary["lines_without_multicast"]
        times = f"{alone / summary['lines_read']:.2f} times as many"
        table.add_row("without multicast", f"{alone}, {times}")
    table.add_row("bytes into global memory", f"{summary['store_bytes']}")
    table.add_row("store bytes per cycle", f"{summary['store_bytes'] / cycles:.1f}")
    table.add_row("128-byte lines written", f"{summary['lines_written']}")
    starved = summary["starved"]
    starved = " to ".join(dict.fromkeys(f"{share:.1%}" for share in (min(starved), max(starved))))
    table.add_row("tensor cores starve", f"{starved} of the cycles")
    table.add_row("simulated", f"{cycles / summary['seconds']:,.0f} cycles per second")
    console.print(table)
    console.print(f"{job}/timeline.png, timeline.json (Perfetto), c.npy", highlight=False)

    expected, got = reference(a, b, epilogue), np.load(job / "c.npy")
    differ = np.argwhere(expected.view(np.uint32) != got.view(np.uint32))
    if differ.size:
        i, j = map(int, differ[0])
        console.print(
            f"WRONG: {len(differ)} of {got.size} elements differ; first C[{i}, {j}]: "
            f"expected {expected[i, j]!r}, got {got[i, j]!r}",
            highlight=False,
        )
        return 1
    console.print(f"C equals NumPy's, bit for bit: {got.size} elements", highlight=False)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m sim_tb.gemm", description=__doc__)
    for name in ("M", "N", "K"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--STAGES", type=int, default=DEFAULT_STAGES)
    parser.add_argument(
        "--EPILOGUE",
        choices=[epilogue.value for epilogue in Epilogue],
        default=Epilogue.STORE.value,
        help="what becomes of a tile: it is stored, or added to C (split-K)",
    )
    parser.add_argument(
        "--CLUSTER", default="1x1", metavar="ROWSxCOLUMNS", help="CTAs that share their tiles"
    )
    for name in ("A", "B"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help="an .npy file")
    options = parser.parse_args(arguments)
    stages, epilogue = options.STAGES, Epilogue(options.EPILOGUE)
    smem = PRESETS["default"].smem_bytes
    most = next(n for n in range(64, 0, -1) if Layout(n).bytes <= smem)
    if not LEAST_STAGES <= stages <= most:
        parser.error(
            f"STAGES = {stages}: must be from {LEAST_STAGES} to {most}, as a stage takes "
            f"{Layout(1).a(1)} of {smem} bytes and the epilogue {CONSUMERS * STAGING_BYTES}"
        )
    try:
        grid = Grid.parse(options.CLUSTER)
        a, b = operands(options)
    except ValueError as error:
        parser.error(str(error))
    OUTPUT.mkdir(parents=True, exist_ok=True)
    np.save(OUTPUT / "a.npy", a.view(np.uint16))
    np.save(OUTPUT / "b.npy", b.view(np.uint16))
    settings = {"stages": stages, "epilogue": epilogue, "cluster": str(grid)}
    (OUTPUT / "job.json").write_text(json.dumps(settings))
    for stale in ("summary.json", "c.npy"):
        (OUTPUT / stale).unlink(missing_ok=True)
    runner.run(
        "sim_tb.gemm_kernel",
        ["gemm"],
        params=unit_of(grid),
        seed=SEED,
        env={JOB: str(OUTPUT.resolve())},
    )
    return report(OUTPUT, a, b, stages, epilogue, grid)


if __name__ == "__main__":
    sys.exit(main())
