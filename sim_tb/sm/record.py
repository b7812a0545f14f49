"""Record of a kernel's run, from which the report is made."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim_tb.sm.options import OptionError, check_limits, option
from sim_tb.sm.pipes import FMA_PER_CLOCK
from sim_tb.sm.smem import Ring
from sim_tb.sm.spans import Span
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.models import MEMORIES, surroundings

Intervals = Sequence[tuple[int, int]]

LOGS = {
    "lines_read": LogKind.LINE,
    "beats_written": LogKind.BEAT,
    "beats_read": LogKind.READ,
    "lines_written": LogKind.STORE,
}
"""Transfers that the testbench records, by the member of ``SmRecord``."""


@dataclass(frozen=True)
class Setting:
    """Surroundings of a kernel's run.

    Parameters
    ----------
    memory : str
        Memory models, in the syntax of ``sim_tb.testbench.models.surroundings``.
    issue_interval : int
        Clocks from one instruction of a warp scheduler to the next.
    watchdog : int
        Clocks without progress after which the run is ended.
    schedule : int, optional
        Seed of a random schedule: delays of the warps, latencies and stalls. None: no delays, and
        the latencies of ``memory``.
    """

    memory: str = option(
        "l2",
        f"memory model: {', '.join(MEMORIES)}, with changes such as dram,latency=600,bandwidth=0.5",
        separator="/",
    )
    issue_interval: int = option(1, "clocks from one instruction of a warp scheduler to the next")
    watchdog: int = option(20_000, "clocks without progress after which the run is ended")
    schedule: int | None = option(
        None, "seed of a random schedule: delays of the warps, latencies and stalls", least=0
    )

    def validate(self) -> None:
        """Check that the settings are within their limits.

        Raises
        ------
        OptionError
            If a setting is wrong.
        """
        check_limits(self)
        try:
            surroundings(self.memory)
        except ValueError as error:
            raise OptionError("memory", self.memory, str(error)) from error


@dataclass(frozen=True)
class SmRecord:
    """Activities of one SM.

    Members
    -------
    spans : list of Span
        Activities of the warpgroups.
    tensor_cores, scheduler, smem_port, mufu : sequence of (int, int)
        Busy intervals of the pipes: first cycle, and the cycle after the last.
    phase_completions : list of (int, str)
        Cycle and name of the barrier of each completed phase.
    waits : list of (str, int)
        Name of the barrier and clocks of each wait.
    lines_read, beats_written, beats_read, lines_written : array
        Cycles in which the unit read a line of global memory, wrote a beat of shared memory, read a
        beat of shared memory, and wrote a line of global memory.
    load_bytes : int
        Bytes that its loads wrote to shared memory, in all receivers together.
    store_bytes : int
        Bytes that the unit wrote to global memory.
    fma : int
        Multiply-adds.
    bank_conflicts : int
        Clocks lost to bank conflicts of the warpgroups.
    counts : dict of str to int
        Counts of the unit by name; empty if it has no counters.
    trace : bytes
        Records of the unit's events, if it has counters.
    """

    spans: list[Span]
    tensor_cores: Intervals
    scheduler: Intervals
    smem_port: Intervals
    mufu: Intervals
    phase_completions: list[tuple[int, str]]
    waits: list[tuple[str, int]]
    lines_read: NDArray[np.uint64]
    beats_written: NDArray[np.uint64]
    beats_read: NDArray[np.uint64]
    lines_written: NDArray[np.uint64]
    load_bytes: int
    store_bytes: int
    fma: int
    bank_conflicts: int
    counts: dict[str, int] = field(default_factory=dict)
    trace: bytes = b""

    def until(self, end: int) -> "SmRecord":
        """Return the record without activities that warpgroups planned for ``end`` and later."""

        def cut(intervals: Intervals) -> Intervals:
            return [(first, min(after, end)) for first, after in intervals if first < end]

        return replace(
            self,
            spans=[
                span._replace(end=min(span.end, end)) for span in self.spans if span.start < end
            ],
            tensor_cores=cut(self.tensor_cores),
            scheduler=cut(self.scheduler),
            smem_port=cut(self.smem_port),
            mufu=cut(self.mufu),
        )


@dataclass(frozen=True)
class RequestRecord:
    """A request to the unit.

    Members
    -------
    text : str
        Instruction, tensor and coordinates.
    cta : int
    role : str
    cycle : int
        Cycle in which the request was issued.
    done : int, optional
        Cycle in which the phase of the barrier completed, or a wait for the bulk group returned.
        None: neither happened.
    tx_bytes : int
        Bytes that the barrier of a load counts. 0: the request is a store.
    """

    text: str
    cta: int
    role: str
    cycle: int
    done: int | None
    tx_bytes: int


def as_options(values: Mapping[str, Any]) -> str:
    """Return options and settings as on the command line, without those that are empty."""
    return " ".join(
        f"--{name.replace('_', '-')} {value}"
        for name, value in values.items()
        if value not in ("", None)
    )


@dataclass(frozen=True)
class Record:
    """A run of a kernel.

    Members
    -------
    kernel, summary : str
        Name of the kernel, and what it computes.
    options : dict
        Options of the kernel.
    setting : Setting
    latency : float
        Mean clocks from the request of a line to its data.
    cycles : int
    seconds : float
        Duration of the simulation.
    check : str
        Outcome of the check; empty if the run ended early.
    wrong : bool
        The result is wrong.
    error : str
        Reason why the run ended early; empty if it did not.
    dirty : bool
        Requests are stuck in the unit, so that it cannot be reset.
    flops : int
    smem_bytes : int
        Bytes of shared memory that the kernel allocated.
    sms : list of SmRecord
    requests : list of RequestRecord
    rings : list of Ring
    outputs : dict of str to array
        Contents of all tensors at the end, by name, if the kernel was run with arrays as inputs.
    """

    kernel: str
    summary: str
    options: dict[str, Any]
    setting: Setting
    latency: float
    cycles: int
    seconds: float
    check: str
    wrong: bool
    error: str
    dirty: bool
    flops: int
    smem_bytes: int
    sms: list[SmRecord]
    requests: list[RequestRecord] = field(default_factory=list)
    rings: list[Ring] = field(default_factory=list)
    outputs: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def choices(self) -> dict[str, Any]:
        """Options of the kernel and settings, by name."""
        return {**self.options, **asdict(self.setting)}

    @property
    def title(self) -> str:
        """Kernel, options and settings in one line, as on the command line."""
        return f"{self.kernel} {as_options(self.choices)}"

    def until_failure(self) -> "Record":
        """Return the record of a run that ended early, without activities that it only planned."""
        return replace(self, sms=[sm.until(self.cycles) for sm in self.sms])

    @property
    def failed(self) -> bool:
        """True if the run ended early, or with a wrong result."""
        return self.wrong or bool(self.error)

    def busy(self, pipe: str) -> float:
        """Return the share of cycles in which a pipe was busy, the mean over the SMs.

        ``pipe`` is ``"tensor_cores"``, ``"scheduler"``, ``"smem_port"`` or ``"mufu"``.
        """
        total = 0
        for sm in self.sms:
            intervals: Intervals = getattr(sm, pipe)
            total += sum(end - start for start, end in intervals)
        return total / max(1, self.cycles * len(self.sms))

    def rate(self, activity: str) -> float:
        """Return lines or beats per clock and SM.

        ``activity`` is ``"lines_read"``, ``"beats_written"``, ``"beats_read"`` or
        ``"lines_written"``.
        """
        total = sum(int(getattr(sm, activity).size) for sm in self.sms)
        return total / max(1, self.cycles * len(self.sms))

    @property
    def starvation(self) -> float:
        """Share of cycles, from the first product to the end of the last, without a product.

        It is 0 if there are no products at all.
        """
        idle = total = 0
        for sm in self.sms:
            if sm.tensor_cores:
                lasted = sm.tensor_cores[-1][1] - sm.tensor_cores[0][0]
                total += lasted
                idle += lasted - sum(end - start for start, end in sm.tensor_cores)
        return idle / total if total else 0.0

    @property
    def flops_per_clock(self) -> float:
        """Floating-point operations per clock, of all SMs."""
        return self.flops / max(1, self.cycles)

    @property
    def share_of_peak(self) -> float:
        """Share of ``peak_flops_per_clock`` that was reached."""
        return self.flops_per_clock / self.peak_flops_per_clock

    @property
    def peak_flops_per_clock(self) -> int:
        """Most floating-point operations per clock, of the tensor cores of all SMs."""
        return 2 * FMA_PER_CLOCK * len(self.sms)

    def total(self, name: str) -> int:
        """Return the sum over the SMs of a number, such as ``"load_bytes"`` or ``"fma"``."""
        return sum(int(getattr(sm, name)) for sm in self.sms)
