"""The boxes with which the testbench compares each access of a unit are those of the definition."""

import ctypes
import subprocess
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from golden import AccessMode, Arch
from golden.definition import swizzled, unit_bits, units
from golden.descriptor import Descriptor
from golden.request import TensorRequest, as_descriptor
from hw.layouts.isa import Operation
from sim_tb.testbench.bridge import RequestRecord
from sim_tb.testbench.requests import Requests
from tests.golden.random_requests import MODES as ALL_MODES
from tests.golden.random_requests import random_case

DPI = Path(__file__).parents[3] / "sim_tb" / "testbench" / "dpi"
NO_BOX = ("bulk", "dsmem", "sm_107a_prefetch", "sm_107a_report")
MODES = [name for name in ALL_MODES if not name.startswith(NO_BOX)]
BOXES = 10
"""Boxes of each mode with a piece inside the tensor that are compared."""
ROOM = 1 << 16


class _Recorder:
    """Bridge and request ids of ``Requests`` that keep the record of the last request."""

    not_before = 0

    def request(self, reference: object) -> None:
        self.record = RequestRecord.from_buffer_copy(reference._obj)  # type: ignore[attr-defined]

    def choose(self, request_id: int | None) -> int:
        return request_id or 0


def record(request: TensorRequest) -> RequestRecord:
    """Return the record that goes to the request port."""
    enums = {
        "AccessMode": {mode.name: mode.value for mode in AccessMode},
        "Operation": {operation.name: operation.value for operation in Operation},
    }
    recorder = _Recorder()
    parameters: defaultdict[str, int] = defaultdict(lambda: 1, mask_bits=32)
    Requests(recorder, None, recorder, 0, enums, parameters).submit(request)
    return recorder.record


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("box") / "box.so"
    source = Path(__file__).with_name("box_pieces.cpp")
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *flags, f"-I{DPI}", source, "-o", library], check=True)
    functions = ctypes.CDLL(str(library))
    functions.box_pieces.restype = ctypes.c_size_t
    functions.box_shared.restype = ctypes.c_uint64
    return functions


def of_the_testbench(box: ctypes.CDLL, request: TensorRequest) -> tuple[set[int], int]:
    """Return the pieces of a box, as addresses, and the bytes that it spans in shared memory."""
    words = np.array(as_descriptor(request.tensor_map).words, np.uint32)
    arguments = words.ctypes.data_as(ctypes.c_void_p), ctypes.byref(record(request))
    pieces = np.zeros(ROOM, np.uint64)
    count = box.box_pieces(
        *arguments, pieces.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(ROOM)
    )
    assert count <= ROOM
    return set(pieces[:count].tolist()), box.box_shared(*arguments)


def of_the_definition(request: TensorRequest) -> tuple[set[int], int]:
    """Return the pieces of a box, and the bytes of shared memory up to the last one of its rows."""
    plain = replace(request, tensor_map=request.descriptor, override=None)
    bits = unit_bits(request.descriptor)
    swizzle = request.descriptor.swizzle
    assert swizzle is not None
    pieces, last = set(), 0
    for unit in units(plain, 0):
        size = max(bits // 8, 1)
        last = max(last, *(swizzled(unit.smem // 8 + byte, swizzle) + 1 for byte in range(size)))
        if unit.inside:
            ends = unit.gmem // 128, (unit.gmem + bits - 1) // 128
            pieces |= {16 * piece % (1 << 64) for piece in range(ends[0], ends[1] + 1)}
    return pieces, last


def with_ignored_bits(rng: np.random.Generator, descriptor: Descriptor) -> Descriptor:
    """Return a map with random values in w2[22:19], which Hopper ignores."""
    words = list(descriptor.words)
    words[2] |= int(rng.integers(16)) << 19
    return Descriptor(tuple(words))


@pytest.mark.parametrize("mode", MODES)
def test_pieces_are_those_of_the_definition(box: ctypes.CDLL, mode: str) -> None:
    """A store of ``im2col::w`` ends at its first pixel outside: it may have fewer pieces."""
    rng = np.random.default_rng(crc32(mode.encode()))
    compared = 0
    while compared < BOXES:
        case = random_case(rng, mode)
        assert isinstance(case.request, TensorRequest)
        given = as_descriptor(case.request.tensor_map)
        if case.arch is Arch.SM_90A:
            given = with_ignored_bits(rng, given)
        descriptor = given.for_arch(case.arch)
        pieces, span = of_the_testbench(box, replace(case.request, tensor_map=given))
        request = replace(case.request, tensor_map=descriptor)
        expected, last = of_the_definition(request)
        if mode == "sm_100a_im2col_w_store":
            assert pieces >= expected, request
        else:
            assert pieces == expected, request
        assert last <= span, request
        compared += bool(pieces)
