"""Tensor cores: ``wgmma``, ``mma.sync``, and the moves of their operands.

A warp computes 16 rows of a product. Of these, lane L holds rows L / 4 and L / 4 + 8 (PTX ISA).
``wgmma`` reads its operands when it is issued; a kernel may not change them before it has waited.
"""

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sim_tb.arithmetic.tensor_cores import STEP_BYTES, multiply_accumulate
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.machine import LANES, Lanes, Mask, Warp, load, store
from sim_tb.ptx.operands import Execute, Operands, Read, Write, instruction, number_bits
from sim_tb.ptx.syntax import Number, Vector
from sim_tb.sm.pipes import FMA_PER_CLOCK, SCHEDULERS

Matrix = NDArray[Any]
Places = NDArray[np.int64]

TYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
}
SUMS: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "s32": np.dtype(np.int32),
}
ROWS = 16
"""Rows of a product that a warp computes."""

_LANE = np.arange(LANES)
_SPANS = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes that the swizzle of a matrix descriptor permutes, by bits 63:62; 16: it has none."""

_WINDOW = 0x3FFFF
"""Bits of a shared address that a matrix descriptor holds."""


# Fragments


def _in_registers(rows: Places, columns: Places, itemsize: int) -> tuple[Places, Places]:
    """Return places in the order (register, element of it, lane), flattened to two axes."""
    count = 4 // itemsize
    shape = rows.shape[0] // count * count, LANES
    return rows.reshape(shape), columns.reshape(shape)


def sum_places(n: int, itemsize: int) -> tuple[Places, Places]:
    """Return row and column of each element of a sum: shape (elements of a lane, 32)."""
    element = np.arange(n // 2)[:, None]
    rows = _LANE // 4 + 8 * (element // 2 % 2)
    columns = 8 * (element // 4) + 2 * (_LANE % 4) + element % 2
    return _in_registers(rows, columns, itemsize)


def left_places(itemsize: int) -> tuple[Places, Places]:
    """Return row and k of each element of A in four registers: shape (elements of a lane, 32)."""
    count = 4 // itemsize
    register, part = (axis[:, None] for axis in np.divmod(np.arange(4 * count), count))
    rows = _LANE // 4 + 8 * (register % 2)
    return rows, count * (_LANE % 4) + 4 * count * (register // 2) + part


def right_places(itemsize: int) -> tuple[Places, Places]:
    """Return n and k of each element of B in two registers: shape (elements of a lane, 32)."""
    count = 4 // itemsize
    register, part = (axis[:, None] for axis in np.divmod(np.arange(2 * count), count))
    return np.broadcast_to(_LANE // 4, (2 * count, LANES)), (
        count * (_LANE % 4) + 4 * count * register + part
    )


def gathered(
    reads: Sequence[Read], places: tuple[Places, Places], shape: tuple[int, int], dtype: Any
) -> Callable[[Warp], Matrix]:
    """Return the reader of a matrix whose elements are in registers of 32 bits."""

    def read(warp: Warp) -> Matrix:
        words = np.stack([each(warp) for each in reads])
        parts = words.view(f"u{dtype.itemsize}").reshape(len(reads), LANES, -1)
        matrix = np.zeros(shape, dtype)
        matrix[places] = parts.transpose(0, 2, 1).reshape(-1, LANES).view(dtype)
        return matrix

    return read


def scatter(warp: Warp, mask: Mask, writes: Sequence[Write], matrix: Matrix, places: Any) -> None:
    """Write a matrix into registers of 32 bits."""
    values = matrix[places].reshape(len(writes), -1, LANES).transpose(0, 2, 1)
    words = np.ascontiguousarray(values).view(np.uint32).reshape(len(writes), LANES)
    for write, word in zip(writes, words, strict=True):
        write(warp, word, mask)


# Operands of wgmma in shared memory


def addresses_of(
    descriptor: int, rows: int, itemsize: int, *, transposed: bool, length: int = STEP_BYTES
) -> Places:
    """Return the shared address of each element of an operand: shape (rows, elements of k).

    ``length`` is that of a row along k, in bytes.

    The rows of an operand that is not transposed are along k (PTX ISA, matrix descriptor).
    """
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))  # bytes
    span = _SPANS[descriptor >> 62]
    row = np.arange(rows)[:, None]
    k = np.arange(length // itemsize)
    if transposed:
        if span == 16:
            place = row // 8 * stride + k // 8 * leading + k % 8 * 16 + row % 8 * itemsize
        else:
            wide = span // itemsize
            place = row // wide * leading + k // 8 * stride + k % 8 * span + row % wide * itemsize
    else:
        byte = k * itemsize
        if span == 16:
            place = row // 8 * stride + byte // 16 * leading + row % 8 * 16 + byte % 16
        else:
            place = row // 8 * stride + row % 8 * span + byte
    address = start + place
    return address ^ (address >> 7 & span // 16 - 1) << 4


def shared_matrix(
    warp: Warp,
    descriptor: int,
    rows: int,
    dtype: np.dtype[Any],
    *,
    transposed: bool,
    length: int = STEP_BYTES,
) -> Matrix:
    """Return an operand that a matrix descriptor names: shape (rows, elements of k).

    Raises
    ------
    PtxError
        If the descriptor has a base offset, or names bytes outside of shared memory.
    """
    line = warp.cta.grid.lines[warp.pc]
    if offset := descriptor >> 49 & 7:
        raise PtxError(f"matrix descriptor {descriptor:#x}: base offset {offset} must be 0", line)
    cluster = warp.cta.cluster
    smem = cluster.rows[warp.cta.rank][: cluster.size]
    place = addresses_of(descriptor, rows, dtype.itemsize, transposed=transposed, length=length)
    warp.cta.grid.observer.product(warp, descriptor, place)
    if (end := int(place.max()) + dtype.itemsize) > smem.size:
        raise PtxError(
            f"matrix descriptor {descriptor:#x}: byte {end - 1:#x} is outside shared memory of "
            f"{smem.size} bytes, {warp.thread_name(0)}",
            line,
        )
    elements: Matrix = smem[place[..., None] + np.arange(dtype.itemsize)].view(dtype)[..., 0]
    return elements


# Instructions


def _shape(ins: Operands, text: str) -> tuple[int, int, int]:
    m, _, rest = text.removeprefix("m").partition("n")
    n, _, k = rest.partition("k")
    if not (m.isdigit() and n.isdigit() and k.isdigit()):
        raise ins.refuse(f".{text}")
    return int(m), int(n), int(k)


def _is_set(ins: Operands, index: int, bit: int) -> bool:
    """Return a bit of an immediate operand."""
    operand = ins.operands[index]
    if not isinstance(operand, Number):
        raise ins.refuse(f"operand {operand} is no constant")
    return bool(number_bits(operand, "s32") >> bit & 1)


def _types(ins: Operands, left: str, right: str, total: str) -> tuple[np.dtype[Any], ...]:
    if left not in TYPES or right not in TYPES or total not in SUMS:
        raise ins.refuse()
    return TYPES[left], TYPES[right], SUMS[total]


@instruction("wgmma")
def wgmma(ins: Operands) -> Execute:
    """``wgmma.mma_async`` of all types, ``.fence``, ``.commit_group`` and ``.wait_group``."""
    if ins.parts[1] == "fence":
        return lambda _warp, _mask: None
    if ins.parts[1] in ("commit_group", "wait_group"):
        return _group(ins)
    sparse = ins.parts[2] == "sp"
    if ins.parts[1] != "mma_async" or ins.parts[-6:-4] != ("sync", "aligned"):
        raise ins.refuse()
    if len(ins.parts) != 8 + sparse:
        raise ins.refuse()
    shape, total, left, right = ins.parts[-4:]
    a_type, b_type, sum_type = _types(ins, left, right, total)
    m, n, k = _shape(ins, shape)
    length = STEP_BYTES * (1 + sparse)
    if m != 64 or k * a_type.itemsize != length:
        raise ins.refuse(f".{shape}")

    at = 3 + 2 * sparse
    negates = [a_type.kind not in "iu" and _is_set(ins, at + index, 31) for index in (1, 2)]
    transposes = [_is_set(ins, index, 0) for index in range(at + 3, len(ins))]
    transposes = [False] * (2 - len(transposes)) + transposes
    places = sum_places(n, sum_type.itemsize)
    ins.require_items(0, n * sum_type.itemsize // 8)
    read_sum = gathered(ins.reads(0, "b32"), places, (ROWS, n), sum_type)
    writes = ins.writes(0)
    adds, b_descriptor = ins.read(at, "pred"), ins.read(2, "u64")
    read_a = _left(ins, a_type, transposed=transposes[0])
    if sparse:
        read_a = _expanded(ins, read_a, a_type, k)

    def execute(warp: Warp, mask: Mask) -> None:
        a = read_a(warp)
        descriptor = int(b_descriptor(warp)[0])
        b = shared_matrix(warp, descriptor, n, b_type, transposed=transposes[1], length=length)
        a, b = (-x if negate else x for x, negate in zip((a, b), negates, strict=True))
        c = read_sum(warp) if adds(warp)[0] else np.zeros((ROWS, n), sum_type)
        scatter(warp, mask, writes, multiply_accumulate(a, b, c, together=k), places)
        _use_tensor_core(warp, n, a_type)

    return execute


def _left(ins: Operands, dtype: np.dtype[Any], *, transposed: bool) -> Callable[[Warp], Matrix]:
    """Return the reader of a warp's 16 rows of A, from registers or from shared memory."""
    count = STEP_BYTES // dtype.itemsize
    if isinstance(ins.operands[1], Vector):
        ins.require_items(1, 4)
        return gathered(ins.reads(1, "b32"), left_places(dtype.itemsize), (ROWS, count), dtype)
    a_descriptor = ins.read(1, "u64")

    def read(warp: Warp) -> Matrix:
        descriptor, first = int(a_descriptor(warp)[0]), ROWS * (warp.index % 4)
        rows = shared_matrix(warp, descriptor, 4 * ROWS, dtype, transposed=transposed)
        return rows[first : first + ROWS]

    return read


