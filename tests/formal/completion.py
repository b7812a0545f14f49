"""Completion tracker: each barrier is signalled once, with all bytes, after the last is written."""

from functools import partial
from types import SimpleNamespace

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
    Value,
)
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory

from hw.layouts.isa import ErrorCode
from hw.layouts.jobs import transfer_layout
from hw.layouts.ports import error_layout
from hw.lib.job_slots import JobSlots
from hw.load.completion_tracker import CompletionTracker, fault_layout
from hw.params import TmaParams
from tests.formal.inside import Inside, copied_row, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer


class NarrowParams(TmaParams):
    """Parameters with short counters of pieces, on which the proof does not depend but its time."""

    box_piece_bits = 4


ERRORS = 8
"""Modulus of the numbers of error records; fewer than that wait."""


PARTS = "busy", "slot", "pieces", "own_total", "other_total", "end_valid"


def _end_layout(params: TmaParams) -> data.StructLayout:
    """Return the layout of the end of a request."""
    transfer, fault = transfer_layout(params), fault_layout(params)
    return data.StructLayout({"slot": params.slot_bits, "transfer": transfer, "fault": fault})


def _kind(here: Inside, params: TmaParams, name: str) -> SimpleNamespace:
    """Return the signals that count pieces of a kind, ``lines`` or ``fill``."""
    return SimpleNamespace(
        transfer=here.view(f"{name}_transfer", transfer_layout(params)),
        fault=here.view(f"{name}_fault", fault_layout(params)),
        end=here.view(f"{name}_end", _end_layout(params)),
        **{part: here.signal(f"{name}_{part}") for part in PARTS},
    )


