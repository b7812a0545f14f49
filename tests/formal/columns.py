"""Columns: the counts of pixels are those of positions, and walks have the pixels' addresses."""

from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, Signal, signed
from amaranth.lib import data

from hw.generate.column_preparation import STAGES, ColumnPreparation
from hw.generate.walk_builder import WalkBuilder
from hw.layouts.columns import POSITION_BITS, WHEELS
from hw.params import TmaParams
from tests.formal.inside import Inside, inside
from tests.formal.odometer import restarts_of, steps_of, turns_fit
from tests.formal.pipelines import choose_clock, past
from tests.formal.proof import Bug, Proof


class NarrowParams(TmaParams):
    """Parameters with short counts of pixels; ``hw.lib.quotient`` is tested at all widths."""

    pixel_bits = 7


class CountSpec(Elaboratable):
    """The column preparation counts the pixels in front of, inside and up to the end of a tensor.

    The solver chooses the column: positions of 34 bits. Pixel k of a row is k element strides
    behind the row's first one. The rows of a dimension are those from the column's first pixel and,
    but for the images, those from a restart. A count has as many pixels as there are k from 0 on
    with k * stride <= distance; the largest one, which is more than a column has, also stands for
    more.

    - ``before``: up to the last position in front of the tensor.
    - ``to_limit``: up to the last position inside.
    - ``to_wrap``: up to the last position before a wrap, or one pixel. A dimension that the tensor
      does not have has one pixel.
    """

    def __init__(self, number: int) -> None:
        self.number = number  # of the level

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = NarrowParams(streams=1)
        m.submodules.dut = dut = ColumnPreparation(p)
        chosen = choose_clock(m, STAGES)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            dut.i.payload.eq(AnySeq(dut.i.payload.as_value().shape())),
        ]
        level, number = dut.i.p.column.levels[self.number], self.number
        restarts = AnyConst(1)
        first = Signal(signed(POSITION_BITS))
        is_image = number == WHEELS
        m.d.comb += first.eq(level.position)
        if not is_image:
            with m.If(restarts):
                m.d.comb += first.eq(level.restart)
        distances = {"before": ~first, "to_limit": level.limit - first}
        if not is_image:
            distances["to_wrap"] = Mux(level.absent, 0, level.last - first)
        stride = past(m, "stride", level.stride_less_one + 1, STAGES)
        o = dut.o.p.column
        most = (1 << p.pixel_bits) - 1
        for name, value in distances.items():
            distance = past(m, name, value, STAGES).as_signed()
            count = Signal(p.pixel_bits, name=f"{name}_count")
            if is_image:
                m.d.comb += count.eq(o.image[name])
            else:
                m.d.comb += count.eq(Mux(restarts, o.restart[number][name], o.first[number][name]))
            with m.If(chosen & (distance < 0)):
                m.d.comb += Assert(count == (name == "to_wrap"))
            with m.Elif(chosen):
                m.d.comb += [
                    Assert(count != 0),
                    Assert((count - 1).as_unsigned() * stride <= distance),
                    Assert((count == most) | (distance < count * stride)),
                ]
            if name == "before":
                m.d.comb += Cover(chosen & (count == 9) & (stride == 3) & (distance > 25))
        return m


