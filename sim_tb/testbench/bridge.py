"""The bench's C++ side (``dpi/``) as Python calls; usable inside the simulator only.

cocotb's Python runs in the simulator's process, so that both sides share memory: arrays are handed
over by pointer and must be kept alive by the caller.
"""

import ctypes
import struct
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim_tb.testbench.models import Memory

Bytes = NDArray[np.uint8]


class EventKind(IntEnum):
    """What the bench tells Python about; see ``EVENT_FIELDS`` for what each carries."""

    FAILURE = 0
    ACCEPTED = 1
    """id: of the request; a: its number since reset."""
    REFUSED = 2
    """An error record. id: of the request; a, b, c, d: code, dim, value, issuer."""
    ANSWERED = 3
    """id: of the barrier command; a, b, c, d: done, waits, fault, state.

    Comes with the next event, and wakes nobody, if the command waits; or if it is a quiet one, and
    there is no fault.
    """
    WAIT_OVER = 4
    """A command that waits has ended. id: of the command; a, b: done, fault."""
    PHASE = 5
    """id: offset of a watched barrier whose phase changed; a: its word. Wakes nobody unless it is
    awaited.
    """
    ALARM = 6
    IDLE = 7
    FENCED = 8
    """id: of the prefetch or invalidation that the unit took."""
    GROUP_DONE = 9
    """A wait for bulk groups is over. id: its request_id; a: the thread."""


class LogKind(IntEnum):
    """What can be recorded clock by clock; see ``LOG`` for what each holds."""

    LINE = 0
    """A line read was accepted. key: line number; value: tag."""
    RESPONSE = 1
    """A response was taken. key: line number; value: tag."""
    BEAT = 2
    """A write to shared memory. key: beat of the first valid lane; value: mask of lanes."""
    ACCEPT = 3
    """A request was accepted. key: request_id; value: its number since reset."""
    WORD = 4
    """A barrier's word was written. key: offset; value: the word."""
    FETCH = 5
    """A tensor map is fetched. key: address."""
    PREFETCH = 6
    """A prefetch of a line was accepted. key: line number; value: 0."""
    HINT = 7
    """With each line read, prefetched or written. key: cache policy; value: L2 promotion."""
    READ = 8
    """A read of shared memory. key: beat of the first valid lane; value: mask of lanes."""
    STORE = 9
    """A write or reduction of a line was accepted. key: line number; value: pieces written."""
    PERFORMED = 10
    """It took effect. key: line number; value: tag."""


EVENT = struct.Struct("=QIIQQQQ")
EVENT_FIELDS = ("cycle", "kind", "id", "a", "b", "c", "d")
LOG = np.dtype([("cycle", "u8"), ("key", "u8"), ("value", "u8")])


