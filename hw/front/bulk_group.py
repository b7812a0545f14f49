"""Bulk groups: counts the stores of each thread's bulk groups, and answers the waits for them."""

from dataclasses import dataclass
from functools import cache

from amaranth.hdl import Assert, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import bits_for

from hw.layouts.isa import Operation, is_dsmem, is_load, is_store
from hw.layouts.jobs import directed_request_layout, group_layout, queued_request_layout
from hw.layouts.ports import clear_layout, group_result_layout
from hw.lib.memory import Copies, ReadPort, WritePort, clear_row, write_later
from hw.lib.queue import Queue
from hw.lib.register_slice import SkidBuffer
from hw.params import TmaParams

BETWEEN_BLOCKS = 32
"""Upper bound of the requests and tokens that are neither in a queue nor in a tracker's slot."""


def most_pending(params: TmaParams) -> int:
    """Return an upper bound of the requests of a group that have left ``o`` and are not counted as
    complete.
    """
    of_channel = params.request_queue_depth + params.jobs_waiting
    return params.requests_in_flight + params.channels * of_channel + BETWEEN_BLOCKS


@cache
def counters_layout(params: TmaParams) -> data.ArrayLayout:
    """A counter for each group of a thread, modulo a power of two above ``most_pending`` + 1."""
    return data.ArrayLayout(bits_for(most_pending(params) + 1), params.bulk_groups)


@cache
def issue_layout(params: TmaParams) -> data.StructLayout:
    """Row of a thread in the issue memory.

    Members
    -------
    index : index of the open group, which the next request joins
    open : requests that joined the open group
    issued : requests that joined, by index, without those of the open group
    """
    counters = counters_layout(params)
    return data.StructLayout(
        {
            "index": params.group_bits,
            "open": counters.elem_shape,
            "issued": counters,
        }
    )


@cache
def wait_layout(params: TmaParams) -> data.StructLayout:
    """A wait of a thread.

    Members
    -------
    thread, request_id : of the request
    is_read : WAIT_GROUP_READ: only the sources must be read
    groups : groups that may be pending, at most ``bulk_groups - 1``
    """
    return data.StructLayout(
        {
            "thread": params.thread_bits,
            "request_id": params.request_id_bits,
            "is_read": 1,
            "groups": params.group_bits,
        }
    )


@dataclass(frozen=True)
class CountReader:
    """Reads a memory of counts: the row at ``addr`` is ``data`` in the clock after ``en``."""

    en: Value
    addr: Value
    data: data.View


@dataclass(frozen=True)
class Counters:
    """Memories with a row for each thread.

    ``issue``: of ``issue_layout``. ``source_read`` and ``complete``: of ``counters_layout``, the
    requests whose source is read, and the requests that are complete.
    """

    issue: ReadPort
    source_read: CountReader
    complete: CountReader


@dataclass(frozen=True)
class Current:
    """The request that was accepted last, and the row of its thread.

    ``busy``: it has not left. ``is_wait``: it is a wait that leaves when it ``may_wait``: the queue
    of waits has room for it in this clock.
    """

    busy: Signal
    request: Signal
    is_wait: Signal
    may_wait: Signal


@dataclass(frozen=True)
class LastCommit:
    """The commit that left last.

    ``conflicts``: the group that used its new index before is not complete, so that the requests
    behind the commit wait. ``thread``: of the commit.
    """

    conflicts: Signal
    thread: Signal


@dataclass(frozen=True)
class Examined:
    """The wait that is examined.

    ``valid``: there is one, ``wait`` of ``wait_layout``. ``is_compared``: ``pending`` says which
    groups it still waits for, from registers. ``queue``: the other waits. ``fire``: the first wait
    leaves the queue, to be examined from the next clock on. ``stays``: the wait is examined each
    clock, because there is no other. ``busy``: there are waits.
    """

    valid: Signal
    wait: Signal
    is_compared: Signal
    pending: Signal
    queue: Queue
    fire: Signal
    stays: Signal
    busy: Signal


