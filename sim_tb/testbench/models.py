"""What the bench does around the unit: latency and order of memories, stalls of ports."""

from dataclasses import dataclass, field, replace

SOURCES = (
    "request",
    "descriptor_prefetch",
    "descriptor_invalidate",
    "descriptor_fill",
    "gnic_response",
    "barrier_command",
    "smem_data",
    "gnic_ack",
    "reduction_request",
    "remote_command",
    "remote_store",
)
"""Streams that the bench drives, in the order of their numbers in ``dpi/testbench.cpp``."""

SINKS = (
    "error",
    "descriptor_request",
    "gnic_request",
    "smem_write",
    "barrier_result",
    "smem_read",
    "gnic_write",
    "group_result",
    "reduction_done",
    "barrier_wake",
)
"""Streams that the bench takes; their numbers follow those of the sources. ``reduction_request``
and ``reduction_done`` are those of the reduction unit at memory."""

PORTS = SOURCES + SINKS

LATENCY = 300
"""Clocks from a line read to the line, unless told otherwise: about an L2 hit."""

SMEM_LATENCY = 12
"""Clocks from a read of shared memory to its answer, unless told otherwise."""

DESCRIPTOR_LATENCY = 250
"""Clocks from the fetch of a tensor map to its words: what a miss costs on silicon, at least."""


@dataclass(frozen=True)
class Memory:
    """When a memory answers.

    Parameters
    ----------
    low, high : int
        Clocks from the transfer of a request to its response on the port; uniform, at least 1.
    period : int
        Responses become ready at clocks that are multiples of it, and so come in bursts.
    window : int
        The next response is drawn from so many of the oldest ready ones.
    in_flight : int, optional
        The memory takes no request while so many are unanswered.
    bandwidth : float
        Requests taken per clock on average, above 0 and up to 1.
    """

    low: int
    high: int
    period: int = 1
    window: int = 1
    in_flight: int | None = None
    bandwidth: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"latency from {self.low} to {self.high}: must be 1 <= low <= high")
        if self.period < 1 or self.window < 1 or (self.in_flight or 1) < 1:
            raise ValueError(f"{self}: period, window and in_flight must be at least 1")
        if not 0 < self.bandwidth <= 1:
            raise ValueError(f"bandwidth {self.bandwidth}: must be above 0 and up to 1")

    @classmethod
    def fixed(cls, latency: int) -> "Memory":
        """Always the same latency, so in the order of the requests."""
        return cls(latency, latency)

    @classmethod
    def random(cls, low: int, high: int) -> "Memory":
        """Any latency from ``low`` to ``high``, in the order that results from it."""
        return cls(low, high)

    @classmethod
    def bursty(cls, latency: int, period: int) -> "Memory":
        """Nothing for up to ``period`` clocks, then everything that is due."""
        return cls(latency, latency, period=period)

    @classmethod
    def shuffled(cls, latency: int, window: int, period: int = 64) -> "Memory":
        """Bursts whose answers leave in random order, up to ``window`` places early or late."""
        return cls(latency, latency, period=period, window=window)


@dataclass(frozen=True)
class Stall:
    """A port that is closed for a ``share`` of the clocks, below 1, in stretches of mean length
    ``mean`` (0: each clock by itself).
    """

    share: float
    mean: float = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1 or (self.mean != 0 and self.mean < 1):
            raise ValueError(f"{self}: share must be in [0, 1), mean 0 or at least 1")


@dataclass(frozen=True)
class Models:
    """Everything around the unit.

    ``lines`` answers the line reads, ``descriptors`` the fetches of tensor maps, ``smem`` the reads
    of shared memory (both in order), and ``stores`` performs the writes of lines and answers them;
    ``stalls`` by port name.
    """

    lines: Memory = field(default_factory=lambda: Memory.fixed(LATENCY))
    descriptors: Memory = field(default_factory=lambda: Memory.fixed(DESCRIPTOR_LATENCY))
    smem: Memory = field(default_factory=lambda: Memory.fixed(SMEM_LATENCY))
    stores: Memory = field(default_factory=lambda: Memory.fixed(LATENCY))
    stalls: dict[str, Stall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.stalls) - set(PORTS)
        if unknown:
            raise ValueError(f"no ports {sorted(unknown)}: there are {', '.join(PORTS)}")

    def stalling(self, share: float, mean: float = 0) -> "Models":
        """The same with every port stalled."""
        return replace(self, stalls=dict.fromkeys(PORTS, Stall(share, mean)))


PRESETS = {
    "fixed": Models(),
    "near": Models(Memory.fixed(8), Memory.fixed(8), Memory.fixed(1), Memory.fixed(1)),
    "random": Models(
        Memory.random(20, 500), Memory.random(10, 400), Memory.random(1, 40), Memory.random(20, 500)
    ),
    "bursty": Models(
        Memory.bursty(100, 64), Memory.bursty(100, 64), Memory.bursty(4, 16), Memory.bursty(100, 64)
    ),
    "shuffled": Models(
        Memory.shuffled(40, 64), Memory.random(10, 400), Memory.fixed(30), Memory.shuffled(40, 64)
    ),
    "rough": Models(
        Memory.random(1, 300), Memory.random(1, 300), Memory.random(1, 30), Memory.random(1, 300)
    ).stalling(0.3),
    "choked": Models(
        Memory(30, 90, window=16, in_flight=16, bandwidth=0.5),
        Memory.random(1, 50),
        Memory(1, 9, bandwidth=0.5),
        Memory(30, 90, window=16, in_flight=16, bandwidth=0.5),
    ).stalling(0.5, mean=8),
}
"""Named surroundings of the command lines. ``rough``: random, out of order, every port stalled."""

MEMORIES = {
    "l2": Models(),
    "dram": Models(lines=Memory.random(510, 850), descriptors=Memory.random(440, 880)),
    **{name: PRESETS[name] for name in ("near", "random", "bursty", "shuffled", "rough", "choked")},
}
"""Surroundings of kernels: ``l2`` and ``dram`` are as measured on an H200, see
``tests/silicon/README.md``.
"""


def surroundings(text: str) -> Models:
    """The surroundings that ``--memory`` names: a name of ``MEMORIES``, and changes of it.

    ``l2``, ``dram,bandwidth=0.5``, ``latency=600``: latency and descriptor are clocks from request
    to answer, bandwidth is lines per clock.

    Raises
    ------
    ValueError
        If it is nothing like that.
    """
    name, *changes = text.split(",")
    if "=" in name:
        name, changes = "l2", [name, *changes]
    if name not in MEMORIES:
        raise ValueError(f"memory = {name}: must be one of {', '.join(MEMORIES)}")
    models = MEMORIES[name]
    for change in changes:
        key, _, value = change.partition("=")
        try:
            number = float(value) if key == "bandwidth" else int(value)
        except ValueError:
            raise ValueError(f"memory: {change}: must be a number behind =") from None
        if key == "latency":
            fixed = {"low": int(number), "high": int(number)}
            lines, stores = replace(models.lines, **fixed), replace(models.stores, **fixed)
            models = replace(models, lines=lines, stores=stores)
        elif key == "descriptor":
            models = replace(models, descriptors=Memory.fixed(int(number)))
        elif key == "bandwidth":
            lines = replace(models.lines, bandwidth=number)
            models = replace(models, lines=lines, stores=replace(models.stores, bandwidth=number))
        else:
            raise ValueError(f"memory: {change}: must be latency=, descriptor= or bandwidth=")
    return models
