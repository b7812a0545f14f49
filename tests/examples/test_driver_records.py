"""Records of the driver in C are those of ``hw.layouts.host``; its sources compile anywhere."""

import ctypes
import random
import re
import shutil
import subprocess

import pytest
from amaranth.hdl import Shape
from amaranth.lib import data

from golden import mbarrier as golden_mbarrier
from hw.layouts.barriers import BarrierOp
from hw.layouts.host import (
    BARRIER_OPERATIONS,
    COMPLETION_BYTES,
    RECORD_BYTES,
    Completion,
    CompletionKind,
    HostError,
    MapOperation,
    RecordFlags,
    record_layout,
)
from hw.layouts.isa import AccessMode, Operation, ReductionOp
from hw.params import PRESETS
from tests.examples import driver

LAYOUT = record_layout(PRESETS["host"])
HEADER = (driver.FOLDER / "tma_records.h").read_text()
PACKED = {
    "mode": ("mode_and_rank", 0),
    "rank": ("mode_and_rank", 4),
    "element_type": ("type_and_op", 0),
    "reduction_op": ("type_and_op", 4),
}
"""Fields that share a byte in C: name and first bit of the byte."""


def place(structure: type[ctypes.Structure], name: str) -> int:
    """Return the first bit of a field in C."""
    byte, bit = PACKED.get(name, (name, 0))
    return getattr(structure, byte).offset * 8 + bit


@pytest.mark.parametrize(
    ("structure", "layout", "size"),
    [
        (driver.Request, LAYOUT, RECORD_BYTES),
        (driver.Completion, data.Layout.cast(Completion), COMPLETION_BYTES),
    ],
)
def test_fields_of_records(structure, layout, size):
    assert ctypes.sizeof(structure) == size
    for name, field in layout:
        assert place(structure, name) == field.offset, name
    named = {name for name, *_ in structure._fields_}
    assert named == {PACKED.get(name, (name, 0))[0] for name, _ in layout}


def numbers(enumeration: str) -> dict[str, int]:
    """Return the constants of an enumeration of ``tma_records.h``."""
    body = re.search(rf"enum tma_{enumeration} {{(.*?)}};", HEADER, re.DOTALL)[1]
    return {name: int(value, 0) for name, value in re.findall(r"TMA_(\w+) = (\w+)", body)}


def test_operations():
    requests = [op for op in Operation if op.value <= Operation.WAIT_GROUP_READ.value]
    expected = {op.name: op.value for op in (*requests, *MapOperation)}
    expected |= {op.name: BARRIER_OPERATIONS + op.value for op in BarrierOp}
    assert numbers("operation") == expected


@pytest.mark.parametrize(
    ("enumeration", "kinds", "prefix"),
    [
        ("mode", AccessMode, ""),
        ("reduction_op", ReductionOp, ""),
        ("completion_kind", CompletionKind, "COMPLETION_"),
        ("host_error", HostError, "ERROR_"),
    ],
)
def test_enumerations(enumeration, kinds, prefix):
    assert numbers(enumeration) == {prefix + kind.name: kind.value for kind in kinds}


def test_flags():
    layout = data.Layout.cast(RecordFlags)
    assert numbers("flags") == {name.upper(): 1 << field.offset for name, field in layout}


def test_structures_are_those_of_the_header():
    """The types of Python, which the other tests use, are those that C compiles."""
    for structure in driver.Request, driver.Completion:
        name = structure.__name__.lower()
        body = re.search(rf"struct tma_{name} {{(.*?)}};", HEADER, re.DOTALL)[1]
        declared = re.findall(r"(u?)int(\d+)_t (\w+)(?:\[(\d)\])?;", body)
        kinds = [
            (field, getattr(ctypes, f"c_{u}int{bits}"), int(count or 0))
            for u, bits, field, count in declared
        ]
        assert [(field, kind * count if count else kind) for field, kind, count in kinds] == [
            *structure._fields_
        ]


