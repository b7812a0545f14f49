"""Item sequencer: the items of each request are in their places; the first error is reported."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out, connect, flipped

from golden import Arch, Descriptor, Load, Reduce, ReductionOp, Store, TensorMap
from golden.checks import OFFSET_LIMITS
from golden.geometry import Geometry
from hw.layouts.isa import AccessMode, ErrorCode, Operation
from hw.lib.queue import Queue
from hw.params import DIMS, PRESETS, TmaParams
from hw.setup.decode_stage import DecodeStage
from hw.setup.item_sequencer import ItemSequencer
from hw.setup.items import batch_layout, early_error_layout
from tests.golden.random_requests import HOPPER_TYPES
from tests.hw.boxes import random_box, random_interleaved
from tests.hw.golden_requests import (
    KINDS,
    STORE_KINDS,
    arch_of,
    random_requests,
    refusal,
    setup_input,
)
from tests.hw.setup.test_block import box_input
from tests.hw.simulate import run_streams

PARAMS = TmaParams(setup_pipelines=1)
IMAGE_AND_LATER_KINDS = [kind for kind in KINDS if "im2col" in kind or "sm_100a" in kind]
IMAGE_AND_LATER_KINDS += [kind for kind in STORE_KINDS if "sm_100a" in kind]
WIDE = AccessMode.IM2COL_W, AccessMode.IM2COL_W_128


class WithErrors(wiring.Component):
    """Item sequencer behind a decode stage, whose early error is a stream: a payload for the last
    item of each request.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self.items = ItemSequencer(params)
        self.decode = DecodeStage(params)
        ports = self.decode.signature.members
        error = Out(stream.Signature(early_error_layout(params)))
        items = Out(stream.Signature(batch_layout(params)))
        super().__init__({"i": ports["i"], "o": items, "error": error})

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.items = items = self.items
        m.submodules.decode = decode = self.decode
        m.submodules.errors = errors = Queue(early_error_layout(self.params), 64)
        connect(m, flipped(self.i), decode.i)
        connect(m, decode.o, items.i)
        m.d.comb += decode.admits_next.eq(1)
        connect(m, errors.o, flipped(self.error))
        last_item_q = Signal()
        m.d.sync += [
            last_item_q.eq(items.o.valid & items.o.p.common.last_batch),
            Assert(~self.o.valid | self.o.ready, "test: a batch is not taken\n"),
            Assert(~errors.i.valid | errors.i.ready, "test: the queue of errors is full\n"),
        ]
        m.d.comb += [
            self.o.valid.eq(items.o.valid),
            self.o.payload.eq(items.o.payload),
            errors.i.valid.eq(last_item_q),
            errors.i.payload.eq(items.early_error),
        ]
        return m


def sequence(params: TmaParams, inputs: list[dict], seed: int) -> tuple[list[list], list]:
    """Batches of each request, and its early error."""
    run = run_streams(WithErrors(params), {"i": inputs}, ["o", "error"], seed=seed, stall=0)
    requests: list[list] = [[]]
    for batch in run.payloads["o"]:
        requests[-1].append(batch)
        if batch.common.last_batch:
            requests.append([])
    assert requests.pop() == []
    assert len(requests) == len(run.payloads["error"]) == len(inputs)
    return requests, run.payloads["error"]


NO_ITEM = {"is_free": 1, "box_less_one": 0, "stride": 0}
"""Fields of a place without an item."""


def dimension_step(d: Descriptor, request: dict, dim: int) -> dict:
    """Fields of the item of a dimension that come from the map and the request."""
    return {
        "is_free": 0,
        "coord_complement": ~request["coords"][dim] % (1 << 32),
        "dim_less_one": d.global_dim[dim] - 1,
        "box_less_one": 0,
        "element_stride_less_one": d.element_strides[dim] - 1,
        "stride": int(d.interleave) if dim == 0 else d.global_strides[dim - 1] // 16,
    }


def tile_steps(d: Descriptor, request: dict) -> list[dict]:
    """Fields of the items of a tile: the dimensions above the row, lowest first, slices last."""
    if not d.interleave:
        dims = list(range(1, d.rank))
    else:
        dims = [*range(d.rank - 2), d.rank - 1, d.rank - 2]
    steps = []
    for dim in dims:
        is_slice = bool(d.interleave) and dim == d.rank - 2
        box = 0 if is_slice else d.box_dim[dim] - 1
        steps.append(dimension_step(d, request, dim) | {"box_less_one": box})
    return steps


def gather_steps(d: Descriptor, request: dict) -> list[dict]:
    """Fields of the items of a gather or scatter: four rows of a matrix."""
    steps = []
    for row in request["coords"][1:]:
        step = dimension_step(d, request, 1) | {"coord_complement": ~row % (1 << 32)}
        del step["element_stride_less_one"]
        steps.append(step)
    return steps


