"""Counters of the simulated units: how a test stops, reads and clears them."""

from collections.abc import Mapping
from typing import Any

from cocotb.triggers import ClockCycles

from sim_tb.testbench.interface import Interface

READ_CLOCKS = 4
"""Clocks from the selection of a counter to its value, which passes registers of the testbench."""

COUNT_BITS = 64


class Counters:
    """Counters of all units of a simulation, which stop and run together.

    Parameters
    ----------
    dut : handle
        cocotb's handle of the top module.
    interface : Interface
        Parameters and ports of the design.
    """

    def __init__(self, dut: Any, interface: Interface) -> None:
        self._dut = dut
        self._sms = interface.sms
        self._numbers: Mapping[str, int] = interface.enums.get("Counter", {})

    def begin(self) -> None:
        """Let the counters run, from a reset on."""
        for name in ("counter", "freeze", "clear"):
            getattr(self._dut, name).value = 0

    async def clear(self) -> None:
        """Set all counts to 0. Call it while the units are idle."""
        self._dut.clear.value = 1
        await ClockCycles(self._dut.clk, READ_CLOCKS)
        self._dut.clear.value = 0
        await ClockCycles(self._dut.clk, READ_CLOCKS)

    async def read(self) -> list[dict[str, int]]:
        """Return the counts of each SM by name; they have stopped meanwhile.

        Raises
        ------
        ValueError
            If the units have no counters.
        """
        if not self._numbers:
            raise ValueError("counters = False: the unit has no counters")
        self._dut.freeze.value = 1
        while int(self._dut.settled.value) != (1 << self._sms) - 1:
            await ClockCycles(self._dut.clk, READ_CLOCKS)
        counts: list[dict[str, int]] = [{} for _ in range(self._sms)]
        for name, number in self._numbers.items():
            self._dut.counter.value = number
            await ClockCycles(self._dut.clk, READ_CLOCKS)
            values = int(self._dut.counts.value)
            for sm, of_sm in enumerate(counts):
                of_sm[name] = values >> sm * COUNT_BITS & (1 << COUNT_BITS) - 1
        self._dut.freeze.value = 0
        return counts
