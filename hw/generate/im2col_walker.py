"""Im2col walker: a column of pixels becomes walks, rows of pixels of an image."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import POSITION_BITS, generator_job_layout, slot_walk_layout
from hw.lib.quotient import BITS, quotient, reciprocal_of
from hw.params import DIMS, TmaParams

LEVELS = DIMS - 1
IMAGES = LEVELS - 1
GROUP = 32
GROUPS = 4
LEAP_LOG2 = 5
LEAP = 1 << LEAP_LOG2
"""Most pixels of a walk that are not dense; from first to last they span at most 256 positions."""


class Im2colWalker(wiring.Component):
    """Steps through the pixels of an image, as an odometer with the wheels W, H, D and N.

    A walk is all pixels that are left of the column up to the next wrap; where they are not dense,
    ``LEAP`` at most, and with ``im2col::w::128`` or in a ``compact`` unit one. What is left is one
    walk if all of it is outside, but not in a ``compact`` unit. One walk a clock, whatever wraps,
    in a ``compact`` unit one in two clocks, and a clock more for each column. The walks of a column
    are a chain.

    ``im2col::w::128`` stops after each 32 pixels for the halo, each pixel of which is a chain of
    its own, and goes on where it stopped.

    No latency, in a ``compact`` unit one clock: what is no column passes, and a column is taken
    with its last walk. Back-pressure on ``o`` stops the walk.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    o : Out(stream) of ``slot_walk_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(generator_job_layout(params))),
                "o": Out(stream.Signature(slot_walk_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        job = self.i.p
        column = job.column
        wheel = data.StructLayout(
            {"position": signed(POSITION_BITS), "address": p.piece_address_bits}
        )
        # ``left``: pixels of this stretch, which ``begins``.
        place = data.StructLayout(
            {
                "wheels": data.ArrayLayout(wheel, LEVELS),
                "smem": p.smem_piece_bits,
                "left": p.pixel_bits,
                "begins": 1,
            }
        )
        begun = Signal()  # ``kept`` is where the next walk is
        kept = Signal(place, reset_less=True)
        fresh = Signal(place)  # where the job begins
        now = Signal(place)
        onward = Signal(place)  # a walk further
        after = Signal(place)  # where the next walk is: there, but for groups
        wheels, smem, left = now.wheels, now.smem, now.left
        m.d.comb += [
            *(
                wheel[name].eq(level[name])
                for wheel, level in zip(fresh.wheels, column.levels, strict=True)
                for name in ("position", "address")
            ),
            fresh.smem.eq(job.walk.smem_begin),
            fresh.left.eq(Mux(column.grouped, GROUP, column.pixels)),
            fresh.begins.eq(1),
        ]
        if p.compact:
            m.d.comb += now.eq(kept)
            with m.If(~begun):
                m.d.sync += [begun.eq(self.i.valid), kept.eq(fresh)]
        else:
            m.d.comb += now.eq(Mux(begun, kept, fresh))

        # Pixels [low, high) of the next ``pixels`` are inside.
        pixels = Signal(p.pixel_bits)
        settled = Signal()  # ``pixels`` is that of here, or of no matter
        to_walk, wraps, leaps = self._ahead(m, column, wheels[0].position, left)
        low, high, inside = self._inside(m, column, wheels[0].position, pixels)
        for number in range(1, LEVELS):
            where = wheels[number].position
            with m.If((where < 0) | (where > column.levels[number].limit)):
                m.d.comb += inside.eq(0)
        nothing = ~job.walk.has_data if p.compact else self._nowhere(job, wheels[IMAGES].position)
        with m.If(nothing):
            m.d.comb += inside.eq(0)
            if not p.compact:
                m.d.comb += to_walk.eq(left)

        moved = Signal(p.box_piece_bits)
        smem_next = Signal(p.smem_piece_bits)
        is_one = Const(p.compact) & ~column.dense
        m.d.comb += [
            moved.eq(self._pitches(column, pixels)),
            smem_next.eq(smem + Mux(is_one, column.pitch, moved)),
        ]
        turned = self._turn(m, column, wheels, wraps, leaps, pixels, moved)

        stretch_ends = Signal()
        ends = Signal()
        moves = Signal()
        if p.compact:  # a long path, cut in the middle
            counted = Signal()
            m.d.sync += [pixels.eq(to_walk), counted.eq(begun & ~moves)]
            m.d.comb += settled.eq(begun & (counted | ~column.enabled))
        else:
            m.d.comb += [pixels.eq(to_walk), settled.eq(1)]
        run = Signal(p.box_piece_bits)
        offset = Signal(p.box_piece_bits)
        out, walk = self.o.p, self.o.p.walk
        m.d.comb += [
            stretch_ends.eq(left == pixels),
            ends.eq(~column.enabled | stretch_ends),
            self.o.valid.eq(self.i.valid & settled),
            self.i.ready.eq(self.o.ready & settled & ends),
            moves.eq(self.o.valid & self.o.ready),
            *(out[name].eq(job[name]) for name in slot_walk_layout(p).members),
            offset.eq(self._pitches(column, low[: p.pixel_bits])),
            run.eq(self._pitches(column, high - low)),
        ]
        # In global memory a pixel may be further from the next.
        step = column.levels[0].step
        moved_in = offset if p.compact else low[: p.pixel_bits] * step
        with m.If(column.enabled):
            m.d.comb += [
                out.last.eq(job.last & ends),
                walk.first.eq(now.begins),
                walk.last.eq(stretch_ends),
                walk.has_data.eq(inside),
                walk.start.eq(wheels[0].address + moved_in),
                walk.smem_begin.eq(smem),
                walk.smem_end.eq(smem_next),
                walk.smem_start.eq(smem + column.skipped_pieces + offset),
            ]
            with m.If(column.dense):
                m.d.comb += [walk.run.eq(run), walk.smem_extent.eq(run)]
            if not p.compact:
                with m.Else():
                    m.d.comb += [
                        walk.loops[0].last.eq(high - low - 1),
                        walk.loops[0].global_step.eq(step),
                        walk.loops[0].smem_step.eq(column.pitch),
                    ]

        m.d.comb += [
            onward.wheels.eq(turned),
            onward.smem.eq(smem_next),
            onward.left.eq(left - pixels),
            after.eq(onward),
        ]
        with m.If(moves):
            m.d.sync += [begun.eq(~ends), kept.eq(after)]
        if "stops_outside" in column.shape().members:
            outside = Signal()  # something of this column was
            cut = ~inside | (low != 0) | (high != pixels)
            with m.If(moves):
                m.d.sync += outside.eq(~ends & (outside | cut))
            with m.If(column.enabled & column.stops_outside & (outside | (low != 0))):
                m.d.comb += walk.has_data.eq(0)
        if p.im2col_w:
            self._group(m, moves, begun, onward, after, stretch_ends, ends)
        return m

    def _pitches(self, column, pixels) -> Value:
        """Return how many pieces of shared memory so many pixels take; in a ``compact`` unit, dense
        ones.
        """
        return pixels << column.row_log2 if self.params.compact else pixels * column.pitch

    def _ahead(self, m: Module, column, position, left) -> tuple[Signal, Value, Value]:
        """Return how many pixels to walk, whether the lowest wheel wraps then, and whether it leaps
        over ``LEAP`` pixels.
        """
        level = column.levels[0]
        to_wrap = Signal(signed(POSITION_BITS + 1))  # positions, at least this one
        to_walk = Signal(self.params.pixel_bits)
        m.d.comb += [to_wrap.eq(level.last - position + 1), to_walk.eq(1)]
        in_row = Mux(to_wrap > 1, to_wrap, 1)
        if self.params.compact:
            with m.If(column.dense):
                m.d.comb += to_walk.eq(Mux(in_row < left, in_row, left))
            beyond = position + level.stride_less_one >= level.last
            return to_walk, Mux(column.dense, to_wrap <= left, beyond), Const(0)

        far = Signal()
        ahead = Signal.like(to_wrap)
        most = Mux(column.grouped & ~column.dense, 1, left)
        by = level.stride_less_one + 1
        strided = self._strided(m, "ahead", level, in_row - 1)
        m.d.comb += [
            far.eq(~column.dense & (to_wrap > by << LEAP_LOG2)),
            ahead.eq(Mux(column.dense, in_row, Mux(far, LEAP, strided))),
            to_walk.eq(Mux(ahead < most, ahead, most)),
        ]
        return to_walk, ~far & (ahead <= most), far & ~column.grouped

    def _inside(self, m: Module, column, position, pixels) -> tuple[Signal, Signal, Signal]:
        """Return ``low`` and ``high``: of the next ``pixels`` those are inside the row, and whether
        there are any.
        """
        level = column.levels[0]
        to_limit = Signal(signed(POSITION_BITS + 1))  # positions
        low = Signal(signed(POSITION_BITS))
        high = Signal(self.params.pixel_bits)
        inside = Signal()
        before, up_to = -position, to_limit
        begins = position + pixels > 0  # the row, within them
        if not self.params.compact:  # where pixels are not dense, by stride
            begins = low < high
            before = Mux(column.dense, before, self._strided(m, "before", level, ~position))
            strided = self._strided(m, "inside", level, to_limit - 1)
            up_to = Mux(column.dense, up_to, strided)
        m.d.comb += [
            to_limit.eq(level.limit - position + 1),
            low.eq(Mux(position < 0, before, 0)),
            high.eq(Mux(up_to < pixels, up_to, pixels)),
            inside.eq((position <= level.limit) & begins),
        ]
        return low, high, inside

    def _nowhere(self, job, image) -> Value:
        """Return whether all that is left is outside: behind the last image, or the rows or columns
        of every image are.
        """
        outside = [~job.walk.has_data, image > job.column.levels[IMAGES].limit]
        for number in range(IMAGES):
            level = job.column.levels[number]
            outside.append(~level.absent & ((level.last < 0) | (level.restart > level.limit)))
        return Cat(outside).any()

    def _strided(self, m: Module, name: str, level, positions_less_one) -> Value:
        """Return how many pixels that are not dense are in so many positions; of more than
        ``LEAP``, at least that.
        """
        most = (1 << BITS) - 1
        positions = Mux(positions_less_one > most, most, positions_less_one)
        return quotient(m, name, positions, reciprocal_of(m, level.stride_less_one)) + 1

    def _turn(self, m: Module, column, wheels, wraps_lowest, leaps, pixels, moved) -> Signal:
        """Return the wheels after this walk: the lowest that does not wrap takes a step, those
        below it begin anew. The lowest of all takes ``pixels`` dense ones, or one, or it ``leaps``.
        """
        early = m.d.sync if self.params.compact else m.d.comb
        turned = Signal(wheels.shape())
        m.d.comb += turned.eq(wheels)
        turns = Const(1, 1)  # all wheels below wrap
        for number in range(LEVELS):
            level = column.levels[number]
            step = level.step
            reached = Signal(signed(POSITION_BITS), name=f"reached_{number}")
            address = Signal(self.params.piece_address_bits, name=f"address_{number}")
            wraps = Signal(name=f"wraps_{number}")
            by = level.stride_less_one + 1
            beyond = wheels[number].position + level.stride_less_one >= level.last
            if number == 0:
                beyond = wraps_lowest
                by = Mux(column.dense, pixels, Mux(leaps, by << LEAP_LOG2, by))
                step = Mux(column.dense, moved, Mux(leaps, step << LEAP_LOG2, step))
            m.d.comb += reached.eq(wheels[number].position + by)
            m.d.comb += address.eq(wheels[number].address + step)
            if number < LEVELS - 1:  # images have no end
                early += wraps.eq(level.absent | beyond)
            with m.If(turns & ~wraps):
                m.d.comb += [
                    turned[number].position.eq(reached),
                    turned[number].address.eq(address),
                ]
                for below in reversed(range(number)):
                    restart = column.levels[below]
                    address = address + restart.restart_address
                    m.d.comb += [
                        turned[below].position.eq(restart.restart),
                        turned[below].address.eq(address),
                    ]
            turns = turns & wraps
        return turned

    def _group(self, m: Module, moves, begun, onward, after, stretch_ends, ends) -> None:
        """The stretches of ``im2col::w::128``: four groups, after each one its halo."""
        p = self.params
        column = self.i.p.column
        in_halo = Signal()
        group = Signal(range(GROUPS))
        halo_left = Signal(5, reset_less=True)
        halo_smem = Signal(p.smem_piece_bits)  # of this group's first
        next_halo = Signal(p.smem_piece_bits, reset_less=True)
        halo_pixel = Signal(p.smem_piece_bits, reset_less=True)
        stopped = Signal.like(onward, reset_less=True)
        group_ends = Signal()
        halos = self.i.p.walk.smem_begin + (column.pitch << 7)
        if p.compact:
            with m.If(~begun):
                m.d.sync += next_halo.eq(halos)
            m.d.comb += halo_smem.eq(next_halo)
        else:
            m.d.comb += halo_smem.eq(Mux(begun, next_halo, halos))
        m.d.comb += [
            group_ends.eq(stretch_ends & Mux(in_halo, halo_left == 1, column.halo == 0)),
        ]
        with m.If(column.enabled & column.grouped):
            m.d.comb += ends.eq(group_ends & (group == GROUPS - 1))
        with m.If(column.grouped & stretch_ends):
            m.d.comb += after.begins.eq(1)
            with m.If(~group_ends):
                m.d.comb += [after.left.eq(1), after.smem.eq(Mux(in_halo, halo_pixel, halo_smem))]
            with m.Else():
                m.d.comb += after.left.eq(GROUP)
                with m.If(in_halo):
                    m.d.comb += [after.wheels.eq(stopped.wheels), after.smem.eq(stopped.smem)]

        with m.If(moves):
            m.d.sync += next_halo.eq(Mux(group_ends, halo_smem + column.pitch, halo_smem))
        with m.If(moves & column.enabled & column.grouped & stretch_ends):
            m.d.sync += [
                in_halo.eq(~group_ends),
                halo_left.eq(Mux(in_halo, halo_left - 1, column.halo)),
                halo_pixel.eq(after.smem + (column.pitch << 2)),
            ]
            with m.If(group_ends):
                m.d.sync += group.eq(group + 1)
            with m.If(~in_halo):
                m.d.sync += stopped.eq(onward)
