"""Clip stage: finds where the row and the items of a box enter and leave the tensor."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.columns import POSITION_BITS
from hw.lib.quotient import divide, less_remainder, quotient
from hw.params import TmaParams
from hw.setup.items import (
    DIVIDEND_BITS,
    ITEM_POSITION_BITS,
    batch_layout,
    clipped_batch_layout,
    starts_walk,
)
from hw.setup.map_decoder import last_byte_of


def pieces_of(params: TmaParams, element, elements_less_one: Value) -> Value:
    """Return the number of pieces that hold ``elements_less_one + 1`` elements."""
    return (last_byte_of(params, element, elements_less_one) >> 4) + 1


class ClipStage(wiring.Component):
    """Finds, for the row and for each item of a batch, the steps in front of the tensor and up to
    its end, and the position of the first step inside.

    Latency: one clock. Throughput: a batch a clock. Back-pressure: none. Errors: ``is_misplaced``
    of an im2col item.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(batch_layout(params))
    o : Out(clipped_batch_layout(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(batch_layout(params)),
                "o": Out(clipped_batch_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        out = Signal(clipped_batch_layout(self.params), reset_less=True)
        m.d.comb += self.o.eq(out)
        m.d.sync += out.common.eq(self.i.common)
        self._clip_row(m, out.row)
        for way in range(self.params.setup_pipelines):
            self._clip_item(m, way, out)
            if self.params.im2col:
                self._place_image(m, way, out)
        return m

    def _clip_item(self, m: Module, way: int, out) -> None:
        """Clip the item of pipeline ``way``."""
        step, clipped = self.i.steps[way], out.steps[way]
        divisor_less_one = step.element_stride_less_one
        # Positions from the start of the box to the tensor, less one, and to the tensor's last.
        to_first_less_one = step.coord_complement
        to_last = Signal(signed(34), name=f"to_last_{way}")
        coord = Signal(signed(32), name=f"coord_{way}")
        m.d.comb += [
            coord.eq(~step.coord_complement),
            # ``dim_less_one - coord``, with a carry instead of the complement of a complement.
            to_last.eq(
                (Cat(1, step.dim_less_one) + Cat(1, step.coord_complement).as_signed()) >> 1
            ),
        ]
        skipped_less_one, fraction = divide(
            m, f"skipped_less_one_{way}", to_first_less_one[:8], step.reciprocal, DIVIDEND_BITS
        )
        steps_less_one, steps_to_end_less_one = (
            quotient(m, f"{name}_{way}", dividend[:8], step.reciprocal, DIVIDEND_BITS)
            for name, dividend in (
                ("steps_less_one", step.box_less_one),
                ("steps_to_end_less_one", to_last),
            )
        )

        is_negative = coord < 0
        first_inside = Signal(3, name=f"first_inside_{way}")
        # What is left of a stride at the tensor's start.
        m.d.comb += first_inside.eq(less_remainder(divisor_less_one, fraction))
        m.d.sync += [
            clipped.steps_less_one.eq(steps_less_one),
            clipped.length_less_one.eq(steps_less_one),
            clipped.is_negative.eq(is_negative),
            clipped.skipped_less_one.eq(skipped_less_one),
            clipped.steps_to_end_less_one.eq(steps_to_end_less_one),
            clipped.may_end.eq(to_last < 256),
            clipped.is_outside.eq((is_negative & (to_first_less_one >= 256)) | (to_last < 0)),
            clipped.position.eq(Mux(is_negative, first_inside, coord)),
            clipped.element_stride.eq(divisor_less_one + 1),
            clipped.stride.eq(step.stride),
            clipped.is_free.eq(step.is_free),
        ]
        common = self.i.common
        if way == 0 and "has_row_count" in common.shape().members:
            with m.If(common.has_row_count & starts_walk(self.params, common)):
                m.d.sync += clipped.length_less_one.eq(common.row_count_less_one)

    def _clip_row(self, m: Module, row) -> None:
        """Clip the row, in pieces; a row has at most 256 elements."""
        p, i = self.params, self.i
        to_first_less_one = Signal(32)  # elements from the start of the row to the tensor, less one
        to_last = Signal(signed(34))  # elements from the start of the row to the tensor's last
        is_negative = i.row_start < 0
        m.d.comb += [
            to_first_less_one.eq(~i.row_start),
            to_last.eq(i.row_dim_less_one - i.row_start),
        ]
        skipped_pieces = pieces_of(p, i.element, to_first_less_one[:8])
        m.d.sync += [
            row.start.eq(i.base + Mux(is_negative, 0, i.row_start_pieces)),
            row.skipped_pieces.eq(Mux(is_negative, skipped_pieces, 0)),
            row.pieces_to_end.eq(pieces_of(p, i.element, to_last[:8])),
            row.may_end.eq(to_last < 256),
            row.is_outside.eq((is_negative & (to_first_less_one >= 256)) | (to_last < 0)),
            row.tail_bytes.eq(i.tail_bytes),
        ]

    def _place_image(self, m: Module, way: int, out) -> None:
        """Find the positions of a dimension of an image.

        It is not clipped here: the generator clips each pixel.
        """
        step, image, clipped = self.i.steps[way], self.i.images[way], out.images[way]
        coord = Signal(signed(32), name=f"image_coord_{way}")
        last = Signal(signed(POSITION_BITS), name=f"last_{way}")
        position = Signal(signed(ITEM_POSITION_BITS), name=f"position_{way}")
        m.d.comb += [
            coord.eq(~step.coord_complement),
            last.eq(step.dim_less_one + image.upper),
            position.eq(coord + image.offset),
        ]
        is_below = image.has_lower_bound & (coord < image.lower)
        m.d.sync += [
            clipped.dim.eq(image.dim),
            clipped.is_walked.eq(image.is_walked),
            clipped.is_misplaced.eq(image.is_bounded & ((coord > last) | is_below)),
            clipped.coord.eq(coord),
            clipped.position.eq(position),
            clipped.restart.eq(image.restart),
            clipped.last.eq(last + image.offset),
            clipped.limit.eq(step.dim_less_one),
        ]
        with m.If(~image.is_walked):
            m.d.sync += [clipped.position.eq(0), clipped.restart.eq(0)]
        with m.If(self.i.common.is_image):
            m.d.sync += out.steps[way].position.eq(position)
