"""Front end for hosts: the rules of an AXI4-Lite slave, and of rings of records.

The rules of AXI4-Lite are those of the specification for a slave: an offered payload stays as it is
until it is taken; each write, an address and its data, and each read has one answer, and none comes
before them. With it, no access is lost, and each has its address, its data and its answer.
"""

from collections.abc import Iterable

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)

from hw.host.completion_ring import CompletionRing
from hw.host.lite_port import LitePort
from hw.host.request_ring import RECORDS, RequestRing
from hw.layouts.axi import Response
from hw.layouts.host import (
    COMPLETION_BYTES,
    RECORD_BYTES,
    BusAccess,
    BusAnswer,
    Completion,
    HostError,
    completion_write_layout,
)
from hw.params import TmaParams
from tests.formal.inside import Inside, inside
from tests.formal.proof import Bug, Proof
from tests.formal.queue import follow_the_level
from tests.formal.streams import hold, offer

PARAMS = TmaParams(
    line_bytes=16,
    address_bits=32,
    tags=2,
    requests_in_flight=2,
    request_id_bits=2,
    threads=2,
    streams=1,
    axi_data_bits=64,
    host=True,
)

COUNT = 6
"""Width of the transfer counters; fewer payloads are under way than they count."""

LARGEST = 3
"""Largest size of a ring, as a power of two."""


def count(m: Module, name: str, event: Value) -> Signal:
    """Return the number of events so far, modulo ``2**COUNT``."""
    number = Signal(COUNT, name=name)
    m.d.sync += number.eq(number + event)
    return number


def same(value: Value, other: Value) -> Value:
    """Return whether two counts are equal."""
    return value[:COUNT] == other[:COUNT]


def fires(port) -> Value:
    """Return whether a transfer happens."""
    return port.valid & port.ready


def has_response(payload, answer) -> Value:
    """Return whether the response of B or R is that of an answer."""
    return Mux(answer.error, payload.resp == Response.SLVERR, payload.resp == Response.OKAY)


