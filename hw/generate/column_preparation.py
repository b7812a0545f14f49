"""Column preparation: turns the positions of a column of pixels into counts, for the odometer."""

from itertools import pairwise

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.generate.walk_limits import GROUP, limits_of, rest_is_outside, wheels_at
from hw.layouts.columns import POSITION_BITS, WHEELS, prepared_column_layout
from hw.layouts.jobs import generator_job_layout, in_channel, prepared_job_layout
from hw.lib.quotient import quotient, reciprocal_of
from hw.params import TmaParams

STAGES = 4

STRIDE_BITS = 3
"""Width of an element stride, less one."""


class ColumnPreparation(wiring.Component):
    """Turns the positions of a column into counts of pixels, and its steps into sums of steps.

    The odometer then only counts down and adds. A count has ``pixel_bits`` bits; a larger one is
    the largest number of these bits, which is more than a column has pixels.

    Stages: differences of positions; dividends, limited to what a count needs; quotients by the
    element strides; limits of the first walk. The sums of steps are formed meanwhile. A job that is
    no column passes unchanged, but for ``ends``.

    Latency: four clocks. Throughput: a job a clock. Back-pressure: none. Errors: none.

    Parameters
    ----------
    params : TmaParams
        With ``im2col``.

    Members
    -------
    i : In(stream) of ``generator_job_layout``; always ready
    o : Out(stream) of ``prepared_job_layout`` in a channel; always taken
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self._dividend_bits = params.pixel_bits + STRIDE_BITS
        job = in_channel(params, prepared_job_layout(params))
        super().__init__(
            {
                "i": In(stream.Signature(generator_job_layout(params), always_ready=True)),
                "o": Out(stream.Signature(job, always_ready=True)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        layout = self.o.payload.shape()
        jobs = [Signal(layout, name=f"job_{stage}", reset_less=True) for stage in range(STAGES)]
        valid = Signal(STAGES)
        m.d.comb += [self.o.valid.eq(valid[-1]), self.o.payload.eq(jobs[-1])]
        m.d.sync += [
            valid.eq(Cat(self.i.valid, valid)),
            *(after.eq(before) for before, after in pairwise(jobs)),
        ]
        is_all_outside = [Signal(name=f"is_all_outside_{n}", reset_less=True) for n in range(3)]
        self._take(m, jobs[0], is_all_outside[0])
        m.d.sync += [after.eq(before) for before, after in pairwise(is_all_outside)]
        self._add_steps(m, jobs)
        self._count(m, jobs[2].column)
        self._limit(m, jobs[2].column, is_all_outside[2], jobs[3].column)
        return m

    def _take(self, m: Module, job, is_all_outside: Signal) -> None:
        """Store what passes unchanged, and what a column says without arithmetic on counts."""
        source, levels = self.i.p, self.i.p.column.levels
        unchanged = set(prepared_column_layout(self.params).members) & set(
            source.column.shape().members
        )
        is_outside = [
            ~level.absent & ((level.last < 0) | (level.restart > level.limit))
            for level in (levels[number] for number in range(WHEELS))
        ]
        m.d.sync += [
            *(job[name].eq(source[name]) for name in ("channel", "slot", "last", "walk")),
            *(job.column[name].eq(source.column[name]) for name in sorted(unchanged)),
            is_all_outside.eq(~source.walk.has_data | Cat(is_outside).any()),
            job.column.address.eq(levels[0].address),
            job.column.step.eq(levels[0].step),
            *(
                job.column.next_address[number - 1].eq(levels[number].address + levels[number].step)
                for number in range(1, WHEELS + 1)
            ),
        ]

    def _add_steps(self, m: Module, jobs: list) -> None:
        """Form the sums of ``turn_1`` to ``turn_3``: one more restart in each stage."""
        levels = self.i.p.column.levels
        restarts = [levels[number].restart_address for number in range(WHEELS)]
        steps = [levels[number].step for number in range(WHEELS + 1)]
        first, second = jobs[0].column, jobs[1].column
        for number in range(1, WHEELS + 1):
            turn = first[f"turn_{number}"]
            m.d.sync += [
                turn.address.eq(restarts[number - 1]),
                turn.next_address[number - 1].eq(steps[number]),
                *(
                    turn.next_address[below - 1].eq(restarts[number - 1] + steps[below])
                    for below in range(1, number)
                ),
            ]
        # Sums of two restarts or of three numbers take the second stage, too.
        turns = [first[f"turn_{number}"] for number in range(1, WHEELS + 1)]
        m.d.sync += [
            second.turn_2.address.eq(turns[1].address + turns[0].address),
            second.turn_3.next_address[0].eq(turns[2].next_address[0] + turns[1].address),
            jobs[2].column.turn_3.address.eq(second.turn_3.address + second.turn_2.address),
        ]

    def _count(self, m: Module, column) -> None:
        """Divide the distances of positions by the element strides; 0 if a distance is negative."""
        levels = self.i.p.column.levels
        for number in range(WHEELS + 1):
            level = levels[number]
            distances = {"first": level.position}
            if number < WHEELS:
                distances["restart"] = level.restart
            reciprocal = reciprocal_of(m, level.stride_less_one, self._dividend_bits)
            reciprocals = [
                Signal.like(reciprocal, name=f"reciprocal_{number}_{stage}", reset_less=True)
                for stage in range(2)
            ]
            stride = Signal(STRIDE_BITS + 1, name=f"stride_{number}", reset_less=True)
            m.d.sync += [
                reciprocals[0].eq(reciprocal),
                reciprocals[1].eq(reciprocals[0]),
                stride.eq(level.stride_less_one + 1),
            ]
            for kind, position in distances.items():
                counts = column.image if number == WHEELS else column[kind][number]
                less_one = {"before": ~position, "to_limit": level.limit - position}
                if number < WHEELS:
                    less_one["to_wrap"] = Mux(level.absent, 0, level.last - position)
                for name, value in less_one.items():
                    self._divide(
                        m,
                        f"{kind}_{name}_{number}",
                        value,
                        stride,
                        reciprocals[1],
                        counts[name],
                        least=name == "to_wrap",
                    )

    def _divide(
        self,
        m: Module,
        name: str,
        less_one: Value,
        stride: Signal,
        reciprocal: Signal,
        count: Value,
        *,
        least: bool,
    ) -> None:
        """Count the pixels of a distance: one at the first position, and one after each stride.

        ``less_one``: distance, less one position. A negative one has no pixel, with ``least`` one.
        All that is not the quotient comes before it: multipliers are far from other logic.
        """
        bits, most = self._dividend_bits, (1 << self.params.pixel_bits) - 1
        distance = Signal(signed(POSITION_BITS + 1), name=name, reset_less=True)
        exceeds = Signal(name=f"{name}_exceeds")
        dividend = Signal(bits, name=f"{name}_dividend", reset_less=True)
        is_empty = Signal(name=f"{name}_is_empty", reset_less=True)
        multiple, longest = (
            Array(Const(each * count, bits) for each in range(1 << len(stride)))[stride]
            for count in (most, most - 1)
        )
        m.d.comb += exceeds.eq(distance[bits:].any() | (distance[:bits] > longest))
        m.d.sync += [
            distance.eq(less_one),
            dividend.eq(Mux(exceeds, multiple, distance[:bits] + stride)),
            is_empty.eq(distance < 0),
            count.eq(quotient(m, name, dividend, reciprocal, bits)),
        ]
        with m.If(is_empty):
            m.d.sync += count.eq(int(least))

    def _limit(self, m: Module, counted, is_all_outside: Signal, column) -> None:
        """Find the limits of the first walk, and whether its chain ends with it."""
        p = self.params
        limits = Signal.like(column.limits, name="limits_d")
        pixels = counted.pixels
        if p.im2col_w:
            pixels = Mux(counted.grouped, GROUP, pixels)
        m.d.comb += [
            *limits_of(p, counted, counted.first, limits),
            limits.is_outside.eq(is_all_outside | (counted.image.to_limit == 0)),
        ]
        first, restart = counted.first[0].to_wrap, counted.restart[0].to_wrap
        row = ~limits.stays, counted.pixels - restart <= first, counted.image.to_limit <= 1
        wheels = wheels_at(counted.first, counted.image, limits)
        rest = rest_is_outside(p, counted, row, wheels)
        m.d.sync += [
            column.limits.eq(limits),
            column.ends.eq(~counted.enabled | limits.is_outside | (pixels <= limits.most) | rest),
        ]
