"""Registers: random accesses compared with a model, the first error, errors of the rings."""

import random

import pytest

from hw.host.registers import Register, RegisterFile
from hw.layouts.host import BUS_BITS, INDEX_BITS, HostError
from hw.params import PRESETS
from tests.hw.host.bus import ALL_BYTES, Bus
from tests.hw.simulate import simulation

PARAMS = PRESETS["host"]
RINGS = {
    "REQUEST": (Register.REQUEST_TAIL, 64),
    "COMPLETION": (Register.COMPLETION_HEAD, 16),
}
READ_ONLY = (
    *(Register.ID, Register.FEATURES, Register.GEOMETRY, Register.SMEM_BYTES, Register.STATUS),
    *(Register.REQUEST_HEAD, Register.COMPLETION_TAIL, Register.ERROR_VALUE),
)
KEPT = {Register.CONTROL: 3, Register.INTERRUPT_ENABLE: 3}
"""Bits of registers that are read back as they were written."""


class Model:
    """Values of the registers, as far as a host knows them."""

    def __init__(self) -> None:
        self.values = dict.fromkeys(Register, 0)
        self.interrupts = 0
        self.causes: set[HostError] = set()

    def _refusal(self, register: Register, value: int) -> HostError:
        enabled = self.values[Register.CONTROL] & 1
        if register is Register.CONTROL:
            sizes = self.values[Register.REQUEST_SIZE], self.values[Register.COMPLETION_SIZE]
            return HostError.RING_SIZE if value & 1 and 0 in sizes else HostError.NONE
        for name, (index, record) in RINGS.items():
            if register is index:
                if not enabled:
                    return HostError.RING_STATE
                size = self.values[Register[f"{name}_SIZE"]]
                return HostError.RING_INDEX if value >> size else HostError.NONE
            bad = {
                Register[f"{name}_BASE_LOW"]: (HostError.RING_BASE, value % record != 0),
                Register[f"{name}_BASE_HIGH"]: (HostError.RING_BASE, value != 0),
                Register[f"{name}_SIZE"]: (HostError.RING_SIZE, not 0 < value <= INDEX_BITS),
            }
            if register in bad:
                error, is_bad = bad[register]
                return HostError.RING_STATE if enabled else error if is_bad else HostError.NONE
        return HostError.NONE

    def write(self, address: int, value: int, strobe: int) -> bool:
        """Write a register; return whether that is accepted."""
        if address & ~3 not in set(Register):
            error = HostError.ADDRESS
        elif (register := Register(address & ~3)) in READ_ONLY:
            error = HostError.READ_ONLY
        elif strobe != ALL_BYTES:
            error = HostError.PARTIAL_WRITE
        else:
            error = self._refusal(register, value)
        if error is not HostError.NONE:
            self.fail(error, value if "RING" in error.name and "STATE" not in error.name
                      else address)  # fmt: skip
            return False
        if register is Register.ERROR:
            self.values[Register.ERROR] = self.values[Register.ERROR_VALUE] = 0
        elif register is Register.INTERRUPT_STATUS:
            self.interrupts &= ~value
        else:
            if register is Register.CONTROL and not self.values[register] & 1:
                for index, _ in RINGS.values():
                    self.values[index] = 0
            self.values[register] = value & KEPT.get(register, (1 << BUS_BITS) - 1)
        return True

    def fail(self, error: HostError, value: int) -> None:
        """Keep an error, if it is the first."""
        self.interrupts |= 2
        self.causes.add(error)
        if not self.values[Register.ERROR]:
            self.values[Register.ERROR] = error.value
            self.values[Register.ERROR_VALUE] = value


def draw(rng: random.Random) -> tuple[int, int, int]:
    """Return address, value and strobes of a write, which is often legal."""
    address = rng.choice(list(Register)).value
    if rng.random() < 0.05:
        address = 4 * rng.randrange(1 << 18)
    value = rng.choice(
        (rng.getrandbits(32), rng.randrange(20), 64 * rng.getrandbits(26), rng.randrange(4))
    )
    strobe = ALL_BYTES if rng.random() < 0.9 else rng.getrandbits(4)
    return address + rng.randrange(4), value, strobe


@pytest.mark.parametrize("seed", range(3))
def test_random_writes(seed: int) -> None:
    """After each, a register that the model knows is read, and so are the errors."""
    sim = simulation(RegisterFile, PARAMS)
    rng, model = random.Random(seed), Model()
    known = [register for register in Register if register not in READ_ONLY]

    async def drive(ctx) -> None:
        bus = Bus(ctx, sim.dut)
        for _ in range(400):
            address, value, strobe = draw(rng)
            accepted = await bus.access(address, value, strobe) is not None
            assert accepted == model.write(address, value, strobe), (hex(address), value, strobe)
            model.values[Register.INTERRUPT_STATUS] = model.interrupts
            for register in rng.choice(known), Register.ERROR, Register.ERROR_VALUE:
                assert await bus.access(register) == model.values[register], register.name
            rings = sim.dut.requests, sim.dut.completions
            for (name, (index, _)), ring in zip(RINGS.items(), rings, strict=True):
                assert ctx.get(ring.enabled) == model.values[Register.CONTROL] & 1
                assert ctx.get(ring.base) == model.values[Register[f"{name}_BASE_LOW"]]
                assert ctx.get(ring.size) == model.values[Register[f"{name}_SIZE"]]
                assert ctx.get(ring.host_index) == model.values[index]
            enabled = model.values[Register.INTERRUPT_ENABLE] & model.interrupts
            assert ctx.get(sim.dut.irq) == (enabled != 0)

    sim.run(drive)
    assert model.causes >= {HostError(number) for number in range(1, 7)}


def test_errors_of_rings() -> None:
    """A fault of a ring is kept with its index, raises the interrupt, and gives way to an earlier
    error.
    """
    sim = simulation(RegisterFile, PARAMS)
    dut = sim.dut

    async def drive(ctx) -> None:
        bus = Bus(ctx, dut)

        async def fail(ring, code: HostError, index: int) -> None:
            ctx.set(ring.fault.code, code)
            ctx.set(ring.fault.value, index)
            await ctx.tick()
            ctx.set(ring.fault.code, HostError.NONE)

        await fail(dut.requests, HostError.REQUEST_RING, 5)
        await fail(dut.completions, HostError.COMPLETION_RING, 7)
        assert await bus.access(Register.ERROR_VALUE) == 5
        assert await bus.access(Register.INTERRUPT_STATUS) == 2
        assert await bus.take_error() is HostError.REQUEST_RING
        await fail(dut.completions, HostError.COMPLETION_RING, 7)
        assert await bus.access(Register.ERROR_VALUE) == 7
        assert await bus.take_error() is HostError.COMPLETION_RING

    sim.run(drive)


def test_state() -> None:
    sim = simulation(RegisterFile, PARAMS)
    dut = sim.dut

    async def drive(ctx) -> None:
        bus = Bus(ctx, dut)
        assert await bus.access(Register.STATUS) == 0
        ctx.set(dut.idle, 1)
        assert await bus.access(Register.STATUS) == 1
        ctx.set(dut.halted, 1)
        assert await bus.access(Register.STATUS) == 3
        ctx.set(dut.requests.unit_index, 3)
        ctx.set(dut.completions.unit_index, 9)
        assert await bus.access(Register.STATUS) == 7
        assert await bus.access(Register.REQUEST_HEAD) == 3
        assert await bus.access(Register.COMPLETION_TAIL) == 9
        assert await bus.access(Register.CONTROL, 2) is not None
        assert ctx.get(dut.drain)

    sim.run(drive)