class LiteSpec(Elaboratable):
    """Read n, and write n, are one access each, whose answer is answer n of R, and of B."""

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = LitePort()
        here = inside(dut)
        for number, port in enumerate((dut.aw, dut.w, dut.ar, dut.answer)):
            offer(m, port)
            hold(m, port, f"in_{number}", Assume)
        for number, port in enumerate((dut.b, dut.r, dut.access)):
            m.d.comb += port.ready.eq(AnySeq(1))
            hold(m, port, f"out_{number}", Assert)
        m.d.comb += Assume(~ResetSignal())

        levels = {}  # of the registers of the port: payloads that wait
        contents = {}
        for name in "aw", "w", "ar", "accesses", "writes", "reads":
            state = inside(getattr(here, name if name.endswith("s") else f"{name}_buffer"))
            levels[name], contents[name] = state.signal("valid"), state.signal("payload")
        access = BusAccess(contents["accesses"])
        is_open, is_write = here.is_open, here.is_write

        came = {name: count(m, f"{name}_came", fires(getattr(dut, name))) for name in
                ("aw", "w", "ar")}  # fmt: skip
        left = {name: count(m, f"{name}_left", fires(getattr(dut, name))) for name in ("b", "r")}
        kinds = {"writes": is_write, "reads": ~is_write}
        asked, answered = {}, {}
        for name, is_kind in kinds.items():
            is_access = dut.access.p.is_write if name == "writes" else ~dut.access.p.is_write
            asked[name] = count(m, f"{name}_asked", fires(dut.access) & is_access)
            answered[name] = count(m, f"{name}_answered", fires(dut.answer) & is_kind)
        waits = Signal()  # an access was taken, and not answered
        with m.If(fires(dut.access)):
            m.d.sync += waits.eq(1)
        with m.Elif(fires(dut.answer)):
            m.d.sync += waits.eq(0)
        m.d.comb += [
            Assume(~dut.answer.valid | waits),
            Assert(is_open == ~(levels["accesses"] | waits)),
            Assert(~(levels["accesses"] & waits)),
            Assert(~levels["accesses"] | (access.is_write == is_write)),
        ]

        # One access for each write and read, one answer for each access, none before.
        for name, channels, response in (("writes", ("aw", "w"), "b"), ("reads", ("ar",), "r")):
            is_first = levels["accesses"] & (access.is_write == (name == "writes"))
            for channel in channels:
                m.d.comb += Assert(same(came[channel], asked[name] + is_first + levels[channel]))
            m.d.comb += [
                Assert(same(asked[name], answered[name] + (waits & kinds[name]))),
                Assert(same(answered[name], left[response] + levels[name])),
            ]

        # Access n has what came, and answer n what it was answered with.
        n = AnyConst(COUNT)
        wants = {name: AnyConst(len(contents[name])) for name in ("aw", "w", "ar")}
        answer = BusAnswer(AnyConst(len(Value.cast(dut.answer.p))))
        for name, want in wants.items():
            port = getattr(dut, name)
            with m.If(fires(port) & (came[name] == n)):
                m.d.comb += Assume(Value.cast(port.p) == want)
            with m.If(levels[name] & same(came[name] - 1, n)):
                m.d.comb += Assert(Value.cast(contents[name]) == want)
        address, data = dut.aw.p.shape(), dut.w.p.shape()
        for name, channel in ("writes", "aw"), ("reads", "ar"):
            is_kind = access.is_write == (name == "writes")
            with m.If(levels["accesses"] & is_kind & (asked[name] == n)):
                m.d.comb += Assert(access.address == address(wants[channel]).addr)
                if name == "writes":
                    m.d.comb += [
                        Assert(access.data == data(wants["w"]).data),
                        Assert(access.strobe == data(wants["w"]).strb),
                    ]
            with m.If(fires(dut.answer) & kinds[name] & (answered[name] == n)):
                m.d.comb += Assume(Value.cast(dut.answer.p) == Value.cast(answer))
        with m.If(levels["writes"] & same(left["b"], n)):
            m.d.comb += Assert(has_response(dut.b.p, answer))
        with m.If(levels["reads"] & same(left["r"], n)):
            m.d.comb += [Assert(has_response(dut.r.p, answer)), Assert(dut.r.p.data == answer.data)]
        m.d.comb += Cover((left["b"] == 2) & (left["r"] == 2) & answer.error & (n == 1))
        return m


def symbolic_ring(m: Module, ring, host_index: Value) -> tuple[Value, Value]:
    """Enable a ring of any base and of a size up to ``LARGEST``; return the size and its mask."""
    base, size = AnyConst(PARAMS.address_bits), AnyConst(len(ring.size))
    mask = Signal(LARGEST, name="mask")
    m.d.comb += [
        Assume((size > 0) & (size <= LARGEST)),
        mask.eq((1 << size) - 1),
        ring.enabled.eq(1),
        ring.base.eq(base),
        ring.size.eq(size),
        ring.host_index.eq(host_index & mask),
    ]
    return base, mask


def follow_the_index(m: Module, pairs: Iterable[tuple[Value, Value]], mask: Value) -> None:
    """Assert that each index is its count, modulo the size of the ring."""
    for index, number in pairs:
        m.d.comb += Assert(index == (number & mask))


