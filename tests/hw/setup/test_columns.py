"""Setup block: the levels of im2col columns, with operands of full width."""

import random

from golden import Arch, Descriptor, Interleave, Load, TensorMap
from golden.checks import OFFSET_LIMITS
from golden.descriptor import CORNER_BITS
from golden.errors import ErrorCode
from golden.request import as_descriptor
from hw.params import PRESETS
from hw.setup.block import SetupBlock
from hw.setup.items import LEVEL_N
from tests.hw.golden_requests import refusal, setup_input
from tests.hw.simulate import run_streams, simulation

PIECE_BYTES = 16
ADDRESSES = 1 << 60
"""Number of addresses of pieces."""


def any_length(rng: random.Random, bits: int) -> int:
    """Return a number of any length up to ``bits``."""
    return rng.getrandbits(rng.randint(0, bits))


def random_load(rng: random.Random) -> Load:
    """Return an im2col load with operands of full width.

    It may start outside the bounding box, or have an offset that is too large.
    """
    rank = rng.randint(3, 5)
    interleave = rng.choice(list(Interleave))
    alignment = 32 if interleave is Interleave.INTERLEAVE_32B else PIECE_BYTES
    bound = 1 << CORNER_BITS[rank] - 1
    corners = [[rng.randrange(-bound, bound) for _ in range(rank - 2)] for _ in range(2)]
    dims = [any_length(rng, 32) + 1 for _ in range(rank)]
    for dim, lower, upper in zip(spatial(interleave, rank), *corners, strict=True):
        dims[dim] = max(dims[dim], lower - upper + 1)
    tensor_map = TensorMap.im2col(
        "u8",
        alignment * any_length(rng, 59),
        [1 << 20] * rank,
        [alignment * rng.randint(1, (1 << 40) // alignment - 1) for _ in range(rank - 1)],
        *corners,
        alignment if interleave else PIECE_BYTES * rng.randint(1, 16),
        rng.randint(1, 8),
        [rng.randint(1, 8) for _ in range(rank)],
        interleave=interleave,
    )
    words = list(as_descriptor(tensor_map).words)
    words[8 : 8 + rank] = [size - 1 for size in dims]  # the driver refuses some that are legal
    coords = [rng.randrange(min(size, 1 << 31)) for size in dims]
    for dim, lower, upper in zip(spatial(interleave, rank), *corners, strict=True):
        last = min(dims[dim] - 1 + upper, (1 << 31) - 1)
        inside = rng.choice((lower, last, rng.randint(lower, last)))
        anywhere = rng.randrange(-1 << 31, 1 << 31) >> rng.randrange(32)
        beside = rng.choice((lower - 1, min(last + 1, (1 << 31) - 1)))
        coords[dim] = rng.choice((*[inside] * 6, beside, anywhere))
    if not interleave:
        coords[0] &= -PIECE_BYTES
    offsets = [rng.randint(0, OFFSET_LIMITS[rank]) for _ in range(rank - 2)]
    if rng.random() < 0.2:
        offsets[rng.randrange(rank - 2)] = any_length(rng, 16)
    return Load(Descriptor(tuple(words)), tuple(coords), im2col_offsets=tuple(offsets))


def spatial(interleave: Interleave, rank: int) -> range:
    """Return the numbers of the dimensions W, H and D."""
    first = 0 if interleave else 1
    return range(first, first + rank - 2)


def levels_of(load: Load) -> dict[int, dict[str, int]]:
    """Return the fields of the levels that the tensor has."""
    d, coords = as_descriptor(load.tensor_map), load.coords
    dims = spatial(d.interleave, d.rank)
    row = 2 if d.interleave is Interleave.INTERLEAVE_32B else 1  # pieces; only if interleaved
    strides = [row, *(stride // PIECE_BYTES for stride in d.global_strides)]
    if d.interleave:
        row_start = coords[d.rank - 2] * strides[d.rank - 2]
    else:
        row_start = coords[0] // PIECE_BYTES
    address = d.global_address // PIECE_BYTES + row_start
    levels = {}
    for level in (LEVEL_N, *reversed(range(len(dims)))):
        dim = d.rank - 1 if level == LEVEL_N else dims[level]
        stride, limit = strides[dim], d.global_dim[dim] - 1
        lower, upper, offset = 0, 0, 0
        if level < LEVEL_N:
            lower, upper = d.lower_corner[level], d.upper_corner[level]
            offset = load.im2col_offsets[level]
        address += (coords[dim] + offset) * stride
        levels[level] = {
            "position": coords[dim] + offset,
            "limit": limit,
            "stride_less_one": d.element_strides[dim] - 1,
            "step": d.element_strides[dim] * stride,
            "address": address % ADDRESSES,
        }
        if level < LEVEL_N:  # the images have no end
            levels[level] |= {
                "absent": 0,
                "restart": lower + offset,
                "last": limit + upper + offset,
                "restart_address": (lower + offset) * stride % ADDRESSES,
            }
    return levels


def test_levels_of_columns_and_starts_outside_the_bounding_box():
    """A column has the positions and addresses of its definition, or the golden model's error."""
    rng = random.Random(1)
    loads = [random_load(rng) for _ in range(1500)]
    inputs = [setup_input(load, number) for number, load in enumerate(loads)]
    dut = simulation(SetupBlock, PRESETS["default"])
    run = run_streams(dut, {"i": inputs}, ["job", "error"], stall=0.1)
    jobs, records = iter(run.payloads["job"]), iter(run.payloads["error"])
    refused = set()
    for number, load in enumerate(loads):
        if error := refusal(load, Arch.SM_90A):
            record = next(records)
            assert record.request_id == number
            got = record.code.value, record.dim, record.value
            assert got == (error.code, error.dim, error.value % (1 << 64)), load
            refused.add((error.code, len(load.coords), error.dim))
            continue
        job = next(jobs)
        assert job.transfer.request_id == number, load
        levels = levels_of(load)
        for level, wanted in levels.items():
            fields = job.column.levels[level]
            assert {name: getattr(fields, name) for name in wanted} == wanted, (level, load)
        for level in set(range(LEVEL_N)) - levels.keys():
            assert job.column.levels[level].absent == 1
    assert next(jobs, None) is next(records, None) is None
    # The spatial dimensions begin with 0 or 1. With rank 3, no offset is too large.
    dims = {(rank, dim) for rank in (3, 4, 5) for dim in range(rank - 1)}
    starts = {(ErrorCode.IM2COL_START, *each) for each in dims}
    offsets = {(ErrorCode.IM2COL_OFFSET, rank, dim) for rank, dim in dims if rank > 3}
    assert refused == starts | offsets
