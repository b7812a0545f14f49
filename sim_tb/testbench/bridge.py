"""Python's calls of the testbench's C++ side (``dpi/``), for use inside the simulator only.

cocotb runs Python in the simulator's process, so both sides share memory. Arrays are passed as
pointers, and the caller must keep them alive. Every record and number that both sides define is
compared when a simulation starts, see ``check_layouts``.
"""

import ctypes
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim_tb.testbench.errors import LayoutError
from sim_tb.testbench.models import BACKGROUNDS, MEMORY_KINDS, PORTS, Timing

Bytes = NDArray[np.uint8]


class EventKind(IntEnum):
    """Events that C++ reports to Python. The docstrings explain the members of ``EventRecord``."""

    FAILURE = 0
    """A check of the C++ side failed."""
    REQUEST_ACCEPTED = 1
    """``id``: request id; ``a``: number of the request since reset."""
    ERROR_RECORD = 2
    """``id``: request id; ``a``, ``b``, ``c``, ``d``: code, dim, value and issuing CTA."""
    BARRIER_RESULT = 3
    """``id``: barrier command; ``a``, ``b``, ``c``, ``d``: done, waits, fault, state.

    It does not wake Python if the command waits, or if the command is quiet and has no fault.
    Python then reads it with the next event.
    """
    WAIT_END = 4
    """The end of a command that waited. ``id``: barrier command; ``a``, ``b``: done, fault."""
    PHASE_CHANGE = 5
    """``id``: offset of a watched barrier; ``a``: its word. It wakes Python only if the watch asks
    for that.
    """
    ALARM = 6
    """``id``: number of the alarm."""
    IDLE = 7
    """``id``: number of the wait for idleness."""
    FENCE_ACCEPTED = 8
    """``id``: descriptor prefetch or invalidation that the unit accepted."""
    GROUP_RESULT = 9
    """The end of a wait for bulk groups. ``id``: request id; ``a``: thread."""


class LogKind(IntEnum):
    """Transfers that can be recorded. The docstrings explain the members of ``LogRecord``."""

    LINE = 0
    """A line read was accepted. ``key``: line number; ``value``: tag."""
    RESPONSE = 1
    """A response was transferred. ``key``: line number; ``value``: tag."""
    BEAT = 2
    """A write of shared memory. ``key``: beat of the first valid lane; ``value``: mask of lanes."""
    ACCEPT = 3
    """A request was accepted. ``key``: request id; ``value``: its number since reset."""
    WORD = 4
    """A barrier's word was written. ``key``: offset; ``value``: the word."""
    FETCH = 5
    """A tensor map is fetched. ``key``: address."""
    PREFETCH = 6
    """A prefetch of a line was accepted. ``key``: line number."""
    HINT = 7
    """A line is read, prefetched or written. ``key``: cache policy; ``value``: L2 promotion."""
    READ = 8
    """A read of shared memory. ``key``: beat of the first valid lane; ``value``: mask of lanes."""
    STORE = 9
    """A store or reduction of a line was accepted. ``key``: line number; ``value``: pieces."""
    PERFORMED = 10
    """A store or reduction took effect in global memory. ``key``: line number; ``value``: tag."""
    STRAY = 11
    """An answer that belongs to no access is offered. ``key``: tag; ``value``: 1 of a write."""
    EVENT = 12
    """A record of the unit's event stream. ``key``, ``value``: its lower and upper 64 bits."""


