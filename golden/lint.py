"""Lint of tensor maps: what the encoder or the unit refuses, what is slow, what may surprise.

The costs of short rows, and of rows that start off a line, are those of an H200 (silicon).
"""

import enum
import math
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from golden import walk
from golden.advice import advice
from golden.arch import Arch
from golden.arguments import map_of_arguments
from golden.banks import GROUPS, conflicts
from golden.descriptor import Descriptor
from golden.enums import LINE, PIECE, SMEM_BYTES, AccessMode, L2Promotion, MapMode, Swizzle
from golden.errors import ErrorCode, TmaError
from golden.fields import raw_bytes, require_arch
from golden.geometry import swizzled
from golden.map_rules import cluster_features
from golden.plan import Plan
from golden.request import AnyMap, Store
from golden.tensor_map import TensorMap

SECTOR = 32
"""Bytes that a memory behind the L2 cache reads at least."""

OOB_BYTES = 128 * 1024
"""Size of a tensor from which on the encoder of later architectures sets ``oob_128k``."""

_FIRST_UNREAD = 16
"""First word that the unit does not read."""


class Severity(enum.Enum):
    """Severity of a finding: only errors make a map unusable."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    def is_at_least(self, other: "Severity") -> bool:
        """Return whether the severity is the other one, or worse."""
        order = list(Severity)
        return order.index(self) <= order.index(other)


class LintCode(enum.Enum):
    """Codes of warnings and notes about a legal map, with what they stand for."""

    ROW_START = "Rows start off a 32-byte sector, or touch more 128-byte lines than they need."
    SHORT_ROW = "Rows have less than a 32-byte sector, or less than a 128-byte line."
    BANK_CONFLICTS = "Threads that read a column of the box conflict in the banks."
    UNUSED_SPAN = "Rows are shorter than the span of the swizzle: the rest of it is not written."
    L2_PROMOTION = "The promotion fetches bytes that are not in the tensor, or there is none."
    ROWS_OVERLAP = "Rows of the tensor overlap: the order of stores to them is not defined."
    STRIDE_IGNORED = "The element stride of dimension 0 has an effect with interleave only."
    BOX_AT_EDGE = "A box at the end of a dimension reaches past it: elements are filled or dropped."
    LOADS_ONLY = "Stores and reductions with this map are refused."
    OWN_CTA_ONLY = "The architecture refuses loads with this map to .shared::cluster."
    OOB_128K = "A tensor of less than 128 KiB has the bit of larger ones: reads may fault."
    UNREAD_BITS = "Bits that the unit does not read differ from those that the encoder writes."


@dataclass(frozen=True)
class Finding:
    """A finding about a tensor map.

    Parameters
    ----------
    severity : Severity
    code : ErrorCode or LintCode
        The broken rule for an error, and for the warnings of `golden.advice`; otherwise a
        `LintCode`.
    parameter : str
        Field of the map that causes the finding, such as ``global_strides[0]``.
    message : str
        A sentence with the values.
    """

    severity: Severity
    code: ErrorCode | LintCode
    parameter: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.message} [{self.code.name}]"


def lint(tensor_map: AnyMap | Mapping[str, Any], arch: Arch = Arch.SM_90A) -> list[Finding]:
    """Return the findings about a tensor map: errors first, then warnings, then notes.

    Parameters
    ----------
    tensor_map : TensorMap or Descriptor or bytes or mapping
        A map, legal or not; or the arguments of an encoder, by name, as in
        `golden.arguments.map_of_arguments`.
    arch : Arch
        Architecture whose features the map may use.

    Returns
    -------
    list of Finding
        Empty if there is nothing to say. A map without errors is one that the encoder writes, and
        whose loads the unit accepts.

    Raises
    ------
    TmaError
        MAP_BYTES, if ``tensor_map`` is no map, or bytes of another number than 64 to 128.
    ValueError
        If a name of the arguments is missing or unknown.

    Examples
    --------
    >>> from golden import TensorMap
    >>> for finding in lint(TensorMap.tiled("bf16", 0, (1024, 512), (2048,), (64, 128))):
    ...     print(finding)
    warning: 8 threads that read 16 bytes of 8 rows take 8 wavefronts with swizzle NONE, 1 with \
