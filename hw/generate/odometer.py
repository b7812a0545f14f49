"""Odometer: steps through the pixels of a prepared column, and makes a walk of each row."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import (
    WHEELS,
    pixel_counts_layout,
    prepared_column_layout,
    prepared_job_layout,
    slot_walk_layout,
)
from hw.lib.queue import Queue
from hw.params import TmaParams

GROUP = 32
"""Pixels of a group of ``im2col::w::128``."""

GROUPS = 4
"""Groups of a column of ``im2col::w::128``."""

LEAP_LOG2 = 5
LEAP = 1 << LEAP_LOG2
"""Most pixels of a walk that are not dense; from first to last they span at most 256 positions."""


def _less(count: Value, by: Value | int) -> Value:
    """Return ``count - by``, at least 0."""
    return Mux(count < by, 0, count - by)


class Odometer(wiring.Component):
    """Steps through the pixels of an image, as an odometer with the wheels W, H and D, and images.

    A job that is no column passes unchanged. Of a column, each walk takes the pixels up to the next
    wrap of the lowest wheel. Pixels that are not ``dense`` are limited to ``LEAP`` per walk, and to
    one per walk in ``im2col::w::128``. If all pixels that are left lie outside the tensor, one walk
    takes them all.

    The walks of a column are one chain. With ``im2col::w::128`` the walks of each group of
    ``GROUP`` pixels are a chain; behind each group the odometer emits the pixels of the halo, each
    of them a chain of its own, and then continues with the next group.

    Stages: the wheels, which hold what the next walk needs and turn in one clock; which pixels are
    inside the tensor; products with the pitch and the step; addresses in shared memory.

    Latency: four clocks. Throughput: one walk a clock, whatever wraps. A group of dense pixels that
    ends inside a row takes a clock more. Back-pressure: all stages wait while two walks wait at
    ``o``; a column is taken with its last walk.

    Parameters
    ----------
    params : TmaParams
        With ``im2col``.

    Members
    -------
    i : In(stream) of ``prepared_job_layout``
    o : Out(stream) of ``slot_walk_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(prepared_job_layout(params))),
                "o": Out(stream.Signature(slot_walk_layout(params))),
            }
        )
        address = params.piece_address_bits
        # State of the wheels at the first pixel of a walk, and what follows from it:
        # ``most``: pixels of the walk, unless its chain ends before; ``stays``: they do not reach
        # the wrap; ``wraps``: H and D wrap at their next step; ``is_outside``: so are all that are
        # left.
        self._wheels = data.StructLayout(
            {
                "counts": data.ArrayLayout(pixel_counts_layout(params), WHEELS),
                "image": pixel_counts_layout(params, wraps=False),
                "address": address,
                "next_address": data.ArrayLayout(address, WHEELS),
                "most": params.pixel_bits,
                "stays": 1,
                "wraps": WHEELS - 1,
                "is_outside": 1,
            }
        )
        # Place of a walk in its column; ``first``, ``last``: of its chain. ``in_halo`` and
        # ``first_of_halo`` are present with ``im2col_w``.
        names = ("first_of_column", "last_of_column", "first", "last")
        halo = ("in_halo", "first_of_halo") if params.im2col_w else ()
        self._place = data.StructLayout(dict.fromkeys((*names, *halo), 1))
        job = prepared_job_layout(params).members
        # What the later stages need of a job.
        column = prepared_column_layout(params).members
        kept = "enabled", "stops_outside", "grouped", "pitch", "skipped_pieces", "dense", "step"
        self._job = data.StructLayout(
            {
                **{name: job[name] for name in ("slot", "last", "walk")},
                **{name: column[name] for name in kept if name in column},
                "address": address,
                "place": self._place,
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.walks = walks = Queue(slot_walk_layout(p), 2)
        connect(m, walks.o, flipped(self.o))
        advance = Signal()  # all stages take what is before them
        job = Signal(prepared_job_layout(p), reset_less=True)
        wheels = Signal(self._wheels, reset_less=True)
        place = Signal(self._place)
        pixels = Signal(p.pixel_bits)
        emits = self._step(m, advance, job, wheels, place, pixels)
        inside_valid, products_valid = Signal(), Signal()
        m.d.comb += [advance.eq(~products_valid | walks.i.ready), walks.i.valid.eq(products_valid)]
        with m.If(advance):
            m.d.sync += [inside_valid.eq(emits), products_valid.eq(inside_valid)]
        inside = self._find_inside(m, advance, job, wheels, place, pixels)
        product = self._multiply(m, advance, inside)
        self._emit(m, advance & products_valid, product, walks.i.p)
        return m

    def _step(self, m: Module, advance, job, wheels, place, pixels) -> Signal:
        """Take a job, and turn its wheels after each walk; return whether there is a walk."""
        p = self.params
        column = job.column
        valid = Signal()
        left = Signal(p.pixel_bits, reset_less=True)  # pixels of the chain
        ends = Signal(reset_less=True)  # the chain ends with this walk
        grouped = Signal(reset_less=True)
        start, turned, wheels_d = (
            Signal(self._wheels, name=name) for name in ("start", "turned", "wheels_d")
        )
        left_d = Signal(p.pixel_bits)
        emits = Signal()
        fire = Signal()  # the wheels turn
        # If a group ends inside a row, the offset of its end is multiplied in a clock of its own.
        is_partial = Signal()
        has_offset = Signal()
        offset = Signal(p.piece_address_bits, reset_less=True)
        m.d.comb += [
            pixels.eq(Mux(ends, left, wheels.most)),
            is_partial.eq(grouped & ends & ~wheels.is_outside & (left < wheels.most)),
            emits.eq(valid & ~has_offset),
            fire.eq(advance & valid & (has_offset | ~is_partial)),
            self.i.ready.eq(~valid | (fire & place.last_of_column)),
            left_d.eq(left - wheels.most),
            wheels_d.eq(turned),
            place.last.eq(ends),
            place.last_of_column.eq(ends),
        ]
        with m.If(advance & valid):
            m.d.sync += [has_offset.eq(is_partial & ~has_offset), offset.eq(left * column.step)]
        self._turn(m, column, wheels, (is_partial, left, offset), turned)
        if p.im2col_w:
            self._walk_groups(m, fire, job, grouped & ends, place, turned, wheels_d, left_d)

        first_of_column, first = Signal(), Signal()
        m.d.comb += [place.first_of_column.eq(first_of_column), place.first.eq(first)]
        with m.If(fire):
            m.d.sync += [
                wheels.eq(wheels_d),
                left.eq(left_d),
                ends.eq(wheels_d.is_outside | (left_d <= wheels_d.most)),
                first_of_column.eq(0),
                first.eq(ends),
            ]
        new = self.i.p.column
        is_grouped = new.enabled & new.grouped if p.im2col_w else Const(0, 1)
        new_left = Mux(is_grouped, GROUP, new.pixels)
        self._start(m, start)
        with m.If(self.i.ready):
            m.d.sync += [
                valid.eq(self.i.valid),
                job.eq(self.i.payload),
                wheels.eq(start),
                left.eq(new_left),
                ends.eq(~new.enabled | start.is_outside | (new_left <= start.most)),
                grouped.eq(is_grouped),
                first_of_column.eq(1),
                first.eq(1),
            ]
        return emits

    def _start(self, m: Module, start) -> None:
        """Assign the wheels at the first pixel of the next column."""
        column = self.i.p.column
        m.d.comb += [
            *(start.counts[number].eq(column.first[number]) for number in range(WHEELS)),
            start.image.eq(column.image),
            start.address.eq(column.address),
            start.next_address.eq(column.next_address),
            start.is_outside.eq(column.is_all_outside | (column.image.to_limit == 0)),
            *self._limits(column, start),
        ]

    def _limits(self, column, wheels) -> list:
        """Assign what follows from the counts of ``wheels`` outside a halo."""
        to_wrap = wheels.counts[0].to_wrap
        is_single = column.grouped & ~column.dense if self.params.im2col_w else Const(0, 1)
        is_far = ~column.dense & (to_wrap > LEAP)
        return [
            wheels.most.eq(Mux(is_single, 1, Mux(is_far, LEAP, to_wrap))),
            wheels.stays.eq(Mux(is_single, to_wrap != 1, is_far)),
            wheels.wraps.eq(Cat(wheels.counts[n].to_wrap == 1 for n in range(1, WHEELS))),
        ]

    def _turn(self, m: Module, column, wheels, partial, turned) -> None:
        """Assign the wheels after this walk.

        The lowest wheel that does not wrap takes a step, and the wheels below it restart. Steps
        inside a row are ``LEAP`` pixels, or in ``im2col::w::128`` one pixel or, if a group of dense
        pixels ends, the pixels that were left.
        """
        is_partial, left, offset = partial
        stays = wheels.stays | is_partial
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
            *self._limits(column, turned),
        ]
        for number in reversed(range(1, WHEELS)):
            with m.If(~wheels.wraps[number - 1]):
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
            m.d.comb += turned.is_outside.eq(wheels.is_outside | (counts.to_limit == 1))
        m.d.comb += [
            counts_d.before.eq(_less(counts.before, 1)),
            counts_d.to_limit.eq(_less(counts.to_limit, 1)),
        ]

    def _walk_groups(self, m: Module, fire, job, ends, place, turned, wheels_d, left_d) -> None:
        """Walk the chains of ``im2col::w::128``: four groups, and behind each one its halo.

        ``ends``: a chain of such a column ends with this walk.
        """
        column = job.column
        in_halo = Signal()
        group = Signal(range(GROUPS))
        halo_left = Signal.like(column.halo)  # pixels of the halo, with this one
        group_end = Signal(self._wheels, reset_less=True)  # the wheels behind the group's pixels
        last_of_group = Signal()
        m.d.comb += [
            last_of_group.eq(Mux(in_halo, halo_left == 1, column.halo == 0)),
            place.in_halo.eq(in_halo),
            place.first_of_halo.eq(halo_left == column.halo),
        ]
        with m.If(ends):
            m.d.comb += place.last_of_column.eq(last_of_group & (group == GROUPS - 1))
            with m.If(last_of_group):
                m.d.comb += left_d.eq(GROUP)
                with m.If(in_halo):
                    m.d.comb += wheels_d.eq(group_end)
            with m.Else():
                m.d.comb += [
                    left_d.eq(1),
                    wheels_d.most.eq(1),
                    wheels_d.stays.eq(turned.counts[0].to_wrap != 1),
                ]
        with m.Elif(job.column.enabled & column.grouped):
            m.d.comb += place.last_of_column.eq(0)
        with m.If(fire & ends):
            m.d.sync += [
                in_halo.eq(~last_of_group),
                group.eq(group + last_of_group),
                halo_left.eq(Mux(in_halo, halo_left - 1, column.halo)),
            ]
            with m.If(~in_halo):
                m.d.sync += group_end.eq(turned)

    def _find_inside(self, m: Module, advance, job, wheels, place, pixels) -> Signal:
        """Find which pixels of the walk are inside the tensor; return the registers behind."""
        p = self.params
        row = wheels.counts[0]
        others = [wheels.counts[number] for number in range(1, WHEELS)]
        is_row_inside = Cat(
            (counts.before == 0) & (counts.to_limit != 0) for counts in (*others, wheels.image)
        ).all()
        layout = data.StructLayout(
            {
                **self._job.members,
                **dict.fromkeys(("pixels", "before", "to_limit"), p.pixel_bits),
                "inside": 1,
            }
        )
        walk = Signal(layout, name="row", reset_less=True)
        with m.If(advance):
            m.d.sync += [
                *(walk[name].eq(job[name]) for name in ("slot", "last", "walk")),
                *(
                    walk[name].eq(job.column[name])
                    for name in self._job.members
                    if name in job.column.shape().members and name != "address"
                ),
                walk.address.eq(wheels.address),
                walk.place.eq(place),
                walk.pixels.eq(pixels),
                walk.before.eq(row.before),
                walk.to_limit.eq(Mux(row.to_limit < pixels, row.to_limit, pixels)),
                walk.inside.eq(is_row_inside & ~wheels.is_outside),
            ]
        return walk

    def _multiply(self, m: Module, advance, row) -> Signal:
        """Multiply pixels by the pitch and by the step; return the registers behind."""
        p = self.params
        layout = data.StructLayout(
            {
                **self._job.members,
                "inside": 1,
                "has_outside": 1,  # a pixel of the walk is outside
                "begins_outside": 1,
                "pixels": p.pixel_bits,  # inside
                "pieces": p.box_piece_bits,  # of all pixels, in shared memory
                "offset": p.box_piece_bits,  # of the first pixel inside
                "run": p.box_piece_bits,  # of the pixels inside
                "global_offset": p.piece_address_bits,
            }
        )
        walk = Signal(layout, name="product", reset_less=True)
        pixels = Signal(p.pixel_bits, name="pixels_inside")
        inside = Signal()
        m.d.comb += [
            pixels.eq(row.to_limit - row.before),
            inside.eq(row.inside & (row.before < row.to_limit)),
        ]
        with m.If(advance):
            m.d.sync += [
                *(walk[name].eq(row[name]) for name in self._job.members),
                walk.inside.eq(inside),
                walk.begins_outside.eq(row.before != 0),
                walk.has_outside.eq(~inside | (pixels != row.pixels)),
                walk.pixels.eq(pixels),
                walk.pieces.eq(row.pixels * row.pitch),
                walk.offset.eq(row.before * row.pitch),
                walk.run.eq(pixels * row.pitch),
                walk.global_offset.eq(row.before * row.step),
            ]
        return walk

    def _emit(self, m: Module, fire, product, o) -> None:
        """Offer the walk of the pixels that are inside, or the job's own if it is no column."""
        p = self.params
        place, walk = product.place, o.walk
        begin, end = Signal(p.smem_piece_bits), Signal(p.smem_piece_bits)
        column_end = Signal(p.smem_piece_bits, reset_less=True)  # shared memory behind the pixels
        first = Mux(place.first_of_column, product.walk.smem_begin, column_end)
        self._place_chain(m, fire, product, first, begin, end, column_end)
        m.d.comb += [
            end.eq(begin + product.pieces),
            o.slot.eq(product.slot),
            o.last.eq(product.last & (place.last_of_column | ~product.enabled)),
            walk.eq(product.walk),
        ]
        with m.If(product.enabled):
            m.d.comb += [
                walk.first.eq(place.first),
                walk.last.eq(place.last),
                walk.has_data.eq(product.inside),
                walk.start.eq(product.address + product.global_offset),
                walk.smem_begin.eq(begin),
                walk.smem_end.eq(end),
                walk.smem_start.eq(begin + product.skipped_pieces + product.offset),
            ]
            with m.If(product.dense):
                m.d.comb += [walk.run.eq(product.run), walk.smem_extent.eq(product.run)]
            with m.Else():
                m.d.comb += [
                    walk.loops[0].last.eq(product.pixels - 1),
                    walk.loops[0].global_step.eq(product.step),
                    walk.loops[0].smem_step.eq(product.pitch),
                ]
        if "stops_outside" in product.shape().members:
            was_outside = Signal()  # an earlier walk of this column had a pixel outside
            is_outside = was_outside & ~place.first_of_column
            with m.If(fire):
                m.d.sync += was_outside.eq(is_outside | product.has_outside)
            stops = product.enabled & product.stops_outside
            with m.If(stops & (is_outside | product.begins_outside)):
                m.d.comb += walk.has_data.eq(0)

    def _place_chain(self, m: Module, fire, product, first, begin, end, column_end: Signal) -> None:
        """Find where the walk begins in shared memory.

        ``first`` is the place of pixels that are in no halo. The halos of all groups lie behind the
        pixels of the column, pixel by pixel, those of the four groups in turn.
        """
        place = product.place
        if not self.params.im2col_w:
            m.d.comb += begin.eq(first)
            with m.If(fire):
                m.d.sync += column_end.eq(end)
            return
        halo = Signal.like(column_end)  # the next group's first halo pixel
        halo_next = Signal.like(column_end)  # the next halo pixel
        m.d.comb += begin.eq(Mux(place.in_halo, Mux(place.first_of_halo, halo, halo_next), first))
        with m.If(fire):
            with m.If(place.in_halo):
                m.d.sync += halo_next.eq(begin + (product.pitch << 2))
                with m.If(place.first_of_halo):
                    m.d.sync += halo.eq(halo + product.pitch)
            with m.Else():
                m.d.sync += column_end.eq(end)
            with m.If(place.first_of_column):
                m.d.sync += halo.eq(product.walk.smem_begin + (product.pitch << 7))
