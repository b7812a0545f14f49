"""Random tensor requests of the golden model for the tests of blocks, and their pieces."""

from collections.abc import Mapping

import numpy as np

from golden import AccessMode, Arch, Load, Reduce, Store, TmaError, check
from golden.geometry import Geometry
from golden.model import operands_of
from golden.request import as_descriptor
from hw.layouts.isa import AccessMode as Mode
from hw.layouts.isa import Operation
from hw.params import PRESETS
from tests.golden.random_requests import MODES
from tests.hw.boxes import Pieces
from tests.unit_arch import LATER_UNIT

KINDS = {
    "load_im2col": "default",
    "load_im2col_interleaved": "default",
    "sm_100a_im2col_w": "sm_107a",
    "sm_100a_im2col_w_128": "sm_107a",
    "sm_100a_gather4": "sm_107a",
    "load_tile": "default",
}
STORE_KINDS = {
    "store_tile": "default",
    "store_tile_interleaved": "default",
    "store_im2col": "default",
    "store_im2col_interleaved": "default",
    "reduce_tile": "default",
    "reduce_im2col": "default",
    "sm_100a_store_tile": "sm_107a",
    "sm_100a_scatter4": "sm_107a",
    "sm_100a_im2col_w_store": "sm_107a",
    "sm_103a_b6p2x16": "sm_107a",
    "sm_107a_scatter4": "sm_107a",
}
SMEM_BYTES = PRESETS["default"].smem_bytes
JUNK = 513, 40, 9
"""Values of operands that a store does not have."""


def setup_input(request: Load | Store, number: int = 0) -> dict:
    """Return the input of the setup block for ``request``, with the id ``number``."""
    d = as_descriptor(request.tensor_map)
    mode = AccessMode(int(d.mode)) if request.mode is None else request.mode
    fields: dict[str, object] = {
        "request_id": number,
        "mode": Mode(mode.value),
        "rank": len(request.coords),
        "coords": [*request.coords, -1, -1, -1, -1][:5],
        "smem_address": request.smem_address,
    }
    if isinstance(request, Store):
        fields |= {
            "operation": Operation.TENSOR_STORE,
            "reduction_op": 7,
            "im2col_info": JUNK,
            "mbarrier": JUNK[0],
            "group": group_of(number),
        }
        if isinstance(request, Reduce):
            fields |= {"operation": Operation.TENSOR_REDUCE, "reduction_op": request.op.value}
    else:
        info = request.im2col_offsets
        if mode in (AccessMode.IM2COL_W, AccessMode.IM2COL_W_128):
            info = request.w_halo, request.w_offset
        fields |= {
            "operation": Operation.TENSOR_LOAD,
            "im2col_info": [*info, 0, 0, 0][:3],
            "mbarrier": 0,
        }
    return {"request": fields, "words": list(d.words), "fault": 0}


def group_of(number: int) -> Mapping[str, int]:
    """Return a bulk group for the store with the id ``number``."""
    return {"joined": number % 3 > 0, "thread": 5 * number % 1024, "index": number % 8}


def expected(request: Load | Store, arch: Arch) -> Pieces:
    """Return the pieces of a load, or those that a store writes, without swizzle (``boxes``)."""
    store = isinstance(request, Store)
    geometry = Geometry(request.tensor_map, request.mode, store=store, arch=arch)
    spread = geometry.spread(request.smem_address, operands_of(request))
    pieces: Pieces = {}
    for row, (addresses, inside) in enumerate(zip(spread.gmem, spread.inside, strict=True)):
        start = (request.smem_address + row * geometry.pitch) // 16
        if geometry.piece_bytes < 16:  # packed: a row is inside or outside the tensor as a whole
            inside = np.full(inside.sum() // 16, 16)
            addresses = addresses[:1] + 16 * np.arange(inside.size, dtype=np.uint64)
        for column, (address, count) in enumerate(zip(addresses, inside, strict=True)):
            source = (int(address) // 16, int(count)) if count else None
            if source or not store:
                pieces[start + column] = source
    return pieces


def arch_of(kind: str) -> Arch:
    """Return the architecture that has requests of ``kind``."""
    return LATER_UNIT if (KINDS | STORE_KINDS)[kind] == "sm_107a" else Arch.SM_90A


def random_requests(rng: np.random.Generator, kind: str, count: int) -> list[Load | Store]:
    """Return ``count`` legal requests of ``kind``; loads have types of at least a byte."""
    requests: list[Load | Store] = []
    while len(requests) < count:
        try:
            request = MODES[kind](rng).request
            check(request, smem_bytes=SMEM_BYTES, arch=arch_of(kind))
        except TmaError:
            continue
        assert isinstance(request, Load | Store)
        data_type = as_descriptor(request.tensor_map).data_type
        assert data_type is not None
        if isinstance(request, Store) or not data_type.is_sub_byte:
            requests.append(request)
    return requests


def refusal(request: Load | Store, arch: Arch, smem_bytes: int = SMEM_BYTES) -> TmaError | None:
    """Return the error with which the golden model refuses ``request``, or None."""
    try:
        check(request, smem_bytes=smem_bytes, arch=arch)
    except TmaError as error:
        return error
    return None
