"""Contexts: each stays in its memory, gets its own answers, and waits a bounded time for others.

The units of the contexts may do anything at their ports: whatever requests, tensor maps or an SM
make a unit do, it stays apart from the others.
"""

from collections.abc import Iterator

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In

from hw.context.answer_room import AnswerRoom
from hw.context.line_guard import LineGuard
from hw.context.map_guard import MapGuard
from hw.context.smem_window import SmemWindow
from hw.context.tagged_port import TaggedPort
from hw.contexts_top import Contexts
from hw.layouts.barriers import BARRIER_BYTES
from hw.layouts.contexts import RANGE_BYTES
from hw.lib.in_order_port import InOrderPort
from hw.params import TmaParams
from hw.top import tma_ports
from tests.formal.arbiter import keep_the_choice
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.queue import follow_the_level
from tests.formal.streams import hold, offer

PARAMS = TmaParams(
    contexts=2,
    line_bytes=16,
    address_bits=32,
    smem_bytes=2048,
    tags=2,
    requests_in_flight=2,
    descriptor_cache_entries=2,
    setup_pipelines=1,
    request_queue_depth=2,
    lane_depth=2,
    smem_reads=2,
    threads=2,
    streams=1,
    bulk_groups=4,
    barrier_waiters=1,
    im2col=False,
    reductions=False,
)

CONTEXTS = range(PARAMS.contexts)

LINES = ("gnic_request", "gnic_response"), ("gnic_write", "gnic_ack")
IN_ORDER = ("descriptor_request", "descriptor_fill"), ("smem_read", "smem_data")
"""Ports whose answers have tags, and ports whose answers come in order."""

ROOMS = {"descriptor_request": "map_room", "smem_read": "smem_read_room"}
"""Names of the rooms at the ports without tags."""


def streams(component, members: dict) -> Iterator[tuple[str, bool, stream.Interface]]:
    """Yield name, direction (True: into the component) and interface of each stream."""
    for name, member in members.items():
        if member.is_signature and isinstance(member.signature, stream.Signature):
            yield name, member.flow is In, getattr(component, name)


class AnyUnit(wiring.Component):
    """A unit that does anything at its ports, but keeps the law of streams."""

    def __init__(self, params: TmaParams) -> None:
        super().__init__(tma_ports(params))

    def elaborate(self, _platform) -> Module:
        m = Module()
        for name, enters, port in streams(self, self.signature.members):
            if enters:
                m.d.comb += port.ready.eq(AnySeq(1))
            else:
                offer(m, port)
                hold(m, port, name, Assume)
        own = self.barrier_memory
        for signal in (own.read_en, own.read_address, own.write_en, own.write_address):
            m.d.comb += signal.eq(AnySeq(len(signal)))
        return m


class ContextsSpec(Elaboratable):
    """Contexts of units and of a memory that do anything. A subclass says what is proved."""

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = Contexts(PARAMS, AnyUnit)
        m.d.comb += Assume(~ResetSignal())
        self.inner = inside(dut)
        for name, enters, port in streams(dut, dut.signature.members):
            if enters:
                offer(m, port)
                hold(m, port, name, Assume)
            else:
                m.d.comb += port.ready.eq(AnySeq(1))
        for allowed in dut.allowed:
            m.d.comb += allowed.eq(AnyConst(len(Value.cast(allowed))))
        self.specify(m, dut)
        return m

    def specify(self, m: Module, dut: Contexts) -> None:
        """Add what is to be proved."""
        raise NotImplementedError

    def take_turns(self, m: Module, name: str, port) -> None:
        """Assert that an access waits for one access of each other context at most."""
        arbiter = inside(port).requests if isinstance(port, InOrderPort) else inside(port).accesses
        state = keep_the_choice(m, arbiter)
        for number, access in enumerate(port.i):
            waited = Signal(range(len(CONTEXTS) + 1), name=f"{name}_{number}_waited")
            with m.If(access.valid & ~access.ready & port.o.valid & port.o.ready):
                m.d.sync += waited.eq(waited + 1)
            with m.If(access.valid & access.ready):
                m.d.sync += waited.eq(0)
            m.d.comb += [
                Assert(waited < len(CONTEXTS)),
                Assert((waited == 0) | access.valid),
                # With two contexts: the other one was last, or this one is offered.
                Assert((waited == 0) | (state.locked == (state.last_way == number))),
                Cover(waited == len(CONTEXTS) - 1),
            ]

    def have_room(self, m: Module, room: AnswerRoom, unanswered: Value) -> None:
        """Assert that a room counts the accesses that are unanswered, and the answers in it."""
        state = inside(room)
        m.d.comb += Assert(state.signal("free") + unanswered + state.answers.level == room.room)


