"""Reduction unit: combines the elements of requests with those in global memory."""

from collections.abc import Iterable

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import BULK_REDUCTIONS, REDUCTIONS, ElementType, ReductionOp
from hw.layouts.ports import SECTOR_BYTES, reduction_request_layout
from hw.lib.queue import Queue
from hw.params import PIECE_BYTES, TmaParams
from hw.reduce import fp_adder
from hw.reduce.fp_adder import FpAdder

SECTOR_BITS = SECTOR_BYTES * 8
"""Bits of a sector."""

PAIRS = {**REDUCTIONS, **BULK_REDUCTIONS}
"""Operations for each element type: of bulk reductions, or of tensor reductions for F32_FTZ."""

ALU_LATENCY = fp_adder.LATENCY + 1
"""Clocks from the operands of ``SectorAlu`` to its result."""

WRITE_LATENCY = ALU_LATENCY + 1
"""Clocks from the acceptance of a request to its write."""

REPORTS = WRITE_LATENCY + 2
"""Requests between their acceptance and ``done``: enough for one request per clock."""

NAN_HALF = 0x7FFF
NAN_SINGLE = 0x7FFFFFFF
NAN_DOUBLE = 0xFFF8000000000000
"""NaN results of additions: of 16-bit, 32-bit and 64-bit floats."""

FLOATS = {
    (ElementType.F16,): (5, 10),
    (ElementType.BF16,): (8, 7),
    (ElementType.F32, ElementType.F32_FTZ): (8, 23),
    (ElementType.F64,): (11, 52),
}
"""Bits of exponent and fraction of each floating-point type."""


def integer(
    m: Module,
    ops: Iterable[ReductionOp],
    op: Value,
    is_signed: Value,
    memory_operand: Value,
    source_operand: Value,
    name: str,
) -> Value:
    """Return the result of ``op``, one of ``ops``, on two integers.

    `SectorAlu` defines the operations.
    """
    # With the sign bit inverted, signed integers have the order of unsigned ones.
    flip = Cat(Const(0, len(memory_operand) - 1), is_signed)
    is_less = Signal(name=f"{name}_is_less")
    is_more = Signal(name=f"{name}_is_more")
    result = Signal(len(memory_operand), name=name)
    m.d.comb += [
        is_less.eq((memory_operand ^ flip) < (source_operand ^ flip)),
        is_more.eq((memory_operand ^ flip) > (source_operand ^ flip)),
    ]
    results = {
        ReductionOp.ADD: memory_operand + source_operand,
        ReductionOp.MIN: Mux(is_more, source_operand, memory_operand),
        ReductionOp.MAX: Mux(is_less, source_operand, memory_operand),
        ReductionOp.INC: Mux(is_less, memory_operand + 1, 0),
        ReductionOp.DEC: Mux(is_more | (memory_operand == 0), source_operand, memory_operand - 1),
        ReductionOp.AND: memory_operand & source_operand,
        ReductionOp.OR: memory_operand | source_operand,
        ReductionOp.XOR: memory_operand ^ source_operand,
    }
    with m.Switch(op):
        for each in ops:
            with m.Case(each):
                m.d.comb += result.eq(results[each])
    return result


def half_extreme(
    m: Module,
    is_max: Value,
    is_bf16: Value,
    memory_operand: Value,
    source_operand: Value,
    name: str,
) -> Value:
    """Return the minimum or maximum of two 16-bit floats, f16 or bf16."""
    infinity = Mux(is_bf16, 0x7F80, 0x7C00)
    memory_is_nan = Signal(name=f"{name}_memory_is_nan")
    source_is_nan = Signal(name=f"{name}_source_is_nan")
    is_less = Signal(name=f"{name}_is_less")
    result = Signal(16, name=name)

    def rank(word: Value) -> Value:
        """Return an unsigned integer with the order of the floats; -0 is below +0."""
        negative = word[-1]
        return Cat(word[:-1] ^ negative.replicate(15), ~negative)

    m.d.comb += [
        memory_is_nan.eq(memory_operand[:-1] > infinity),
        source_is_nan.eq(source_operand[:-1] > infinity),
        is_less.eq(rank(memory_operand) < rank(source_operand)),
    ]
    with m.If(memory_is_nan & source_is_nan):
        m.d.comb += result.eq(NAN_HALF)
    with m.Elif(memory_is_nan | (~source_is_nan & (is_less == is_max))):
        m.d.comb += result.eq(source_operand)
    with m.Else():
        m.d.comb += result.eq(memory_operand)
    return result


