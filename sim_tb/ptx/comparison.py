"""Comparison of kernels whose threads compute addresses with kernels that use the unit.

The kernels are those of ``examples/overlap.cu``, as ``nvcc`` compiles them. All of them move the
same tiles, which have the swizzle that ``wgmma`` needs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from golden import TensorMap
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.launch import Result
from sim_tb.ptx.module import Module

SOURCE = Path(__file__).with_name("examples") / "overlap.ptx"

ROWS, COLUMNS = 64, 64
"""Rows and elements of a tile: 8 KiB of bf16."""

STEPS = 16
"""Tiles of a copy, and steps of a product, which loads two tiles in each."""

_STAGE_BYTES = 4 * 2 * 8192 + 1024
"""Dynamic shared memory of the products with four stages, and room to align it."""

_SEED = 11


@dataclass(frozen=True)
class Variant:
    """A kernel, and how it moves data.

    Parameters
    ----------
    entry : str
        Name of the kernel.
    loads : str
        Instructions that load its tiles.
    """

    entry: str
    loads: str

    @property
    def tiles(self) -> int:
        """Tiles that it loads."""
        return STEPS if self.entry.startswith("copy") else 2 * STEPS


VARIANTS = (
    Variant("copy_registers", "ld.global, st.shared"),
    Variant("copy_async", "cp.async"),
    Variant("copy_unit", "cp.async.bulk.tensor"),
    Variant("gemm_registers", "ld.global, st.shared"),
    Variant("gemm_async", "cp.async"),
    Variant("gemm_unit", "cp.async.bulk.tensor"),
)


@dataclass(frozen=True)
class Measurement:
    """Figures of a run.

    Parameters
    ----------
    variant : Variant
    result : Result
    registers : int
        Registers of a thread.
    """

    variant: Variant
    result: Result
    registers: int

    @property
    def cells(self) -> list[str]:
        """Row of the table: kernel, loads, and figures per tile."""
        record, tiles = self.result.record, self.variant.tiles
        conflicts = sum(sm.bank_conflicts for sm in record.sms) if record else 0
        return [
            self.variant.entry.partition("_")[0],
            self.variant.loads,
            f"{self.result.instructions / tiles:.0f}",
            str(self.registers),
            f"{conflicts / tiles:.1f}",
            f"{self.result.cycles / tiles:.0f}",
        ]


HEAD = ["kernel", "loads", "issue slots", "registers", "bank conflicts", "clocks"]


def _arguments(entry: str) -> tuple[list[Any], NDArray[Any], NDArray[Any]]:
    """Return arguments of a kernel, the array that it writes, and what must be there."""
    rng = np.random.default_rng(_SEED)
    shape = ROWS, STEPS * COLUMNS
    a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for _ in range(2))

    def tensor_map() -> TensorMap:
        return TensorMap.tiled(
            "bf16", 0, shape[::-1], (2 * shape[1],), (COLUMNS, ROWS), swizzle="128B"
        )

    pitch = np.int64(2 * shape[1])
    if entry.startswith("copy"):
        out = np.zeros_like(a)
        if entry.endswith("unit"):
            return [(a, tensor_map()), (out, tensor_map()), np.int32(STEPS)], out, a
        return [a, out, pitch, np.int32(STEPS)], out, a
    out = np.zeros((ROWS, ROWS), np.float32)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    if entry.endswith("unit"):
        maps = (a, tensor_map()), (b, tensor_map())
        return [*maps, out, np.int32(ROWS), np.int32(STEPS)], out, expected
    return [a, b, out, np.int32(ROWS), pitch, np.int32(STEPS)], out, expected


def registers_of(text: str, entry: str) -> int:
    """Return the registers of a kernel that ``ptxas`` has counted, from a comment of the PTX.

    Raises
    ------
    PtxError
        If there is no such comment.
    """
    found = re.search(rf"// {entry}: (\d+) registers", text)
    if found is None:
        raise PtxError(f"no comment says how many registers {entry} has")
    return int(found.group(1))


def measurements() -> Iterator[Measurement]:
    """Run each kernel through the unit, with one block; yield its figures.

    Raises
    ------
    PtxError
        If a result is wrong.
    """
    text = SOURCE.read_text()
    module = Module(text)
    for variant in VARIANTS:
        arguments, out, expected = _arguments(variant.entry)
        smem = _STAGE_BYTES if variant.entry in ("gemm_async", "gemm_unit") else 0
        result = module.launch(variant.entry, (1,), (128,), arguments, smem=smem, records=True)
        if not (out == expected).all():
            raise PtxError(f"{variant.entry}: {int((out != expected).sum())} elements are wrong")
        yield Measurement(variant, result, registers_of(text, variant.entry))
