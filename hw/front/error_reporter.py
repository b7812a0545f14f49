"""Error reporter: brings the errors of all blocks to the SM as error records."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.barriers import barrier_fault_layout
from hw.layouts.isa import ErrorCode
from hw.layouts.ports import error_layout, error_record_layout, issuer_field
from hw.lib.arbiter import Arbiter, pick
from hw.lib.register_slice import SingleBuffer
from hw.params import TmaParams


class ErrorReporter(wiring.Component):
    """Merges the errors of the unit's blocks, the faults of its barriers, and wrong tags.

    The error of a block concerns a request of this SM. The fault of a barrier (MBAR_FAULT) concerns
    the CTA that issued the update, which its record names; the record's ``dim`` is the
    ``BarrierFault`` and its ``value`` the address of the barrier. A wrong tag (WRONG_TAG) belongs
    to no request: the record's ``dim`` is 0 for a read and 1 for a write, its ``value`` the tag.

    Latency: two clocks. Throughput: one record every three clocks, inputs in turn. Back-pressure:
    an error is taken while no record waits. Errors are rare, and come from all over the unit: an
    input is therefore chosen in one clock and taken in the next. Its ``ready`` and the record at
    ``o`` come from registers.

    Parameters
    ----------
    params : TmaParams
    sources : int
        Number of streams of errors.

    Members
    -------
    i : In(stream) of ``error_layout``, one for each source
    fault : In(stream) of ``barrier_fault_layout``
    wrong_read : In(stream) of the tag of an answer that belongs to no read
    wrong_write : In(stream) of the tag of an answer that belongs to no write; with ``stores``
    cta_rank : In; rank of this SM's CTA, with ``ctas`` above 1
    o : Out(stream) of ``error_record_layout``
    """

    def __init__(self, params: TmaParams, sources: int) -> None:
        self.params = params
        tag = stream.Signature(params.tag_bits)
        super().__init__(
            {
                "i": In(stream.Signature(error_layout(params))).array(sources),
                "fault": In(stream.Signature(barrier_fault_layout(params))),
                "wrong_read": In(tag),
                **({"wrong_write": In(tag)} if params.stores else {}),
                **({"cta_rank": In(params.cta_bits)} if params.ctas > 1 else {}),
                "o": Out(stream.Signature(error_record_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        record = stream.Signature(error_record_layout(p))
        records = [record.create(path=(f"record_{n}",)) for n in range(len(self.i) + 2 + p.stores)]
        self._merge(m, records)
        of_blocks = records[: len(self.i)]
        of_barriers, *of_tags = records[len(self.i) :]
        for record in *of_blocks, *of_tags:
            m.d.comb += [record.p.cta.eq(self.cta_rank)] if p.ctas > 1 else []
        for error, record in zip(self.i, of_blocks, strict=True):
            m.d.comb += [
                record.valid.eq(error.valid),
                error.ready.eq(record.ready),
                *(record.p[name].eq(error.p[name]) for name in error_layout(p).members),
            ]
        wrong_tags = [self.wrong_read, *([self.wrong_write] if p.stores else [])]
        for dim, (wrong, record) in enumerate(zip(wrong_tags, of_tags, strict=True)):
            m.d.comb += [
                record.valid.eq(wrong.valid),
                wrong.ready.eq(record.ready),
                record.p.code.eq(ErrorCode.WRONG_TAG),
                record.p.dim.eq(dim),
                record.p.value.eq(wrong.payload),
            ]
        fault = self.fault
        m.d.comb += [
            of_barriers.valid.eq(fault.valid),
            fault.ready.eq(of_barriers.ready),
            of_barriers.p.code.eq(ErrorCode.MBAR_FAULT),
            of_barriers.p.dim.eq(fault.p.fault),
            of_barriers.p.value.eq(fault.p.address),
            *(of_barriers.p[name].eq(fault.p[name]) for name in ("request_id", *issuer_field(p))),
        ]
        return m

    def _merge(self, m: Module, records: list[stream.Interface]) -> None:
        """Choose a record in one clock, and take it into the register of ``o`` in the next."""
        ways = len(records)
        m.submodules.turns = turns = Arbiter(range(ways), ways)
        m.submodules.register = register = SingleBuffer(error_record_layout(self.params))
        connect(m, register.o, flipped(self.o))
        granted = Signal(ways)
        chosen = Signal(range(ways), reset_less=True)
        m.d.comb += [
            turns.o.ready.eq(register.i.ready & ~register.i.valid),
            register.i.valid.eq(granted.any()),
            register.i.payload.eq(pick([Value.cast(record.payload) for record in records], chosen)),
        ]
        m.d.sync += chosen.eq(turns.o.payload)
        for way, (record, turn) in enumerate(zip(records, turns.i, strict=True)):
            m.d.comb += [
                turn.valid.eq(record.valid & ~granted[way]),
                turn.payload.eq(way),
                record.ready.eq(granted[way]),
            ]
            m.d.sync += granted[way].eq(turn.valid & turn.ready)