def image_steps(d: Descriptor, request: dict) -> list[dict]:
    """Fields of the items of an im2col box: slices, N, D, H and W."""
    sliced, wide = bool(d.interleave), request["mode"] in WIDE
    lowest = 0 if sliced else 1
    dim_n = d.rank - 1
    info = [0, 0, 0] if "group" in request else request["im2col_info"]
    dims = [dim_n - 1 if sliced else None, dim_n]
    dims += [dim if dim < dim_n - sliced else None for dim in (lowest + 2, lowest + 1, lowest)]
    steps = []
    for place, dim in enumerate(dims):
        level = DIMS - 1 - place
        walked = dim is not None and place > 0 and (level in (0, DIMS - 2) or not wide)
        bounded = walked and dim != dim_n
        offset = (info[1] if wide else info[level]) if bounded else 0
        lower = d.lower_corner[level] if bounded else 0
        step = NO_ITEM if dim is None else dimension_step(d, request, dim) | {"dim": dim}
        steps.append(
            step
            | {
                "is_free": walked or dim is None,
                "is_walked": walked,
                "is_bounded": bounded,
                "has_lower_bound": not wide,
                "lower": lower,
                "upper": d.upper_corner[level] if bounded else 0,
                "offset": offset,
                "restart": lower + offset,
            }
        )
    return steps