def is_allowed(allowed, granule: Value) -> Value:
    """Return 1 if a granule is in a range."""
    return (granule >= allowed.first) & (granule <= allowed.last)


class LinesSpec(ContextsSpec):
    """Lines: each is in the range of its context, as an answer is that of its own access.

    Memory answers an access that was made, at any time and in any order. Bit 0 of its data is the
    number of the context.
    """

    def specify(self, m: Module, dut: Contexts) -> None:
        shift = (RANGE_BYTES // PARAMS.line_bytes - 1).bit_length()
        for access, answer in LINES:
            sent, answered = getattr(dut, access), getattr(dut, answer)
            port = getattr(self.inner, access)
            owner, answers_to = (each.p.tag[PARAMS.tag_bits :] for each in (sent, answered))
            ranges = Array(dut.allowed)
            inside_range = is_allowed(ranges[owner], sent.p.line[shift:])
            m.d.comb += [
                Assert(~sent.valid | inside_range),
                Assert(~answered.valid | answered.ready),
            ]
            has_answer = ~sent.p.prefetch if access == "gnic_request" else 1
            has_data = "data" in answered.p.shape().members
            for number in CONTEXTS:
                unanswered = Signal(range(PARAMS.tags + 1), name=f"{access}_{number}_unanswered")
                goes = sent.valid & sent.ready & has_answer & (owner == number)
                comes = answered.valid & (answers_to == number)
                m.d.sync += unanswered.eq(unanswered + goes - (comes & answered.ready))
                guard = getattr(self.inner, f"{access}_guard_{number}")
                keep_the_choice(m, inside(guard).answers)
                room = getattr(self.inner, f"{access}_room_{number}")
                self.have_room(m, room, unanswered)
                m.d.comb += Assume(~comes | (unanswered != 0))
                if has_data:
                    m.d.comb += Assume(~comes | (answered.p.data[0] == number))
                    self._own_data(m, room, number, getattr(self.inner, f"unit_{number}"))
            self.take_turns(m, access, port)

    @staticmethod
    def _own_data(m: Module, room: AnswerRoom, number: int, unit: AnyUnit) -> None:
        """Assert that the answers in a room and at its unit have the data of the context."""
        queue = inside(room).answers
        state = follow_the_level(m, queue)
        rows = Array(row(m, state.storage, place) for place in range(queue.depth))
        shape = room.answer.p.shape()
        for age in range(queue.depth):
            place = (state.consume + age)[: len(state.consume)]
            waits = shape(rows[place])
            m.d.comb += Assert((queue.level <= age) | (waits.data[0] == number))
        response = unit.gnic_response
        m.d.comb += [
            Assert(~response.valid | response.p.error | (response.p.data[0] == number)),
            Cover(response.valid & response.ready & ~response.p.error),
            Cover(response.valid & response.ready & response.p.error & (queue.level == 0)),
        ]


class InOrderSpec(ContextsSpec):
    """Tensor maps and shared memory: an access is in the range or the window of its context, and
    gets its own answer.

    Memory answers in order, from the second clock after an access on. Bit 0 of an answer is the
    number of the context.
    """

    def specify(self, m: Module, dut: Contexts) -> None:
        for access, answer in IN_ORDER:
            answered, port = getattr(dut, answer), getattr(self.inner, access)
            rooms = [getattr(self.inner, f"{ROOMS[access]}_{number}") for number in CONTEXTS]
            self._answer_in_order(m, access, port, answered)
            self.take_turns(m, access, port)
            for number, room in enumerate(rooms):
                unit = getattr(getattr(self.inner, f"unit_{number}"), answer)
                refused = unit.p.error if access == "descriptor_request" else 0
                m.d.comb += [
                    Assert(~unit.valid | refused | (Value.cast(unit.p)[0] == number)),
                    Cover(unit.valid & unit.ready & ~refused),
                ]
                if access == "descriptor_request":
                    granule = room.o.payload[(RANGE_BYTES - 1).bit_length() : PARAMS.address_bits]
                    m.d.comb += [
                        Assert(~room.o.valid | is_allowed(dut.allowed[number], granule)),
                        Cover(unit.valid & unit.ready & refused),
                    ]
        for number in CONTEXTS:
            self._stay_in_window(m, dut, number)

    @staticmethod
    def _answer_in_order(m: Module, name: str, port: InOrderPort, answered) -> None:
        """Assume that answers come in order, and belong to the contexts of their accesses."""
        owners = Signal(port.outstanding, name=f"{name}_owners")  # the oldest one lowest
        count = Signal(range(port.outstanding + 1), name=f"{name}_count")
        known = Signal(range(port.outstanding + 1), name=f"{name}_known")
        goes = Cat(access.valid & access.ready for access in port.i)
        comes = answered.valid & answered.ready
        m.d.comb += [
            Assume(~answered.valid | (known != 0)),
            Assume(~answered.valid | (Value.cast(answered.p)[0] == owners[0])),
            Assert(~answered.valid | answered.ready),
        ]
        after = count - comes
        m.d.sync += [
            count.eq(after + goes.any()),
            known.eq(after),
            owners.eq((owners >> comes) | (goes[1] << after[: len(count)])),
        ]

    def _stay_in_window(self, m: Module, dut: Contexts, number: int) -> None:
        """Assert that a context accesses shared memory in its window only."""
        window = getattr(self.inner, f"window_{number}")
        beats = PARAMS.smem_bytes // PARAMS.line_bytes
        for port in (window.o_write, window.o_read):
            for lane in port.p:
                is_inside = (lane.beat >= number * beats) & (lane.beat < (number + 1) * beats)
                m.d.comb += Assert(~(port.valid & lane.valid) | is_inside)
        barriers = getattr(dut, f"context_{number}").barrier_memory
        words = PARAMS.smem_bytes // BARRIER_BYTES
        for enabled, address in (
            (barriers.read_en, barriers.read_address),
            (barriers.write_en, barriers.write_address),
        ):
            is_inside = (address >= number * words) & (address < (number + 1) * words)
            m.d.comb += [Assert(~enabled | is_inside), Cover(enabled)]


def _has_no_end(guard: LineGuard, here: Inside) -> None:
    granule = here.accesses.o.p.line[(RANGE_BYTES // PARAMS.line_bytes - 1).bit_length() :]
    here.module.d.comb += here.signal("is_inside").eq(granule >= guard.allowed.first)


def _takes_without_room(_room: AnswerRoom, here: Inside) -> None:
    here.module.d.sync += here.signal("free").eq(1)


def _answers_all(port: TaggedPort, here: Inside) -> None:
    for answer in port.answer:
        here.module.d.comb += answer.valid.eq(port.o_answer.valid)


def _reads_anywhere(guard: MapGuard, here: Inside) -> None:
    here.module.d.comb += guard.o.valid.eq(here.reads.o.valid & here.order.i.ready)


def _answers_the_first(_port: InOrderPort, here: Inside) -> None:
    here.module.d.comb += here.owners.i.payload.eq(0)


def _has_no_walls(window: SmemWindow, here: Inside) -> None:
    for own, lane in zip(window.i_write.p, window.o_write.p, strict=True):
        here.module.d.comb += lane.valid.eq(own.valid)


def _prefers_the_first(port: TaggedPort, here: Inside) -> None:
    later = port.i[1].valid & ~port.i[0].valid
    here.module.d.comb += here.accesses.i[1].valid.eq(later)


PROOFS = [
    Proof(
        "contexts: lines stay in their range, answers wait for nobody, turns",
        LinesSpec,
        depth=3,
        cover=12,
        bugs=(
            Bug("a guard whose range has no end", LineGuard, _has_no_end, depth=4),
            Bug("an access without room for its answer", AnswerRoom, _takes_without_room, depth=14),
            Bug("an answer that every context gets", TaggedPort, _answers_all, depth=10),
            Bug("a context that is always first", TaggedPort, _prefers_the_first, depth=8),
        ),
        unbounded=True,
    ),
    Proof(
        "contexts: tensor maps and shared memory stay in range and window, in order",
        InOrderSpec,
        depth=10,
        cover=12,
        bugs=(
            Bug("a map outside that is read", MapGuard, _reads_anywhere, depth=4),
            Bug("an answer for another context", InOrderPort, _answers_the_first, depth=10),
            Bug("a window without walls", SmemWindow, _has_no_walls, depth=3),
        ),
    ),
]
