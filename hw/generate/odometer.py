"""Odometer: steps through the pixels of columns, those of all channels in turn."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.job_store import HEADS, JobDone
from hw.generate.walk_limits import (
    GROUP,
    GROUPS,
    LEAP,
    LEAP_LOG2,
    Wheel,
    has_one_step,
    is_outside,
    limits_of,
    rest_is_outside,
    wheels_at,
)
from hw.layouts.columns import (
    WHEELS,
    column_step_fields,
    pixel_counts_layout,
    walk_limits_layout,
)
from hw.layouts.jobs import column_step_layout, prepared_job_layout
from hw.lib.arbiter import Arbiter
from hw.lib.memory import RowMemory
from hw.lib.one_hot import one_hot
from hw.params import TmaParams


def _less(count: Value, by: Value | int) -> Value:
    """Return ``count - by``, at least 0."""
    return Mux(count < by, 0, count - by)


class Odometer(wiring.Component):
    """Steps through the pixels of an image, as an odometer with the wheels W, H and D, and images.

    A job that is no column passes in one step. Of a column, each step takes the pixels up to the
    next wrap of the lowest wheel. Pixels that are not ``dense`` are limited to ``LEAP`` a step, and
    to one a step in ``im2col::w::128``. If all pixels of a column lie outside the tensor, one step
    takes them all. If those behind the last image are left, or at most one more row, and that lies
    outside, the step in front of them takes them, too.

    The steps of a column are one chain. With ``im2col::w::128`` the steps of each group of
    ``GROUP`` pixels are a chain; behind each group the odometer emits the pixels of the halo, each
    of them a chain of its own, and then continues with the next group.

    The channels take turns. A channel takes part while it has a job without a turn, or a column of
    several steps as its first job, and *room*: its steps under way and the walks that wait behind
    the odometer are at most ``walks_waiting``. A turn is lost if it was given behind the end of a
    column. The wheels of the channels that do not have the turn are in a memory.

    Stages: choose a channel; fetch its job and its wheels; emit a step, and turn the wheels.

    Latency: three clocks from ``waiting`` to ``o``. Throughput: a step a clock, whatever wraps. A
    group of dense pixels that ends inside a row takes a second clock. Back-pressure: none but room.

    Parameters
    ----------
    params : TmaParams
        With ``im2col``.
    walks_waiting : int
        Walks of a channel that can wait behind the odometer, or be on their way there.

    Members
    -------
    waiting, has_more_steps, channel, first_valid, first, has_turn, done :
        the ports of ``JobStore``, turned round
    o : Out(stream) of ``column_step_layout``; always taken
    taken : In(channels)
        A bit for each channel: a walk of the channel leaves the place where it waited.
    """

    def __init__(self, params: TmaParams, walks_waiting: int) -> None:
        self.params = params
        self.walks_waiting = walks_waiting
        super().__init__(
            {
                "waiting": In(data.ArrayLayout(range(HEADS + 1), params.channels)),
                "has_more_steps": In(params.channels),
                "channel": Out(params.channel_bits),
                "first_valid": In(1),
                "first": In(prepared_job_layout(params)),
                "has_turn": Out(1),
                "done": Out(JobDone),
                "o": Out(stream.Signature(column_step_layout(params), always_ready=True)),
                "taken": In(params.channels),
            }
        )
        address = params.piece_address_bits
        self._wheels = data.StructLayout(
            {
                "counts": data.ArrayLayout(pixel_counts_layout(params), WHEELS),
                "image": pixel_counts_layout(params, wraps=False),
                "address": address,
                "next_address": data.ArrayLayout(address, WHEELS),
                "limits": walk_limits_layout(params),
            }
        )
        # State of a column at its next step. ``left``: pixels of the chain; ``ends``: the chain
        # ends with the step; ``first``: it begins. With ``im2col_w``: ``is_partial``, a group ends
        # inside a row; then ``offset`` is its end, multiplied in a clock of its own; ``is_done``:
        # the column is done in this clock; ``last_of_group``: the chain is the last one of its
        # group; ``group_end``: the wheels behind the pixels of the group; ``halo_left``: pixels of
        # the halo, with this one.
        groups = {
            "is_partial": 1,
            "has_offset": 1,
            "offset": address,
            "is_done": 1,
            "last_of_group": 1,
            "in_halo": 1,
            "group": range(GROUPS),
            "halo_left": 5,
            "group_end": self._wheels,
        }
        self._state = data.StructLayout(
            {
                "wheels": self._wheels,
                "left": params.pixel_bits,
                "ends": 1,
                "first": 1,
                **(groups if params.im2col_w else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        valid = Signal()  # a step
        channel = Signal(p.channel_bits)
        job = Signal(prepared_job_layout(p), reset_less=True)
        state = Signal(self._state, reset_less=True)
        first_of_column = Signal()
        state_d = Signal(self._state)
        last_of_column = Signal()
        is_done = Signal()
        emits = Signal()
        lost = [Signal(p.channels, name=f"lost_{n}") for n in range(2)]  # turns without a walk
        used = [Signal(p.channels, name=f"used_{n}") for n in range(2)]  # turns that are over
        has_begun = Signal(p.channels)  # the column of the channel's first job has

        turn_valid, turn = self._choose(m, lost, used)
        m.d.comb += [
            self.done.valid.eq(valid & is_done),
            self.done.last.eq(job.last),
        ]
        with m.If(valid):
            m.d.sync += has_begun.bit_select(channel, 1).eq(~is_done)
        comes = turn_valid & self.first_valid
        # The channel of the step has the turn behind it, too. The register that chooses the state
        # is another one than that of the short logic, so that both can be near what they drive.
        is_same = Signal()
        is_other = Signal(init=1)
        m.d.sync += [
            is_same.eq(comes & (self.channel == turn)),
            is_other.eq(~comes | (self.channel != turn)),
        ]
        started = Mux(is_same, ~is_done, has_begun.bit_select(turn, 1))
        current = self._find_state(m, valid, channel, turn, is_other, state_d)
        m.d.comb += [
            used[0].eq(one_hot(turn, turn_valid & ~self.first_valid, p.channels)),
            used[1].eq(one_hot(channel, valid, p.channels)),
        ]
        m.d.comb += self.has_turn.eq(turn_valid)
        m.d.sync += [
            valid.eq(comes),
            channel.eq(turn),
            job.eq(self.first),
            first_of_column.eq(~started),
            state.eq(current),
            lost[0].eq(used[0]),
            lost[1].eq(one_hot(channel, valid & ~emits, p.channels)),
        ]
        with m.If(~started):
            m.d.sync += self._start(state)
        m.d.comb += emits.eq(valid)
        place = Signal(column_step_fields(p)["place"])
        most = state.wheels.limits.most
        pixels = Mux(state.ends, state.left, most)
        in_row = Mux(state.left < most, state.left, most)  # those that are not behind the row
        m.d.comb += [
            place.first_of_column.eq(first_of_column),
            place.first.eq(state.first),
            place.last.eq(state.ends),
            place.last_of_column.eq(last_of_column),
            last_of_column.eq(state.ends),
            is_done.eq(last_of_column),
        ]
        self._step(m, job.column, state, state_d, (emits, is_done, last_of_column, place))
        self._emit(m, emits, channel, job, state.wheels, place, (pixels, in_row))
        return m

    def _choose(self, m: Module, lost: list[Signal], used: list[Signal]) -> tuple[Signal, Signal]:
        """Give the channels with a job and with room their turn; return the channel, a clock later.

        Each of ``lost`` has a bit for each channel: a turn of the channel gave no walk. Each of
        ``used`` has one, too: a turn of the channel is over.
        """
        p = self.params
        m.submodules.turns = turns = Arbiter(p.channel_bits, p.channels)
        valid = Signal(name="turn_valid")
        channel = Signal(p.channel_bits, name="turn")
        was_taken = Signal(p.channels)
        m.d.comb += [turns.o.ready.eq(1), self.channel.eq(turns.o.p)]
        m.d.sync += [valid.eq(turns.o.valid), channel.eq(turns.o.p), was_taken.eq(self.taken)]
        for n in range(p.channels):
            under_way = Signal(range(self.walks_waiting + 1), name=f"under_way_{n}")
            given = Signal(range(4), name=f"given_{n}")  # turns that are not over
            is_chosen = turns.i[n].valid & turns.i[n].ready
            has_job = (self.waiting[n] > given) | self.has_more_steps[n]
            m.d.comb += [
                turns.i[n].valid.eq(has_job & (under_way != self.walks_waiting)),
                turns.i[n].p.eq(n),
            ]
            ended = was_taken[n] + lost[0][n] + lost[1][n]
            m.d.sync += [
                under_way.eq(under_way + is_chosen - ended),
                given.eq(given + is_chosen - used[0][n] - used[1][n]),
                Assert(under_way >= ended, "odometer: a walk was taken twice\n"),
            ]
        return valid, channel

    def _find_state(self, m: Module, valid, channel, turn, is_other, state_d) -> Value:
        """Return the state of the column of the channel ``turn``, if it has begun.

        ``state_d``: of the column of ``channel`` behind the step that is made in this clock;
        ``is_other``: there is none, or it is not that of ``turn``.
        """
        p = self.params
        m.submodules.states = states = RowMemory(self._state, p.channels)
        write, read = states.write_port(), states.read_port(clocked=False)
        m.d.comb += [
            write.en.eq(valid),
            write.addr.eq(channel),
            write.data.eq(state_d),
            read.addr.eq(turn),
        ]
        return Mux(is_other, Value.cast(read.data), state_d.as_value())

    def _start(self, state) -> list:
        """Return the assignments to ``state`` at the first pixel of the job that is fetched."""
        column = self.first.column
        wheels = state.wheels
        left = column.pixels
        groups = []
        if self.params.im2col_w:
            limits = column.limits
            is_grouped = column.enabled & column.grouped
            left = Mux(is_grouped, GROUP, left)
            groups = [
                state.is_partial.eq(is_grouped & ~limits.is_outside & (limits.most > GROUP)),
                state.has_offset.eq(0),
                state.is_done.eq(has_one_step(self.params, column)),
                state.last_of_group.eq(column.halo == 0),
                state.in_halo.eq(0),
                state.group.eq(0),
            ]
        return [
            *(wheels.counts[number].eq(column.first[number]) for number in range(WHEELS)),
            *(wheels[name].eq(column[name]) for name in self._wheels.members if name != "counts"),
            state.left.eq(left),
            state.ends.eq(column.ends),
            state.first.eq(1),
            *groups,
        ]

    def _step(self, m: Module, column, state, state_d, outputs) -> None:
        """Turn the wheels behind the step.

        ``outputs``: whether the step has pixels, or only turns wheels; whether the column is done
        with it; whether its walk is the last one of the column; its place.
        """
        p = self.params
        emits, _, last_of_column, _ = outputs
        wheels, left = state.wheels, state.left
        turned = Signal(self._wheels)
        partial = Const(0, 1), left, Const(0, p.piece_address_bits)
        if p.im2col_w:
            partial = state.is_partial, left, state.offset
        self._turn(m, column, wheels, partial, turned)
        m.d.comb += [
            state_d.eq(state),
            state_d.wheels.eq(turned),
            state_d.left.eq(left - wheels.limits.most),
            state_d.first.eq(state.ends),
            state_d.ends.eq(self._ends(column, state)),
        ]
        if p.im2col_w:
            self._walk_groups(m, column, state, state_d, turned, outputs[1:])
            with m.If(state.has_offset):
                m.d.comb += [emits.eq(0), state_d.has_offset.eq(0)]
            with m.Elif(state.is_partial):
                # The wheels turn in the next step, behind the product.
                m.d.comb += [
                    state_d.eq(state),
                    state_d.is_done.eq(last_of_column),
                    state_d.has_offset.eq(1),
                    state_d.offset.eq(left * column.step),
                ]

    def _ends(self, column, state) -> Value:
        """Return whether the chain ends with the step behind this one.

        Long paths end here. What holds behind a step inside a row, and what holds behind the wrap
        of a row, are found apart, from registers; the choice comes last.
        """
        p = self.params
        wheels, left = state.wheels, state.left
        row, restart = wheels.counts[0].to_wrap, column.restart[0].to_wrap
        # Inside a row, this step and the next one take ``LEAP`` pixels, or the rest of the row.
        stays = ~column.dense & (row > 2 * LEAP)
        here = wheels_at(wheels.counts, wheels.image, wheels.limits)
        next_row = ~stays, left - restart <= row, wheels.image.to_limit <= 1
        ends_inside = Mux(stays, left <= 2 * LEAP, left <= row)
        ends_inside |= rest_is_outside(p, column, next_row, here)
        # Behind the row, the next step begins a row.
        stays = ~column.dense & (restart > LEAP)
        behind = left - row
        in_last_image = wheels.image.to_limit <= Mux(wheels.limits.wraps.all(), 2, 1)
        next_row = ~stays, behind <= restart << 1, in_last_image
        ends_behind = behind <= Mux(stays, LEAP, restart)
        ends_behind |= rest_is_outside(p, column, next_row, self._turned(column, wheels))
        return Mux(wheels.limits.stays, ends_inside, ends_behind)

    def _group_ends(self, column, state) -> tuple[Value, Value]:
        """Return, of the ``grouped`` step behind this one, whether its chain ends with it, and
        whether it is dense and ends inside a row. Both are unknown if it is outside the tensor.

        Long paths end here: the cases are compared apart, from registers; the choice comes last.
        """
        row, restart = state.wheels.counts[0].to_wrap, column.restart[0].to_wrap
        dense, left = column.dense, state.left  # pixels that are not dense take a step each
        behind, in_row = left - row, row - left  # pixels behind the row, or behind the group
        most = state.group_end.limits.most
        is_partial = state.is_partial

        def choose(in_group, behind_group, halo, behind_halo) -> Value:
            behind_chain = Mux(state.in_halo, behind_halo, behind_group)
            return Mux(state.ends, Mux(state.last_of_group, behind_chain, halo), in_group)

        ends = choose(
            Mux(dense, behind <= restart, left <= 2),
            dense & Mux(is_partial, in_row >= GROUP, restart >= GROUP),
            1,
            most >= GROUP,
        )
        ends_inside_row = choose(
            dense & (behind < restart),
            dense & Mux(is_partial, in_row > GROUP, restart > GROUP),
            0,
            most > GROUP,
        )
        return ends, ends_inside_row

    def _turned(self, column, wheels) -> list[Wheel]:
        """Return the wheels H, D and N behind the wrap of a row, without their counts."""
        turned = []
        below_wrap = Const(1, 1)
        for number in range(1, WHEELS + 1):
            if number == WHEELS:  # images do not wrap
                position, wraps, restart = wheels.image, Const(0, 1), wheels.image
                wraps_behind = Const(0, 1)
            else:
                position, wraps = wheels.counts[number], wheels.limits.wraps[number - 1]
                restart = column.restart[number]
                wraps_behind = Mux(wraps, restart.to_wrap == 1, position.to_wrap == 2)
            outside = [
                Mux(
                    below_wrap,
                    Mux(wraps, is_outside(restart, steps), is_outside(position, steps + 1)),
                    is_outside(position, steps),
                )
                for steps in range(2)
            ]
            turned.append(Wheel(*outside, Mux(below_wrap, wraps_behind, wraps)))
            below_wrap = below_wrap & wraps
        return turned

    def _turn(self, m: Module, column, wheels, partial, turned) -> None:
        """Assign the wheels after this step.

        The lowest wheel that does not wrap takes a step, and the wheels below it restart. Steps
        inside a row are ``LEAP`` pixels, or in ``im2col::w::128`` one pixel or, if a group of dense
        pixels ends, the pixels that were left.
        """
        is_partial, left, offset = partial
        limits = wheels.limits
        stays = limits.stays | is_partial
        is_grouped = column.grouped if self.params.im2col_w else Const(0, 1)
        pixels = Mux(is_partial, left, Mux(is_grouped, 1, LEAP))
        leap = Mux(is_grouped, column.step, column.step << LEAP_LOG2)
        level = Signal(range(WHEELS + 1))  # the wheel that takes a step
        base, added = (Signal(self.params.piece_address_bits, name=n) for n in ("base", "added"))
        m.d.comb += [
            turned.eq(wheels),
            level.eq(WHEELS),
            base.eq(wheels.address),
            added.eq(Mux(is_partial, offset, leap)),
            turned.address.eq(base + added),
            *limits_of(self.params, column, turned.counts, turned.limits),
        ]
        for number in reversed(range(1, WHEELS)):
            with m.If(~limits.wraps[number - 1]):
                m.d.comb += level.eq(number)
        row, row_d = wheels.counts[0], turned.counts[0]
        with m.If(stays):
            m.d.comb += [
                row_d.to_wrap.eq(row.to_wrap - pixels),
                row_d.before.eq(_less(row.before, pixels)),
                row_d.to_limit.eq(_less(row.to_limit, pixels)),
            ]
        with m.Else():
            m.d.comb += row_d.eq(column.restart[0])
            with m.Switch(level):
                for number in range(1, WHEELS + 1):
                    with m.Case(number):
                        self._step_wheel(m, column, wheels, number, (base, added), turned)

    def _step_wheel(self, m: Module, column, wheels, level: int, sums, turned) -> None:
        """Let a wheel, or the images, take a step; restart the wheels below, but W."""
        base, added = sums
        turn = column[f"turn_{level}"]
        next_address = wheels.next_address[level - 1]
        m.d.comb += [
            base.eq(next_address),
            added.eq(turn.address),
            *(
                turned.next_address[number].eq(next_address + turn.next_address[number])
                for number in range(level)
            ),
            *(turned.counts[number].eq(column.restart[number]) for number in range(1, level)),
        ]
        if level < WHEELS:
            counts, counts_d = wheels.counts[level], turned.counts[level]
            m.d.comb += counts_d.to_wrap.eq(counts.to_wrap - 1)
        else:
            counts, counts_d = wheels.image, turned.image
            if self.params.im2col_w:
                is_outside = wheels.limits.is_outside | (counts.to_limit == 1)
                m.d.comb += turned.limits.is_outside.eq(is_outside)
        m.d.comb += [
            counts_d.before.eq(_less(counts.before, 1)),
            counts_d.to_limit.eq(_less(counts.to_limit, 1)),
        ]

    def _walk_groups(self, m: Module, column, state, state_d, turned, outputs) -> None:
        """Walk the chains of ``im2col::w::128``: four groups, and behind each one its halo."""
        is_done, last_of_column, place = outputs
        last_of_group = state.last_of_group
        last_group = GROUPS - 1
        is_outside = state_d.wheels.limits.is_outside
        ends, ends_inside_row = self._group_ends(column, state)
        is_last = state_d.last_of_group & (state_d.group == last_group)
        m.d.comb += [
            place.in_halo.eq(state.in_halo),
            place.first_of_halo.eq(state.halo_left == column.halo),
            is_done.eq(state.is_done),
            state_d.is_done.eq(state_d.ends),
        ]
        with m.If(column.enabled & column.grouped):
            m.d.comb += [
                last_of_column.eq(state.ends & last_of_group & (state.group == last_group)),
                state_d.ends.eq(ends | is_outside),
                state_d.is_partial.eq(ends_inside_row & ~is_outside),
                state_d.is_done.eq(state_d.ends & ~state_d.is_partial & is_last),
            ]
            with m.If(state.ends):
                m.d.comb += [
                    state_d.in_halo.eq(~last_of_group),
                    state_d.group.eq(state.group + last_of_group),
                    state_d.halo_left.eq(Mux(state.in_halo, state.halo_left - 1, column.halo)),
                    state_d.last_of_group.eq(
                        Mux(last_of_group, column.halo == 0, state_d.halo_left == 1)
                    ),
                ]
                with m.If(~state.in_halo):
                    m.d.comb += state_d.group_end.eq(turned)
                with m.If(last_of_group):
                    m.d.comb += state_d.left.eq(GROUP)
                    with m.If(state.in_halo):
                        m.d.comb += state_d.wheels.eq(state.group_end)
                with m.Else():
                    m.d.comb += [
                        state_d.left.eq(1),
                        state_d.wheels.limits.most.eq(1),
                        state_d.wheels.limits.stays.eq(turned.counts[0].to_wrap != 1),
                    ]

    def _emit(self, m: Module, emits, channel, job, wheels, place, counts) -> None:
        """Offer the step, and whether its row is inside the tensor, from registers.

        ``counts``: pixels of the step, and those of them that are in its row.
        """
        pixels, in_row = counts
        step = Signal(column_step_layout(self.params), name="step", reset_less=True)
        valid = Signal(name="step_valid")
        row = wheels.counts[0]
        others = [*(wheels.counts[number] for number in range(1, WHEELS)), wheels.image]
        is_inside = Cat((each.before == 0) & (each.to_limit != 0) for each in others).all()
        of_job = {"slot", "last", "walk"}
        of_column = step.shape().members.keys() & job.column.shape().members.keys() - {"address"}
        m.d.comb += [self.o.valid.eq(valid), self.o.payload.eq(step)]
        m.d.sync += [
            valid.eq(emits),
            step.channel.eq(channel),
            *(step[name].eq(job[name]) for name in sorted(of_job)),
            *(step[name].eq(job.column[name]) for name in sorted(of_column)),
            step.address.eq(wheels.address),
            step.place.eq(place),
            step.pixels.eq(pixels),
            step.before.eq(row.before),
            step.to_limit.eq(Mux(row.to_limit < in_row, row.to_limit, in_row)),
            step.inside.eq(is_inside & ~wheels.limits.is_outside),
        ]