def check_items(params: TmaParams, batches: list, steps: list[dict], gathers: bool) -> None:
    """Compare the batches of a request with the expected fields of the items by place."""
    ways = params.setup_pipelines
    if gathers:  # each row is in place 0 of a batch of its own
        steps = [step for row in steps for step in (row, *[NO_ITEM] * (ways - 1))]
    count = max(1, -(-len(steps) // ways))
    assert len(batches) == count
    steps = steps + [NO_ITEM] * (count * ways - len(steps))
    for number, batch in enumerate(batches):
        common = batch.common
        flags = common.starts_walk, common.ends_walk, common.first_batch, common.last_batch
        walk_flags = (1, 1) if gathers else (number == 0, number == count - 1)
        assert flags == (*walk_flags, number == 0, number == count - 1)
        assert common.number == number
    for place, wanted in enumerate(steps):
        number, way = divmod(place, ways)
        batch = batches[number]
        parts = [batch.steps[way]]
        if params.im2col:
            parts.append(batch.images[way])
        for part in parts:
            for name in set(wanted) & set(part.shape().members):
                assert part[name] == wanted[name], (place, name)


@pytest.mark.parametrize("pipelines", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(2))
def test_items_of_tiles(seed, pipelines):
    rng = random.Random(seed)
    boxes = [rng.choice((random_box, random_interleaved))(rng) for _ in range(60)]
    inputs = [box_input(box, request_id=n) for n, box in enumerate(boxes)]
    params = replace(PARAMS, setup_pipelines=pipelines)
    requests, errors = sequence(params, inputs, seed)
    assert {error.code.value for error in errors} == {ErrorCode.NONE.value}
    for number, (box, entry, items) in enumerate(zip(boxes, inputs, requests, strict=True)):
        steps = tile_steps(Descriptor(tuple(entry["words"])), entry["request"])
        check_items(params, items, steps, gathers=False)
        for item in items:
            common = item.common
            assert (common.request_id, common.smem_address) == (number, box.smem_address)
            assert (common.row_pieces, common.row_pitch) == (box.row, box.pitch)
            assert item.base == box.address // 16
            start = 0 if box.interleave else box.coords[0]
            assert item.row_start == start
            if start >= 0:
                assert item.row_start_pieces == start * box.item_bytes // 16
            assert item.tail_bytes == box.dims[0] * box.item_bytes % 16


@pytest.mark.parametrize("kind", IMAGE_AND_LATER_KINDS)
@pytest.mark.parametrize("pipelines", [1, 5])
def test_items_of_requests(kind, pipelines):
    """The later modes, and im2col: pixels, rows and halos, too."""
    params = replace(PRESETS[(KINDS | STORE_KINDS)[kind]], setup_pipelines=pipelines)
    requests = random_requests(np.random.default_rng(7), kind, 25)
    inputs = [setup_input(request, number) for number, request in enumerate(requests)]
    if kind.startswith("load_im2col"):
        widen_offsets(inputs)
    sequenced, errors = sequence(params, inputs, 7)
    assert {error.code.value for error in errors} == {ErrorCode.NONE.value}
    for request, entry, items in zip(requests, inputs, sequenced, strict=True):
        check_request(params, request, entry, items, kind)


def widen_offsets(inputs: list[dict]) -> None:
    """Draw offsets of im2col from all legal ones; those of random requests are small."""
    rng = random.Random(7)
    for entry in inputs:
        request = entry["request"]
        limit = OFFSET_LIMITS[Descriptor(tuple(entry["words"])).rank]
        request["im2col_info"] = [
            rng.randint(0, limit) if offset else 0 for offset in request["im2col_info"]
        ]


def check_request(
    params: TmaParams, request: Load | Store, entry: dict, items: list, kind: str
) -> None:
    d, mode = Descriptor(tuple(entry["words"])), entry["request"]["mode"]
    gathers = mode in (AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4)
    steps_of = gather_steps if gathers else image_steps if d.mode else tile_steps
    check_items(params, items, steps_of(d, entry["request"]), gathers)
    store = isinstance(request, Store)
    geometry = Geometry(d, request.mode, store=store, arch=arch_of(kind))
    for item in items:
        common = item.common
        assert item.base == d.global_address // 16
        assert item.row_start == (0 if d.interleave else entry["request"]["coords"][0])
        assert common.row_pitch == geometry.pitch // 16
        assert common.store == store
        assert common.has_row_count == bool(gathers or d.mode)
        if gathers:
            assert common.row_count_less_one + 1 == 4
        if d.mode:
            halo = 0 if store else entry["request"]["im2col_info"][0]
            grouped = mode == AccessMode.IM2COL_W_128
            extra = halo if mode == AccessMode.IM2COL_W else 0
            pixels = 128 if grouped else d.pixels_per_column + extra
            assert (common.is_image, common.pixels) == (1, pixels)
            assert common.row_count_less_one + 1 == pixels + (4 * halo if grouped else 0)


VIOLATIONS = {
    "fault": (ErrorCode.GMEM_FAULT, "global_address"),
    "map": (ErrorCode.MAP_FIELD, "word_2"),
    "rank": (ErrorCode.MAP_MODE, "small_value"),
    "pair": (ErrorCode.MAP_MODE, "small_value"),
    "smem_address": (ErrorCode.SMEM_ALIGN, "smem_address"),
    "window": (ErrorCode.SMEM_RANGE, "mbarrier"),
    "coord": (ErrorCode.COORD_ALIGN, "coord_0"),
    "store_coord": (ErrorCode.COORD_NEG, "coord_1"),
    "mask": (ErrorCode.MASK, "small_value"),
    "mbarrier": (ErrorCode.MBAR_ALIGN, "mbarrier"),
}
"""Violations, the one that is reported first in front: its code, and the name of its value."""


def violate(entry: dict, name: str) -> int:
    """Make ``entry`` violate one check; return the offending value."""
    request, words = entry["request"], entry["words"]
    match name:
        case "fault":
            entry["fault"] = 1
            return request["global_address"]
        case "map":
            words[2] |= 0xF << 7
            return words[2]
        case "rank":
            request["rank"] += 1
            return request["rank"]
        case "pair":
            request["cta_group_2"] = 1
            return 2
        case "smem_address":
            request["smem_address"] |= 32
            return request["smem_address"]
        case "window" | "mbarrier":
            request["mbarrier"] |= 1 << 20 if name == "window" else 4
            return request["mbarrier"]
        case "coord":
            request["coords"][0] = 3
            return 3
        case "store_coord":
            request |= {"operation": Operation.TENSOR_STORE, "mbarrier": 0, "reduction_op": 7}
            request["coords"][1] = -5
            return -5
        case _:
            request["misdirected"] = {"mask": 1, "cta": 1, "value": 77}
            return 77


@pytest.mark.parametrize("pipelines", [1, 5])
def test_the_first_error_is_reported(pipelines):
    """Up to four violations in a request, and requests without one between."""
    rng = random.Random(3)
    box = random_box(rng)
    while len(box.dims) < 2 or box.item_bytes > 2 or min(box.coords) < 0:
        box = random_box(rng)
    inputs, wanted = [], []
    for _ in range(150):
        entry = box_input(box)
        entry["request"]["coords"] = list(entry["request"]["coords"])
        names = rng.sample(list(VIOLATIONS), rng.choice((0, 1, 1, 2, 4)))
        if "store_coord" in names:  # a store has no barrier, nor a CTA pair
            names = [name for name in names if name not in ("pair", "window", "mbarrier")]
        names.sort(key=list(VIOLATIONS).index)
        values = {name: violate(entry, name) for name in names}
        if {"window", "mbarrier"} <= set(names):
            values["window"] = entry["request"]["mbarrier"]
        inputs.append(entry)
        wanted.append((names[0], values[names[0]]) if names else None)
    _, errors = sequence(replace(PARAMS, setup_pipelines=pipelines), inputs, 3)
    seen = set()
    for error, expected in zip(errors, wanted, strict=True):
        if expected is None:
            assert error.code.value == ErrorCode.NONE.value
            continue
        code, value_name = VIOLATIONS[expected[0]]
        names = list(error.values.shape().members)
        assert error.code.value == code.value, expected
        assert error.dim == (1 if expected[0] == "store_coord" else 0)
        assert (names[error.value_index], error.values[value_name]) == (value_name, expected[1])
        seen.add(expected[0])
    assert seen == set(VIOLATIONS)


def test_reductions_of_all_types():
    """A reduction is refused if the type has no such operation."""
    maps = [TensorMap.tiled(kind, 0, (64, 8), (1024,), (32, 4)) for kind in HOPPER_TYPES]
    requests = [Reduce(each, (0, 0), op=op) for each, op in product(maps, ReductionOp)]
    _, errors = sequence(TmaParams(), [setup_input(request) for request in requests], 0)
    refused = [refusal(request, Arch.SM_90A) is not None for request in requests]
    assert any(refused)
    wanted = [ErrorCode.RED_TYPE if each else ErrorCode.NONE for each in refused]
    assert [error.code for error in errors] == wanted
