"""Reductions where memory is: what it holds, combined with what a request brings."""

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

PAIRS = {**REDUCTIONS, **BULK_REDUCTIONS}
"""What there is of each type; of no type do tensor reductions have more than bulk ones."""

ALU_LATENCY = fp_adder.LATENCY + 1
"""Clocks from the operands of ``SectorAlu`` to its result."""

WRITE_LATENCY = ALU_LATENCY + 1
"""Clocks from the acceptance of a request to its write."""

REPORTS = WRITE_LATENCY + 2
"""Requests accepted and not yet taken from ``done``: as many as a request a clock needs."""

NAN_HALF = 0x7FFF
NAN_SINGLE = 0x7FFFFFFF
NAN_DOUBLE = 0xFFF8000000000000
"""Sums that are no number."""

FLOATS = {
    (ElementType.F16,): (5, 10),
    (ElementType.BF16,): (8, 7),
    (ElementType.F32, ElementType.F32_FTZ): (8, 23),
    (ElementType.F64,): (11, 52),
}
"""Bits of exponent and fraction."""


def integer(
    m: Module,
    ops: Iterable[ReductionOp],
    op: Value,
    is_signed: Value,
    held: Value,
    brought: Value,
    name: str,
) -> Value:
    """Return what ``op``, one of ``ops``, makes of the integer in memory."""
    flip = Cat(Const(0, len(held) - 1), is_signed)  # signed numbers in the order of unsigned ones
    is_less = Signal(name=f"{name}_is_less")
    is_more = Signal(name=f"{name}_is_more")
    result = Signal(len(held), name=name)
    m.d.comb += [
        is_less.eq((held ^ flip) < (brought ^ flip)),
        is_more.eq((held ^ flip) > (brought ^ flip)),
    ]
    results = {
        ReductionOp.ADD: held + brought,
        ReductionOp.MIN: Mux(is_more, brought, held),
        ReductionOp.MAX: Mux(is_less, brought, held),
        ReductionOp.INC: Mux(is_less, held + 1, 0),
        ReductionOp.DEC: Mux(is_more | (held == 0), brought, held - 1),
        ReductionOp.AND: held & brought,
        ReductionOp.OR: held | brought,
        ReductionOp.XOR: held ^ brought,
    }
    with m.Switch(op):
        for each in ops:
            with m.Case(each):
                m.d.comb += result.eq(results[each])
    return result


def half_extreme(
    m: Module, is_max: Value, is_bf16: Value, held: Value, brought: Value, name: str
) -> Value:
    """Return the smaller or the greater of two halves, of f16 or bf16."""
    infinity = Mux(is_bf16, 0x7F80, 0x7C00)
    no_held = Signal(name=f"{name}_no_held")
    no_brought = Signal(name=f"{name}_no_brought")
    is_less = Signal(name=f"{name}_is_less")
    result = Signal(16, name=name)

    def rank(word: Value) -> Value:  # an unsigned number in the same order, -0 below +0
        negative = word[-1]
        return Cat(word[:-1] ^ negative.replicate(15), ~negative)

    m.d.comb += [
        no_held.eq(held[:-1] > infinity),
        no_brought.eq(brought[:-1] > infinity),
        is_less.eq(rank(held) < rank(brought)),
    ]
    with m.If(no_held & no_brought):
        m.d.comb += result.eq(NAN_HALF)
    with m.Elif(no_held | (~no_brought & (is_less == is_max))):
        m.d.comb += result.eq(brought)
    with m.Else():
        m.d.comb += result.eq(held)
    return result


def double_nan(held: Value, brought: Value) -> Value:
    """Return what a sum of doubles is that is no number."""
    infinity = 0x7FF << 52
    return Mux(
        brought[:-1] > infinity, brought, Mux(held[:-1] > infinity, held, Const(NAN_DOUBLE, 64))
    )


