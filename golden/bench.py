"""Time of the golden model, relative to ``numpy.copyto`` of the same bytes: ``make bench-golden``.

Each case applies one plan many times at changing coordinates. In alternation with it, NumPy copies
the same number of rows and bytes out of an array with the same row pitch. The time is the minimum
of several repeats. Only the ratio is printed, because seconds differ between machines.
"""

import argparse
import sys
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from golden.arch import Arch
from golden.enums import AccessMode, ReductionOp
from golden.memory import ArrayMemory, Bytes
from golden.model import execute
from golden.plan import Plan
from golden.request import BulkLoad, BulkStore, Load
from golden.tensor_map import TensorMap

GMEM_BYTES = 1 << 24
SMEM_BYTES = 1 << 16
STARTS = 16
"""Start coordinates of a case."""

PITCH = 4096
"""Row pitch of global memory in bytes."""


@dataclass(frozen=True)
class Case:
    """A case to be timed.

    Parameters
    ----------
    name : str
        Label in the table.
    run : callable
        Takes the start coordinates, innermost first.
    starts : list of tuple of int
        Start coordinates of the runs.
    rows, row_bytes : int
        Rows that NumPy copies, and bytes of a row.
    limit : float or None
        Largest ratio that is allowed; None: any.
    """

    name: str
    run: Callable[[Sequence[int]], object]
    starts: list[tuple[int, ...]]
    rows: int
    row_bytes: int
    limit: float | None = 10.0


