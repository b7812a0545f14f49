"""Im2col walker of a ``compact`` unit: turns a column of pixels of an image into walks."""

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import POSITION_BITS, generator_job_layout, slot_walk_layout
from hw.params import DIMS, TmaParams

LEVELS = DIMS - 1
"""Wheels of the odometer: W, H, D and N."""

GROUP = 32
"""Pixels of a group of ``im2col::w::128``."""

GROUPS = 4
"""Groups of a column of ``im2col::w::128``."""


class Im2colWalker(wiring.Component):
    """Steps through the pixels of an image, as an odometer with the wheels W, H, D and N.

    A job that is no column passes unchanged. Of a column, each walk takes the pixels up to the next
    wrap of the lowest wheel; pixels that are not ``dense`` are a walk each.

    The walks of a column are one chain. With ``im2col::w::128`` the walks of each group of
    ``GROUP`` pixels are a chain; behind each group the walker emits the pixels of the halo, each of
    them a chain of its own, and then continues with the next group.

    Latency: one clock. Throughput: one walk in two clocks, and one more clock for each column.
    Back-pressure: ``o`` stops the walk; a column is taken with its last walk. Errors: none.

    Parameters
    ----------
    params : TmaParams
        With ``im2col``, and ``compact``: other units have an ``Odometer``.

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
        m.d.comb += state.eq(state_q)
        with m.If(~started):
            m.d.sync += [started.eq(self.i.valid), state_q.eq(start)]

        # The walk takes ``pixels``; of these, the pixels [low, high) are inside the tensor.
        pixels = Signal(p.pixel_bits)
        count_valid = Signal()  # ``pixels`` belongs to ``state``, or does not matter
        count, wraps = self._count_pixels(m, column, wheels[0].position, pixels_left)
        low, high, inside = self._find_inside(m, column, wheels, pixels)
        with m.If(~job.walk.has_data):
            m.d.comb += inside.eq(0)

        walk_pieces = Signal(p.box_piece_bits)
        smem_next = Signal(p.smem_piece_bits)
        m.d.comb += [
            walk_pieces.eq(pixels << column.row_log2),
            smem_next.eq(smem + Mux(column.dense, walk_pieces, column.pitch)),
        ]
        wheels_next = self._turn(m, column, wheels, wraps, pixels, walk_pieces)

        last_of_chain = Signal()
        last_of_column = Signal()
        fire = Signal()
        # A register cuts the long path behind the count.
        count_registered = Signal()
        m.d.sync += [pixels.eq(count), count_registered.eq(started & ~fire)]
        m.d.comb += [
            count_valid.eq(started & (count_registered | ~column.enabled)),
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
            offset.eq(low[: p.pixel_bits] << column.row_log2),
            run.eq((high - low) << column.row_log2),
        ]
        with m.If(column.enabled):
            m.d.comb += [
                self.o.p.last.eq(job.last & last_of_column),
                walk.first.eq(state.first_of_chain),
                walk.last.eq(last_of_chain),
                walk.has_data.eq(inside),
                walk.start.eq(state.wheels[0].address + offset),
                walk.smem_begin.eq(state.smem),
                walk.smem_end.eq(smem_next),
                walk.smem_start.eq(state.smem + column.skipped_pieces + offset),
            ]
            with m.If(column.dense):
                m.d.comb += [walk.run.eq(run), walk.smem_extent.eq(run)]

    def _count_pixels(self, m: Module, column, position, pixels_left) -> tuple[Signal, Value]:
        """Return the pixels of the next walk, and whether the lowest wheel wraps behind them."""
        level = column.levels[0]
        to_wrap = Signal(signed(POSITION_BITS + 1))  # positions up to the wrap, this one included
        count = Signal(self.params.pixel_bits)
        m.d.comb += [to_wrap.eq(level.last - position + 1), count.eq(1)]
        in_row = Mux(to_wrap > 1, to_wrap, 1)
        with m.If(column.dense):
            m.d.comb += count.eq(Mux(in_row < pixels_left, in_row, pixels_left))
        is_beyond = position + level.stride_less_one >= level.last
        return count, Mux(column.dense, to_wrap <= pixels_left, is_beyond)

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
        reaches_row = position + pixels > 0
        m.d.comb += [
            to_limit.eq(level.limit - position + 1),
            low.eq(Mux(position < 0, -position, 0)),
            high.eq(Mux(to_limit < pixels, to_limit, pixels)),
            inside.eq((position <= level.limit) & reaches_row),
        ]
        for number in range(1, LEVELS):
            position = wheels[number].position
            with m.If((position < 0) | (position > column.levels[number].limit)):
                m.d.comb += inside.eq(0)
        return low, high, inside

    def _turn(self, m: Module, column, wheels, wraps_lowest, pixels, walk_pieces) -> Signal:
        """Return the wheels after this walk.

        The lowest wheel that does not wrap takes a step, and the wheels below it restart. The step
        of the lowest wheel is ``pixels`` if they are dense, and otherwise one pixel.
        """
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
                stride = Mux(column.dense, pixels, stride)
                step = Mux(column.dense, walk_pieces, step)
            m.d.comb += position.eq(wheels[number].position + stride)
            m.d.comb += address.eq(wheels[number].address + step)
            if number < LEVELS - 1:  # images have no end
                m.d.sync += wraps.eq(level.absent | is_beyond)
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
        with m.If(~started):
            m.d.sync += halo_smem_q.eq(first_halo_smem)
        m.d.comb += halo_smem.eq(halo_smem_q)
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
