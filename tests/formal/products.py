"""Products: the addresses and spans of setup are the products and sums of their definition.

A product of two fields is a part of the specification, too: the proofs compare its operands, its
width and what becomes of it. The lemmas of ``tests.formal.lemmas`` say what the products add up to.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Elaboratable, Module, Mux, Signal
from amaranth.lib import data

from hw.layouts.columns import STEP_BITS
from hw.params import DIMS, PIECE_BYTES, TmaParams
from hw.setup.items import POSITION_LOW_BITS, STRIDE_LOW_BITS
from hw.setup.job_builder import JobBuilder
from hw.setup.multiply_stage import MultiplyStage
from hw.setup.span_stage import SpanStage
from tests.formal.inside import Inside, inside
from tests.formal.pipelines import choose_clock, past
from tests.formal.proof import Bug, Proof


class ProductSpec(Elaboratable):
    """The multiply stage multiplies without loss, whatever the operands.

    The solver chooses a batch of five items: positions of 33 bits, strides of 36 bits.

    - The offset of an item has the products of its stride and of the two parts of its position
      p = l + 2^16 h. The product of h loses only bits beyond the size of memory.
    - ``restart_offsets`` are the products of restart and stride, and ``global_steps`` those of
      element stride and stride.
    - These are products with the two parts of the stride s = t + 2^18 u. They lose only bits beyond
      the size of memory; the global step has all bits of s.
    - The factor of item k is the product of the lengths of the items up to k; ``too_many`` is set
      if one of these products has bits that the factor does not have.
    - ``scaled`` has the products of the factor of item k - 1 and the steps of item k: those inside
      the tensor, less one, and those in front of it. An item without a dimension has none, and a
      row of TILE_GATHER4 none in front of the tensor.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = TmaParams()
        m.submodules.dut = dut = MultiplyStage(p)
        chosen = choose_clock(m, 1)
        m.d.comb += [
            dut.i.eq(AnySeq(dut.i.as_value().shape())),
            *(Assume(step.length_less_one < 1024) for step in dut.i.steps),
        ]
        restarts = []
        for way, (step, image) in enumerate(zip(dut.i.steps, dut.i.images, strict=True)):
            low = step.position[:POSITION_LOW_BITS]
            high = step.position[POSITION_LOW_BITS:].as_signed()
            products = {
                "low": (low * step.stride, dut.o.offsets[way].low),
                "high": (high * step.stride, dut.o.offsets[way].high),
            }
            for name, factor, parts in (
                ("restart", image.restart, dut.o.restart_offsets[way]),
                ("step", step.element_stride, dut.o.global_steps[way]),
            ):
                bits = STEP_BITS if name == "step" else p.piece_address_bits
                low_exact = factor * step.stride[:STRIDE_LOW_BITS]
                high_exact = factor * step.stride[STRIDE_LOW_BITS:]
                m.d.comb += [
                    Assert(len(parts.low) >= min(bits, len(low_exact))),
                    Assert(len(parts.high) >= min(bits - STRIDE_LOW_BITS, len(high_exact))),
                ]
                products |= {
                    f"{name}_low": (low_exact, parts.low),
                    f"{name}_high": (high_exact, parts.high),
                }
            for name, (product, field) in products.items():
                exact = Signal.like(field, name=f"{name}_{way}")
                m.d.comb += exact.eq(product)
                expected = past(m, f"{name}_{way}", exact, 1)
                m.d.comb += Assert(~chosen | (field == expected))
            restarts.append(past(m, f"is_back_{way}", image.restart < 0, 1))
        self._follow_factors(m, dut, chosen)

        # The assumptions can be met: a box of many pieces, whose restarts are all negative.
        is_large = dut.o.factors[DIMS - 1] == 4096
        m.d.comb += Cover(chosen & ~dut.o.too_many & is_large & Cat(restarts).all())
        return m

    def _follow_factors(self, m: Module, dut: MultiplyStage, chosen: Signal) -> None:
        """Assert the products of lengths, as a tree, and which of them have a loss."""
        here = inside(dut)
        bits = dut.params.box_piece_bits
        lengths = [step.length_less_one + 1 for step in dut.i.steps]
        lengths = [lengths[0], *(length[:9] for length in lengths[1:])]
        products = [
            here.signal(f"product_{first}_{end}")
            for first, end in ((0, 2), (0, 3), (2, 4), (0, 4), (0, 5))
        ]
        of_two, of_three, of_others, of_four, of_all = products
        exact = (
            lengths[0] * lengths[1],
            of_two[:bits] * lengths[2],
            lengths[2] * lengths[3],
            of_two[:bits] * of_others,
            of_four[:bits] * lengths[4],
        )
        m.d.comb += [
            Assert(product == expected) for product, expected in zip(products, exact, strict=True)
        ]
        factors = [lengths[0], of_two, of_three, of_four, of_all]
        losses = here.signal("too_many")
        m.d.comb += [
            Assert(losses[way] == factor[bits:].any()) for way, factor in enumerate(factors)
        ]
        had_loss = past(m, "had_loss", losses.any(), 1)
        m.d.comb += Assert(~chosen | (dut.o.too_many == had_loss))
        for way, factor in enumerate(factors):
            expected = past(m, f"factor_{way}", factor[:bits], 1)
            m.d.comb += Assert(~chosen | (dut.o.factors[way] == expected))
        for way, factor in enumerate(factors[:-1], 1):
            self._follow_steps(m, dut, chosen, way, factor[:bits])

    def _follow_steps(
        self, m: Module, dut: MultiplyStage, chosen: Signal, way: int, factor
    ) -> None:
        """Assert the products of the steps of item ``way`` and the factor below it."""
        step = dut.i.steps[way]
        ends = step.may_end & (step.steps_to_end_less_one < step.steps_less_one)
        last = Mux(ends, step.steps_to_end_less_one, step.steps_less_one)
        skipped_steps = Mux(step.is_negative, step.skipped_less_one + 1, 0)[:8]
        # In the form of the stage, so that the products are of the same operands.
        count_less_one = (last + Mux(step.is_negative, ~step.skipped_less_one, 0))[:8]
        m.d.comb += Assert(count_less_one == (last - skipped_steps)[:8])
        scaled = dut.o.scaled[way - 1]
        for name, product, is_zero in (
            ("count_less_one", factor * count_less_one, step.is_free),
            (
                "skipped_steps",
                factor * skipped_steps,
                step.is_free | dut.i.common.has_row_count,
            ),
        ):
            exact = Signal(len(scaled[name]), name=f"scaled_{name}_{way}")
            with m.If(~is_zero):
                m.d.comb += exact.eq(product)
            expected = past(m, f"scaled_{name}_{way}", exact, 1)
            m.d.comb += Assert(~chosen | (scaled[name] == expected))


