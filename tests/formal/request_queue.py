"""Request queue: order and credits of each channel; start-up: no request before the clearing."""

from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data

from hw.front.request_queue import RequestQueue
from hw.front.startup import SETTLED, Startup
from hw.layouts.jobs import channel_of, stream_of
from hw.layouts.ports import control_rows
from hw.params import TmaParams
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold

COUNT = 5
"""Width of the transfer counters; fewer requests wait than they count."""

FIELDS = "operation", "request_id", "thread"
"""Members of a request that are not 0: all members take the same way."""


def fields_of(request) -> Value:
    """Return the members of a request that are not 0."""
    return Cat(Value.cast(request[name]) for name in FIELDS)


class CreditSpec(Elaboratable):
    """Requests of any one channel leave in order, none lost, and no more than it has credits.

    The solver chooses the channel, and one of its requests by its number. Generators and setup give
    back the credit of each request that left, once, in any clock:

    - Request n that is accepted is request n that leaves, unchanged, by the output of its kind.
    - The requests that left and hold a credit, with the one that is offered, are at most
      ``requests_waiting``. A credit that is given back can be used again after three clocks.
    - A channel accepts a request if and only if it has room for one. Where ``room`` says so, there
      is room for two; it says so one clock late if that is because a request left.
      ``busy`` is high while a request waits or holds a credit.
    - A channel that waits for its turn lets each other channel go first at most once.
    """

    def __init__(self, depth: int, requests_waiting: int) -> None:
        self.params = TmaParams(
            threads=2,
            streams=1,
            request_queue_depth=depth,
            jobs_waiting=requests_waiting,
            request_id_bits=2,
            requests_in_flight=2,
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = RequestQueue(p)
        here = inside(dut)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            *(Value.cast(dut.i.p[n]).eq(AnySeq(len(Value.cast(dut.i.p[n])))) for n in FIELDS),
            dut.tensor.ready.eq(AnySeq(1)),
            dut.bulk.ready.eq(AnySeq(1)),
            dut.freed.eq(AnySeq(p.channels)),
            dut.refused.eq(AnySeq(p.channels)),
            Assume(~ResetSignal()),
        ]
        hold(m, dut.i, "i", Assume)
        hold(m, dut.tensor, "tensor", Assert)
        hold(m, dut.bulk, "bulk", Assert)

        def channel(request) -> Value:
            return channel_of(p, request.operation, stream_of(p, request))

        (read,), (read_early,) = here.requests.read_ports, here.early.read_ports
        offered = here.valid
        given = Cat(port.valid & port.ready for port in (dut.tensor, dut.bulk)).any()
        accepted = dut.i.valid & dut.i.ready
        started = Signal()  # ``room`` is low in the first clock
        m.d.sync += started.eq(1)
        is_bulk = Value.cast(read.data.operation)[0]
        m.d.comb += [
            Assert(dut.tensor.valid == (offered & ~is_bulk)),
            Assert(dut.bulk.valid == (offered & is_bulk)),
            Assert(~offered | (read_early.data.is_bulk == is_bulk)),
        ]

        # Transfers of the chosen channel.
        number = AnyConst(p.channel_bits)
        m.d.comb += Assume(number < p.channels)
        comes, goes, in_output = Signal(), Signal(), Signal()
        m.d.comb += [
            comes.eq(accepted & (channel(dut.i.p) == number)),
            in_output.eq(offered & (channel(read.data) == number)),
            goes.eq(given & in_output),
        ]
        n, want = AnyConst(COUNT), AnyConst(len(fields_of(dut.i.p)))
        ins, outs = Signal(COUNT), Signal(COUNT)
        m.d.sync += [ins.eq(ins + comes), outs.eq(outs + goes)]
        with m.If(comes & (ins == n)):
            m.d.comb += Assume(fields_of(dut.i.p) == want)
        with m.If(goes & (outs == n)):
            m.d.comb += [
                Assert(fields_of(dut.tensor.p) == want),
                Assert(fields_of(dut.bulk.p) == want),
            ]

        # Credits of each channel: of requests that left the queue, and of the one that is offered.
        depth, most = p.request_queue_depth, p.requests_waiting
        place_bits = (depth - 1).bit_length()
        stored = here.array("stored_{}", p.channels)
        held = [Signal(range(most + 2), name=f"held_{channel}") for channel in range(p.channels)]
        for at in range(p.channels):
            is_here = offered & (channel(read.data) == at)
            left = here.signal(f"left_{at}")
            used = here.signal(f"credits_used_{at}") + left
            returned = here.signal(f"credits_returned_{at}")
            waits = here.waiting[at]
            back = dut.freed[at] + dut.refused[at]
            leaves = read.en & here.turn[at]
            out = held[at] - is_here  # requests that have left by an output
            m.d.sync += held[at].eq(held[at] + leaves - back)
            before, leaves_before = Signal.like(held[at]), Signal(2)
            m.d.sync += [before.eq(held[at]), leaves_before.eq(Cat(leaves, leaves_before))]
            before_that = Signal.like(held[at])
            m.d.sync += before_that.eq(before)
            m.d.comb += [
                Assume(back <= out),
                Assert(held[at] <= most),
                Assert(used == held[at] + returned),
                Assert(used <= most),
                Assert(held[at] >= is_here),
                # Who waits for its turn has a request, and a credit for it.
                Assert(~waits | ((stored[at] != 0) & (used < most))),
                Assert(waits | (stored[at] == 0) | leaves_before.any() | (before_that == most)),
                Assert(stored[at] <= depth),
                Assert(here.accepts[at] == (stored[at] != depth)),
                Assert(~dut.room[at] | (stored[at] + 2 <= depth)),
                Assert(dut.room[at] == (started & (stored[at] + left + 2 <= depth))),
                Assert(dut.busy | ((stored[at] == 0) & (held[at] == 0))),
                # Credits are counted a clock late.
                Assert(used == before + leaves_before[0]),
                Assert(waits == ((stored[at] != 0) & (before_that + sum(leaves_before) < most))),
            ]

        # The place of the chosen request, and the channel of each request.
        places = here.view("first_place", data.ArrayLayout(place_bits, p.channels))
        free = here.view("free_place", data.ArrayLayout(place_bits, p.channels))
        age = (n - outs)[:COUNT]
        for at in range(p.channels):
            first = places[at]
            last = first + stored[at]
            m.d.comb += [
                Assert(first < depth),
                Assert(free[at] == Mux(last < depth, last, last - depth)),
            ]
            with m.If(number == at):
                m.d.comb += Assert((ins - outs)[:COUNT] == stored[at] + in_output)
                with m.If(in_output & (age == 0)):
                    m.d.comb += Assert(fields_of(read.data) == want)
            for place in range(depth):
                content = row(m, here.requests, at << place_bits | place)
                early = row(m, here.early, at << place_bits | place)
                behind = Signal(range(depth), name=f"behind_{at}_{place}")
                m.d.comb += behind.eq(Mux(place >= first, place - first, place + depth - first))
                with m.If(behind < stored[at]):
                    m.d.comb += [
                        Assert(channel(content) == at),
                        Assert(early.is_bulk == Value.cast(content.operation)[0]),
                    ]
                    with m.If((number == at) & (age == behind + in_output)):
                        m.d.comb += Assert(fields_of(content) == want)

        # Turns: channels that ``passed`` the chosen one, since it waits, are not among those whose
        # turn is before its own: those between the last one and the chosen one.
        turn, waiting, behind_last = here.turn, here.waiting, here.behind_last
        passed, chosen = Signal(p.channels), Signal(p.channels)
        m.d.comb += [
            chosen.eq(1 << number),
            Assert((turn & ~waiting) == 0),
            Assert((turn & (turn - 1))[: p.channels] == 0),
            Assert(~read.en | turn.any()),
            Assert(~behind_last[0]),
        ]
        is_passing = read.en & (waiting & chosen).any() & ~(turn & chosen).any()
        m.d.sync += passed.eq(Mux(is_passing, passed | turn, 0))
        with m.If(~read.en & (waiting & chosen).any()):
            m.d.sync += passed.eq(passed)
        with m.If(is_passing):
            m.d.comb += Assert((turn & passed) == 0)
        with m.If((waiting & chosen).any()):
            before_chosen = (chosen - 1)[: p.channels]
            m.d.comb += Assert(
                (
                    passed
                    & Mux(
                        (behind_last & chosen).any(),
                        behind_last & before_chosen,
                        behind_last | before_chosen,
                    )
                )
                == 0
            )
        for at in range(p.channels - 1):
            m.d.comb += Assert(~behind_last[at] | behind_last[at + 1])

        # The assumptions can be met: a channel waits for a credit, and goes on.
        waited = Signal()
        with m.If((held[0] == most) & (stored[0] == depth)):
            m.d.sync += waited.eq(1)
        m.d.comb += Cover(waited & (number == 0) & (outs == most + 1) & (stored[1] != 0))
        return m


