"""Bulk setup: a bulk request becomes a walk of a single run, or a refusal."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts import (
    ErrorCode,
    Fill,
    Swizzle,
    error_layout,
    request_layout,
    setup_job_layout,
)
from hw.params import PIECE_BYTES, TmaParams


class BulkSetup(wiring.Component):
    """Turns each bulk request into a job or an error record, in order.

    Latency one clock; one request a clock. It takes neither the descriptor cache nor the setup
    block. A request of no bytes is a job of no pieces. Refuses, in the order of ``ErrorCode``, what
    a bulk load may not ask for; a refused request leaves nothing behind. Back-pressure on the
    output that a request needs holds back those behind it.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``request_layout``
    job : Out(stream) of ``setup_job_layout``
    error : Out(stream) of ``error_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(request_layout(params))),
                "job": Out(stream.Signature(setup_job_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        request = self.i.p
        job = Signal(setup_job_layout(p), reset_less=True)
        error = Signal(error_layout(p), reset_less=True)
        busy = Signal()
        refused = Signal(reset_less=True)
        advance = Signal()
        transfer, walk = job.transfer, job.walk
        pieces = request.size[4:]
        latch = [
            transfer.request_id.eq(request.request_id),
            transfer.mbarrier.eq(request.mbarrier),
            transfer.pieces.eq(pieces),
            walk.style.swizzle.eq(Swizzle.NONE),
            walk.style.fill.eq(Fill.ZERO),
            walk.has_data.eq(pieces != 0),
            walk.start.eq(request.global_address[4:]),
            walk.run.eq(pieces),
            walk.smem_begin.eq(request.smem_address[4:]),
            walk.smem_end.eq(request.smem_address[4:] + pieces),
            walk.smem_start.eq(request.smem_address[4:]),
            walk.smem_extent.eq(pieces),
            walk.row_mask.eq(0xFF),
            error.request_id.eq(request.request_id),
            refused.eq(0),
            busy.eq(self.i.valid),
        ]
        end = request.smem_address + request.size
        low = PIECE_BYTES - 1
        rules = (
            (request.smem_address & low, ErrorCode.SMEM_ALIGN, request.smem_address),
            (end > p.smem_bytes, ErrorCode.SMEM_RANGE, request.smem_address),
            (request.mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, request.mbarrier),
            (request.size & low, ErrorCode.BULK_ALIGN, request.size),
            (request.global_address & low, ErrorCode.BULK_ALIGN, request.global_address),
            (request.mbarrier[:3], ErrorCode.MBAR_ALIGN, request.mbarrier),
        )
        with m.If(advance):
            m.d.sync += latch
            for broken, code, value in reversed(rules):
                with m.If(broken.any()):
                    m.d.sync += [error.code.eq(code), error.value.eq(value), refused.eq(1)]
        m.d.comb += [
            advance.eq(~busy | Mux(refused, self.error.ready, self.job.ready)),
            self.i.ready.eq(advance),
            self.job.p.eq(job),
            self.job.valid.eq(busy & ~refused),
            self.error.p.eq(error),
            self.error.valid.eq(busy & refused),
        ]
        return m
