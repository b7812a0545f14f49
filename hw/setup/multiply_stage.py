"""Multiply stage: multiplies positions by the tensor's strides, and counts steps and pieces."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import SHORT_ROW_BITS
from hw.lib.prefixes import prefixes
from hw.params import TmaParams
from hw.setup.items import (
    POSITION_LOW_BITS,
    STRIDE_LOW_BITS,
    clipped_batch_layout,
    early_error_layout,
    multiplied_batch_layout,
)
from hw.setup.map_decoder import ROW_BITS


class MultiplyStage(wiring.Component):
    """Multiplies the position of each item by the tensor's stride, each half of the position apart,
    and the lengths of the items, and counts the steps and pieces inside the tensor. The steps are
    also multiplied by the lengths of the items below. The element stride and the im2col restart
    are multiplied by each half of the stride apart.

    Latency: one clock. Throughput: a batch a clock. Back-pressure: none. Errors: ``o.error`` is
    ``early_error``, with its value.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(clipped_batch_layout(params))
    early_error : In(early_error_layout(params))
        Of the request of the batch.
    o : Out(multiplied_batch_layout(params))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(clipped_batch_layout(params)),
                "early_error": In(early_error_layout(params)),
                "o": Out(multiplied_batch_layout(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p, i = self.params, self.i
        out = Signal(multiplied_batch_layout(p), reset_less=True)
        m.d.comb += self.o.eq(out)
        m.d.sync += out.common.eq(i.common)
        if p.im2col:
            m.d.sync += out.images.eq(i.images)
        factors = self._find_factors(m, out)
        for way in range(p.setup_pipelines):
            self._multiply(m, way, out)
            self._count_steps(m, way, factors, out)
        self._count_row(m, out.row)
        self._choose_value(m, out.error)
        return m

    def _multiply(self, m: Module, way: int, out) -> None:
        """Multiply the position of an item, and its element stride, by the tensor's stride."""
        step, offset = self.i.steps[way], out.offsets[way]
        low, high = step.position[:POSITION_LOW_BITS], step.position[POSITION_LOW_BITS:]
        products = [(out.global_steps[way], step.element_stride)]
        if self.params.im2col:
            products.append((out.restart_offsets[way], self.i.images[way].restart))
        for product, factor in products:
            m.d.sync += [
                product.low.eq(factor * step.stride[:STRIDE_LOW_BITS]),
                product.high.eq(factor * step.stride[STRIDE_LOW_BITS:]),
            ]
        m.d.sync += [
            offset.low.eq(low * step.stride),
            offset.high.eq(high.as_signed() * step.stride),
        ]

    def _count_steps(self, m: Module, way: int, factors: list[Value], out) -> None:
        """Count the steps inside the tensor, alone and times the factor of the items below.

        The span stage needs both: two of its products would follow each other otherwise.
        """
        step, counted = self.i.steps[way], out.steps[way]
        tensor_ends = Signal()  # the tensor ends inside the box
        last_step = Signal(8)  # the last step inside
        skipped_steps = Signal(8)
        count_less_one = Signal(8)
        m.d.comb += [
            skipped_steps.eq(Mux(step.is_negative, step.skipped_less_one + 1, 0)),
            # ``last_step - skipped_steps``
            count_less_one.eq(last_step + Mux(step.is_negative, ~step.skipped_less_one, 0)),
            tensor_ends.eq(step.may_end & (step.steps_to_end_less_one < step.steps_less_one)),
            last_step.eq(Mux(tensor_ends, step.steps_to_end_less_one, step.steps_less_one)),
        ]
        m.d.sync += [
            counted.is_single.eq(step.steps_less_one == 0),
            counted.skipped_steps.eq(skipped_steps),
            counted.count_less_one.eq(count_less_one),
            counted.is_full.eq(~step.is_negative & ~tensor_ends),
            counted.is_outside.eq(
                step.is_outside | (step.is_negative & (step.skipped_less_one >= last_step))
            ),
            counted.element_stride.eq(step.element_stride),
        ]
        counts = [counted]
        if way:
            scaled, factor = out.scaled[way - 1], factors[way - 1]
            counts.append(scaled)
            m.d.sync += [
                scaled.skipped_steps.eq(factor * skipped_steps),
                scaled.count_less_one.eq(factor * count_less_one),
            ]
        with m.If(step.is_free):
            m.d.sync += [
                counted.is_single.eq(1),
                *(each.skipped_steps.eq(0) for each in counts),
                *(each.count_less_one.eq(0) for each in counts),
                counted.is_full.eq(1),
                counted.is_outside.eq(0),
            ]
        if "has_row_count" in self.i.common.shape().members:
            # A row of TILE_GATHER4 keeps its place, and is not merged with the other rows.
            with m.If(self.i.common.has_row_count):
                m.d.sync += [
                    *(each.skipped_steps.eq(0) for each in counts),
                    *([counted.is_single.eq(0)] if way else ()),
                ]

    def _find_factors(self, m: Module, out) -> list[Value]:
        """Multiply the length of each item by those of the items before it. Return the products.

        No length is 0, so that a product that is too large stays too large.
        """
        p, bits = self.params, self.params.box_piece_bits
        lengths = [step.length_less_one + 1 for step in self.i.steps]
        too_many = Signal(p.setup_pipelines)

        def multiply(first: int, end: int, left: Value, right: Value) -> Value:
            product = Signal(len(left) + len(right), name=f"product_{first}_{end}")
            m.d.comb += product.eq(left * right)
            if first:
                return product
            m.d.comb += too_many[end - 1].eq(product[bits:].any())
            return product[:bits]

        m.d.comb += too_many[0].eq(lengths[0][bits:].any())
        factors = prefixes([lengths[0][:bits], *(each[:9] for each in lengths[1:])], multiply)
        m.d.sync += [
            *(out.factors[way].eq(factor) for way, factor in enumerate(factors)),
            out.too_many.eq(too_many.any()),
        ]
        return factors

    def _count_row(self, m: Module, out) -> None:
        """Count the pieces of the row inside the tensor."""
        row, row_pieces = self.i.row, self.i.common.row_pieces
        tensor_ends = Signal()  # the tensor ends inside the row, or with it
        is_cut = Signal()  # the row has pieces behind the tensor's end
        is_whole = Signal()  # no piece of the row is outside
        is_short = Signal()
        end = Signal(ROW_BITS)  # of the pieces inside
        extent_end = Signal(ROW_BITS)
        m.d.comb += [
            tensor_ends.eq(row.may_end & (row.pieces_to_end <= row_pieces)),
            is_cut.eq(row.may_end & (row.pieces_to_end < row_pieces)),
            end.eq(Mux(is_cut, row.pieces_to_end, row_pieces)),
            extent_end.eq(Mux(is_cut, row.pieces_to_end, self.i.common.row_pitch)),
            is_whole.eq((row.skipped_pieces == 0) & ~is_cut),
            is_short.eq(row_pieces >> SHORT_ROW_BITS == 0),
        ]
        m.d.sync += [
            out.start.eq(row.start),
            out.skipped_pieces.eq(row.skipped_pieces),
            out.pieces.eq(end - row.skipped_pieces),
            out.tail_bytes.eq(Mux(tensor_ends, row.tail_bytes, 0)),
            out.extent.eq(extent_end - row.skipped_pieces),
            out.short_pieces.eq(Mux(is_short, end - row.skipped_pieces, 0)),
            out.is_full.eq(is_whole & (is_short | ~(tensor_ends & (row.tail_bytes != 0)))),
            out.is_outside.eq(row.is_outside | (row.skipped_pieces >= end)),
        ]

    def _choose_value(self, m: Module, error) -> None:
        """Choose the value of the early error."""
        early = self.early_error
        names = early.values.shape().members
        choices = Signal(data.ArrayLayout(len(error.value), 1 << len(early.value_index)))
        m.d.comb += [choices[number].eq(early.values[name]) for number, name in enumerate(names)]
        value = choices.as_value().word_select(early.value_index, len(error.value))
        m.d.sync += [
            error.code.eq(early.code),
            error.dim.eq(early.dim),
            error.value.eq(value),
        ]
