"""Behaviour of the testbench around the unit: timing of memories, stalls of ports."""

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
"""Streams that the testbench drives."""

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
    "trace",
)
"""Streams that the testbench receives. ``reduction_request`` and ``reduction_done`` belong to the
reduction unit at memory."""

PORTS = SOURCES + SINKS
"""All streams, in the order of their numbers in C++."""

MEMORY_KINDS = ("lines", "descriptors", "smem", "stores")
"""Memories that have a timing of their own, in the order of their numbers in C++."""

BACKGROUNDS = ("hash", "fault", "void")
"""Kinds of global memory outside all arrays, in the order of their numbers in C++."""

LATENCY = 300
"""Default latency of a line read, in clocks: about an L2 hit."""

SMEM_LATENCY = 12
"""Default latency of a read of shared memory, in clocks."""

DESCRIPTOR_LATENCY = 250
"""Default latency of the fetch of a tensor map, in clocks: the least cost of a miss on silicon."""


@dataclass(frozen=True)
class Timing:
    """Latency, order and bandwidth of a memory's answers.

    Parameters
    ----------
    low, high : int
        Clocks from the transfer of a request to its response on the port, drawn uniformly from
        ``low`` to ``high``; at least 1.
    period : int
        Responses become ready only at clocks that are multiples of ``period``, so they come in
        bursts.
    window : int
        The next response is drawn from the ``window`` oldest ready responses.
    in_flight : int, optional
        The memory accepts no request while ``in_flight`` requests are unanswered.
    bandwidth : float
        Requests accepted per clock on average, above 0 and up to 1.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
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
    def fixed(cls, latency: int) -> "Timing":
        """Return a constant latency, which keeps the order of the requests."""
        return cls(latency, latency)

    @classmethod
    def random(cls, low: int, high: int) -> "Timing":
        """Return random latencies from ``low`` to ``high``, which reorder the answers."""
        return cls(low, high)

    @classmethod
    def bursty(cls, latency: int, period: int) -> "Timing":
        """Return bursts: no answer for up to ``period`` clocks, then all that are due."""
        return cls(latency, latency, period=period)

    @classmethod
    def shuffled(cls, latency: int, window: int, period: int = 64) -> "Timing":
        """Return bursts of answers in random order, each up to ``window`` places early or late."""
        return cls(latency, latency, period=period, window=window)


@dataclass(frozen=True)
class Stall:
    """Random back-pressure of a port.

    Parameters
    ----------
    share : float
        Share of the clocks in which the port is closed, at least 0 and below 1.
    mean : float
        Mean length of a run of closed clocks, at least 1; or 0, where each clock is drawn
        independently.
    """

    share: float
    mean: float = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1 or (self.mean != 0 and self.mean < 1):
            raise ValueError(f"{self}: share must be in [0, 1), mean 0 or at least 1")


@dataclass(frozen=True)
class Models:
    """Memories and ports around the unit of one SM.

    Parameters
    ----------
    lines : Timing
        Line reads.
    descriptors : Timing
        Fetches of tensor maps, answered in order.
    smem : Timing
        Reads of shared memory, answered in order.
    stores : Timing
        Stores and reductions of lines. They take effect when they are answered.
    stalls : dict
        Port name to ``Stall``.
    strays : float
        Share of the clocks, at least 0 and below 1, in which memory offers an answer that belongs
        to no access: of an access that was in flight at the last reset, of the access that was
        answered last, or of any tag. It never has a tag that is in flight. The unit must give an
        error record (WRONG_TAG) for each; the testbench checks that, and tests do not see these
        records. Answers may come while the unit starts.

    Raises
    ------
    ValueError
        If a stall is of an unknown port, or ``strays`` is out of its range.
    """

    lines: Timing = field(default_factory=lambda: Timing.fixed(LATENCY))
    descriptors: Timing = field(default_factory=lambda: Timing.fixed(DESCRIPTOR_LATENCY))
    smem: Timing = field(default_factory=lambda: Timing.fixed(SMEM_LATENCY))
    stores: Timing = field(default_factory=lambda: Timing.fixed(LATENCY))
    stalls: dict[str, Stall] = field(default_factory=dict)
    strays: float = 0

    def __post_init__(self) -> None:
        unknown = set(self.stalls) - set(PORTS)
        if unknown:
            names = ", ".join(sorted(unknown))
            raise ValueError(f"stalls of {names}: must be of ports: {', '.join(PORTS)}")
        if not 0 <= self.strays < 1:
            raise ValueError(f"strays = {self.strays}: must be in [0, 1)")

    def stalling(self, share: float, mean: float = 0) -> "Models":
        """Return these models with every port stalled."""
        return replace(self, stalls=dict.fromkeys(PORTS, Stall(share, mean)))


PRESETS = {
    "fixed": Models(),
    "near": Models(Timing.fixed(8), Timing.fixed(8), Timing.fixed(1), Timing.fixed(1)),
    "random": Models(
        Timing.random(20, 500),
        Timing.random(10, 400),
        Timing.random(1, 40),
        Timing.random(20, 500),
    ),
    "bursty": Models(
        Timing.bursty(100, 64),
        Timing.bursty(100, 64),
        Timing.bursty(4, 16),
        Timing.bursty(100, 64),
    ),
    "shuffled": Models(
        Timing.shuffled(40, 64),
        Timing.random(10, 400),
        Timing.fixed(30),
        Timing.shuffled(40, 64),
    ),
    "rough": Models(
        Timing.random(1, 300),
        Timing.random(1, 300),
        Timing.random(1, 30),
        Timing.random(1, 300),
    ).stalling(0.3),
    "choked": Models(
        Timing(30, 90, window=16, in_flight=16, bandwidth=0.5),
        Timing.random(1, 50),
        Timing(1, 9, bandwidth=0.5),
        Timing(30, 90, window=16, in_flight=16, bandwidth=0.5),
    ).stalling(0.5, mean=8),
}
PRESETS["stray"] = replace(PRESETS["rough"], strays=0.05)
"""Named models for command lines. ``rough``: random, out of order, every port stalled;
``stray``: as ``rough``, and some answers belong to no access.
"""

MEMORIES = {
    "l2": Models(),
    "dram": Models(lines=Timing.random(510, 850), descriptors=Timing.random(440, 880)),
    **{name: PRESETS[name] for name in ("near", "random", "bursty", "shuffled", "rough", "choked")},
}
"""Named models for kernels. ``l2`` and ``dram`` have latencies measured on an H200, see
``tests/silicon/README.md``.
"""


def surroundings(text: str) -> Models:
    """Return the models that the option ``--memory`` names.

    Parameters
    ----------
    text : str
        A name of ``MEMORIES``, changes of its timing, or both, separated by commas: ``l2``,
        ``dram,bandwidth=0.5``, ``latency=600``. ``latency`` (of lines and stores) and
        ``descriptor`` are clocks from request to answer; ``bandwidth`` is lines per clock.

    Raises
    ------
    ValueError
        If the name or a change is unknown, or a number is out of its range.
    """
    name, *changes = text.split(",")
    if "=" in name:
        name, changes = "l2", [name, *changes]
    if name not in MEMORIES:
        raise ValueError(f"{name!r}: must be one of {', '.join(MEMORIES)}")
    models = MEMORIES[name]
    for change in changes:
        key, _, value = change.partition("=")
        try:
            number = float(value) if key == "bandwidth" else int(value)
        except ValueError:
            raise ValueError(f"{change!r}: must have a number after =") from None
        if key == "latency":
            fixed = {"low": int(number), "high": int(number)}
            lines, stores = replace(models.lines, **fixed), replace(models.stores, **fixed)
            models = replace(models, lines=lines, stores=stores)
        elif key == "descriptor":
            models = replace(models, descriptors=Timing.fixed(int(number)))
        elif key == "bandwidth":
            lines = replace(models.lines, bandwidth=number)
            models = replace(models, lines=lines, stores=replace(models.stores, bandwidth=number))
        else:
            raise ValueError(f"{change!r}: must be latency=, descriptor= or bandwidth=")
    return models