class SumsSpec(Elaboratable):
    """The column preparation adds up the steps and the restarts of the dimensions.

    - The addresses after the steps, and the sums for each wheel, are those of steps and restarts.
    - All pixels are said to be outside if and only if the box has no channel inside, the first
      image is behind the last one, or a dimension has no position inside: its last one is in front
      of the tensor, or its first one and that of its restart are behind it.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = ColumnPreparation(TmaParams(streams=1))
        chosen = choose_clock(m, STAGES)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            dut.i.payload.eq(AnySeq(dut.i.payload.as_value().shape())),
        ]
        self._follow_the_addresses(m, dut, chosen)
        self._follow_the_outside(m, dut, chosen)
        is_far = dut.o.p.column.turn_3.address == 77
        m.d.comb += Cover(chosen & ~dut.o.p.column.limits.is_outside & is_far)
        return m

    def _follow_the_addresses(self, m: Module, dut: ColumnPreparation, chosen: Signal) -> None:
        """Assert the addresses and the sums of steps."""
        source = dut.i.p.column.levels
        levels = data.View(source.shape(), past(m, "levels", source.as_value(), STAGES))
        column = dut.o.p.column
        steps, restarts = steps_of(column), restarts_of(column)
        bits = len(column.address)
        with m.If(chosen):
            m.d.comb += [Assert(column.address == levels[0].address), Assert(turns_fit(column))]
            for number, step in enumerate(steps):
                m.d.comb += Assert(step == levels[number].step)
                if number:
                    address = (levels[number].address + levels[number].step)[:bits]
                    m.d.comb += Assert(column.next_address[number - 1] == address)
            for number, restart in enumerate(restarts):
                m.d.comb += Assert(restart == levels[number].restart_address)

    def _follow_the_outside(self, m: Module, dut: ColumnPreparation, chosen: Signal) -> None:
        """Assert that all pixels are outside if the limits of the first walk say so."""
        walk, column = dut.i.p.walk, dut.i.p.column
        images = column.levels[WHEELS]
        outside = [~walk.has_data, images.position > images.limit]
        for number in range(WHEELS):
            level = column.levels[number]
            is_behind = (level.restart > level.limit) & (level.position > level.limit)
            is_outside = ~level.absent & ((level.last < 0) | is_behind)
            m.d.comb += Assume(level.absent | (level.restart <= level.position))
            outside.append(is_outside)
        is_outside = past(m, "is_outside", Cat(outside).any(), STAGES)
        m.d.comb += Assert(~chosen | (dut.o.p.column.limits.is_outside == is_outside))


class BuilderSpec(Elaboratable):
    """The walk builder makes a walk of the pixels of a step that are inside, at their addresses.

    The solver chooses the steps of columns of two channels. Pixel k of a step is k steps behind its
    address in global memory, and k pitches behind the begin of its walk in shared memory; the walks
    of a column follow each other from the begin of the box.

    - A walk has data if a pixel is inside: those from ``before`` up to ``to_limit``, in a row that
      is inside. It begins with the first of them, in both memories.
    - Dense pixels are a run, others have a loop with a step for each.
    - What the walk spans in shared memory are all its pixels, inside or not.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = TmaParams(streams=1)
        m.submodules.dut = dut = WalkBuilder(p)
        chosen = choose_clock(m, 1)
        step = dut.i.p
        channel = AnyConst(p.channel_bits)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            dut.i.payload.eq(AnySeq(step.as_value().shape())),
            Assume(step.channel < p.channels),
            Assume(step.before <= step.pixels),
        ]
        pixels = (step.to_limit - step.before)[: p.pixel_bits]
        bits, memory = p.box_piece_bits, p.piece_address_bits
        values = {
            "has_data": step.inside & (step.before < step.to_limit),
            "count": pixels,
            "pieces": (step.pixels * step.pitch)[:bits],
            "offset": (step.before * step.pitch)[:bits],
            "run": (pixels * step.pitch)[:bits],
            "global_offset": (step.before * step.step)[:memory],
        }
        made = {name: past(m, name, value, 1) for name, value in values.items()}
        before = data.View(step.shape(), past(m, "step", step.as_value(), 1))
        valid = past(m, "valid", dut.i.valid, 1)
        walk = dut.o.p.walk

        # The end of the last walk of the chosen channel, as the builder keeps it.
        has_end, end, begin = Signal(), Signal(p.smem_piece_bits), Signal(p.smem_piece_bits)
        is_first = before.place.first_of_column
        m.d.comb += begin.eq(Mux(is_first, before.walk.smem_begin, end))
        with m.If(valid & (before.channel == channel)):
            m.d.sync += [has_end.eq(is_first | has_end), end.eq(begin + made["pieces"])]
        with m.If(valid):
            m.d.comb += Assume(is_first | has_end | (before.channel != channel))
        ends = data.ArrayLayout(p.smem_piece_bits, p.channels)
        here = inside(dut)
        product = here.view("product", dut._product)
        m.d.comb += [
            Assert(~has_end | (here.view("column_ends", ends)[channel] == end)),
            Assert(dut.o.valid == valid),
            Assert(product.channel == before.channel),
            Assert(product.walk.smem_begin == before.walk.smem_begin),
            Assert(product.place.first_of_column == is_first),
            Assert(product.pieces == made["pieces"]),
        ]
        is_walk = Signal()
        m.d.comb += is_walk.eq(chosen & valid & before.enabled & (before.channel == channel))
        start = begin + before.skipped_pieces + made["offset"]
        with m.If(is_walk):
            m.d.comb += [
                Assert(walk.has_data == made["has_data"]),
                Assert(walk.start == (before.address + made["global_offset"])[:memory]),
                Assert(walk.smem_begin == begin),
                Assert(walk.smem_end == (begin + made["pieces"])[: p.smem_piece_bits]),
                Assert(walk.smem_start == start[: p.smem_piece_bits]),
            ]
            with m.If(before.dense):
                m.d.comb += [
                    Assert(walk.run == made["run"]),
                    Assert(walk.loops == before.walk.loops),
                ]
            with m.Else():
                loop = walk.loops[0]
                m.d.comb += [
                    Assert(walk.run == before.walk.run),
                    Assert(loop.last == (made["count"] - 1)[:8]),
                    Assert(loop.global_step == before.step),
                    Assert(loop.smem_step == before.pitch),
                ]
        m.d.comb += Cover(is_walk & ~is_first & (made["offset"] == 6) & (made["run"] == 9))
        return m


