"""Files of silicon vectors: recorded requests to a real unit, and their results.

A file is an ``.npz`` with ``cases``, a structured array, and ``blob``, bytes to which the cases
refer by offset and length. ``tests/silicon/README.md`` describes the fields.
"""

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden.archive import VectorError, check_fields, read_arrays
from golden.enums import MAX_RANK, SMEM_BYTES, AccessMode, DataType, ReductionOp
from golden.errors import ErrorCode, require
from golden.geometry import Operands, swizzled
from golden.memory import ArrayMemory, Bytes, HashedMemory, Memory
from golden.plan import Plan
from golden.request import (
    BulkLoad,
    BulkReduce,
    BulkStore,
    Load,
    Reduce,
    Request,
    Store,
    moved_bytes,
)
from golden.tensor_map import TensorMap

UNTOUCHED = 0xCD
"""Byte of shared memory before a load."""

MAP_FIELDS = {
    "mode": "text",
    "dtype": "integer",
    "rank": "integer",
    "interleave": "integer",
    "swizzle": "integer",
    "oob_fill": "integer",
    "global_address": "integer",
    "global_dim": "integer 5",
    "global_strides": "integer 4",
    "box_dim": "integer 5",
    "element_strides": "integer 5",
    "lower_corner": "integer 3",
    "upper_corner": "integer 3",
    "channels_per_pixel": "integer",
    "pixels_per_column": "integer",
}
"""Fields of the parameters of a tensor map, and their kinds."""

OPERANDS = {"coords": "integer 5", "im2col_offsets": "integer 3", "smem_address": "integer"}
"""Fields of the operands of a tensor request, and their kinds."""

SLICES = dict.fromkeys(("gmem_before", "smem_before", "expect"), "integer 2")
CASE_FIELDS = {
    "kind": "text",
    "op": "text",
    **MAP_FIELDS,
    "l2_promotion": "integer",
    **OPERANDS,
    **SLICES,
    "red_op": "integer",
    "bytes": "integer",
    "cta_mask": "integer",
    "issuer": "integer",
    "encode_status": "integer",
    "refused": "flag",
    "descriptor": "integer 32",
}
"""Fields of a recorded case, and their kinds."""

ERROR_FIELD = "error"
"""Optional field of a case: code, dimension and value of the error record of a refused request."""

_SIGNED = {"coords", "lower_corner", "upper_corner"}


def _case_dtype() -> np.dtype[Any]:
    """Return the type of a case that has all fields."""
    types = {"text": "<U20", "flag": "?"}
    fields = []
    for name, kind in {**CASE_FIELDS, ERROR_FIELD: "integer 3"}.items():
        word, _, count = kind.partition(" ")
        number = "<i8" if name in _SIGNED else "<u8"
        fields.append((name, types.get(word, number), (int(count),) if count else ()))
    return np.dtype(fields)


CASE_DTYPE = _case_dtype()
"""Type of a case with all fields."""

TIMING_FIELDS = {"name": "text", **MAP_FIELDS, **OPERANDS, "silicon_cycles": "number"}
"""Fields of a recorded timing, and their kinds."""

MULTICAST_CTAS = 4
"""Number of CTAs in the cluster of a recorded multicast."""

ILLEGAL_INSTRUCTION = {
    *(ErrorCode.MAP_FIELD, ErrorCode.MAP_MODE, ErrorCode.COORD_ALIGN, ErrorCode.COORD_NEG),
    *(ErrorCode.IM2COL_START, ErrorCode.IM2COL_CORNER, ErrorCode.RED_TYPE),
}
"""Errors that a real unit reports as the fault that ``refused`` records."""


class Refusal(NamedTuple):
    """Error record of a refused request: its code, dimension and value, which is at least 0."""

    code: ErrorCode
    dim: int
    value: int

    def __str__(self) -> str:
        return f"{self.code.name}, dim {self.dim}, value {self.value:#x}"


