"""Rules that the unit checks for every tensor map, whatever wrote its bytes.

``golden.tensor_map`` has the further rules of the driver's encoder.
"""

from golden.descriptor import Descriptor
from golden.enums import MAX_RANK, Arch, DataType, Interleave, MapMode, Swizzle
from golden.errors import ErrorCode, TmaError, require
from golden.fields import require_arch

_WIDE_SWIZZLES = {
    *(Swizzle.NONE, Swizzle.SWIZZLE_128B, Swizzle.SWIZZLE_128B_ATOM_32B),
    Swizzle.SWIZZLE_128B_ATOM_64B,
}


def row_bytes(data_type: DataType, elements: int) -> int:
    """Return the bytes of shared memory that a row of ``elements`` occupies."""
    return elements * data_type.smem_bits // 8


def check_map(m: Descriptor, arch: Arch) -> None:
    """Check the fields of a tensor map.

    Parameters
    ----------
    m : Descriptor
        Words of the map.
    arch : Arch
        Architecture whose features the map may use.

    Raises
    ------
    TmaError
        The first broken rule, with a code from 32 on.
    """
    require_arch(arch)
    kind, swizzle, interleave = m.data_type, m.swizzle, m.interleave
    hopper = arch is Arch.SM_90A
    if kind is None or (kind.is_sub_byte and hopper):
        shown = "code not assigned" if kind is None else kind.name
        last = DataType.TFLOAT32_FTZ if hopper else DataType.PACKED_16U6_ALIGN16B
        limit = f"must be from 0 to {int(last)} on {arch.name}"
        raise TmaError(ErrorCode.DATA_TYPE, "data_type", int(kind or 0), limit, shown=shown)
    if interleave is None:
        raise TmaError(ErrorCode.INTERLEAVE, "interleave", 3, "must be from 0 to 2")
    if swizzle is None or (swizzle > Swizzle.SWIZZLE_128B and hopper):
        shown = "code not assigned" if swizzle is None else swizzle.name
        limit = f"must be from 0 to {3 if hopper else 7} on {arch.name}"
        raise TmaError(ErrorCode.SWIZZLE, "swizzle", int(swizzle or 0), limit, shown=shown)
    im2col = m.mode is MapMode.IM2COL
    min_rank = 3 if interleave or im2col else 1
    limit = f"must be from {min_rank} to {MAX_RANK}"
    if min_rank == 3:
        limit += " with im2col" if im2col else " with interleave"
    require(min_rank <= m.rank <= MAX_RANK, ErrorCode.RANK, "rank", m.rank, limit)
    if m.oob_fill:
        limit = f"needs a float type, not {kind.name}"
        name = m.oob_fill.name
        require(kind.is_float, ErrorCode.OOB_FILL, "oob_fill", m.oob_fill, limit, shown=name)
    if m.wide and (hopper or not im2col):
        limit = "needs im2col and SM_100A"
        raise TmaError(ErrorCode.VERSION, "wide", 1, limit)
    align = interleave.align
    limit = f"must be a multiple of {align}"
    require(
        m.global_address % align == 0,
        ErrorCode.GLOBAL_ADDRESS,
        "global_address",
        m.global_address,
        limit,
        shown=f"{m.global_address:#x}",
    )
    for i, stride in enumerate(m.global_strides[: m.rank - 1]):
        name = f"global_strides[{i}]"
        require(stride % align == 0, ErrorCode.GLOBAL_STRIDES, name, stride, limit, dim=i + 1)
    if swizzle is Swizzle.SWIZZLE_96B:
        limit = "must be NONE with SWIZZLE_96B"
        none = interleave is Interleave.NONE
        require(none, ErrorCode.SWIZZLE, "interleave", interleave, limit, shown=interleave.name)
    _check_inner(m, kind, swizzle, interleave)
    if kind.is_sub_byte:
        _check_sub_byte(m, kind, swizzle, interleave)


def _inner(m: Descriptor) -> tuple[str, int]:
    """Return name and value of the parameter that sets the elements of a row."""
    if m.mode is MapMode.IM2COL:
        return "channels_per_pixel", m.channels_per_pixel
    return "box_dim[0]", m.box_dim[0]


def _check_inner(m: Descriptor, kind: DataType, swizzle: Swizzle, interleave: Interleave) -> None:
    """Check the length of a row."""
    name, extent = _inner(m)
    inner = row_bytes(kind, extent)
    factor = "/2" if kind.smem_bits == 4 else f"*{kind.smem_bits // 8}"
    shown = f"{inner} bytes"
    require(
        extent * kind.smem_bits % 128 == 0,
        ErrorCode.INNER_ALIGN,
        name + factor,
        inner,
        "must be a multiple of 16",
        shown=shown,
    )
    span = swizzle.span
    if span and not interleave:
        limit = f"must be at most {span} with {swizzle.name}"
        require(inner <= span, ErrorCode.INNER_SPAN, name + factor, inner, limit, shown=shown)


def _check_sub_byte(
    m: Descriptor, kind: DataType, swizzle: Swizzle, interleave: Interleave
) -> None:
    """Check the limits of sub-byte types (PTX ISA, cuda.h; interleave of 4-bit types: choice)."""

    def require_type(holds: bool, parameter: str, value: int, limit: str, dim: int = 0) -> None:
        limit = f"must be {limit} with {kind.name}"
        require(holds, ErrorCode.SUB_BYTE, parameter, value, limit, dim=dim)

    require_type(interleave is Interleave.NONE, "interleave", interleave, "NONE")
    extent = m.global_dim[0]
    if kind is DataType.PACKED_16U4_ALIGN8B:
        require_type(extent % 2 == 0, "global_dim[0]", extent, "a multiple of 2")
        return
    name, inner = _inner(m)
    require_type(inner == 128, name, inner, "128")
    require_type(extent % 128 == 0, "global_dim[0]", extent, "a multiple of 128")
    require_type(m.global_address % 32 == 0, "global_address", m.global_address, "a multiple of 32")
    for i, stride in enumerate(m.global_strides[: m.rank - 1]):
        require_type(stride % 32 == 0, f"global_strides[{i}]", stride, "a multiple of 32", i + 1)
    allowed = set(_WIDE_SWIZZLES)
    if kind is DataType.PACKED_16U4_ALIGN16B:
        allowed.add(Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B)
    require_type(swizzle in allowed, "swizzle", swizzle, "NONE, 128B or one of its atom variants")
