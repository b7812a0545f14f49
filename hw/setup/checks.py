"""Checks: which errors a request has, and which of them is reported.

A request that breaks several rules gets one error record: that of the first check in its list. The
order is that of ``ErrorCode``, after GMEM_FAULT: without its tensor map, no other check of a
request has a meaning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Value

from hw.layouts.isa import (
    REDUCTIONS,
    AccessMode,
    ErrorCode,
    Operation,
    is_reducible,
    is_reduction,
)
from hw.layouts.translation import cause_of
from hw.params import DIMS, TmaParams
from hw.setup.map_decoder import is_misaligned

REPORT_ORDER = (
    ErrorCode.GMEM_FAULT,
    *(code for code in ErrorCode if code.value in range(1, ErrorCode.GMEM_FAULT.value)),
)
"""Error codes, the one that is reported first."""

OFFSET_BITS = {3: 16, 4: 8, 5: 5}
"""Width of an im2col offset, by rank."""


@dataclass(frozen=True)
class Check:
    """A rule, and the error record of a request that breaks it.

    Parameters
    ----------
    violated : Value
        Not 0 if the request breaks the rule.
    code : ErrorCode
    value : Value or int or str
        The offending value; a string names a member of ``early_error_layout``'s ``values``.
    dim : Value or int, optional
        The dimension, or the cause, of the error record; 0 if it is not given.
    """

    violated: Value
    code: ErrorCode
    value: Value | int | str
    dim: Value | int | None = None


def report_first(m: Module, checks: Sequence[Check], report: Callable[[int, Check], None]) -> None:
    """Call ``report`` for each check and its number; the assignments that it adds to ``m`` take
    effect for the first violated check only.

    Every call must assign the same signals: the assignments of an earlier check override those of
    a later one.
    """
    for number, check in reversed(list(enumerate(checks))):
        with m.If(check.violated):
            report(number, check)


@dataclass(frozen=True)
class TensorOperands:
    """Operands of a tensor request; an operand that its operation does not have is 0.

    Parameters
    ----------
    prefetch, store : Value
        The request is a prefetch; a store or a reduction.
    smem_address, mbarrier : Value
        Byte offsets in shared memory. Prefetches have neither; stores have no ``mbarrier``.
    im2col_info : Value
        Offsets, or halo and offset. Stores have none.
    """

    prefetch: Value
    store: Value
    smem_address: Value
    mbarrier: Value
    im2col_info: Value


@dataclass(frozen=True)
class _Access:
    """Decoded access mode of a request.

    ``is_grouped``: an ``im2col::w::128`` load; ``is_im2col_w``: a mode of ``im2col::w``;
    ``level_dims``: the dimensions of the levels W, H and D.
    """

    rank: Value
    is_im2col: Value
    is_grouped: Value
    is_im2col_w: Value
    level_dims: tuple[Value, ...]


def _access(request, decoded, store: Value) -> _Access:
    mode = request.mode
    is_grouped = (mode == AccessMode.IM2COL_W_128) & ~store
    return _Access(
        rank=decoded.rank_less_one + 1,
        is_im2col=mode == AccessMode.IM2COL,
        is_grouped=is_grouped,
        is_im2col_w=is_grouped | (mode == AccessMode.IM2COL_W),
        level_dims=tuple(level + ~decoded.interleaved for level in range(DIMS - 2)),
    )


def tensor_checks(params: TmaParams, payload, decoded, operands: TensorOperands) -> list[Check]:
    """Return the checks of a tensor request that need no arithmetic, in the order of report.

    ``payload`` is of ``request_with_map_layout``, ``decoded`` of ``decoded_map_layout``.
    """
    p = params
    request = payload.request
    store, smem_address, mbarrier = operands.store, operands.smem_address, operands.mbarrier
    access = _access(request, decoded, store)
    fits, coords = _mode_fits(p, payload, decoded, store, access)
    misdirected = request.misdirected
    return [
        Check(payload.fault, ErrorCode.GMEM_FAULT, "global_address", cause_of(p, payload)),
        Check(_map_refused(p, decoded, store), ErrorCode.MAP_FIELD, "word_2"),
        Check(~fits, ErrorCode.MAP_MODE, request.mode),
        Check(request.rank != coords, ErrorCode.MAP_MODE, request.rank),
        *_pair_checks(p, request),
        Check(smem_address[:7].any(), ErrorCode.SMEM_ALIGN, "smem_address"),
        Check(mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, "mbarrier"),
        Check(
            is_misaligned(p, decoded, request.coords[0], store), ErrorCode.COORD_ALIGN, "coord_0"
        ),
        *_store_start_checks(p, request, decoded, store, coords, access),
        *_offset_checks(p, operands.im2col_info, access),
        *_reduction_checks(p, payload),
        Check(misdirected.mask, ErrorCode.MASK, misdirected.value),
        Check(misdirected.cta, ErrorCode.DST_CTA, misdirected.value),
        Check(mbarrier[:3].any(), ErrorCode.MBAR_ALIGN, "mbarrier"),
    ]


def _mode_fits(
    params: TmaParams, payload, decoded, store: Value, access: _Access
) -> tuple[Value, Value]:
    """Return whether the access mode fits the map, and how many coordinates the mode needs."""
    p = params
    mode = payload.request.mode
    coords = access.rank
    fits = (mode == AccessMode.TILE) & ~decoded.im2col
    if p.gather4:
        gathers = Mux(store, mode == AccessMode.TILE_SCATTER4, mode == AccessMode.TILE_GATHER4)
        has_one_row = payload.words[14][:8] == 0
        is_matrix = ~decoded.im2col & ~decoded.interleaved & (access.rank == 2) & has_one_row
        fits |= gathers & is_matrix
        coords = Mux(gathers, 5, coords)
    if p.im2col:
        fits |= access.is_im2col & decoded.im2col & (~decoded.wide if p.im2col_w else 1)
    if p.im2col_w:
        is_swizzled = decoded.swizzled
        if p.swizzle_atoms:
            is_swizzled &= ~decoded.flips
        if p.swizzle_96b:
            is_swizzled &= ~(access.is_grouped & decoded.is_96b)
        wide = access.is_im2col_w & decoded.im2col & decoded.wide
        fits |= wide & ~decoded.interleaved & is_swizzled
    if not p.stores:
        fits &= ~store
    return fits, coords


def _map_refused(params: TmaParams, decoded, store: Value) -> Value:
    """Return whether the map is refused for the direction of the request."""
    refused = decoded.refused
    if params.swizzle_atoms or params.sub_byte:
        refused |= store & decoded.load_only
    if params.sub_byte:
        refused |= ~store & decoded.store_only
    return refused


def _pair_checks(params: TmaParams, request) -> list[Check]:
    """Return the check of ``.cta_group::2``, in a unit without it."""
    if params.cta_group_2:
        return []
    is_load = request.operation == Operation.TENSOR_LOAD
    return [Check(is_load & request.cta_group_2, ErrorCode.MAP_MODE, 2)]


def _store_start_checks(
    params: TmaParams, request, decoded, store: Value, coords: Value, access: _Access
) -> list[Check]:
    """Return the checks of the start of a store's box: its coordinates and its im2col corners."""
    if not params.stores:
        return []
    checks = []
    is_bounded = store
    if params.scatter4_negative:
        is_bounded &= request.mode != AccessMode.TILE_SCATTER4
    for dim, coord in enumerate(request.coords):
        is_negative = is_bounded & (dim < coords) & (coord < 0)
        checks.append(Check(is_negative, ErrorCode.COORD_NEG, f"coord_{dim}", dim))
    if params.im2col:
        for level, dim in enumerate(access.level_dims):
            is_im2col_store = store & access.is_im2col
            lower, upper = decoded.corners[level].lower, decoded.corners[level].upper
            checks += [
                Check(is_im2col_store & (lower < 0), ErrorCode.IM2COL_CORNER, lower, dim),
                Check(is_im2col_store & (upper > 0), ErrorCode.IM2COL_CORNER, upper, dim),
            ]
    return checks


