"""Files of silicon vectors: what a real unit was asked and what it did.

A file is an ``.npz`` with ``cases``, a structured array, and ``blob``, bytes to which the cases
refer by offset and length. ``tests/silicon/README.md`` describes the fields.
"""

import builtins
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.errors import Cause, TensorMapError
from golden.load import Geometry, spread, swizzle
from golden.memory import ArrayMemory, Bytes, HashedMemory, Memory
from golden.tensor_map import Descriptor, Interleave, TensorMap

UNTOUCHED = 0xCD
"""Byte of shared memory before a load."""

SMEM_BYTES = 233472

MAP_FIELDS = {
    *("mode", "dtype", "rank", "interleave", "swizzle", "l2_promotion", "oob_fill"),
    *("global_address", "global_dim", "global_strides", "box_dim", "element_strides"),
    *("lower_corner", "upper_corner", "channels_per_pixel", "pixels_per_column"),
}
SLICES = ("gmem_before", "smem_before", "expect")
REQUIRED = MAP_FIELDS.union(
    *(("kind", "op", "descriptor", "encode_status", "refused"), SLICES),
    *(("coords", "smem_address", "bytes", "cta_mask"),),
)

ILLEGAL_INSTRUCTION = {
    *(Cause.MAP_MODE, Cause.COORD_ALIGN, Cause.COORD_NEG),
    *(Cause.IM2COL_START, Cause.IM2COL_CORNER, Cause.RED_TYPE),
}
"""Causes of the fault that ``refused`` records; the unit's other refusals look different."""


class VectorError(ValueError):
    """A file that is not one of vectors."""


@dataclass(frozen=True)
class Outcome:
    """What a target did with a case.

    ``refused``: the cause, or None. ``bytes``: what ``complete_tx`` counted. ``memory``: shared
    memory after a load. ``note``: why there is no outcome, where there is none.
    """

    refused: Cause | None = None
    bytes: int = 0
    memory: Bytes | None = None
    note: str | None = None


@dataclass(frozen=True)
class Case:
    """One recorded case; ``fields`` is its row, ``blob`` the file's bytes."""

    index: int
    fields: Any
    blob: Bytes

    def __str__(self) -> str:
        return f"{self.kind}[{self.index}]"

    @property
    def kind(self) -> str:
        """Its class, such as ``load_tile``."""
        return str(self.fields["kind"])

    @property
    def op(self) -> str:
        """``load``, ``store``, ``reduce`` or ``encode``."""
        return str(self.fields["op"])

    @property
    def mode(self) -> str:
        """``tile``, ``im2col`` or ``bulk``."""
        return str(self.fields["mode"])

    @property
    def is_encoding(self) -> bool:
        """Only the encoder has an answer: it was asked alone, or rejected the parameters."""
        return self.op == "encode" or self.encode_status != 0

    @property
    def is_multicast(self) -> bool:
        """The bytes go to several CTAs."""
        return int(self.fields["cta_mask"]) != 0

    @property
    def rank(self) -> int:
        """Dimensions of the tensor."""
        return int(self.fields["rank"])

    @property
    def coords(self) -> tuple[int, ...]:
        """Start of the box, innermost first."""
        return tuple(int(c) for c in self.fields["coords"][: self.rank])

    @property
    def smem_address(self) -> int:
        """Byte offset in shared memory."""
        return int(self.fields["smem_address"])

    @property
    def bytes(self) -> int:
        """What ``complete_tx`` counts."""
        return int(self.fields["bytes"])

    @property
    def refused(self) -> bool:
        """The unit raised a fault."""
        return bool(self.fields["refused"])

    @property
    def encode_status(self) -> int:
        """0, or 1 where the encoder rejected the parameters."""
        return int(self.fields["encode_status"])

    @property
    def descriptor(self) -> builtins.bytes:
        """The 128 bytes of the tensor map."""
        return builtins.bytes(self.fields["descriptor"].astype("<u4").tobytes())

    def _slice(self, name: str) -> Bytes:
        offset, length = (int(n) for n in self.fields[name])
        return self.blob[offset : offset + length]

    @property
    def gmem(self) -> Memory:
        """Global memory before."""
        before = self.gmem_before
        return ArrayMemory(before) if before is not None else HashedMemory()

    @property
    def gmem_before(self) -> Bytes | None:
        """Global memory from address 0 on, or None where every byte is the hash of its address."""
        before = self._slice("gmem_before")
        return before if before.size else None

    def smem(self) -> Bytes:
        """A fresh shared memory as it was before."""
        memory = np.full(SMEM_BYTES, UNTOUCHED, np.uint8)
        before = self._slice("smem_before")
        memory[: before.size] = before
        return memory

    @cached_property
    def expect(self) -> Bytes:
        """For a load, shared memory from 0 on afterwards."""
        return self._slice("expect")

    def tensor_map(self) -> TensorMap:
        """Build the map from its parameters, as the encoder would.

        Raises
        ------
        TensorMapError
            As the encoder rejects.
        """
        f, rank = self.fields, self.rank
        if not 1 <= rank <= 5:
            raise TensorMapError("rank", rank, "must be from 1 to 5")
        shared: dict[str, Any] = {
            "data_type": int(f["dtype"]),
            "global_address": int(f["global_address"]),
            "global_dim": [int(n) for n in f["global_dim"][:rank]],
            "global_strides": [int(n) for n in f["global_strides"][: rank - 1]],
            "element_strides": [int(n) for n in f["element_strides"][:rank]],
            "interleave": int(f["interleave"]),
            "swizzle": int(f["swizzle"]),
            "l2_promotion": int(f["l2_promotion"]),
            "oob_fill": int(f["oob_fill"]),
        }
        if self.mode == "tile":
            return TensorMap.tiled(**shared, box_dim=[int(n) for n in f["box_dim"][:rank]])
        corners = max(rank - 2, 0)
        return TensorMap.im2col(
            **shared,
            lower_corner=[int(n) for n in f["lower_corner"][:corners]],
            upper_corner=[int(n) for n in f["upper_corner"][:corners]],
            channels_per_pixel=int(f["channels_per_pixel"]),
            pixels_per_column=int(f["pixels_per_column"]),
        )


