"""Rules that the unit checks for each request, in the order of ``ErrorCode``.

``golden.map_rules`` has the rules for tensor maps; ``golden.geometry`` has the rules for a map in
combination with the mode and direction of an instruction.
"""

from golden.arch import Arch, Feature
from golden.enums import PIECE, AccessMode, DataType, ReductionOp
from golden.errors import ErrorCode, TmaError, missing_feature, require
from golden.geometry import Geometry, Operands
from golden.reduction import Pairs
from golden.request import moved_bytes

SMEM_ALIGN = 128
BARRIER_BYTES = 8
OFFSET_LIMITS = {3: 65535, 4: 255, 5: 31}
"""Largest im2col offset for each rank: the width of its field in the instruction."""


def check_tensor(
    plan: Geometry,
    operands: Operands,
    smem_address: int | None,
    smem_bytes: int,
    mbarrier: int | None = None,
) -> None:
    """Check the operands of a tensor request.

    Parameters
    ----------
    plan : Geometry
        Map, mode and direction of the request.
    operands : Operands
        Start of the box.
    smem_address : int or None
        Byte offset in shared memory; None for a prefetch.
    smem_bytes : int
        Bytes of the CTA's shared-memory window.
    mbarrier : int, optional
        Byte offset of a load's mbarrier, which must be in the window.

    Raises
    ------
    TmaError
        The first broken rule, in the order of `ErrorCode`.
    """
    _check_counts(plan, operands)
    # The box of a prefetch must be legal for a load (choice).
    _check_smem(plan, smem_address or 0, smem_bytes, operands.w_halo)
    if mbarrier is not None:
        check_window("mbarrier", mbarrier, BARRIER_BYTES, smem_bytes)
    coords = operands.coords
    start, align, bits = coords[0], plan.coord_align, plan.data_type.bits
    if start % align:
        limit = f"must be a multiple of {align * bits // 8}"
        shown = f"{start} starts at byte {start * bits / 8:g}"
        if plan.is_b6p2x16 and start % 64 == 0:
            feature, code = Feature.B6P2X16_START, ErrorCode.COORD_ALIGN
            raise missing_feature(code, feature, plan.arch, "coords[0]", start, shown=shown)
        raise TmaError(ErrorCode.COORD_ALIGN, "coords[0]", start, limit, shown=shown)
    scatters = plan.mode is AccessMode.TILE_SCATTER4
    if plan.is_store and not (scatters and plan.arch.has(Feature.SCATTER4_NEGATIVE)):
        for i, start in enumerate(coords):
            if scatters and start < 0:
                feature, code = Feature.SCATTER4_NEGATIVE, ErrorCode.COORD_NEG
                raise missing_feature(code, feature, plan.arch, f"coords[{i}]", start, dim=i)
            limit = "must not be negative in a store or reduction"
            require(start >= 0, ErrorCode.COORD_NEG, f"coords[{i}]", start, limit, dim=i)
    if plan.mode is AccessMode.IM2COL:
        _check_im2col(plan, operands)
    elif plan.is_wide:
        _check_wide(plan, operands)


def _check_counts(plan: Geometry, operands: Operands) -> None:
    coords, offsets = operands.coords, operands.offsets
    rank = plan.descriptor.rank
    limit = f"must be {plan.coord_count} for {plan.mode.name} with a rank-{rank} map"
    require(len(coords) == plan.coord_count, ErrorCode.MAP_MODE, "len(coords)", len(coords), limit)
    if offsets:
        expected = rank - 2 if plan.mode is AccessMode.IM2COL and not plan.is_store else 0
        require(
            len(offsets) == expected,
            ErrorCode.MAP_MODE,
            "len(im2col_offsets)",
            len(offsets),
            f"must be {expected} for {plan.mode.name} with a rank-{rank} map",
        )
    for i, start in enumerate(coords):
        holds = -(1 << 31) <= start < 1 << 31
        limit = "must fit in 32 signed bits"
        require(holds, ErrorCode.COORD_RANGE, f"coords[{i}]", start, limit, dim=i)


def _check_smem(plan: Geometry, address: int, smem_bytes: int, w_halo: int) -> None:
    limit = f"must be a multiple of {SMEM_ALIGN}"
    aligned = address % SMEM_ALIGN == 0
    require(aligned, ErrorCode.SMEM_ALIGN, "smem_address", address, limit)
    check_window("smem_address", address, plan.extent(w_halo), smem_bytes)


def check_window(name: str, address: int, size: int, smem_bytes: int) -> None:
    """Refuse ``size`` bytes at ``address`` that are not all in the CTA's shared memory."""
    limit = f"must be from 0 to {smem_bytes - size}: {size} bytes in a window of {smem_bytes} bytes"
    holds = 0 <= address <= smem_bytes - size
    require(holds, ErrorCode.SMEM_RANGE, name, address, limit)


def check_mbarrier(mbarrier: int) -> None:
    """Refuse an mbarrier address that is not a multiple of 8."""
    limit = f"must be a multiple of {BARRIER_BYTES}"
    aligned = mbarrier % BARRIER_BYTES == 0
    require(aligned, ErrorCode.MBAR_ALIGN, "mbarrier", mbarrier, limit)


