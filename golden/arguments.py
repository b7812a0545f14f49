"""Tensor maps from named arguments, as the functions ``cuTensorMapEncode...`` have them."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from golden.arch import Arch
from golden.enums import MAX_RANK
from golden.errors import ErrorCode
from golden.fields import integer
from golden.tensor_map import TensorMap

SHARED = {
    "tensorDataType": "data_type",
    "globalAddress": "global_address",
    "globalDim": "global_dim",
    "globalStrides": "global_strides",
    "elementStrides": "element_strides",
    "interleave": "interleave",
    "swizzle": "swizzle",
    "l2Promotion": "l2_promotion",
    "oobFill": "oob_fill",
}
TILED = {"boxDim": "box_dim"}
IM2COL = {
    "pixelBoxLowerCorner": "lower_corner",
    "pixelBoxUpperCorner": "upper_corner",
    "channelsPerPixel": "channels_per_pixel",
    "pixelsPerColumn": "pixels_per_column",
}
WIDE = {
    "pixelBoxLowerCornerWidth": "lower_corner",
    "pixelBoxUpperCornerWidth": "upper_corner",
}
"""Arguments that only ``cuTensorMapEncodeIm2colWide`` has, but for ``mode``: one number each."""

WIDE_MODES = ("W", "W128")
"""Members of ``CUtensorMapIm2ColWideMode``. The map is the same for both (choice)."""

_RANKS = ("tensorRank", "rank")
_OPTIONAL: dict[str, Any] = {"global_address": 0, "global_strides": ()}
_SHORTER = {"global_strides": 1, "lower_corner": 2, "upper_corner": 2}
"""Entries that a sequence has less than the rank."""

_MEMBER = re.compile(
    r"CU_TENSOR_MAP_"
    r"(DATA_TYPE|INTERLEAVE|SWIZZLE|L2_PROMOTION|FLOAT_OOB_FILL|IM2COL_WIDE_MODE)_"
)


def map_of_arguments(arguments: Mapping[str, Any], arch: Arch = Arch.SM_90A) -> TensorMap:
    """Return the tensor map of the arguments of an encoder.

    Parameters
    ----------
    arguments : mapping
        Values by the names of CUDA's parameters, those of ``cuTensorMapEncodeTiled``, ``Im2col`` or
        ``Im2colWide``, or of ``TensorMap.tiled`` and ``im2col``.
        Enumerations may have CUDA's names or those of ``golden``; integers may be text such as
        ``"0x7f00"``. With ``tensorRank`` sequences may be longer than the rank, as arrays in C.
        ``tensorMap`` is ignored; a missing address is 0.
    arch : Arch
        Architecture whose features the map may use.

    Raises
    ------
    TmaError
        If the encoder refuses the arguments.
    ValueError
        If a name is missing or unknown.

    Examples
    --------
    >>> arguments = {"tensorDataType": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "boxDim": [64, 8]}
    >>> arguments |= {"globalDim": [128, 16], "globalStrides": [256]}
    >>> map_of_arguments(arguments).box_dim
    (64, 8)
    """
    fields, rank = _named(arguments)
    im2col = sorted(set(fields) & set(IM2COL.values()))
    if im2col and "box_dim" in fields:
        raise ValueError(f"box_dim and {im2col[0]}: must not be given together")
    required = {"data_type", "global_dim", *(IM2COL.values() if im2col else TILED.values())}
    missing = sorted(required - set(fields))
    if missing:
        raise ValueError(f"no {', '.join(missing)}: the arguments of an encoder must have them")
    fields = {**_OPTIONAL, **{name: _value(value) for name, value in fields.items()}}
    shorter = _SHORTER if "wide" not in fields else {"global_strides": 1}
    if rank is not None:
        count = integer(ErrorCode.RANK, "rank", rank, 1, MAX_RANK)
        for name, value in fields.items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                fields[name] = value[: max(count - shorter.get(name, 0), 0)]
    if "wide" in fields:
        mode = fields.pop("wide_mode", 0)
        if mode not in (*range(len(WIDE_MODES)), *WIDE_MODES):
            raise ValueError(f"mode = {mode!r}: must be 0, 1, {' or '.join(WIDE_MODES)}")
    make = TensorMap.im2col if im2col else TensorMap.tiled
    return make(**fields, arch=arch)


def _named(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the arguments by the names of ``TensorMap``, and the rank; None if it is not given."""
    names = SHARED | TILED | IM2COL
    known = names | {name: name for name in (*names.values(), "wide", "oob_128k")}
    fields: dict[str, Any] = {}
    rank = None
    for name, value in arguments.items():
        if name in _RANKS:
            rank = _value(value)
        elif name in WIDE:
            fields |= {WIDE[name]: (value,), "wide": True}
        elif name == "mode" and not WIDE.keys().isdisjoint(arguments):
            fields["wide_mode"] = value
        elif name in known:
            if known[name] in fields:
                raise ValueError(f"{name}: must not be given twice")
            fields[known[name]] = value
        elif name not in ("tensorMap", "tensor_map"):
            near = difflib.get_close_matches(str(name), [*known, *WIDE, *_RANKS], 1, 0)
            raise ValueError(f"unknown argument {name!r}: the nearest is {near[0]}")
    return fields, rank


def _value(value: Any) -> Any:
    """Return a value without the prefix of CUDA's names, and integers that are text as ``int``."""
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    if not isinstance(value, str):
        return value
    try:
        return int(value, 0)
    except ValueError:
        return _MEMBER.sub("", value)