@dataclass(frozen=True)
class Outcome:
    """Result of a case on a target: the golden model or the RTL.

    Parameters
    ----------
    refused : Refusal or None
        Error of the request; None if the target accepted it.
    bytes : int
        Bytes that ``complete_tx`` counted at each receiver.
    memory : ndarray or None
        Memory after the request: shared memory for a load (of all CTAs, one after the other, for a
        multicast), global memory for a store or reduction.
    note : str or None
        Reason why there is no result, if there is none.
    """

    refused: Refusal | None = None
    bytes: int = 0
    memory: Bytes | None = None
    note: str | None = None


@dataclass(frozen=True)
class Case:
    """A recorded case: its number, its row of ``cases``, and the file's ``blob``."""

    index: int
    fields: Any
    blob: Bytes

    def __str__(self) -> str:
        return f"{self.kind}[{self.index}]"

    @property
    def kind(self) -> str:
        """Kind of the case, such as ``load_tile``."""
        return str(self.fields["kind"])

    @property
    def op(self) -> str:
        """Operation: ``load``, ``store``, ``reduce`` or ``encode``."""
        return str(self.fields["op"])

    @property
    def mode(self) -> str:
        """Mode: ``tile``, ``im2col`` or ``bulk``."""
        return str(self.fields["mode"])

    @property
    def is_encoding(self) -> bool:
        """True if the case has no transfer: it records the encoder, or the encoder's rejection."""
        return self.op == "encode" or self.encode_status != 0

    @property
    def is_multicast(self) -> bool:
        """True for a multicast load."""
        return self.cta_mask != 0

    @property
    def rank(self) -> int:
        """Number of dimensions of the tensor."""
        return int(self.fields["rank"])

    @property
    def coords(self) -> tuple[int, ...]:
        """Start of the box, innermost first."""
        return tuple(int(c) for c in self.fields["coords"][: self.rank])

    @property
    def im2col_offsets(self) -> tuple[int, ...]:
        """Offsets of an im2col load, W first."""
        return tuple(int(n) for n in self.fields["im2col_offsets"][: max(self.rank - 2, 0)])

    @property
    def cta_mask(self) -> int:
        """Receivers of a multicast; 0 without multicast."""
        return int(self.fields["cta_mask"])

    @property
    def red_op(self) -> ReductionOp:
        """Operation of a reduction."""
        return ReductionOp(int(self.fields["red_op"]))

    @property
    def issuer(self) -> int:
        """Rank of the issuing CTA."""
        return int(self.fields["issuer"])

    @property
    def global_address(self) -> int:
        """Address of the tensor, or of a bulk request's first byte."""
        return int(self.fields["global_address"])

    @property
    def smem_address(self) -> int:
        """Byte offset in shared memory."""
        return int(self.fields["smem_address"])

    @property
    def bytes(self) -> int:
        """Number of bytes that ``complete_tx`` counts; of a bulk request, its size."""
        return int(self.fields["bytes"])

    @property
    def counted(self) -> int:
        """Number of bytes that ``complete_tx`` counts."""
        return moved_bytes(self.bytes) if self.mode == "bulk" else self.bytes

    @property
    def refused(self) -> bool:
        """True if the unit raised a fault."""
        return bool(self.fields["refused"])

    @property
    def refusal(self) -> Refusal | None:
        """The error record of a refused request; None if the file does not have it."""
        if not self.refused or ERROR_FIELD not in self.fields.dtype.names:
            return None
        code, dim, value = (int(number) for number in self.fields[ERROR_FIELD])
        return Refusal(ErrorCode(code), dim, value)

    @property
    def encode_status(self) -> int:
        """Status of the driver's encoder: 0, or 1 if it rejected the parameters."""
        return int(self.fields["encode_status"])

    @property
    def descriptor(self) -> builtins.bytes:
        """Bytes of the tensor map: 128."""
        return builtins.bytes(self.fields["descriptor"].astype("<u4").tobytes())

    def _slice(self, name: str) -> Bytes:
        """Return the bytes of ``blob`` that a field refers to."""
        offset, length = (int(n) for n in self.fields[name])
        return self.blob[offset : offset + length]

    @property
    def gmem(self) -> Memory:
        """Global memory before the request."""
        before = self.gmem_before
        return ArrayMemory(before) if before is not None else HashedMemory()

    @property
    def gmem_before(self) -> Bytes | None:
        """Global memory from address 0; None if each byte is the hash of its address."""
        before = self._slice("gmem_before")
        return before if before.size else None

    def smem(self) -> Bytes:
        """Return a new copy of shared memory before the request."""
        memory = np.full(SMEM_BYTES, UNTOUCHED, np.uint8)
        before = self._slice("smem_before")
        memory[: before.size] = before
        return memory

    def gmem_writable(self) -> ArrayMemory:
        """Return a new copy of global memory before the request, as far as its result is known."""
        before = self.gmem_before
        if before is not None:
            return ArrayMemory(before.copy())
        return ArrayMemory(HashedMemory().read(np.arange(self.expect.size, dtype=np.uint64)))

    def memory_before(self) -> Bytes:
        """Return the memory that a refused request must leave unchanged."""
        return self.smem() if self.op == "load" else self.gmem_writable().bytes

    @cached_property
    def expect(self) -> Bytes:
        """Memory from address 0 after the request, in the form of ``Outcome.memory``."""
        return self._slice("expect")

    def request(self) -> Request:
        """Return the recorded request.

        Raises
        ------
        VectorError
            If mode and operation do not make a request.
        """
        f, d = self.fields, self.descriptor
        addresses: dict[str, Any] = {"smem_address": self.smem_address}
        if self.mode == "bulk":
            addresses |= {"gmem_address": self.global_address, "size": self.bytes}
            match self.op:
                case "load":
                    return BulkLoad(**addresses, cta_mask=self.cta_mask or None)
                case "store":
                    return BulkStore(**addresses)
                case "reduce":
                    return BulkReduce(
                        **addresses, data_type=DataType(int(f["dtype"])), op=self.red_op
                    )
        elif self.mode in ("tile", "im2col"):
            mode = AccessMode[self.mode.upper()]
            match self.op:
                case "load":
                    offsets = self.im2col_offsets if self.mode == "im2col" else ()
                    mask = self.cta_mask or None
                    addresses |= {"im2col_offsets": offsets, "cta_mask": mask}
                    return Load(d, self.coords, mode, **addresses)
                case "store":
                    return Store(d, self.coords, mode, **addresses)
                case "reduce":
                    return Reduce(d, self.coords, mode, **addresses, op=self.red_op)
        raise VectorError(f"{self}: there is no request {self.op} with mode {self.mode}")

    def tensor_map(self) -> TensorMap:
        """Build the tensor map from its recorded parameters.

        Raises
        ------
        TmaError
            If the encoder rejects the parameters.
        """
        return tensor_map_of(self.fields)