SWIZZLE_128B [BANK_CONFLICTS]
    note: l2_promotion is NONE: a miss in L2 fetches single sectors of 32 bytes [L2_PROMOTION]
    """
    require_arch(arch)
    if isinstance(tensor_map, Mapping):
        try:
            tensor_map = map_of_arguments(tensor_map, arch)
        except TmaError as error:
            return [_refusal(error)]
    data = _bytes_of(tensor_map)
    d = Descriptor.from_bytes(data)
    findings: list[Finding] = []
    try:
        decoded = TensorMap.decode(data, arch=arch)
    except TmaError as error:
        findings.append(_refusal(error))
    else:
        findings += _unread_bits(data, decoded, arch)
    try:
        plan = Plan(d, load_mode(d), arch=arch)
    except TmaError as error:
        if not findings or findings[0].severity is not Severity.ERROR:
            findings.append(_refusal(error))
    else:
        findings += _of_plan(plan)
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def assert_clean(
    tensor_map: AnyMap | Mapping[str, Any],
    arch: Arch = Arch.SM_90A,
    *,
    least: Severity = Severity.WARNING,
    allowed: Collection[ErrorCode | LintCode] = (),
) -> None:
    """Fail if there are findings about a tensor map: for tests of a program's own maps.

    Parameters
    ----------
    tensor_map, arch
        As in `lint`.
    least : Severity
        Least severity that fails.
    allowed : collection of ErrorCode or LintCode
        Codes that do not fail.

    Raises
    ------
    AssertionError
        With the findings, one in each line.

    Examples
    --------
    >>> from golden import TensorMap
    >>> slow = TensorMap.tiled("bf16", 0, (1024, 512), (2048,), (64, 128), l2_promotion="256B")
    >>> assert_clean(slow, allowed=[LintCode.BANK_CONFLICTS])
    >>> assert_clean(slow)
    Traceback (most recent call last):
        ...
    AssertionError: warning: 8 threads that read 16 bytes of 8 rows take 8 wavefronts with swizzle \
NONE, 1 with SWIZZLE_128B [BANK_CONFLICTS]
    """
    failing = [
        finding
        for finding in lint(tensor_map, arch)
        if finding.severity.is_at_least(least) and finding.code not in allowed
    ]
    if failing:
        raise AssertionError("\n".join(map(str, failing)))


def load_mode(d: Descriptor) -> AccessMode | None:
    """Return the mode of a load with this map; None for the map's own mode."""
    return AccessMode.IM2COL_W if d.wide else None


def _bytes_of(tensor_map: AnyMap) -> bytes:
    """Return the bytes of a map: all that are known."""
    if isinstance(tensor_map, TensorMap):
        return tensor_map.encode()
    if isinstance(tensor_map, Descriptor):
        return struct.pack(f"<{len(tensor_map.words)}I", *tensor_map.words)
    return raw_bytes("tensor_map", tensor_map)


def _refusal(error: TmaError) -> Finding:
    """Return the finding of a refusal by the encoder or the unit."""
    return Finding(Severity.ERROR, error.detail, error.parameter, error.text)


def _warning(code: LintCode, parameter: str, message: str) -> Finding:
    return Finding(Severity.WARNING, code, parameter, message)


def _note(code: LintCode, parameter: str, message: str) -> Finding:
    return Finding(Severity.NOTE, code, parameter, message)


