"""Job builder: accumulates the batches of a walk, and offers its job or the refusal."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import ErrorCode
from hw.layouts.jobs import refusal_layout, remote_field, walk_job_layout
from hw.lib.one_hot import any_of
from hw.params import DIMS, PIECE_BYTES, TmaParams
from hw.setup.checks import REPORT_ORDER
from hw.setup.items import (
    LEVEL_N,
    FoundError,
    place_of,
    place_of_level,
    spanned_batch_layout,
    starts_walk,
)


class JobBuilder(wiring.Component):
    """Accumulates the addresses, the run and the loops or levels of a walk.

    Latency: one clock from the last batch of a walk to its job. Throughput: a batch a clock.
    Back-pressure: none, jobs and refusals are always taken.

    Errors: a box that exceeds the CTA's shared memory (SMEM_RANGE), and an im2col box whose start
    is outside the bounding box (IM2COL_START). The first error of a request, ``i.error`` included,
    becomes its refusal.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    valid : In(1)
        There is a batch at ``i``.
    i : In(spanned_batch_layout(params))
    job : Out(stream.Signature(walk_job_layout(params), always_ready=True))
    error : Out(stream.Signature(refusal_layout(params), always_ready=True))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "valid": In(1),
                "i": In(spanned_batch_layout(params)),
                "job": Out(stream.Signature(walk_job_layout(params), always_ready=True)),
                "error": Out(stream.Signature(refusal_layout(params), always_ready=True)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        job = Signal(walk_job_layout(p), reset_less=True)
        job_valid = Signal()
        error_valid = Signal()
        with m.If(self.valid):
            self._add_request(m, job)
            self._add_address(m, job.walk)
            self._add_runs(m, job.walk)
            if p.im2col:
                self._add_column(m, job)
        is_refused = self._refuse(m, job)
        common = self.i.common
        ends_walk = self.valid & common.ends_walk
        m.d.sync += [
            job_valid.eq(ends_walk & ~is_refused),
            error_valid.eq(ends_walk & is_refused & common.last_batch),
        ]
        m.d.comb += [
            self.job.p.eq(job),
            self.job.valid.eq(job_valid),
            self.error.valid.eq(error_valid),
        ]
        return m

    def _add_request(self, m: Module, job) -> None:
        """Store the fields that are the same for all batches of a walk."""
        p, common, walk = self.params, self.i.common, job.walk
        is_first = starts_walk(p, common)
        m.d.sync += [
            job.first.eq(Mux(is_first, common.first_batch, job.first)),
            job.last.eq(common.last_batch),
            *([job.group.eq(common.group)] if p.stores else ()),
            job.stream.eq(common.stream),
            job.transfer.request_id.eq(common.request_id),
            job.transfer.mbarrier.eq(common.mbarrier),
            job.transfer.pieces.eq(self.i.held),
            *([job.transfer.delivery.eq(common.delivery)] if p.ctas > 1 else ()),
            walk.prefetch.eq(common.prefetch),
            *(walk[name].eq(common.delivery[name]) for name in remote_field(p)),
            *(walk[name].eq(common[name]) for name in ("store", "write_mode") if p.stores),
            walk.attributes.eq(common.attributes),
            walk.style.eq(common.style),
            walk.first.eq(Mux(is_first, common.first_batch, walk.first)),
            walk.last.eq(common.last_batch),
            walk.tail_bytes.eq(self.i.row.tail_bytes),
            walk.row_pieces.eq(self.i.row.short_pieces),
            walk.row_mask.eq(common.row_mask),
        ]

    def _add_address(self, m: Module, walk) -> None:
        """Add the items to the addresses of the walk in both memories."""
        p, i = self.params, self.i
        common, row = i.common, i.row
        ways = range(p.setup_pipelines)
        smem_begin = common.smem_address[4:]
        is_first = starts_walk(p, common)
        is_outside = Cat(i.steps[way].is_outside for way in ways).any()
        skipped = sum(i.skipped[way] for way in ways)
        first_row = smem_begin + row.skipped_pieces
        next_row = walk.smem_start + common.row_pitch
        row_start = Signal(p.smem_piece_bits)
        m.d.comb += row_start.eq(
            Mux(is_first, Mux(common.first_batch, first_row, next_row), walk.smem_start)
        )
        m.d.sync += [
            walk.has_data.eq(Mux(is_first, ~row.is_outside, walk.has_data) & ~is_outside),
            walk.start.eq(Mux(is_first, row.start, walk.start) + i.offsets[ways[-1]]),
            walk.smem_begin.eq(smem_begin),
            walk.smem_end.eq(smem_begin + i.spanned),
            walk.smem_start.eq(row_start + skipped),
        ]

    def _add_runs(self, m: Module, walk) -> None:
        """Merge the items that are contiguous in both memories into the run; others are loops."""
        p, i = self.params, self.i
        common, row = i.common, i.row
        is_first = starts_walk(p, common)
        is_image = common.is_image if p.im2col else Const(0, 1)
        open_below = Signal(reset_less=True)
        is_open = Signal(p.setup_pipelines + 1)  # the run may be prolonged by each item
        merges = Signal(p.setup_pipelines)
        m.d.comb += is_open[0].eq(Mux(is_first, i.has_open_row & ~is_image, open_below))
        with m.If(is_first):
            m.d.sync += [loop.last.eq(0) for loop in walk.loops]
        for way in range(p.setup_pipelines):
            step = i.steps[way]
            m.d.comb += [
                merges[way].eq(is_open[way] & i.are_contiguous[way]),
                is_open[way + 1].eq(merges[way] & step.is_full),
            ]
            for place in range(way, DIMS - 1, p.setup_pipelines):
                loop = walk.loops[place]
                with m.If(common.number == place_of(p, place)[0]):
                    m.d.sync += [
                        loop.last.eq(step.count_less_one & ~merges[way].replicate(8)),
                        loop.global_step.eq(i.global_steps[way]),
                        loop.smem_step.eq(i.smem_steps[way]),
                    ]
        # An item merges only if all items below it do: the last one gives the run.
        is_last = merges & Cat(~merges[1:], 1)
        run = any_of(zip(is_last, i.runs, strict=True))
        m.d.sync += open_below.eq(is_open[-1])
        for field, row_field in ((walk.run, row.pieces), (walk.smem_extent, row.extent)):
            of_row = Mux(is_first, row_field, field)
            m.d.sync += field.eq(run | any_of([(~merges[0], of_row)]))

    def _add_column(self, m: Module, job) -> None:
        """Give the levels of the column their positions and addresses."""
        p, i, column = self.params, self.i, job.column
        common = i.common
        m.d.sync += [
            column.enabled.eq(common.is_image),
            *([column.stops_outside.eq(common.stops_outside)] if p.im2col_w and p.stores else ()),
            column.pixels.eq(common.pixels),
            column.grouped.eq(common.grouped),
            column.halo.eq(common.halo),
            column.pitch.eq(common.row_pitch),
            column.skipped_pieces.eq(i.row.skipped_pieces),
        ]
        is_first = starts_walk(p, common)
        address = Mux(is_first, i.row.start, job.walk.start)
        for number in range(DIMS - 1):
            level = column.levels[number]
            batch, way = place_of_level(p, number)
            image, step = i.images[way], i.steps[way]
            with m.If(common.number == batch):
                m.d.sync += [
                    level.address.eq(address + i.offsets[way]),
                    level.absent.eq(~image.is_walked),
                    level.position.eq(image.position),
                    level.restart.eq(image.restart),
                    level.restart_address.eq(i.restart_offsets[way]),
                    level.last.eq(image.last),
                    level.limit.eq(image.limit),
                    level.stride_less_one.eq(step.element_stride - 1),
                    level.step.eq(i.global_steps[way]),
                ]
        if p.im2col_w:  # dimensions that are not walked come behind N
            for number in reversed(range(1, LEVEL_N)):
                batch, way = place_of_level(p, number)
                with m.If((common.number == batch) & ~i.images[way].is_walked):
                    m.d.sync += column.levels[LEVEL_N].address.eq(address + i.offsets[way])
        self._find_dense(m, column)

    def _find_dense(self, m: Module, column) -> None:
        """Find out whether neighbouring pixels are contiguous, with the item of dimension W."""
        p, i = self.params, self.i
        common = i.common
        batch, way = place_of_level(p, 0)
        is_contiguous = (
            i.row.is_full
            & (common.row_pieces == common.row_pitch)
            & (i.global_steps[way] == common.row_pieces)
        )
        has_unit_stride = i.steps[way].element_stride == 1
        with m.If(common.number == batch):
            m.d.sync += column.dense.eq(is_contiguous & has_unit_stride)

    def _refuse(self, m: Module, job) -> Value:
        """Find the first error of the request, and make its error record.

        Errors that need arithmetic are merged with the early error. Return whether the request is
        refused, with the batch at ``i``.
        """
        p, common, error = self.params, self.i.common, self.error
        is_first = starts_walk(p, common)
        is_refused = Signal()
        refused = Signal(reset_less=True)
        too_large = Signal(reset_less=True)
        early = Signal(FoundError, reset_less=True)
        channel = Signal(p.channel_bits, reset_less=True)
        smem_address = Signal.like(common.smem_address, reset_less=True)
        end = common.smem_address[4:] + self.i.spanned
        exceeds = self.i.too_many | (end > p.smem_bytes // PIECE_BYTES)
        is_misplaced = self._misplaced() if p.im2col else []
        m.d.comb += is_refused.eq(
            exceeds
            | (self.i.error.code != ErrorCode.NONE)
            | Cat(is_misplaced).any()
            | (~is_first & refused)
        )
        with m.If(self.valid):
            m.d.sync += [
                early.eq(self.i.error),
                channel.eq(common.channel),
                smem_address.eq(common.smem_address),
                refused.eq(is_refused),
                too_large.eq(exceeds | (~is_first & too_large)),
            ]
        m.d.comb += [
            error.p.request_id.eq(job.transfer.request_id),
            *([error.p.group.eq(job.group)] if p.stores else ()),
            error.p.channel.eq(channel),
            error.p.code.eq(early.code),
            error.p.dim.eq(early.dim),
            error.p.value.eq(early.value),
        ]

        def report(code: ErrorCode, violated: Value, dim: Value | int, value: Value) -> None:
            """Report an error, unless an early error comes before it."""
            codes_before = REPORT_ORDER[: REPORT_ORDER.index(code)]
            is_later = Cat(early.code == before for before in codes_before).any()
            with m.If(violated & ~is_later):
                m.d.comb += [
                    error.p.code.eq(code),
                    error.p.dim.eq(dim),
                    error.p.value.eq(value),
                ]

        if p.im2col:
            images = self.i.images
            misplaced = Signal(reset_less=True)
            dim = Signal.like(images[0].dim, reset_less=True)
            coord = Signal(signed(32), reset_less=True)
            with m.If(self.valid):
                m.d.sync += misplaced.eq(Cat(is_misplaced).any() | (~is_first & misplaced))
                for image, is_wrong in zip(images, is_misplaced, strict=True):
                    with m.If(is_wrong):  # the last one is the lowest dimension
                        m.d.sync += [dim.eq(image.dim), coord.eq(image.coord)]
            report(ErrorCode.IM2COL_START, misplaced, dim, coord)
        report(ErrorCode.SMEM_RANGE, too_large, 0, smem_address)
        return is_refused

    def _misplaced(self) -> list[Value]:
        """Return, for each item, whether the start of an im2col box is outside the bounding box."""
        i = self.i
        ways = range(self.params.setup_pipelines)
        return [i.images[way].is_misplaced & i.common.is_image for way in ways]
