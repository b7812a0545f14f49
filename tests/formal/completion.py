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

from hw.layouts.isa import ErrorCode
from hw.layouts.jobs import transfer_layout
from hw.layouts.ports import error_layout
from hw.lib.job_slots import JobSlots
from hw.load.completion_tracker import CompletionTracker, expected_layout, fault_layout
from hw.params import TmaParams
from tests.formal.inside import Inside, copied_row, inside, row
from tests.formal.proof import Bug, Proof
from tests.formal.queue import follow_the_level
from tests.formal.streams import hold, offer


class NarrowParams(TmaParams):
    """Parameters with short counters of pieces, on which the proof does not depend but its time."""

    box_piece_bits = 3


class NarrowerParams(NarrowParams):
    """The same for a proof of more requests: what they add is their slots."""

    box_piece_bits = 2


ERRORS = 8
"""Modulus of the numbers of error records; fewer than that wait."""


PARTS = (
    *("looks_up", "new_slot", "new_pieces", "follows"),
    *("busy", "slot", "has_pieces", "counts"),
    *("own_total", "own_excess", "other_total", "request_pieces"),
)


def _kind(here: Inside, name: str, copy: int) -> SimpleNamespace:
    """Return the signals that count pieces of a kind, ``lines`` or ``fill``; ``copy`` is the number
    of its memory of what is expected.
    """
    return SimpleNamespace(
        name=name,
        own=getattr(here, f"{name}_0").read_ports[0],
        expected=getattr(here, f"expected_{copy}").read_ports[0],
        ends=getattr(here, f"{name}_ends"),
        **{part: here.signal(f"{name}_{part}") for part in PARTS},
    )


def _looked_up_fault(tracker: CompletionTracker, inner: Inside) -> data.View:
    """Return the fault of the request that ends."""
    return data.View(fault_layout(tracker.params), inner.faults.read_ports[0].data)


def _looked_up_mark(inner: Inside) -> Value:
    """Return whether the request that ends has a fault."""
    return inner.failed.read_ports[0].data


def _reports(params: TmaParams, name: str) -> SimpleNamespace:
    """Return the reports of a kind in the two stages, and the queue of the ends behind them."""

    def stage(number: int) -> SimpleNamespace:
        return SimpleNamespace(
            busy=Signal(name=f"{name}_busy_{number}"),
            slot=Signal(params.slot_bits, name=f"{name}_slot_{number}"),
            pieces=Signal(params.box_piece_bits, name=f"{name}_pieces_{number}"),
            last=Signal(name=f"{name}_last_{number}"),
        )

    return SimpleNamespace(
        first=stage(1),
        second=stage(2),
        ends=[Signal(params.slot_bits, name=f"{name}_end_{place}") for place in range(2)],
        level=Signal(range(3), name=f"{name}_ends"),
        pops=Signal(name=f"{name}_pops"),
    )


