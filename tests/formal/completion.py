"""Each request's barrier is told once, of all of its bytes, when the last of them is written."""

from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
)
from amaranth.lib import data, stream

from hw.completion_tracker import CompletionTracker
from hw.layouts import ErrorCode, error_layout, transfer_layout
from hw.params import TmaParams
from tests.formal.inside import inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

ERRORS = 8  # error records are numbered modulo this; fewer wait


class CompletionSpec(Elaboratable):
    """What is told of a request, from the pieces that were written for it.

    The environment writes pieces of requests that have a slot, never more than they have, and
    reports a fault before the pieces of its line. Then, whatever comes when:

    - a slot is given to no second request before the first has ended, and all jobs of a request
      carry it;
    - a request's completion is offered in the clock after its last piece was accepted, and in no
      other; it says 16 bytes for each piece that was written;
    - with a fault it is not offered, and there is one error record, of its last fault, in the
      order of the ends;
    - ``written`` waits for the offered completion, or for room for the record, and for nothing
      else.

    In a cluster: a remote request has no completion, but ends likewise; a receiver that is gone is
    a fault, too.
    """

    def __init__(self, ctas: int = 1) -> None:
        self.params = TmaParams(
            ctas=ctas,
            line_bytes=16,
            address_bits=32,
            smem_bytes=128,
            requests_in_flight=2,
            request_id_bits=1,
            stores=False,
            reductions=False,
            im2col=False,
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = CompletionTracker(p)
        for name in "i", "written", "fault":
            offer(m, getattr(dut, name))
            hold(m, getattr(dut, name), name, Assume)
        gone = dut.gone if p.ctas > 1 else stream.Signature(1).create()
        if p.ctas > 1:
            offer(m, gone)
            hold(m, gone, "gone", Assume)
            m.d.comb += dut.cta_rank.eq(AnyConst(p.cta_bits))
        for name in "o", "completion", "error":
            m.d.comb += getattr(dut, name).ready.eq(AnySeq(1))
        m.d.comb += Assume(~ResetSignal())

        # What is known of the request that has a slot.
        request_layout = data.StructLayout(
            {
                "is_open": 1,
                "transfer": transfer_layout(p),
                "written": p.box_piece_bits,
                "failed": 1,
                "gone": 1,
                "line": p.line_address_bits,
            }
        )
        slots = range(p.requests_in_flight)
        requests = Array(Signal(request_layout, name=f"request_{slot}") for slot in slots)

        # Jobs: each request's from its first to its last; prefetches take no slot.
        taken = dut.i.valid & dut.i.ready
        opens = taken & dut.i.p.first & ~dut.i.p.walk.prefetch
        within, prefetches, slot = Signal(), Signal(), Signal(p.slot_bits)
        with m.If(taken):
            m.d.sync += [within.eq(~dut.i.p.last), prefetches.eq(dut.i.p.walk.prefetch)]
        m.d.comb += [
            Assume(~dut.i.valid | (dut.i.p.first == ~within)),
            Assume(~dut.i.valid | ~within | (dut.i.p.walk.prefetch == prefetches)),
            Assume(~dut.i.valid | (dut.i.p.transfer.pieces != 0)),
            Assert((dut.o.valid & dut.o.ready) == taken),
        ]
        with m.If(opens):
            m.d.comb += Assert(~requests[dut.o.p.slot].is_open)
            m.d.sync += slot.eq(dut.o.p.slot)
            for number in slots:
                with m.If(dut.o.p.slot == number):
                    m.d.sync += [
                        requests[number].eq(0),
                        requests[number].is_open.eq(1),
                        requests[number].transfer.eq(dut.i.p.transfer),
                    ]
        with m.Elif(taken & ~prefetches):
            m.d.comb += Assert(dut.o.p.slot == slot)

        # Pieces and faults, of requests of which some are yet to be written.
        ends_now = Signal()
        for port in (dut.written, dut.fault, *([gone] if p.ctas > 1 else [])):
            request = requests[port.p.slot]
            m.d.comb += Assume(
                ~port.valid | (request.is_open & (request.written != request.transfer.pieces))
            )
        request = requests[dut.written.p.slot]
        m.d.comb += Assume(
            ~dut.written.valid
            | (dut.written.p.pieces <= (request.transfer.pieces - request.written))
        )
        total = Signal(p.box_piece_bits)
        m.d.comb += [
            total.eq(request.written + dut.written.p.pieces),
            ends_now.eq(dut.written.valid & dut.written.ready & (total == request.transfer.pieces)),
        ]
        for number in slots:
            with m.If(dut.written.valid & dut.written.ready & (dut.written.p.slot == number)):
                m.d.sync += requests[number].written.eq(total)
            with m.If(dut.fault.valid & (dut.fault.p.slot == number)):
                m.d.sync += [
                    requests[number].failed.eq(1),
                    requests[number].gone.eq(0),
                    requests[number].line.eq(dut.fault.p.line),
                ]
            if p.ctas > 1:
                with m.Elif(gone.valid & gone.ready & (gone.p.slot == number)):
                    m.d.sync += [
                        requests[number].failed.eq(1),
                        requests[number].gone.eq(1),
                        requests[number].line.eq(gone.p.receiver),
                    ]

        # The end: in the clock after the last piece and from then on, until it is taken.
        ending, ending_slot, error_taken = Signal(), Signal(p.slot_bits), Signal()
        ended = requests[ending_slot]
        room = Signal()
        remote = ended.transfer.delivery.remote if p.ctas > 1 else Const(0, 1)
        if p.ctas > 1:
            m.d.comb += Assert(gone.ready == ~dut.fault.valid)
            with m.If(dut.completion.valid):
                m.d.comb += [
                    Assert(dut.completion.p.cta == dut.cta_rank),
                    Assert(dut.completion.p.holder == ended.transfer.delivery.signal_cta),
                ]
        m.d.comb += [
            Assert(dut.fault.ready),
            Assert(dut.completion.valid == (ending & ~ended.failed & ~remote)),
            error_taken.eq(ending & ended.failed & dut.written.ready),
        ]
        with m.If(dut.completion.valid):
            m.d.comb += [
                Assert(dut.completion.p.request_id == ended.transfer.request_id),
                Assert(dut.completion.p.address == ended.transfer.mbarrier),
                Assert(dut.completion.p.tx_bytes == 16 * ended.written),
                Assert(dut.written.ready == dut.completion.ready),
            ]
        with m.Elif(ending & ended.failed):
            m.d.comb += Assert(dut.written.ready == (room & ~dut.fault.valid & ~gone.valid))
        with m.Else():
            m.d.comb += Assert(dut.written.ready)
        with m.If(dut.written.ready):
            m.d.sync += [ending.eq(ends_now), ending_slot.eq(dut.written.p.slot)]
            for number in slots:
                with m.If(ending & (ending_slot == number)):
                    m.d.sync += requests[number].is_open.eq(0)

        gone_code, fault_code = ErrorCode.DST_CTA.value, ErrorCode.GMEM_FAULT.value

        # Error records: number ``n`` of those that ended is number ``n`` of those that come out.
        n, wanted = AnyConst(range(ERRORS)), Signal(error_layout(p))
        made, given = Signal(range(ERRORS)), Signal(range(ERRORS))
        waiting = Signal(range(ERRORS))
        given_now = dut.error.valid & dut.error.ready
        m.d.sync += [made.eq(made + error_taken), given.eq(given + given_now)]
        m.d.comb += [
            waiting.eq(made - given),
            room.eq(waiting < 2),
            Assert(dut.error.valid == (waiting != 0)),
        ]
        with m.If(error_taken & (made == n)):
            m.d.sync += [
                wanted.request_id.eq(ended.transfer.request_id),
                wanted.code.eq(Mux(ended.gone, gone_code, fault_code)),
                wanted.dim.eq(0),
                wanted.value.eq(
                    Mux(ended.gone, ended.line, Cat(Const(0, p.lane_bits + 4), ended.line))
                ),
            ]
        with m.If(dut.error.valid & (given == n)):
            m.d.comb += Assert(dut.error.payload == wanted)

        self._invariants(m, dut, requests, slot, (ending, ending_slot), (n, made, given, wanted))

        # The search is not empty: a slot is used again after a fault, while the other is in use.
        errors_given, completions = Signal(2), Signal(2)
        m.d.sync += [
            errors_given.eq(errors_given + given_now),
            completions.eq(completions + (dut.completion.valid & dut.completion.ready)),
        ]
        m.d.comb += Cover(
            (errors_given == 1) & (completions == 1) & Cat(r.is_open for r in requests).all()
        )
        return m

    def _invariants(self, m: Module, dut, requests, slot, end, errors) -> None:
        """What is true in every state that can be reached; without it induction would not close."""
        p = self.params
        ending, ending_slot = end
        here = inside(dut)
        jobs = inside(here.slots)
        free = inside(jobs.slots)
        slots = range(p.requests_in_flight)

        # Free slots are those not open: those never given, and those in the list.
        numbers = inside(free.numbers)
        is_open = Cat(request.is_open for request in requests)
        level = free.numbers.level
        for number in slots:
            listed = Cat(
                (level > (position - numbers.consume)[: p.slot_bits])
                & (row(m, numbers.storage, position) == number)
                for position in slots
            )
            m.d.comb += Assert(
                listed[0] + listed[1] + is_open[number] + (free.fresh <= number) == 1
            )
        m.d.comb += [
            Assert(jobs.held == slot),
            Assert(free.fresh <= p.requests_in_flight),
            Assert(level <= p.requests_in_flight),
            Assert(numbers.produce == (numbers.consume + level)[: p.slot_bits]),
        ]

        # What the memories hold of a request, but for the pieces that are being added.
        for number in slots:
            request = requests[number]
            fault = row(m, here.faults, number)
            counting = here.busy & (here.now.slot == number)
            with m.If(request.is_open):
                m.d.comb += [
                    Assert(row(m, here.transfers, number) == request.transfer),
                    Assert(fault.failed == request.failed),
                    Assert(~fault.failed | (fault.line == request.line)),
                    Assert(~fault.failed | ((fault.gone if p.ctas > 1 else 0) == request.gone)),
                    Assert(request.transfer.pieces != 0),
                    Assert(
                        (request.written == request.transfer.pieces)
                        == (ending & (ending_slot == number))
                    ),
                    Assert(request.written <= request.transfer.pieces),
                    Assert(
                        row(m, here.progress, number) + Mux(counting, here.now.pieces, 0)
                        == request.written
                    ),
                ]
            with m.Else():
                m.d.comb += [
                    Assert(~fault.failed),
                    Assert(row(m, here.progress, number) == 0),
                    Assert(~counting),
                ]
            with m.If(counting):
                m.d.comb += [
                    Assert(here.transfer == request.transfer),
                    Assert(here.progress_read.data == row(m, here.progress, number)),
                ]
        with m.If(ending):
            m.d.comb += [
                Assert(here.busy & (here.now.slot == ending_slot)),
                Assert(requests[ending_slot].is_open),
                Assert(here.fault_read.data.failed == requests[ending_slot].failed),
                Assert(
                    ~here.fault_read.data.failed
                    | (here.fault_read.data.line == requests[ending_slot].line)
                ),
            ]
            if p.ctas > 1:
                read = here.fault_read.data
                same = read.gone == requests[ending_slot].gone
                m.d.comb += Assert(~read.failed | same)
        # The queue of error records.
        queue = inside(inside(here.errors).fifo)
        n, made, given, wanted = errors
        waiting = (made - given)[: len(made)]
        m.d.comb += [
            Assert(queue.produce == (queue.consume + waiting)[:1]),
            Assert(here.errors.level == waiting),
            Assert(waiting <= 2),
        ]
        age = (n - given)[: len(made)]
        for position in range(2):
            with m.If((age < waiting) & ((queue.consume + age)[:1] == position)):
                m.d.comb += Assert(row(m, queue.storage, position) == wanted.as_value())


PROOFS = [
    Proof(
        "completion: each request's bytes, once, at its end",
        CompletionSpec,
        depth=2,
        cover=12,
        bugs=(
            Bug(
                "a count that goes on in the slot's next request",
                "hw.completion_tracker",
                "counted.data.eq(Mux(complete, 0, pieces))",
                "counted.data.eq(pieces)",
                depth=8,
            ),
            Bug(
                "the bytes of the last pieces only",
                "hw.completion_tracker",
                "tx_bytes.eq(transfer.pieces << 4)",
                "tx_bytes.eq(now.pieces << 4)",
                depth=6,
            ),
            Bug(
                "a fault missed that comes with the last piece",
                "hw.completion_tracker",
                "faults.read_port(transparent_for=(failed,))",
                "faults.read_port()",
                depth=5,
            ),
            Bug(
                "an error record told again while faults come",
                "hw.completion_tracker",
                "errors.i.valid.eq(complete & is_failed & ~marks)",
                "errors.i.valid.eq(complete & is_failed)",
                depth=6,
            ),
            Bug(
                "a slot given to two requests",
                "hw.job_slots",
                "slots.taken.ready.eq(self.opened)",
                "slots.taken.ready.eq(self.opened & self.i.p.last)",
                depth=5,
            ),
        ),
        unbounded=True,
    ),
    Proof(
        "completion in a cluster: remote requests end, receivers that are gone are told",
        partial(CompletionSpec, 2),
        depth=2,
        cover=12,
        bugs=(
            Bug(
                "a remote request whose own barrier is signalled",
                "hw.completion_tracker",
                "self.completion.valid.eq(complete & ~is_failed & ~remote)",
                "self.completion.valid.eq(complete & ~is_failed)",
                depth=6,
            ),
            Bug(
                "a receiver that is gone forgotten for a fault that comes with it",
                "hw.completion_tracker",
                "gone.ready.eq(~self.fault.valid)",
                "gone.ready.eq(1)",
                depth=6,
            ),
        ),
        unbounded=True,
    ),
]