def tensor_map_of(f: Any) -> TensorMap:
    """Build a tensor map from the fields of a recorded case or timing.

    Raises
    ------
    TmaError
        If the encoder rejects the parameters.
    """
    rank = int(f["rank"])
    limit = f"must be from 1 to {MAX_RANK}"
    require(1 <= rank <= MAX_RANK, ErrorCode.RANK, "rank", rank, limit)
    shared: dict[str, Any] = {
        "data_type": int(f["dtype"]),
        "global_address": int(f["global_address"]),
        "global_dim": [int(n) for n in f["global_dim"][:rank]],
        "global_strides": [int(n) for n in f["global_strides"][: rank - 1]],
        "element_strides": [int(n) for n in f["element_strides"][:rank]],
        "interleave": int(f["interleave"]),
        "swizzle": int(f["swizzle"]),
        "l2_promotion": int(f["l2_promotion"]) if "l2_promotion" in f.dtype.names else 0,
        "oob_fill": int(f["oob_fill"]),
    }
    if str(f["mode"]) == "tile":
        return TensorMap.tiled(**shared, box_dim=[int(n) for n in f["box_dim"][:rank]])
    corners = max(rank - 2, 0)
    return TensorMap.im2col(
        **shared,
        lower_corner=[int(n) for n in f["lower_corner"][:corners]],
        upper_corner=[int(n) for n in f["upper_corner"][:corners]],
        channels_per_pixel=int(f["channels_per_pixel"]),
        pixels_per_column=int(f["pixels_per_column"]),
    )