class CompletionSpec(Elaboratable):
    """The completion tracker signals each request once, after all of its pieces are written.

    The environment writes pieces of requests that have a slot, as lines or as fill, and never more
    pieces than a request has. It reports a fault before the pieces of the faulty line; until these
    pieces are written, fill alone cannot complete the request. Fill of no pieces may come even
    after the end of its request. Under these assumptions, whatever the order of events:

    - No slot is given to a second request before the first one has ended, and all jobs of a request
      carry its slot.
    - The completion of a request is offered when the event that completed it has left the counters,
      and not before. It counts 16 bytes for each piece that was written. If two requests end at
      once, the end by fill waits, unless it was offered before. An offered end stays until it is
      taken.
    - A request with a fault has no completion. It has one error record, of its last fault, in the
      order of the ends.
    - ``written`` and ``filled`` wait for the ends that came by them: for an offered completion, or
      for room for an error record. ``written`` also waits for fill of the same request that
      waits. They wait for nothing else.

    In a cluster, a remote request ends in the same way without a completion, and an absent receiver
    is a fault, too.
    """

    def __init__(self, ctas: int = 1, requests_in_flight: int = 2) -> None:
        self.params = NarrowParams(
            ctas=ctas,
            line_bytes=16,
            address_bits=32,
            requests_in_flight=requests_in_flight,
            request_id_bits=1,
            stores=False,
            reductions=False,
            im2col=False,
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.dut = dut = CompletionTracker(p)
        for name in "i", "written", "filled", "fault":
            offer(m, getattr(dut, name))
            hold(m, getattr(dut, name), name, Assume)
        absent = dut.receiver_absent if p.ctas > 1 else stream.Signature(1).create()
        if p.ctas > 1:
            offer(m, absent)
            hold(m, absent, "receiver_absent", Assume)
            m.d.comb += dut.cta_rank.eq(AnyConst(p.cta_bits))
        for name in "o", "completion", "error":
            m.d.comb += getattr(dut, name).ready.eq(AnySeq(1))
        for name in "completion", "error":
            hold(m, getattr(dut, name), name, Assert)
        m.d.comb += Assume(~ResetSignal())

        # The state of the request in each slot, as the specification has it.
        request_layout = data.StructLayout(
            {
                "is_open": 1,
                "transfer": transfer_layout(p),
                "written": p.box_piece_bits,
                "failed": 1,
                "receiver_absent": 1,
                "line": p.line_address_bits,
                "owes": 1,  # a line, since the fault
            }
        )
        slots = range(p.requests_in_flight)
        requests = Array(Signal(request_layout, name=f"request_{slot}") for slot in slots)

        # Jobs of a request come from the first to the last. Prefetches take no slot.
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

        # Pieces and faults come only for requests with pieces that are not written yet.
        written, filled = dut.written, dut.filled
        for port in (written, dut.fault, *([absent] if p.ctas > 1 else [])):
            request = requests[port.p.slot]
            m.d.comb += Assume(
                ~port.valid | (request.is_open & (request.written != request.transfer.pieces))
            )
        request = requests[filled.p.slot]
        was_open = request.transfer.pieces != 0
        m.d.comb += [
            Assume(~written.valid | (written.p.pieces != 0)),
            Assume(~filled.valid | request.is_open | (was_open & (filled.p.pieces == 0))),
        ]
        # Events in the counters. One of them may be ``last``: it completed its request, or waits
        # while fill waits. Behind them are the ends of requests, ``ends``.
        line_busy, line_slot, line_last = Signal(), Signal(p.slot_bits), Signal()
        fill_busy, fill_slot, fill_last = Signal(), Signal(p.slot_bits), Signal()
        line_ends, line_end_slot = Signal(), Signal(p.slot_bits)
        fill_ends, fill_end_slot = Signal(), Signal(p.slot_bits)
        whole_by_line, whole_by_fill = Signal(), Signal()
        for number, request in enumerate(requests):
            left = request.transfer.pieces - request.written
            of_lines = written.valid & (written.p.slot == number)
            of_fill = filled.valid & (filled.p.slot == number)
            m.d.comb += Assume(
                ~request.is_open
                | (Mux(of_lines, written.p.pieces, 0) + Mux(of_fill, filled.p.pieces, 0) <= left)
            )
            of_lines, of_fill = of_lines & written.ready, of_fill & filled.ready
            total = Signal(p.box_piece_bits, name=f"total_{number}")
            whole = Signal(name=f"whole_{number}")
            m.d.comb += [
                total.eq(
                    request.written
                    + Mux(of_lines, written.p.pieces, 0)
                    + Mux(of_fill, filled.p.pieces, 0)
                ),
                whole.eq((total != request.written) & (total == request.transfer.pieces)),
            ]
            stays = line_busy & ~written.ready & (line_slot == number)
            marks = dut.fault.valid & (dut.fault.p.slot == number)
            if p.ctas > 1:
                marks |= absent.valid & absent.ready & (absent.p.slot == number)
            m.d.comb += Assume(~(whole & ~of_lines & (request.owes | marks)))
            with m.If(request.is_open):
                m.d.sync += request.written.eq(total)
            with m.If(whole & (of_lines | stays)):
                m.d.comb += whole_by_line.eq(1)
            with m.If(whole & ~(of_lines | stays)):
                m.d.comb += whole_by_fill.eq(1)
            with m.If(of_lines):
                m.d.sync += request.owes.eq(0)
            with m.Elif(marks):
                m.d.sync += request.owes.eq(1)
        for number in slots:
            with m.If(dut.fault.valid & (dut.fault.p.slot == number)):
                m.d.sync += [
                    requests[number].failed.eq(1),
                    requests[number].receiver_absent.eq(0),
                    requests[number].line.eq(dut.fault.p.line),
                ]
            if p.ctas > 1:
                with m.Elif(absent.valid & absent.ready & (absent.p.slot == number)):
                    m.d.sync += [
                        requests[number].failed.eq(1),
                        requests[number].receiver_absent.eq(1),
                        requests[number].line.eq(absent.p.receiver),
                    ]

        # An end is offered from when its event has left the counters until it is taken. If there
        # are two, the end by fill waits, unless it came first.
        fill_first = Signal()
        by_line = line_ends & ~fill_first
        ending, ending_slot = line_ends | fill_ends, Mux(by_line, line_end_slot, fill_end_slot)
        ended = requests[ending_slot]
        error_taken, done, room, same = Signal(), Signal(), Signal(), Signal()
        remote = ended.transfer.delivery.remote if p.ctas > 1 else Const(0, 1)
        if p.ctas > 1:
            m.d.comb += Assert(absent.ready == ~dut.fault.valid)
            with m.If(dut.completion.valid):
                m.d.comb += Assert(dut.completion.p.cta == dut.cta_rank)
        with m.If(ended.failed):
            m.d.comb += done.eq(room & ~dut.fault.valid & ~absent.valid)
        with m.Else():
            m.d.comb += done.eq(remote | dut.completion.ready)
        m.d.comb += [
            Assert(dut.fault.ready),
            Assert(dut.completion.valid == (ending & ~ended.failed & ~remote)),
            same.eq(line_busy & fill_busy & (line_slot == fill_slot)),
            Assert(written.ready == ((~line_ends | (by_line & done)) & ~(same & ~filled.ready))),
            Assert(filled.ready == (~fill_ends | (~by_line & done))),
            error_taken.eq(ending & ended.failed & done),
        ]
        with m.If(dut.completion.valid):
            m.d.comb += [
                Assert(dut.completion.p.request_id == ended.transfer.request_id),
                Assert(dut.completion.p.address == ended.transfer.mbarrier),
                Assert(dut.completion.p.tx_bytes == 16 * ended.written),
            ]
        m.d.sync += fill_first.eq(fill_ends & ~by_line & ~done)
        for port, whole, busy, slot_in_hand, last, ends, end_slot in (
            (written, whole_by_line, line_busy, line_slot, line_last, line_ends, line_end_slot),
            (filled, whole_by_fill, fill_busy, fill_slot, fill_last, fill_ends, fill_end_slot),
        ):
            with m.If(port.ready):
                m.d.sync += [
                    busy.eq(port.valid),
                    slot_in_hand.eq(port.p.slot),
                    last.eq(whole),
                    ends.eq(last),
                    end_slot.eq(slot_in_hand),
                ]
            with m.Elif(whole):
                m.d.sync += last.eq(1)
        for ends, port, is_told in (line_ends, written, by_line), (fill_ends, filled, ~by_line):
            with m.If(ends & is_told & done & ~port.ready):
                m.d.sync += ends.eq(0)
        for number in slots:
            with m.If(ending & done & (ending_slot == number)):
                m.d.sync += requests[number].is_open.eq(0)

        absent_code, fault_code = ErrorCode.DST_CTA.value, ErrorCode.GMEM_FAULT.value

        # Error records: the record of the n-th faulty end is the n-th record.
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
                wanted.code.eq(Mux(ended.receiver_absent, absent_code, fault_code)),
                wanted.dim.eq(0),
                wanted.value.eq(
                    Mux(
                        ended.receiver_absent,
                        ended.line,
                        Cat(Const(0, p.lane_bits + 4), ended.line),
                    )
                ),
            ]
        with m.If(dut.error.valid & (given == n)):
            m.d.comb += Assert(dut.error.payload == wanted)

        events = (
            (line_busy, line_slot, line_last, line_ends, line_end_slot),
            (fill_busy, fill_slot, fill_last, fill_ends, fill_end_slot),
        )
        self._invariants(m, dut, requests, slot, events, fill_first, (n, made, given, wanted))

        # The assumptions can be met: a slot is used again after a fault, while the other is in use.
        errors_given, completions = Signal(2), Signal(2)
        m.d.sync += [
            errors_given.eq(errors_given + given_now),
            completions.eq(completions + (dut.completion.valid & dut.completion.ready)),
        ]
        m.d.comb += Cover(
            (errors_given == 1) & (completions == 1) & Cat(r.is_open for r in requests).all()
        )
        # With two ends in the same clock, either kind can go first.
        m.d.comb += [Cover(line_ends & fill_ends & first) for first in (by_line, fill_first)]
        return m

    def _invariants(self, m: Module, dut, requests, slot, events, fill_first, errors) -> None:
        """Assert what holds in every reachable state; induction needs it."""
        p = self.params
        (_, line_slot, line_last, line_ends, line_end_slot) = events[0]
        (_, fill_slot, fill_last, fill_ends, fill_end_slot) = events[1]
        here = inside(dut)
        lines, fill = _kind(here, p, "lines"), _kind(here, p, "fill")
        jobs = inside(here.slots)
        free = inside(jobs.slots)
        slots = range(p.requests_in_flight)

        # A slot that is not open is free: it was never given, is in the list, or is offered.
        numbers, offered = inside(free.numbers), inside(free.offered)
        levels = free.numbers.level, free.offered.level
        is_open = Cat(request.is_open for request in requests)
        lists = [(numbers, levels[0], p.requests_in_flight), (offered, levels[1], 2)]
        for number in slots:
            listed = [
                (((position - fifo.consume) % depth) < level)
                & (row(m, fifo.storage, position) == number)
                for fifo, level, depth in lists
                for position in range(depth)
            ]
            m.d.comb += Assert(sum(listed) + is_open[number] + (free.next_number <= number) == 1)
        m.d.comb += [
            Assert(jobs.current_slot == slot),
            Assert(free.next_number <= p.requests_in_flight),
            *(Assert(level <= depth) for _, level, depth in lists),
            *(
                Assert(fifo.produce == ((fifo.consume + level) % depth))
                for fifo, level, depth in lists
            ),
        ]

        m.d.comb += [Assert(here.fill_is_offered == fill_first), Assert(~fill_first | fill_ends)]

        # The memories hold the state of each request, without the pieces that are being added.
        for number in slots:
            request = requests[number]
            fault = copied_row(m, here, "faults", number)
            of_lines = copied_row(m, here, "lines", number)
            of_fill = copied_row(m, here, "fill", number)
            counts_line = lines.busy & (lines.slot == number)
            counts_fill = fill.busy & (fill.slot == number)
            counted = of_lines + of_fill
            new_lines = Mux(counts_line, lines.pieces, 0)
            new_fill = Mux(counts_fill, fill.pieces, 0)
            last_line = line_last & (line_slot == number)
            last_fill = fill_last & (fill_slot == number)
            ended = Cat(
                line_ends & (line_end_slot == number), fill_ends & (fill_end_slot == number)
            )
            transfer = Signal(transfer_layout(p), name=f"transfer_{number}")
            m.d.comb += transfer.eq(copied_row(m, here, "transfers", number))
            with m.If(request.is_open):
                m.d.comb += [
                    Assert(transfer == request.transfer),
                    Assert(fault.failed == request.failed),
                    Assert(~fault.failed | (fault.line == request.line)),
                    Assert(
                        ~fault.failed
                        | ((fault.receiver_absent if p.ctas > 1 else 0) == request.receiver_absent)
                    ),
                    Assert(request.transfer.pieces != 0),
                    Assert(
                        (request.written == request.transfer.pieces)
                        == (last_line | last_fill | ended.any())
                    ),
                    Assert(last_line + last_fill + ended[0] + ended[1] <= 1),
                    Assert(~counts_line | (request.written != request.transfer.pieces) | last_line),
                    Assert(~(last_fill & counts_line)),
                    Assert(request.written <= request.transfer.pieces),
                    Assert(new_lines + new_fill <= request.written),
                ]
                with m.If(ended.any()):
                    m.d.comb += [
                        Assert(counted[: p.box_piece_bits] == 0),
                        Assert(~counts_line),
                        Assert(new_fill == 0),
                    ]
                with m.Else():
                    whole = (counted + new_lines + new_fill)[: p.box_piece_bits]
                    m.d.comb += Assert(whole == request.written)
            with m.Else():
                m.d.comb += [
                    # The memory may already hold the next request of the slot.
                    Assert((request.transfer.pieces == 0) | (transfer.pieces != 0)),
                    Assert(~fault.failed),
                    Assert(counted[: p.box_piece_bits] == 0),
                    Assert(~counts_line & ~last_line & ~last_fill & ~ended.any()),
                    Assert(new_fill == 0),
                ]
            for counts, has_ended in zip((lines, fill), ended, strict=True):
                with m.If(has_ended):
                    m.d.comb += Assert(counts.end.transfer == request.transfer)
            with m.If(counts_line):
                m.d.comb += [
                    Assert(lines.pieces != 0),
                    Assert(lines.transfer == request.transfer),
                    Assert(lines.own_total == (of_lines + lines.pieces)[: p.box_piece_bits]),
                    Assert(lines.other_total == (of_fill + new_fill)[: p.box_piece_bits]),
                    Assert(request.owes | (lines.fault.failed == request.failed)),
                    Assert(request.owes | ~request.failed | (lines.fault.line == request.line)),
                    Assert(
                        request.owes
                        | ~request.failed
                        | (
                            (lines.fault.receiver_absent if p.ctas > 1 else 0)
                            == request.receiver_absent
                        )
                    ),
                ]
            with m.If(counts_fill):
                # Fill of an ended request may have read the next request of the slot.
                m.d.comb += [
                    Assert(fill.transfer.pieces != 0),
                    Assert((fill.transfer == request.transfer) | (fill.pieces == 0)),
                    Assert(fill.own_total == (of_fill + fill.pieces)[: p.box_piece_bits]),
                    Assert(fill.other_total == of_lines),
                ]
        for counts, (busy, in_hand, last, ends, end_slot) in zip(
            (lines, fill), events, strict=True
        ):
            m.d.comb += [
                Assert(counts.busy == busy),
                Assert(~busy | (counts.slot == in_hand)),
                Assert(counts.end_valid == ends),
                Assert(~last | (busy & (counts.pieces != 0))),
            ]
            for is_so, number, fault in (
                (last, in_hand, counts.fault),
                (ends, end_slot, counts.end.fault),
            ):
                request = requests[number]
                with m.If(is_so):
                    m.d.comb += [
                        Assert(request.is_open),
                        Assert(fault.failed == request.failed),
                        Assert(~request.failed | (fault.line == request.line)),
                    ]
                    if p.ctas > 1:
                        m.d.comb += Assert(
                            ~request.failed | (fault.receiver_absent == request.receiver_absent)
                        )
            with m.If(ends):
                m.d.comb += Assert(counts.end.slot == end_slot)
        # The queue of error records.
        queue = inside(here.errors)
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


