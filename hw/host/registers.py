"""Register file: the registers by which a host sets up a unit, and rings its doorbells."""

from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.host.monitor_registers import MonitorFields, monitor_ports
from hw.host.register_field import BYTE_BITS, NONE, Field
from hw.host.ring import Ring
from hw.layouts.host import (
    BUS_BITS,
    COMPLETION_BYTES,
    INDEX_BITS,
    RECORD_BYTES,
    BusAccess,
    BusAnswer,
    HostError,
    HostFault,
)
from hw.params import TmaParams

IDENTIFIER = 0x544D_4101
"""Value of ID: ``TMA``, and the version of the registers."""

FEATURES = (
    *("reductions", "im2col", "bulk", "gather4", "scatter4_negative", "im2col_w"),
    *("swizzle_atoms", "swizzle_96b", "sub_byte", "b6p2x16_64", "cp_mask", "ignore_oob"),
    *("mbarrier_v1", "counters"),
)
"""Parameters in FEATURES, bit 0 first."""


class Register(IntEnum):
    """Registers, by their addresses. ``registers.rdl`` describes their fields."""

    ID = 0x00
    FEATURES = 0x04
    GEOMETRY = 0x08
    SMEM_BYTES = 0x0C
    CONTROL = 0x10
    STATUS = 0x14
    INTERRUPT_STATUS = 0x18
    INTERRUPT_ENABLE = 0x1C
    REQUEST_BASE_LOW = 0x20
    REQUEST_BASE_HIGH = 0x24
    REQUEST_SIZE = 0x28
    REQUEST_TAIL = 0x2C
    REQUEST_HEAD = 0x30
    COMPLETION_BASE_LOW = 0x34
    COMPLETION_BASE_HIGH = 0x38
    COMPLETION_SIZE = 0x3C
    COMPLETION_HEAD = 0x40
    COMPLETION_TAIL = 0x44
    ERROR = 0x48
    ERROR_VALUE = 0x4C


INTERRUPTS = 2
"""Interrupts: a completion record was written; there was an error."""

REQUEST_SETTINGS = Register.REQUEST_BASE_LOW, Register.REQUEST_BASE_HIGH, Register.REQUEST_SIZE
COMPLETION_SETTINGS = (
    Register.COMPLETION_BASE_LOW,
    Register.COMPLETION_BASE_HIGH,
    Register.COMPLETION_SIZE,
)
"""Registers of the base and the size of a ring."""

ERRORS_OF_VALUES = HostError.RING_BASE, HostError.RING_SIZE, HostError.RING_INDEX
"""Errors of a value that was written; others of an access are of its address."""


