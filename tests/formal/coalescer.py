"""Transaction coalescer: all bytes reach their own barrier, within a bounded time."""

from itertools import pairwise

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Mux, ResetSignal, Signal

from hw.barrier.tx_coalescer import MAX_TX_BYTES, MAX_TX_BYTES_BITS, TxCoalescer
from hw.layouts.barriers import barrier_completion_layout
from hw.params import TmaParams
from tests.formal.inside import Inside, inside
from tests.formal.proof import Bug, Proof
from tests.formal.streams import hold, offer

STEP = 1 << 17

PARAMS = TmaParams(request_id_bits=2, stores=False, reductions=False, im2col=False)
ENTRIES = PARAMS.completions_waiting


class CoalescerSpec(Elaboratable):
    """For any one barrier, the bytes that arrived are those that left and those that are stored.

    Bytes that are stored at any moment leave within ``ENTRIES + 1`` transfers, in completions that
    a single ``complete_tx`` can carry, and these name requests of this barrier. Byte counts are
    multiples of ``STEP``: sums of all 21 bits are too much for the solver, and all bits are added
    in the same way.
    """

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = TxCoalescer(PARAMS)
        here = inside(dut)
        layout = barrier_completion_layout(PARAMS)
        entries = [here.view(f"entry_{number}", layout) for number in range(ENTRIES)]
        incoming = here.view("incoming", layout)
        offer(m, dut.i)
        hold(m, dut.i, "i", Assume)
        hold(m, dut.o, "o", Assert)
        m.d.comb += [
            dut.o.ready.eq(AnySeq(1)),
            Assume(~ResetSignal()),
            Assume((dut.i.p.tx_bytes <= MAX_TX_BYTES) & (dut.i.p.tx_bytes % STEP == 0)),
        ]

        # Bytes of the barrier.
        address = AnyConst(len(dut.i.p.address))
        width = len(dut.i.p.tx_bytes) + ENTRIES + 1
        is_accepted, is_delivered = Signal(), Signal()
        stored, next_stored = Signal(width), Signal(width)
        m.d.comb += [
            is_accepted.eq(dut.i.valid & dut.i.ready & (dut.i.p.address == address)),
            is_delivered.eq(dut.o.valid & dut.o.ready & (dut.o.p.address == address)),
            next_stored.eq(
                stored
                + Mux(is_accepted, dut.i.p.tx_bytes, 0)
                - Mux(is_delivered, dut.o.p.tx_bytes, 0)
            ),
            Assert(~dut.o.valid | (dut.o.p.tx_bytes <= MAX_TX_BYTES)),
            Assert((stored == 0) | dut.o.valid),
        ]
        m.d.sync += stored.eq(next_stored)

        # Bytes that are stored at a moment that the solver chooses.
        owed, transfers = Signal(width), Signal(range(ENTRIES + 2))
        with m.If(AnySeq(1)):
            m.d.sync += [owed.eq(next_stored), transfers.eq(0)]
        with m.Elif(dut.o.valid & dut.o.ready & (transfers != ENTRIES + 1)):
            m.d.sync += transfers.eq(transfers + 1)
            with m.If(is_delivered):
                m.d.sync += owed.eq(Mux(owed > dut.o.p.tx_bytes, owed - dut.o.p.tx_bytes, 0))
        m.d.comb += Assert((transfers != ENTRIES + 1) | (owed == 0))

        # The entries are occupied from the first one on. They hold the stored bytes, with the
        # register behind ``i``.
        is_its = [
            is_taken & (entry.address == address)
            for is_taken, entry in zip(here.occupied, entries, strict=True)
        ]
        in_entries = [
            Mux(own, entry.tx_bytes, 0) for own, entry in zip(is_its, entries, strict=True)
        ]
        is_coming = here.incoming_valid & (incoming.address == address)
        in_register = Mux(is_coming, incoming.tx_bytes, 0)
        m.d.comb += [
            Assert((transfers <= ENTRIES + 1) & (owed % STEP == 0)),
            Assert((here.occupied & (here.occupied + 1)) == 0),
            Assert(dut.i.ready == ~(here.occupied[-1] & here.incoming_valid)),
            Assert(stored == sum(in_entries, start=in_register)),
            Assert(
                ~here.incoming_valid
                | ((incoming.tx_bytes <= MAX_TX_BYTES) & (incoming.tx_bytes % STEP == 0))
            ),
            *(
                Assert(
                    ~is_taken | ((entry.tx_bytes <= MAX_TX_BYTES) & (entry.tx_bytes % STEP == 0))
                )
                for is_taken, entry in zip(here.occupied, entries, strict=True)
            ),
        ]
        for number in range(ENTRIES + 2):
            # What is in the register follows the entries that are occupied.
            places = ENTRIES + 1 - number
            is_within = ~here.occupied[places - 1] if 0 < number <= ENTRIES else 1
            most = sum(in_entries[:places], start=Mux(is_within, in_register, 0))
            with m.If(transfers == number):
                m.d.comb += Assert(owed <= (most if places else 0))

        # A request of another barrier is never named to this barrier.
        foreign = AnyConst(len(dut.i.p.request_id))
        m.d.comb += [
            Assume(~is_accepted | (dut.i.p.request_id != foreign)),
            Assert(~is_coming | (incoming.request_id != foreign)),
            Assert(~is_delivered | (dut.o.p.request_id != foreign)),
            *(
                Assert(~own | (entry.request_id != foreign))
                for own, entry in zip(is_its, entries, strict=True)
            ),
        ]

        # The assumptions can be met: three barriers wait, and bytes are added to one of them.
        added = Signal()
        with m.If(here.occupied[:-1].all() & here.add_to.any()):
            m.d.sync += added.eq(1)
        m.d.comb += Cover(added & (stored == 0) & ~dut.o.valid)
        return m


def _loses_added_bytes(_coalescer: TxCoalescer, inner: Inside) -> None:
    entries = inner.array("entry_{}", ENTRIES)
    for number, (entry, following) in enumerate(pairwise(entries)):
        with inner.module.If(inner.dequeues & ~inner.new_entry[number]):
            inner.module.d.sync += entry.eq(following)


def _adds_to_any_barrier(_coalescer: TxCoalescer, inner: Inside) -> None:
    for number in range(1, ENTRIES - 1):
        fits_in = ~inner.signal(f"total_{number}")[MAX_TX_BYTES_BITS:].any()
        inner.module.d.comb += inner.can_add[number].eq(inner.occupied[number] & fits_in)


def _adds_without_limit(_coalescer: TxCoalescer, inner: Inside) -> None:
    layout = barrier_completion_layout(PARAMS)
    for number in range(1, ENTRIES - 1):
        same_barrier = (
            inner.view("incoming", layout).address == inner.view(f"entry_{number}", layout).address
        )
        inner.module.d.comb += inner.can_add[number].eq(inner.occupied[number] & same_barrier)


PROOFS = [
    Proof(
        "coalescer: bytes in = bytes out + bytes stored",
        CoalescerSpec,
        depth=2,
        cover=14,
        bugs=(
            Bug(
                "lost bytes that are added to an entry that moves up",
                TxCoalescer,
                _loses_added_bytes,
                depth=6,
            ),
            Bug(
                "bytes that are added to those of another barrier",
                TxCoalescer,
                _adds_to_any_barrier,
                depth=6,
            ),
            Bug(
                "a sum that no complete_tx can have",
                TxCoalescer,
                _adds_without_limit,
                depth=6,
            ),
        ),
        unbounded=True,
    )
]