class Timing(ctypes.Structure):
    """``bench::Timing``."""

    _fields_ = [
        ("low", ctypes.c_uint32),
        ("high", ctypes.c_uint32),
        ("period", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
        ("in_order", ctypes.c_uint32),
        ("in_flight", ctypes.c_uint32),
        ("bandwidth", ctypes.c_double),
    ]

    @classmethod
    def of(cls, memory: Memory, in_order: bool) -> "Timing":
        """The C++ form of ``memory``."""
        limit = 0xFFFFFFFF if memory.in_flight is None else memory.in_flight
        return cls(
            memory.low, memory.high, memory.period, memory.window, in_order, limit, memory.bandwidth
        )


class Request(ctypes.Structure):
    """``bench::Request``; ``at``, here and below, is the cycle before which it does not leave."""

    _fields_ = [
        ("at", ctypes.c_uint64),
        ("global_address", ctypes.c_uint64),
        ("cache_policy", ctypes.c_uint64),
        ("coords", ctypes.c_int32 * 5),
        ("im2col_info", ctypes.c_uint16 * 4),
        ("operation", ctypes.c_uint32),
        ("request_id", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("smem_address", ctypes.c_uint32),
        ("mbarrier", ctypes.c_uint32),
        ("multicast", ctypes.c_uint32),
        ("cta_mask", ctypes.c_uint32),
        ("dst_cta", ctypes.c_uint32),
        ("mbarrier_cta", ctypes.c_uint32),
        ("cta_group_2", ctypes.c_uint32),
        ("reduction_op", ctypes.c_uint32),
        ("element_type", ctypes.c_uint32),
        ("byte_mask", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("joins_group", ctypes.c_uint32),
        ("groups", ctypes.c_uint32),
    ]


class Command(ctypes.Structure):
    """``bench::Command``."""

    _fields_ = [
        ("at", ctypes.c_uint64),
        ("state", ctypes.c_uint64),
        ("op", ctypes.c_uint32),
        ("address", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("time_limit", ctypes.c_uint32),
        ("v1", ctypes.c_uint32),
        ("quiet", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
    ]


class RemoteCommand(ctypes.Structure):
    """``bench::RemoteCommand``."""

    _fields_ = [
        ("at", ctypes.c_uint64),
        ("holder", ctypes.c_uint32),
        ("op", ctypes.c_uint32),
        ("address", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("request_id", ctypes.c_uint32),
    ]


class RemoteStore(ctypes.Structure):
    """``bench::RemoteStore``."""

    _fields_ = [
        ("request_id", ctypes.c_uint32),
        ("dst_cta", ctypes.c_uint32),
        ("address", ctypes.c_uint32),
        ("mbarrier", ctypes.c_uint32),
        ("reduces", ctypes.c_uint32),
        ("op", ctypes.c_uint32),
        ("element_type", ctypes.c_uint32),
        ("words", ctypes.c_uint32),
        ("data", ctypes.c_uint8 * 16),
    ]


_U32, _U64, _F64, _PTR = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p
_SHARED: dict[str, list[Any]] = {
    "clock": [],
    "start": [_U32, _U32],
    "background": [_U32],
    "region": [_U64, _U64, _PTR],
    "remove": [_U64],
}
"""Of the clock and global memory: arguments."""

_OF_AN_SM: dict[str, tuple[list[Any], Any]] = {
    "reset": ([_U32, _U32, _U32, _PTR, _U64], None),
    "stall": ([_U32, _F64, _F64, _U64], None),
    "timing": ([_U32, ctypes.POINTER(Timing), _U64], None),
    "request": ([ctypes.POINTER(Request)], None),
    "prefetch": ([_U64, _U32], None),
    "invalidate": ([_U64, _U32, _U32], None),
    "command": ([ctypes.POINTER(Command)], None),
    "remote_command": ([ctypes.POINTER(RemoteCommand)], None),
    "remote_store": ([ctypes.POINTER(RemoteStore)], None),
    "watch": ([_U32, _U32], None),
    "alarm": ([_U64, _U32], None),
    "idle": ([_U64, _U32, _U32], None),
    "wake_on": ([_U32], None),
    "log_kinds": ([_U32], None),
    "events": ([ctypes.POINTER(_PTR)], _U64),
    "log": ([_U32, ctypes.POINTER(_PTR)], _U64),
    "clear_log": ([_U32], None),
    "cycle": ([], _PTR),
    "failure": ([], ctypes.c_char_p),
    "ledger": ([], ctypes.c_char_p),
}
"""Arguments behind the number of the SM, and result."""


class Bridge:
    """The functions ``bench_<name>`` of the running simulator, for one SM, as attributes."""

    def __init__(self, sm: int = 0) -> None:
        library = ctypes.CDLL(None)
        self._calls: dict[str, Callable[..., Any]] = {}
        for name, arguments in _SHARED.items():
            function = self._calls[name] = library[f"bench_{name}"]
            function.argtypes, function.restype = arguments, None
        for name, (arguments, result) in _OF_AN_SM.items():
            function = library[f"bench_{name}"]
            function.argtypes, function.restype = [_U32, *arguments], result
            self._calls[name] = partial(function, sm)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._calls[name]

    def events(self) -> list[dict[str, int]]:
        """What happened since the last call: of each event, its value by ``EVENT_FIELDS``."""
        pointer = ctypes.c_void_p()
        count = self._calls["events"](ctypes.byref(pointer))
        if not count or pointer.value is None:
            return []
        raw = ctypes.string_at(pointer.value, count * EVENT.size)
        return [dict(zip(EVENT_FIELDS, event, strict=True)) for event in EVENT.iter_unpack(raw)]

    def records(self, name: str, dtype: np.dtype[Any], *arguments: int) -> NDArray[Any]:
        """A copy of the records that ``log`` points at."""
        pointer = ctypes.c_void_p()
        count = self._calls[name](*arguments, ctypes.byref(pointer))
        if not count or pointer.value is None:
            return np.empty(0, dtype)
        raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer.value)
        return np.frombuffer(raw, dtype).copy()


def pointer(array: Bytes) -> int:
    """The address of ``array``'s first byte; it must be contiguous and writable."""
    if not array.flags.carray:
        raise ValueError("the array must be contiguous and writable")
    return int(array.ctypes.data)
