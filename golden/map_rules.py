"""Rules that the unit checks for every tensor map, whatever wrote its bytes.

``golden.tensor_map`` has the further rules of the driver's encoder.
"""

from golden.arch import Arch, Feature
from golden.descriptor import Descriptor
from golden.enums import MAX_RANK, DataType, Interleave, MapMode, Named, Swizzle
from golden.errors import ErrorCode, TmaError, require
from golden.fields import require_arch

_WIDE_SWIZZLES = {
    *(Swizzle.NONE, Swizzle.SWIZZLE_128B, Swizzle.SWIZZLE_128B_ATOM_32B),
    Swizzle.SWIZZLE_128B_ATOM_64B,
}


def row_bytes(data_type: DataType, elements: int) -> int:
    """Return the bytes of shared memory that a row of ``elements`` occupies."""
    return elements * data_type.smem_bits // 8


def check_map(m: Descriptor, arch: Arch, store: bool | None = None) -> None:
    """Check the fields of a tensor map.

    Parameters
    ----------
    m : Descriptor
        Words of the map.
    arch : Arch
        Architecture whose features the map may use.
    store : bool, optional
        Direction of the request; None: the map must be legal for at least one of the two.

    Raises
    ------
    TmaError
        The first broken rule, with a code from 32 on.
    """
    require_arch(arch)
    kind, swizzle, interleave = _check_type(m, arch), m.swizzle, m.interleave
    if interleave is None:
        raise TmaError(ErrorCode.INTERLEAVE, "interleave", 3, "must be from 0 to 2")
    swizzle = _check_swizzle(m, arch)
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
    if m.wide:
        require(im2col, ErrorCode.VERSION, "wide", 1, "needs im2col")
        feature = Feature.IM2COL_W_CTA
        require(arch.has(feature), ErrorCode.VERSION, "wide", 1, arch.lacks(feature))
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
        _check_sub_byte(m, kind, swizzle, interleave, arch, store)


def _check_type(m: Descriptor, arch: Arch) -> DataType:
    """Return the data type, if the architecture has it."""
    kind = m.data_type
    if kind is None:
        has_sub_byte = arch.has(Feature.SUB_BYTE)
        last = DataType.PACKED_16U6_ALIGN16B if has_sub_byte else DataType.TFLOAT32_FTZ
        limit, shown = f"must be from 0 to {int(last)} on {arch.name}", "code not assigned"
        raise TmaError(ErrorCode.DATA_TYPE, "data_type", 0, limit, shown=shown)
    if kind.is_sub_byte and not arch.has(Feature.SUB_BYTE):
        limit = arch.lacks(Feature.SUB_BYTE)
        raise TmaError(ErrorCode.DATA_TYPE, "data_type", kind, limit, shown=kind.name)
    return kind


def _check_swizzle(m: Descriptor, arch: Arch) -> Swizzle:
    """Return the swizzle, if the architecture has it."""
    swizzle = m.swizzle
    if swizzle is None:
        has_atoms = arch.has(Feature.SWIZZLE_ATOMS) or arch.has(Feature.SWIZZLE_96B)
        limit = f"must be from 0 to {7 if has_atoms else 3} on {arch.name}"
        raise TmaError(ErrorCode.SWIZZLE, "swizzle", 0, limit, shown="code not assigned")
    feature = swizzle_feature(swizzle)
    if feature and not arch.has(feature):
        limit = arch.lacks(feature)
        raise TmaError(ErrorCode.SWIZZLE, "swizzle", swizzle, limit, shown=swizzle.name)
    return swizzle


def swizzle_feature(swizzle: Swizzle) -> Feature | None:
    """Return the feature that a swizzle needs; None for those of Hopper."""
    if swizzle <= Swizzle.SWIZZLE_128B:
        return None
    is_96b = swizzle is Swizzle.SWIZZLE_96B
    return Feature.SWIZZLE_96B if is_96b else Feature.SWIZZLE_ATOMS


def cluster_features(kind: DataType, swizzle: Swizzle) -> list[tuple[Feature, str, Named]]:
    """Return the features that a load to ``.shared::cluster`` needs, and the fields that do."""
    needed: list[tuple[Feature, str, Named]] = []
    if kind.is_sub_byte:
        needed.append((Feature.SUB_BYTE_CLUSTER, "data_type", kind))
    if swizzle_feature(swizzle) is Feature.SWIZZLE_ATOMS:
        needed.append((Feature.SWIZZLE_ATOMS_CLUSTER, "swizzle", swizzle))
    return needed


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
    m: Descriptor,
    kind: DataType,
    swizzle: Swizzle,
    interleave: Interleave,
    arch: Arch,
    store: bool | None,
) -> None:
    """Check the limits of sub-byte types (PTX ISA, cuda.h; interleave of 4-bit types: choice).

    A store of 6-bit elements with ``B6P2X16_STORE`` may have rows of 64: 64 bytes of shared
    memory and 48 of global memory.
    """

    def require_type(holds: bool, parameter: str, value: int, limit: str, dim: int = 0) -> None:
        limit = f"must be {limit} with {kind.name}"
        require(holds, ErrorCode.SUB_BYTE, parameter, value, limit, dim=dim)

    require_type(interleave is Interleave.NONE, "interleave", interleave, "NONE")
    extent = m.global_dim[0]
    if kind is DataType.PACKED_16U4_ALIGN8B:
        require_type(extent % 2 == 0, "global_dim[0]", extent, "a multiple of 2")
        return
    name, inner = _inner(m)
    six_bits = kind is DataType.PACKED_16U6_ALIGN16B
    unit, align = 128, 32
    if six_bits and store is not False:
        feature = Feature.B6P2X16_STORE
        if arch.has(feature):
            unit, align = 64, 16
        else:
            is_whole = store is None or inner != 64
            require(is_whole, ErrorCode.SUB_BYTE, name, inner, arch.lacks(feature))
    require_type(inner in (unit, 128), name, inner, "64 or 128" if unit == 64 else "128")
    require_type(extent % unit == 0, "global_dim[0]", extent, f"a multiple of {unit}")
    limit, address = f"a multiple of {align}", m.global_address
    require_type(address % align == 0, "global_address", address, limit)
    for i, stride in enumerate(m.global_strides[: m.rank - 1]):
        require_type(stride % align == 0, f"global_strides[{i}]", stride, limit, i + 1)
    allowed = set(_WIDE_SWIZZLES)
    if not six_bits:
        allowed.add(Swizzle.SWIZZLE_128B_ATOM_32B_FLIP_8B)
    elif unit == 64:
        allowed.add(Swizzle.SWIZZLE_64B)
    require_type(swizzle in allowed, "swizzle", swizzle, "NONE, 128B or one of its atom variants")