class SectorMemory(wiring.Signature):
    """A port for sectors, always ready; addresses are byte addresses divided by 32.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    read_en : Out(1)
    read_address : Out(address_bits - 5)
    read_data : In(256)
        The sector, in the clock after ``read_en``, without a write of the same clock as
        ``read_en``.
    write_en : Out(1)
    write_address : Out(address_bits - 5)
    write_pieces : Out(2)
        Which of the sector's two pieces of 16 bytes are written.
    write_data : Out(256)
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
    """Combines the elements of two sectors, as ``golden.reduction.operation`` does.

    ==========  ===================================================================================
    ADD         integers modulo 2**n; floats rounded once to nearest even, see ``FpAdder``; f32_ftz
                flushes subnormals
    MIN, MAX    of halves, a NaN loses to a number, and -0 is below +0
    INC         0 from ``source`` on, otherwise one more
    DEC         ``source`` from 0 and from above ``source``, otherwise one less
    AND OR XOR  bitwise
    ==========  ===================================================================================

    Sums that are no number: 0x7FFF of halves, 0x7FFFFFFF of f32; of f64 the operand that is none,
    unchanged, ``source`` before ``memory``, or 0xFFF8000000000000 where infinities were subtracted.
    The extreme of two halves that are no numbers is 0x7FFF. A pair of operation and type that is
    not in ``PAIRS`` gives ``memory``.

    Latency: ``ALU_LATENCY`` clocks, for all pairs. Throughput: a sector a clock, of any pair after
    any other. Nothing waits and nothing is reset.

    Members
    -------
    op : In(ReductionOp)
    element_type : In(ElementType)
    memory : In(256)
        What memory holds.
    source : In(256)
        What it is combined with.
    result : Out(256)
        What memory is to hold.
    """

    op: In(ReductionOp)
    element_type: In(ElementType)
    memory: In(SECTOR_BITS)
    source: In(SECTOR_BITS)
    result: Out(SECTOR_BITS)

    def elaborate(self, platform) -> Module:
        m = Module()

        # The first clock does all but sums of floats; of those, it prepares what a sum that is no
        # number is to be.
        exists = Signal()
        with m.Switch(self.element_type):
            for kind, ops in PAIRS.items():
                with m.Case(kind):
                    m.d.comb += exists.eq(Cat(self.op == op for op in ops).any())

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

        # It waits for the adders.
        prepared = Mux(exists, combined, self.memory)
        kind = self.element_type
        adds = self.op == ReductionOp.ADD
        for clock in range(fp_adder.LATENCY):
            next_prepared = Signal(SECTOR_BITS, name=f"prepared_{clock}", reset_less=True)
            next_kind = Signal(ElementType, name=f"kind_{clock}", reset_less=True)
            next_adds = Signal(name=f"adds_{clock}", reset_less=True)
            m.d.sync += [next_prepared.eq(prepared), next_kind.eq(kind), next_adds.eq(adds)]
            prepared, kind, adds = next_prepared, next_kind, next_adds

        sums = {kinds: self._sums(m, kinds, prepared) for kinds in FLOATS}
        result = Signal(SECTOR_BITS, reset_less=True)
        m.d.sync += result.eq(prepared)
        with m.If(adds):
            with m.Switch(kind):
                for kinds, total in sums.items():
                    with m.Case(*kinds):
                        m.d.sync += result.eq(total)
        m.d.comb += self.result.eq(result)
        return m

    def _pairs(self, width: int) -> list[tuple[Value, Value]]:
        """Return the elements of ``width`` bits, in memory and of the source."""
        lanes = range(SECTOR_BITS // width)
        return [
            (self.memory.word_select(lane, width), self.source.word_select(lane, width))
            for lane in lanes
        ]

    def _integers(self, m: Module, unsigned: ElementType, signed: ElementType) -> Value:
        """Return the result of integers of one width."""
        ops = dict.fromkeys((*PAIRS[unsigned], *PAIRS[signed]))
        width = int(unsigned.name[1:])
        is_signed = self.element_type == signed
        return Cat(
            integer(m, ops, self.op, is_signed, held, brought, f"int{width}_{lane}")
            for lane, (held, brought) in enumerate(self._pairs(width))
        )

    def _halves(self, m: Module) -> Value:
        """Return the extremes of halves, or what sums are that are no numbers."""
        is_max = self.op == ReductionOp.MAX
        is_bf16 = self.element_type == ElementType.BF16
        extremes = Cat(
            half_extreme(m, is_max, is_bf16, held, brought, f"half_{lane}")
            for lane, (held, brought) in enumerate(self._pairs(16))
        )
        nan = Const(NAN_HALF, 16).replicate(SECTOR_BITS // 16)
        return Mux(self.op == ReductionOp.ADD, nan, extremes)

    def _sums(self, m: Module, kinds: tuple[ElementType, ...], nan: Value) -> Value:
        """Return sums of floats; those that are no numbers come from ``nan``."""
        exponent_bits, fraction_bits = FLOATS[kinds]
        width = 1 + exponent_bits + fraction_bits
        name = kinds[0].name.lower()
        sums = []
        for lane, (held, brought) in enumerate(self._pairs(width)):
            adder = FpAdder(exponent_bits, fraction_bits)
            m.submodules[f"{name}_adder_{lane}"] = adder
            m.d.comb += [adder.a.eq(held), adder.b.eq(brought)]
            if ElementType.F32_FTZ in kinds:
                m.d.comb += adder.flush.eq(self.element_type == ElementType.F32_FTZ)
            sums.append(Mux(adder.is_nan, nan.word_select(lane, width), adder.total))
        return Cat(sums)


class ReductionUnit(wiring.Component):
    """Reads sectors, combines them with what requests bring, and writes them.

    Requests take effect in the order of their acceptance: no other comes between the read and the
    write of an element. That holds while nothing else writes to a piece from the acceptance of a
    request for it to its ``done``. Only pieces that take part are written; with none, nothing is.

    Errors: there are none. Setup refuses pairs of operation and type that do not exist; were one to
    come, memory would be written with what it holds.

    Latency: the sector is read in the clock of acceptance, written ``WRITE_LATENCY`` clocks later,
    and the tag offered in the one after. Throughput: a sector a clock, of all pairs of operation
    and type; one piece takes a request every ``WRITE_LATENCY + 1`` clocks. Back-pressure: a request
    waits, and those behind it, while one of its pieces is on its way through the unit, and while
    ``REPORTS`` tags were not taken.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    request : In(stream.Signature(reduction_request_layout(params)))
    done : Out(stream.Signature(params.tag_bits))
        The tag of each request, in order, when its effect is in memory.
    memory : Out(SectorMemory(params))
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

        # The requests on their way to their write, the last accepted first.
        layout = reduction_request_layout(self.params).members
        target = data.StructLayout({name: layout[name] for name in ("tag", "sector", "pieces")})
        accepted = Signal()
        target_now = Signal(target)
        m.d.comb += [
            accepted.eq(self.request.valid & self.request.ready),
            *(target_now[name].eq(request[name]) for name in target.members),
        ]
        valid, where = accepted, target_now
        in_flight = []
        for clock in range(1, WRITE_LATENCY + 1):
            next_valid = Signal(name=f"valid_{clock}")
            next_where = Signal(target, name=f"where_{clock}", reset_less=True)
            m.d.sync += [next_valid.eq(valid), next_where.eq(where)]
            valid, where = next_valid, next_where
            in_flight.append((valid, where))

        # Accept a request and read its sector.
        owed = Signal(range(REPORTS + 1))
        waits = Cat(
            busy & (at.sector == request.sector) & (at.pieces & request.pieces).any()
            for busy, at in in_flight
        )
        m.d.comb += [
            self.request.ready.eq(~waits.any() & (owed != REPORTS)),
            self.memory.read_en.eq(accepted),
            self.memory.read_address.eq(request.sector),
        ]
        m.d.sync += owed.eq(owed + accepted - (self.done.valid & self.done.ready))

        # Combine.
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

        # Write, and report.
        m.d.comb += [
            self.memory.write_en.eq(valid),
            self.memory.write_address.eq(where.sector),
            self.memory.write_pieces.eq(where.pieces),
            self.memory.write_data.eq(alu.result),
            tags.i.valid.eq(valid),
            tags.i.payload.eq(where.tag),
        ]
        m.d.sync += Assert(~tags.i.valid | tags.i.ready, "ReductionUnit: a tag was lost\n")
        return m
