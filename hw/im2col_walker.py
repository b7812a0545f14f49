"""Im2col walker: a column of pixels becomes walks, a pixel or a row of contiguous ones each."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts import POSITION_BITS, setup_job_layout, walk_job_layout
from hw.params import DIMS, TmaParams

LEVELS = DIMS - 1
GROUP = 32
GROUPS = 4


class Im2colWalker(wiring.Component):
    """Steps through the pixels of an image, as an odometer with the wheels W, H, D and N.

    Additions and comparisons only. A walk is one pixel, or, where pixels are dense, all that are
    left of the column up to the next wrap; one walk a clock, whatever wraps. The walks of a column
    are a chain. ``im2col::w::128`` stops after each 32 pixels for the halo, each pixel of which is
    a chain of its own, and goes on where it stopped.

    What is no column passes. Latency one clock; back-pressure on ``o`` stops the walk.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``setup_job_layout``
    o : Out(stream) of ``walk_job_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(setup_job_layout(params))),
                "o": Out(stream.Signature(walk_job_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        busy = Signal()
        job = Signal(setup_job_layout(p), reset_less=True)
        column = job.column
        wheel = data.StructLayout(
            {"position": signed(POSITION_BITS), "address": p.piece_address_bits}
        )
        wheels = Signal(data.ArrayLayout(wheel, LEVELS), reset_less=True)
        smem = Signal(p.smem_piece_bits, reset_less=True)
        left = Signal(p.pixel_bits, reset_less=True)  # pixels of this stretch
        begins = Signal(reset_less=True)  # the stretch
        opens = Signal(reset_less=True)  # the request

        # Pixels [low, high) of the next ``pixels`` are inside.
        position = wheels[0].position
        to_wrap = Signal(signed(POSITION_BITS + 1))
        to_limit = Signal(signed(POSITION_BITS + 1))
        pixels = Signal(p.pixel_bits)
        low = Signal(signed(POSITION_BITS))
        high = Signal(p.pixel_bits)
        inside = Signal()
        m.d.comb += [
            to_wrap.eq(column.levels[0].last - position + 1),
            to_limit.eq(column.levels[0].limit - position + 1),
            pixels.eq(1),
            low.eq(Mux(position < 0, -position, 0)),
            high.eq(Mux(to_limit < pixels, to_limit, pixels)),
            inside.eq(job.walk.has_data & (to_limit > 0) & (low < high)),
        ]
        with m.If(column.dense & (to_wrap > 1)):
            m.d.comb += pixels.eq(Mux(to_wrap < left, to_wrap, left))
        for number in range(1, LEVELS):
            where = wheels[number].position
            with m.If((where < 0) | (where > column.levels[number].limit)):
                m.d.comb += inside.eq(0)

        # Where the column goes on: the lowest wheel that does not wrap takes a step, those below
        # it begin anew.
        moved = Signal(p.box_piece_bits)
        after = Signal.like(wheels)
        turns = Signal()
        smem_next = Signal(p.smem_piece_bits)
        m.d.comb += [
            moved.eq(pixels << column.row_log2),
            smem_next.eq(smem + Mux(column.dense, moved, column.pitch)),
            turns.eq(1),
            after.eq(wheels),
        ]
        for number in range(LEVELS):
            level = column.levels[number]
            by, step = level.by_less_one + 1, level.step
            if number == 0:
                by, step = Mux(column.dense, pixels, by), Mux(column.dense, moved, step)
            reached = Signal(signed(POSITION_BITS), name=f"reached_{number}")
            address = Signal(p.piece_address_bits, name=f"address_{number}")
            wraps = Signal(name=f"wraps_{number}")
            m.d.comb += [
                reached.eq(wheels[number].position + by),
                address.eq(wheels[number].address + step),
            ]
            if number < LEVELS - 1:
                m.d.comb += wraps.eq(level.absent | (reached > level.last))
            still_turns = Signal(name=f"turns_{number + 1}")
            m.d.comb += still_turns.eq(turns & wraps)
            with m.If(turns & ~wraps):
                m.d.comb += [after[number].position.eq(reached), after[number].address.eq(address)]
                for below in reversed(range(number)):
                    restart = column.levels[below]
                    address = address + restart.restart_address
                    m.d.comb += [
                        after[below].position.eq(restart.restart),
                        after[below].address.eq(address),
                    ]
            turns = still_turns

        stretch_ends = Signal()
        ends = Signal()
        take = Signal()
        run = Signal(p.box_piece_bits)
        offset = Signal(p.box_piece_bits)
        out, walk = self.o.p, self.o.p.walk
        m.d.comb += [
            stretch_ends.eq(left == pixels),
            ends.eq(~column.enabled | stretch_ends),
            take.eq(~busy | (self.o.ready & ends)),
            self.i.ready.eq(take),
            self.o.valid.eq(busy),
            *(out[name].eq(job[name]) for name in ("first", "last", "transfer", "walk")),
            offset.eq(low << column.row_log2),
            run.eq((high - low) << column.row_log2),
        ]
        with m.If(column.enabled):
            m.d.comb += [
                out.first.eq(opens),
                out.last.eq(ends),
                walk.first.eq(begins),
                walk.last.eq(stretch_ends),
                walk.has_data.eq(inside),
                walk.start.eq(wheels[0].address + offset),
                walk.smem_begin.eq(smem),
                walk.smem_end.eq(smem_next),
                walk.smem_start.eq(smem + column.row_low + offset),
            ]
            with m.If(column.dense):
                m.d.comb += [walk.run.eq(run), walk.smem_extent.eq(run)]

        fresh = self.i.p
        with m.If(take):
            m.d.sync += [
                busy.eq(self.i.valid),
                job.eq(fresh),
                smem.eq(fresh.walk.smem_begin),
                left.eq(fresh.column.pixels),
                begins.eq(1),
                opens.eq(1),
            ]
            for number in range(LEVELS):
                level = fresh.column.levels[number]
                m.d.sync += [
                    wheels[number].position.eq(level.position),
                    wheels[number].address.eq(level.address),
                ]
        with m.Elif(self.o.ready):
            m.d.sync += [
                wheels.eq(after),
                smem.eq(smem_next),
                left.eq(left - pixels),
                begins.eq(0),
                opens.eq(0),
            ]
        if p.im2col_w:
            self._group(
                m, take, job, stretch_ends, ends, wheels, after, smem, smem_next, left, begins
            )
        return m

    def _group(
        self, m, take, job, stretch_ends, ends, wheels, after, smem, smem_next, left, begins
    ) -> None:
        """The stretches of ``im2col::w::128``: four groups, after each one its halo."""
        p = self.params
        column, fresh = job.column, self.i.p
        in_halo = Signal(reset_less=True)
        group = Signal(range(GROUPS), reset_less=True)
        halo_left = Signal(5, reset_less=True)
        halo_smem = Signal(p.smem_piece_bits, reset_less=True)  # of this group's first
        stopped = Signal.like(wheels, reset_less=True)
        stopped_smem = Signal.like(smem, reset_less=True)
        group_ends = Signal()
        m.d.comb += group_ends.eq(stretch_ends & Mux(in_halo, halo_left == 1, column.halo == 0))
        with m.If(column.grouped):
            m.d.comb += ends.eq(group_ends & (group == GROUPS - 1))
        with m.If(take):
            halos = fresh.walk.smem_begin + (fresh.column.pitch << 7)
            m.d.sync += [in_halo.eq(0), group.eq(0), halo_smem.eq(halos)]
            with m.If(fresh.column.grouped):
                m.d.sync += left.eq(GROUP)
        with m.Elif(self.o.ready & column.grouped & stretch_ends):
            m.d.sync += begins.eq(1)
            with m.If(group_ends):
                m.d.sync += [
                    in_halo.eq(0),
                    group.eq(group + 1),
                    halo_smem.eq(halo_smem + column.pitch),
                    left.eq(GROUP),
                ]
                with m.If(in_halo):
                    m.d.sync += [wheels.eq(stopped), smem.eq(stopped_smem)]
            with m.Else():
                m.d.sync += [in_halo.eq(1), left.eq(1)]
                with m.If(in_halo):
                    m.d.sync += [
                        smem.eq(smem + (column.pitch << 2)),
                        halo_left.eq(halo_left - 1),
                    ]
                with m.Else():
                    m.d.sync += [
                        stopped.eq(after),
                        stopped_smem.eq(smem_next),
                        smem.eq(halo_smem),
                        halo_left.eq(column.halo),
                    ]
