"""What a run of a kernel leaves for its report."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim_tb.sm.kernel import check_limits, option
from sim_tb.sm.pipes import FMA_PER_CLOCK
from sim_tb.sm.smem import Ring
from sim_tb.sm.spans import Span
from sim_tb.testbench.models import MEMORIES, surroundings

Intervals = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Setting:
    """What surrounds a kernel.

    Parameters
    ----------
    memory : str
        As ``sim_tb.testbench.models.surroundings`` takes it.
    issue_interval : int
        Clocks between two instructions of a warp scheduler.
    watchdog : int
        Clocks without any progress that end the run.
    """

    memory: str = option(
        "l2", f"{', '.join(MEMORIES)}; and changes of it, such as dram,latency=600,bandwidth=0.5"
    )
    issue_interval: int = option(1, "clocks between two instructions of a warp scheduler")
    watchdog: int = option(20_000, "clocks without any progress that end the run")

    def validate(self) -> None:
        """See that all are within their limits.

        Raises
        ------
        ValueError
            Naming option, value and limit.
        """
        check_limits(self)
        surroundings(self.memory)


@dataclass(frozen=True)
class SmRecord:
    """Of one SM: what its warps did, and when its pipes were busy.

    ``flips``: cycles at which a phase of a barrier completed, with its name; ``waits``: how long
    warps waited for which barrier. ``lines_read`` and so on are the cycles at which the unit read a
    line, wrote a beat of shared memory, read one, wrote a line.
    """

    spans: list[Span]
    tensor_cores: Intervals
    scheduler: Intervals
    smem_port: Intervals
    mufu: Intervals
    flips: list[tuple[int, str]]
    waits: list[tuple[str, int]]
    lines_read: NDArray[np.uint64]
    beats_written: NDArray[np.uint64]
    beats_read: NDArray[np.uint64]
    lines_written: NDArray[np.uint64]
    load_bytes: int
    store_bytes: int
    fma: int
    bank_conflicts: int


@dataclass(frozen=True)
class RequestRecord:
    """A request of the unit: ``done`` is when its barrier's phase completed, or its group was
    waited for; None if neither happened.
    """

    text: str
    cta: int
    role: str
    cycle: int
    done: int | None
    tx_bytes: int


@dataclass(frozen=True)
class Record:
    """A run.

    ``error`` tells why it ended early; then ``check`` is empty, and the unit may be ``dirty``:
    requests are stuck in it. ``latency`` is the clocks from a line read to the line (the mean,
    where it varies).
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

    @property
    def choices(self) -> dict[str, Any]:
        """Options of the kernel and of what surrounds it, by name."""
        return {**self.options, **asdict(self.setting)}

    @property
    def title(self) -> str:
        """Kernel and options in one line."""
        return " ".join(
            [
                self.kernel,
                *(
                    f"--{name.replace('_', '-')} {value}"
                    for name, value in self.choices.items()
                    if value not in ("", None)
                ),
            ]
        )

    @property
    def failed(self) -> bool:
        """Whether it ended early, or with a wrong result."""
        return self.wrong or bool(self.error)

    def busy(self, pipe: str) -> float:
        """Share of all cycles in which a pipe of the SMs was busy: ``"tensor_cores"`` and so on."""
        total = 0
        for sm in self.sms:
            intervals: Intervals = getattr(sm, pipe)
            total += sum(end - start for start, end in intervals)
        return total / max(1, self.cycles * len(self.sms))

    def rate(self, activity: str) -> float:
        """Lines or beats per clock and SM: ``"lines_read"`` and so on."""
        total = sum(int(getattr(sm, activity).size) for sm in self.sms)
        return total / max(1, self.cycles * len(self.sms))

    @property
    def starved(self) -> float:
        """Share of the cycles from the first product to the end of the last in which the tensor
        cores had none; 0 without products.
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
        """Of the result's products, of all SMs."""
        return self.flops / max(1, self.cycles)

    @property
    def share_of_peak(self) -> float:
        """Of ``peak_flops_per_clock``."""
        return self.flops_per_clock / self.peak_flops_per_clock

    @property
    def peak_flops_per_clock(self) -> int:
        """What the tensor cores of all SMs can do."""
        return 2 * FMA_PER_CLOCK * len(self.sms)

    def total(self, name: str) -> int:
        """Sum over the SMs of ``"load_bytes"``, ``"fma"`` and so on."""
        return sum(int(getattr(sm, name)) for sm in self.sms)
