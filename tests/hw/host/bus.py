"""Bus: a master of a register file in Amaranth's simulator."""

from hw.host.registers import Register
from hw.layouts.host import BUS_BITS, BusAccess, HostError

ALL_BYTES = (1 << BUS_BITS // 8) - 1


class Bus:
    """Master of a register file in Amaranth's simulator."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut

    async def access(self, address: int, write: int | None = None, strobe=ALL_BYTES):
        """Read or write an address; return the data, or None if the access was refused."""
        ctx, dut = self.ctx, self.dut
        values = {"is_write": write is not None, "address": address, "data": write or 0}
        ctx.set(dut.access.payload, BusAccess.const(values | {"strobe": strobe}))
        ctx.set(dut.access.valid, 1)
        while not ctx.get(dut.access.ready):
            await ctx.tick()
        await ctx.tick()
        ctx.set(dut.access.valid, 0)
        ctx.set(dut.answer.ready, 1)
        while not ctx.get(dut.answer.valid):
            await ctx.tick()
        answer = ctx.get(dut.answer.payload)
        await ctx.tick()
        return None if answer.error else answer.data

    async def take_error(self) -> HostError:
        """Return the error that is kept, and clear it."""
        code = await self.access(Register.ERROR)
        assert await self.access(Register.ERROR, 0) is not None
        assert await self.access(Register.ERROR) == 0
        assert await self.access(Register.ERROR_VALUE) == 0
        return HostError(code)
