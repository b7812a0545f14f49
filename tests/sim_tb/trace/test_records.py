"""Records of events: bytes, clocks that wrap, and files that are none."""

import random

import pytest
from amaranth.hdl import Const, Value

from hw.layouts.monitor import EventKind, EventRecord
from sim_tb.trace.records import RECORD_BYTES, Event, TraceError, decode, joined, read


def drawn(rng: random.Random, clock: int) -> Event:
    return Event(
        clock,
        rng.choice(list(EventKind)),
        rng.random() < 0.5,
        rng.random() < 0.5,
        *(rng.getrandbits(bits) for bits in (8, 16, 32, 32)),
    )


def test_a_record_has_the_layout_of_the_unit() -> None:
    event = Event(5, EventKind.OPENED, True, False, 3, 0x123, 0xDEADBEEF, 77)
    values = {"clock": 5, "kind": EventKind.OPENED, "store": 1, "gap": 0, "stream": 3}
    values |= {"slot": 0x123, "request_id": 0xDEADBEEF, "argument": 77}
    word = Const.cast(Value.cast(EventRecord.const(values))).value
    assert event.encode() == word.to_bytes(16, "little")
    assert RECORD_BYTES == 16
    assert joined([(word & (1 << 64) - 1, word >> 64)]) == event.encode()


@pytest.mark.parametrize("seed", range(3))
def test_events_come_back_in_the_order_of_their_clocks(seed: int) -> None:
    """Neighbours may be exchanged in the file, and the clock wraps several times."""
    rng = random.Random(seed)
    clock, events = rng.randrange(1 << 32), []
    for _ in range(200):
        events.append(drawn(rng, clock))
        clock += rng.choice([1, 2, 100, (1 << 31) - 300])
    raw = [event.encode() for event in events]
    for place in range(1, len(raw) - 1, 2):
        if events[place + 1].clock - events[place].clock < 200:
            raw[place], raw[place + 1] = raw[place + 1], raw[place]
    assert decode(b"".join(raw)) == events


def test_what_is_no_record_is_refused(tmp_path) -> None:
    with pytest.raises(TraceError, match="17 bytes: must be a multiple of 16"):
        decode(bytes(17))
    bad = bytearray(Event(1, EventKind.ENDED).encode())
    bad[4] = 63
    path = tmp_path / "events.bin"
    path.write_bytes(Event(1, EventKind.ENDED).encode() + bytes(bad))
    with pytest.raises(TraceError, match=f"{path}: record 1: kind = 63: must be from 0 to 11"):
        read(path)
    assert decode(b"") == []
