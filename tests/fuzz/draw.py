"""Random requests as rows of a file of vectors, with tensor maps of any 64 bytes among them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from golden import (
    Arch,
    BulkLoad,
    BulkReduce,
    BulkStore,
    ErrorCode,
    Load,
    Plan,
    Reduce,
    ReductionOp,
    Store,
    TmaError,
    conformance,
)
from golden.enums import MAX_RANK, SMEM_BYTES
from golden.request import as_descriptor
from golden.vectors import CASE_DTYPE, ERROR_FIELD, Case, Outcome
from tests.golden.random_requests import (
    GMEM_BYTES,
    Rng,
    load_im2col,
    load_tile,
    overlaps,
    pick,
    random_bytes,
    random_case,
)
from tests.golden.random_requests import SMEM_BYTES as SOURCE_BYTES
from tests.top.random_loads import random_bulk

Row = Any
"""A record of ``CASE_DTYPE``."""

STORES = (
    *("store_tile", "store_tile_interleaved", "store_im2col", "store_im2col_interleaved"),
    *("reduce_tile", "reduce_tile_interleaved", "reduce_im2col", "reduce_im2col_interleaved"),
    *("bulk_store", "bulk_reduce"),
)
MODES = *("tile", "interleaved", "im2col", "im2col_interleaved", "bulk") * 2, *STORES

COMMON_BYTES = 8 << 10
"""Boxes with more bytes of shared memory are rare, because they take long."""

BLOB = np.concatenate(
    [random_bytes(np.random.default_rng(5), size) for size in (GMEM_BYTES, SOURCE_BYTES)]
)
"""Global memory before each store, and behind it shared memory."""

TensorRequest = Load | Store
AnyRequest = TensorRequest | BulkLoad | BulkStore | BulkReduce


@dataclass(frozen=True)
class Drawn:
    """A case, and the golden model's outcome."""

    case: Case
    golden: Outcome


def row_of(request: AnyRequest) -> Row:
    """Return the row of a request, without its results."""
    row = np.zeros((), CASE_DTYPE)
    row["op"] = "load" if isinstance(request, Load | BulkLoad) else "store"
    if isinstance(request, Reduce | BulkReduce):
        row["op"], row["red_op"] = "reduce", request.op
    row["smem_address"] = request.smem_address
    if row["op"] != "load":
        row["gmem_before"], row["smem_before"] = (0, GMEM_BYTES), (GMEM_BYTES, SOURCE_BYTES)
    if isinstance(request, TensorRequest):
        descriptor = as_descriptor(request.tensor_map)
        row["mode"] = (request.mode or descriptor.mode).name.lower()
        row["rank"] = len(request.coords)
        row["coords"][: len(request.coords)] = request.coords
        row["descriptor"][:16] = descriptor.words
        if isinstance(request, Load):
            row["im2col_offsets"][: len(request.im2col_offsets)] = request.im2col_offsets
    else:
        row["mode"] = "bulk"
        row["global_address"], row["bytes"] = request.gmem_address, request.size
        if isinstance(request, BulkReduce):
            row["dtype"] = request.data_type
    return row


def legal(rng: Rng) -> Row:
    """Return the row of a request that is mostly legal."""
    while True:
        mode = pick(rng, *MODES)
        most = int(pick(rng, 300, 1000))
        try:
            if mode in STORES:
                return row_of(random_case(rng, mode).request)
            if mode == "bulk":
                return row_of(random_bulk(rng, 2048))
            draw = load_im2col if "im2col" in mode else load_tile
            return row_of(draw(rng, interleaved="interleaved" in mode, most=most).request)
        except TmaError:  # the drawn tensor map is illegal
            continue


def extreme(rng: Rng, bits: int) -> int:
    """Return a number of so many bits, most often at an end."""
    top = (1 << bits) - 1
    return int(pick(rng, 0, 1, top, top >> 1, top - 1, int(rng.integers(top, endpoint=True))))


def change(rng: Rng, row: Row) -> None:
    """Make one random change to a row."""
    words = row["descriptor"]
    place = int(rng.integers(16))
    if row["mode"] == "bulk":
        match rng.integers(4):
            case 0:
                row["global_address"] ^= np.uint64(1 << int(rng.integers(64)))
            case 1:
                row["bytes"] ^= np.uint32(1 << int(rng.integers(32)))
            case 2:
                row["smem_address"] = extreme(rng, 24)
            case 3:
                row["red_op"] = int(rng.integers(len(ReductionOp)))
        return
    match rng.integers(12):
        case 0 | 1 | 2 | 3:
            words[place] ^= np.uint32(1 << int(rng.integers(32)))
        case 4:
            words[place] = extreme(rng, 32)
        case 5:
            words[:16] = rng.integers(1 << 32, size=16)
        case 6 | 7:
            dim = int(rng.integers(MAX_RANK))
            row["coords"][dim] = pick(
                rng, extreme(rng, 32) - (1 << 31), int(row["coords"][dim]) // 2, 1, -1
            )
        case 8:
            row["rank"] = int(rng.integers(1, MAX_RANK + 1))
        case 9:
            row["mode"] = pick(rng, "tile", "im2col")
        case 10:
            row["smem_address"] = pick(
                rng, extreme(rng, 24), int(row["smem_address"]) ^ 1 << int(rng.integers(20))
            )
        case 11:
            row["im2col_offsets"][int(rng.integers(3))] = extreme(rng, 16)


def drawn(row: Row, index: int) -> Drawn | None:
    """Return the case of a row, with the golden model's results.

    Return None for a request whose result is not defined: one that reaches beyond its global
    memory, or writes a byte twice.
    """
    row = row.copy()
    row["kind"] = f"{row['op']}_{row['mode']}"
    row["refused"], row[ERROR_FIELD] = False, 0
    if row["mode"] != "bulk":
        row["bytes"] = 0
    case = Case(index, row, BLOB)
    outcome = conformance.outcome(case)
    if outcome.refused is not None:
        if outcome.refused.code is ErrorCode.GMEM_FAULT:
            return None
        row["refused"], row[ERROR_FIELD] = True, outcome.refused
    elif row["op"] == "load" and row["mode"] != "bulk":
        row["bytes"] = outcome.bytes
    elif row["op"] != "load" and overlaps(case.request(), Arch.SM_90A):
        return None
    return Drawn(case, outcome)


def is_large(row: Row) -> bool:
    """Return whether a box has more bytes of shared memory than most."""
    if row["mode"] == "bulk":
        return COMMON_BYTES < int(row["bytes"]) <= SMEM_BYTES
    try:
        plan = Plan(Case(0, row, BLOB).descriptor, store=row["op"] != "load")
    except TmaError:
        return False
    return COMMON_BYTES < plan.extent(0) <= SMEM_BYTES


def draw(rng: Rng, index: int, corpus: list[Row]) -> Drawn:
    """Return a random case; with a ``corpus``, every second one is a change of one of its rows."""
    while True:
        row = pick(rng, *corpus).copy() if corpus and rng.random() < 0.5 else legal(rng)
        for _ in range(int(pick(rng, 0, 1, 1, 2))):
            change(rng, row)
        if is_large(row) and rng.random() < 0.98:
            continue
        result = drawn(row, index)
        if result is not None:
            return result
