"""``tensormap.replace``: replace a field in the bytes of a tensor map, without checking the map.

The words are those of the silicon (``tests/silicon/tensormap_replace.npz``). If the result is
illegal, the unit refuses requests with it.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from golden.arch import Arch, Feature
from golden.descriptor import MAP_BYTES, WORDS
from golden.enums import MAX_RANK, DataType, Swizzle
from golden.errors import ErrorCode, TmaError, require
from golden.fields import any_integer, raw_bytes, require_arch

Words = list[int]

SWIZZLE_96B_CODE = 4
"""Code of the 96-byte swizzle in the instruction (PTX ISA, later than Hopper)."""

_B32, _B64 = (1 << 32) - 1, (1 << 64) - 1


def _put(words: Words, word: int, low: int, count: int, value: int) -> None:
    """Write ``count`` bits of ``value`` at bit ``low`` of a word."""
    mask = ((1 << count) - 1) << low
    words[word] = words[word] & ~mask | value << low & mask


def _global_address(words: Words, index: int, value: int) -> None:
    del index
    _put(words, 0, 0, 32, value & 0xFFFFFFFF)
    _put(words, 1, 0, 32, value >> 32)


def _box_dim(words: Words, index: int, value: int) -> None:
    if index == 0:
        _put(words, 13, 24, 8, value - 1)
    else:
        _put(words, 14, 8 * (index - 1), 8, value - 1)


def _global_stride(words: Words, index: int, value: int) -> None:
    _put(words, 3 + index, 0, 32, value >> 4 & 0xFFFFFFFF)
    _put(words, 7, 4 * index, 4, value >> 36)


def _elemtype(words: Words, index: int, value: int) -> None:
    """Write the format. A type that rounds to tf32 sets w2[16]; no type clears it (silicon)."""
    del index
    kind = next(item for item in DataType if item.replace_code == value)
    _put(words, 2, 7, 4, kind.format)
    if kind.rounds:
        _put(words, 2, 16, 1, 1)


def _swizzle_mode(words: Words, index: int, value: int) -> None:
    """Write the span, and clear w2[22] (silicon). 96B also has an atom (choice)."""
    del index
    span, atom = Swizzle.SWIZZLE_96B.fields
    _put(words, 2, 13, 2, span if value == SWIZZLE_96B_CODE else value)
    if value == SWIZZLE_96B_CODE:
        _put(words, 2, 19, 2, atom)
    _put(words, 2, 22, 1, 0)


def _bits(word: int, low: int, count: int) -> Callable[[Words, int, int], None]:
    """Return an edit that writes ``count`` bits at bit ``low`` of a word."""

    def edit(words: Words, index: int, value: int) -> None:
        del index
        _put(words, word, low, count, value)

    return edit


@dataclass(frozen=True)
class _Field:
    """A field of ``tensormap.replace``.

    Parameters
    ----------
    edit : callable
        Takes words, index and value, and changes the words. It masks a value that does not fit into
        its bits (silicon).
    most : int
        Largest value that the instruction can hold. For a register, it has all bits set.
    count : int or None
        Number of indices; None: the field has no index.
    later : int or None
        Largest value on architectures with ``feature``; None: ``most``.
    feature : Feature or None
        Feature that values above ``most`` need.
    """

    edit: Callable[[Words, int, int], None]
    most: int
    count: int | None = None
    later: int | None = None
    feature: Feature | None = None


_FIELDS = {
    "global_address": _Field(_global_address, _B64),
    "rank": _Field(_bits(2, 4, 3), _B32),
    "box_dim": _Field(_box_dim, _B32, MAX_RANK),
    # An extent of 2**32 is a register of 0.
    "global_dim": _Field(
        lambda words, i, value: _put(words, 8 + i, 0, 32, value - 1), _B32 + 1, MAX_RANK
    ),
    "global_stride": _Field(_global_stride, _B64, MAX_RANK - 1),
    "element_stride": _Field(
        lambda words, i, value: _put(words, 13, 3 * i, 3, value - 1), _B32, MAX_RANK
    ),
    "elemtype": _Field(_elemtype, 12, None, 15, Feature.SUB_BYTE),
    "interleave_layout": _Field(_bits(2, 11, 2), 2),
    "swizzle_mode": _Field(_swizzle_mode, 3, None, SWIZZLE_96B_CODE, Feature.SWIZZLE_96B),
    "swizzle_atomicity": _Field(_bits(2, 19, 2), -1, None, 3, Feature.SWIZZLE_ATOMS),
    "fill_mode": _Field(_bits(2, 15, 1), 1),
}


def tensormap_replace(
    data: bytes,
    field: str,
    value: int,
    index: int | None = None,
    *,
    arch: Arch = Arch.SM_90A,
) -> bytes:
    """Return a tensor map with one field replaced (``tensormap.replace.tile.<field>``).

    Parameters
    ----------
    data : bytes
        A tensor map of 128 bytes; it may be illegal, such as all zeros.
    field : str
        ``global_address``, ``rank``, ``box_dim``, ``global_dim``, ``global_stride``,
        ``element_stride``, ``elemtype``, ``interleave_layout``, ``swizzle_mode``,
        ``swizzle_atomicity`` or ``fill_mode``.
    value : int
        Operand of the instruction: ``rank`` is the rank minus 1, ``global_stride`` is in bytes
        (since CUDA 12.5), ``elemtype`` is ``DataType.replace_code``, extents are in elements, the
        other fields have the codes of the map. A value in a register that does not fit into the
        bits of its field is masked (silicon).
    index : int, optional
        Dimension, for fields that have one value per dimension; stride 0 belongs to dimension 1.
    arch : Arch
        Later ones than Hopper add types and atoms, some of them the 96-byte swizzle (PTX ISA).

    Returns
    -------
    bytes
        The 128 bytes of the new map. Metadata that the unit does not read stays unchanged.

    Raises
    ------
    TmaError
        REPLACE, if the instruction cannot hold field, index or value; MAP_BYTES, if ``data`` is not
        128 bytes.

    Examples
    --------
    >>> from golden import TensorMap
    >>> edited = tensormap_replace(TensorMap.tiled("u8", 0, (64,), (), (64,)).encode(), "rank", 1)
    >>> for field, value in ("global_dim", 9), ("box_dim", 2):
    ...     edited = tensormap_replace(edited, field, value, 1)
    >>> edited = tensormap_replace(edited, "global_stride", 64, 0)
    >>> TensorMap.decode(edited) == TensorMap.tiled("u8", 0, (64, 9), (64,), (64, 2))
    True
    """
    require_arch(arch)
    data = raw_bytes("data", data)
    limit = f"must be {MAP_BYTES}"
    require(len(data) == MAP_BYTES, ErrorCode.MAP_BYTES, "len(data)", len(data), limit)
    spec = _FIELDS.get(field) if isinstance(field, str) else None
    if spec is None:
        limit = f"must be one of {', '.join(_FIELDS)}"
        raise TmaError(ErrorCode.REPLACE, "field", 0, limit, shown=str(field) or "''")
    value = any_integer(ErrorCode.REPLACE, field, value)
    if index is not None:
        index = any_integer(ErrorCode.REPLACE, "index", index)
    if spec.count is None:
        limit = f"must be None for {field}"
        require(index is None, ErrorCode.REPLACE, "index", index or 0, limit)
    else:
        limit = f"must be from 0 to {spec.count - 1} for {field}"
        holds = index is not None and 0 <= index < spec.count
        shown = str(index)
        require(holds, ErrorCode.REPLACE, "index", index or 0, limit, shown=shown)
    most = spec.most
    if spec.feature is not None and spec.later is not None:
        if most < value <= spec.later or most < 0:
            limit = arch.lacks(spec.feature)
            require(arch.has(spec.feature), ErrorCode.REPLACE, field, value, limit)
        if arch.has(spec.feature):
            most = spec.later
    limit = f"must be from 0 to {most} on {arch.name}"
    holds = 0 <= value <= most
    require(holds, ErrorCode.REPLACE, field, value, limit, dim=index or 0)
    words = list(struct.unpack(f"<{WORDS}I", data))
    spec.edit(words, index or 0, value)
    return struct.pack(f"<{WORDS}I", *words)
