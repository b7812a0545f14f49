"""Sharing of the unit by streams of different boxes: line rates, and delays of small boxes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from golden import BulkLoad, Load, TensorMap
from hw.params import PRESETS, TmaParams
from sim_tb.performance.tb_fairness import BARRIER_BYTES, STREAM_BITS, Mix, Probe, Stream
from sim_tb.simulator import jobs

STREAMS = 4
PARAMS = replace(PRESETS["default"], streams=STREAMS)
MIN_SHARE = 0.9
"""Least rate of a stream, over its equal part, or over its rate alone if that is less."""

LARGEST = PRESETS["default"].smem_bytes - BARRIER_BYTES
OUTSTANDING = {16: 256, 1024: 64, 16384: 8, LARGEST: 2}
"""Outstanding requests of a stream, by the bytes of its boxes. They suffice for any share."""

REQUEST_KINDS = {
    "tensor": ("tensor",) * STREAMS,
    "bulk": ("bulk",) * STREAMS,
    "tensor and bulk": ("tensor", "bulk", "tensor", "bulk"),
    "bulk and tensor": ("bulk", "tensor", "bulk", "tensor"),
}
"""Kinds of requests of the streams, in the order of ``OUTSTANDING``."""

MAX_EXTRA_CLOCKS = 16
"""Most clocks that a small box may take longer while large boxes are loaded."""


TINY_BOXES = 128
"""Outstanding requests of a stream of boxes of 16 bytes."""

ADVERSARIES = {
    "boxes outside": 80,  # a stretch of fill has up to 64 beats
    "columns of pixels outside": 80,
    "boxes of 16 bytes": 2 * (STREAMS - 1) * TINY_BOXES,  # two operations on a barrier for each
    "maps that are not cached": 1200,  # four fetches, of requests in front of the cache
}
"""Ways in which three streams delay a small box of the fourth, and most clocks of the delay."""


@dataclass(frozen=True)
class LineRates:
    """Lines a clock of each stream, shared with the other streams and alone, by bytes of a box."""

    shared: Mapping[int, float]
    alone: Mapping[int, float]

    def bound(self, size: int) -> float:
        """Return the least rate of the stream whose boxes have ``size`` bytes."""
        return MIN_SHARE * min(1 / len(self.shared), self.alone[size])


def load_of(kind: str, number: int, size: int) -> Load | BulkLoad:
    """Return a load of ``size`` bytes from the addresses of stream ``number``."""
    base = number << STREAM_BITS + 7
    if kind == "bulk":
        return BulkLoad(base, 0, size)
    width = min(size, 128)
    rows = min(size // width, 256)
    box = width, rows, size // width // rows
    tensor_map = TensorMap.tiled("u8", base, (128, 256, 64), (128, 128 << 8), box)
    return Load(tensor_map, (0, 0, 0))


def streams_of(kinds: tuple[str, ...]) -> list[Stream]:
    """Return a stream for each size of boxes."""
    return [
        Stream(number, load_of(kind, number, size), size, outstanding)
        for number, (kind, (size, outstanding)) in enumerate(
            zip(kinds, OUTSTANDING.items(), strict=True)
        )
    ]


def line_rates(params: TmaParams = PARAMS) -> dict[str, LineRates]:
    """Measure the rates of the streams, by the name of ``REQUEST_KINDS``."""
    mixes: list[Mix] = []
    for kinds in REQUEST_KINDS.values():
        mixes.append(Mix(tuple(streams_of(kinds))))
        mixes += [Mix((stream,)) for stream in streams_of(kinds)]
    answers = jobs.results("sim_tb.performance.tb_fairness", mixes, env={}, params=params)
    rates = {}
    for name in REQUEST_KINDS:
        shared = dict(zip(OUTSTANDING, next(answers).values(), strict=True))
        alone = {size: next(answers)[number] for number, size in enumerate(OUTSTANDING)}
        rates[name] = LineRates(shared, alone)
    return rates


def small_box_latencies(
    params: TmaParams = PARAMS,
) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
    """Measure the clocks of single loads of 16 bytes, by their kind and that of the large boxes.

    The first list is for the loads alone, the second while the largest boxes are loaded in
    another stream.
    """
    probes, names = [], []
    for kind in ("tensor", "bulk"):
        for large in ("tensor", "bulk"):
            small = Stream(0, load_of(kind, 0, 16), 16, 1)
            other = Stream(1, load_of(large, 1, LARGEST), LARGEST, OUTSTANDING[LARGEST])
            probes += [Probe(small, ()), Probe(small, (other,))]
            names.append((kind, large))
    answers = jobs.results("sim_tb.performance.tb_fairness", probes, env={}, params=params)
    return {name: (next(answers), next(answers)) for name in names}


def adversary(name: str, number: int) -> Stream:
    """Return the stream of an adversary, by its name in ``ADVERSARIES``."""
    base = number << STREAM_BITS + 7
    tiny = load_of("tensor", number, 16)
    if name == "boxes of 16 bytes":
        return Stream(number, tiny, 16, TINY_BOXES)
    if name == "maps that are not cached":
        return Stream(number, tiny, 16, 64, maps=3 * PARAMS.descriptor_cache_entries)
    if name == "boxes outside":
        matrix = TensorMap.tiled("u8", base, (128, 256, 64), (128, 128 << 8), (128, 256, 4))
        return Stream(number, Load(matrix, (-128, 0, 0)), 1 << 17, 2)
    # Each pixel is the last one of its row, and all are outside.
    image = TensorMap.im2col("u8", base, (16, 1, 64, 64), (16, 16, 1024), (0, 0), (0, 0), 16, 1024)
    return Stream(number, Load(image, (16, 0, 0, 0)), 1 << 14, 8)


def adverse_latencies(params: TmaParams = PARAMS) -> dict[str, tuple[list[int], list[int]]]:
    """Measure the clocks of single loads of 16 bytes, alone and beside three equal adversaries."""
    small = Stream(0, load_of("tensor", 0, 16), 16, 1)
    probes = [Probe(small, ())]
    for name in ADVERSARIES:
        others = tuple(adversary(name, number) for number in range(1, STREAMS))
        probes.append(Probe(small, others))
    answers = jobs.results("sim_tb.performance.tb_fairness", probes, env={}, params=params)
    alone = next(answers)
    return {name: (alone, next(answers)) for name in ADVERSARIES}
