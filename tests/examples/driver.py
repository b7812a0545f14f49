"""The driver in C, as a library of this process: its types, and its functions."""

import ctypes
import subprocess
from ctypes import POINTER, c_char_p, c_int, c_int32, c_uint, c_uint8, c_uint16, c_uint32, c_uint64
from functools import cache, partial
from pathlib import Path

from hw.flow.cache import ROOT, cached, digest

FOLDER = ROOT / "examples" / "driver"
SOURCES = "tma.c", "tma_map.c"
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
MAX_RANK = 5
MAP_WORDS = 32


class Tensor(ctypes.Structure):
    """``struct tma_tensor``."""

    _fields_ = (
        ("global_address", c_uint64),
        ("global_dim", c_uint64 * MAX_RANK),
        ("global_strides", c_uint64 * (MAX_RANK - 1)),
        ("element_strides", c_uint32 * MAX_RANK),
        ("rank", c_uint32),
        ("data_type", c_uint32),
        ("interleave", c_uint32),
        ("swizzle", c_uint32),
        ("l2_promotion", c_uint32),
        ("oob_fill", c_uint32),
    )


class Request(ctypes.Structure):
    """``struct tma_request``."""

    _fields_ = (
        ("operation", c_uint8),
        ("flags", c_uint8),
        ("request_id", c_uint16),
        ("mode_and_rank", c_uint8),
        ("type_and_op", c_uint8),
        ("thread", c_uint16),
        ("global_address", c_uint64),
        ("smem_address", c_uint32),
        ("mbarrier", c_uint32),
        ("size", c_uint32),
        ("coords", c_int32 * MAX_RANK),
        ("im2col_info", c_uint16 * 3),
        ("byte_mask", c_uint16),
        ("cache_policy", c_uint64),
    )


class Completion(ctypes.Structure):
    """``struct tma_completion``."""

    _fields_ = (
        ("value", c_uint64),
        ("request_id", c_uint16),
        ("kind", c_uint8),
        ("code", c_uint8),
        ("detail", c_uint8),
        ("zero", c_uint8 * 2),
        ("phase", c_uint8),
    )


PROTOTYPES = {
    "tma_status_text": (c_char_p, c_int),
    "tma_encode_tiled": (c_int, POINTER(c_uint32), POINTER(Tensor), POINTER(c_uint32)),
    "tma_encode_im2col": (
        *(c_int, POINTER(c_uint32), POINTER(Tensor), POINTER(c_int32), POINTER(c_int32)),
        *(c_uint32, c_uint32),
    ),
    "tma_tensor_request": (Request, c_uint, c_uint64, c_uint32, c_uint, POINTER(c_int32)),
    "tma_bulk_request": (Request, c_uint, c_uint64, c_uint32, c_uint32),
    "tma_group_request": (Request, c_uint, c_uint, c_uint),
    "tma_barrier_init": (Request, c_uint32, c_uint32),
    "tma_barrier_request": (Request, c_uint, c_uint32, c_uint32),
    "tma_barrier_wait": (Request, c_uint32, c_uint, c_uint32),
}
"""Type of the result, and those of the parameters, of each function."""


def texts() -> list[str]:
    """Return the texts of all files of the driver."""
    return [path.read_text() for path in sorted(FOLDER.glob("*.[ch]"))]


@cache
def library() -> ctypes.CDLL:
    """Return the driver, compiled for this processor."""
    built = cached("driver", digest([*texts(), *FLAGS]), partial(_build))
    driver = ctypes.CDLL(str(built / "tma.so"))
    for name, (result, *parameters) in PROTOTYPES.items():
        function = getattr(driver, name)
        function.restype, function.argtypes = result, parameters
    return driver


def _build(directory: Path) -> None:
    command = ["gcc", *FLAGS, "-shared", "-fPIC", "-o", directory / "tma.so"]
    subprocess.run([*command, *(FOLDER / name for name in SOURCES)], check=True)


def tensor(**fields: int | tuple[int, ...]) -> Tensor:
    """Return a tensor; sequences may be shorter than the arrays, and element strides are 1."""
    made = Tensor(element_strides=(c_uint32 * MAX_RANK)(*[1] * MAX_RANK))
    for name, value in fields.items():
        if isinstance(value, tuple):
            getattr(made, name)[: len(value)] = value
        else:
            setattr(made, name, value)
    return made


def array(kind: type, values: tuple[int, ...]) -> ctypes.Array:
    """Return an array of C, with room for all dimensions."""
    return (kind * MAX_RANK)(*values)