def _expanded(
    ins: Operands, read: Callable[[Warp], Matrix], dtype: np.dtype[Any], k: int
) -> Callable[[Warp], Matrix]:
    """Return the reader of a sparse A with its zeros; metadata tell where its elements are.

    Of each four elements of 16 bits, two are there, with an index of two bits each. A thread has
    the indices of 16 elements of k, for the rows L / 4 and L / 4 + 8; the selector names the two
    threads of each four that have them (PTX ISA, sparse matrices; not recorded).
    """
    if dtype.itemsize != 2:
        raise ins.refuse("sparse matrices of this type")
    metadata, selector = ins.read(3, "b32"), 2 * _is_set(ins, 4, 0)
    row, element = np.arange(ROWS)[:, None], np.arange(k // 2)
    lanes = row % 8 * 4 + selector + element // 8
    shifts = (row // 8 * 16 + element % 8 * 2).astype(np.uint32)

    def expand(warp: Warp) -> Matrix:
        index = metadata(warp)[lanes] >> shifts & np.uint32(3)
        result = np.zeros((ROWS, k), dtype)
        result[row, element // 2 * 4 + index] = read(warp)
        return result

    return expand


def _use_tensor_core(warp: Warp, columns: int, dtype: np.dtype[Any]) -> None:
    """Use the tensor core of the warp's quarter for 16 rows and `STEP_BYTES` of k."""
    core = warp.core
    products = ROWS * columns * STEP_BYTES // dtype.itemsize
    rate = FMA_PER_CLOCK // SCHEDULERS * 2 // dtype.itemsize  # bf16: 2 bytes
    core.tensor_cores = max(warp.clock, core.tensor_cores) + -(-products // rate)


def _group(ins: Operands) -> Execute:
    """``wgmma.commit_group`` and ``wgmma.wait_group``."""
    if ins.parts[1] == "commit_group":

        def commit(warp: Warp, _mask: Mask) -> None:
            warp.product_groups.append(warp.core.tensor_cores)

        return commit
    groups = ins.read(0, "u32")

    def wait(warp: Warp, _mask: Mask) -> None:
        done = len(warp.product_groups) - int(groups(warp)[0])
        if done > 0:
            warp.clock = max(warp.clock, warp.product_groups[done - 1])
            del warp.product_groups[:done]

    return wait


@instruction("mma")
def mma(ins: Operands) -> Execute:
    """``mma.sync`` of 16 rows, 8 columns and 32 bytes of k."""
    if ins.parts[1:3] != ("sync", "aligned") or len(ins.parts) != 10:
        raise ins.refuse()
    if ins.parts[4:6] != ("row", "col") or ins.parts[6] != ins.parts[9]:
        raise ins.refuse()
    a_type, b_type, sum_type = _types(ins, *ins.parts[7:])
    m, n, k = _shape(ins, ins.parts[3])
    if (m, n) != (ROWS, 8) or k * a_type.itemsize != STEP_BYTES:
        raise ins.refuse(f".{ins.parts[3]}")
    places = sum_places(n, sum_type.itemsize)
    for index, count in enumerate((sum_type.itemsize, 4, 2, sum_type.itemsize)):
        ins.require_items(index, count)
    read_a = gathered(ins.reads(1, "b32"), left_places(a_type.itemsize), (m, k), a_type)
    read_b = gathered(ins.reads(2, "b32"), right_places(b_type.itemsize), (n, k), b_type)
    read_c = gathered(ins.reads(3, "b32"), places, (m, n), sum_type)
    writes = ins.writes(0)

    def execute(warp: Warp, mask: Mask) -> None:
        total = multiply_accumulate(read_a(warp), read_b(warp), read_c(warp))
        scatter(warp, mask, writes, total, places)
        _use_tensor_core(warp, n, a_type)
        warp.latency = warp.core.tensor_cores - warp.clock

    return execute


def _matrices(ins: Operands) -> tuple[int, bool]:
    """Return the number of 8 x 8 matrices of a move, and whether they are transposed."""
    known = ("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
    ins.require_parts(known)
    counts = [int(part[1:]) for part in ins.parts if part in ("x1", "x2", "x4")]
    if len(counts) != 1:
        raise ins.refuse()
    return counts[0], ins.has("trans")


def _halves(count: int, transposed: bool) -> tuple[Places, Places]:
    """Return the row, counted over all matrices, and the column of each half of a register."""
    register, half = (axis[:, None] for axis in np.divmod(np.arange(2 * count), 2))
    row, column = _LANE // 4, 2 * (_LANE % 4) + half
    if transposed:
        row, column = column, np.broadcast_to(row, column.shape)
    return 8 * register + row, np.broadcast_to(column, (2 * count, LANES))


@instruction("ldmatrix")
def load_matrices(ins: Operands) -> Execute:
    """``ldmatrix``: 8 x 8 matrices of 16 bits, whose rows the threads name."""
    count, transposed = _matrices(ins)
    ins.require_items(0, count)
    writes, address, places = ins.writes(0), ins.address(1), _halves(count, transposed)

    def execute(warp: Warp, mask: Mask) -> None:
        rows = load(warp, "shared", address(warp), 16, 8 * count > _LANE).view(np.uint16)
        scatter(warp, mask, writes, rows, places)

    return execute


@instruction("stmatrix")
def store_matrices(ins: Operands) -> Execute:
    """``stmatrix``: the reverse of ``ldmatrix``."""
    count, transposed = _matrices(ins)
    ins.require_items(1, count)
    places = _halves(count, transposed)
    read = gathered(ins.reads(1, "b32"), places, (LANES, 8), np.dtype(np.uint16))
    address = ins.address(0)

    def execute(warp: Warp, _mask: Mask) -> None:
        rows: Lanes = read(warp).view(np.uint8)
        store(warp, "shared", address(warp), rows, 8 * count > _LANE)

    return execute