class EventRecord(ctypes.Structure):
    """An event. ``EventKind`` explains ``id`` and ``a`` to ``d``."""

    _fields_ = [
        ("cycle", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
        ("c", ctypes.c_uint64),
        ("d", ctypes.c_uint64),
    ]


class LogRecord(ctypes.Structure):
    """A recorded transfer. ``LogKind`` explains ``key`` and ``value``."""

    _fields_ = [
        ("cycle", ctypes.c_uint64),
        ("key", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    ]


class TimingRecord(ctypes.Structure):
    """A ``Timing`` of a memory. ``in_order``: answers keep the order of the requests."""

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
    def of(cls, timing: Timing, in_order: bool) -> "TimingRecord":
        """Return the record of ``timing``."""
        limit = 0xFFFFFFFF if timing.in_flight is None else timing.in_flight
        return cls(
            timing.low, timing.high, timing.period, timing.window, in_order, limit, timing.bandwidth
        )


class RequestRecord(ctypes.Structure):
    """A request, with the fields of the request port.

    ``override_kind`` is 0 without an override, 1 with that of an address, and 2 with that of
    extents and strides as well.

    ``not_before``, here and below, is the first cycle in which it may go to the unit.
    """

    _fields_ = [
        ("not_before", ctypes.c_uint64),
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
        ("ignore_first", ctypes.c_uint32),
        ("ignore_last", ctypes.c_uint32),
        ("report", ctypes.c_uint32),
        ("override_address", ctypes.c_uint64),
        ("override_kind", ctypes.c_uint32),
        ("override_upper", ctypes.c_uint32),
        ("override_lower", ctypes.c_uint32 * 4),
        ("override_dim", ctypes.c_uint8 * 8),
    ]


class BarrierCommandRecord(ctypes.Structure):
    """A barrier command. ``quiet``: its result is reported only with the next event, or if it is a
    fault.
    """

    _fields_ = [
        ("not_before", ctypes.c_uint64),
        ("state", ctypes.c_uint64),
        ("op", ctypes.c_uint32),
        ("address", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("time_limit", ctypes.c_uint32),
        ("v1", ctypes.c_uint32),
        ("quiet", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
    ]


class RemoteCommandRecord(ctypes.Structure):
    """An operation on a barrier of the CTA ``holder``."""

    _fields_ = [
        ("not_before", ctypes.c_uint64),
        ("holder", ctypes.c_uint32),
        ("op", ctypes.c_uint32),
        ("address", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("request_id", ctypes.c_uint32),
    ]


class RemoteStoreRecord(ctypes.Structure):
    """``st.async`` or ``red.async`` of the ``words`` (a mask) of a piece of 16 bytes."""

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


RECORDS: tuple[type[ctypes.Structure], ...] = (
    EventRecord,
    LogRecord,
    TimingRecord,
    RequestRecord,
    BarrierCommandRecord,
    RemoteCommandRecord,
    RemoteStoreRecord,
)
NUMBERS: dict[str, dict[str, int]] = {
    "Port": {name: number for number, name in enumerate(PORTS)},
    "EventKind": {kind.name: kind.value for kind in EventKind},
    "LogKind": {kind.name: kind.value for kind in LogKind},
    "MemoryKind": {name: number for number, name in enumerate(MEMORY_KINDS)},
    "Background": {name.upper(): number for number, name in enumerate(BACKGROUNDS)},
}
"""Numbers that Python and C++ share, by enumeration and name."""

DESIGN_NUMBERS = {
    "Operation": (
        "TENSOR_PREFETCH",
        "TENSOR_STORE",
        "COMMIT_GROUP",
        "WAIT_GROUP",
        "WAIT_GROUP_READ",
        "DSMEM_COPY",
        "DSMEM_REDUCE",
    ),
    "AccessMode": ("TILE", "IM2COL", "IM2COL_W", "IM2COL_W_128"),
    "BarrierOp": ("TRY_WAIT_PARITY", "TRY_WAIT"),
    "ErrorCode": ("WRONG_TAG",),
}
"""Enumerations of the design, and their members that the C++ side depends on."""


def check_layouts(
    cpp: str,
    design: Mapping[str, Mapping[str, int]],
    records: Iterable[type[ctypes.Structure]] = RECORDS,
    numbers: Mapping[str, Mapping[str, int]] = NUMBERS,
) -> None:
    """Compare the records and numbers of Python with those of C++.

    Parameters
    ----------
    cpp : str
        Table of the C++ side: a row for each number, ``offset of RequestRecord.coords 24``.
    design : mapping
        Enumerations of the simulated design: name to member to value.
    records : iterable of structures
        Records of Python.
    numbers : mapping
        Enumerations of Python.

    Raises
    ------
    LayoutError
        Names each size, offset or number that differs, with both values.
    """
    ours: dict[str, int] = {}
    for record in records:
        ours[f"size of {record.__name__}"] = ctypes.sizeof(record)
        for name, *_ in record._fields_:
            member = getattr(record, name)
            ours[f"offset of {record.__name__}.{name}"] = member.offset
            ours[f"size of {record.__name__}.{name}"] = member.size
    chosen = {
        enum: {member: design[enum][member] for member in members}
        for enum, members in DESIGN_NUMBERS.items()
    }
    for enum, members in {**numbers, **chosen}.items():
        ours |= {f"number of {enum}.{name}": number for name, number in members.items()}
    theirs = {}
    for row in cpp.splitlines():
        what, _, number = row.rpartition(" ")
        theirs[what] = int(number)
    rows = [
        f"  {what}: {ours.get(what, 'missing')} in Python, {theirs.get(what, 'missing')} in C++"
        for what in dict.fromkeys([*ours, *theirs])
        if ours.get(what) != theirs.get(what)
    ]
    if rows:
        head = "sim_tb/testbench/bridge.py and sim_tb/testbench/dpi/bridge.hpp disagree:"
        raise LayoutError("\n".join([head, *rows]))


_U32, _U64, _F64, _PTR = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p
_SHARED: dict[str, tuple[list[Any], Any]] = {
    "clock": ([], None),
    "layout_table": ([], ctypes.c_char_p),
    "start": ([_U32, _U32], None),
    "background": ([_U32], None),
    "region": ([_U64, _U64, _PTR], None),
    "remove": ([_U64], None),
}
"""Functions of the whole testbench: arguments and result."""

_PER_SM: dict[str, tuple[list[Any], Any]] = {
    "reset": ([*(_U32,) * 6, _PTR, _U64], None),
    "stall": ([_U32, _F64, _F64, _U64], None),
    "strays": ([_F64, _U64], None),
    "delay": ([_U64, _U64], None),
    "timing": ([_U32, ctypes.POINTER(TimingRecord), _U64], None),
    "request": ([ctypes.POINTER(RequestRecord)], None),
    "prefetch": ([_U64, _U32], None),
    "invalidate": ([_U64, _U32, _U32], None),
    "command": ([ctypes.POINTER(BarrierCommandRecord)], None),
    "remote_command": ([ctypes.POINTER(RemoteCommandRecord)], None),
    "remote_store": ([ctypes.POINTER(RemoteStoreRecord)], None),
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
"""Functions of one SM: arguments after the number of the SM, and result."""


class Bridge:
    """The functions ``testbench_<name>`` of the running simulator, for one SM, as attributes.

    Members
    -------
    not_before : int
        First cycle in which requests and barrier commands that are queued from now on may go to the
        unit. They go in the order of these cycles.
    """

    def __init__(self, sm: int = 0) -> None:
        self.not_before = 0
        library = ctypes.CDLL(None)
        self._calls: dict[str, Callable[..., Any]] = {}
        for name, (arguments, result) in _SHARED.items():
            function = self._calls[name] = library[f"testbench_{name}"]
            function.argtypes, function.restype = arguments, result
        for name, (arguments, result) in _PER_SM.items():
            function = library[f"testbench_{name}"]
            function.argtypes, function.restype = [_U32, *arguments], result
            self._calls[name] = partial(function, sm)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._calls[name]

    def events(self) -> list[EventRecord]:
        """Return the events since the last call."""
        pointer = ctypes.c_void_p()
        count = self._calls["events"](ctypes.byref(pointer))
        if not count or pointer.value is None:
            return []
        raw = ctypes.string_at(pointer.value, count * ctypes.sizeof(EventRecord))
        return list((EventRecord * count).from_buffer_copy(raw))

    def log(self, kind: LogKind) -> NDArray[Any]:
        """Return a copy of the log of ``kind``: an array of the fields of ``LogRecord``."""
        dtype = np.dtype(LogRecord)
        pointer = ctypes.c_void_p()
        count = self._calls["log"](kind, ctypes.byref(pointer))
        if not count or pointer.value is None:
            return np.empty(0, dtype)
        raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer.value)
        return np.frombuffer(raw, dtype).copy()


def pointer(array: Bytes) -> int:
    """Return the address of ``array``'s first byte.

    Raises
    ------
    ValueError
        If the array is not contiguous and writable.
    """
    if not array.flags.carray:
        raise ValueError("the array must be contiguous and writable")
    return int(array.ctypes.data)