class StartupSpec(Elaboratable):
    """No request passes before all rows are cleared, and none of its changes is lost.

    - Each row is cleared before the first request, and no row after it.
    - A request passes unchanged, and is not withdrawn. While the unit drains, none is accepted from
      the second clock on, but for one that was offered before.
    - ``idle`` says that no block was busy and no request was offered for ``SETTLED`` clocks, and
      that no block was busy in the clock before them.
    """

    def __init__(self) -> None:
        self.params = TmaParams(threads=2, streams=1, requests_in_flight=4, tags=4)

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = Startup(p)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            dut.i.p.request_id.eq(AnySeq(p.request_id_bits)),
            dut.o.ready.eq(AnySeq(1)),
            dut.busy.eq(AnySeq(1)),
            dut.control.drain.eq(AnySeq(1)),
            Assume(~ResetSignal()),
        ]
        hold(m, dut.i, "i", Assume)
        hold(m, dut.o, "o", Assert)
        chosen = AnyConst(len(dut.clear.row))
        cleared, was_offered, drained, was_drained = Signal(), Signal(), Signal(), Signal()
        with m.If(dut.clear.enabled & (dut.clear.row == chosen)):
            m.d.sync += cleared.eq(1)
            m.d.comb += Assert(~cleared)
        with m.If(dut.o.valid):
            m.d.sync += was_offered.eq(1)
        stalled = Signal()
        m.d.sync += [
            stalled.eq(dut.o.valid & ~dut.o.ready),
            drained.eq(dut.control.drain),
            was_drained.eq(was_drained | dut.control.drain),
        ]
        here = inside(dut)
        m.d.comb += [
            Assume(chosen < control_rows(p)),
            Assert(~dut.o.valid | (cleared & ~dut.clear.enabled)),
            Assert(~was_offered | ~dut.clear.enabled),
            Assert(dut.o.payload == dut.i.payload),
            Assert((dut.o.valid & dut.o.ready) == (dut.i.valid & dut.i.ready)),
            Assert(~dut.o.valid | dut.i.valid),
            Assert(~(drained & dut.o.valid) | stalled),
            # Rows are cleared in turn.
            Assert(cleared == (~dut.clear.enabled | (dut.clear.row > chosen))),
            Assert(~here.is_open | ~dut.clear.enabled),
            Assert(~was_offered | ~dut.clear.enabled),
        ]
        quiet, was_busy = Signal(range(SETTLED + 1)), Signal()
        m.d.sync += was_busy.eq(dut.busy)
        with m.If(was_busy | dut.o.valid | dut.clear.enabled):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != SETTLED):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.comb += [
            Assert(dut.control.idle == (quiet == SETTLED)),
            Assert(quiet == here.quiet),
            Assert(was_busy == here.was_busy),
        ]

        # The assumptions can be met: a request waits for the drain to end, and passes.
        m.d.comb += Cover(was_drained & was_offered & dut.o.valid & dut.o.ready & ~stalled)
        return m