def _unread_bits(data: bytes, tensor_map: TensorMap, arch: Arch) -> Iterator[Finding]:
    """Yield a finding for each word that differs from the encoder's, and for a bit of others."""
    if tensor_map.oob_128k and arch is Arch.SM_90A:
        text = "w2[21] is set: it says that the tensor has 128 KiB or more, and Hopper ignores it"
        yield _note(LintCode.UNREAD_BITS, "oob_128k", text)
    expected = struct.unpack("<32I", tensor_map.encode())
    count = min(len(data) // 4, len(expected))  # a captured map may end early
    for i, (word, encoded) in enumerate(zip(struct.unpack_from(f"<{count}I", data), expected)):  # noqa: B905
        if word != encoded:
            kind = "metadata" if i >= _FIRST_UNREAD else "bits without a meaning"
            text = f"the encoder writes {encoded:#x} ({kind}, not read by the unit)"
            yield _note(LintCode.UNREAD_BITS, f"w{i}", f"w{i} = {word:#x}: {text}")


def _of_plan(plan: Plan) -> Iterator[Finding]:
    """Yield the findings about a map whose loads the unit accepts."""
    d = plan.descriptor
    if plan.footprint > SMEM_BYTES:
        text = f"{plan.footprint} bytes are more than a CTA's shared memory, {SMEM_BYTES}"
        yield Finding(Severity.ERROR, ErrorCode.SMEM_RANGE, _box_name(d), text)
    yield from _rows_in_memory(plan)
    yield from _rows_in_shared_memory(plan)
    yield from _promotion(plan)
    yield from _surprises(plan)
    yield from _out_of_bounds(plan)
    yield from _clusters(plan)
    if d.mode is MapMode.TILE:
        yield from _edges(d)
    elif not d.wide and (min(d.lower_corner) < 0 or max(d.upper_corner) > 0):
        text = "the corners reach outside the tensor: stores and reductions are refused"
        yield _note(LintCode.LOADS_ONLY, "lower_corner", text)


def _box_name(d: Descriptor) -> str:
    """Return the name of the parameter that sets the elements of a row."""
    return "channels_per_pixel" if d.mode is MapMode.IM2COL else "box_dim[0]"


def _row_bytes(plan: Plan) -> int:
    """Return the bytes of a row in global memory."""
    return plan.row_bytes // PIECE * plan.piece_bytes


def _rows_in_memory(plan: Plan) -> Iterator[Finding]:
    """Yield findings about the places of rows in global memory, if boxes tile the tensor from 0."""
    d, row = plan.descriptor, _row_bytes(plan)
    if plan.interleaved:
        return  # slices follow each other, whatever their size
    if row < SECTOR:
        text = f"rows of {row} bytes are less than a sector of 32 bytes, the least that L2 fetches"
        yield _warning(LintCode.SHORT_ROW, _box_name(d), text)
    elif row < LINE:
        text = f"rows of {row} bytes are less than a line of 128 bytes, and take as long on an H200"
        yield _warning(LintCode.SHORT_ROW, _box_name(d), text)
    # Bytes from the start of a row to that of another, by the parameter that sets them.
    steps = {
        f"global_strides[{i}]": stride
        for i, stride in enumerate(d.global_strides[: d.rank - 1])
        if d.global_dim[i + 1] > 1
    }
    if d.global_dim[0] > plan.row_elements:
        steps[_box_name(d)] = row  # boxes lie side by side
    spacing = math.gcd(LINE, *steps.values())
    effect = _slow_starts(range(d.global_address % spacing, LINE, spacing), row)
    if not effect:
        return
    causes = {
        name: f"{name} = {step} bytes"
        for name, step in steps.items()
        if _slow_starts(range(0, LINE, math.gcd(LINE, step)), row)
    }
    if _slow_starts(range(d.global_address % LINE, LINE, LINE), row):
        causes["global_address"] = f"global_address = {d.global_address:#x}"
    # If no parameter does it alone, the address does it together with the others.
    name = next(iter(causes), "global_address")
    cause = ", ".join(causes.values()) or f"global_address = {d.global_address:#x}"
    text = f"{cause}: rows of {row} bytes {effect}: 2 to 4 clocks each on an H200"
    yield _warning(LintCode.ROW_START, name, text)


def _slow_starts(starts: range, row: int) -> str:
    """Return what rows do that start at these bytes of a line and take longer; else nothing."""
    lines, fewest = max((start + row - 1) // LINE + 1 for start in starts), -(-row // LINE)
    if lines > fewest:
        return f"touch {lines} lines of 128 bytes where {fewest} would do"
    off_sector = any(start % SECTOR for start in starts)
    return "start off a sector of 32 bytes" if off_sector else ""


def column_wavefronts(swizzle: Swizzle, pitch: int, rows: int, row_bytes: int) -> int:
    """Return the most wavefronts of 8 threads that read 16 bytes each down a column of the box."""
    row = np.arange(min(rows, GROUPS), dtype=np.int64)[:, None]
    column = np.arange(row_bytes // PIECE, dtype=np.int64)
    return int(conflicts(swizzled(row * pitch + column * PIECE, swizzle)).max())


def _rows_in_shared_memory(plan: Plan) -> Iterator[Finding]:
    """Yield findings about the places of rows in shared memory."""
    rows, size = plan.rows(), plan.row_bytes
    gap = plan.pitch - size
    if gap and rows > 1:
        text = f"rows of {size} bytes lie {plan.pitch} bytes apart with {plan.swizzle.name}"
        text += f": {gap} of each {plan.pitch} bytes of shared memory are not written"
        yield _warning(LintCode.UNUSED_SPAN, "swizzle", text)
    taken = column_wavefronts(plan.swizzle, plan.pitch, rows, size)
    if taken == 1:
        return
    best, advised = taken, ""
    for swizzle in Swizzle if not plan.interleaved else ():
        if swizzle <= Swizzle.SWIZZLE_128B and swizzle.span and size <= swizzle.span:
            wavefronts = column_wavefronts(swizzle, swizzle.span, rows, size)
            if wavefronts < best:
                best, advised = wavefronts, f", {wavefronts} with {swizzle.name}"
    if not advised and size > LINE:
        advised = f"; rows of at most {LINE} bytes can have SWIZZLE_128B"
    text = f"8 threads that read 16 bytes of {min(rows, GROUPS)} rows take {taken} wavefronts"
    text += f" with swizzle {plan.swizzle.name}{advised}"
    yield _warning(LintCode.BANK_CONFLICTS, "swizzle", text)


def _promotion(plan: Plan) -> Iterator[Finding]:
    """Yield findings about the L2 promotion."""
    d, row = plan.descriptor, _row_bytes(plan)
    if plan.interleaved:
        return
    name, promotion = "l2_promotion", d.l2_promotion
    tensor_row = -(-d.global_dim[0] * plan.data_type.bits // 8)
    if promotion is L2Promotion.NONE:
        if row > SECTOR:
            text = "l2_promotion is NONE: a miss in L2 fetches single sectors of 32 bytes"
            yield _note(LintCode.L2_PROMOTION, name, text)
        return
    fetched = 32 << promotion
    if d.rank > 1 and d.global_dim[1] > 1 and tensor_row < fetched <= d.global_strides[0]:
        text = f"l2_promotion = {promotion.name}: a miss in L2 fetches {fetched} bytes, but a row"
        text += f" of the tensor has {tensor_row} bytes"
        yield _warning(LintCode.L2_PROMOTION, name, text)


def _surprises(plan: Plan) -> Iterator[Finding]:
    """Yield findings about effects that are legal, but probably not meant."""
    d = plan.descriptor
    if plan.interleaved:
        return
    extent, row = d.global_dim[0], d.global_dim[0] * plan.data_type.bits // 8
    last = (extent - 1) // plan.row_elements * plan.row_elements
    for warning in advice(Store(d, (last,) + (0,) * (d.rank - 1)), plan):
        yield Finding(Severity.WARNING, warning.code, "global_dim[0]", warning.text)
    if d.rank > 1 and d.global_dim[1] > 1 and d.global_strides[0] < row:
        stride = d.global_strides[0]
        text = f"global_strides[0] = {stride} is less than a row of {row} bytes: rows overlap"
        yield _warning(LintCode.ROWS_OVERLAP, "global_strides[0]", text)
    if d.element_strides[0] > 1:
        text = f"element_strides[0] = {d.element_strides[0]} has an effect with interleave only"
        yield _warning(LintCode.STRIDE_IGNORED, "element_strides[0]", text)


def _out_of_bounds(plan: Plan) -> Iterator[Finding]:
    """Yield a finding about addresses for elements outside a small tensor."""
    d = plan.descriptor
    size = sum((extent - 1) * step for extent, step in zip(d.global_dim, plan.steps, strict=False))
    size += plan.row_bytes if plan.interleaved else max(plan.data_type.bits // 8, 1)
    if d.oob_128k and size < OOB_BYTES:
        text = f"w2[21] is set, but the tensor has {size} bytes, less than 128 KiB: a unit later"
        text += " than Hopper may read up to 128 KiB from its base, and fault: clear the bit"
        yield _warning(LintCode.OOB_128K, "oob_128k", text)


def _clusters(plan: Plan) -> Iterator[Finding]:
    """Yield a finding about a map that the architecture has for the issuing CTA only."""
    for feature, name, value in cluster_features(plan.data_type, plan.swizzle):
        if not plan.arch.has(feature):
            text = f"{name} = {value.name}: {plan.arch.lacks(feature)}"
            yield _note(LintCode.OWN_CTA_ONLY, name, text)


def _edges(d: Descriptor) -> Iterator[Finding]:
    """Yield a finding for each dimension whose extent is not a multiple of the box."""
    counts, strides = walk.steps_of(d), walk.strides_of(d)
    for i in range(d.rank):
        box, extent = d.box_dim[i], d.global_dim[i]
        slices = d.interleave and i == d.rank - 2
        rest = extent % box
        beyond = (counts[i] - 1) * strides[i] + 1 - rest
        if not slices and rest and beyond > 0:
            box_text = (
                f"box_dim[{i}] = {box} is more than global_dim[{i}] = {extent}: a box at 0"
                if box > extent
                else f"global_dim[{i}] = {extent} is not a multiple of {box}: the last box"
            )
            end = f"{beyond} elements past the end"
            text = f"{box_text} reaches {end}: loads fill them, stores drop them"
            yield _note(LintCode.BOX_AT_EDGE, f"global_dim[{i}]", text)