def double_nan(memory_operand: Value, source_operand: Value) -> Value:
    """Return the result of an f64 addition that is NaN: a NaN operand, the source first."""
    infinity = 0x7FF << 52
    return Mux(
        source_operand[:-1] > infinity,
        source_operand,
        Mux(memory_operand[:-1] > infinity, memory_operand, Const(NAN_DOUBLE, 64)),
    )


class SectorMemory(wiring.Signature):
    """Port for sectors of global memory; it accepts every access at once.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    read_en : Out(1)
        Read a sector.
    read_address : Out(address_bits - 5)
        Its byte address divided by 32.
    read_data : In(256)
        The sector, in the clock after ``read_en``. A write in the clock of ``read_en`` is not in
        it.
    write_en : Out(1)
        Write a sector.
    write_address : Out(address_bits - 5)
        Its byte address divided by 32.
    write_pieces : Out(2)
        Pieces of 16 bytes that are written: bit i selects bytes 16 * i to 16 * i + 15.
    write_data : Out(256)
        The sector.
    """

    def __init__(self, params: TmaParams) -> None:
        address_bits = params.address_bits - 5
        super().__init__(
            {
                "read_en": Out(1),
                "read_address": Out(address_bits),
                "read_data": In(SECTOR_BITS),
                "write_en": Out(1),
                "write_address": Out(address_bits),
                "write_pieces": Out(SECTOR_BYTES // PIECE_BYTES),
                "write_data": Out(SECTOR_BITS),
            }
        )


class SectorAlu(wiring.Component):
    """Combines the elements of two sectors, as ``golden.reduction.operation`` defines it.

    ==========  ===================================================================================
    ADD         integers: modulo 2**n; floats: rounded once to nearest even, see `FpAdder`;
                F32_FTZ flushes subnormal operands and results to zero
    MIN, MAX    integers; 16-bit floats: a NaN operand is ignored, and -0 is below +0
    INC         0 if ``memory >= source``, otherwise ``memory + 1``
    DEC         ``source`` if ``memory`` is 0 or above ``source``, otherwise ``memory - 1``
    AND OR XOR  bitwise
    ==========  ===================================================================================

    NaN results of ADD: 0x7FFF for F16 and BF16, 0x7FFFFFFF for F32 and F32_FTZ. For F64, the NaN
    operand unchanged (``source`` if both are NaN), or 0xFFF8000000000000 for a difference of
    infinities. MIN and MAX of two NaN give 0x7FFF. A pair of operation and type that is not in
    ``PAIRS`` gives ``memory``.

    Latency: ``ALU_LATENCY`` clocks for all pairs. Throughput: one sector per clock, with any pair.
    Back-pressure: none. Errors: none. The registers have no reset.

    Members
    -------
    op : In(ReductionOp)
        Operation.
    element_type : In(ElementType)
        Element type.
    memory : In(256)
        Sector that memory holds.
    source : In(256)
        Sector of source operands.
    result : Out(256)
        Sector that memory is to hold.
    """

    op: In(ReductionOp)
    element_type: In(ElementType)
    memory: In(SECTOR_BITS)
    source: In(SECTOR_BITS)
    result: Out(SECTOR_BITS)

    def elaborate(self, platform) -> Module:
        m = Module()

        # Clock 0: all results but sums of floats. For a sum of floats it is the result if the sum
        # is NaN.
        is_legal = Signal()
        with m.Switch(self.element_type):
            for kind, ops in PAIRS.items():
                with m.Case(kind):
                    m.d.comb += is_legal.eq(Cat(self.op == op for op in ops).any())

        combined = Signal(SECTOR_BITS)
        by_type = {
            (ElementType.U32, ElementType.S32): self._integers(m, ElementType.U32, ElementType.S32),
            (ElementType.U64, ElementType.S64): self._integers(m, ElementType.U64, ElementType.S64),
            (ElementType.F16, ElementType.BF16): self._halves(m),
            (ElementType.F32, ElementType.F32_FTZ): Const(NAN_SINGLE, 32).replicate(8),
            (ElementType.F64,): Cat(double_nan(*pair) for pair in self._pairs(64)),
        }
        with m.Switch(self.element_type):
            for kinds, value in by_type.items():
                with m.Case(*kinds):
                    m.d.comb += combined.eq(value)

        # Delay the result by the latency of the adders.
        prepared = Mux(is_legal, combined, self.memory)
        kind = self.element_type
        is_add = self.op == ReductionOp.ADD
        for clock in range(fp_adder.LATENCY):
            next_prepared = Signal(SECTOR_BITS, name=f"prepared_{clock}", reset_less=True)
            next_kind = Signal(ElementType, name=f"kind_{clock}", reset_less=True)
            next_is_add = Signal(name=f"is_add_{clock}", reset_less=True)
            m.d.sync += [next_prepared.eq(prepared), next_kind.eq(kind), next_is_add.eq(is_add)]
            prepared, kind, is_add = next_prepared, next_kind, next_is_add

        sums = {kinds: self._sums(m, kinds, prepared) for kinds in FLOATS}
        result = Signal(SECTOR_BITS, reset_less=True)
        m.d.sync += result.eq(prepared)
        with m.If(is_add):
            with m.Switch(kind):
                for kinds, total in sums.items():
                    with m.Case(*kinds):
                        m.d.sync += result.eq(total)
        m.d.comb += self.result.eq(result)
        return m

    def _pairs(self, width: int) -> list[tuple[Value, Value]]:
        """Return the pairs of elements of ``width`` bits: of memory, of the source."""
        lanes = range(SECTOR_BITS // width)
        return [
            (self.memory.word_select(lane, width), self.source.word_select(lane, width))
            for lane in lanes
        ]

    def _integers(self, m: Module, unsigned: ElementType, signed: ElementType) -> Value:
        """Return the results for the integer types of one width."""
        ops = dict.fromkeys((*PAIRS[unsigned], *PAIRS[signed]))
        width = int(unsigned.name[1:])
        is_signed = self.element_type == signed
        return Cat(
            integer(
                m, ops, self.op, is_signed, memory_operand, source_operand, f"int{width}_{lane}"
            )
            for lane, (memory_operand, source_operand) in enumerate(self._pairs(width))
        )

    def _halves(self, m: Module) -> Value:
        """Return the results of MIN and MAX for 16-bit floats; for ADD, the NaN result."""
        is_max = self.op == ReductionOp.MAX
        is_bf16 = self.element_type == ElementType.BF16
        extremes = Cat(
            half_extreme(m, is_max, is_bf16, memory_operand, source_operand, f"half_{lane}")
            for lane, (memory_operand, source_operand) in enumerate(self._pairs(16))
        )
        nan = Const(NAN_HALF, 16).replicate(SECTOR_BITS // 16)
        return Mux(self.op == ReductionOp.ADD, nan, extremes)

    def _sums(self, m: Module, kinds: tuple[ElementType, ...], nan: Value) -> Value:
        """Return the sums of floats; the elements of ``nan`` replace sums that are NaN."""
        exponent_bits, fraction_bits = FLOATS[kinds]
        width = 1 + exponent_bits + fraction_bits
        name = kinds[0].name.lower()
        sums = []
        for lane, (memory_operand, source_operand) in enumerate(self._pairs(width)):
            adder = FpAdder(exponent_bits, fraction_bits)
            m.submodules[f"{name}_adder_{lane}"] = adder
            m.d.comb += [adder.a.eq(memory_operand), adder.b.eq(source_operand)]
            if ElementType.F32_FTZ in kinds:
                m.d.comb += adder.flush.eq(self.element_type == ElementType.F32_FTZ)
            sums.append(Mux(adder.is_nan, nan.word_select(lane, width), adder.total))
        return Cat(sums)


class ReductionUnit(wiring.Component):
    """Reads sectors, combines them with the operands of requests, and writes the results.

    Requests take effect in the order of their acceptance, and each is atomic for every element, as
    long as nothing else writes the pieces of a request between its acceptance and its ``done``.
    Only the pieces that the request selects are written.

    Latency: the sector is read in the clock of acceptance and written ``WRITE_LATENCY`` clocks
    later; the tag is offered one clock after the write. Throughput: one sector per clock, with any
    pair of operation and type; requests for the same piece every ``WRITE_LATENCY + 1`` clocks.
    Back-pressure: a request, and the requests behind it, wait while an earlier request for one of
    its pieces is not written, and while ``REPORTS`` tags are not taken. Errors: none. Setup refuses
    pairs of operation and type that are not in ``PAIRS``; such a pair would write back the elements
    that memory holds.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream.Signature(reduction_request_layout(params)))
        Reductions of sectors.
    done : Out(stream.Signature(params.tag_bits))
        Tag of each request, in order, when its result is in memory.
    memory : Out(SectorMemory(params))
        Global memory.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "request": In(stream.Signature(reduction_request_layout(params))),
                "done": Out(stream.Signature(params.tag_bits)),
                "memory": Out(SectorMemory(params)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.alu = alu = SectorAlu()
        m.submodules.tags = tags = Queue(self.params.tag_bits, REPORTS)
        wiring.connect(m, tags.o, wiring.flipped(self.done))
        request = self.request.p

        # Pipeline of accepted requests; the youngest is first in ``in_flight``.
        layout = reduction_request_layout(self.params).members
        target = data.StructLayout({name: layout[name] for name in ("tag", "sector", "pieces")})
        request_fire = Signal()
        new_target = Signal(target)
        m.d.comb += [
            request_fire.eq(self.request.valid & self.request.ready),
            *(new_target[name].eq(request[name]) for name in target.members),
        ]
        stage_valid, stage_target = request_fire, new_target
        in_flight = []
        for clock in range(1, WRITE_LATENCY + 1):
            next_valid = Signal(name=f"valid_{clock}")
            next_target = Signal(target, name=f"target_{clock}", reset_less=True)
            m.d.sync += [next_valid.eq(stage_valid), next_target.eq(stage_target)]
            stage_valid, stage_target = next_valid, next_target
            in_flight.append((stage_valid, stage_target))

        # Accept a request and read its sector.
        credits_used = Signal(range(REPORTS + 1))
        conflicts = Cat(
            valid & (target.sector == request.sector) & (target.pieces & request.pieces).any()
            for valid, target in in_flight
        )
        m.d.comb += [
            self.request.ready.eq(~conflicts.any() & (credits_used != REPORTS)),
            self.memory.read_en.eq(request_fire),
            self.memory.read_address.eq(request.sector),
        ]
        m.d.sync += credits_used.eq(
            credits_used + request_fire - (self.done.valid & self.done.ready)
        )

        # Combine the sector and the operands.
        op = Signal(ReductionOp, reset_less=True)
        element_type = Signal(ElementType, reset_less=True)
        source = Signal(SECTOR_BITS, reset_less=True)
        m.d.sync += [
            op.eq(request.op),
            element_type.eq(request.element_type),
            source.eq(request.data),
        ]
        m.d.comb += [
            alu.op.eq(op),
            alu.element_type.eq(element_type),
            alu.memory.eq(self.memory.read_data),
            alu.source.eq(source),
        ]

        # Write the result, and report the tag.
        m.d.comb += [
            self.memory.write_en.eq(stage_valid),
            self.memory.write_address.eq(stage_target.sector),
            self.memory.write_pieces.eq(stage_target.pieces),
            self.memory.write_data.eq(alu.result),
            tags.i.valid.eq(stage_valid),
            tags.i.payload.eq(stage_target.tag),
        ]
        m.d.sync += Assert(~tags.i.valid | tags.i.ready, "reduction_unit: a tag was lost\n")
        return m
