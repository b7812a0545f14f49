"""Record decoder: turns request records of a host into what an SM's threads give to a unit."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.barriers import BarrierCommand
from hw.layouts.host import (
    BARRIER_OPERATIONS,
    BUS_BITS,
    Completion,
    CompletionKind,
    HostError,
    MapOperation,
    record_layout,
    reserved_bits,
)
from hw.layouts.isa import GLOBAL_ADDRESS_BITS, Operation
from hw.layouts.ports import IGNORED_BITS, DescriptorInvalidate, request_layout
from hw.params import HOST_ID_BITS, TmaParams

BARRIER_ALIGN_BITS = 3
"""Low bits of the address of a barrier that must be 0."""

SETTLED = 7
"""Clocks behind a record in which the unit may not yet have noticed it."""


class RecordDecoder(wiring.Component):
    """Gives each record to the port that its operation is for, in the order of the records.

    The records of a host are like the instructions of one thread each: requests, mbarrier
    operations and operations of the descriptor cache begin in their order, and end in any order. A
    record with ``fence`` waits until the unit is idle, that is, until all before it have ended.

    Latency: one clock; with ``fence``, ``SETTLED`` clocks and more. Throughput: a record every two
    clocks. Back-pressure: a record waits for its port, and all others behind it.

    Errors: a record gives a completion record, and nothing else, for the first of these causes.

    =============  ================================================================================
    RESERVED_BITS  a bit without a meaning is 1; ``value`` is the number of its word of 4 bytes
    OPERATION      there is no such operation; ``value`` is its number
    MBARRIER       ``mbarrier`` is outside the shared memory; or it is not aligned to 8 bytes, and
                   the operation is that of a barrier; ``value`` is ``mbarrier``
    =============  ================================================================================

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``record_layout``
    idle : In(1)
        All that was given to the unit has ended.
    settled : Out(1)
        The unit has noticed all records: ``idle`` counts.
    request : Out(stream) of ``request_layout``
    barrier_command : Out(stream) of ``BarrierCommand``
        The highest bit of ``tag`` is ``notify`` of the record, the others are ``request_id``.
    descriptor_prefetch : Out(stream) of 64 bits
    descriptor_invalidate : Out(stream) of ``DescriptorInvalidate``
    refused : Out(stream) of ``Completion``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(record_layout(params))),
                "idle": In(1),
                "settled": Out(1),
                "request": Out(stream.Signature(request_layout(params))),
                "barrier_command": Out(stream.Signature(BarrierCommand)),
                "descriptor_prefetch": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "descriptor_invalidate": Out(stream.Signature(DescriptorInvalidate)),
                "refused": Out(stream.Signature(Completion)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        operation = self.i.p.operation
        is_barrier = operation[4:] == BARRIER_OPERATIONS >> 4
        outputs = {
            "request": operation <= Operation.WAIT_GROUP_READ.value,
            "barrier_command": is_barrier,
            "descriptor_prefetch": operation == MapOperation.PREFETCH_MAP,
            "descriptor_invalidate": operation.matches(
                MapOperation.INVALIDATE_MAP, MapOperation.INVALIDATE_ALL_MAPS
            ),
        }
        self._assign_request(m)
        self._assign_command(m)
        self._assign_map_operation(m)
        code = self._refuse(m, is_barrier, Cat(outputs.values()).any())
        is_refused = code != HostError.NONE
        begins = self._begin(m)
        chosen = {name: is_chosen & ~is_refused for name, is_chosen in outputs.items()}
        for name, is_chosen in {**chosen, "refused": is_refused}.items():
            output = getattr(self, name)
            m.d.comb += output.valid.eq(begins & is_chosen)
            with m.If(begins & is_chosen):
                m.d.comb += self.i.ready.eq(output.ready)
        return m

    def _begin(self, m: Module) -> Signal:
        """Return 1 if the record may begin: that is decided in the clock before."""
        begins = Signal()
        since = Signal(range(SETTLED + 1))  # clocks since a record, up to SETTLED
        is_settled = since == SETTLED
        m.d.comb += self.settled.eq(is_settled)
        takes = self.i.valid & self.i.ready
        with m.If(takes):
            m.d.sync += [begins.eq(0), since.eq(0)]
        with m.Else():
            m.d.sync += since.eq(since + ~is_settled)
            with m.If(self.i.valid & (~self.i.p.flags.fence | (self.idle & is_settled))):
                m.d.sync += begins.eq(1)
        return begins

    def _assign_request(self, m: Module) -> None:
        record, request = self.i.p, self.request.p
        names = (
            *("request_id", "global_address", "mode", "rank", "coords", "im2col_info"),
            *("cache_policy", "smem_address", "mbarrier", "reduction_op", "element_type"),
            *("byte_mask", "thread"),
        )
        m.d.comb += [
            request.operation.eq(record.operation),
            request.size.eq(record.size),
            request.groups.eq(record.size),
            request.joins_group.eq(record.flags.joins_group),
            *(request[name].eq(record[name]) for name in names),
        ]
        if self.params.ignore_oob:
            m.d.comb += [
                request.ignore_first.eq(record.coords[0][:IGNORED_BITS]),
                request.ignore_last.eq(record.coords[1][:IGNORED_BITS]),
            ]

    def _assign_command(self, m: Module) -> None:
        record, command = self.i.p, self.barrier_command.p
        m.d.comb += [
            command.op.eq(record.operation),
            command.address.eq(record.mbarrier),
            command.count.eq(record.size),
            command.lanes.eq(1),
            command.state.eq(record.global_address),
            command.time_limit.eq(record.coords[0]),
            command.v1.eq(record.flags.v1),
            command.tag.eq(record.request_id),
            command.tag[HOST_ID_BITS].eq(record.flags.notify),
        ]

    def _assign_map_operation(self, m: Module) -> None:
        record = self.i.p
        m.d.comb += [
            self.descriptor_prefetch.payload.eq(record.global_address),
            self.descriptor_invalidate.p.address.eq(record.global_address),
            self.descriptor_invalidate.p.all.eq(
                record.operation == MapOperation.INVALIDATE_ALL_MAPS
            ),
        ]

    def _refuse(self, m: Module, is_barrier: Value, has_port: Value) -> Signal:
        """Return why the record is refused, or NONE."""
        record, refused = self.i.p, self.refused.p
        reserved = record.as_value() & reserved_bits(self.params)
        bad_words = Cat(
            reserved.word_select(n, BUS_BITS).any() for n in range(len(reserved) // BUS_BITS)
        )
        outside = record.mbarrier >= self.params.smem_bytes
        misaligned = is_barrier & record.mbarrier[:BARRIER_ALIGN_BITS].any()
        code = Signal(HostError)
        with m.If(bad_words.any()):
            m.d.comb += code.eq(HostError.RESERVED_BITS)
            for number in reversed(range(len(bad_words))):
                with m.If(bad_words[number]):
                    m.d.comb += refused.value.eq(number)
        with m.Elif(~has_port):
            m.d.comb += [code.eq(HostError.OPERATION), refused.value.eq(record.operation)]
        with m.Elif(outside | misaligned):
            m.d.comb += [code.eq(HostError.MBARRIER), refused.value.eq(record.mbarrier)]
        m.d.comb += [
            refused.kind.eq(CompletionKind.REFUSED),
            refused.request_id.eq(record.request_id),
            refused.code.eq(code),
        ]
        return code
