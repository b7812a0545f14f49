"""Bulk setup: a bulk request becomes a walk of a single run, or a refusal."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import (
    BULK_REDUCTIONS,
    DSMEM_REDUCTIONS,
    ErrorCode,
    Operation,
    is_dsmem,
    is_reducible,
    is_reduction,
    is_store,
)
from hw.layouts.jobs import (
    assign_write_mode,
    channel_of,
    queued_request_layout,
    refusal_layout,
    remote_field,
    stream_of,
    walk_job_layout,
)
from hw.lib.register_slice import HalfBuffer
from hw.params import PIECE_BYTES, TmaParams


class BulkSetup(wiring.Component):
    """Turns each bulk request into a job or an error record, in order.

    Latency two clocks; one request a clock, in a ``compact`` unit one in three. It takes neither
    the descriptor cache nor the setup block. A request of no bytes is a job of no pieces.

    Refuses, in the order of ``ErrorCode``, what a bulk request may not ask for; a refused request
    leaves nothing behind. Back-pressure on the output that a request needs holds back those behind
    it.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``queued_request_layout``
    job : Out(stream) of ``walk_job_layout``
    error : Out(stream) of ``refusal_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(queued_request_layout(params))),
                "job": Out(stream.Signature(walk_job_layout(params))),
                "error": Out(stream.Signature(refusal_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        request = Signal(queued_request_layout(p), reset_less=True)
        waits = Signal()
        job = Signal(walk_job_layout(p), reset_less=True)
        error = Signal(refusal_layout(p), reset_less=True)
        busy = Signal()
        refused = Signal(reset_less=True)
        advance = Signal()
        transfer, walk = job.transfer, job.walk
        # What the operation is, and sums, known a clock early.
        early = {
            "prefetch": self.i.p.operation == Operation.BULK_PREFETCH,
            "store": is_store(self.i.p.operation),
            "to_smem": is_dsmem(self.i.p.operation),
            "reduces": is_reduction(self.i.p.operation),
            "smem_end": self.i.p.smem_address + self.i.p.size,
            "dst_end": self.i.p.global_address + self.i.p.size,
        }
        known = {
            name: Signal(len(is_so), name=name, reset_less=True) for name, is_so in early.items()
        }
        prefetch, store, to_smem, reduces, smem_end, dst_end = known.values()
        smem_address = Mux(prefetch, 0, request.smem_address)
        dst_address = Mux(to_smem, request.global_address, 0)
        global_address = Mux(to_smem, 0, request.global_address)
        mbarrier = Mux(prefetch | (store & ~to_smem), 0, request.mbarrier)
        # What the unit was built without.
        missing: list[tuple] = []
        if not p.stores:
            missing.append((store, ErrorCode.MAP_MODE, request.operation.as_value()))
        elif not p.cp_mask:
            masked = (request.operation == Operation.BULK_STORE) & ~request.byte_mask.all()
            missing.append((masked, ErrorCode.MAP_MODE, request.byte_mask))
        if p.reductions:
            pair = request.element_type, request.reduction_op
            in_smem, in_memory = (
                is_reducible(pairs, *pair) for pairs in (DSMEM_REDUCTIONS, BULK_REDUCTIONS)
            )
            reduces = reduces & ~Mux(to_smem, in_smem, in_memory)
        low = PIECE_BYTES - 1
        misdirected = request.misdirected
        rules = (
            *missing,
            (smem_address & low, ErrorCode.SMEM_ALIGN, smem_address),
            (dst_address & low, ErrorCode.SMEM_ALIGN, dst_address),
            (~prefetch & (smem_end > p.smem_bytes), ErrorCode.SMEM_RANGE, smem_address),
            (to_smem & (dst_end > p.smem_bytes), ErrorCode.SMEM_RANGE, dst_address),
            (mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, mbarrier),
            (reduces, ErrorCode.RED_TYPE, request.reduction_op),
            (request.size & low, ErrorCode.BULK_ALIGN, request.size),
            (global_address & low, ErrorCode.BULK_ALIGN, global_address),
            (misdirected.mask, ErrorCode.MASK, misdirected.value),
            (misdirected.cta, ErrorCode.DST_CTA, misdirected.value),
            (mbarrier[:3], ErrorCode.MBAR_ALIGN, mbarrier),
        )
        refuse = Signal()
        stream = stream_of(p, request)
        pieces = request.size[4:]
        begin = smem_address[4:]
        m.d.comb += refuse.eq(Cat(broken.any() for broken, _, _ in rules).any())
        with m.If(advance):
            m.d.sync += [
                waits.eq(self.i.valid),
                request.eq(self.i.p),
                *(known[name].eq(is_so) for name, is_so in early.items()),
                busy.eq(waits),
                refused.eq(refuse),
                transfer.request_id.eq(request.request_id),
                transfer.mbarrier.eq(mbarrier),
                transfer.pieces.eq(pieces),
                walk.prefetch.eq(prefetch),
                walk.attributes.cache_policy.eq(request.cache_policy),
                walk.has_data.eq(pieces != 0),
                walk.start.eq(request.global_address[4:]),
                walk.run.eq(pieces),
                walk.smem_begin.eq(begin),
                walk.smem_end.eq(begin + pieces),
                walk.smem_start.eq(begin),
                walk.smem_extent.eq(pieces),
                walk.row_mask.eq(~0),
                *(flag.eq(1) for flag in (job.first, job.last, walk.first, walk.last)),
                error.request_id.eq(request.request_id),
                job.stream.eq(stream),
                error.channel.eq(channel_of(p, request.operation, stream)),
            ]
            if p.ctas > 1:
                m.d.sync += [
                    transfer.delivery.eq(request.delivery),
                    *(walk[name].eq(request.delivery[name]) for name in remote_field(p)),
                ]
            if p.stores:
                m.d.sync += [
                    job.group.eq(request.group),
                    error.group.eq(request.group),
                    walk.store.eq(store),
                    *assign_write_mode(p, walk.write_mode, request, request.element_type),
                ]
            for broken, code, value in reversed(rules):
                with m.If(broken.any()):
                    m.d.sync += [error.code.eq(code), error.value.eq(value)]
        ways_out = {"job": flipped(self.job), "error": flipped(self.error)}
        if p.compact:
            for name, way_out in ways_out.items():
                m.submodules[f"{name}_exit"] = late = HalfBuffer(way_out.payload.shape())
                connect(m, late.o, way_out)
                ways_out[name] = late.i
        m.d.comb += [
            advance.eq(~busy | Mux(refused, ways_out["error"].ready, ways_out["job"].ready)),
            self.i.ready.eq(advance),
            ways_out["job"].p.eq(job),
            ways_out["job"].valid.eq(busy & ~refused),
            ways_out["error"].p.eq(error),
            ways_out["error"].valid.eq(busy & refused),
        ]
        return m