def read_timings(path: Path) -> NDArray[Any]:
    """Return the cases of a timing file.

    Raises
    ------
    VectorError
        If it is no timing file, or has no case.
    """
    table = read_arrays(path, "a timing file", ["cases"], ())["cases"]
    check_fields(path, "a timing file", table, TIMING_FIELDS)
    if not table.size:
        raise VectorError(f"{path}: cases is empty: must have at least one case")
    return table


def _check_values(path: Path, rows: NDArray[Any], blob: Bytes) -> None:
    """Refuse cases that refer to bytes outside of the blob, or name no operation or CTA."""
    for name in SLICES:
        # The sum of start and length may wrap, so it is not computed.
        start, length = rows[name].T
        beyond = np.flatnonzero(
            (start > blob.size) | (length > blob.size - np.minimum(start, blob.size))
        )
        if beyond.size:
            raise VectorError(f"{path}: {name} of case {beyond[0]} is not in the blob")
    reduces, bulk = rows["op"] == "reduce", rows["mode"] == "bulk"
    multicast = rows["cta_mask"] != 0
    for name, most, concerned in (
        ("red_op", max(ReductionOp), reduces),
        ("dtype", max(DataType), reduces & bulk),
        ("issuer", 0, ~multicast),
        ("issuer", MULTICAST_CTAS - 1, multicast),
    ):
        for n in np.flatnonzero(concerned & ((rows[name] < 0) | (rows[name] > most)))[:1]:
            limit = f"must be from 0 to {int(most)}"
            raise VectorError(f"{path}: {name} of case {n} is {rows[name][n]}: {limit}")
    for n in np.flatnonzero(rows["smem_before"][:, 1] > SMEM_BYTES)[:1]:
        limit = f"must have at most {SMEM_BYTES} bytes"
        raise VectorError(f"{path}: smem_before of case {n}: {limit}")


def select(
    path: Path, present: Sequence[str], kinds: Sequence[str] = (), limit: int | None = None
) -> list[int]:
    """Return the numbers of the cases that are selected.

    Parameters
    ----------
    path : Path
        Name of the file, for messages.
    present : sequence of str
        Kind of each case.
    kinds : sequence of str
        Kinds to select; all if empty.
    limit : int, optional
        Largest number of cases.

    Raises
    ------
    VectorError
        If the file lacks one of ``kinds``, or if no case is selected.
    """
    unknown = [kind for kind in kinds if kind not in present]
    if unknown:
        known = ", ".join(sorted(set(present)))
        raise VectorError(f"{path}: no kind {', '.join(unknown)}: must be {known}")
    numbers = [n for n, kind in enumerate(present) if not kinds or kind in kinds][:limit]
    if not numbers:
        raise VectorError(f"{path}: no case selected")
    return numbers


def read_cases(path: Path, kinds: Sequence[str] = (), limit: int | None = None) -> list[Case]:
    """Return the cases of a file of transfers or tensor maps.

    Parameters
    ----------
    path : Path
        An ``.npz`` file.
    kinds : sequence of str
        Kinds to return; all if empty.
    limit : int, optional
        Largest number of cases to return.

    Raises
    ------
    VectorError
        If it is no file of vectors, if it lacks one of ``kinds``, or if no case is selected.
    """
    arrays = read_arrays(path, "a file of vectors", ["cases"], ["blob"])
    rows, blob = arrays["cases"], arrays.get("blob", np.zeros(0, np.uint8))
    check_fields(path, "a file of vectors", rows, CASE_FIELDS)
    if blob.dtype != np.dtype(np.uint8) or blob.ndim != 1:
        raise VectorError(f"{path}: blob must be a list of bytes, is {blob.dtype} {blob.shape}")
    _check_values(path, rows, blob)
    numbers = select(path, rows["kind"].tolist(), kinds, limit)
    return [Case(number, rows[number], blob) for number in numbers]


