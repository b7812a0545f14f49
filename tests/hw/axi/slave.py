"""AXI4 slave in Python: answers the reads and writes of a component, and checks each of them."""

import random
from collections import deque
from dataclasses import dataclass, field

from hw.layouts.axi import ATOMIC_STORE, AtomicOp, Burst, Response
from hw.params import TmaParams

PAGE = 4096
"""Aligned bytes that no burst leaves."""


def content(address: int) -> int:
    """Return the byte of memory at ``address`` before any write."""
    return (address * 37 ^ address >> 7) & 0xFF


@dataclass
class Access:
    """A burst that was asked for, and the responses of its beats."""

    number: int
    address: int
    beats: int
    size: int
    user: int
    atop: int = 0
    resps: list[int] = field(default_factory=list)

    def lanes(self, beat: int, width: int) -> tuple[int, range]:
        """Return the address of a beat, and the lanes of its bytes."""
        address = self.address + beat * self.size
        return address, range(address % width, address % width + self.size)


class Slave:
    """Answers of a memory: those of one id in order, those of different ids in any order.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.
    seed : int
    fails : float
        Share of the beats and of the writes that fail.
    """

    def __init__(self, params: TmaParams, seed: int, fails: float = 0.0) -> None:
        self.params = params
        self.rng = random.Random(seed)
        self.fails = fails
        self.memory: dict[int, int] = {}
        self.reads: list[Access] = []
        self.writes: list[Access] = []
        self._seen = {"ar": 0, "aw": 0, "w": 0}
        self._pending: dict[int, deque[Access]] = {}
        self._beats: deque = deque()
        self._answers: list[Access] = []
        self._open = 0  # writes whose data has not all come

    def forget(self, number: int) -> None:
        """Forget the writes with an id, which have all been answered."""
        kept = [write for write in self.writes[: self._open] if write.number != number]
        self.writes[: self._open], self._open = kept, len(kept)

    def byte(self, address: int) -> int:
        """Return the byte at ``address``."""
        return self.memory.get(address, content(address))

    def read(self, address: int, size: int) -> int:
        """Return bytes, the first one lowest."""
        return sum(self.byte(address + n) << 8 * n for n in range(size))

    def response(self) -> Response:
        """Return the response of a beat or of a write."""
        if self.rng.random() < self.fails:
            return self.rng.choice((Response.SLVERR, Response.DECERR))
        return self.rng.choice((Response.OKAY, Response.OKAY, Response.EXOKAY))

    def _burst(self, request) -> Access:
        """Return a burst, and check that it is one that the port may ask for."""
        assert request.burst is Burst.INCR
        assert (request.cache, request.prot) == (self.params.axi_cache, self.params.axi_prot)
        size, beats = 1 << request.size, request.len + 1
        assert size <= self.params.axi_bytes
        assert beats == 1 or size == self.params.axi_bytes
        assert request.addr % (size * beats) == 0
        assert request.addr // PAGE == (request.addr + size * beats - 1) // PAGE
        atop = request.atop if self.params.axi_atomics and hasattr(request, "atop") else 0
        assert not atop or (atop >> 3 == ATOMIC_STORE >> 3 and beats == 1 and size in (4, 8))
        return Access(request.id, request.addr, beats, size, request.user.cache_policy, atop)

    def feed(self, run) -> dict[str, list]:
        """Return the beats of reads and the answers of writes that begin in this clock."""
        found = {}
        if "ar" in run.payloads:
            self._take_reads(run)
            found["r"] = self._read_beats()
        if "aw" in run.payloads:
            self._take_writes(run)
            found["b"] = self._write_answers()
        return found

    def _new(self, run, channel: str) -> list:
        new = run.payloads[channel][self._seen[channel] :]
        self._seen[channel] += len(new)
        return new

    def _take_reads(self, run) -> None:
        for request in self._new(run, "ar"):
            burst = self._burst(request)
            self.reads.append(burst)
            self._pending.setdefault(burst.number, deque()).append(burst)

    def _read_beats(self) -> list[dict]:
        """Return the next beat of any id: beats of different ids are mixed."""
        if not self._pending:
            return []
        number = self.rng.choice(list(self._pending))
        burst = self._pending[number][0]
        width = self.params.axi_bytes
        address, lanes = burst.lanes(len(burst.resps), width)
        data = self.rng.getrandbits(8 * width)
        for at, lane in enumerate(lanes):
            data &= ~(0xFF << 8 * lane)
            data |= self.byte(address + at) << 8 * lane
        resp = self.response()
        burst.resps.append(resp.value)
        last = len(burst.resps) == burst.beats
        if last:
            self._pending[number].popleft()
            if not self._pending[number]:
                del self._pending[number]
        return [{"id": number, "data": data, "resp": resp, "last": last}]

    def _take_writes(self, run) -> None:
        self.writes += [self._burst(request) for request in self._new(run, "aw")]
        self._beats += self._new(run, "w")
        width = self.params.axi_bytes
        while self._beats and self._open < len(self.writes):
            beat, burst = self._beats.popleft(), self.writes[self._open]
            address, lanes = burst.lanes(len(burst.resps), width)
            assert beat.strb & ~sum(1 << lane for lane in lanes) == 0, "a strobe of another lane"
            if burst.atop:
                assert beat.strb == sum(1 << lane for lane in lanes), "a part of an element"
                self._combine(burst, beat.data >> 8 * lanes[0])
            for at, lane in enumerate(() if burst.atop else lanes):
                if beat.strb >> lane & 1:
                    self.memory[address + at] = beat.data >> 8 * lane & 0xFF
            burst.resps.append(0)
            assert beat.last == (len(burst.resps) == burst.beats)
            if beat.last:
                self._open += 1
                self._answers.append(burst)

    def _combine(self, burst: Access, source: int) -> None:
        """Perform an AtomicStore."""
        mask = (1 << 8 * burst.size) - 1
        old, new = self.read(burst.address, burst.size), source & mask
        sign = 1 << 8 * burst.size - 1
        result = {
            AtomicOp.ADD: old + new,
            AtomicOp.CLR: old & ~new,
            AtomicOp.EOR: old ^ new,
            AtomicOp.SET: old | new,
            AtomicOp.SMAX: max(old ^ sign, new ^ sign) ^ sign,
            AtomicOp.SMIN: min(old ^ sign, new ^ sign) ^ sign,
            AtomicOp.UMAX: max(old, new),
            AtomicOp.UMIN: min(old, new),
        }[AtomicOp(burst.atop & 7)]
        for at in range(burst.size):
            self.memory[burst.address + at] = result >> 8 * at & 0xFF

    def _write_answers(self) -> list[dict]:
        if not self._answers:
            return []
        burst = self._answers.pop(self.rng.randrange(len(self._answers)))
        burst.resps = [self.response().value]
        return [{"id": burst.number, "resp": burst.resps[0]}]
