"""Definition and vectorised model of the golden model agree on requests that hypothesis draws.

A request that differs is made as small as possible. The random requests of ``test_definition`` are
larger; those of hypothesis are at the edges of small tensors.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from golden import (
    Arch,
    ArrayMemory,
    DataType,
    ErrorCode,
    Interleave,
    Load,
    OobFill,
    Reduce,
    ReductionOp,
    Store,
    Swizzle,
    TensorMap,
    TmaError,
    definition,
    execute,
)
from tests.golden.random_requests import overlaps

GMEM_BYTES, SMEM_BYTES = 1 << 18, 1 << 14
GMEM, SMEM = (
    np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    for size in (GMEM_BYTES, SMEM_BYTES)
)
"""Memories before each request."""

BASE = 1 << 13
"""Address of the tensors: positions in front of them are in memory, too."""

TYPES = [kind for kind in DataType if not kind.is_sub_byte]
SWIZZLES = [Swizzle.NONE, Swizzle.SWIZZLE_32B, Swizzle.SWIZZLE_64B, Swizzle.SWIZZLE_128B]

Draw = Any


@st.composite
def shapes(draw: Draw, rank: int) -> dict[str, Any]:
    """Return the fields that tiled and im2col maps share, of a tensor of at most 150,000 bytes."""
    kind = draw(st.sampled_from(TYPES))
    interleave = draw(st.sampled_from(Interleave)) if rank > 2 else Interleave.NONE
    grain = 32 if interleave is Interleave.INTERLEAVE_32B else 16
    inner = draw(st.integers(1, 6)) if interleave else draw(st.integers(1, 96 // kind.itemsize))
    dims = [inner, *(draw(st.sampled_from([4, 3, 5, 2, 1])) for _ in range(rank - 1))]
    strides, size = [], inner * (16 * interleave or kind.itemsize)
    for dim in dims[1:]:
        stride = -(-size // grain) * grain + grain * draw(st.integers(0, 1))
        strides.append(stride)
        size = stride * dim
    steps = [1, *(draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank - 1))]
    return {
        "data_type": kind,
        "global_address": BASE,
        "global_dim": dims,
        "global_strides": strides,
        "element_strides": steps,
        "interleave": interleave,
        "swizzle": draw(st.sampled_from(SWIZZLES)),
        "oob_fill": draw(st.sampled_from(OobFill)),
    }


@st.composite
def maps(draw: Draw, is_im2col: bool) -> TensorMap:
    """Return a legal tensor map."""
    rank = draw(st.sampled_from([3, 4, 5] if is_im2col else [2, 3, 4, 5, 1]))
    fields = draw(shapes(rank))
    grain = 1 if fields["interleave"] else 16 // fields["data_type"].itemsize
    try:
        if not is_im2col:
            box = [draw(st.integers(1, 4)) for _ in range(rank)]
            return TensorMap.tiled(**fields, box_dim=[grain * box[0], *box[1:]])
        corner = st.lists(st.sampled_from([0, -1, 1, -2, 2]), min_size=rank - 2, max_size=rank - 2)
        return TensorMap.im2col(
            **fields,
            lower_corner=draw(corner),
            upper_corner=draw(corner),
            channels_per_pixel=grain * draw(st.integers(1, 3)),
            pixels_per_column=draw(st.sampled_from([12, 24, 1, 2, 31])),
        )
    except TmaError:
        reject()


@st.composite
def requests(draw: Draw, is_im2col: bool) -> Load | Store:
    """Return a request, mostly a legal one."""
    tensor_map = draw(maps(is_im2col))
    way = draw(st.sampled_from([Load, Load, Store, Reduce]))
    starts = [0, 1, 2, 4, -1, -3] if way is Load else [0, 1, 2, 0, 1, -1]
    coords = [draw(st.sampled_from(starts)) for _ in range(tensor_map.rank)]
    if is_im2col:
        first = 0 if tensor_map.interleave else 1
        for dim, lowest in enumerate(tensor_map.lower_corner, first):
            coords[dim] = lowest + draw(st.integers(0, 3))
    if not tensor_map.interleave:
        grain = 16 // tensor_map.data_type.itemsize
        coords[0] *= draw(st.sampled_from([grain, grain, grain, 1]))
    operands: dict[str, Any] = {"smem_address": 128 * draw(st.integers(0, 3))}
    if way is Reduce:
        operands["op"] = draw(st.sampled_from([ReductionOp.ADD] * 8 + list(ReductionOp)))
    elif way is Load and is_im2col:
        offsets = st.lists(st.integers(0, 3), min_size=len(coords) - 2, max_size=len(coords) - 2)
        operands["im2col_offsets"] = tuple(draw(offsets))
    return way(tensor_map, coords, **operands)


def result(model: Any, request: Load | Store) -> tuple[Any, ...]:
    """Return what a model does: its completions, or its error, and both memories."""
    gmem, smem = ArrayMemory(GMEM.copy()), SMEM.copy()
    return model(request, gmem, [smem]), gmem.bytes.tobytes(), smem.tobytes()


def compare(request: Load | Store) -> None:
    """Fail if the models differ; writes of a byte by two elements have no defined order."""
    try:
        expected = result(execute, request)
    except TmaError as error:
        if error.code is ErrorCode.GMEM_FAULT:  # the tensor is in memory
            raise
        return
    if overlaps(request, Arch.SM_90A):
        reject()
    assert result(definition.execute, request) == expected


QUICK = settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@QUICK
@given(requests(is_im2col=False))
def test_tiles(request: Load | Store) -> None:
    compare(request)


@QUICK
@given(requests(is_im2col=True))
def test_im2col(request: Load | Store) -> None:
    compare(request)


@pytest.mark.regress
@settings(QUICK, max_examples=20_000)
@given(requests(is_im2col=False))
def test_many_tiles(request: Load | Store) -> None:
    compare(request)


@pytest.mark.regress
@settings(QUICK, max_examples=20_000)
@given(requests(is_im2col=True))
def test_many_im2col(request: Load | Store) -> None:
    compare(request)