def _locate(case: Case, address: int) -> str:
    """Return a text that says which element belongs at a byte of shared memory."""
    if case.mode == "bulk":
        return f", byte {address - case.smem_address} of {case.bytes}"
    plan = Plan(case.descriptor)
    byte = int(swizzled(np.array([address]), plan.swizzle)[0]) - case.smem_address
    row, inner = divmod(byte, plan.pitch)
    if not (0 <= row < plan.rows() and inner < plan.row_bytes):
        return ", outside the box"
    offsets = case.im2col_offsets if case.mode == "im2col" else ()
    rows = plan.positions(Operands(case.coords, offsets))
    position = [int(p) for p in rows[:, row]]
    if not plan.interleaved:
        position[0] += inner // plan.data_type.itemsize
    dims = plan.descriptor.global_dim
    inside = all(0 <= p < n for p, n in zip(position, dims, strict=False))
    side = "inside" if inside else "outside"
    return f", element {tuple(position)}, {side} the tensor"


def _locate_gmem(case: Case, address: int) -> str:
    """Return a text that says which element a byte of global memory belongs to."""
    byte = address - case.global_address
    if case.mode == "bulk":
        return f", byte {byte} of {case.bytes}"
    distance = f", {byte} bytes from the start of the tensor"
    plan = Plan(case.descriptor)
    steps = list(enumerate(plan.steps))
    position = [0] * len(steps)
    rest = byte
    # Divide by the largest stride first. If rows overlap, this finds one of several elements.
    for i, step in sorted(steps, key=lambda item: -item[1]):
        position[i], rest = divmod(rest, step) if step else (0, rest)
    dims = plan.descriptor.global_dim
    inside = all(0 <= p < n for p, n in zip(position, dims, strict=False))
    return f"{distance}, element {tuple(position)}{'' if inside else ', behind it or in padding'}"


def check(case: Case, outcome: Outcome) -> str | None:
    """Compare the outcome of a case with the recording.

    Returns
    -------
    str or None
        The first difference, with its element of the tensor; None if there is none.
    """
    if outcome.note:
        return f"{case}: {outcome.note}"
    if case.refused != (outcome.refused is not None):
        answer = f"refused: {outcome.refused}" if outcome.refused is not None else "accepted"
        return f"{case}: silicon {'refused' if case.refused else 'accepted'}, got {answer}"
    expected = case.memory_before() if case.refused else case.expect
    memory = outcome.memory
    if outcome.refused is not None:
        if case.refusal is not None and outcome.refused != case.refusal:
            return f"{case}: refused: {outcome.refused}, expected {case.refusal}"
        if case.refusal is None and outcome.refused.code not in ILLEGAL_INSTRUCTION:
            return f"{case}: silicon: illegal instruction, got refused: {outcome.refused}"
        if memory is not None and (memory.ravel() != expected.ravel()[: memory.size]).any():
            return f"{case}: refused, but memory was written"
        return None
    if case.op == "load" and outcome.bytes != case.counted:
        return f"{case}: complete_tx of {outcome.bytes} bytes, expected {case.counted}"
    if memory is None:
        return f"{case}: no bytes of memory, expected {expected.size}"
    parts = MULTICAST_CTAS if case.is_multicast else 1
    for cta, (want, got) in enumerate(
        zip(expected.reshape(parts, -1), memory.reshape(parts, -1), strict=True)
    ):
        difference = _compare(case, want, got)
        if difference:
            return f"{case}: {f'CTA {cta}: ' if case.is_multicast else ''}{difference}"
    return None


def _compare(case: Case, expected: Bytes, memory: Bytes) -> str | None:
    """Return the first difference in the memory of one CTA, or in global memory."""
    size = expected.size
    if memory.size < size:
        return f"{memory.size} bytes of memory, expected {size}"
    name = "shared" if case.op == "load" else "global"
    beyond = np.flatnonzero(memory[size:] != UNTOUCHED) if case.op == "load" else np.zeros(0)
    differ = np.flatnonzero(memory[:size] != expected)
    if not differ.size:
        if not beyond.size:
            return None
        address = size + int(beyond[0])
        return f"{name} byte {address:#x} written, none expected there"
    address = int(differ[0])
    locate = _locate if case.op == "load" else _locate_gmem
    return (
        f"{differ.size} bytes differ, first {name} byte {address:#x}"
        f"{locate(case, address)}: expected {expected[address]:#04x}, got {memory[address]:#04x}"
    )