class CompletionSpec(Elaboratable):
    """The completion tracker signals each request once, after all of its pieces are written.

    The environment writes pieces of requests that have a slot, as lines or as fill, and never more
    pieces than a request has. It reports a fault before the pieces of the faulty line; until these
    pieces are written, fill alone cannot complete the request. Fill of no pieces may come even
    after the end of its request. Under these assumptions, whatever the order of events:

    - No slot is given to a second request before the first one has ended, and all jobs of a request
      carry its slot.
    - The completion of a request is offered when the event that completed it has left the counters
      and was looked up, and not before. It counts 16 bytes for each piece that was written. Of two
      requests that wait, one that ended by a line is looked up first. An offered end stays until it
      is taken.
    - A request with a fault has no completion. It has one error record, of its last fault, in the
      order of the ends.
    - ``written`` and ``filled`` wait while two ends by lines or two by fill wait behind an end that
      waits for its completion to be taken, or for room for an error record. They wait for nothing
      else.

    In a cluster, a remote request ends in the same way without a completion, and an absent receiver
    is a fault, too.
    """

    def __init__(self, ctas: int = 1, requests_in_flight: int = 2) -> None:
        params = NarrowParams if requests_in_flight == 2 else NarrowerParams
        self.params = params(
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
        # Events in the counters. One of them may be ``last``: it completed its request. Behind them
        # are the ends of requests, and the end that is offered.
        lines, fill = (_reports(p, name) for name in ("line", "fill"))
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
            marks = dut.fault.valid & (dut.fault.p.slot == number)
            if p.ctas > 1:
                marks |= absent.valid & absent.ready & (absent.p.slot == number)
            m.d.comb += Assume(~(whole & ~of_lines & (request.owes | marks)))
            with m.If(request.is_open):
                m.d.sync += request.written.eq(total)
            with m.If(whole & of_lines):
                m.d.comb += whole_by_line.eq(1)
            with m.If(whole & ~of_lines):
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

        # An end is offered from when it was looked up until it is taken.
        ending, ending_slot = Signal(), Signal(p.slot_bits)
        ended = requests[ending_slot]
        error_taken, done, room = Signal(), Signal(), Signal()
        advance, takes_next = Signal(), Signal()
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
            advance.eq((lines.level != 2) & (fill.level != 2)),
            Assert(written.ready == advance),
            Assert(filled.ready == advance),
            error_taken.eq(ending & ended.failed & done),
        ]
        with m.If(dut.completion.valid):
            m.d.comb += [
                Assert(dut.completion.p.request_id == ended.transfer.request_id),
                Assert(dut.completion.p.address == ended.transfer.mbarrier),
                Assert(dut.completion.p.tx_bytes == 16 * ended.written),
            ]
        for port, whole, kind in (written, whole_by_line, lines), (filled, whole_by_fill, fill):
            first, second = kind.first, kind.second
            pushes = Signal()
            m.d.comb += pushes.eq(advance & second.last)
            with m.If(advance):
                m.d.sync += [
                    first.busy.eq(port.valid),
                    first.slot.eq(port.p.slot),
                    first.pieces.eq(port.p.pieces),
                    first.last.eq(whole),
                    second.busy.eq(first.busy),
                    second.slot.eq(first.slot),
                    second.pieces.eq(first.pieces),
                    second.last.eq(first.last),
                ]
            m.d.sync += kind.level.eq(kind.level + pushes - kind.pops)
            with m.If(kind.pops):
                m.d.sync += kind.ends[0].eq(kind.ends[1])
            for place in range(2):
                with m.If(pushes & (kind.level - kind.pops == place)):
                    m.d.sync += kind.ends[place].eq(second.slot)
        m.d.comb += [
            takes_next.eq(~ending | done),
            lines.pops.eq(takes_next & (lines.level != 0)),
            fill.pops.eq(takes_next & (lines.level == 0) & (fill.level != 0)),
        ]
        with m.If(takes_next):
            m.d.sync += [
                ending.eq((lines.level != 0) | (fill.level != 0)),
                ending_slot.eq(Mux(lines.level != 0, lines.ends[0], fill.ends[0])),
            ]
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

        offered = ending, ending_slot
        self._invariants(m, dut, requests, slot, (lines, fill), offered, (n, made, given, wanted))

        # The assumptions can be met: a slot is used again after a fault, while the other is in use.
        errors_given, completions = Signal(2), Signal(2)
        m.d.sync += [
            errors_given.eq(errors_given + given_now),
            completions.eq(completions + (dut.completion.valid & dut.completion.ready)),
        ]
        m.d.comb += Cover(
            (errors_given == 1) & (completions == 1) & Cat(r.is_open for r in requests).all()
        )
        # Requests can end by a line and by fill in the same clock.
        m.d.comb += Cover((lines.level != 0) & (fill.level != 0))
        return m

    def _invariants(self, m: Module, dut, requests, slot, reports, offered_end, errors) -> None:
        """Assert what holds in every reachable state; induction needs it."""
        p = self.params
        ending, ending_slot = offered_end
        here = inside(dut)
        kinds = [_kind(here, name, number) for number, name in enumerate(("lines", "fill"))]
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

        # The stages and the ends are those of the specification.
        of_lines, of_fill = reports
        lines, fill = kinds
        m.d.comb += Assert(here.is_same_slot == (fill.busy & (fill.slot == lines.slot)))
        for counts, kind in zip(kinds, reports, strict=True):
            first, second = kind.first, kind.second
            fifo = inside(counts.ends)
            m.d.comb += [
                Assert(counts.looks_up == first.busy),
                Assert(counts.busy == second.busy),
                Assert(~first.last | (first.busy & (first.pieces != 0))),
                Assert(~second.last | (second.busy & (second.pieces != 0))),
                Assert(kind.level <= 2),
                Assert(counts.ends.level == kind.level),
                Assert(fifo.produce == (fifo.consume + kind.level)[:1]),
            ]
            with m.If(first.busy):
                m.d.comb += [
                    Assert(counts.new_slot == first.slot),
                    Assert(counts.new_pieces == first.pieces),
                    Assert(
                        counts.follows
                        == (second.busy & (second.pieces != 0) & (second.slot == first.slot))
                    ),
                    Assert(~counts.expected.data.is_empty),
                ]
            with m.If(second.busy):
                m.d.comb += [
                    Assert(counts.slot == second.slot),
                    Assert(counts.has_pieces == (second.pieces != 0)),
                    Assert(counts.counts == counts.has_pieces),
                ]
            for place in range(2):
                for position in range(2):
                    with m.If((kind.level > place) & ((fifo.consume + place)[:1] == position)):
                        m.d.comb += Assert(row(m, fifo.storage, position) == kind.ends[place])
        m.d.comb += [
            Assert(here.has_end == ending),
            Assert(~ending | (here.end_slot == ending_slot)),
        ]

        # A request that got its slot a clock ago is not in the expected totals yet.
        adds, added_slot = here.signal("adds"), here.signal("added_slot")
        added_pieces = here.signal("added_pieces")
        before = here.expected_2.read_ports[0].data
        m.d.comb += Assert(~adds | (added_pieces != 0))

        # The memories hold the state of each request, without the pieces that are being added.
        for number in slots:
            request = requests[number]
            fault = Signal(fault_layout(p), name=f"fault_{number}")
            failed = Signal(name=f"failed_{number}")
            transfer = Signal(transfer_layout(p), name=f"transfer_{number}")
            row_expected = copied_row(m, here, "expected", number, copies=3)
            stored = data.View(expected_layout(p), row_expected)
            is_added = adds & (added_slot == number)
            expected = Signal(p.box_piece_bits, name=f"expected_{number}")
            totals = [copied_row(m, here, name, number) for name in ("lines", "fill")]
            counted = totals[0] + totals[1]
            m.d.comb += [
                fault.eq(row(m, here.faults, number)),
                failed.eq(row(m, here.failed, number)),
                transfer.eq(row(m, here.transfers, number)),
                expected.eq(stored.total + Mux(is_added, added_pieces, 0)),
                Assert(~is_added | (before.total == stored.total)),
            ]
            new, lasts, ends = [], [], [ending & (ending_slot == number)]
            for kind in reports:
                for stage in kind.first, kind.second:
                    is_its = stage.busy & (stage.slot == number)
                    new.append(Mux(is_its, stage.pieces, 0))
                    lasts.append(stage.last & (stage.slot == number))
                ends += [
                    (kind.level > place) & (end == number) for place, end in enumerate(kind.ends)
                ]
            has_ended = Cat(*ends).any()
            was_open = request.transfer.pieces != 0
            all_new = sum(new)
            m.d.comb += [
                Assert(~was_open | is_added | ~stored.is_empty),
                Assert(~is_added | (request.is_open & (request.written == 0))),
            ]
            with m.If(request.is_open):
                m.d.comb += [
                    Assert(transfer == request.transfer),
                    Assert(Mux(is_added, added_pieces, stored.pieces) == request.transfer.pieces),
                    Assert(failed == request.failed),
                    Assert(~failed | (fault.line == request.line)),
                    Assert(
                        ~failed
                        | ((fault.receiver_absent if p.ctas > 1 else 0) == request.receiver_absent)
                    ),
                    Assert(request.transfer.pieces != 0),
                    Assert(
                        (request.written == request.transfer.pieces)
                        == (has_ended | Cat(*lasts).any())
                    ),
                    Assert(sum(lasts) + sum(ends) <= 1),
                    Assert(request.written <= request.transfer.pieces),
                    Assert(all_new <= request.written),
                    # What completes the request comes last.
                    *(
                        Assert(~last | (first == 0))
                        for last in (lasts[1], lasts[3])
                        for first in (new[0], new[2])
                    ),
                    Assert(~lasts[2] | (new[0] == 0)),
                    Assert(~lasts[3] | (new[1] == 0)),
                ]
                with m.If(has_ended):
                    m.d.comb += Assert(all_new == 0)
                whole = counted + all_new + request.transfer.pieces - expected
                m.d.comb += Assert(whole[: p.box_piece_bits] == request.written)
            with m.Else():
                m.d.comb += [
                    Assert(~failed),
                    Assert(counted[: p.box_piece_bits] == expected),
                    Assert(~has_ended & ~Cat(*lasts).any()),
                    Assert(all_new == 0),
                ]
            with m.If(ending & (ending_slot == number)):
                looked_up = _looked_up_fault(dut, here)
                m.d.comb += [
                    Assert(here.transfers.read_ports[0].data == request.transfer),
                    Assert(_looked_up_mark(here) == request.failed),
                    Assert(~request.failed | (looked_up.line == request.line)),
                ]
                if p.ctas > 1:
                    m.d.comb += Assert(
                        ~request.failed | (looked_up.receiver_absent == request.receiver_absent)
                    )
            for counts, kind, own, other in zip(
                kinds, reports, totals, reversed(totals), strict=True
            ):
                first, second = kind.first, kind.second
                if kind is of_lines:
                    m.d.comb += [
                        Assert(~stage.busy | (stage.pieces != 0)) for stage in (first, second)
                    ]
                    is_with = of_fill.second.busy & (of_fill.second.slot == number)
                    other = other + Mux(is_with, of_fill.second.pieces, 0)
                with m.If(first.busy & (first.slot == number)):
                    m.d.comb += [
                        Assert(was_open),
                        Assert(counts.follows | (counts.own.data == own)),
                        Assert(
                            (first.pieces == 0)
                            | (
                                (counts.expected.data.pieces == request.transfer.pieces)
                                & (counts.expected.data.total == expected)
                            )
                        ),
                    ]
                with m.If(second.busy & (second.slot == number)):
                    m.d.comb += Assert(was_open)
                    # Fill of no pieces may be stored when its request has ended.
                    with m.If(second.pieces != 0):
                        excess = counts.own_total - expected
                        m.d.comb += [
                            Assert(counts.own_total == (own + second.pieces)[: p.box_piece_bits]),
                            Assert(counts.own_excess == excess[: p.box_piece_bits]),
                            Assert(counts.other_total == other[: p.box_piece_bits]),
                            Assert(counts.request_pieces == request.transfer.pieces),
                        ]
        # The queue of error records.
        queue = follow_the_level(m, here.errors)
        n, made, given, wanted = errors
        waiting = (made - given)[: len(made)]
        m.d.comb += [
            Assert(here.errors.level == waiting),
            Assert(waiting <= 2),
        ]
        age = (n - given)[: len(made)]
        for position in range(2):
            with m.If((age < waiting) & ((queue.consume + age)[:1] == position)):
                m.d.comb += Assert(row(m, queue.storage, position) == wanted.as_value())


