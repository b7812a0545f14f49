"""Warnings about requests that the unit accepts, but that are probably mistakes."""

from golden.arch import Arch
from golden.enums import PIECE
from golden.errors import BulkSizeWarning, RowPaddingWarning, SwizzlePatternWarning, TmaWarning
from golden.model import plan_of_request
from golden.plan import Plan
from golden.request import Load, Reduce, Request, Store, TensorRequest, moved_bytes


def advice(
    request: Request, plan: Plan | None = None, *, arch: Arch = Arch.SM_90A
) -> list[TmaWarning]:
    """Return the warnings about a legal request.

    Parameters
    ----------
    request : Request
        Any request; prefetches of tensors cause no warnings.
    plan : Plan, optional
        Plan of the request, if the caller has one.
    arch : Arch
        Architecture whose features the request may use, if there is no plan.

    Returns
    -------
    list of TmaWarning
        Empty if nothing is suspicious.

    Examples
    --------
    >>> from golden import Store, TensorMap
    >>> tensor_map = TensorMap.tiled("f32", 0, (5, 4), (32,), (8, 4), swizzle="32B")
    >>> for warning in advice(Store(tensor_map, (0, 0), smem_address=128)):
    ...     print(warning)
    smem_address = 128: SWIZZLE_32B repeats every 256 bytes, the box starts inside the pattern \
[SWIZZLE_PATTERN]
    global_dim[0] = 5 elements end at byte 20 of a row: the store overwrites bytes 20 to 31 \
[ROW_PADDING]
    """
    if not isinstance(request, TensorRequest):
        moved = moved_bytes(request.size)
        text = f"size = {request.size}: must be a multiple of 16 below 2**20: {moved} bytes move"
        return [BulkSizeWarning(text)] if moved != request.size else []
    if not isinstance(request, Load | Store):
        return []
    store = isinstance(request, Store)
    plan = plan or plan_of_request(request, arch)
    warnings: list[TmaWarning] = []
    repeat = plan.swizzle.repeat
    if request.smem_address % repeat:
        warnings.append(
            SwizzlePatternWarning(
                f"smem_address = {request.smem_address}: {plan.swizzle.name} repeats every "
                f"{repeat} bytes, the box starts inside the pattern"
            )
        )
    extent, kind = plan.descriptor.global_dim[0], plan.data_type
    end = extent * kind.bits // 8
    start = request.coords[0]
    crosses_end = start < extent < start + plan.row_elements
    if store and not plan.interleaved and end % PIECE and crosses_end:
        last = -(-end // PIECE) * PIECE - 1
        verb = "reduction changes" if isinstance(request, Reduce) else "store overwrites"
        warnings.append(
            RowPaddingWarning(
                f"global_dim[0] = {extent} elements end at byte {end} of a row: "
                f"the {verb} bytes {end} to {last}"
            )
        )
    return warnings
