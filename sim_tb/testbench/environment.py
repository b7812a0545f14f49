"""The environment of one SM: what a simulated test uses to drive the SM's unit.

The clock loop runs in C++ (``dpi/``). Python runs only at events, at the clock edge at which they
happen. Requests and commands that Python queues there reach the unit at the next edge.
"""

import ctypes
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import cocotb
import numpy as np
from numpy.typing import NDArray

from sim_tb.testbench.barriers import Barriers
from sim_tb.testbench.bridge import (
    Bridge,
    Bytes,
    EventKind,
    EventRecord,
    LogKind,
    TimingRecord,
    pointer,
)
from sim_tb.testbench.descriptors import Descriptors
from sim_tb.testbench.error_records import ErrorRecords
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.events import TIMEOUT, Events
from sim_tb.testbench.global_memory import GlobalMemory
from sim_tb.testbench.interface import Interface, simulated_interface
from sim_tb.testbench.models import MEMORY_KINDS, PORTS, Models, Stall
from sim_tb.testbench.remote import RemoteOperations
from sim_tb.testbench.requests import RequestIds, Requests
from sim_tb.testbench.shared import DEFAULT_LOGS, SharedEnvironment

QUIET = 256
"""Default number of clocks without a transfer after which the unit counts as idle."""

OPEN = Stall(0)
"""A port that is never closed."""

IN_ORDER = ("descriptors", "smem")
"""Memories that answer in order."""


