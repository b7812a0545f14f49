"""Bulk groups: how threads wait for their stores and reductions (PTX ISA)."""

from functools import cache

from amaranth.hdl import Assert, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hw.layouts.isa import Operation, is_dsmem, is_load, is_store
from hw.layouts.jobs import directed_request_layout, group_layout, queued_request_layout
from hw.layouts.ports import group_result_layout
from hw.lib.queue import Queue
from hw.params import TmaParams

BETWEEN_BLOCKS = 32
"""Requests and tokens on their way, outside of queues and of the slots of trackers."""


def most_pending(params: TmaParams) -> int:
    """Requests of a group that can be between ``o`` and the count of their tokens, at most."""
    of_channel = params.request_queue_depth + params.jobs_waiting
    return params.requests_in_flight + params.channels * of_channel + BETWEEN_BLOCKS


@cache
def counters_layout(params: TmaParams) -> data.ArrayLayout:
    """A counter for each group of a thread, modulo more than ``most_pending`` + 1."""
    return data.ArrayLayout(bits_for(most_pending(params) + 1), params.bulk_groups)


class BulkGroups(wiring.Component):
    """Counts the requests of each thread's bulk groups, and says when a wait for them is over.

    Each thread has ``bulk_groups`` indices, which its groups use in turn. Three numbers are counted
    for each: requests that joined, sources read, requests complete. The first equals the second
    where all sources are read, and the third where the group is complete.

    ===============  ==============================================================================
    COMMIT_GROUP     the requests that joined since the last one are a group; ends here. Waits
                     until the group that used the next index is complete
    WAIT_GROUP       over when all but the ``groups`` youngest groups are complete; ends here
    WAIT_GROUP_READ  over when the sources of all but the ``groups`` youngest groups are read; ends
                     here
    others           pass. Stores and reductions to global memory join the group of their thread,
                     loads with ``joins_group``, prefetches and DSMEM requests never
    ===============  ==============================================================================

    So ``bulk_groups - 1`` committed groups can be pending; a wait for all but so many, or more, is
    over at once. A group without requests is complete. Threads do not see each other.

    A joined request is told of by one ``source_read`` and one ``complete``, in any order, or by one
    ``released``, not before it was taken from ``o``. Tokens that have not ``joined`` are ignored. A
    thread is expected to issue nothing while it waits; if it does, waits may be over later than
    they could be, but never earlier.

    Order: all requests take effect in the order of their acceptance; a wait covers what its thread
    issued in the clock before. A commit that waits holds up all behind it, also of other threads,
    and needs nothing of them. Waits hold up nothing: there is room for one of each thread, and only
    more than that wait at ``i``. They are looked at one after another, going round.

    Latency: from ``i`` to ``o`` one clock. The result of a wait that is already over is offered
    four clocks after its acceptance, three where ``threads`` is at most 16. The result of any other
    is offered three to five clocks after the last token was taken, and up to one clock later for
    each other wait. Throughput: a request a clock, also of one thread; commits, too; in a
    ``compact`` unit one in two clocks. A wait behind which others wait takes two clocks. A
    ``source_read`` and a ``complete`` a clock, or a ``released``, on any mix of groups or on one;
    while both kinds come they take turns, so that each waits at most one clock for the other.

    Back-pressure: ``i.ready`` does not depend on ``i.payload``; it follows ``o.ready`` in the same
    clock, in a ``compact`` unit in the next. Tokens are taken whatever the other ports do. A result
    that is held up holds up the other waits and nothing else.

    There are no errors: every N is valid. Counters are memory, which a reset does not clear: at a
    reset no request may be pending.

    Parameters
    ----------
    params : TmaParams
        With ``stores``.

    Members
    -------
    i : In(stream.Signature(directed_request_layout(params)))
        All requests of the SM, in order.
    o : Out(stream.Signature(queued_request_layout(params)))
        Those that move data.
    source_read : In(stream.Signature(group_layout(params)))
        The map, and what a request reads of shared memory, have been read.
    complete : In(stream.Signature(group_layout(params)))
        The writes of a request are performed.
    released : In(stream.Signature(group_layout(params)))
        Both at once: a request was refused, or the map of a load read.
    result : Out(stream.Signature(group_result_layout(params)))
        One for each wait, when it is over.
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
            }
        )

    def _memory(self, shape: data.Layout) -> Memory:
        """A row for each thread; never a memory without an address."""
        return Memory(shape=shape, depth=max(self.params.threads, 2), init=[])

    def _assert_pending(self, m: Module, enable: Value, issued, counted) -> None:
        """No group has more requests pending than there can be, nor less than none."""
        for number in range(self.params.bulk_groups):
            pending = Signal(counters_layout(self.params).elem_shape, name=f"pending_{number}")
            m.d.comb += pending.eq(issued[number] - counted[number])
            m.d.sync += Assert(
                ~enable | (pending <= most_pending(self.params)),
                "bulk groups: a token without a request, or too many requests in a group\n",
            )

    def _count(self, m: Module, name: str, single) -> Memory:
        """Count the tokens of ``single`` and those of ``released``."""
        layout = group_layout(self.params)
        m.submodules[name] = memory = self._memory(counters_layout(self.params))
        write = memory.write_port()
        read = memory.read_port(transparent_for=(write,))
        token = Signal(layout, name=f"{name}_token")
        counting = Signal(name=f"{name}_counting")
        group = Signal(layout, name=f"{name}_group", reset_less=True)
        taken = self.released.valid & self.released.ready
        m.d.comb += [
            token.eq(Mux(taken, self.released.payload, single.payload)),
            read.addr.eq(token.thread),
            write.en.eq(counting),
            write.addr.eq(group.thread),
            write.data.eq(read.data),
            write.data[group.index].eq(read.data[group.index] + 1),
        ]
        m.d.sync += [
            counting.eq((taken | (single.valid & single.ready)) & token.joined),
            group.eq(token),
        ]
        return memory

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        request, counters = directed_request_layout(p), counters_layout(p)
        issue_layout = data.StructLayout({"index": p.group_bits, "issued": counters})
        wait_layout = data.StructLayout(
            {
                "thread": p.thread_bits,
                "request_id": p.request_id_bits,
                "source": 1,
                "groups": p.group_bits,
            }
        )

        # Tokens: turns between the one that needs both memories and those that need one each.
        released_last = Signal()
        may_release = Signal()
        m.d.comb += [
            may_release.eq(~(released_last & (self.source_read.valid | self.complete.valid))),
            self.released.ready.eq(may_release),
            self.source_read.ready.eq(~(self.released.valid & may_release)),
            self.complete.ready.eq(self.source_read.ready),
        ]
        m.d.sync += released_last.eq(self.released.valid & may_release)
        read = self._count(m, "read", self.source_read)
        done = self._count(m, "done", self.complete)

        # Requests: the row of the thread is read as one is accepted, and written as it leaves. The
        # reads of other memories may miss what is written in the same clock: a token more, which
        # only makes a commit or a wait take longer.
        m.submodules.issue = issue = self._memory(issue_layout)
        update = issue.write_port()
        issue_read = issue.read_port(transparent_for=(update,))
        done_read = done.read_port()
        busy = Signal()
        now = Signal(request, reset_less=True)
        leaves = Signal()
        follows = Const(not p.compact)  # the next one, at once
        row = issue_read.data
        m.d.comb += [
            self.i.ready.eq(~busy | (leaves & follows)),
            issue_read.en.eq(self.i.ready),
            issue_read.addr.eq(self.i.p.thread),
            done_read.addr.eq(Mux(self.i.ready, self.i.p.thread, now.thread)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [busy.eq(self.i.valid), now.eq(self.i.payload)]
        with m.Elif(leaves):
            m.d.sync += busy.eq(0)

        joins = Signal()
        commits = Signal()
        waits = Signal()
        may_wait = Signal()
        next_index = Signal(p.group_bits)
        m.d.comb += [
            next_index.eq(row.index + 1),
            *(self.o.payload[name].eq(now[name]) for name in request.members),
            self.o.p.group.joined.eq(joins),
            self.o.p.group.thread.eq(now.thread),
            self.o.p.group.index.eq(row.index),
        ]
        with m.Switch(now.operation):
            with m.Case(Operation.COMMIT_GROUP):
                m.d.comb += [
                    commits.eq(1),
                    leaves.eq(row.issued[next_index] == done_read.data[next_index]),
                ]
            with m.Case(Operation.WAIT_GROUP, Operation.WAIT_GROUP_READ):
                m.d.comb += [waits.eq(busy), leaves.eq(may_wait)]
            with m.Default():
                m.d.comb += [self.o.valid.eq(busy), leaves.eq(self.o.ready)]
        to_memory = is_store(now.operation) & ~is_dsmem(now.operation)
        m.d.comb += joins.eq(to_memory | (is_load(now.operation) & now.joins_group))
        m.d.comb += [
            update.en.eq(busy & leaves & (commits | joins)),
            update.addr.eq(now.thread),
            update.data.eq(row),
        ]
        with m.If(commits):
            m.d.comb += update.data.index.eq(next_index)
        with m.Else():
            m.d.comb += update.data.issued[row.index].eq(row.issued[row.index] + 1)

        # Waits: look at the first, and put it back behind the others unless it is over. A new one
        # stops that for a clock, to get at the queue.
        m.submodules.waiting = waiting = Queue(wait_layout, p.threads)
        looking = Signal()
        look = Signal(wait_layout, reset_less=True)
        over = Signal()
        again = Signal()
        has_room = Signal()
        next_look = Signal()
        m.d.comb += [
            again.eq(looking & ~over),
            has_room.eq((waiting.level + looking) < p.threads),
            may_wait.eq(has_room & ~again),
            waiting.i.valid.eq(again | (waits & may_wait)),
            waiting.o.ready.eq((~looking | again | self.result.ready) & ~(waits & has_room)),
            next_look.eq(waiting.o.valid & waiting.o.ready),
        ]
        with m.If(again):
            m.d.comb += waiting.i.payload.eq(look)
        with m.Else():
            m.d.comb += [
                waiting.i.p.thread.eq(now.thread),
                waiting.i.p.request_id.eq(now.request_id),
                waiting.i.p.source.eq(now.operation == Operation.WAIT_GROUP_READ),
                waiting.i.p.groups.eq(
                    Mux(now.groups < p.bulk_groups, now.groups, p.bulk_groups - 1)
                ),
            ]
        with m.If(next_look):
            m.d.sync += [looking.eq(1), look.eq(waiting.o.payload)]
        with m.Elif(again | self.result.ready):
            m.d.sync += looking.eq(0)

        looks = [memory.read_port() for memory in (issue, read, done)]
        for port in looks:
            m.d.comb += [port.en.eq(next_look), port.addr.eq(waiting.o.p.thread)]
        issue_look, read_look, done_look = (port.data for port in looks)
        counted = Signal(counters)
        pending = Signal(p.bulk_groups)
        m.d.comb += [
            counted.eq(Mux(look.source, read_look, done_look)),
            over.eq(~pending.any()),
            self.result.valid.eq(looking & over),
            self.result.p.thread.eq(look.thread),
            self.result.p.request_id.eq(look.request_id),
        ]
        for number in range(p.bulk_groups):
            # 0: not committed; 1: the youngest
            age = Signal(p.group_bits, name=f"age_{number}")
            m.d.comb += [
                age.eq(issue_look.index - number),
                pending[number].eq(
                    (age > look.groups) & (issue_look.issued[number] != counted[number])
                ),
            ]

        self._assert_pending(m, busy, row.issued, done_read.data)
        self._assert_pending(m, looking, issue_look.issued, counted)
        m.d.sync += Assert(
            ~waiting.i.valid | waiting.i.ready, "bulk groups: a wait found no room\n"
        )
        return m
