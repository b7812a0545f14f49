"""Bulk setup: checks bulk requests, and turns each into a walk of one run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
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
from hw.params import PIECE_BYTES, TmaParams
from hw.setup.checks import Check, report_first
from hw.setup.outcome_queues import OutcomeQueues

STAGES = 2


@dataclass(frozen=True)
class BulkOperands:
    """Operands of a bulk request; those that its operation does not have are 0.

    Parameters
    ----------
    prefetch, store, to_smem, reduces : Value
        The request is a prefetch; reads shared memory; writes shared memory of another CTA; is a
        reduction.
    smem_address, exceeds_smem : Value
        Start of the bytes in the issuer's shared memory, and whether they exceed it.
    dst_address, exceeds_dst : Value
        Start of the bytes in the other CTA's shared memory, and whether they exceed it.
    global_address, mbarrier : Value
    """

    prefetch: Value
    store: Value
    to_smem: Value
    reduces: Value
    smem_address: Value
    exceeds_smem: Value
    dst_address: Value
    exceeds_dst: Value
    global_address: Value
    mbarrier: Value


def pieces_of(request) -> Value:
    """Return the number of pieces of a bulk request. A part of a piece is not copied."""
    return request.size[4:]


class BulkStages(wiring.Component):
    """The stages of ``BulkSetup``, with the same ports but without its queues.

    Latency: two clocks. Throughput: a request a clock. Back-pressure: none, all ports are always
    ready. Errors: as of ``BulkSetup``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``queued_request_layout``
    job : Out(stream) of ``walk_job_layout``
    error : Out(stream) of ``refusal_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        layouts = queued_request_layout(params), walk_job_layout(params), refusal_layout(params)
        request, job, error = (stream.Signature(shape, always_ready=True) for shape in layouts)
        super().__init__({"i": In(request), "job": Out(job), "error": Out(error)})

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        request = Signal(queued_request_layout(p), reset_less=True)
        request_valid = Signal()
        job = Signal(walk_job_layout(p), reset_less=True)
        error = Signal(refusal_layout(p), reset_less=True)
        result_valid = Signal()
        is_refused = Signal(reset_less=True)
        whole_pieces = pieces_of(self.i.p) << 4
        # Sums, checks and the kind of the operation are registered with the request.
        early = {
            "prefetch": self.i.p.operation == Operation.BULK_PREFETCH,
            "store": is_store(self.i.p.operation),
            "to_smem": is_dsmem(self.i.p.operation),
            "reduces": is_reduction(self.i.p.operation),
            "exceeds_smem": self._exceeds_smem(self.i.p.smem_address, whole_pieces),
            "exceeds_dst": self._exceeds_smem(self.i.p.global_address, whole_pieces),
        }
        registered = {
            name: Signal(name=name, reset_less=True) for name in ("prefetch", "store", "to_smem")
        }
        # The checks are made: what only they need is not registered.
        checked = {name: Const(0) for name in early if name not in registered}
        operands = self._operands(request, registered | checked)
        early_checks = self._checks(self.i.p, self._operands(self.i.p, early))
        violated = Signal(len(early_checks), reset_less=True)
        checks = [
            replace(check, violated=violated[number])
            for number, check in enumerate(self._checks(request, operands))
        ]
        stream = stream_of(p, request)

        def report(_number: int, check: Check) -> None:
            m.d.sync += [error.code.eq(check.code), error.value.eq(check.value)]

        m.d.sync += [
            request_valid.eq(self.i.valid),
            request.eq(self.i.p),
            *(register.eq(early[name]) for name, register in registered.items()),
            violated.eq(Cat(check.violated.any() for check in early_checks)),
            result_valid.eq(request_valid),
            is_refused.eq(violated.any()),
            # What a bulk copy does not have: loops, formats, the dimension of an error.
            job.eq(0),
            error.eq(0),
        ]
        self._assign_job(m, request, operands, job)
        m.d.sync += [
            error.request_id.eq(request.request_id),
            job.stream.eq(stream),
            error.channel.eq(channel_of(p, request.operation, stream)),
        ]
        if p.ctas > 1:
            m.d.sync += [
                job.transfer.delivery.eq(request.delivery),
                *(job.walk[name].eq(request.delivery[name]) for name in remote_field(p)),
            ]
        if p.stores:
            m.d.sync += [
                job.group.eq(request.group),
                error.group.eq(request.group),
                job.walk.store.eq(operands.store),
                *assign_write_mode(p, job.walk.write_mode, request, request.element_type),
            ]
        report_first(m, checks, report)
        m.d.comb += [
            self.job.p.eq(job),
            self.job.valid.eq(result_valid & ~is_refused),
            self.error.p.eq(error),
            self.error.valid.eq(result_valid & is_refused),
        ]
        return m

    def _exceeds_smem(self, address: Value, length: Value) -> Value:
        """Return whether ``length`` bytes at ``address`` exceed shared memory, with short sums."""
        most = self.params.smem_bytes
        bits = most.bit_length()
        return address[bits:].any() | (address[:bits] + length > most)

    def _operands(self, request, derived: Mapping[str, Value]) -> BulkOperands:
        """Return the operands of ``request`` that its operation has, with those in ``derived``."""
        prefetch, store, to_smem = (derived[name] for name in ("prefetch", "store", "to_smem"))
        return BulkOperands(
            **derived,
            smem_address=Mux(prefetch, 0, request.smem_address),
            dst_address=Mux(to_smem, request.global_address, 0),
            global_address=Mux(to_smem, 0, request.global_address),
            mbarrier=Mux(prefetch | (store & ~to_smem), 0, request.mbarrier),
        )

    def _checks(self, request, operands: BulkOperands) -> list[Check]:
        """Return the checks of ``request`` in the order of report."""
        p = self.params
        o = operands
        reduces = o.reduces
        if p.reductions:
            pair = request.element_type, request.reduction_op
            legal_in_smem, legal_in_gmem = (
                is_reducible(pairs, *pair) for pairs in (DSMEM_REDUCTIONS, BULK_REDUCTIONS)
            )
            reduces = reduces & ~Mux(o.to_smem, legal_in_smem, legal_in_gmem)
        low = PIECE_BYTES - 1
        misdirected = request.misdirected
        return [
            *self._unsupported(request, o.store),
            Check(o.smem_address & low, ErrorCode.SMEM_ALIGN, o.smem_address),
            Check(o.dst_address & low, ErrorCode.SMEM_ALIGN, o.dst_address),
            Check(~o.prefetch & o.exceeds_smem, ErrorCode.SMEM_RANGE, o.smem_address),
            Check(o.to_smem & o.exceeds_dst, ErrorCode.SMEM_RANGE, o.dst_address),
            Check(o.mbarrier > p.smem_bytes - 8, ErrorCode.SMEM_RANGE, o.mbarrier),
            Check(reduces, ErrorCode.RED_TYPE, request.reduction_op),
            Check(o.global_address & low, ErrorCode.BULK_ALIGN, o.global_address),
            Check(misdirected.mask, ErrorCode.MASK, misdirected.value),
            Check(misdirected.cta, ErrorCode.DST_CTA, misdirected.value),
            Check(o.mbarrier[:3], ErrorCode.MBAR_ALIGN, o.mbarrier),
        ]

    def _unsupported(self, request, store: Value) -> list[Check]:
        """Return the check of stores, or of byte masks, in a unit without them."""
        if not self.params.stores:
            return [Check(store, ErrorCode.MAP_MODE, request.operation.as_value())]
        if not self.params.cp_mask:
            is_masked = (request.operation == Operation.BULK_STORE) & ~request.byte_mask.all()
            return [Check(is_masked, ErrorCode.MAP_MODE, request.byte_mask)]
        return []

    def _assign_job(self, m: Module, request, operands: BulkOperands, job) -> None:
        """Assign the job of ``request``: one run of all pieces."""
        pieces = pieces_of(request)
        is_empty = pieces == 0
        begin = operands.smem_address[4:]
        transfer, walk = job.transfer, job.walk
        m.d.sync += [
            transfer.request_id.eq(request.request_id),
            transfer.mbarrier.eq(operands.mbarrier),
            transfer.pieces.eq(pieces),
            walk.prefetch.eq(
                operands.prefetch | (~operands.store & (is_empty | request.no_receiver))
            ),
            walk.attributes.cache_policy.eq(request.cache_policy),
            *([walk.style.report.eq(request.report)] if self.params.report_mechanism else ()),
            walk.has_data.eq(~(is_empty | self._ignores_all(request))),
            walk.start.eq(request.global_address[4:]),
            walk.run.eq(pieces),
            walk.smem_begin.eq(begin),
            walk.smem_end.eq(begin + pieces),
            walk.smem_start.eq(begin),
            walk.smem_extent.eq(pieces),
            walk.row_mask.eq(~0),
            *(flag.eq(1) for flag in (job.first, job.last, walk.first, walk.last)),
        ]

    def _ignores_all(self, request) -> Value:
        """Return 1 if no byte of a load of one piece is wanted: then its piece is fill."""
        if not self.params.ignore_oob:
            return Const(0, 1)
        ignored = request.ignore_first + request.ignore_last
        is_load = request.operation == Operation.BULK_LOAD
        return is_load & (pieces_of(request) == 1) & (ignored >= PIECE_BYTES)


