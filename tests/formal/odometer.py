"""Odometer: the steps of a column have all of its pixels, and only rows outside are skipped."""

from itertools import pairwise

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data

from hw.generate.odometer import Odometer
from hw.generate.walk_limits import LEAP
from hw.layouts.columns import STEP_BITS, WHEELS, pixel_counts_layout
from hw.layouts.jobs import prepared_job_layout
from hw.params import TmaParams
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof

WALKS_WAITING = 3


class NarrowParams(TmaParams):
    """Parameters with short members of a job, on which the proof does not depend but its time."""

    smem_piece_bits = box_piece_bits = run_bits = 1
    piece_address_bits = 12
    pixel_bits = 7


def less(count: Value, by: Value | int) -> Value:
    """Return ``count - by``, at least 0."""
    return Mux(count < by, 0, count - by)


def is_outside(position) -> Value:
    """Return whether the row of a position is outside the tensor in H, D or N."""
    wheels = [*(position.counts[number] for number in range(1, WHEELS)), position.image]
    return (
        Cat(wheel.before != 0 for wheel in wheels).any()
        | ~Cat(wheel.to_limit != 0 for wheel in wheels).all()
    )


def steps_of(column) -> list[Value]:
    """Return the steps of W, H, D and N in global memory."""
    turns = (column[f"turn_{number}"] for number in range(1, WHEELS + 1))
    return [column.step, *(turn.next_address[-1] for turn in turns)]


def restarts_of(column) -> list[Value]:
    """Return the addresses of the restarts of W, H and D."""
    sums = [0, *(column[f"turn_{number}"].address for number in range(1, WHEELS + 1))]
    return [(after - before)[: len(after)] for before, after in pairwise(sums)]


def turns_fit(column) -> Value:
    """Return whether the sums of steps and restarts of a column are the sums of its members."""
    steps, restarts = steps_of(column), restarts_of(column)
    fits = Const(1, 1)
    for number in range(2, WHEELS + 1):
        for below in range(1, number):
            total = sum(restarts[below:number], steps[below])
            address = column[f"turn_{number}"].next_address[below - 1]
            fits = fits & (address == total[: len(address)])
    return fits


def most_of(column, position) -> Value:
    """Return the pixels of a step that does not end the column."""
    to_wrap = position.counts[0].to_wrap
    return Mux(~column.dense & (to_wrap > LEAP), LEAP, to_wrap)


