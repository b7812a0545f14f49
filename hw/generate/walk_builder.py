"""Walk builder: makes a walk of each step of the odometer."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.columns import column_step_fields
from hw.layouts.jobs import column_step_layout, in_channel, slot_walk_layout
from hw.params import TmaParams


class WalkBuilder(wiring.Component):
    """Makes a walk of the pixels of each step that are inside the tensor; a job that is no column
    passes unchanged.

    It keeps for each channel where the walks of its column are in shared memory.

    Latency: one clock, for the products with the pitch and the step. Throughput: a walk a clock.
    Back-pressure: none. Errors: none.

    Parameters
    ----------
    params : TmaParams
        With ``im2col``.

    Members
    -------
    i : In(stream) of ``column_step_layout``; always ready
    o : Out(stream) of ``slot_walk_layout`` in a channel; always taken
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        walk = in_channel(params, slot_walk_layout(params))
        super().__init__(
            {
                "i": In(stream.Signature(column_step_layout(params), always_ready=True)),
                "o": Out(stream.Signature(walk, always_ready=True)),
            }
        )
        step = column_step_layout(params).members
        consumed = "pixels", "before", "to_limit", "inside"
        self._product = data.StructLayout(
            {
                **{name: shape for name, shape in step.items() if name not in consumed},
                "inside": 1,
                "has_outside": 1,  # a pixel of the walk is outside
                "begins_outside": 1,
                "pixels": params.pixel_bits,  # inside
                "pieces": params.box_piece_bits,  # of all pixels, in shared memory
                "offset": params.box_piece_bits,  # of the first pixel inside
                "run": params.box_piece_bits,  # of the pixels inside
                "global_offset": params.piece_address_bits,
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = Signal()
        product = Signal(self._product, reset_less=True)
        m.d.sync += valid.eq(self.i.valid)
        m.d.comb += self.o.valid.eq(valid)
        self._multiply(m, product)
        self._emit(m, valid, product)
        return m

    def _multiply(self, m: Module, product) -> None:
        """Multiply pixels by the pitch and by the step."""
        step = self.i.p
        pixels = Signal(self.params.pixel_bits, name="pixels_inside")
        inside = Signal()
        m.d.comb += [
            pixels.eq(step.to_limit - step.before),
            inside.eq(step.inside & (step.before < step.to_limit)),
        ]
        computed = set(column_step_fields(self.params)) & {"pixels", "inside"}
        passed = self._product.members.keys() & step.shape().members.keys() - computed
        m.d.sync += [
            *(product[name].eq(step[name]) for name in sorted(passed)),
            product.inside.eq(inside),
            product.begins_outside.eq(step.before != 0),
            product.has_outside.eq(~inside | (pixels != step.pixels)),
            product.pixels.eq(pixels),
            product.pieces.eq(step.pixels * step.pitch),
            product.offset.eq(step.before * step.pitch),
            product.run.eq(pixels * step.pitch),
            product.global_offset.eq(step.before * step.step),
        ]

    def _emit(self, m: Module, valid, product) -> None:
        """Offer the walk of the pixels that are inside, or the job's own if it is no column."""
        p = self.params
        place, o, walk = product.place, self.o.p, self.o.p.walk
        begin = Signal(p.smem_piece_bits)
        end = Signal(p.smem_piece_bits)
        self._place_chain(m, valid, product, begin, end)
        m.d.comb += [
            end.eq(begin + product.pieces),
            o.channel.eq(product.channel),
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
            was_outside = Signal(p.channels)  # an earlier walk of the column had a pixel outside
            is_outside = was_outside.bit_select(product.channel, 1) & ~place.first_of_column
            with m.If(valid):
                m.d.sync += was_outside.bit_select(product.channel, 1).eq(
                    is_outside | product.has_outside
                )
            stops = product.enabled & product.stops_outside
            with m.If(stops & (is_outside | product.begins_outside)):
                m.d.comb += walk.has_data.eq(0)

    def _place_chain(self, m: Module, valid, product, begin, end) -> None:
        """Find where the walk begins in shared memory.

        Walks follow each other. With ``im2col::w::128``, the halos of all groups lie behind the
        pixels of the column, pixel by pixel, those of the four groups in turn.
        """
        p = self.params
        place, channel = product.place, product.channel
        layout = data.ArrayLayout(p.smem_piece_bits, p.channels)
        column_ends = Signal(layout, reset_less=True)  # shared memory behind the pixels
        first = Mux(place.first_of_column, product.walk.smem_begin, column_ends[channel])
        if not p.im2col_w:
            m.d.comb += begin.eq(first)
            with m.If(valid):
                m.d.sync += column_ends[channel].eq(end)
            return
        halos = Signal(layout)  # the next group's first halo pixel
        next_pixels = Signal(layout)  # the next halo pixel
        halo, next_pixel = halos[channel], next_pixels[channel]
        m.d.comb += begin.eq(Mux(place.in_halo, Mux(place.first_of_halo, halo, next_pixel), first))
        with m.If(valid):
            with m.If(place.in_halo):
                m.d.sync += next_pixels[channel].eq(begin + (product.pitch << 2))
                with m.If(place.first_of_halo):
                    m.d.sync += halos[channel].eq(halo + product.pitch)
            with m.Else():
                m.d.sync += column_ends[channel].eq(end)
            with m.If(place.first_of_column):
                m.d.sync += halos[channel].eq(product.walk.smem_begin + (product.pitch << 7))