def _offset_checks(params: TmaParams, im2col_info, access: _Access) -> list[Check]:
    """Return the checks of im2col offsets, and of the halo and the offset of ``im2col::w``."""
    checks = []
    if params.im2col:
        for level, dim in enumerate(access.level_dims):
            offset = im2col_info[level]
            is_too_large = Cat(
                (access.rank == rank) & offset[bits:].any()
                for rank, bits in OFFSET_BITS.items()
                if level < rank - 2
            ).any()
            violated = access.is_im2col & is_too_large
            checks.append(Check(violated, ErrorCode.IM2COL_OFFSET, offset, dim))
    if params.im2col_w:
        halo, offset = im2col_info[0], im2col_info[1]
        halo_is_too_large = Mux(access.is_grouped, halo[5:].any(), halo[9:].any())
        checks += [
            Check(access.is_im2col_w & halo_is_too_large, ErrorCode.IM2COL_OFFSET, halo, 1),
            Check(access.is_im2col_w & offset[5:].any(), ErrorCode.IM2COL_OFFSET, offset, 1),
        ]
    return checks


def _reduction_checks(params: TmaParams, payload) -> list[Check]:
    """Return the check of a reduction's operation with the element type of its map."""
    if not params.stores:
        return []
    request = payload.request
    is_illegal = is_reduction(request.operation)
    if params.reductions:
        element_type = payload.words[2][7:11]
        is_illegal &= ~is_reducible(REDUCTIONS, element_type, request.reduction_op)
    return [Check(is_illegal, ErrorCode.RED_TYPE, request.reduction_op)]