class ColumnSpec(Elaboratable):
    """The steps of any column have the pixels that its counts say.

    The solver chooses the columns and other jobs of a channel, and when jobs come and walks leave.
    A reference follows the position in rows: behind a row, W restarts and H takes a step; if H
    wraps, it restarts and D takes a step, and so on to the images. All images from the limit of N
    on are outside the tensor. Each dimension has a place, the address without the dimensions below:
    its step is added to it, and if it restarts, it is the place above plus that of its restart.

    - The steps of a column have all of its pixels, each in one step. A step ends with its row or,
      if the pixels are not dense, behind ``LEAP`` pixels. Only the last one has pixels behind its
      row, and all of these are outside the tensor.
    - A step says which pixels of its row are inside in W, and whether the row is in H, D and N. Its
      address is the place of W.
    - A job is done with its last step, and the next one begins with its own first step. A job that
      is no column has one step.
    - At most ``walks_waiting`` walks wait behind the odometer.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = NarrowParams(threads=2, streams=1, requests_in_flight=2, stores=False, reductions=False)
        m.submodules.dut = dut = Odometer(p, WALKS_WAITING)
        here = inside(dut)
        m.d.comb += [
            dut.waiting.eq(AnySeq(2)),
            dut.has_more_steps.eq(AnySeq(1)),
            dut.taken.eq(AnySeq(1)),
            Assume(~ResetSignal()),
        ]
        # The first job stays until it is done. Another one may be behind it, or come later.
        job_layout = prepared_job_layout(p)
        has_job, job = Signal(), Signal(job_layout)
        stays = has_job & ~dut.done.valid
        m.d.comb += [
            dut.first_valid.eq(stays | AnySeq(1)),
            dut.first.eq(Mux(stays, job.as_value(), AnySeq(job_layout.size))),
        ]
        m.d.sync += [has_job.eq(dut.first_valid), job.eq(dut.first)]

        # The position of the next step.
        layout = data.StructLayout(
            {
                "counts": data.ArrayLayout(pixel_counts_layout(p), WHEELS),
                "image": pixel_counts_layout(p, wraps=False),
                "outside": 1,
                "left": p.pixel_bits,
                "places": data.ArrayLayout(p.piece_address_bits, WHEELS + 1),
            }
        )
        begin, at = Signal(layout), Signal(layout)
        column, first = job.column, dut.first.column
        m.d.comb += [
            begin.counts.eq(first.first),
            begin.image.eq(first.image),
            begin.outside.eq(first.limits.is_outside),
            begin.left.eq(first.pixels),
            begin.places[0].eq(first.address),
            *(
                begin.places[number].eq(first.next_address[number - 1] - steps_of(first)[number])
                for number in range(1, WHEELS + 1)
            ),
        ]
        next_row = self._turn(m, "next", column, at)
        self._assume_a_job(m, first, begin)
        valid, is_done = here.signal("valid"), dut.done.valid
        # There is one channel.
        m.d.comb += [Assert(here.is_same == valid), Assert(here.is_other == ~valid)]
        most = most_of(column, at)
        pixels = Signal(p.pixel_bits)
        behind = Signal(layout)
        m.d.comb += [pixels.eq(Mux(is_done, at.left, most)), behind.eq(at)]
        with m.If(pixels >= at.counts[0].to_wrap):
            m.d.comb += behind.eq(next_row)
        with m.Else():
            row_d, row_q = behind.counts[0], at.counts[0]
            m.d.comb += [
                row_d.before.eq(less(row_q.before, pixels)),
                row_d.to_limit.eq(less(row_q.to_limit, pixels)),
                row_d.to_wrap.eq(row_q.to_wrap - pixels),
                behind.places[0].eq(at.places[0] + LEAP * column.step),
            ]
        m.d.comb += behind.left.eq(at.left - pixels)
        is_open, is_first = Signal(), Signal()  # the job has begun, with no step so far
        continues = Mux(valid, ~is_done, is_open)
        m.d.sync += is_open.eq(continues)
        with m.If(valid):
            m.d.sync += [at.eq(behind), is_first.eq(0)]
        with m.If(here.turn_valid & dut.first_valid):
            m.d.sync += is_open.eq(1)
            with m.If(~continues):
                m.d.sync += [at.eq(begin), is_first.eq(1)]

        # The step, and what leaves a clock later.
        ends = at.outside | (at.left <= most) | self._rest_is_outside(column, at, next_row)
        with m.If(valid & column.enabled):
            m.d.comb += [Assert(~is_done | ends), Assert(is_done | (most < at.left))]
        with m.If(valid & ~column.enabled):
            m.d.comb += Assert(is_done)
        m.d.comb += Assert(~valid | (is_open & has_job))
        sent = Signal()
        step = Signal(
            data.StructLayout(
                {
                    "is_column": 1,
                    "pixel_step": STEP_BITS,
                    "first": 1,
                    "last": 1,
                    "pixels": p.pixel_bits,
                    "in_row": p.pixel_bits,
                    "at": layout,
                }
            )
        )
        m.d.sync += [
            sent.eq(valid),
            step.is_column.eq(column.enabled),
            step.pixel_step.eq(column.step),
            step.first.eq(is_first),
            step.last.eq(is_done),
            step.pixels.eq(pixels),
            step.in_row.eq(Mux(at.left < most, at.left, most)),
            step.at.eq(at),
        ]
        out, limit = dut.o.p, step.at.counts[0].to_limit
        m.d.comb += Assert(dut.o.valid == sent)
        with m.If(sent & step.is_column):
            m.d.comb += [
                Assert(out.enabled),
                Assert(out.pixels == step.pixels),
                Assert(out.place.first_of_column == step.first),
                Assert(out.place.first == step.first),
                Assert(out.place.last_of_column == step.last),
                Assert(out.place.last == step.last),
                Assert(out.before == step.at.counts[0].before),
                Assert(out.to_limit == Mux(limit < step.in_row, limit, step.in_row)),
                Assert(out.inside == (~is_outside(step.at) & ~step.at.outside)),
                Assert(out.address == step.at.places[0]),
                Assert(out.step == step.pixel_step),
            ]

        # The registers of the odometer.
        m.d.comb += [
            Assert(here.has_begun == (is_open & ~valid | valid & ~is_first)),
            Assert(~is_open | has_job),
        ]
        with m.If(valid):
            m.d.comb += [
                Assert(here.view("job", job_layout) == job),
                Assert(here.first_of_column == is_first),
            ]
            self._follow(m, here.view("state", dut._state), column, at, ends, is_first)
        with m.Elif(is_open):
            self._follow(m, row(m, here.states, 0), column, at, ends, is_first)
            m.d.comb += Assert(~is_first)
        turns_inside = inside(here.turns)
        m.d.comb += Assert(~turns_inside.locked)

        # Walks behind the odometer.
        waits, was_taken = Signal(range(WALKS_WAITING + 1)), Signal()
        m.d.sync += [waits.eq(waits + dut.o.valid - dut.taken), was_taken.eq(dut.taken)]
        turns = here.turn_valid + valid
        lost = here.lost_0 + here.lost_1
        m.d.comb += [
            Assume(~dut.taken | (waits != 0)),
            Assert(waits + dut.o.valid <= WALKS_WAITING),
            Assert(here.under_way_0 == turns + lost + dut.o.valid + waits + was_taken),
            Assert(here.under_way_0 <= WALKS_WAITING),
            Assert(here.given_0 == turns),
            Assert(here.was_taken == was_taken),
        ]

        # The assumptions can be met: behind a row inside, a column ends with a row outside.
        was_inside = Signal()
        with m.If(sent & step.is_column & out.inside & ~step.last):
            m.d.sync += was_inside.eq(1)
        m.d.comb += Cover(was_inside & sent & step.is_column & (step.pixels > step.in_row))
        return m

    def _turn(self, m: Module, name: str, column, at) -> Signal:
        """Return the position of the next row, but for ``left``."""
        turned = Signal(at.shape(), name=f"{name}_row")
        carry = Const(1, 1)
        m.d.comb += [turned.eq(at), turned.counts[0].eq(column.restart[0])]
        for number in range(1, WHEELS + 1):
            is_image = number == WHEELS
            wheel, wheel_d = ((x.image if is_image else x.counts[number]) for x in (at, turned))
            with m.If(carry):
                m.d.comb += [
                    wheel_d.before.eq(less(wheel.before, 1)),
                    wheel_d.to_limit.eq(less(wheel.to_limit, 1)),
                ]
                if is_image:
                    m.d.comb += turned.outside.eq(at.outside | (wheel.to_limit <= 1))
                    continue
                m.d.comb += wheel_d.to_wrap.eq(wheel.to_wrap - 1)
                with m.If(wheel.to_wrap == 1):
                    m.d.comb += wheel_d.eq(column.restart[number])
            carry = carry & (wheel.to_wrap == 1)
        # From the dimension that takes the step down.
        carries, steps, restarts = [Const(1, 1)], steps_of(column), restarts_of(column)
        for number in range(1, WHEELS):
            carries.append(carries[-1] & (at.counts[number].to_wrap == 1))
        carries.append(Const(0, 1))
        for number in reversed(range(WHEELS)):
            above = turned.places[number + 1]
            is_step = carries[number] & ~carries[number + 1]
            with m.If(carries[number]):
                m.d.comb += turned.places[number].eq(above + restarts[number])
            with m.If(is_step):
                m.d.comb += above.eq(at.places[number + 1] + steps[number + 1])
        return turned

    def _rest_is_outside(self, column, at, next_row) -> Value:
        """Return whether the pixels behind the row are one row, which is outside in H, D or N, or
        are behind the last image.
        """
        rest = at.left - at.counts[0].to_wrap
        is_whole = most_of(column, at) == at.counts[0].to_wrap
        is_one_row = rest <= column.restart[0].to_wrap
        return is_whole & (is_one_row & is_outside(next_row) | next_row.outside)

    def _assume_a_job(self, m: Module, column, begin) -> None:
        """Assume what column preparation makes of a column, and of a job that is none."""
        next_row = self._turn(m, "second", column, begin)
        most = most_of(column, begin)
        rest = self._rest_is_outside(column, begin, next_row)
        wheels = [*column.first, *column.restart]
        with m.If(column.enabled):
            m.d.comb += [
                Assume(column.pixels != 0),
                *(Assume(wheel.to_wrap != 0) for wheel in wheels),
                *(Assume(holds) for holds in self._limits(column, begin, column.limits)),
                Assume(column.limits.is_outside | (column.image.to_limit != 0)),
                Assume(column.ends == (begin.outside | (begin.left <= most) | rest)),
                Assume(turns_fit(column)),
            ]
        with m.Else():
            m.d.comb += Assume(column.ends)

    def _limits(self, column, at, limits) -> list[Value]:
        """Return what holds for the limits of a step."""
        most = most_of(column, at)
        return [
            limits.most == most,
            limits.stays == (most != at.counts[0].to_wrap),
            limits.wraps == Cat(at.counts[number].to_wrap == 1 for number in range(1, WHEELS)),
            limits.is_outside == at.outside,
        ]

    def _follow(self, m: Module, state, column, at, ends, is_first) -> None:
        """Assert that ``state`` is that at the position ``at``."""
        wheels, steps = state.wheels, steps_of(column)
        with m.If(column.enabled):
            m.d.comb += [
                *(Assert(wheels.counts[number] == at.counts[number]) for number in range(WHEELS)),
                Assert(wheels.image == at.image),
                *(Assert(holds) for holds in self._limits(column, at, wheels.limits)),
                Assert(state.left == at.left),
                Assert(state.ends == ends),
                Assert(state.first == is_first),
                Assert(at.left != 0),
                *(Assert(at.counts[number].to_wrap != 0) for number in range(WHEELS)),
                *(Assert(wheel.to_wrap != 0) for wheel in column.restart),
                Assert(at.outside | (at.image.to_limit != 0)),
                Assert(turns_fit(column)),
                Assert(wheels.address == at.places[0]),
                *(
                    Assert(
                        wheels.next_address[number - 1]
                        == (at.places[number] + steps[number])[: len(at.places[number])]
                    )
                    for number in range(1, WHEELS + 1)
                ),
            ]
        with m.Else():
            m.d.comb += Assert(state.ends)


def _skips_a_row_inside(odometer: Odometer, inner: Inside) -> None:
    state = inner.view("state_d", odometer._state)
    column = inner.view("job", prepared_job_layout(odometer.params)).column
    wheels = state.wheels
    rest = state.left - column.restart[0].to_wrap <= wheels.counts[0].to_wrap
    with inner.module.If(wheels.counts[1].before != 0):
        inner.module.d.comb += state.ends.eq(rest | (state.left <= wheels.limits.most))


def _forgets_a_restart(odometer: Odometer, inner: Inside) -> None:
    column = inner.view("job", prepared_job_layout(odometer.params)).column
    with inner.module.If(inner.level == WHEELS):
        inner.module.d.comb += inner.added.eq(column.turn_2.address)


def _sends_a_walk_too_much(_odometer: Odometer, inner: Inside) -> None:
    inner.module.d.comb += inner.turns.i[0].valid.eq(1)


PROOFS = [
    Proof(
        "odometer: all pixels at their addresses, only rows outside skip",
        ColumnSpec,
        depth=1,
        cover=12,
        bugs=(
            Bug("a row inside that is skipped", Odometer, _skips_a_row_inside, depth=7),
            Bug("images that restart as rows do", Odometer, _forgets_a_restart, depth=8),
            Bug("a walk too much", Odometer, _sends_a_walk_too_much, depth=10),
        ),
        unbounded=True,
    ),
]
