"""The part of the testbench that all SMs share: clock, reset, global memory, wake-up of Python."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import cocotb
import numpy as np
from cocotb.task import Task
from cocotb.triggers import ClockCycles
from numpy.typing import NDArray

from sim_tb.testbench.bridge import Bridge, LogKind, check_layouts
from sim_tb.testbench.counters import Counters
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.global_memory import GlobalMemory
from sim_tb.testbench.interface import Interface
from sim_tb.testbench.models import BACKGROUNDS, Models

DEFAULT_LOGS = (LogKind.LINE, LogKind.ACCEPT, LogKind.WORD)
"""Transfers that are recorded by default."""

RESET_CYCLES = 1
"""Clocks of a reset: one is enough."""


class SmSide(Protocol):
    """The testbench around one SM, as the shared part sees it."""

    sm: int

    def reset_sm(self, models: Models, logs: Sequence[LogKind]) -> None:
        """Reset the testbench of this SM while the unit is held in reset."""

    def handle_events(self) -> None:
        """Handle the events that C++ reported for this SM."""

    def fail_waits(self, failure: CheckError) -> bool:
        """Raise ``failure`` in every coroutine that waits; return whether there was one."""

    def end_pause(self) -> None:
        """Let the coroutine go on that pauses at this SM, if there is one."""

    def ledger(self) -> str:
        """Return everything that is outstanding at this SM, as text."""


class SharedEnvironment:
    """The simulated design, its clock, reset and global memory, and the environments of its SMs.

    Members
    -------
    interface : Interface
        Parameters and ports of the design.
    sms : list of SmSide
        By number of the SM. An ``Environment`` adds itself.
    smem : array of bytes
        Shared memory of each SM, a row each.
    gmem : GlobalMemory
    counters : Counters
    """

    _tasks: ClassVar[list[Task[Any]]] = []

    def __init__(self, dut: Any, interface: Interface) -> None:
        self.dut = dut
        self.interface = interface
        self.sms: list[SmSide] = []
        self.smem: NDArray[np.uint8] = np.zeros(
            (interface.sms, interface.parameters["smem_bytes"]), np.uint8
        )
        self.gmem = GlobalMemory(interface.parameters["address_bits"])
        self.counters = Counters(dut, interface)
        self._running = 0
        self._draining = 0

    async def begin(
        self, models: Models | Sequence[Models] | None, background: str, logs: Sequence[LogKind]
    ) -> None:
        """Compare the layouts of Python and C++, start the clock, and reset.

        Environments that an earlier test of this simulation started receive no further events.

        Raises
        ------
        LayoutError
            If Python and C++ disagree about a record or a number that they share.
        """
        for task in SharedEnvironment._tasks:
            task.cancel()
        bridge = Bridge()
        check_layouts(bridge.layout_table().decode(), self.interface.enums)
        self.dut.reset.value = 1
        bridge.clock()
        await self.reset(models, background=background, logs=logs)
        SharedEnvironment._tasks = [cocotb.start_soon(self._dispatch_events())]

    async def reset(
        self,
        models: Models | Sequence[Models] | None = None,
        *,
        background: str = "hash",
        logs: Sequence[LogKind] = DEFAULT_LOGS,
    ) -> None:
        """Reset design and testbench. The first cycle after all units are idle is cycle 0; with
        ``Models.strays`` it is the first cycle after the reset.

        Global memory has no arrays and logs are empty afterwards. Shared memories keep their
        contents. Pending waits are forgotten.

        Parameters
        ----------
        models : Models or sequence of Models, optional
            Models of all SMs, or of each SM; default ``Models()``.
        background : "hash", "fault" or "void"
            Global memory outside all arrays, see ``GlobalMemory``.
        logs : sequence of LogKind
            Transfers that are recorded.
        """
        self.dut.reset.value = 1
        self.running = (1 << len(self.sms)) - 1
        self.draining = 0
        self.counters.begin()
        await ClockCycles(self.dut.clk, RESET_CYCLES)
        Bridge().start(len(self.sms), BACKGROUNDS.index(background))
        self.gmem.clear()
        if models is None or isinstance(models, Models):
            models = [models or Models()] * len(self.sms)
        for sm, model in zip(self.sms, models, strict=True):
            sm.reset_sm(model, logs)
        self.dut.early.value = int(any(model.strays for model in models))
        self.dut.reset.value = 0
        while self.idle != (1 << len(self.sms)) - 1:
            await self.dut.idle.value_change

    @property
    def running(self) -> int:
        """A bit for each CTA that runs. All of them run after a reset.

        A change reaches the design two clocks later.
        """
        return self._running

    @running.setter
    def running(self, mask: int) -> None:
        self._running = mask
        self.dut.run.value = mask

    @property
    def draining(self) -> int:
        """A bit for each unit that is to accept no requests. None after a reset.

        A change reaches the design two clocks later.
        """
        return self._draining

    @draining.setter
    def draining(self, mask: int) -> None:
        self._draining = mask
        self.dut.drain.value = mask

    @property
    def idle(self) -> int:
        """A bit for each unit that says that it is idle."""
        return int(self.dut.idle.value)

    def ledger(self) -> str:
        """Return everything that is outstanding, as text."""
        if len(self.sms) == 1:
            return self.sms[0].ledger()
        return "\n".join(f"SM {sm.sm}: {sm.ledger()}" for sm in self.sms)

    def fail(self, failure: CheckError) -> None:
        """Raise ``failure`` in every coroutine that waits; if none does, raise it here."""
        waited = [sm.fail_waits(failure) for sm in self.sms]
        if not any(waited):
            raise failure

    async def _dispatch_events(self) -> None:
        changes = self.dut.wake.value_change
        while True:
            await changes
            for sm in self.sms:
                sm.handle_events()
