"""The registers in RTL and in ``registers.rdl`` are the same.

Each address is read and written in the RTL, and compared with what the description says of it:
whether it is there, who may change it, its value at reset, and which bits it has.
"""

from dataclasses import replace

import pytest
from systemrdl.node import FieldNode, RegNode
from systemrdl.rdltypes import OnWriteType

from hw.flow.registers import address_map
from hw.host.monitor_registers import WORDS, MonitorRegister
from hw.host.registers import FEATURES, IDENTIFIER, Register, RegisterFile
from hw.layouts.host import BUS_BITS, INDEX_BITS, HostError
from hw.layouts.monitor import EventRecord
from hw.params import PRESETS
from tests.hw.host.bus import Bus
from tests.hw.simulate import simulation

ALL_ONES = (1 << BUS_BITS) - 1
UNITS = {
    "host": PRESETS["host"],
    "counters": replace(PRESETS["host"], counters=True),
    "wide": replace(PRESETS["host"], address_bits=48, tags=64, smem_bytes=65536, im2col=False),
}
LARGEST = {
    Register.REQUEST_BASE_LOW: ALL_ONES - 63,
    Register.COMPLETION_BASE_LOW: ALL_ONES - 15,
    Register.REQUEST_SIZE: INDEX_BITS,
    Register.COMPLETION_SIZE: INDEX_BITS,
    Register.REQUEST_TAIL: (1 << INDEX_BITS) - 1,
    Register.COMPLETION_HEAD: (1 << INDEX_BITS) - 1,
}
"""Largest value that each register accepts, if it is not all ones."""

RING_SETTINGS = {
    register for register in Register if register.name.endswith(("_LOW", "_HIGH", "_SIZE"))
}
RING_INDICES = {Register.REQUEST_TAIL, Register.COMPLETION_HEAD}


def described(params) -> dict[int, RegNode]:
    """Return the registers of the description by address."""
    return {node.absolute_address: node for node in address_map(params).registers()}


def reset_value(register: RegNode) -> int:
    """Return the value at reset; fields that the unit writes first are 0."""
    return sum((field.get_property("reset") or 0) << field.low for field in register.fields())


def kept(field: FieldNode) -> bool:
    """Return whether a field is read back as it was written."""
    acts = field.get_property("onwrite") is not None or field.get_property("singlepulse")
    return field.is_sw_writable and not acts


def mask(register: RegNode, is_chosen=lambda _: True) -> int:
    """Return the bits of some of the fields."""
    chosen = (field for field in register.fields() if is_chosen(field))
    return sum(((1 << field.width) - 1) << field.low for field in chosen)


def run(unit: str, drive) -> None:
    """Run ``drive(bus, ctx, dut)`` with the register file of a unit."""
    sim = simulation(RegisterFile, UNITS[unit])

    async def testbench(ctx):
        await drive(Bus(ctx, sim.dut), ctx, sim.dut)

    sim.run(testbench)


def register_at(address: int) -> Register | MonitorRegister:
    """Return the register of the RTL at an address."""
    return Register(address) if address in set(Register) else MonitorRegister(address)


@pytest.mark.parametrize("unit", UNITS)
def test_names_and_addresses(unit):
    nodes = described(UNITS[unit])
    monitor = MonitorRegister if UNITS[unit].counters else ()
    assert {node.inst_name: address for address, node in nodes.items()} == {
        register.name: register.value for register in (*Register, *monitor)
    }


def test_a_host_finds_events_in_the_words():
    """The words are those of a record, whose first one is the clock."""
    names = [str(name) for name, field in EventRecord.as_shape() if field.offset % BUS_BITS == 0]
    assert names == ["clock", "kind", "request_id", "argument"]
    assert [register.value for register in WORDS] == [0x114, 0x118, 0x11C, 0x120]


def test_errors():
    code = described(UNITS["host"])[Register.ERROR].get_child_by_name("CODE")
    last = HostError.COMPLETION_RING.value  # others are of records
    assert {item.name: item.value for item in code.get_property("encode")} == {
        error.name: error.value for error in HostError if error.value <= last
    }


def test_features_and_identifier():
    nodes = described(UNITS["host"])
    fields = nodes[Register.FEATURES].fields()
    assert [(field.inst_name.lower(), field.low) for field in fields] == [
        (name, bit) for bit, name in enumerate(FEATURES)
    ]
    assert reset_value(nodes[Register.ID]) == IDENTIFIER