def _wraps_late(_preparation: ColumnPreparation, inner: Inside) -> None:
    with inner.module.If(inner.signal("first_to_wrap_0") == 99):
        inner.module.d.sync += inner.first_to_wrap_0_dividend.eq(101)


def _has_an_image_more(_preparation: ColumnPreparation, inner: Inside) -> None:
    inner.module.d.sync += inner.first_to_limit_3_dividend.eq(inner.signal("first_to_limit_3") + 9)


def _restarts_less(preparation: ColumnPreparation, inner: Inside) -> None:
    before, after = (inner.view(f"job_{n}", preparation.o.payload.shape()) for n in (1, 2))
    inner.module.d.sync += after.column.turn_3.address.eq(before.column.turn_3.address)


def _begins_anew(builder: WalkBuilder, inner: Inside) -> None:
    product = inner.view("product", builder._product)
    with inner.module.If(product.channel == 1):
        inner.module.d.comb += inner.begin.eq(product.walk.smem_begin)


PROOFS = [
    *(
        Proof(
            f"columns: counts of pixels in {name}, of positions of 34 bits",
            partial(CountSpec, number),
            depth=4,
            cover=7,
            bugs=(bug,),
            unbounded=True,
        )
        for number, name, bug in (
            (0, "W", Bug("a wrap that is too late", ColumnPreparation, _wraps_late, depth=7)),
            (3, "N", Bug("an image too many", ColumnPreparation, _has_an_image_more, depth=7)),
        )
    ),
    Proof(
        "columns: sums of steps and restarts of 60 bits",
        SumsSpec,
        depth=4,
        cover=7,
        bugs=(Bug("a restart that is forgotten", ColumnPreparation, _restarts_less, depth=7),),
        unbounded=True,
    ),
    Proof(
        "columns: walks of pixels at their addresses of 60 bits",
        BuilderSpec,
        depth=1,
        cover=6,
        bugs=(Bug("walks that all begin with the box", WalkBuilder, _begins_anew, depth=6),),
        unbounded=True,
        shares_cells=True,
    ),
]
