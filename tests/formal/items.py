"""Items: each dimension of a tensor map is one item of setup, with its fields, in its place."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    Signal,
    Value,
    signed,
)
from amaranth.lib import data

from hw.layouts.isa import Operation
from hw.params import DIMS, TmaParams
from hw.setup.item_sequencer import ItemSequencer, Place
from hw.setup.items import batch_layout
from hw.setup.map_decoder import MapDecoder
from tests.formal.inside import Inside
from tests.formal.pipelines import choose_clock, past
from tests.formal.proof import Bug, Proof

STAGES = 2
"""Clocks from a request to its first error; its batch comes in the clock before."""

SIZE_LOG2 = (0, 1, 2, 2, 3, 3, 1, 2, 2, 3, 1)
"""log2 of the bytes of an element, by the format of a tensor map."""


class Map:
    """Fields of the 16 words of a tensor map, as the driver writes them (dimension 0 first)."""

    def __init__(self, words) -> None:
        self.base = Cat(words[0], words[1])
        self.is_im2col = words[2][0]
        self.rank = words[2][4:7] + 1
        self.format = words[2][7:11]
        self.is_interleaved = words[2][11:13] != 0
        self.slice_pieces = Mux(words[2][11:13] == 2, 2, 1)
        self.swizzle = words[2][13:15]
        self.dims = [words[8 + n] + 1 for n in range(DIMS)]
        self.element_strides = [words[13][3 * n : 3 * n + 3] + 1 for n in range(DIMS)]
        self.box = [words[13][24:] + 1, *(words[14][8 * n : 8 * n + 8] + 1 for n in range(4))]
        strides = [Cat(words[3 + n], words[7][4 * n : 4 * n + 4]) for n in range(4)]
        self.strides = [self.slice_pieces, *strides]  # in pieces
        self.pixels = words[15][:10] + 1
        self.corners = {}
        """Lower and upper corners, W first, by rank."""
        for rank, bits in ((3, 16), (4, 8), (5, 5)):
            starts = range(0, bits * (rank - 2), bits)
            self.corners[rank] = [
                [words[14][16 * half + at :][:bits].as_signed() for at in starts]
                for half in range(2)
            ]

    def element_log2(self, m: Module) -> Signal:
        """Return log2 of the bytes of an element."""
        log2 = Signal(2, name="map_log2")
        with m.Switch(self.format):
            for code, value in enumerate(SIZE_LOG2):
                with m.Case(code):
                    m.d.comb += log2.eq(value)
        return log2


def chosen_of(values: list[Value], number: Value) -> Value:
    """Return the value with a number."""
    found = values[0]
    for at, value in enumerate(values[1:], 1):
        found = Mux(number == at, value, found)
    return found


class ItemsSpec(Elaboratable):
    """The item sequencer gives each dimension of an accepted request one place, with its fields.

    The solver chooses all words of the map, all operands, and a place. The places are those that
    the documents of ``hw.setup.items`` give: in a tile the dimensions above the row in order, the
    slices last; in an im2col box the slices, N, D, H and W.

    - If no check of the request fails, its rank is one that its mode has, and its place has the
      extent, box, element stride, tensor stride and coordinate of the map's dimension. A place
      without a dimension has the stride 0 and one step.
    - The row begins and ends with whole pieces, in global memory and in shared memory. Its pitch is
      that of the swizzle, and no row is longer. The box begins at a multiple of 128 bytes.
    - A store has no negative coordinate, and its last piece of a row is whole.
    - A dimension that a column walks has its corners and its offset.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = TmaParams()
        m.submodules.dut = dut = ItemSequencer(p)
        m.submodules.map_decoder = decoder = MapDecoder(p)
        chosen = choose_clock(m, STAGES)
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            dut.i.payload.eq(AnySeq(dut.i.payload.as_value().shape())),
            decoder.words.eq(dut.i.p.words),
            dut.i.p.decoded.eq(decoder.o),
            # Other operations do not come here.
            Assume((dut.i.p.request.operation.as_value() & 0b1001) == 0),
        ]
        # A request has one batch.
        m.d.comb += [dut.i.p.number.eq(0), dut.i.p.first.eq(1), dut.i.p.last.eq(1)]
        before = data.View(
            dut.i.payload.shape(), past(m, "request", dut.i.payload.as_value(), STAGES)
        )
        batch = data.View(batch_layout(p), past(m, "batch", dut.o.payload.as_value(), 1))
        request, tensor = before.request, Map(before.words)
        accepted = Signal()
        m.d.comb += accepted.eq(chosen & (dut.early_error.code.as_value() == 0) & ~before.fault)
        is_store = request.operation.as_value().matches(
            Operation.TENSOR_STORE.value, Operation.TENSOR_REDUCE.value
        )
        with m.If(accepted):
            self._follow_the_row(m, batch, request, tensor, is_store)
            with m.If(tensor.is_im2col):
                self._follow_image(m, batch, request, tensor, is_store)
            with m.Else():
                self._follow_tile(m, batch, request, tensor)

        # The assumptions can be met: an interleaved column of rank 5.
        is_deep = tensor.is_im2col & tensor.is_interleaved & (tensor.rank == 5)
        m.d.comb += Cover(accepted & is_deep & (tensor.slice_pieces == 2))
        return m

    def _follow_the_row(self, m: Module, batch, request, tensor: Map, is_store: Value) -> None:
        """Assert what holds for the row, and for the request as a whole."""
        log2 = tensor.element_log2(m)
        common = batch.common
        row_bytes = tensor.box[0] << log2
        pitch = Mux(tensor.swizzle == 0, row_bytes >> 4, 1 << tensor.swizzle)
        start_bytes, last_byte = Signal(signed(36)), Signal(4)
        m.d.comb += [
            start_bytes.eq(request.coords[0] << log2),
            last_byte.eq((tensor.dims[0] << log2) - 1),
            Assert(tensor.format < len(SIZE_LOG2)),
            Assert(tensor.rank == request.rank),
            Assert(tensor.rank <= DIMS),
            Assert((tensor.rank >= 3) | ~(tensor.is_im2col | tensor.is_interleaved)),
            Assert(tensor.base[:4] == 0),
            Assert(batch.base == tensor.base[4:]),
            Assert(common.smem_address[:7] == 0),
        ]
        with m.If(tensor.is_interleaved):
            m.d.comb += [
                Assert(common.row_pieces == tensor.slice_pieces),
                Assert(common.row_pitch == tensor.slice_pieces),
                Assert(batch.row_start == 0),
                Assert(batch.row_start_pieces == 0),
                Assert(batch.row_dim_less_one == (1 << 32) - 1),
            ]
        with m.Else():
            m.d.comb += [
                Assert(row_bytes[:4] == 0),
                Assert(common.row_pieces == row_bytes >> 4),
                Assert(common.row_pitch == pitch),
                Assert(common.row_pieces <= common.row_pitch),
                Assert(start_bytes[:4] == 0),
                Assert(batch.row_start == request.coords[0]),
                Assert(batch.row_start_pieces == (start_bytes >> 4)[:31]),
                Assert(batch.row_dim_less_one + 1 == tensor.dims[0]),
                Assert(batch.element.log2 == log2),
                Assert(batch.tail_bytes == Mux(is_store, 0, (last_byte + 1)[:4])),
            ]
        with m.If(is_store):
            for dim, coord in enumerate(request.coords):
                m.d.comb += Assert((tensor.rank <= dim) | (coord >= 0))

    def _follow_dimension(self, m: Module, step, request, tensor: Map, dim: Value) -> None:
        """Assert that an item has the fields of a dimension, but for its box."""
        m.d.comb += [
            Assert(step.coord_complement == (~chosen_of(list(request.coords), dim))[:32]),
            Assert(step.dim_less_one + 1 == chosen_of(tensor.dims, dim)),
            Assert(step.element_stride_less_one + 1 == chosen_of(tensor.element_strides, dim)),
            Assert(step.stride == chosen_of(tensor.strides, dim)),
        ]

    def _follow_tile(self, m: Module, batch, request, tensor: Map) -> None:
        """Assert the item in one place of a tile."""
        place = AnyConst(3)
        step = data.View(batch.steps.shape().elem_shape, self._place_of(batch.steps, place))
        dim = Signal(4)
        count = tensor.rank - Mux(tensor.is_interleaved, 0, 1)
        is_slices = tensor.is_interleaved & (place + 1 == tensor.rank)
        with m.If(~tensor.is_interleaved):
            m.d.comb += dim.eq(place + 1)
        with m.Elif(place + 2 == tensor.rank):  # N
            m.d.comb += dim.eq(tensor.rank - 1)
        with m.Elif(is_slices):
            m.d.comb += dim.eq(tensor.rank - 2)
        with m.Else():
            m.d.comb += dim.eq(place)
        with m.If(place < count):
            self._follow_dimension(m, step, request, tensor, dim)
            box = Mux(is_slices, 1, chosen_of(tensor.box, dim))
            m.d.comb += [Assert(~step.is_free), Assert(step.box_less_one + 1 == box)]
        with m.Elif(place < DIMS):
            self._follow_nothing(m, step)

    def _follow_image(self, m: Module, batch, request, tensor: Map, is_store: Value) -> None:
        """Assert the item in one place of an im2col box."""
        place = AnyConst(3)
        step = data.View(batch.steps.shape().elem_shape, self._place_of(batch.steps, place))
        image = data.View(batch.images.shape().elem_shape, self._place_of(batch.images, place))
        level = Signal(3)
        dim, is_present = Signal(4), Signal()
        m.d.comb += level.eq(DIMS - 1 - place)
        with m.If(place == 0):
            m.d.comb += [dim.eq(tensor.rank - 2), is_present.eq(tensor.is_interleaved)]
        with m.Elif(place == 1):
            m.d.comb += [dim.eq(tensor.rank - 1), is_present.eq(1)]
        with m.Else():
            m.d.comb += [
                dim.eq(level + ~tensor.is_interleaved),
                is_present.eq(level + 2 < tensor.rank),
            ]
        is_wheel = is_present & (place >= 2)
        offset, lower, upper = Signal(16), Signal(signed(16)), Signal(signed(16))
        with m.If(is_wheel):
            m.d.comb += offset.eq(Mux(is_store, 0, chosen_of(list(request.im2col_info), level)))
            with m.Switch(tensor.rank):
                for rank, (lowers, uppers) in tensor.corners.items():
                    with m.Case(rank):
                        m.d.comb += [
                            lower.eq(chosen_of(lowers, level)),
                            upper.eq(chosen_of(uppers, level)),
                        ]
        with m.If(is_present):
            self._follow_dimension(m, step, request, tensor, dim)
            m.d.comb += Assert(step.is_free == (place != 0))
        with m.Elif(place < DIMS):
            self._follow_nothing(m, step)
        with m.If(place < DIMS):
            m.d.comb += [
                Assert(step.box_less_one == 0),
                Assert(image.is_walked == (is_present & (place != 0))),
                Assert(image.is_bounded == is_wheel),
                Assert(image.offset == offset),
                Assert(image.restart == lower + offset),
                Assert(image.lower == lower),
                Assert(image.upper == upper),
                Assert(image.has_lower_bound),
                Assert(batch.common.pixels == tensor.pixels),
                Assert(batch.common.is_image),
            ]

    def _follow_nothing(self, m: Module, step) -> None:
        """Assert that a place has no dimension."""
        m.d.comb += [Assert(step.is_free), Assert(step.stride == 0), Assert(step.box_less_one == 0)]

    def _place_of(self, items, place: Value) -> Value:
        return chosen_of([Value.cast(item) for item in items], place)


def _swaps_slices_and_images(sequencer: ItemSequencer, inner: Inside) -> None:
    tensor = sequencer.i.p.decoded
    with inner.module.If(tensor.interleaved & (tensor.rank_less_one == DIMS - 1)):
        inner.module.d.comb += inner.view("place_3", Place).dim.eq(DIMS - 2)


def _takes_the_coordinate_in_bytes(sequencer: ItemSequencer, inner: Inside) -> None:
    inner.module.d.comb += inner.start_byte.eq(sequencer.i.p.request.coords[0])


PROOFS = [
    Proof(
        "items: each dimension of a map in its place, for all maps",
        ItemsSpec,
        depth=2,
        cover=4,
        bugs=(
            Bug("slices in the place of images", ItemSequencer, _swaps_slices_and_images, depth=4),
            Bug(
                "a row that begins at its element",
                ItemSequencer,
                _takes_the_coordinate_in_bytes,
                depth=4,
            ),
        ),
        unbounded=True,
    ),
]