class BulkSetup(wiring.Component):
    """Turns each bulk request into a job or a refusal, in order.

    Bulk requests need neither the descriptor cache nor the setup block. A request of no bytes is a
    job of no pieces, which for a load is a prefetch: it signals nothing. A load without receivers
    becomes a prefetch, too. A load moves whole pieces: bytes that ``.ignore_oob`` ignores, which
    PTX leaves open, get what memory has there. A load of one piece that ignores all of it reads no
    memory, and its piece is fill.

    Latency: three clocks. Throughput: a request a clock. Back-pressure: as of the ``SetupBlock``.

    Errors: a request that violates a check is refused, with the first error in the order of
    ``ErrorCode``. A refused request has no job and no other effect.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(queued_request_layout(params)))
    job : Out(stream.Signature(walk_job_layout(params)))
    error : Out(stream.Signature(refusal_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(queued_request_layout(params))),
                "job": Out(stream.Signature(walk_job_layout(params))),
                "error": Out(stream.Signature(refusal_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.stages = stages = BulkStages(self.params)
        m.submodules.outcomes = outcomes = OutcomeQueues(self.params, STAGES)
        connect(m, stages.job, outcomes.job)
        connect(m, stages.error, outcomes.error)
        connect(m, outcomes.o.job, flipped(self.job))
        connect(m, outcomes.o.error, flipped(self.error))
        may_admit = Signal(init=1)
        m.d.sync += may_admit.eq(outcomes.admits_next)
        m.d.comb += [
            stages.i.payload.eq(self.i.payload),
            stages.i.valid.eq(self.i.valid & may_admit),
            self.i.ready.eq(may_admit),
        ]
        return m
