"""Monitor registers: by them a host reads the counters of a unit, and takes its events."""

from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In

from hw.host.register_field import BYTE_BITS, NONE, Field
from hw.layouts.host import BUS_BITS
from hw.layouts.monitor import CounterPort, EventRecord
from hw.params import TmaParams


class MonitorRegister(IntEnum):
    """Registers of the monitor, by their addresses. ``registers.rdl`` describes their fields."""

    COUNTER_CONTROL = 0x100
    COUNTER_SELECT = 0x104
    COUNTER_LOW = 0x108
    COUNTER_HIGH = 0x10C
    TRACE_STATUS = 0x110
    TRACE_WORD_0 = 0x114
    TRACE_WORD_1 = 0x118
    TRACE_WORD_2 = 0x11C
    TRACE_WORD_3 = 0x120


WORDS = tuple(register for register in MonitorRegister if register.name.startswith("TRACE_WORD"))
"""Registers of the words of an event, the lowest one first."""


def monitor_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the ports of a unit's monitor, at its host; none without ``counters``."""
    if not params.counters:
        return {}
    return {"counters": In(CounterPort()), "trace": In(stream.Signature(EventRecord))}


class MonitorFields:
    """Contents of the monitor's registers, and what accesses do.

    A read of COUNTER_LOW keeps the upper half of the count for COUNTER_HIGH, so that both are of
    one moment. A 1 that is written to TRACE_STATUS takes the event whose words are read.

    Parameters
    ----------
    registers : RegisterFile
        With the ports of ``monitor_ports``.

    Attributes
    ----------
    fields : dict
    """

    def __init__(self, registers: wiring.Component) -> None:
        self._access = registers.access
        self._counters = counters = registers.counters
        self._trace = trace = registers.trace
        self._high = Signal(BUS_BITS, name="counter_high")
        words = Value.cast(trace.payload)
        control = Cat(counters.freeze, Const(0, 1), counters.settled)
        select = Value.cast(counters.select)
        self.fields = {
            MonitorRegister.COUNTER_CONTROL: Field(control, NONE),
            MonitorRegister.COUNTER_SELECT: Field(select, NONE),
            MonitorRegister.COUNTER_LOW: Field(counters.value[:BUS_BITS]),
            MonitorRegister.COUNTER_HIGH: Field(self._high),
            MonitorRegister.TRACE_STATUS: Field(trace.valid, NONE),
            **{
                register: Field(words.word_select(number, BUS_BITS))
                for number, register in enumerate(WORDS)
            },
        }

    def connect(self, m: Module, takes: Value) -> None:
        """Do what the access does that is taken in this clock."""
        access, counters = self._access.p, self._counters
        written = {register: field.is_written for register, field in self.fields.items()}
        control = written[MonitorRegister.COUNTER_CONTROL]
        is_low = access.address[BYTE_BITS:] == MonitorRegister.COUNTER_LOW >> BYTE_BITS
        with m.If(control):
            m.d.sync += counters.freeze.eq(access.data[0])
        m.d.sync += counters.clear.eq(control & access.data[1])
        with m.If(written[MonitorRegister.COUNTER_SELECT]):
            m.d.sync += Value.cast(counters.select).eq(access.data)
        with m.If(takes & is_low & ~access.is_write):
            m.d.sync += self._high.eq(counters.value[BUS_BITS:])
        m.d.comb += self._trace.ready.eq(written[MonitorRegister.TRACE_STATUS] & access.data[0])
