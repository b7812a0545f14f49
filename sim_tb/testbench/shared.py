"""What the SMs of a bench share: clock and reset, global memory, and what wakes Python."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import cocotb
import numpy as np
from cocotb.task import Task
from cocotb.triggers import ClockCycles
from numpy.typing import NDArray

from sim_tb.testbench.bridge import Bridge, Bytes, LogKind, pointer
from sim_tb.testbench.interface import Interface
from sim_tb.testbench.models import Models

if TYPE_CHECKING:
    from sim_tb.testbench.environment import BenchError, Environment

MAPS = 0x7E00_0000_0000
"""Where ``GlobalMemory.place_map`` begins: far from the addresses of recorded vectors."""

MAP_BYTES = 128

BACKGROUNDS = ("hash", "fault", "void")

LOGS = (LogKind.LINE, LogKind.ACCEPT, LogKind.WORD)
"""What is recorded, unless told otherwise."""

RESET_CYCLES = 4


class GlobalMemory:
    """Arrays in the address space of the units, over a background.

    The background is ``"hash"``, where every byte is a function of its address (that of recorded
    vectors), or ``"fault"``, where a read fails that touches no array. Writes fail outside of
    arrays; over ``"void"``, which reads as ``"hash"`` does, they vanish. Arrays are shared, not
    copied: what Python writes is read from the next clock on. Where two overlap, the later counts.
    """

    def __init__(self) -> None:
        self._bridge = Bridge()
        self._regions: dict[int, Bytes] = {}
        self._next_map = MAPS

    def background(self, kind: str) -> None:
        """Choose what is outside of all arrays: ``"hash"``, ``"fault"`` or ``"void"``."""
        self._bridge.background(BACKGROUNDS.index(kind))

    def place(self, address: int, array: NDArray[Any]) -> None:
        """Show ``array``'s bytes at ``address``, in place of what was placed there before."""
        self.remove(address)
        flat = array.reshape(-1).view(np.uint8)
        if flat.size and not np.shares_memory(flat, array):
            raise ValueError("the array must be contiguous")
        self._regions[address] = flat
        self._bridge.region(address, flat.size, pointer(flat))

    def place_map(self, words: NDArray[np.uint32]) -> int:
        """Show a tensor map at an address that none was at; return it."""
        address = self._next_map
        self._next_map += MAP_BYTES
        self.place(address, words)
        return address

    def remove(self, address: int) -> None:
        """Take away what was placed at ``address``, if anything."""
        if self._regions.pop(address, None) is not None:
            self._bridge.remove(address)

    def clear(self) -> None:
        """Forget what was placed."""
        self._regions.clear()


def described() -> Interface:
    """The interface of the design that is simulated."""
    return Interface(Path(os.environ["TMA_INTERFACE"]))


class Bench:
    """The design in its bench, and the environments of its SMs.

    Members
    -------
    sms : list of Environment
        By number of the SM.
    gmem : GlobalMemory
    """

    _tasks: ClassVar[list[Task[Any]]] = []

    def __init__(self, dut: Any, sms: Sequence["Environment"]) -> None:
        self.dut = dut
        self.sms = list(sms)
        self.gmem = GlobalMemory()
        self._running = 0
        for env in self.sms:
            env.bench = self

    async def begin(
        self, models: Models | Sequence[Models] | None, background: str, logs: Sequence[LogKind]
    ) -> None:
        """Start the clock, and reset; what an earlier bench of this simulation began ends."""
        for task in Bench._tasks:
            task.cancel()
        self.dut.reset.value = 1
        Bridge().clock()
        await self.reset(models, background=background, logs=logs)
        Bench._tasks = [cocotb.start_soon(self._pump())]

    async def reset(
        self,
        models: Models | Sequence[Models] | None = None,
        *,
        background: str = "hash",
        logs: Sequence[LogKind] = LOGS,
    ) -> None:
        """Reset design and bench: no array is placed, nothing is logged, cycle 0 comes next.

        Shared memories keep their contents. Pending waits are forgotten. ``models`` is one for all
        SMs, or one for each.
        """
        self.dut.reset.value = 1
        self.run((1 << len(self.sms)) - 1)
        await ClockCycles(self.dut.clk, RESET_CYCLES)
        Bridge().start(len(self.sms), BACKGROUNDS.index(background))
        self.gmem.clear()
        if models is None or isinstance(models, Models):
            models = [models or Models()] * len(self.sms)
        for env, model in zip(self.sms, models, strict=True):
            env.reset_models(model, logs)
        self.dut.reset.value = 0

    def run(self, ctas: int) -> None:
        """Let the CTAs of this mask run, and no others; the design knows two clocks later."""
        self._running = ctas
        self.dut.run.value = ctas

    def ledger(self) -> str:
        """What is outstanding, in words."""
        if len(self.sms) == 1:
            return self.sms[0].ledger()
        return "\n".join(f"SM {env.sm}: {env.ledger()}" for env in self.sms)

    def fail(self, failure: "BenchError") -> None:
        """Fail everybody who waits; if nobody does, the test."""
        waiting = [env.give_up(failure) for env in self.sms]
        if not any(waiting):
            raise failure

    async def _pump(self) -> None:
        changes = self.dut.wake.value_change
        while True:
            await changes
            for env in self.sms:
                env.take_events()
