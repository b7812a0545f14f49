"""How streams of different boxes share the unit: their rates, and what a small box waits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from golden import BulkLoad, Load, TensorMap
from hw.params import PRESETS, TmaParams
from sim_tb.performance.tb_fairness import BARRIER_BYTES, STREAM_BITS, Mix, Probe, Stream
from sim_tb.simulator import jobs

STREAMS = 4
PARAMS = replace(PRESETS["default"], streams=STREAMS)
SHARE = 0.9
"""Of a stream's part, or of its rate alone if that is less."""

LARGEST = PRESETS["default"].smem_bytes - BARRIER_BYTES
SIZES = {16: 256, 1024: 64, 16384: 8, LARGEST: 2}
"""Bytes of a box, and how many are outstanding: enough for any share, by themselves."""

KINDS = {
    "tensor": ("tensor",) * STREAMS,
    "bulk": ("bulk",) * STREAMS,
    "tensor and bulk": ("tensor", "bulk", "tensor", "bulk"),
    "bulk and tensor": ("bulk", "tensor", "bulk", "tensor"),
}
MORE = 16
"""Clocks that a small box may take longer while large ones are loaded."""


@dataclass(frozen=True)
class Shares:
    """Lines a clock of each stream, by the bytes of its boxes: with the others, and alone."""

    together: Mapping[int, float]
    alone: Mapping[int, float]

    def due(self, size: int) -> float:
        """What a stream is to have at least."""
        return SHARE * min(1 / len(self.together), self.alone[size])


def load_of(kind: str, number: int, size: int) -> Load | BulkLoad:
    """A box of ``size`` bytes in the memory of stream ``number``."""
    base = number << STREAM_BITS + 7
    if kind == "bulk":
        return BulkLoad(base, 0, size)
    width = min(size, 128)
    rows = min(size // width, 256)
    box = width, rows, size // width // rows
    tensor_map = TensorMap.tiled("u8", base, (128, 256, 64), (128, 128 << 8), box)
    return Load(tensor_map, (0, 0, 0))


def streams(kinds: tuple[str, ...]) -> list[Stream]:
    """Of each size one."""
    return [
        Stream(number, load_of(kind, number, size), size, outstanding)
        for number, (kind, (size, outstanding)) in enumerate(zip(kinds, SIZES.items(), strict=True))
    ]


def mixes(params: TmaParams = PARAMS) -> dict[str, Shares]:
    """How the streams share the lines, by what they are."""
    work: list[Mix] = []
    for kinds in KINDS.values():
        work.append(Mix(tuple(streams(kinds))))
        work += [Mix((stream,)) for stream in streams(kinds)]
    answers = jobs.results("sim_tb.performance.tb_fairness", work, env={}, params=params)
    found = {}
    for name in KINDS:
        together = dict(zip(SIZES, next(answers).values(), strict=True))
        alone = {size: next(answers)[number] for number, size in enumerate(SIZES)}
        found[name] = Shares(together, alone)
    return found


def waits(params: TmaParams = PARAMS) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
    """Clocks of single boxes of 16 bytes, by what they are and what the large boxes are: alone, and
    while boxes of the largest size are loaded in another stream.
    """
    work, names = [], []
    for kind in ("tensor", "bulk"):
        for large in ("tensor", "bulk"):
            small = Stream(0, load_of(kind, 0, 16), 16, 1)
            other = Stream(1, load_of(large, 1, LARGEST), LARGEST, SIZES[LARGEST])
            work += [Probe(small, ()), Probe(small, (other,))]
            names.append((kind, large))
    answers = jobs.results("sim_tb.performance.tb_fairness", work, env={}, params=params)
    return {name: (next(answers), next(answers)) for name in names}