class Memories:
    """Memories that all cases share."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        words = rng.integers(0, 1 << 16, GMEM_BYTES // 2, dtype=np.uint16)
        # No exponent of all ones: additions of NaN are slower than others, and rare.
        self.gmem = ArrayMemory(words & np.uint16(0xBFFF))
        self.stored = ArrayMemory(self.gmem.bytes.copy())
        self.smem = [np.zeros(SMEM_BYTES, np.uint8) for _ in range(4)]


def _matrix(data_type: str, box: tuple[int, int], **options: Any) -> TensorMap:
    item = TensorMap.tiled(data_type, 0, (16,), (), (16,)).data_type.itemsize
    rows = GMEM_BYTES // PITCH
    return TensorMap.tiled(data_type, 0, (PITCH // item, rows), (PITCH,), box, **options)


def _starts(*choices: Sequence[int]) -> list[tuple[int, ...]]:
    """Return ``STARTS`` start coordinates; each dimension cycles through its choices."""
    return [tuple(axis[n % len(axis)] for axis in choices) for n in range(STARTS)]


def cases(memories: Memories) -> list[Case]:
    """Return all cases; boxes have 8 KiB, the first has 16 KiB."""
    gmem, smem = memories.gmem, memories.smem[0]
    columns, rows = range(0, 1024, 64), range(0, 2048, 128)
    result: list[Case] = []

    def load(
        name: str,
        tensor_map: TensorMap,
        starts: list[tuple[int, ...]],
        limit: float | None = 10.0,
        offsets: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        plan = Plan(tensor_map, **options)
        result.append(
            Case(
                name,
                lambda start: plan.load(gmem, smem, 1024, start, offsets),
                starts,
                plan.rows(),
                plan.row_bytes,
                limit,
            )
        )

    def store(
        name: str,
        tensor_map: TensorMap,
        starts: list[tuple[int, ...]],
        op: ReductionOp | None = None,
        limit: float | None = 10.0,
    ) -> None:
        plan = Plan(tensor_map, store=True)

        # Adding zeros leaves the numbers in memory as they are, however often it is repeated.
        zeros = np.zeros_like(smem)

        def run(start: Sequence[int]) -> None:
            if op is None:
                plan.store(memories.stored, smem, 1024, start)
            else:
                plan.reduce(op, gmem, zeros, 1024, start)

        result.append(Case(name, run, starts, plan.rows(), plan.row_bytes, limit))

    inside = _starts(columns, rows)
    swizzled = {"swizzle": "128B"}
    load("tile, 128x64 bf16, 128B (16 KiB)", _matrix("bf16", (64, 128), **swizzled), inside, 3.0)
    load("tile, 64x64 bf16, 128B", _matrix("bf16", (64, 64), **swizzled), inside)
    load("tile, 64x64 bf16, none", _matrix("bf16", (64, 64)), inside)
    load("tile, 32x256 u8, none", _matrix("u8", (256, 32)), _starts(range(0, 2048, 128), rows))
    load("tile, 256x16 bf16, 32B", _matrix("bf16", (16, 256), swizzle="32B"), inside)
    load("tile, half of the rows outside", _matrix("bf16", (64, 64)), _starts(columns, (-32,)))
    beyond = PITCH // 2 - 40
    load(
        "tile, columns outside, NaN fill",
        _matrix("bf16", (64, 64), oob_fill="nan", **swizzled),
        _starts((beyond, beyond + 16), rows),
    )
    load("tile, all outside", _matrix("bf16", (64, 64)), _starts(columns, range(-640, -64, 64)))
    load("tile, tf32 rounding", _matrix("tf32", (32, 64), **swizzled), inside, None)
    load("tile, element stride 3", _matrix("bf16", (64, 192), element_strides=(1, 3)), inside)
    deep = TensorMap.tiled(
        "bf16", 0, (64, 64, 8, 8, 8), (256, 1 << 14, 1 << 17, 1 << 20), (64, 4, 4, 2, 2)
    )
    load("tile, rank 5", deep, _starts((0,), range(0, 60, 4), range(4), range(6), range(6)))
    for layout, width in ("16B", 16), ("32B", 32):
        sliced = TensorMap.tiled(
            *("bf16", 0, (32, 32, 8, 8), (32 * width, 1 << 16, 1 << 20)),
            *((16, 32 * 16 // width, 1, 1),),
            interleave=layout,
            swizzle="32B",
        )
        starts = _starts(range(16), range(8 if width == 32 else 1), range(8), range(8))
        load(f"tile, interleave {layout}", sliced, starts)
    nhwc = ("bf16", 0, (128, 56, 56, 8), (256, 256 * 56, 256 * 56 * 56))
    image = TensorMap.im2col(*nhwc, (0, 0), (-2, -2), 64, 64, swizzle="128B")
    walks = _starts((0, 64), range(0, 54, 5), range(0, 50, 3), range(6))
    load("im2col, 3x3, offsets", image, walks, offsets=(1, 2))
    padded = TensorMap.im2col(*nhwc, (-1, -1), (-1, -1), 64, 64, swizzle="128B")
    walks = _starts((0, 64), range(-1, 54, 5), range(-1, 50, 3), range(6))
    load("im2col, 3x3, padding", padded, walks, offsets=(2, 0))
    gathered = _matrix("u64", (256, 1))
    four_rows = [(0, *(n * 7 + k for k in range(4))) for n in range(STARTS)]
    load("gather4", gathered, four_rows, mode=AccessMode.TILE_GATHER4, arch=Arch.SM_100A)
    store("store, tile, 128B", _matrix("bf16", (64, 64), **swizzled), inside)
    store("store, rows outside", _matrix("bf16", (64, 64)), _starts(columns, (4064,)))
    store("store, im2col", image, _starts((0, 64), range(0, 54, 5), range(0, 50, 3), range(6)))
    add = ReductionOp.ADD
    store("reduction, add u32", _matrix("u32", (32, 64), **swizzled), inside, add)
    # NumPy's arithmetic alone takes longer than the limit.
    for kind, width, op in (
        *(("f32", 32, add), ("f64", 16, add), ("bf16", 64, add), ("f16", 64, add)),
        ("bf16", 64, ReductionOp.MIN),
    ):
        box = _matrix(kind, (width, 64), **swizzled)
        name = f"reduction, {op.name.lower()} {kind}"
        store(name, box, _starts(range(0, 512, 64), rows), op, limit=None)
    _add_requests(result, memories)
    return result


def _add_requests(result: list[Case], memories: Memories) -> None:
    """Add cases that run ``execute``, which checks each request."""
    gmem, smem = memories.gmem, memories.smem
    tensor_map = _matrix("bf16", (64, 64), swizzle="128B")
    data = tensor_map.encode()
    starts = _starts(range(0, 1024, 64), range(0, 2048, 128))

    def run(start: Sequence[int]) -> None:
        execute(Load(data, tuple(start), smem_address=1024), gmem, smem)

    def multicast(start: Sequence[int]) -> None:
        execute(Load(data, tuple(start), smem_address=1024, cta_mask=15), gmem, smem)

    result += [
        Case("request, tile", run, starts, 64, 128),
        Case("request, multicast to 4", multicast, starts, 256, 128),
        Case(
            "request, bulk load",
            lambda start: execute(BulkLoad(start[1] * 64, 1024, 8192), gmem, smem),
            starts,
            64,
            128,
        ),
        Case(
            "request, bulk store",
            lambda start: execute(BulkStore(start[1] * 64, 1024, 8192), memories.stored, smem),
            starts,
            64,
            128,
        ),
    ]


def ratio(case: Case, gmem: Bytes, repeats: int) -> float:
    """Return the time of a case divided by that of the copy: each the minimum of ``repeats``."""
    tensor = gmem.reshape(-1, PITCH).view(np.uint64)
    width = case.row_bytes // 8
    target = np.zeros((case.rows, width), np.uint64)
    sources = [tensor[n * 128 :][: case.rows, n * 8 :][:, :width] for n in range(STARTS)]

    def run_copies() -> None:
        for source in sources:
            np.copyto(target, source)

    def run_case() -> None:
        for start in case.starts:
            case.run(start)

    run_case()
    number = 4  # short, so that some measurement is not interrupted on a busy machine
    best = [float("inf")] * 2
    for _ in range(repeats):
        for which, function in enumerate((run_case, run_copies)):
            best[which] = min(best[which], timeit.timeit(function, number=number))
    return best[0] / best[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a case is slower than its limit, otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m golden.bench", description=__doc__)
    parser.add_argument(
        "--repeats",
        type=int,
        default=250,
        help="measurements of each case, of which the minimum counts (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: must be at least 1")
    table = Table("case", "time / copyto", "limit", title="golden model", title_justify="left")
    slow = 0
    memories = Memories()
    for case in cases(memories):
        measured = ratio(case, memories.gmem.bytes, options.repeats)
        missed = case.limit is not None and measured > case.limit
        slow += missed
        limit = "-" if case.limit is None else f"{case.limit:g}"
        table.add_row(case.name, f"{measured:.2f}{' !' if missed else ''}", limit)
    console = Console()
    console.print(table)
    console.print(f"{slow} cases slower than the limit", highlight=False)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