class CompletionSpec(Elaboratable):
    """Record n is written to place n of the ring, when the host has read what was there; its index
    is told when it is in memory.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = CompletionRing(PARAMS)
        here = inside(dut)
        inputs = dut.barrier_result, dut.barrier_wake, dut.group_result, dut.error, dut.refused
        for number, port in enumerate((*inputs, dut.ack)):
            offer(m, port)
            hold(m, port, f"in_{number}", Assume)
        hold(m, dut.write, "write", Assert)
        m.d.comb += [dut.write.ready.eq(AnySeq(1)), Assume(~ResetSignal())]

        valid, is_running, in_flight = here.valid, here.is_running, here.in_flight
        takes, write = here.takes, completion_write_layout(PARAMS)(here.write)
        taken = count(m, "taken", takes)
        written = count(m, "written", fires(dut.write))
        in_memory = count(m, "in_memory", fires(dut.ack))
        host_reads = AnySeq(1)
        read = count(m, "read", host_reads)
        base, mask = symbolic_ring(m, dut.ring, read)
        unread = (taken - read)[:COUNT]
        m.d.comb += [
            # A host reads what was told, and memory answers what was written.
            Assume(~host_reads | (read != in_memory)),
            Assume(~dut.ack.valid | (in_memory != written)),
            Assert(same(taken, written + valid)),
            Assert(same(taken, in_memory + in_flight)),
            Assert((valid <= in_flight) & (in_flight <= unread)),
            Assert(unread <= mask),
            Assert(is_running | ((taken == 0) & (written == 0) & (in_memory == 0) & (read == 0))),
            Assert(is_running | ((in_flight == 0) & ~valid)),
            Assert(dut.completed == fires(dut.ack)),
            Assert(dut.ring.busy == (in_memory != taken)),
            Assert(
                (dut.ring.fault.code == HostError.COMPLETION_RING)
                == (fires(dut.ack) & dut.ack.p.error)
            ),
            # The record that is taken finds a place that was read.
            Assert(~takes | (unread < mask)),
        ]
        with m.If(is_running):
            follow_the_index(m, ((dut.ring.unit_index, in_memory), (here.index, taken)), mask)
            m.d.comb += Assert(here.phase == ~((taken & (mask + 1)) != 0))
        with m.If(valid):
            place = written & mask
            m.d.comb += [
                Assert(write.address == (base[4:] + place)[: len(write.address)]),
                Assert(write.record.phase == ~((written & (mask + 1)) != 0)),
            ]
        n = AnyConst(COUNT)
        want = Completion(AnyConst(len(Value.cast(write.record))))
        body = slice(0, 8 * (COMPLETION_BYTES - 1))
        with m.If(takes & (taken == n)):
            m.d.comb += Assume(Value.cast(here.records.o.p)[body] == Value.cast(want)[body])
        with m.If(valid & (written == n)):
            m.d.comb += Assert(Value.cast(write.record)[body] == Value.cast(want)[body])
        m.d.comb += Cover((in_memory == 3) & (read == 2) & (mask == 1))
        return m


class RequestSpec(Elaboratable):
    """Record n is read from place n of the ring when it is in front of the tail, and counts as
    taken when it was taken. With one that cannot be read, records end.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = RequestRing(PARAMS)
        here = inside(dut)
        offer(m, dut.fill)
        hold(m, dut.fill, "fill", Assume)
        for number, port in enumerate((dut.fetch, dut.o)):
            m.d.comb += port.ready.eq(AnySeq(1))
            hold(m, port, f"out_{number}", Assert)
        m.d.comb += Assume(~ResetSignal())

        is_running, has_failed, asks, held = (
            here.is_running, here.has_failed, here.asks, here.held,
        )  # fmt: skip
        posts = AnySeq(1)
        tail = count(m, "tail", posts)
        asked = count(m, "asked", fires(dut.fetch))
        came = count(m, "came", fires(dut.fill))
        taken = count(m, "taken", fires(dut.o))
        fails = fires(dut.fill) & (dut.fill.p.error | has_failed)
        dropped = count(m, "dropped", fails)
        base, mask = symbolic_ring(m, dut.ring, tail)
        records = here.records
        follow_the_level(m, records)
        m.d.comb += [
            # A host keeps a place free, and memory answers what was asked for.
            Assume(~posts | ((tail - taken)[:COUNT] < mask)),
            Assume(~dut.fill.valid | (came != asked)),
            Assert(dut.fill.ready),
            Assert(same(asked, came + (asked - came)[:COUNT])),
            Assert((asked - came)[:COUNT] + records.level == held),
            Assert(same(came, taken + records.level + dropped)),
            Assert(held <= RECORDS),
            Assert(~asks | (held < RECORDS)),
            Assert(has_failed == (dropped != 0)),
            Assert(dut.halted == has_failed),
            # No record behind the tail is asked for.
            Assert((tail - taken)[:COUNT] <= mask),
            Assert((asked - taken)[:COUNT] + asks <= (tail - taken)[:COUNT]),
            Assert(dut.ring.busy == (asks | (held != 0))),
            Assert(
                (dut.ring.fault.code == HostError.REQUEST_RING)
                == (fires(dut.fill) & dut.fill.p.error & (dropped == 0))
            ),
            Assume(dropped[COUNT - 1] == 0),
        ]
        with m.If(~is_running):
            m.d.comb += Assert(
                (asked == 0) & (came == 0) & (taken == 0) & (dropped == 0) & ~asks & (held == 0)
            )
        with m.Else():
            indices = (
                (dut.ring.unit_index, taken),
                (here.next_index, asked),
                (here.fill_index, came),
            )
            follow_the_index(m, indices, mask)
        with m.If(asks):
            place = (asked & mask) * RECORD_BYTES
            m.d.comb += Assert(dut.fetch.payload == (base + place)[: len(base)])
        m.d.comb += Cover((taken == 3) & (mask == 1) & has_failed)
        return m