def _gives_a_credit_too_much(queue: RequestQueue, inner: Inside) -> None:
    inner.module.d.comb += inner.may_leave_0.eq(
        inner.credits_used_0 + inner.left_0 < queue.params.requests_waiting
    )


def _loses_a_credit(queue: RequestQueue, inner: Inside) -> None:
    inner.module.d.sync += inner.credits_returned_0.eq(queue.freed[0] | queue.refused[0])


def _writes_over_a_request(_queue: RequestQueue, inner: Inside) -> None:
    inner.module.d.sync += inner.accepts.eq(~0)


def _waits_for_a_request_that_left(_queue: RequestQueue, inner: Inside) -> None:
    inner.module.d.sync += inner.waiting[0].eq((inner.stored_0 != 0) & inner.may_leave_0)


def _counts_room_late(queue: RequestQueue, inner: Inside) -> None:
    inner.module.d.sync += queue.room[0].eq(inner.stored_0 + 2 <= queue.params.request_queue_depth)


def _takes_no_turns(_queue: RequestQueue, inner: Inside) -> None:
    inner.module.d.sync += inner.behind_last.eq(0)


def _opens_early(_startup: Startup, inner: Inside) -> None:
    with inner.module.If(inner.row == 1):
        inner.module.d.sync += inner.is_open.eq(1)


def _withdraws_to_drain(startup: Startup, inner: Inside) -> None:
    inner.module.d.sync += inner.is_open.eq(~inner.clears & ~startup.control.drain)


PROOFS = [
    *(
        Proof(
            f"request queue of {depth}, {waiting} credits: order, nothing lost, no credit too much",
            partial(CreditSpec, depth, waiting),
            depth=2,
            cover=20,
            bugs=(
                Bug("a credit too much", RequestQueue, _gives_a_credit_too_much, depth=8),
                Bug("a credit that is lost", RequestQueue, _loses_a_credit, depth=10),
                Bug("a full queue that accepts", RequestQueue, _writes_over_a_request, depth=8),
                Bug(
                    "a channel that waits when its last request leaves",
                    RequestQueue,
                    _waits_for_a_request_that_left,
                    depth=6,
                ),
                Bug("room that is counted a clock late", RequestQueue, _counts_room_late, depth=5),
                Bug("a channel that takes no turns", RequestQueue, _takes_no_turns, depth=8),
            )[: 6 if depth == 2 else 1],
            unbounded=True,
        )
        for depth, waiting in ((2, 2), (3, 1))
    ),
    Proof(
        "start-up: no request before all rows are cleared, none withdrawn",
        StartupSpec,
        depth=2,
        cover=14,
        bugs=(
            Bug("a request in front of the clearing", Startup, _opens_early, depth=6),
            Bug("an offered request that is withdrawn", Startup, _withdraws_to_drain, depth=9),
        ),
        unbounded=True,
    ),
]