def check_pair(data_type: DataType, op: ReductionOp, pairs: Pairs) -> None:
    """Refuse a reduction operation that the type does not have."""
    if (data_type, op) not in pairs:
        allowed = [other.name for kind, other in sorted(pairs) if kind is data_type]
        limit = f"must be one of {', '.join(allowed)}"
        if not allowed:
            limit = f"{data_type.name} has no reductions"
        shown = f"{op.name} of {data_type.name}"
        raise TmaError(ErrorCode.RED_TYPE, "op", op, limit, shown=shown)


def _check_im2col(plan: Geometry, operands: Operands) -> None:
    d = plan.descriptor
    first = plan.bounded.start
    corners = list(zip(d.lower_corner, d.upper_corner, strict=True))
    for j, (lower, upper) in enumerate(corners):
        i = first + j
        start, last = operands.coords[i], d.global_dim[i] - 1 + upper
        limit = f"must be from {lower} to {last}, in the bounding box"
        holds = lower <= start <= last
        require(holds, ErrorCode.IM2COL_START, f"coords[{i}]", start, limit, dim=i)
    if plan.is_store:
        for j, (lower, upper) in enumerate(corners):
            for name, value, holds, limit in (
                ("lower_corner", lower, lower >= 0, "must not be negative"),
                ("upper_corner", upper, upper <= 0, "must not be positive"),
            ):
                require(
                    holds,
                    ErrorCode.IM2COL_CORNER,
                    f"{name}[{j}]",
                    value,
                    f"{limit} in a store or reduction",
                    dim=first + j,
                )
    most = OFFSET_LIMITS[d.rank]
    for j, offset in enumerate(operands.offsets):
        limit = f"must be from 0 to {most} with rank {d.rank}"
        name = f"im2col_offsets[{j}]"
        holds = 0 <= offset <= most
        require(holds, ErrorCode.IM2COL_OFFSET, name, offset, limit, dim=first + j)


def _check_wide(plan: Geometry, operands: Operands) -> None:
    d = plan.descriptor
    last = d.global_dim[1] + d.upper_corner[0] - 1
    start = operands.coords[1]
    limit = f"must be at most {last}, the end of the bounding box"
    require(start <= last, ErrorCode.IM2COL_START, "coords[1]", start, limit, dim=1)
    most_halo = 31 if plan.mode is AccessMode.IM2COL_W_128 else 511
    for name, value, most in (
        ("w_halo", operands.w_halo, 0 if plan.is_store else most_halo),
        ("w_offset", operands.w_offset, 0 if plan.is_store else 31),
    ):
        limit = f"must be from 0 to {most}"
        holds = 0 <= value <= most
        require(holds, ErrorCode.IM2COL_OFFSET, name, value, limit, dim=1)


def check_bulk(
    *,
    size: int,
    smem: dict[str, int],
    gmem_address: int = 0,
    mbarrier: int | None = None,
    smem_bytes: int,
    pair: tuple[DataType, ReductionOp] | None = None,
    pairs: Pairs = frozenset(),
) -> None:
    """Check the operands of a bulk request, except for CTA ranks and the mbarrier's alignment.

    Parameters
    ----------
    size, gmem_address : int
        Bytes, and byte address in global memory.
    smem : dict
        Byte offsets in shared memory, by the name of the request's parameter.
    mbarrier : int, optional
        Byte offset of the mbarrier.
    smem_bytes : int
        Bytes of the CTA's shared-memory window.
    pair : (DataType, ReductionOp), optional
        Type and operation of a reduction.
    pairs : set of (DataType, ReductionOp)
        Legal values of ``pair``.

    Raises
    ------
    TmaError
        The first broken rule, in the order of `ErrorCode`.
    """
    require(0 <= size < 1 << 32, ErrorCode.BULK_ALIGN, "size", size, "must fit in 32 bits")
    limit = f"must be a multiple of {PIECE}"
    for name, address in smem.items():
        require(address % PIECE == 0, ErrorCode.SMEM_ALIGN, name, address, limit)
    for name, address in smem.items():
        check_window(name, address, moved_bytes(size), smem_bytes)
    if mbarrier is not None:
        check_window("mbarrier", mbarrier, BARRIER_BYTES, smem_bytes)
    if pair is not None:
        check_pair(*pair, pairs)
    aligned = gmem_address % PIECE == 0
    shown = hex(gmem_address)
    require(aligned, ErrorCode.BULK_ALIGN, "gmem_address", gmem_address, limit, shown=shown)


def check_mask(cta_mask: int, ctas: int) -> None:
    """Refuse a multicast mask that names a CTA outside the cluster."""
    limit = f"must be from 0 to {(1 << ctas) - 1:#x}: the cluster has {ctas} CTAs"
    shown = hex(cta_mask)
    require(0 <= cta_mask < 1 << ctas, ErrorCode.MASK, "cta_mask", cta_mask, limit, shown=shown)


def check_cta(name: str, cta: int, ctas: int) -> None:
    """Refuse the rank of a CTA outside the cluster."""
    limit = f"must be from 0 to {ctas - 1}: the cluster has {ctas} CTAs"
    require(0 <= cta < ctas, ErrorCode.DST_CTA, name, cta, limit)


def check_feature(
    feature: Feature, arch: Arch, parameter: str, value: int, *, shown: str = ""
) -> None:
    """Refuse a feature that the architecture lacks."""
    if not arch.has(feature):
        code = ErrorCode.MAP_MODE
        raise missing_feature(code, feature, arch, parameter, value, shown=shown)