@pytest.mark.parametrize("unit", UNITS)
def test_values_at_reset_and_what_is_there(unit):
    nodes = described(UNITS[unit])

    async def drive(bus, _ctx, _dut):
        for address in range(0, 0x180, 4):
            got = await bus.access(address)
            if address in nodes:
                assert got == reset_value(nodes[address]), nodes[address].inst_name
            else:
                assert got is None, f"{address:#x}"
                assert await bus.take_error() is HostError.ADDRESS

    run(unit, drive)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("enabled", [False, True])
def test_access(unit, enabled):
    """Each register refuses or keeps what is written, as the description says."""
    nodes = described(UNITS[unit])
    high = (1 << UNITS[unit].address_bits - BUS_BITS) - 1
    largest = LARGEST | {
        Register.REQUEST_BASE_HIGH: high,
        Register.COMPLETION_BASE_HIGH: high,
    }

    async def drive(bus, _ctx, _dut):
        for register in (Register.REQUEST_SIZE, Register.COMPLETION_SIZE):
            assert await bus.access(register, INDEX_BITS) is not None
        assert await bus.access(Register.CONTROL, int(enabled)) is not None
        for register, node in ((register_at(address), node) for address, node in nodes.items()):
            value = largest.get(register, ALL_ONES)
            before = await bus.access(register)
            if register is Register.CONTROL:
                value = ALL_ONES - 1 + enabled  # the rings stay as they are
            locked = register in (RING_SETTINGS if enabled else RING_INDICES)
            assert await bus.access(register, value, strobe=0b0111) is None
            partial = HostError.PARTIAL_WRITE if node.has_sw_writable else HostError.READ_ONLY
            assert await bus.take_error() is partial
            written = await bus.access(register, value)
            if not node.has_sw_writable:
                assert (written, await bus.take_error()) == (None, HostError.READ_ONLY)
            elif locked:
                assert (written, await bus.take_error()) == (None, HostError.RING_STATE)
            else:
                assert written is not None
                before = value & mask(node, kept)
            if register is not Register.INTERRUPT_STATUS:  # this test fails accesses
                assert await bus.access(register) == before, register.name

    run(unit, drive)


def test_values_that_are_refused():
    async def drive(bus, _ctx, _dut):
        for register, value, error in (
            (Register.REQUEST_BASE_LOW, 32, HostError.RING_BASE),
            (Register.REQUEST_BASE_HIGH, 1, HostError.RING_BASE),
            (Register.COMPLETION_BASE_LOW, 8, HostError.RING_BASE),
            (Register.REQUEST_SIZE, 0, HostError.RING_SIZE),
            (Register.COMPLETION_SIZE, 16, HostError.RING_SIZE),
            (Register.CONTROL, 1, HostError.RING_SIZE),
        ):
            assert await bus.access(register, value) is None
            assert await bus.access(Register.ERROR_VALUE) == value
            assert await bus.take_error() is error
            assert await bus.access(register) == 0
        for register in (Register.REQUEST_SIZE, Register.COMPLETION_SIZE):
            assert await bus.access(register, 4) is not None
        assert await bus.access(Register.CONTROL, 1) is not None
        for register in RING_INDICES:
            assert await bus.access(register, 16) is None
            assert await bus.take_error() is HostError.RING_INDEX

    run("host", drive)


def test_a_one_clears_an_interrupt():
    fields = described(UNITS["host"])[Register.INTERRUPT_STATUS].fields()
    assert {field.get_property("onwrite") for field in fields} == {OnWriteType.woclr}
    completed, failed = (1 << field.low for field in fields)

    async def drive(bus, ctx, dut):
        ctx.set(dut.completed, 1)
        await ctx.tick()
        ctx.set(dut.completed, 0)
        assert await bus.access(0x80) is None
        assert await bus.access(Register.INTERRUPT_STATUS) == completed | failed
        assert not ctx.get(dut.irq)
        for enabled in (failed, completed):
            assert await bus.access(Register.INTERRUPT_ENABLE, enabled) is not None
            assert ctx.get(dut.irq)
        assert await bus.access(Register.INTERRUPT_STATUS, completed) is not None
        assert await bus.access(Register.INTERRUPT_STATUS) == failed
        assert not ctx.get(dut.irq)

    run("host", drive)