class BulkGroups(wiring.Component):
    """Counts the requests of each thread's bulk groups, and tells a thread when its wait is over.

    Each thread has ``bulk_groups`` indices, which its groups use in turn. For each index three
    numbers are counted: requests that joined, requests whose source is read, requests that are
    complete. All sources of a group are read if the first two are equal; a group is complete if the
    first and the third are equal.

    ===============  ==============================================================================
    COMMIT_GROUP     closes the group of the requests that joined since the last commit. It waits
                     until the group that used the next index before is complete. It does not leave
                     at ``o``
    WAIT_GROUP       is over when all but the ``groups`` youngest groups are complete. It does not
                     leave at ``o``
    WAIT_GROUP_READ  is over when the sources of all but the ``groups`` youngest groups are read. It
                     does not leave at ``o``
    others           leave at ``o``. Stores and reductions to global memory join the open group of
                     their thread, and so do loads with ``joins_group``; prefetches and DSMEM
                     requests never join
    ===============  ==============================================================================

    So up to ``bulk_groups - 1`` committed groups can be pending, and a wait with ``groups`` of at
    least that number is over at once. A group without requests is complete. Threads do not affect
    each other's groups.

    Each request that joined gets one ``source_read`` and one ``complete``, in any order, or one
    ``released``, after it was taken from ``o``. Tokens without ``joined`` are ignored. A thread
    should issue nothing while it waits; if it does, its wait may be over later than necessary, but
    never too early.

    Order: requests take effect in the order of their acceptance. A wait covers all requests that
    its thread issued up to the clock before. A commit that waits holds up all requests behind it,
    also those of other threads, and does not depend on them. A wait holds up nothing: the queue of
    waits has room for one wait of each thread, and only further waits wait at ``i``. The waits in
    the queue are examined round robin.

    Latency: one clock from ``i`` to ``o``. The result of a wait that is already over is offered
    five clocks after the wait was accepted, four if ``threads`` is at most 16. The result of any
    other wait is offered three clocks after the last token was counted, if there is no other wait;
    up to seven clocks with another wait, and up to two clocks later for each further one. A request
    behind a commit that waited is offered four clocks after the last token that the commit waited
    for was counted. Throughput: a request a clock, also of one thread, and commits, too. A wait
    takes two clocks if others are in the queue. A ``source_read`` and a ``complete`` a clock, or a
    ``released`` a clock, for any groups; if both kinds are offered they take turns, so each is
    counted at most one clock later. A token of each of the first two kinds has a place to wait.

    Back-pressure: ``i.ready`` does not depend on ``i.payload``. It follows ``o.ready`` in the same
    clock. Tokens are accepted whatever the other ports do. The ready signals of ``source_read`` and
    ``complete`` come from registers. A result that waits holds up the other waits and nothing else.

    Errors: none; every value of ``groups`` is valid.

    Parameters
    ----------
    params : TmaParams
        With ``stores``.

    Members
    -------
    i : In(stream.Signature(directed_request_layout(params)))
        All requests of the SM, in the order of their issue.
    o : Out(stream.Signature(queued_request_layout(params)))
        Requests that move data.
    source_read : In(stream.Signature(group_layout(params)))
        A request has read its tensor map and its source in shared memory.
    complete : In(stream.Signature(group_layout(params)))
        The writes of a request are performed.
    released : In(stream.Signature(group_layout(params)))
        Both at once: a request was refused, or the tensor map of a load was read.
    result : Out(stream.Signature(group_result_layout(params)))
        A wait is over.
    clear : In(clear_layout(params))
        All counts are to be cleared after a reset.
    busy : Out(1)
        A request, a wait, or a token that is not counted is here.

    Raises
    ------
    ValueError
        If ``params`` is without ``stores``.
    """

    def __init__(self, params: TmaParams) -> None:
        if not params.stores:
            raise ValueError("stores = False: there are no bulk groups")
        self.params = params
        token = stream.Signature(group_layout(params))
        super().__init__(
            {
                "i": In(stream.Signature(directed_request_layout(params))),
                "o": Out(stream.Signature(queued_request_layout(params))),
                "source_read": In(token),
                "complete": In(token),
                "released": In(token),
                "result": Out(stream.Signature(group_result_layout(params))),
                "clear": In(clear_layout(params)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        (source_read,), (complete, complete_now), token_waits = self._take_tokens(m)
        issue = Copies(m, "issue", issue_layout(self.params), self.params.threads, 2)
        issue_now, issue_then = (copy.read_port(forwards=True) for copy in issue.memories)
        current, last_commit = self._pass_requests(m, issue.write, issue_now, complete_now)
        examined = self._queue_waits(m, current)
        self._find_over(m, Counters(issue_then, source_read, complete), last_commit, examined)
        clear_row(m, issue.write, self.clear)
        m.d.comb += self.busy.eq(current.busy | examined.busy | token_waits)
        return m

    def _take_tokens(self, m: Module) -> tuple[list[CountReader], list[CountReader], Value]:
        """Count the tokens; return readers for the sources read and for complete requests, and
        whether a token waits to be counted.

        A ``released`` needs both memories, each other token one: the two kinds take turns. No path
        leads from the turn to the ports.
        """
        layout = group_layout(self.params)
        m.submodules.source_reads = source_reads = SkidBuffer(layout)
        m.submodules.completes = completes = SkidBuffer(layout)
        connect(m, flipped(self.source_read), source_reads.i)
        connect(m, flipped(self.complete), completes.i)
        may_release = Signal(init=1)
        others_wait = source_reads.o.valid | completes.o.valid
        releases = self.released.valid & may_release
        m.d.comb += [
            self.released.ready.eq(may_release),
            source_reads.o.ready.eq(~releases),
            completes.o.ready.eq(~releases),
        ]
        m.d.sync += may_release.eq(~(releases & others_wait))
        return (
            self._count(m, "sources_read", source_reads.o, readers=1),
            self._count(m, "completed", completes.o, readers=2),
            ~source_reads.i.ready | ~completes.i.ready,
        )

    def _count(self, m: Module, name: str, port, *, readers: int) -> list[CountReader]:
        """Count the tokens of ``port`` and those of ``released`` in the memory ``name``.

        The row of a token is read, counted in the next clock, and written in the one after that.

        Return as many readers of the counts as there are ``readers``.
        """
        p = self.params
        layout = group_layout(p)
        memory = Copies(m, name, counters_layout(p), p.threads, 1 + readers)
        read, *others = (copy.read_port(forwards=True) for copy in memory.memories)
        token = Signal(layout, name=f"{name}_token")
        increments = Signal(name=f"{name}_increments")
        group = Signal(layout, name=f"{name}_group", reset_less=True)
        row = Signal(counters_layout(p), name=f"{name}_row")
        counted = Signal(counters_layout(p), name=f"{name}_counted")
        last = write_later(m, name, memory.write, increments, group.thread, counted)
        takes_last_row = Signal(name=f"{name}_takes_last_row")
        released_fire = self.released.valid & self.released.ready
        m.d.comb += [
            token.eq(Mux(released_fire, self.released.payload, port.payload)),
            read.addr.eq(token.thread),
            row.eq(Mux(takes_last_row, last.row.as_value(), read.data.as_value())),
            *(
                counted[number].eq(row[number] + (group.index == number))
                for number in range(p.bulk_groups)
            ),
        ]
        m.d.sync += [
            increments.eq((released_fire | (port.valid & port.ready)) & token.joined),
            group.eq(token),
            takes_last_row.eq(increments & (group.thread == token.thread)),
        ]
        clear_row(m, memory.write, self.clear)
        found = []
        for number, other in enumerate(others):
            thread = Signal(p.thread_bits, name=f"{name}_thread_{number}", reset_less=True)
            counts = Signal(counters_layout(p), name=f"{name}_counts_{number}")
            is_last = last.writes & (thread == last.addr)
            m.d.sync += thread.eq(other.addr)
            m.d.comb += counts.eq(Mux(is_last, last.row.as_value(), other.data.as_value()))
            found.append(CountReader(other.en, other.addr, counts))
        return found

    def _pass_requests(
        self, m: Module, update: WritePort, issue_read: ReadPort, complete_read: CountReader
    ) -> tuple[Current, LastCommit]:
        """Accept requests, count those that join, and pass on those that move data.

        The row of a thread is read when its request is accepted, and written in the clock after the
        request left. A commit leaves at once: a clock later it is known whether it must wait, and
        then the requests behind it wait in its place.
        """
        p = self.params
        layout = directed_request_layout(p)
        busy = Signal()
        request = Signal(layout, reset_less=True)
        dequeues = Signal()
        may_leave = Signal()
        conflicted = Signal()  # in the clock before: the rows of the commit's thread were read
        commit = LastCommit(Signal(name="conflicts"), Signal(p.thread_bits, name="commit_thread"))
        updates = Signal()
        row = Signal(issue_layout(p))
        updated = Signal(issue_layout(p), name="updated_row")
        last = write_later(m, "issue", update, updates, request.thread, updated)
        takes_last_row = Signal()  # the row was updated while it was read
        next_thread = Mux(conflicted, request.thread, self.i.p.thread)
        m.d.comb += [
            row.eq(Mux(takes_last_row, last.row.as_value(), issue_read.data.as_value())),
            may_leave.eq(~commit.conflicts & ~conflicted),
            self.i.ready.eq(may_leave & (~busy | dequeues)),
            issue_read.en.eq(self.i.ready),
            issue_read.addr.eq(self.i.p.thread),
            complete_read.addr.eq(Mux(commit.conflicts, commit.thread, next_thread)),
        ]
        m.d.sync += conflicted.eq(commit.conflicts)
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                request.eq(self.i.payload),
                takes_last_row.eq(updates & (self.i.p.thread == request.thread)),
            ]
        joins = Signal()
        commits = Signal()
        is_wait = Signal()
        may_wait = Signal()
        m.d.comb += [
            *(self.o.payload[name].eq(request[name]) for name in layout.members),
            self.o.p.group.joined.eq(joins),
            self.o.p.group.thread.eq(request.thread),
            self.o.p.group.index.eq(row.index),
        ]
        with m.Switch(request.operation):
            with m.Case(Operation.COMMIT_GROUP):
                m.d.comb += [commits.eq(1), dequeues.eq(1)]
            with m.Case(Operation.WAIT_GROUP, Operation.WAIT_GROUP_READ):
                m.d.comb += [is_wait.eq(busy & may_leave), dequeues.eq(may_wait)]
            with m.Default():
                m.d.comb += [self.o.valid.eq(busy & may_leave), dequeues.eq(self.o.ready)]
        writes_memory = is_store(request.operation) & ~is_dsmem(request.operation)
        next_index = Signal(p.group_bits)
        issued_next = row.issued[next_index]
        m.d.comb += [
            next_index.eq(row.index + 1),
            joins.eq(writes_memory | (is_load(request.operation) & request.joins_group)),
            updates.eq(busy & may_leave & dequeues & (commits | joins)),
            updated.eq(row),
        ]
        with m.If(commits):
            m.d.comb += [
                updated.index.eq(next_index),
                updated.open.eq(issued_next),
                updated.issued[row.index].eq(row.open),
            ]
        with m.Else():
            m.d.comb += updated.open.eq(row.open + 1)
        commit_fire = busy & may_leave & commits
        with m.If(~commit.conflicts):
            m.d.sync += commit.thread.eq(request.thread)
        self._compare_commit(
            m, commit_fire, conflicted, commit.conflicts, next_index, issued_next, complete_read
        )
        self._assert_pending(m, commit_fire, row, complete_read.data)
        return Current(busy, request, is_wait, may_wait), commit

    def _compare_commit(
        self,
        m: Module,
        fire: Value,
        conflicted: Signal,
        conflicts: Signal,
        next_index: Value,
        issued_next: Value,
        complete_read: CountReader,
    ) -> None:
        """Find out whether the group that used the new index of the last commit is complete.

        ``fire``: a commit leaves, its new index is ``next_index``, and ``issued_next`` requests
        joined the group that used it before. While the commit ``conflicts``, the row of its thread
        is read again. No request joins the group meanwhile, so that the two numbers become equal.
        """
        valid = Signal(name="commit_valid")
        index = Signal.like(next_index, name="commit_index")
        issued = Signal.like(issued_next, name="commit_issued")
        completed = Signal.like(issued_next, name="commit_completed")
        m.d.comb += conflicts.eq(valid & (issued != completed))
        m.d.sync += valid.eq(fire | conflicts)
        with m.If(~conflicts):
            m.d.sync += [index.eq(next_index), issued.eq(issued_next)]
        with m.If(~conflicts | conflicted):
            m.d.sync += completed.eq(complete_read.data[Mux(conflicted, index, next_index)])

    def _queue_waits(self, m: Module, current: Current) -> Examined:
        """Examine the waits round robin: a wait that is not over goes to the queue's end, and stays
        if it is the only one.

        A wait is compared in the clock after it left the queue, and then decided. So a wait goes
        back in every second clock at most, and new waits enter the queue between. The only wait is
        compared each clock.
        """
        p = self.params
        request = current.request
        m.submodules.waits = queue = Queue(wait_layout(p), p.threads)
        waits = Signal(range(p.threads + 1))  # in the queue, and examined
        has_room = Signal(init=1)  # ``waits != p.threads``
        is_alone = Signal()  # ``waits == 1``
        valid = Signal()
        wait = Signal(wait_layout(p), reset_less=True)
        is_compared = Signal()
        pending = Signal(p.bulk_groups)
        is_not_over = is_compared & pending.any()
        goes_back = Signal()
        stays = Signal()
        enters = Signal()
        ends = Signal()
        fire = Signal()
        m.d.comb += [
            goes_back.eq(is_not_over & ~is_alone),
            stays.eq(is_not_over & is_alone),
            self.result.valid.eq(is_compared & ~pending.any()),
            ends.eq(self.result.valid & self.result.ready),
            current.may_wait.eq(has_room & ~goes_back),
            enters.eq(current.is_wait & current.may_wait),
            queue.i.valid.eq(goes_back | enters),
            queue.o.ready.eq(~valid | goes_back | ends),
            fire.eq(queue.o.valid & queue.o.ready),
        ]
        m.d.sync += [
            # ``enters`` comes late, and does not go through a sum.
            *(
                flag.eq(Mux(enters, Mux(ends, same, one_more), Mux(ends, one_less, same)))
                for flag, (one_less, same, one_more) in (
                    (waits, (waits - 1, waits, waits + 1)),
                    (has_room, (Const(1, 1), has_room, waits != p.threads - 1)),
                    (is_alone, (waits == 2, is_alone, waits == 0)),
                )
            ),
            is_compared.eq(valid & ~goes_back & ~ends),
            Assert(
                ~queue.i.valid | queue.i.ready, "bulk_group: the queue has no room for a wait\n"
            ),
        ]
        with m.If(goes_back):
            m.d.comb += queue.i.payload.eq(wait)
        with m.Else():
            m.d.comb += [
                queue.i.p.thread.eq(request.thread),
                queue.i.p.request_id.eq(request.request_id),
                queue.i.p.is_read.eq(request.operation == Operation.WAIT_GROUP_READ),
                queue.i.p.groups.eq(
                    Mux(request.groups < p.bulk_groups, request.groups, p.bulk_groups - 1)
                ),
            ]
        with m.If(queue.o.ready):
            m.d.sync += [valid.eq(queue.o.valid), wait.eq(queue.o.payload)]
        return Examined(valid, wait, is_compared, pending, queue, fire, stays, waits != 0)

    def _find_over(
        self, m: Module, counters: Counters, last_commit: LastCommit, examined: Examined
    ) -> None:
        """Find out which groups the examined wait waits for, and offer its result.

        A commit that conflicts counts already. Until it does not, its thread's oldest group is the
        one before its open group again: no wait of the thread ends.
        """
        p = self.params
        wait, queue = examined.wait, examined.queue
        reads = counters.issue, counters.source_read, counters.complete
        for port in reads:
            m.d.comb += [
                port.en.eq(examined.fire | examined.stays),
                port.addr.eq(Mux(examined.stays, wait.thread, queue.o.p.thread)),
            ]
        issue, source_read, complete = (port.data for port in reads)
        counted = Signal(counters_layout(p))
        is_held = last_commit.conflicts & (last_commit.thread == wait.thread)
        m.d.comb += [
            counted.eq(Mux(wait.is_read, source_read, complete)),
            self.result.p.thread.eq(wait.thread),
            self.result.p.request_id.eq(wait.request_id),
        ]
        with m.If(~examined.is_compared | examined.stays):
            for number in range(p.bulk_groups):
                # 0: the open group; 1: the youngest committed group
                age = Signal(p.group_bits, name=f"age_{number}")
                m.d.comb += age.eq(issue.index - number)
                is_pending = (age > wait.groups) & (issue.issued[number] != counted[number])
                m.d.sync += examined.pending[number].eq(is_pending | is_held)

        self._assert_pending(m, examined.valid & ~examined.is_compared, issue, counted)

    def _assert_pending(self, m: Module, enable: Value, issue, counted) -> None:
        """Assert that no group has more requests pending than there can be, or fewer than none."""
        for number in range(self.params.bulk_groups):
            pending = Signal(counters_layout(self.params).elem_shape, name=f"pending_{number}")
            issued = Mux(issue.index == number, issue.open, issue.issued[number])
            m.d.comb += pending.eq(issued - counted[number])
            m.d.sync += Assert(
                ~enable | (pending <= most_pending(self.params)),
                "bulk_group: a token without a request, or too many requests in a group\n",
            )
