"""Transaction coalescer: adds up signals that wait for the same barrier."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.barriers import BARRIER_COUNT_BITS, barrier_completion_layout
from hw.layouts.ports import reports_field
from hw.lib.one_hot import lowest_one
from hw.params import TmaParams

MAX_TX_BYTES_BITS = BARRIER_COUNT_BITS - 1
MAX_TX_BYTES = (1 << MAX_TX_BYTES_BITS) - 1
"""Largest byte count of one ``complete_tx``."""


class TxCoalescer(wiring.Component):
    """Adds up the bytes of completions for one barrier while they wait for the mbarrier unit.

    The sum of several ``complete_tx`` is legal: PTX does not define into how many ``complete_tx``
    the bytes of a request are split, nor the order of requests. No program can distinguish the sum
    from its parts, if the last arrival of each phase expects all of its bytes. Completions of two
    phases never meet: a request for the next phase is issued when the current phase is complete,
    and then no completion of the current phase waits.

    A completion is added to the first entry with the same ``address`` (and ``holder``), if the sum
    is at most ``MAX_TX_BYTES``; the entry takes the ``request_id`` (and ``cta``) of that
    completion, and ``reports`` if one of both does. If no entry fits, the completion occupies an
    entry of its own. Entries leave in the order of their first completions. The first entry is
    offered at ``o`` and must not change, so nothing is added to it: of N completions for one
    barrier that come while ``o`` is held up, the first leaves alone and the others leave as one.

    Latency: one clock while no entry is occupied: a completion is passed to ``o`` from the register
    behind ``i``. If ``o`` does not take it in that clock, it is in the first entry from the next
    clock on. Throughput: one completion per clock in and out. Back-pressure: ``i`` waits while that
    register and all ``completions_waiting`` entries are occupied; no input drives ``i.ready`` in
    the same clock. With ``completions_waiting`` 0 the two ports are connected. Errors: none.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(barrier_completion_layout(params)))
        Completions of requests.
    o : Out(stream.Signature(barrier_completion_layout(params)))
        Completions with sums.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        completion = stream.Signature(barrier_completion_layout(params))
        super().__init__({"i": In(completion), "o": Out(completion)})

    def elaborate(self, platform) -> Module:
        m = Module()
        count = self.params.completions_waiting
        if not count:
            connect(m, flipped(self.i), flipped(self.o))
            return m
        layout = barrier_completion_layout(self.params)
        barrier_fields = [name for name in ("holder", "address") if name in layout.members]

        has_room = Signal()
        incoming_valid = Signal()
        incoming = Signal(layout, reset_less=True)
        enters = incoming_valid & has_room
        m.d.comb += self.i.ready.eq(~incoming_valid | has_room)
        with m.If(self.i.ready):
            m.d.sync += [incoming_valid.eq(self.i.valid), incoming.eq(self.i.payload)]

        # Entries are occupied from the first one on, which is offered at ``o``.
        occupied = Signal(count)
        entries = [Signal(layout, name=f"entry_{n}", reset_less=True) for n in range(count)]
        can_add = Signal(count)
        add_to = Signal(count)
        dequeues = Signal()
        m.d.comb += [
            add_to.eq(Mux(enters, lowest_one(can_add), 0)),
            dequeues.eq(occupied[0] & self.o.ready),
            has_room.eq(~occupied[-1]),
            self.o.valid.eq(occupied[0] | incoming_valid),
        ]
        with m.If(occupied[0]):
            m.d.comb += self.o.payload.eq(entries[0])
        with m.Else():
            m.d.comb += self.o.payload.eq(incoming)

        # Add the completion that comes to an entry, but not to the first one, which may be taken,
        # nor to the last one, behind which none comes.
        merged = entries[:1]
        for number in range(1, count - 1):
            entry = entries[number]
            total = Signal(BARRIER_COUNT_BITS + 1, name=f"total_{number}")
            merged_entry = Signal(layout, name=f"merged_{number}")
            same_barrier = Cat(incoming[name] == entry[name] for name in barrier_fields).all()
            m.d.comb += [
                total.eq(entry.tx_bytes + incoming.tx_bytes),
                can_add[number].eq(
                    occupied[number] & same_barrier & ~total[MAX_TX_BYTES_BITS:].any()
                ),
            ]
            with m.If(add_to[number]):
                m.d.comb += [
                    merged_entry.eq(incoming),
                    merged_entry.tx_bytes.eq(total),
                    *(
                        merged_entry[name].eq(entry[name] | incoming[name])
                        for name in reports_field(self.params)
                    ),
                ]
            with m.Else():
                m.d.comb += merged_entry.eq(entry)
            merged.append(merged_entry)
        merged += entries[1:][-1:]

        # Move the entries up, and occupy a new one behind them.
        remaining = Signal(count)
        new_entry = Signal(count)
        m.d.comb += remaining.eq(Mux(dequeues, occupied[1:], occupied))
        with m.If(enters & ~can_add.any() & (occupied[0] | ~self.o.ready)):
            m.d.comb += new_entry.eq(~remaining & Cat(1, remaining))
        m.d.sync += occupied.eq(remaining | new_entry)
        for number, entry in enumerate(entries):
            with m.If(new_entry[number]):
                m.d.sync += entry.eq(incoming)
            with m.Elif(dequeues):
                if number + 1 < count:
                    m.d.sync += entry.eq(merged[number + 1])
            with m.Else():
                m.d.sync += entry.eq(merged[number])
        return m
