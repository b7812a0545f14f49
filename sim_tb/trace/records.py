"""Records of events, 16 bytes each, as the port ``trace`` of a unit gives them and hosts keep them.

The bytes of a record are in the order of a little-endian processor.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data
from numpy.typing import NDArray

from hw.layouts.monitor import CLOCK_BITS, EventKind, EventRecord

RECORD_BYTES = Shape.cast(EventRecord).width // 8

FIELDS: dict[str, data.Field] = {str(name): field for name, field in EventRecord.as_shape()}
"""Place and shape of each field of a record, by name."""


class TraceError(ValueError):
    """A file is no sequence of event records; the text says where."""


@dataclass(frozen=True)
class Event:
    """An event of a unit; see ``EventRecord``.

    Parameters
    ----------
    clock : int
        Clocks since the reset of the unit; it does not wrap.
    kind : EventKind
    is_store, has_gap : bool
    stream, slot, request_id, argument : int
    """

    clock: int
    kind: EventKind
    is_store: bool = False
    has_gap: bool = False
    stream: int = 0
    slot: int = 0
    request_id: int = 0
    argument: int = 0

    def encode(self) -> bytes:
        """Return the record of the event."""
        values = {
            "clock": self.clock % (1 << CLOCK_BITS),
            "kind": self.kind.value,
            "store": int(self.is_store),
            "gap": int(self.has_gap),
            "stream": self.stream,
            "slot": self.slot,
            "request_id": self.request_id,
            "argument": self.argument,
        }
        word: int = sum(value << FIELDS[name].offset for name, value in values.items())
        return word.to_bytes(RECORD_BYTES, "little")


def decode(raw: bytes) -> list[Event]:
    """Return the events of records, in the order of their clocks.

    The clocks of records wrap. Two neighbouring records are less than half a wrap apart.

    Raises
    ------
    TraceError
        If ``raw`` is no multiple of a record, or a record has no kind that there is.
    """
    if len(raw) % RECORD_BYTES:
        raise TraceError(f"{len(raw)} bytes: must be a multiple of {RECORD_BYTES}")
    events = []
    clock: int | None = None
    wrap = 1 << CLOCK_BITS
    for number in range(len(raw) // RECORD_BYTES):
        record = raw[number * RECORD_BYTES : (number + 1) * RECORD_BYTES]
        word = int.from_bytes(record, "little")
        value = {
            name: word >> field.offset & (1 << Shape.cast(field.shape).width) - 1
            for name, field in FIELDS.items()
        }
        try:
            kind = EventKind(value["kind"])
        except ValueError:
            kinds = max(kind.value for kind in EventKind)
            raise TraceError(
                f"record {number}: kind = {value['kind']}: must be from 0 to {kinds}"
            ) from None
        if clock is None:
            clock = value["clock"]
        clock += (value["clock"] - clock + wrap // 2) % wrap - wrap // 2
        fields = (value[name] for name in ("stream", "slot", "request_id", "argument"))
        events.append(Event(clock, kind, bool(value["store"]), bool(value["gap"]), *fields))
    return sorted(events, key=lambda event: event.clock)


def read(path: Path) -> list[Event]:
    """Return the events of a file of records.

    Raises
    ------
    OSError
        If the file cannot be read.
    TraceError
        As ``decode``; the text begins with the path.
    """
    try:
        return decode(path.read_bytes())
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error


def joined(halves: Iterable[tuple[int, int]] | NDArray[np.uint64]) -> bytes:
    """Return records from their lower and upper 64 bits."""
    return b"".join(
        (int(low) | int(high) << 64).to_bytes(RECORD_BYTES, "little") for low, high in halves
    )