def read(path: Path) -> tuple[NDArray[Any], Bytes]:
    """The ``cases`` and ``blob`` of a file.

    Raises
    ------
    VectorError
        If it is no such file.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            cases = file["cases"]
            blob = file["blob"] if "blob" in file else np.zeros(0, np.uint8)
    # TypeError: NumPy's answer to a lone array.
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise VectorError(f"{path}: not a file of vectors: {error}") from error
    return cases, blob


def read_cases(path: Path, kinds: Sequence[str] = (), limit: int | None = None) -> list[Case]:
    """The cases of a file of transfers or tensor maps.

    Parameters
    ----------
    path : Path
        An ``.npz``.
    kinds : sequence of str
        Which to keep; all if empty.
    limit : int, optional
        Keep so many of those at most.

    Raises
    ------
    VectorError
        If it is no such file, lacks one of ``kinds``, or nothing is left.
    """
    rows, blob = read(path)
    missing = REQUIRED - set(rows.dtype.names or ())
    if missing:
        raise VectorError(f"{path}: cases without {', '.join(sorted(missing))}")
    for name in SLICES:
        # Not the sum, which may wrap.
        start, length = rows[name].T
        beyond = np.flatnonzero(
            (start > blob.size) | (length > blob.size - np.minimum(start, blob.size))
        )
        if beyond.size:
            raise VectorError(f"{path}: {name} of case {beyond[0]} is not in the blob")
    present = sorted(set(rows["kind"].tolist()))
    unknown = [kind for kind in kinds if kind not in present]
    if unknown:
        raise VectorError(f"{path}: no kind {', '.join(unknown)}: it has {', '.join(present)}")
    cases = [
        Case(index, row, blob)
        for index, row in enumerate(rows)
        if not kinds or row["kind"] in kinds
    ][:limit]
    if not cases:
        raise VectorError(f"{path}: no case selected")
    return cases


def _locate(case: Case, address: int) -> str:
    """Which element of the tensor belongs at a byte of shared memory."""
    d = Descriptor.from_bytes(case.descriptor)
    if case.mode != "tile" or d.data_type is None:
        return ""
    geometry = Geometry.of(d)
    elements = spread(d, geometry, case.smem_address, case.coords)
    plain = int(swizzle(np.array([address]), d.swizzle.mask)[0])
    found = np.flatnonzero((elements.smem <= plain) & (plain < elements.smem + geometry.unit))
    if not found.size:
        return ", outside the box"
    step, position = int(found[0]), []
    for i, steps in enumerate(geometry.steps):
        position.append(case.coords[i] + step % steps * geometry.strides[i])
        step //= steps
    where = "inside" if elements.inside[found[0]] else "outside"
    return f", element {tuple(position)}, {where} the tensor"


def check(case: Case, outcome: Outcome) -> str | None:
    """Compare; return None, or what is wrong: the first byte that differs and its element."""
    if outcome.note:
        return f"{case}: {outcome.note}"
    if case.refused != (outcome.refused is not None):
        answer = f"refused: {outcome.refused.name}" if outcome.refused is not None else "accepted"
        return f"{case}: silicon {'refused' if case.refused else 'accepted'}, got {answer}"
    if outcome.refused is not None:
        if outcome.refused not in ILLEGAL_INSTRUCTION:
            return f"{case}: silicon calls it illegal, got refused: {outcome.refused.name}"
        memory = outcome.memory
        if memory is not None and (memory != case.smem()[: memory.size]).any():
            return f"{case}: refused, but memory was written"
        return None
    if outcome.bytes != case.bytes:
        return f"{case}: complete_tx of {outcome.bytes} bytes, expected {case.bytes}"
    size = 0 if outcome.memory is None else outcome.memory.size
    if outcome.memory is None or size < case.expect.size:
        return f"{case}: {size} bytes of memory, expected {case.expect.size}"
    got = outcome.memory[: case.expect.size]
    differ = np.flatnonzero(got != case.expect)
    if not differ.size and (outcome.memory[case.expect.size :] != UNTOUCHED).any():
        address = case.expect.size + int(
            np.flatnonzero(outcome.memory[case.expect.size :] != UNTOUCHED)[0]
        )
        return f"{case}: shared byte {address:#x} written, none expected there"
    if not differ.size:
        return None
    address = int(differ[0])
    return (
        f"{case}: {differ.size} bytes differ, first shared byte {address:#x}"
        f"{_locate(case, address)}: expected {case.expect[address]:#04x}, got {got[address]:#04x}"
    )


def is_tiled_load(case: Case) -> bool:
    """What the unit does so far."""
    return case.op == "load" and case.mode == "tile" and not case.is_multicast


def is_interleaved(case: Case) -> bool:
    """The map interleaves channels."""
    return int(case.fields["interleave"]) != Interleave.NONE