def as_record(request: driver.Request):
    """Return the fields of a record in memory."""
    return LAYOUT.from_bits(int.from_bytes(bytes(request), "little"))


@pytest.mark.parametrize("seed", range(20))
def test_requests(seed):
    """Each function that makes a record sets the fields that it names, and no others."""
    rng = random.Random(seed)
    c = driver.library()
    rank = rng.randint(1, driver.MAX_RANK)
    coords = [rng.randrange(-(1 << 31), 1 << 31) for _ in range(rank)]
    address, smem = rng.getrandbits(64), rng.getrandbits(24)
    mbarrier, size = rng.getrandbits(24), rng.getrandbits(21)
    array = driver.array(ctypes.c_int32, tuple(coords))
    expected = {"coords": coords + [0] * (driver.MAX_RANK - rank)}
    for made, fields in (
        (
            c.tma_tensor_request(Operation.TENSOR_STORE.value, address, smem, rank, array),
            {
                **expected,
                "operation": Operation.TENSOR_STORE.value,
                "global_address": address,
                "smem_address": smem,
                "rank": rank,
            },
        ),
        (
            c.tma_bulk_request(Operation.BULK_LOAD.value, address, smem, size),
            {
                "operation": Operation.BULK_LOAD.value,
                "global_address": address,
                "smem_address": smem,
                "size": size,
                "byte_mask": 0xFFFF,
            },
        ),
        (
            c.tma_group_request(Operation.WAIT_GROUP.value, rank, 3),
            {"operation": Operation.WAIT_GROUP.value, "thread": rank, "size": 3},
        ),
        (
            c.tma_barrier_request(BARRIER_OPERATIONS + 3, mbarrier, size),
            {"operation": BARRIER_OPERATIONS + 3, "mbarrier": mbarrier, "size": size},
        ),
        (
            c.tma_barrier_init(mbarrier, rank),
            {
                "operation": BARRIER_OPERATIONS,
                "mbarrier": mbarrier,
                "global_address": golden_mbarrier.init(rank),
            },
        ),
        (
            c.tma_barrier_wait(mbarrier, 3, size),
            {
                "operation": BARRIER_OPERATIONS + BarrierOp.TRY_WAIT_PARITY.value,
                "flags": {"notify": 1},
                "mbarrier": mbarrier,
                "size": 1,
                "coords": [size, 0, 0, 0, 0],
            },
        ),
    ):
        want = LAYOUT.const(fields)
        assert as_record(made) == want, f"seed {seed}: {bytes(made).hex()}"


def test_widths_of_records():
    assert Shape.cast(LAYOUT).width == 8 * RECORD_BYTES
    assert Shape.cast(Completion).width == 8 * COMPLETION_BYTES


RISCV = "riscv64-unknown-elf-gcc"


@pytest.mark.parametrize(
    "compiler",
    [
        ("gcc",),
        ("gcc", "-ffreestanding", "-DTMA_PLATFORM"),
        ("g++", "-x", "c++", "-include", "cstddef", "-fsyntax-only"),
        (RISCV, "-march=rv32imc", "-mabi=ilp32", "-ffreestanding"),
        (RISCV, "-march=rv64imac", "-mabi=lp64", "-mcmodel=medany", "-ffreestanding"),
    ],
    ids=" ".join,
)
def test_the_driver_compiles_without_a_warning(compiler, tmp_path):
    command, *options = compiler
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command} (Debian: gcc-riscv64-unknown-elf)")
    flags = [flag for flag in driver.FLAGS if command != "g++" or not flag.startswith("-std")]
    headers = command == "g++"
    names = ["tma.h"] if headers else driver.SOURCES
    for name in names:
        call = [command, *flags, *options, "-c", driver.FOLDER / name, "-o", tmp_path / "x.o"]
        result = subprocess.run(call, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