class Environment:
    """The testbench around the unit of one SM. ``start`` makes it for a unit that is alone.

    Members
    -------
    shared : SharedEnvironment
        The part of the testbench that all SMs share.
    interface : Interface
        Parameters and ports of the design.
    sm : int
        Number of the SM, which is the rank of its CTA in the cluster.
    seed : int
    smem : array of bytes
        Shared memory, barriers included. C++ reads and writes the same array.
    requests : Requests
    barriers : Barriers
    remote : RemoteOperations
        Operations on barriers and shared memory of other CTAs.
    descriptors : Descriptors
        Tensor maps, and the fences of the descriptor cache.
    errors : ErrorRecords
        Error records that the test has not taken yet.
    """

    def __init__(self, shared: SharedEnvironment, seed: int, sm: int = 0) -> None:
        self.shared = shared
        self.interface: Interface = shared.interface
        self.seed = seed
        self.sm = sm
        self.smem: Bytes = shared.smem[sm]
        self._bridge = Bridge(sm)
        enums = self.interface.enums
        ids = RequestIds(self.interface.parameters["request_id_bits"])
        self._events = Events(self._bridge, shared.ledger)
        self._events.handle(EventKind.FAILURE, self._report_failure)
        parameters = self.interface.parameters | self.interface.derived
        self.requests = Requests(self._bridge, self._events, ids, sm, enums, parameters)
        self.barriers = Barriers(self._bridge, self._events, self.smem, enums)
        self.remote = RemoteOperations(self._bridge, ids, enums["BarrierOp"])
        self.descriptors = Descriptors(self._bridge, self._events, shared.gmem)
        self.errors = ErrorRecords(self._events, enums["ErrorCode"], self.resume)
        shared.sms.append(self)

    @classmethod
    async def start(
        cls,
        dut: Any,
        models: Models | None = None,
        *,
        seed: int | None = None,
        background: str = "hash",
        logs: Sequence[LogKind] = DEFAULT_LOGS,
    ) -> "Environment":
        """Start the clock, and reset the unit and its testbench.

        Parameters
        ----------
        dut : handle
            cocotb's handle of the top module.
        models : Models, optional
            Memories and stalls; default ``Models()``.
        seed : int, optional
            Default: cocotb's.
        background : "hash", "fault" or "void"
            Global memory outside all arrays, see ``GlobalMemory``.
        logs : sequence of LogKind
            Transfers that are recorded.
        """
        shared = SharedEnvironment(dut, simulated_interface())
        env = cls(shared, cocotb.RANDOM_SEED if seed is None else seed)
        await shared.begin(models, background, logs)
        return env

    async def reset(
        self,
        models: Models | None = None,
        *,
        background: str = "hash",
        logs: Sequence[LogKind] = DEFAULT_LOGS,
    ) -> None:
        """Reset all SMs, see ``SharedEnvironment.reset``."""
        await self.shared.reset(models, background=background, logs=logs)

    @property
    def gmem(self) -> GlobalMemory:
        """Global memory, which all SMs share."""
        return self.shared.gmem

    def rng(self, name: str) -> np.random.Generator:
        """Return a new generator, seeded by ``seed``, ``name`` and the number of the SM."""
        place = [self.sm] if self.sm else []
        return np.random.default_rng([self.seed, crc32(name.encode()), *place])

    # Time

    @property
    def cycle(self) -> int:
        """Clock edges since reset; at an event, the edge at which it happened."""
        return self._events.cycle

    @property
    def not_before(self) -> int:
        """First cycle in which requests and barrier commands that are queued from now on may go to
        the unit. They go in the order of these cycles.
        """
        return self._bridge.not_before

    @not_before.setter
    def not_before(self, cycle: int) -> None:
        self._bridge.not_before = cycle

    async def cycles(self, count: int, *, watches: bool = False) -> None:
        """Wait for ``count`` clocks. ``watches``: it does not count as one of the ``timers``."""
        await self._events.cycles(count, watches=watches)

    async def pause(self, clocks: int) -> None:
        """Wait for ``clocks`` clocks, or until ``resume`` is called or an error record comes."""
        await self._events.pause(clocks)

    def resume(self) -> None:
        """End ``pause`` of the first SM, in which a run of several SMs waits."""
        self.shared.sms[0].end_pause()

    def end_pause(self) -> None:
        """End ``pause``, if a coroutine is there."""
        self._events.resume()

    @property
    def timers(self) -> int:
        """Number of coroutines that wait for time to pass, those that only watch left out."""
        return self._events.timers

    @property
    def timers_begun(self) -> int:
        """Number of such waits so far."""
        return self._events.timers_begun

    async def idle(
        self, quiet: int = QUIET, timeout: int | None = TIMEOUT, *, everywhere: bool = True
    ) -> None:
        """Wait until nothing is queued or in flight, and the unit says that it is idle.

        In addition, no port may have had a transfer for ``quiet`` clocks. Threads that wait at a
        barrier do not count; while there are some, the unit is not asked whether it is idle.

        Parameters
        ----------
        quiet, timeout : int
            Clocks. ``timeout`` None: wait for ever.
        everywhere : bool
            On all SMs; otherwise on this one.

        Raises
        ------
        WaitTimeoutError
            If that is not so within ``timeout`` clocks.
        """
        number = self._events.new_number()
        pending = self._events.expect(EventKind.IDLE, number, f"{quiet} quiet clocks")
        self._bridge.idle(quiet, number, everywhere)
        await self._events.wait(pending, timeout)

    def delay_answer(self, address: int, clocks: int | None) -> None:
        """Let the answer to the next access to a line come late.

        Parameters
        ----------
        address : int
            An address in the line.
        clocks : int, optional
            Clocks on top of the latency of its memory; None: the answer never comes.
        """
        never = (1 << 64) - 1
        line = address // self.interface.parameters["line_bytes"]
        self._bridge.delay(line, never if clocks is None else clocks)

    def use(self, models: Models) -> None:
        """Let memories and ports of this SM behave as ``models`` from now on, while it is idle."""
        for number, name in enumerate(MEMORY_KINDS):
            record = TimingRecord.of(getattr(models, name), name in IN_ORDER)
            self._bridge.timing(number, ctypes.byref(record), self._seed(f"memory{number}"))
        for number, name in enumerate(PORTS):
            stall = models.stalls.get(name, OPEN)
            self._bridge.stall(number, stall.share, stall.mean, self._seed(name))
        self._bridge.strays(models.strays, self._seed("strays"))

    # Logs

    def log(self, kind: LogKind) -> NDArray[Any]:
        """Return a copy of the log of ``kind``: an array with fields cycle, key and value."""
        return self._bridge.log(kind)

    def clear_log(self, kind: LogKind) -> None:
        """Clear the log of ``kind``."""
        self._bridge.clear_log(kind)

    def ledger(self) -> str:
        """Return everything that is outstanding at this SM, as text."""
        rows = [bytes(self._bridge.ledger()).decode().rstrip(), *self._events.outstanding()]
        return "\n".join([*rows, *(f"error record: {error}" for error in self.errors)])

    # Calls of the shared part

    def reset_sm(self, models: Models, logs: Sequence[LogKind]) -> None:
        """Reset the testbench of this SM while the unit is held in reset."""
        self._bridge.reset(
            *(
                self.interface.parameters[name]
                for name in ("line_bytes", "address_bits", "tags", "streams")
            ),
            self.interface.parameters["axi_data_bits"] > 0,  # tensor maps are read as lines
            self.interface.parameters["stores"],
            pointer(self.smem),
            self.smem.size,
        )
        self.use(models)
        self._events.reset()
        self.barriers.reset()
        self.errors.reset()
        self.not_before = 0
        self._bridge.log_kinds(sum(1 << kind for kind in logs))

    def handle_events(self) -> None:
        """Handle the events that C++ reported for this SM."""
        self._events.dispatch()

    def fail_waits(self, failure: CheckError) -> bool:
        """Raise ``failure`` in every coroutine that waits; return whether there was one."""
        return self._events.fail_waits(failure)

    def _report_failure(self, _: EventRecord) -> None:
        self.shared.fail(CheckError(bytes(self._bridge.failure()).decode()))

    def _seed(self, name: str) -> int:
        return int(self.rng(name).integers(1 << 63))