def _counts_on(_tracker: CompletionTracker, inner: Inside) -> None:
    for name in "lines", "fill":
        (write,) = getattr(inner, f"{name}_0").write_ports
        inner.module.d.comb += write.data.eq(inner.signal(f"{name}_own_total"))


def _does_not_see_fill(_tracker: CompletionTracker, inner: Inside) -> None:
    (seen_by_lines,) = inner.fill_1.read_ports
    inner.module.d.comb += inner.lines_other_total.eq(seen_by_lines.data)


def _ends_before_fill_is_counted(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += inner.lines_advance.eq(~inner.lines_end_valid | inner.lines_retired)


def _forgets_while_it_waits(tracker: CompletionTracker, inner: Inside) -> None:
    (seen_by_lines,) = inner.fill_1.read_ports
    (seen_by_fill,) = inner.lines_1.read_ports
    inner.module.d.comb += [
        seen_by_lines.addr.eq(tracker.written.p.slot),
        seen_by_fill.addr.eq(tracker.filled.p.slot),
    ]


def _withdraws_the_end_of_fill(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += inner.takes_line.eq(inner.lines_end_valid)


def _signals_the_last_pieces(tracker: CompletionTracker, inner: Inside) -> None:
    pieces = Mux(inner.takes_line, inner.lines_pieces, inner.fill_pieces)
    inner.module.d.comb += tracker.completion.p.tx_bytes.eq(pieces << 4)


def _misses_a_late_fault(tracker: CompletionTracker, inner: Inside) -> None:
    for name, port in ("lines", tracker.written), ("fill", tracker.filled):
        read = Memory.read_port(inner.faults_0)
        inner.module.d.comb += [
            read.addr.eq(port.p.slot),
            read.en.eq(inner.signal(f"{name}_advance")),
            Value.cast(inner.signal(f"{name}_fault")).eq(read.data),
        ]


def _repeats_an_error(tracker: CompletionTracker, inner: Inside) -> None:
    end = inner.view("end", _end_layout(tracker.params))
    inner.module.d.comb += inner.errors.i.valid.eq(inner.has_end & end.fault.failed)


def _reuses_a_slot(slots: JobSlots, inner: Inside) -> None:
    inner.module.d.comb += inner.slots.taken.ready.eq(slots.opened & slots.i.p.last)


def _ends_the_request_of_a_line(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += inner.signal("end").eq(inner.lines_end)


def _signals_remote_requests(tracker: CompletionTracker, inner: Inside) -> None:
    end = inner.view("end", _end_layout(tracker.params))
    inner.module.d.comb += tracker.completion.valid.eq(inner.has_end & ~end.fault.failed)


def _drops_an_absent_receiver(tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += tracker.receiver_absent.ready.eq(1)


PROOFS = [
    Proof(
        "completion: each request's bytes, once, at its end",
        CompletionSpec,
        depth=2,
        cover=12,
        bugs=(
            Bug(
                "a count that goes on in the slot's next request",
                CompletionTracker,
                _counts_on,
                depth=8,
            ),
            Bug(
                "a line that does not see fill of its request in the same clock",
                CompletionTracker,
                _does_not_see_fill,
                depth=5,
            ),
            Bug(
                "a line that ends its request before counted fill is stored",
                CompletionTracker,
                _ends_before_fill_is_counted,
                depth=12,
            ),
            Bug(
                "an end that waits and forgets the count of the other kind",
                CompletionTracker,
                _forgets_while_it_waits,
                depth=8,
            ),
            Bug(
                "an offered end by fill that is withdrawn for an end by a line",
                CompletionTracker,
                _withdraws_the_end_of_fill,
                depth=8,
            ),
            Bug(
                "a completion with the bytes of the last pieces only",
                CompletionTracker,
                _signals_the_last_pieces,
                depth=6,
            ),
            Bug(
                "a missed fault that comes with the last piece",
                CompletionTracker,
                _misses_a_late_fault,
                depth=5,
            ),
            Bug(
                "an error record that is repeated while faults come",
                CompletionTracker,
                _repeats_an_error,
                depth=6,
            ),
            Bug(
                "a slot given to two requests",
                JobSlots,
                _reuses_a_slot,
                depth=5,
            ),
        ),
        unbounded=True,
    ),
    Proof(
        "completion: of four requests",
        partial(CompletionSpec, requests_in_flight=4),
        depth=2,
        cover=12,
        bugs=(
            Bug(
                "an end by fill that names the request of a line",
                CompletionTracker,
                _ends_the_request_of_a_line,
                depth=7,
            ),
        ),
        unbounded=True,
    ),
    Proof(
        "completion in a cluster: remote requests end, absent receivers are reported",
        partial(CompletionSpec, 2),
        depth=2,
        cover=12,
        bugs=(
            Bug(
                "a remote request whose own barrier is signalled",
                CompletionTracker,
                _signals_remote_requests,
                depth=6,
            ),
            Bug(
                "an absent receiver that is lost because a fault comes with it",
                CompletionTracker,
                _drops_an_absent_receiver,
                depth=6,
            ),
        ),
        unbounded=True,
    ),
]