def _answers_reads_by_b(port: LitePort, here: Inside) -> None:
    here.module.d.comb += here.writes.i.valid.eq(port.answer.valid)


def _drops_data(_port: LitePort, here: Inside) -> None:
    here.module.d.comb += here.w_buffer.o.ready.eq(here.aw_buffer.o.valid)


def _tells_too_early(ring: CompletionRing, here: Inside) -> None:
    with here.module.If(ring.write.valid & ring.write.ready):
        here.module.d.sync += ring.ring.unit_index.eq(here.index)


def _fills_the_ring(_ring: CompletionRing, here: Inside) -> None:
    here.module.d.comb += here.records.o.ready.eq(here.is_running & ~here.valid)


def _reads_behind_the_tail(ring: RequestRing, here: Inside) -> None:
    with here.module.If(ring.fetch.valid & ring.fetch.ready):
        here.module.d.sync += here.asks.eq(here.held < RECORDS - 1)


def _counts_what_was_read(ring: RequestRing, here: Inside) -> None:
    with here.module.If(ring.fill.valid):
        here.module.d.sync += ring.ring.unit_index.eq(here.fill_index + 1)


PROOFS = [
    Proof(
        "AXI4-Lite slave: stable, an access and an answer for each read and write",
        LiteSpec,
        depth=2,
        cover=30,
        bugs=(
            Bug("an answer of a read at B, too", LitePort, _answers_reads_by_b, depth=8),
            Bug("data that leaves without its write", LitePort, _drops_data, depth=10),
        ),
        unbounded=True,
    ),
    Proof(
        "completion ring: no record over an unread one, an index behind its record",
        CompletionSpec,
        depth=2,
        cover=24,
        bugs=(
            Bug("an index before its record", CompletionRing, _tells_too_early, depth=8),
            Bug("a record over an unread one", CompletionRing, _fills_the_ring, depth=10),
        ),
        unbounded=True,
    ),
    Proof(
        "request ring: no record behind the tail, counts of records",
        RequestSpec,
        depth=2,
        cover=24,
        bugs=(
            Bug("a record behind the tail", RequestRing, _reads_behind_the_tail, depth=10),
            Bug("records that count when they come", RequestRing, _counts_what_was_read, depth=10),
        ),
        unbounded=True,
    ),
]