def _forgets_requests_before(_tracker: CompletionTracker, inner: Inside) -> None:
    (write,) = inner.expected_0.write_ports
    inner.module.d.comb += write.data.total.eq(inner.added_pieces)


def _does_not_see_fill(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.sync += inner.is_same_slot.eq(0)


def _does_not_see_what_is_stored(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.sync += inner.fill_other_forwards.eq(0)


def _does_not_see_the_last_report(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.sync += inner.fill_follows.eq(0)


def _loses_an_end_by_fill(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += inner.advance.eq(inner.lines_ends.i.ready)


def _withdraws_an_end(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += inner.takes_next.eq(1)


def _signals_the_pieces_of_lines(tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += tracker.completion.p.tx_bytes.eq(inner.lines_own_total << 4)


def _marks_another_request(_tracker: CompletionTracker, inner: Inside) -> None:
    (write,) = inner.failed.write_ports
    inner.module.d.comb += write.addr.eq(inner.end_slot)


def _repeats_an_error(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += inner.errors.i.valid.eq(inner.has_end & _looked_up_mark(inner))


def _reuses_a_slot(slots: JobSlots, inner: Inside) -> None:
    inner.module.d.comb += inner.slots.taken.ready.eq(slots.opened & slots.i.p.last)


def _ends_the_request_of_a_line(_tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += inner.next_slot.eq(inner.lines_ends.o.payload)


def _signals_remote_requests(tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += tracker.completion.valid.eq(inner.has_end & ~_looked_up_mark(inner))


def _drops_an_absent_receiver(tracker: CompletionTracker, inner: Inside) -> None:
    inner.module.d.comb += tracker.receiver_absent.ready.eq(1)


PROOFS = [
    Proof(
        "completion: each request's bytes, once, at its end",
        CompletionSpec,
        depth=2,
        cover=14,
        bugs=(
            Bug(
                "a total without the requests before",
                CompletionTracker,
                _forgets_requests_before,
                depth=12,
            ),
            Bug(
                "a line that does not see fill of its request in the same clock",
                CompletionTracker,
                _does_not_see_fill,
                depth=8,
            ),
            Bug(
                "a line that does not see fill stored in the clock in which it is looked up",
                CompletionTracker,
                _does_not_see_what_is_stored,
                depth=8,
            ),
            Bug(
                "fill that does not see the fill right before it",
                CompletionTracker,
                _does_not_see_the_last_report,
                depth=8,
            ),
            Bug(
                "an offered end that is withdrawn for the next one",
                CompletionTracker,
                _withdraws_an_end,
                depth=10,
            ),
            Bug(
                "a completion with the bytes of lines only",
                CompletionTracker,
                _signals_the_pieces_of_lines,
                depth=8,
            ),
            Bug(
                "a fault that is marked for another request",
                CompletionTracker,
                _marks_another_request,
                depth=7,
            ),
            Bug(
                "an error record that is repeated while faults come",
                CompletionTracker,
                _repeats_an_error,
                depth=8,
            ),
            Bug(
                "a slot given to two requests",
                JobSlots,
                _reuses_a_slot,
                depth=8,
            ),
        ),
        unbounded=True,
    ),
    Proof(
        "completion: of four requests",
        partial(CompletionSpec, requests_in_flight=4),
        depth=2,
        cover=14,
        bugs=(
            Bug(
                "an end by fill that names the request of a line",
                CompletionTracker,
                _ends_the_request_of_a_line,
                depth=9,
            ),
            Bug(
                "an end by fill that is lost while others wait",
                CompletionTracker,
                _loses_an_end_by_fill,
                depth=12,
            ),
        ),
        unbounded=True,
    ),
    Proof(
        "completion in a cluster: remote requests end, absent receivers are reported",
        partial(CompletionSpec, 2),
        depth=2,
        cover=14,
        bugs=(
            Bug(
                "a remote request whose own barrier is signalled",
                CompletionTracker,
                _signals_remote_requests,
                depth=8,
            ),
            Bug(
                "an absent receiver that is lost because a fault comes with it",
                CompletionTracker,
                _drops_an_absent_receiver,
                depth=8,
            ),
        ),
        unbounded=True,
    ),
]
