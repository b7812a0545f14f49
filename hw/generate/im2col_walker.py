"""Im2col walker: turns a column of pixels of an image into walks."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import POSITION_BITS, generator_job_layout, slot_walk_layout
from hw.lib.quotient import BITS, quotient, reciprocal_of
from hw.params import DIMS, TmaParams

LEVELS = DIMS - 1
"""Wheels of the odometer: W, H, D and N."""

IMAGES = LEVELS - 1
"""Level of the images, N."""

GROUP = 32
"""Pixels of a group of ``im2col::w::128``."""

GROUPS = 4
"""Groups of a column of ``im2col::w::128``."""

LEAP_LOG2 = 5
LEAP = 1 << LEAP_LOG2
"""Most pixels of a walk that are not dense; from first to last they span at most 256 positions."""


class Im2colWalker(wiring.Component):
    """Steps through the pixels of an image, as an odometer with the wheels W, H, D and N.

    A job that is no column passes unchanged. Of a column, each walk takes the pixels up to the next
    wrap of the lowest wheel. Pixels that are not ``dense`` are limited to ``LEAP`` per walk, and to
    one per walk in ``im2col::w::128`` and in a ``compact`` unit. If all pixels that are left lie
    outside the tensor, one walk takes them all; a ``compact`` unit has no such shortcut.

    The walks of a column are one chain. With ``im2col::w::128`` the walks of each group of
    ``GROUP`` pixels are a chain; behind each group the walker emits the pixels of the halo, each of
    them a chain of its own, and then continues with the next group.

    Latency: none; one clock in a ``compact`` unit. Throughput: one walk a clock, whatever wraps; in
    a ``compact`` unit one walk in two clocks, and one more clock for each column. Back-pressure:
    ``o`` stops the walk; a column is taken with its last walk.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    o : Out(stream) of ``slot_walk_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(generator_job_layout(params))),
                "o": Out(stream.Signature(slot_walk_layout(params))),
            }
        )
        wheel = data.StructLayout(
            {"position": signed(POSITION_BITS), "address": params.piece_address_bits}
        )
        # ``pixels_left`` are those of the current chain; ``first_of_chain``: it begins here.
        self._state = data.StructLayout(
            {
                "wheels": data.ArrayLayout(wheel, LEVELS),
                "smem": params.smem_piece_bits,
                "pixels_left": params.pixel_bits,
                "first_of_chain": 1,
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        job = self.i.p
        column = job.column
        started = Signal()  # ``state_q`` is the state of this column
        state_q = Signal(self._state, reset_less=True)
        start = Signal(self._state)  # state at the first walk of the column
        state = Signal(self._state)
        linear_next = Signal(self._state)  # state after this walk, without groups
        state_d = Signal(self._state)
        wheels, smem, pixels_left = state.wheels, state.smem, state.pixels_left
        m.d.comb += [
            *(
                wheel[name].eq(level[name])
                for wheel, level in zip(start.wheels, column.levels, strict=True)
                for name in ("position", "address")
            ),
            start.smem.eq(job.walk.smem_begin),
            start.pixels_left.eq(Mux(column.grouped, GROUP, column.pixels)),
            start.first_of_chain.eq(1),
        ]
        if p.compact:
            m.d.comb += state.eq(state_q)
            with m.If(~started):
                m.d.sync += [started.eq(self.i.valid), state_q.eq(start)]
        else:
            m.d.comb += state.eq(Mux(started, state_q, start))

        # The walk takes ``pixels``; of these, the pixels [low, high) are inside the tensor.
        pixels = Signal(p.pixel_bits)
        count_valid = Signal()  # ``pixels`` belongs to ``state``, or does not matter
        count, wraps, leaps = self._count_pixels(m, column, wheels[0].position, pixels_left)
        low, high, inside = self._find_inside(m, column, wheels, pixels)
        is_all_outside = self._is_all_outside(job, wheels[IMAGES].position)
        with m.If(is_all_outside):
            m.d.comb += inside.eq(0)
            if not p.compact:
                m.d.comb += count.eq(pixels_left)

        walk_pieces = Signal(p.box_piece_bits)
        smem_next = Signal(p.smem_piece_bits)
        takes_one = Const(p.compact) & ~column.dense
        m.d.comb += [
            walk_pieces.eq(self._smem_pieces(column, pixels)),
            smem_next.eq(smem + Mux(takes_one, column.pitch, walk_pieces)),
        ]
        wheels_next = self._turn(m, column, wheels, wraps, leaps, pixels, walk_pieces)

        last_of_chain = Signal()
        last_of_column = Signal()
        fire = Signal()
        if p.compact:  # a register cuts the long path behind the count
            count_registered = Signal()
            m.d.sync += [pixels.eq(count), count_registered.eq(started & ~fire)]
            m.d.comb += count_valid.eq(started & (count_registered | ~column.enabled))
        else:
            m.d.comb += [pixels.eq(count), count_valid.eq(1)]
        m.d.comb += [
            last_of_chain.eq(pixels_left == pixels),
            last_of_column.eq(~column.enabled | last_of_chain),
            self.o.valid.eq(self.i.valid & count_valid),
            self.i.ready.eq(self.o.ready & count_valid & last_of_column),
            fire.eq(self.o.valid & self.o.ready),
        ]
        self._emit_walk(m, state, (low, high, inside), smem_next, last_of_chain, last_of_column)

        m.d.comb += [
            linear_next.wheels.eq(wheels_next),
            linear_next.smem.eq(smem_next),
            linear_next.pixels_left.eq(pixels_left - pixels),
            state_d.eq(linear_next),
        ]
        with m.If(fire):
            m.d.sync += [started.eq(~last_of_column), state_q.eq(state_d)]
        has_outside = ~inside | (low != 0) | (high != pixels)
        self._stop_outside(m, column, fire, last_of_column, has_outside, low)
        if p.im2col_w:
            self._walk_groups(m, fire, started, linear_next, state_d, last_of_chain, last_of_column)
        return m

    def _emit_walk(
        self, m: Module, state, pixels_inside, smem_next, last_of_chain, last_of_column
    ) -> None:
        """Offer the walk of the pixels [low, high), or the job itself if it is no column."""
        p = self.params
        job, column = self.i.p, self.i.p.column
        low, high, inside = pixels_inside
        walk = self.o.p.walk
        run = Signal(p.box_piece_bits)
        offset = Signal(p.box_piece_bits)
        m.d.comb += [
            *(self.o.p[name].eq(job[name]) for name in slot_walk_layout(p).members),
            offset.eq(self._smem_pieces(column, low[: p.pixel_bits])),
            run.eq(self._smem_pieces(column, high - low)),
        ]
        # In global memory the distance between two pixels may be larger than in shared memory.
        step = column.levels[0].step
        global_offset = offset if p.compact else low[: p.pixel_bits] * step
        with m.If(column.enabled):
            m.d.comb += [
                self.o.p.last.eq(job.last & last_of_column),
                walk.first.eq(state.first_of_chain),
                walk.last.eq(last_of_chain),
                walk.has_data.eq(inside),
                walk.start.eq(state.wheels[0].address + global_offset),
                walk.smem_begin.eq(state.smem),
                walk.smem_end.eq(smem_next),
                walk.smem_start.eq(state.smem + column.skipped_pieces + offset),
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

    def _smem_pieces(self, column, pixels) -> Value:
        """Return how many pieces of shared memory ``pixels`` take; in a ``compact`` unit the pixels
        must be dense.
        """
        return pixels << column.row_log2 if self.params.compact else pixels * column.pitch

    def _count_pixels(
        self, m: Module, column, position, pixels_left
    ) -> tuple[Signal, Value, Value]:
        """Return the pixels of the next walk, whether the lowest wheel wraps behind them, and
        whether that wheel advances by ``LEAP`` pixels.
        """
        level = column.levels[0]
        to_wrap = Signal(signed(POSITION_BITS + 1))  # positions up to the wrap, this one included
        count = Signal(self.params.pixel_bits)
        m.d.comb += [to_wrap.eq(level.last - position + 1), count.eq(1)]
        in_row = Mux(to_wrap > 1, to_wrap, 1)
        if self.params.compact:
            with m.If(column.dense):
                m.d.comb += count.eq(Mux(in_row < pixels_left, in_row, pixels_left))
            is_beyond = position + level.stride_less_one >= level.last
            return count, Mux(column.dense, to_wrap <= pixels_left, is_beyond), Const(0)

        is_far = Signal()  # the wrap is more than ``LEAP`` pixels away
        pixels_to_wrap = Signal.like(to_wrap)  # but at most ``LEAP`` if the pixels are not dense
        max_pixels = Mux(column.grouped & ~column.dense, 1, pixels_left)
        stride = level.stride_less_one + 1
        strided = self._strided(m, "pixels_to_wrap", level, in_row - 1)
        m.d.comb += [
            is_far.eq(~column.dense & (to_wrap > stride << LEAP_LOG2)),
            pixels_to_wrap.eq(Mux(column.dense, in_row, Mux(is_far, LEAP, strided))),
            count.eq(Mux(pixels_to_wrap < max_pixels, pixels_to_wrap, max_pixels)),
        ]
        return count, ~is_far & (pixels_to_wrap <= max_pixels), is_far & ~column.grouped

    def _find_inside(self, m: Module, column, wheels, pixels) -> tuple[Signal, Signal, Signal]:
        """Return ``low``, ``high`` and ``inside``.

        Of the next ``pixels``, the pixels [low, high) are inside the row of the tensor. ``inside``
        says whether there are any, and the row itself is inside the tensor.
        """
        level, position = column.levels[0], wheels[0].position
        to_limit = Signal(signed(POSITION_BITS + 1))  # positions
        low = Signal(signed(POSITION_BITS))
        high = Signal(self.params.pixel_bits)
        inside = Signal()
        pixels_before, pixels_to_limit = -position, to_limit
        reaches_row = position + pixels > 0
        if not self.params.compact:  # pixels that are not dense are counted by their stride
            reaches_row = low < high
            strided = self._strided(m, "pixels_before", level, ~position)
            pixels_before = Mux(column.dense, pixels_before, strided)
            strided = self._strided(m, "pixels_to_limit", level, to_limit - 1)
            pixels_to_limit = Mux(column.dense, pixels_to_limit, strided)
        m.d.comb += [
            to_limit.eq(level.limit - position + 1),
            low.eq(Mux(position < 0, pixels_before, 0)),
            high.eq(Mux(pixels_to_limit < pixels, pixels_to_limit, pixels)),
            inside.eq((position <= level.limit) & reaches_row),
        ]
        for number in range(1, LEVELS):
            position = wheels[number].position
            with m.If((position < 0) | (position > column.levels[number].limit)):
                m.d.comb += inside.eq(0)
        return low, high, inside

    def _is_all_outside(self, job, image) -> Value:
        """Return whether all pixels that are left are outside the tensor.

        They are if the current image is behind the last one, or if the rows or columns that the
        odometer visits are outside in every image. A ``compact`` unit only checks whether the job
        has data.
        """
        if self.params.compact:
            return ~job.walk.has_data
        outside = [~job.walk.has_data, image > job.column.levels[IMAGES].limit]
        for number in range(IMAGES):
            level = job.column.levels[number]
            outside.append(~level.absent & ((level.last < 0) | (level.restart > level.limit)))
        return Cat(outside).any()

    def _strided(self, m: Module, name: str, level, positions_less_one) -> Value:
        """Return how many pixels that are not dense lie in a number of positions. If they are more
        than ``LEAP``, the result is only known to be at least ``LEAP``.
        """
        most = (1 << BITS) - 1
        positions = Mux(positions_less_one > most, most, positions_less_one)
        return quotient(m, name, positions, reciprocal_of(m, level.stride_less_one)) + 1

    def _turn(self, m: Module, column, wheels, wraps_lowest, leaps, pixels, walk_pieces) -> Signal:
        """Return the wheels after this walk.

        The lowest wheel that does not wrap takes a step, and the wheels below it restart. The step
        of the lowest wheel is ``pixels`` if they are dense, ``LEAP`` pixels if it ``leaps``, and
        otherwise one pixel.
        """
        domain = m.d.sync if self.params.compact else m.d.comb
        wheels_next = Signal(wheels.shape())
        m.d.comb += wheels_next.eq(wheels)
        all_below_wrap = Const(1, 1)
        for number in range(LEVELS):
            level = column.levels[number]
            step = level.step
            position = Signal(signed(POSITION_BITS), name=f"position_{number}")
            address = Signal(self.params.piece_address_bits, name=f"address_{number}")
            wraps = Signal(name=f"wraps_{number}")
            stride = level.stride_less_one + 1
            is_beyond = wheels[number].position + level.stride_less_one >= level.last
            if number == 0:
                is_beyond = wraps_lowest
                stride = Mux(column.dense, pixels, Mux(leaps, stride << LEAP_LOG2, stride))
                step = Mux(column.dense, walk_pieces, Mux(leaps, step << LEAP_LOG2, step))
            m.d.comb += position.eq(wheels[number].position + stride)
            m.d.comb += address.eq(wheels[number].address + step)
            if number < LEVELS - 1:  # images have no end
                domain += wraps.eq(level.absent | is_beyond)
            with m.If(all_below_wrap & ~wraps):
                m.d.comb += [
                    wheels_next[number].position.eq(position),
                    wheels_next[number].address.eq(address),
                ]
                for below in reversed(range(number)):
                    restart = column.levels[below]
                    address = address + restart.restart_address
                    m.d.comb += [
                        wheels_next[below].position.eq(restart.restart),
                        wheels_next[below].address.eq(address),
                    ]
            all_below_wrap = all_below_wrap & wraps
        return wheels_next

    def _stop_outside(self, m: Module, column, fire, last_of_column, has_outside, low) -> None:
        """Drop the pixels behind the first one outside, of a store that ``stops_outside``."""
        if "stops_outside" not in column.shape().members:
            return
        was_outside = Signal()  # an earlier walk of this column had a pixel outside
        with m.If(fire):
            m.d.sync += was_outside.eq(~last_of_column & (was_outside | has_outside))
        with m.If(column.enabled & column.stops_outside & (was_outside | (low != 0))):
            m.d.comb += self.o.p.walk.has_data.eq(0)

    def _walk_groups(
        self, m: Module, fire, started, linear_next, state_d, last_of_chain, last_of_column
    ) -> None:
        """Walk the chains of ``im2col::w::128``: four groups, and behind each one its halo."""
        p = self.params
        column = self.i.p.column
        in_halo = Signal()
        group = Signal(range(GROUPS))
        halo_pixels_left = Signal(5, reset_less=True)
        halo_smem = Signal(p.smem_piece_bits)  # shared memory of this group's first halo pixel
        halo_smem_q = Signal(p.smem_piece_bits, reset_less=True)
        halo_pixel_smem = Signal(p.smem_piece_bits, reset_less=True)  # of the next halo pixel
        group_end = Signal.like(linear_next, reset_less=True)  # state behind the group's pixels
        last_of_group = Signal()
        first_halo_smem = self.i.p.walk.smem_begin + (column.pitch << 7)
        if p.compact:
            with m.If(~started):
                m.d.sync += halo_smem_q.eq(first_halo_smem)
            m.d.comb += halo_smem.eq(halo_smem_q)
        else:
            m.d.comb += halo_smem.eq(Mux(started, halo_smem_q, first_halo_smem))
        m.d.comb += [
            last_of_group.eq(last_of_chain & Mux(in_halo, halo_pixels_left == 1, column.halo == 0)),
        ]
        with m.If(column.enabled & column.grouped):
            m.d.comb += last_of_column.eq(last_of_group & (group == GROUPS - 1))
        with m.If(column.grouped & last_of_chain):
            m.d.comb += state_d.first_of_chain.eq(1)
            with m.If(~last_of_group):
                m.d.comb += [
                    state_d.pixels_left.eq(1),
                    state_d.smem.eq(Mux(in_halo, halo_pixel_smem, halo_smem)),
                ]
            with m.Else():
                m.d.comb += state_d.pixels_left.eq(GROUP)
                with m.If(in_halo):
                    m.d.comb += [
                        state_d.wheels.eq(group_end.wheels),
                        state_d.smem.eq(group_end.smem),
                    ]

        with m.If(fire):
            m.d.sync += halo_smem_q.eq(Mux(last_of_group, halo_smem + column.pitch, halo_smem))
        with m.If(fire & column.enabled & column.grouped & last_of_chain):
            m.d.sync += [
                in_halo.eq(~last_of_group),
                halo_pixels_left.eq(Mux(in_halo, halo_pixels_left - 1, column.halo)),
                halo_pixel_smem.eq(state_d.smem + (column.pitch << 2)),
            ]
            with m.If(last_of_group):
                m.d.sync += group.eq(group + 1)
            with m.If(~in_halo):
                m.d.sync += group_end.eq(linear_next)