class RegisterFile(wiring.Component):
    """Registers of 32 bits, and what they hold of the two rings.

    Latency: the answer is offered one clock behind the access. Throughput: an access every two
    clocks. Back-pressure: an access waits until the answer before is taken. The outputs come from
    registers, but for ``irq``.

    Errors: an access that is refused changes nothing, and its answer has ``error``. The first error
    of all is kept in ERROR, with the address of the access or the value that was written, until
    ERROR is written.

    ==============  ===============================================================================
    ADDRESS         there is no register, nor shared memory, at the address
    READ_ONLY       a write of a register that is only read
    PARTIAL_WRITE   a write of some bytes of a register
    RING_STATE      a write of the base or size of a ring while it is enabled, or of its index while
                    it is not
    RING_BASE       a base that is not aligned to a record, or has more than ``address_bits``
    RING_SIZE       a size that is not from 1 to 15; or the rings are enabled before both have one
    RING_INDEX      an index that is not below the records of the ring
    ==============  ===============================================================================

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    access : In(stream) of ``BusAccess``
    answer : Out(stream) of ``BusAnswer``
    requests, completions : Out(Ring)
    drain : Out(1)
        As in ``Control``.
    idle : In(1)
        Nothing is pending, in the unit or in the front end.
    halted : In(1)
        A request record could not be read.
    completed : In(1)
        A completion record was written.
    irq : Out(1)
        An interrupt is pending, and enabled.
    counters, trace : In(CounterPort), In(stream) of ``EventRecord``
        As at ``Tma``; present with ``counters``. See ``hw.host.monitor_registers``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                **monitor_ports(params),
                "access": In(stream.Signature(BusAccess)),
                "answer": Out(stream.Signature(BusAnswer)),
                "requests": Out(Ring(params)),
                "completions": Out(Ring(params)),
                "drain": Out(1),
                "idle": In(1),
                "halted": In(1),
                "completed": In(1),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        access = self.access
        valid = Signal()
        takes = access.valid & access.ready
        m.d.comb += [access.ready.eq(~valid), self.answer.valid.eq(valid)]
        fields = self._fields()
        monitor = MonitorFields(self) if self.params.counters else None
        fields |= monitor.fields if monitor else {}
        refusal = Signal(HostError)
        value = Signal(BUS_BITS)
        with m.Switch(access.p.address[BYTE_BITS:]):
            for register, field in fields.items():
                with m.Case(register >> BYTE_BITS):
                    m.d.comb += value.eq(field.value)
                    with m.If(access.p.is_write):
                        m.d.comb += [
                            refusal.eq(self._refusal(field)),
                            field.is_written.eq(takes & (refusal == HostError.NONE)),
                        ]
            with m.Default():
                m.d.comb += refusal.eq(HostError.ADDRESS)
        with m.If(takes):
            m.d.sync += [
                valid.eq(1),
                self.answer.p.data.eq(value),
                self.answer.p.error.eq(refusal != HostError.NONE),
            ]
        with m.Elif(self.answer.ready):
            m.d.sync += valid.eq(0)
        if monitor:
            monitor.connect(m, takes)
        self._set_up_rings(m, fields)
        self._keep_error(m, fields, Mux(takes, refusal, HostError.NONE))
        return m

    def _fields(self) -> dict[int, Field]:
        """Return what is read of each register, and what refuses a write."""
        p = self.params
        data = self.access.p.data
        features = Cat(Const(getattr(p, name), 1) for name in FEATURES)
        geometry = p.line_bytes | p.address_bits << 8 | p.tags << 16
        has_sizes = (self.requests.size != 0) & (self.completions.size != 0)
        enables = data[0] & ~has_sizes
        waits = self.requests.unit_index != self.requests.host_index
        fields = {
            Register.ID: Field(Const(IDENTIFIER)),
            Register.FEATURES: Field(features),
            Register.GEOMETRY: Field(Const(geometry)),
            Register.SMEM_BYTES: Field(Const(p.smem_bytes)),
            Register.CONTROL: Field(
                Cat(self.requests.enabled, self.drain), Mux(enables, HostError.RING_SIZE, NONE)
            ),
            Register.STATUS: Field(Cat(self.idle, self.halted, waits)),
            Register.INTERRUPT_STATUS: Field(Signal(INTERRUPTS, name="interrupt_status"), NONE),
            Register.INTERRUPT_ENABLE: Field(Signal(INTERRUPTS, name="interrupt_enable"), NONE),
            Register.REQUEST_TAIL: self._index_field(self.requests),
            Register.REQUEST_HEAD: Field(self.requests.unit_index),
            Register.COMPLETION_HEAD: self._index_field(self.completions),
            Register.COMPLETION_TAIL: Field(self.completions.unit_index),
            Register.ERROR: Field(Signal(HostError, name="error"), NONE),
            Register.ERROR_VALUE: Field(Signal(BUS_BITS, name="error_value")),
        }
        for ring, low, high, size, record in (
            (self.requests, *REQUEST_SETTINGS, RECORD_BYTES),
            (self.completions, *COMPLETION_SETTINGS, COMPLETION_BYTES),
        ):
            # A base and a size are written before the ring is enabled.
            misaligned = data[: (record - 1).bit_length()].any()
            too_high = (data >> (p.address_bits - BUS_BITS)).any()
            bad_size = (data == 0) | (data > INDEX_BITS)
            for register, value, is_bad, error in (
                (low, ring.base[:BUS_BITS], misaligned, HostError.RING_BASE),
                (high, ring.base[BUS_BITS:], too_high, HostError.RING_BASE),
                (size, ring.size, bad_size, HostError.RING_SIZE),
            ):
                refusal = Mux(ring.enabled, HostError.RING_STATE, Mux(is_bad, error, NONE))
                fields[register] = Field(value, refusal)
        return fields

    def _index_field(self, ring) -> Field:
        """Return the field of an index that the host writes, which a ring without records has not.

        An index is written while the ring is enabled.
        """
        too_large = (self.access.p.data >> ring.size).any()
        refusal = Mux(too_large, HostError.RING_INDEX, NONE)
        return Field(ring.host_index, Mux(ring.enabled, refusal, HostError.RING_STATE))

    def _refusal(self, field: Field) -> ValueLike:
        """Return the cause for which a write is refused, or NONE."""
        if field.refusal is None:
            return HostError.READ_ONLY
        return Mux(self.access.p.strobe.all(), field.refusal, HostError.PARTIAL_WRITE)

    def _set_up_rings(self, m: Module, fields: dict[Register, Field]) -> None:
        """Write the settings of the rings, and their indices, which begin at 0."""
        data = self.access.p.data
        rings = (self.requests, *REQUEST_SETTINGS, Register.REQUEST_TAIL), (
            self.completions, *COMPLETION_SETTINGS, Register.COMPLETION_HEAD
        )  # fmt: skip
        control = fields[Register.CONTROL].is_written
        with m.If(control):
            m.d.sync += self.drain.eq(data[1])
        for ring, low, high, size, index in rings:
            with m.If(fields[low].is_written):
                m.d.sync += ring.base[:BUS_BITS].eq(data)
            with m.If(fields[high].is_written):
                m.d.sync += ring.base[BUS_BITS:].eq(data)
            with m.If(fields[size].is_written):
                m.d.sync += ring.size.eq(data)
            with m.If(fields[index].is_written):
                m.d.sync += ring.host_index.eq(data)
            with m.If(control):
                m.d.sync += ring.enabled.eq(data[0])
                with m.If(~ring.enabled):
                    m.d.sync += ring.host_index.eq(0)

    def _keep_error(self, m: Module, fields: dict[Register, Field], refusal: Value) -> None:
        """Keep the first error, and the interrupts."""
        access = self.access.p
        is_value = refusal.matches(*ERRORS_OF_VALUES)
        of_access = Signal(HostFault)
        m.d.comb += [
            of_access.code.eq(refusal),
            of_access.value.eq(Mux(is_value, access.data, access.address)),
        ]
        fault = Signal(HostFault)
        for source in self.completions.fault, self.requests.fault, of_access:
            with m.If(source.code != NONE):
                m.d.comb += fault.eq(source)
        code, value = fields[Register.ERROR], fields[Register.ERROR_VALUE]
        has_fault = fault.code != NONE
        with m.If(code.is_written | (has_fault & (code.value == NONE))):
            m.d.sync += [code.value.eq(fault.code), value.value.eq(fault.value)]
        status, enable = fields[Register.INTERRUPT_STATUS], fields[Register.INTERRUPT_ENABLE]
        cleared = Mux(status.is_written, access.data, 0)
        m.d.sync += status.value.eq((status.value & ~cleared) | Cat(self.completed, has_fault))
        with m.If(enable.is_written):
            m.d.sync += enable.value.eq(access.data)
        m.d.comb += self.irq.eq((status.value & enable.value).any())
