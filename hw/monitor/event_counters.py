"""Event counters: count events in the rows of one memory."""

from collections.abc import Mapping
from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.monitor import COUNT_BITS, Counter, CounterPort
from hw.lib.memory import Copies

PIPELINE = 2
"""Clocks from the visit of a row to the write of its new count, which is before the next visit."""


class EventCounters(wiring.Component):
    """Adds up an amount for each counter in each clock.

    The counts are rows of one memory. A *remainder* of a few bits, in registers, collects what was
    not added to its row yet. The rows are visited in turn, one a clock: the remainder of the row is
    added to it. A remainder has room for the largest amounts of all clocks between two visits, so
    that nothing is ever lost. A count wraps to 0 behind its largest value.

    After a reset, and after ``clear``, the memory counts as 0 until each row was visited once. A
    value that is read in between may be an old one.

    Latency: an event of clock t is in the value that is selected in clock t + ``settle_clocks``.
    Throughput: any amounts in every clock. Back-pressure and errors: none.

    Parameters
    ----------
    widths : Mapping[str, int]
        Width of the amount of each counter that there is, by name.
    numbers : enum
        All counters, with their numbers, of at least two bits.
    bits : int
        Width of a count.

    Members
    -------
    amounts : In of a struct with an amount for each name of ``widths``
    port : Out(CounterPort)

    Attributes
    ----------
    settle_clocks : int
        Clocks in which an event gets into the memory.
    """

    def __init__(
        self, widths: Mapping[str, int], numbers: type = Counter, bits: int = COUNT_BITS
    ) -> None:
        self.widths = dict(widths)
        self.numbers = numbers
        self.bits = bits
        self.rows = 1 << Shape.cast(numbers).width
        self.settle_clocks = self.rows + PIPELINE
        super().__init__(
            {
                "amounts": In(data.StructLayout(self.widths)),
                "port": Out(CounterPort(numbers, bits)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        row = Signal(range(self.rows))
        moved = self._collect(m, row)
        self._add(m, row, moved)
        self._settle(m)
        return m

    def _collect(self, m: Module, row: Value) -> Value:
        """Collect the amounts; return the remainder of ``row``, which begins anew."""
        more_bits = (self.rows - 1).bit_length()
        moved = Signal(max(self.widths.values()) + more_bits)
        remainders = {}
        for name, width in self.widths.items():
            number = self.numbers[name.upper()].value
            remainder = Signal(width + more_bits, name=f"remainder_{name}")
            remainders[number] = remainder
            amount = Mux(self.port.freeze, 0, self.amounts[name])
            with m.If(self.port.clear):
                m.d.sync += remainder.eq(0)
            with m.Else():
                m.d.sync += remainder.eq(Mux(row == number, 0, remainder) + amount)
        with m.Switch(row):
            for number, remainder in remainders.items():
                with m.Case(number):
                    m.d.comb += moved.eq(remainder)
        return moved

    def _add(self, m: Module, row: Signal, moved: Value) -> None:
        """Visit the rows in turn, and add to each what is ``moved``: first the lower half, in the
        next clock the carry to the upper half.
        """
        counts = Copies(m, "counts", self.bits, self.rows, 2)
        visited, selected = counts.memories[0].read_port(), counts.memories[1]
        half = self.bits // 2
        m.d.sync += row.eq(row + 1)

        # Rows that still count as 0.
        stale = Signal(range(self.rows + 1), init=self.rows)
        with m.If(self.port.clear):
            m.d.sync += stale.eq(self.rows)
        with m.Elif(stale != 0):
            m.d.sync += stale.eq(stale - 1)

        addend = Signal.like(moved, reset_less=True)
        is_stale = Signal(reset_less=True)
        low = Signal(half + 1, reset_less=True)
        high = Signal(self.bits - half, reset_less=True)
        rows = [row, *(Signal.like(row, name=f"row_{n}", reset_less=True) for n in (1, 2))]
        valid = Signal(2)  # the rows behind the first one are those of visits
        m.d.comb += visited.addr.eq(row)
        old = Mux(is_stale, 0, visited.data)
        m.d.sync += [
            addend.eq(moved),
            is_stale.eq(stale != 0),
            low.eq(old[:half] + addend[:half]),
            high.eq(old[half:] + addend[half:]),
            *(later.eq(earlier) for earlier, later in pairwise(rows)),
            valid.eq(Cat(Const(1, 1), valid[0])),
        ]
        m.d.comb += [
            counts.write.en.eq(valid[1]),
            counts.write.addr.eq(rows[2]),
            counts.write.data.eq(Cat(low[:half], high + low[half])),
        ]

        read = selected.read_port(forwards=True)
        m.d.comb += [
            read.addr.eq(self.port.select),
            self.port.value.eq(read.data),
        ]

    def _settle(self, m: Module) -> None:
        """Count the clocks since the counters ran or were cleared."""
        since = Signal(range(self.settle_clocks + 1))
        is_settled = since == self.settle_clocks
        m.d.comb += self.port.settled.eq(is_settled)
        with m.If(~self.port.freeze | self.port.clear):
            m.d.sync += since.eq(0)
        with m.Elif(~is_settled):
            m.d.sync += since.eq(since + 1)