class SpanSpec(Elaboratable):
    """The span stage multiplies the pitch by the factors, and adds the offsets of items.

    The solver chooses a batch of five items behind the multiply stage.

    - What the items below an item span is the product of the pitch and their factor; ``spanned`` is
      that of all. ``smem_steps`` is what is below an item, ``runs`` and ``skipped`` are the
      products of the pitch and ``scaled``, with one more factor for the runs.
    - An item is contiguous if its step is what is below it, or it has one step.
    - The offset of an item is the sum of those up to it, modulo the size of memory. Its step and
      the offset of its restart are the sums of their parts, modulo the size of memory.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = TmaParams()
        m.submodules.dut = dut = SpanStage(p)
        chosen = choose_clock(m, 1)
        i, bits = dut.i, p.box_piece_bits
        m.d.comb += [dut.i.eq(AnySeq(dut.i.as_value().shape())), dut.valid.eq(1)]
        below, total = i.common.row_pitch, Const(0)
        for way, step in enumerate(i.steps):
            address_bits = p.piece_address_bits
            low, high = i.offsets[way].low, i.offsets[way].high
            total = (total + low + (high << POSITION_LOW_BITS))[:address_bits]
            restart = i.restart_offsets[way]
            step_parts = i.global_steps[way]
            global_step = step_parts.low + (step_parts.high << STRIDE_LOW_BITS)
            count, skipped = step.count_less_one + 1, step.skipped_steps
            if way:
                scaled = i.scaled[way - 1]
                count = (scaled.count_less_one + i.factors[way - 1])[:bits]
                skipped = scaled.skipped_steps
            expected = {
                "smem_steps": below[:bits],
                "runs": (i.common.row_pitch * count)[:bits],
                "skipped": (i.common.row_pitch * skipped)[:bits],
                "are_contiguous": (global_step == below[:bits]) | step.is_single,
                "global_steps": global_step[:STEP_BITS],
                "restart_offsets": (restart.low + (restart.high << STRIDE_LOW_BITS))[:address_bits],
                "offsets": total,
            }
            for name, value in expected.items():
                before = past(m, f"{name}_{way}", value, 1)
                m.d.comb += Assert(~chosen | (dut.o[name][way] == before))
            below = i.common.row_pitch * i.factors[way]
        held = i.common.row_pieces * i.factors[DIMS - 1]
        for name, value in (("spanned", below), ("held", held[:bits])):
            before = past(m, name, value, 1)
            m.d.comb += Assert(~chosen | (dut.o[name] == before))
        m.d.comb += Cover(chosen & (dut.o.spanned == 4096) & (dut.o.offsets[4] == 4095))
        return m


class BuilderSpec(Elaboratable):
    """The job builder makes a walk of the items and the row, and an im2col box has its levels.

    The solver chooses a batch of five items behind the span stage. Items are in the run as long as
    all below them are full and contiguous with them.

    - A job is not refused: no check failed, its factors had no loss, and what it spans lies in the
      shared memory of the CTA.
    - Each item that is not in the run has its own loop, which counts the steps inside the tensor.
      The run is that of the last item in it, or the row's if there is none.
    - The walk begins at the address of the row plus the last offset, and in shared memory behind
      what is skipped; its chain is what the box spans. It has data unless an item, or the row, is
      outside.
    - Each level of a column has the address of the row and of the items up to its own.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = TmaParams()
        m.submodules.dut = dut = JobBuilder(p)
        chosen = choose_clock(m, 1)
        batch = dut.i.as_value()
        common = dut.i.common
        m.d.comb += [
            dut.i.eq(AnySeq(batch.shape())),
            dut.valid.eq(AnySeq(1)),
            # The default unit has an item for each of its pipelines, in a single batch.
            Assume((common.number == 0) & common.ends_walk & common.first_batch),
            Assume(common.last_batch),
        ]
        valid = past(m, "valid", dut.valid, 1)
        i = data.View(dut.i.shape(), past(m, "batch", batch, 1))
        job, walk = dut.job.p, dut.job.p.walk
        ways = range(p.setup_pipelines)
        begin = i.common.smem_address[4:]
        end = Signal(2 * p.box_piece_bits + 1)
        m.d.comb += end.eq(begin + i.spanned)
        is_job = Signal()
        m.d.comb += is_job.eq(chosen & dut.job.valid)

        # Items in the run.
        in_run, is_open = [], i.has_open_row & ~i.common.is_image
        run, extent = i.row.pieces, i.row.extent
        for way in ways:
            in_run.append(is_open & i.are_contiguous[way])
            is_open = in_run[way] & i.steps[way].is_full
            run = Mux(in_run[way], i.runs[way], run)
            extent = Mux(in_run[way], i.runs[way], extent)
        skipped = i.row.skipped_pieces + sum(i.skipped[way] for way in ways)
        is_outside = i.row.is_outside | Cat(step.is_outside for step in i.steps).any()
        with m.If(chosen):
            m.d.comb += Assert(~(dut.job.valid | dut.error.valid) | valid)
        with m.If(is_job):
            m.d.comb += [
                Assert(i.error.code.as_value() == 0),
                Assert(~i.too_many & (end <= p.smem_bytes // PIECE_BYTES)),
                Assert(walk.has_data == ~is_outside),
                Assert(walk.start == (i.row.start + i.offsets[-1])[: p.piece_address_bits]),
                Assert(walk.smem_begin == begin),
                Assert(walk.smem_end == end[: p.smem_piece_bits]),
                Assert(walk.smem_start == (begin + skipped)[: p.smem_piece_bits]),
                Assert(walk.run == run),
                Assert(walk.smem_extent == extent),
                Assert(walk.tail_bytes == i.row.tail_bytes),
                Assert(walk.row_pieces == i.row.short_pieces),
            ]
            for way, loop in zip(ways, walk.loops, strict=False):
                m.d.comb += [
                    Assert(loop.last == Mux(in_run[way], 0, i.steps[way].count_less_one)),
                    Assert(loop.global_step == i.global_steps[way]),
                    Assert(loop.smem_step == i.smem_steps[way]),
                ]
            self._follow_levels(m, i, job.column)
        m.d.comb += Cover(is_job & in_run[1] & ~in_run[2] & (walk.loops[3].last != 0))
        return m

    def _follow_levels(self, m: Module, i, column) -> None:
        """Assert the levels of a column."""
        bits = len(column.levels[0].address)
        for number, level in enumerate(column.levels):
            way = DIMS - 1 - number
            step, image = i.steps[way], i.images[way]
            m.d.comb += [
                Assert(level.address == (i.row.start + i.offsets[way])[:bits]),
                Assert(level.absent == ~image.is_walked),
                Assert(level.position == image.position),
                Assert(level.restart == image.restart),
                Assert(level.restart_address == i.restart_offsets[way]),
                Assert(level.last == image.last),
                Assert(level.limit == image.limit),
                Assert(level.stride_less_one == (step.element_stride - 1)[:3]),
                Assert(level.step == i.global_steps[way]),
            ]
        m.d.comb += [
            Assert(column.enabled == i.common.is_image),
            Assert(column.pixels == i.common.pixels),
            Assert(column.pitch == i.common.row_pitch),
            Assert(column.skipped_pieces == i.row.skipped_pieces),
        ]
        is_dense = (
            i.row.is_full
            & (i.common.row_pieces == i.common.row_pitch)
            & (i.global_steps[DIMS - 1] == i.common.row_pieces)
            & (i.steps[DIMS - 1].element_stride == 1)
        )
        m.d.comb += Assert(column.dense == is_dense)


def _loses_the_sign(stage: MultiplyStage, inner: Inside) -> None:
    step = stage.i.steps[2]
    high = step.position[POSITION_LOW_BITS:].as_unsigned()
    out = inner.view("out", stage.o.shape())
    inner.module.d.sync += out.offsets[2].high.eq(high * step.stride)


def _counts_all_steps(stage: MultiplyStage, inner: Inside) -> None:
    out = inner.view("out", stage.o.shape())
    lengths = [step.length_less_one + 1 for step in stage.i.steps]
    inner.module.d.sync += out.scaled[0].count_less_one.eq(lengths[0] * lengths[1])


def _forgets_a_factor(stage: SpanStage, inner: Inside) -> None:
    out = inner.view("out", stage.o.shape())
    inner.module.d.sync += out.smem_steps[3].eq(stage.i.common.row_pitch * stage.i.factors[1])


def _merges_over_an_open_item(_builder: JobBuilder, inner: Inside) -> None:
    inner.module.d.comb += inner.is_open[2].eq(inner.merges[1])


def _accepts_a_box_beyond_the_end(_builder: JobBuilder, inner: Inside) -> None:
    inner.module.d.comb += inner.is_refused.eq(0)


PROOFS = [
    Proof(
        "products: those of all items, without loss",
        ProductSpec,
        depth=1,
        cover=4,
        bugs=(
            Bug("a position without its sign", MultiplyStage, _loses_the_sign, depth=4),
            Bug("steps outside that count as inside", MultiplyStage, _counts_all_steps, depth=4),
        ),
        unbounded=True,
        shares_cells=True,
    ),
    Proof(
        "spans: what is below each item, and the sums of offsets",
        SpanSpec,
        depth=1,
        cover=4,
        bugs=(Bug("a span without a factor", SpanStage, _forgets_a_factor, depth=4),),
        unbounded=True,
        shares_cells=True,
    ),
    Proof(
        "job builder: run, loops and levels of all items",
        BuilderSpec,
        depth=1,
        cover=4,
        bugs=(
            Bug("a run over an item that is not full", JobBuilder, _merges_over_an_open_item, 4),
            Bug("a box beyond shared memory", JobBuilder, _accepts_a_box_beyond_the_end, depth=4),
        ),
        unbounded=True,
    ),
]
