"""Job store: holds the jobs of each channel until their walks are made."""

from amaranth.hdl import Array, Assert, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.walk_limits import has_one_step
from hw.layouts.jobs import in_channel, prepared_job_layout
from hw.lib.arbiter import Arbiter
from hw.lib.memory import RowMemory
from hw.lib.one_hot import any_of
from hw.params import TmaParams

HEADS = 3
"""First jobs of a channel that can be read at once: a job a clock leaves, three clocks after it is
chosen."""


class JobDone(data.Struct):
    """The end of a job; see ``JobStore``."""

    valid: 1
    last: 1


class JobStore(wiring.Component):
    """Holds the jobs of each channel, in order, and offers the first one of any channel.

    The first ``HEADS`` jobs of each channel lie in a memory that is read in the same clock. Those
    behind them, if there may be more, lie in block memory, one memory for all channels, and move up
    one a clock.

    Latency: a job is offered in the clock after it came; if a channel may have more than ``HEADS``
    jobs, three clocks after it came. Throughput: a job in and a job out each clock. Back-pressure:
    none; a channel has at most ``jobs_waiting`` jobs, for which the request queue vouches.

    Parameters
    ----------
    params : TmaParams
        With ``im2col``.

    Members
    -------
    i : In(stream) of ``prepared_job_layout`` in a channel; always ready
    waiting : Out(ArrayLayout(range(HEADS + 1), channels))
        Jobs of each channel that can be read two clocks later, or earlier.
    has_more_steps : Out(channels)
        A bit for each channel: its first job is a column of more than one step.
    channel : In(channel_bits)
        The channel whose first job is offered in the next clock.
    first_valid, first : Out of ``prepared_job_layout``
        The first job of the channel; if that is ``done``, the one behind it.
    has_turn : In
        The job at ``first``, if there is one, makes its next step in the next clock. It is then
        done, unless it has more steps.
    done : In(JobDone)
        ``valid``: the job that was offered in the clock before leaves the store with this clock.
        ``last``: it is the last job of its request.
    freed : Out(channels)
        A bit for each channel: the last job of a request leaves the places for which the request
        queue vouches: it moves up, or if there is no block memory, it leaves the store.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self._job = prepared_job_layout(params)
        super().__init__(
            {
                "i": In(stream.Signature(in_channel(params, self._job), always_ready=True)),
                "waiting": Out(data.ArrayLayout(range(HEADS + 1), params.channels)),
                "has_more_steps": Out(params.channels),
                "channel": In(params.channel_bits),
                "first_valid": Out(1),
                "first": Out(self._job),
                "has_turn": In(1),
                "done": In(JobDone),
                "freed": Out(params.channels),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        channels = self.params.channels
        # Jobs of each channel at its head: with those on their way there, and without.
        coming = [Signal(range(HEADS + 1), name=f"coming_{n}") for n in range(channels)]
        arrived = [Signal(range(HEADS + 1), name=f"arrived_{n}") for n in range(channels)]
        # The channel that is offered, and the one that was offered in the clock before.
        offered, before = (Signal(self.params.channel_bits, name=n) for n in ("offered", "before"))
        m.d.sync += [offered.eq(self.channel), before.eq(offered)]
        is_done = [self.done.valid & (before == n) for n in range(channels)]
        m.d.comb += self.waiting.eq(Cat(coming))
        leaves = Signal(channels)  # a job of one step leaves its head in the next clock
        if self.params.jobs_waiting > HEADS:
            # Of each channel, whether its heads have room in the next clock, if a job moves up in
            # this one or not. A job of several steps leaves room in the clock behind its end.
            room = [
                [
                    leaves[n] | (number != Mux(is_done[n], HEADS, HEADS - 1)),
                    leaves[n] | (number != HEADS) | is_done[n],
                ]
                for n, number in enumerate(coming)
            ]
            moved, arrival, job = self._move_up(m, room)
            m.d.comb += self.freed.eq(Mux(job.last, arrival, 0))
        else:
            moved = arrival = Signal(channels, name="arrival")
            job = Signal(self._job)
            m.d.comb += [
                arrival.eq(self._arrives()),
                self.freed.eq(Mux(self.done.last, Cat(is_done), 0)),
                *(job[name].eq(self.i.p[name]) for name in self._job.members),
            ]
        for n in range(channels):
            m.d.sync += [
                coming[n].eq(coming[n] + moved[n] - is_done[n]),
                arrived[n].eq(arrived[n] + arrival[n] - is_done[n]),
                Assert(
                    (arrived[n] != HEADS) | ~arrival[n], "job_store: a head has no room for a job\n"
                ),
            ]
        places = self._keep_heads(m, (moved, arrival), arrived, is_done, job, offered)
        of_one_step = self._mark_steps(m, arrival, arrived, is_done, places, job)
        m.d.comb += leaves.eq(
            Cat(self.has_turn & (offered == n) & of_one_step[n] for n in range(channels))
        )
        return m

    def _arrives(self) -> Cat:
        """Return a bit for each channel: the job at ``i`` is for it."""
        i = self.i
        return Cat(i.valid & (i.p.channel == number) for number in range(self.params.channels))

    def _move_up(self, m: Module, room: list) -> tuple[Signal, Signal, Signal]:
        """Store jobs in block memory, and move the first ones to the heads.

        ``room``: of each channel, whether its heads have room in the next clock if a job moves up
        in this one, and whether they have if none does.

        Return the channel of the job that begins to move, and that of the job that arrives, as
        masks, and the job that arrives.
        """
        p = self.params
        channels, depth = p.channels, p.jobs_waiting
        place_bits = (depth - 1).bit_length()
        rows = channels << place_bits
        m.submodules.backlog = backlog = RowMemory(self._job, rows, in_block=True)
        m.submodules.turns = turns = Arbiter(p.channel_bits, channels)
        write, read = backlog.write_port(), backlog.read_port()
        layout = data.ArrayLayout(place_bits, channels)
        first, free = Signal(layout, name="first_place"), Signal(layout, name="free_place")
        moved, arrival = Signal(channels, name="moved"), Signal(channels, name="arrival")
        chosen = turns.o.p
        m.d.comb += [
            turns.o.ready.eq(1),
            write.en.eq(self.i.valid),
            write.addr.eq(Cat(free[self.i.p.channel], self.i.p.channel)),
            *(write.data[name].eq(self.i.p[name]) for name in self._job.members),
            read.en.eq(turns.o.valid),
            read.addr.eq(Cat(first[chosen], chosen)),
        ]
        arrives = self._arrives()
        for n in range(channels):
            stored = Signal(range(depth + 1), name=f"stored_{n}")
            is_stored = Signal(name=f"is_stored_{n}")  # there is one
            may_move = Signal(name=f"may_move_{n}")  # there is one, and room
            stored_d = arrives[n] | (stored > 1), arrives[n] | is_stored
            moves_d = [has & fits for has, fits in zip(stored_d, room[n], strict=True)]
            m.d.comb += [
                turns.i[n].valid.eq(may_move),
                turns.i[n].p.eq(n),
                moved[n].eq(turns.i[n].valid & turns.i[n].ready),
            ]
            m.d.sync += [
                stored.eq(stored + arrives[n] - moved[n]),
                is_stored.eq(Mux(moved[n], *stored_d)),
                may_move.eq(Mux(moved[n], *moves_d)),
                first[n].eq(first[n] + moved[n]),
                free[n].eq(free[n] + arrives[n]),
                Assert(
                    (stored != depth) | ~arrives[n],
                    "job_store: a channel has too many jobs\n",
                ),
            ]
        m.d.sync += arrival.eq(moved)
        return moved, arrival, read.data

    def _mark_steps(self, m: Module, arrival, arrived: list, is_done: list, places, job) -> list:
        """Say which channels have a job of several steps as their first one.

        Return for each channel whether the job that is its first one behind a job that is done has
        one step.
        """
        first, first_d, free = places
        has_more_steps = ~has_one_step(self.params, job.column)
        of_one_step = []
        for n, number in enumerate(arrived):
            marks = Signal(HEADS, name=f"marks_{n}")
            with m.If(arrival[n]):
                m.d.sync += marks.bit_select(free[n], 1).eq(has_more_steps)
            m.d.comb += self.has_more_steps[n].eq((number != 0) & marks.bit_select(first[n], 1))
            of_one_step.append((number != is_done[n]) & ~marks.bit_select(first_d[n], 1))
        return of_one_step

    def _keep_heads(self, m: Module, comes, arrived: list, is_done: list, job, offered) -> tuple:
        """Keep the first jobs of each channel, and offer the first one of the channel ``offered``.

        ``comes``: the channels of the job that begins to move up, and of the job that arrives.

        Return for each channel the place of its first job, that of its first job behind one that is
        done, and that of the next one that arrives.
        """
        channels = self.params.channels
        moved, arrival = comes
        m.submodules.heads = heads = RowMemory(self._job, HEADS * channels)
        write, read = heads.write_port(), heads.read_port(clocked=False)
        layout = data.ArrayLayout(range(HEADS), channels)
        first, free = Signal(layout, name="first_head"), Signal(layout, name="free_head")
        after = Array([*range(1, HEADS), 0])
        first_d = Signal(layout)
        # The rows of the first two jobs of the channel are found before it is offered.
        rows = [Signal(len(read.addr), name=f"row_{n}", init=n) for n in range(2)]
        is_same = Signal(init=1)  # it was offered in the clock before, too
        number = Signal.like(arrived[0])
        is_behind = self.done.valid & is_same
        rows_of = [Array(self._rows(n)) for n in range(channels)]
        m.d.sync += [
            rows[0].eq(Array(rows_of[n][first_d[n]] for n in range(channels))[self.channel]),
            rows[1].eq(Array(rows_of[n][after[first_d[n]]] for n in range(channels))[self.channel]),
            is_same.eq(self.channel == offered),
            first.eq(first_d),
        ]
        m.d.comb += [
            write.en.eq(arrival.any()),
            write.data.eq(job),
            *(first_d[n].eq(Mux(is_done[n], after[first[n]], first[n])) for n in range(channels)),
            read.addr.eq(Mux(is_behind, rows[1], rows[0])),
            self.first.eq(read.data),
            number.eq(Array(arrived)[offered]),
            self.first_valid.eq(Mux(is_behind, number > 1, number != 0)),
        ]
        free_d = [Mux(arrival[n], after[free[n]], free[n]) for n in range(channels)]
        m.d.sync += [free[n].eq(free_d[n]) for n in range(channels)]
        if moved is arrival:
            m.d.comb += write.addr.eq(
                any_of((arrival[n], rows_of[n][free[n]]) for n in range(channels))
            )
        else:  # the row is found before the job arrives
            free_row = Signal(len(write.addr))
            m.d.sync += free_row.eq(
                any_of((moved[n], rows_of[n][free_d[n]]) for n in range(channels))
            )
            m.d.comb += write.addr.eq(free_row)
        return first, first_d, free

    def _rows(self, number: int) -> list[Const]:
        """Return the rows of the heads of a channel, one for each value of a place."""
        width = (HEADS * self.params.channels - 1).bit_length()
        places = 1 << (HEADS - 1).bit_length()
        return [
            Const(min(number * HEADS + at, HEADS * self.params.channels - 1), width)
            for at in range(places)
        ]
