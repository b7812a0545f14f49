"""Times of instructions on the behavioural SM, beside those of the silicon.

Two kernels execute instructions of barriers, fences, tensor maps, DSMEM and multicast, and record
the clocks that these take. ``ROWS`` has the recordings of the same instructions on an H200, in
tests/silicon/latency.csv and latency_cluster.csv.
"""

import csv
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import DataType, ReductionOp
from hw.params import PRESETS, TmaParams
from sim_tb.performance.microbenchmarks import MeasurementError
from sim_tb.performance.series import SILICON
from sim_tb.report.markdown import table
from sim_tb.sm import launch
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.record import Setting
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout, Tile
from sim_tb.sm.spans import Span
from sim_tb.sm.warps import Role, Warpgroup

TRACK = "times"
"""Track of the spans that are measurements."""

MANY = 16
"""Instructions in a row."""

COPY_BYTES = 16, 1024, 4096, 16384
"""Sizes of DSMEM copies there and back."""

BOX_LINES = 1, 8, 128
"""Lines of the boxes of single loads and stores."""

LINE_BYTES = 128
LINES = max(BOX_LINES), LINE_BYTES
"""Shape of a tile that holds all lines."""

BOX_BYTES = 16384
TILE = BOX_BYTES // PIECE_BYTES, PIECE_BYTES
"""Shape of a tile of bytes that holds a box."""

BOXES = 4, 12
"""Copies or boxes in a row. The difference of both times is the time of copies in steady state."""

CTAS = 4
EQUAL = 0.94, 1.06
"""Bounds of a time over the silicon's, for costs of the SM and for loads from the memory model."""

AHEAD = 0.0, 1.0
"""Bounds of a time over the silicon's, for what the unit does."""

ISSUE = 0.0, 8.0
"""Bounds where the recording only shows that the instructions do not hold up their thread: here
they take a slot each."""

FIGURE = re.compile(r"(\w+)=([\d.]+)")


@dataclass(frozen=True)
class Row:
    """An operation that was measured on the SM and on the silicon.

    Parameters
    ----------
    operation : str
        Text of the table.
    recordings : tuple of str
        Names of recordings of the silicon. The fastest one counts.
    bounds : (float, float)
        Least and most value of the time over the silicon's.
    figure : str
        Name of the figure of the recordings.
    size : int
        Bytes that are moved, if the table also has bytes a clock; otherwise 0.
    """

    operation: str
    recordings: tuple[str, ...]
    bounds: tuple[float, float]
    figure: str = "median"
    size: int = 0

    @property
    def silicon(self) -> float:
        """Clocks of the silicon."""
        return min(recorded()[name][self.figure] for name in self.recordings)

    def cell(self, clocks: float) -> str:
        """Return clocks as a cell of the table."""
        text = f"{clocks:,.0f}" if clocks == int(clocks) else f"{clocks:,.1f}"
        return f"{text} ({self.size / clocks:.1f} bytes a clock)" if self.size else text


def round_trip(operation: str, recording: str) -> Row:
    """Return the row of an operation to another CTA and back, which one CTA waits for."""
    waits = tuple(f"round trip,{recording} {wait}" for wait in ("test_wait", "try_wait"))
    return Row(f"{operation}, there and back", waits, AHEAD)


def store_wait(instruction: str, size: int) -> Row:
    """Return the row of a bulk store of ``size`` bytes and the wait for it."""
    operation = f"bulk store of {size:,} bytes, to the end of `{instruction}`"
    return Row(operation, (f"to {instruction},store {size}",), AHEAD)


def tensor_store(lines: int) -> Row:
    """Return the row of a tensor store of ``lines`` lines and the wait for its reads."""
    operation = f"tensor store of {line_count(lines)}, to the end of `wait_group.read`"
    return Row(operation, (f"tensor store, to the end of wait_group.read,{lines}",), AHEAD)


def line_count(lines: int) -> str:
    """Return a number of lines in words."""
    return f"{lines} line{'s' if lines > 1 else ''}"


def tensor_load(lines: int, *, hits: bool) -> Row:
    """Return the row of a tensor load, whose map hits or misses the descriptor cache."""
    where = "map in the descriptor cache" if hits else "map not in the descriptor cache"
    recording = where if hits else f"{where} but in L2"
    operation = f"tensor load of {line_count(lines)}, {where}"
    return Row(operation, (f"tensor load, {recording}, data in L2,{lines}",), EQUAL)


def stream(directions: str, recording: str) -> Row:
    """Return the row of DSMEM copies one after the other."""
    operation = f"DSMEM copy of 16 KiB in steady state, {directions}"
    return Row(operation, (f"stream,{recording} 16384",), AHEAD, "cycles_each", BOX_BYTES)


def multicast(issuers: int, mask: int) -> Row:
    """Return the row of boxes that each of ``issuers`` CTAs loads for those of ``mask``."""
    text = "multicast by each of 4 CTAs" if issuers > 1 else "multicast"
    text += f" to {mask.bit_count()} CTAs" if mask > 1 else " to the own CTA only"
    recording = f"multicast,tile issuers={(1 << issuers) - 1:x} mask={mask:x} 16KiB"
    figure = "cycles_per_box_and_issuer"
    operation = f"{text}, box of 16 KiB in steady state"
    return Row(operation, (recording,), AHEAD, figure, BOX_BYTES)


def replaces(field: str, place: str) -> Row:
    """Return the row of edits of a field of a map; ``place`` is where the silicon's map was."""
    operation = f"{MANY} `tensormap.replace` of `{field}`"
    return Row(operation, (f"descriptor,16 replace {field} {place}",), EQUAL)


ARRIVES = Row(f"{MANY} `mbarrier.arrive`", ("local,16 arrives",), EQUAL)
EXPECTS = Row(f"{MANY} `mbarrier.expect_tx`", ("local,16 expect_tx",), ISSUE)
TRUE = Row("`mbarrier.try_wait` that is true at once", ("local,try_wait true",), EQUAL)
WAKE = Row(
    "`mbarrier.arrive`, to the end of another warp's `try_wait`",
    ("local,arrive to other warp in try_wait",),
    EQUAL,
)
TESTS = Row(f"{MANY} `mbarrier.test_wait`", (f"local,{MANY} test_wait",), EQUAL)
STATE = Row("`mbarrier.arrive` that returns its state", ("local,arrive, state returned",), EQUAL)
FENCE_INIT = Row("`fence.mbarrier_init`", ("local,fence.mbarrier_init",), EQUAL)
LD_GLOBAL = Row("`ld.global`, data in L2", ("ld.global.cg, data in L2,1",), EQUAL)
FENCE = Row("`fence.proxy.async`", ("local,fence.proxy.async",), EQUAL)
FENCE_SHARED = Row(
    "`fence.proxy.async.shared::cta`", ("local,fence.proxy.async.shared::cta",), EQUAL
)
REPLACES = {
    field: replaces(field, place)
    for field, place in {
        "global_address": "gmem",
        "global_dim": "smem",
        "box_dim": "gmem",
        "global_stride": "smem",
    }.items()
}
ACQUIRES = Row(f"{MANY} `fence.proxy.tensormap` acquire", ("descriptor,16 acquire.gpu",), EQUAL)
ACQUIRE_LOAD = Row(
    "`fence.proxy.tensormap` acquire and a load of 128 bytes",
    ("descriptor,acquire and load",),
    EQUAL,
)
LOADS = {
    (hits, lines): tensor_load(lines, hits=hits) for hits in (True, False) for lines in BOX_LINES
}
STORES = {
    (instruction, size): store_wait(instruction, size)
    for instruction in ("wait_group.read", "wait_group")
    for size in (16, 16384)
}
TENSOR_STORES = {lines: tensor_store(lines) for lines in BOX_LINES}
COPIES = {
    size: round_trip(f"DSMEM copy of {size:,} bytes", f"bulk copy {size}") for size in COPY_BYTES
}
REDUCTIONS = {
    size: round_trip(f"DSMEM reduction of {size:,} bytes", f"bulk reduce add.u32 {size}")
    for size in (16, 1024, 16384)
}
ST_ASYNC = round_trip("`st.async.b64`", "st.async.b64 16")
RED_ASYNC = round_trip("`red.async.add.u32`", "red.async.add.u32 16")
LD_CLUSTER = Row(
    "`ld.shared::cluster` of another CTA", ("generic,ld.shared::cluster other CTA",), EQUAL
)
RELAXED = round_trip("`mbarrier.arrive.relaxed.cluster`", "remote arrive.relaxed 16")
REMOTE = round_trip("`mbarrier.arrive.release.cluster`", "remote arrive.release 16")
STREAM = stream("one way", "copy one way")
STREAMS = stream("both ways at once", "copy both ways")
MULTICASTS = {
    (issuers, mask): multicast(issuers, mask)
    for issuers, mask in ((1, 0b1), (1, 0b11), (1, 0b1111), (4, 0b1111))
}

LOCAL_ROWS = (
    ARRIVES, STATE, EXPECTS, TESTS, TRUE, WAKE, FENCE_INIT, LD_GLOBAL, FENCE, FENCE_SHARED,
    *REPLACES.values(), ACQUIRES, ACQUIRE_LOAD, *LOADS.values(), *TENSOR_STORES.values(),
    *STORES.values(),
)  # fmt: skip
ONE_BY_ONE = (
    *COPIES.values(), *REDUCTIONS.values(), ST_ASYNC, RED_ASYNC, LD_CLUSTER, RELAXED, REMOTE,
)  # fmt: skip
"""Rows of single operations on a cluster."""

CLUSTER_ROWS = *ONE_BY_ONE, STREAM, STREAMS, *MULTICASTS.values()


@cache
def recorded() -> Mapping[str, Mapping[str, float]]:
    """Return the figures of each recording of the silicon, by its name.

    Names of latency.csv are ``what`` and ``lines``; names of latency_cluster.csv are all fields
    before the figures. Their fields are joined by commas.
    """
    figures: dict[str, dict[str, float]] = {}
    with (SILICON / "latency.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            name = f"{row.pop('what')},{row.pop('lines')}"
            figures[name] = {column: float(clocks) for column, clocks in row.items()}
    for line in (SILICON / "latency_cluster.csv").read_text().splitlines():
        fields = line.split(",")
        found = [match for match in map(FIGURE.fullmatch, fields) if match]
        name = ",".join(fields[: len(fields) - len(found)])
        figures[name] = {match[1]: float(match[2]) for match in found}
    return figures


class Timed(Kernel):
    """A kernel that records the clocks of its instructions as spans of the track ``TRACK``.

    Members
    -------
    data, got : array
        Bytes that are moved, as they are at first and at last.
    """

    data: NDArray[np.uint8]
    got: NDArray[np.uint8]

    def take(self, wg: Warpgroup, name: str, start: int) -> None:
        """Record the clocks from ``start`` until now."""
        wg.sm.spans.append(Span(TRACK, name, start, wg.clock))

    async def measure(
        self, wg: Warpgroup, name: str, instructions: Iterable[Coroutine[Any, Any, Any]]
    ) -> None:
        """Record the clocks of these instructions, one after the other."""
        start = wg.clock
        for instruction in instructions:
            await instruction
        self.take(wg, name, start)

    def check(self) -> Check:
        """Compare the last bytes that were moved."""
        return equal("data", self.got, self.data)


@dataclass
class LocalTimes(Timed):
    """Instructions of one CTA. The names of the measurements are those of ``LOCAL_ROWS``."""

    name = "local_times"

    def host(self, device: Device) -> None:
        """Allocate lines to load and to store, and a map of each for each size of boxes."""
        self.data = self.rng("x").integers(0, 256, LINES, np.uint8)
        self.x, self.y = device.tensor("x", self.data), device.empty("y", LINES, np.uint8)
        self.maps_x, self.maps_y = (
            {lines: device.tensor_map(tensor, (LINE_BYTES, lines)) for lines in BOX_LINES}
            for tensor in (self.x, self.y)
        )

    def smem(self, smem: SmemLayout) -> None:
        """Allocate a tile and the barriers."""
        self.tile = smem.tile("tile", LINES, np.uint8)
        self.full, self.turn, self.many, self.alone = map(
            smem.mbarrier, ("full", "turn", "many", "alone")
        )

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers."""
        await wg.mbarrier_init(self.full, 1)
        await wg.mbarrier_init(self.turn, 1)
        await wg.mbarrier_init(self.many, 2 * MANY)
        await wg.mbarrier_init(self.alone, 1)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return the role that measures, and the role that it wakes."""
        return {"first": self.first, "second": self.second}

    async def second(self, wg: Warpgroup) -> None:
        """Wait for the arrival of the other warpgroup."""
        await wg.mbarrier_try_wait_parity(self.turn, 0)
        self.take(wg, WAKE.operation, self.arrival)

    async def first(self, wg: Warpgroup) -> None:
        """Measure loads, barriers, fences, map edits and stores."""
        self.parity = 0
        for lines in BOX_LINES:
            for hits in (False, True):
                await self.load(wg, LOADS[hits, lines], lines)
        await self.barriers(wg)
        await self.fences(wg)
        await self.stores(wg)

    async def wait(self, wg: Warpgroup) -> None:
        """Wait for the phase of the loads."""
        await wg.mbarrier_try_wait_parity(self.full, self.parity)
        self.parity ^= 1

    async def load(self, wg: Warpgroup, row: Row, lines: int, *, acquires: bool = False) -> None:
        """Measure a load, with ``acquires`` together with the acquire of its map."""
        await wg.mbarrier_arrive_expect_tx(self.full, lines * LINE_BYTES)
        start, tensor_map = wg.clock, self.maps_x[lines]
        if acquires:
            await wg.fence_proxy_tensormap(tensor_map)
        await wg.cp_async_bulk_tensor(self.tile, tensor_map, (0, 0), self.full)
        await self.wait(wg)
        self.take(wg, row.operation, start)

    async def barriers(self, wg: Warpgroup) -> None:
        """Measure operations on barriers."""
        arrives = (wg.mbarrier_arrive(self.many) for _ in range(MANY))
        await self.measure(wg, ARRIVES.operation, arrives)
        size = self.tile.nbytes
        expects = (wg.mbarrier_expect_tx(self.full, size // MANY) for _ in range(MANY))
        await self.measure(wg, EXPECTS.operation, expects)
        await wg.cp_async_bulk(self.tile, self.x.at(), size, self.full)
        await wg.mbarrier_arrive(self.full)
        await self.wait(wg)
        true = wg.mbarrier_try_wait_parity(self.full, self.parity ^ 1)
        await self.measure(wg, TRUE.operation, [true])
        tests = (wg.mbarrier_test_wait_parity(self.full, self.parity ^ 1) for _ in range(MANY))
        await self.measure(wg, TESTS.operation, tests)
        await self.measure(wg, STATE.operation, [wg.mbarrier_arrive_state(self.alone)])
        await self.measure(wg, FENCE_INIT.operation, [wg.fence_mbarrier_init()])
        first = wg.thread_idx == wg.thread
        await self.measure(wg, LD_GLOBAL.operation, [wg.ld_global(self.x, 0, where=first)])
        self.arrival = wg.clock
        await wg.mbarrier_arrive(self.turn)

    async def fences(self, wg: Warpgroup) -> None:
        """Measure fences and edits of tensor maps."""
        await self.measure(wg, FENCE.operation, [wg.fence_proxy_async()])
        fence = wg.fence_proxy_async(shared_cta=True)
        await self.measure(wg, FENCE_SHARED.operation, [fence])
        tensor_map = self.maps_x[1]
        edits: dict[str, tuple[int, int | None]] = {
            "global_address": (self.x.address, None),
            "global_dim": (LINE_BYTES, 0),
            "box_dim": (LINE_BYTES, 0),
            "global_stride": (LINE_BYTES, 0),
        }
        for field, (value, index) in edits.items():
            replaces = (wg.tensormap_replace(tensor_map, field, value, index) for _ in range(MANY))
            await self.measure(wg, REPLACES[field].operation, replaces)
        await wg.fence_proxy_tensormap_release()
        await wg.bar_sync(1, wg.threads)
        acquires = (wg.fence_proxy_tensormap(tensor_map) for _ in range(MANY))
        await self.measure(wg, ACQUIRES.operation, acquires)
        await self.load(wg, ACQUIRE_LOAD, 1, acquires=True)

    async def stores(self, wg: Warpgroup) -> None:
        """Measure tensor stores and bulk stores, up to the end of their waits."""
        await wg.bar_sync(1, wg.threads)
        await wg.st_shared(self.tile, self.data)
        await wg.fence_proxy_async(shared_cta=True)
        await wg.bar_sync(1, wg.threads)
        for tensor_map in self.maps_y.values():
            await wg.prefetch_tensormap(tensor_map)
        for (instruction, size), row in STORES.items():
            store = wg.cp_async_bulk_store(self.y.at(), self.tile, size)
            await self.store(wg, row, store, read=instruction == "wait_group.read")
        for lines, row in TENSOR_STORES.items():
            store = wg.cp_async_bulk_tensor_store(self.maps_y[lines], (0, 0), self.tile)
            await self.store(wg, row, store, read=True)
        self.got = self.y.array

    async def store(
        self, wg: Warpgroup, row: Row, store: Coroutine[Any, Any, None], *, read: bool
    ) -> None:
        """Measure a store, up to the end of a wait for its group, with ``read`` for its reads."""
        start = wg.clock
        await store
        await wg.commit_group()
        await wg.wait_group(0, read=read)
        self.take(wg, row.operation, start)
        await wg.wait_group(0)


@dataclass
class ClusterTimes(Timed):
    """Instructions of a cluster. The names of the measurements are those of ``CLUSTER_ROWS``.

    Times in steady state have a name for each of ``BOXES``, see ``in_a_row``.
    """

    name = "cluster_times"

    @property
    def ctas(self) -> int:
        """CTAs of the cluster."""
        return CTAS

    def host(self, device: Device) -> None:
        """Allocate a box in global memory, and its map."""
        shape = BOX_BYTES // LINE_BYTES, LINE_BYTES
        self.data = self.rng("x").integers(0, 256, shape, np.uint8)
        self.map_x = device.tensor_map(device.tensor("x", self.data), shape[::-1])

    def smem(self, smem: SmemLayout) -> None:
        """Allocate a source, the targets, and the barriers."""
        self.source = smem.tile("source", TILE, np.uint8)
        self.targets = smem.tiles("target", max(BOXES), TILE, np.uint8)
        self.full, self.turn = smem.mbarrier("full"), smem.mbarrier("turn")
        self.word = smem.tile("word", (1, 1), np.uint64)
        self.count = smem.tile("count", (1, 1), np.uint32)

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers."""
        await wg.mbarrier_init(self.full, 1)
        await wg.mbarrier_init(self.turn, 1)
        await wg.fence_mbarrier_init()
        await wg.cluster_sync()

    def roles(self) -> Mapping[str, Role]:
        """Return the role of each CTA."""
        self.parity = [0] * CTAS
        return {"cta": self.cta}

    async def cta(self, wg: Warpgroup) -> None:
        """Take part in all measurements."""
        await wg.prefetch_tensormap(self.map_x)
        await wg.st_shared(self.source, self.data.reshape(TILE))
        await wg.fence_proxy_async(shared_cta=True)
        await wg.bar_sync(1, wg.threads)
        await self.pieces(wg)
        for parity, row in enumerate((RELAXED, REMOTE)):
            await self.arrive_there_and_back(wg, row, parity)
        await self.in_a_row(wg, STREAM, [0], 0b10, self.copy)
        await self.in_a_row(wg, STREAMS, [0, 1], 0b11, self.copy)
        for (issuers, mask), row in MULTICASTS.items():
            load = partial(self.load, mask)
            await self.in_a_row(wg, row, range(issuers), mask, load, step=issuers)
        self.got = (await wg.ld_shared(self.targets[-1])).reshape(self.data.shape)

    async def expect(self, wg: Warpgroup, size: int) -> int:
        """Expect ``size`` bytes, if any; return the cycle in which all CTAs do."""
        if size:
            await wg.mbarrier_arrive_expect_tx(self.full, size)
        await wg.cluster_sync()
        return wg.clock

    async def received(self, wg: Warpgroup) -> None:
        """Wait for the expected bytes."""
        await wg.mbarrier_try_wait_parity(self.full, self.parity[wg.cta])
        self.parity[wg.cta] ^= 1

    async def load(self, mask: int, wg: Warpgroup, number: int) -> None:
        """Load the box to a target of each CTA of a mask."""
        full, tile = self.full, self.targets[number]
        await wg.cp_async_bulk_tensor(tile, self.map_x, (0, 0), full, cta_mask=mask)

    async def copy(self, wg: Warpgroup, number: int) -> None:
        """Copy the source to a target of the neighbour, CTA 0 or 1."""
        await wg.cp_async_bulk_dsmem(wg.cta ^ 1, self.targets[number], self.source, self.full)

    async def there_and_back(
        self, wg: Warpgroup, row: Row, size: int, send: Callable[[int], Coroutine[Any, Any, None]]
    ) -> None:
        """Measure ``size`` bytes that are sent to CTA 1 and, when they are there, to CTA 0."""
        start = await self.expect(wg, size if wg.cta < 2 else 0)
        if wg.cta == 1:
            await self.received(wg)
        if wg.cta < 2:
            await send(wg.cta ^ 1)
        if wg.cta == 0:
            await self.received(wg)
            self.take(wg, row.operation, start)

    async def pieces(self, wg: Warpgroup) -> None:
        """Measure copies, reductions and stores of threads there and back, and a load."""

        def part(size: int) -> tuple[Tile, Tile]:
            pieces = size // PIECE_BYTES
            return self.targets[0].rows(0, pieces), self.source.rows(0, pieces)

        for size, row in COPIES.items():
            target, source = part(size)
            copy = partial(wg.cp_async_bulk_dsmem, target=target, source=source, barrier=self.full)
            await self.there_and_back(wg, row, size, copy)
        for size, row in REDUCTIONS.items():
            target, source = part(size)
            reduce = partial(wg.cp_reduce_async_bulk_dsmem, target=target, source=source,
                barrier=self.full, data_type=DataType.UINT32, op=ReductionOp.ADD)  # fmt: skip
            await self.there_and_back(wg, row, size, reduce)
        words, count = np.ones((1, 1), np.uint64), np.ones((1, 1), np.uint32)
        store = partial(wg.st_async, target=self.word, values=words, barrier=self.full)
        await self.there_and_back(wg, ST_ASYNC, 8, store)
        add = partial(wg.red_async, target=self.count, values=count, op=ReductionOp.ADD,
            barrier=self.full)  # fmt: skip
        await self.there_and_back(wg, RED_ASYNC, 4, add)
        there = await wg.mapa(self.targets[0].rows(0, 1), 1)
        await wg.cluster_sync()
        if wg.cta == 0:
            await self.measure(wg, LD_CLUSTER.operation, [wg.ld_shared(there)])

    async def arrive_there_and_back(self, wg: Warpgroup, row: Row, parity: int) -> None:
        """Measure an arrival at a barrier of CTA 1 and, after the wait there, one at CTA 0."""
        await wg.cluster_sync()
        start, relaxed = wg.clock, row is RELAXED
        if wg.cta == 1:
            await wg.mbarrier_try_wait_parity(self.turn, parity)
        if wg.cta < 2:
            await wg.mbarrier_arrive(self.turn, cta=wg.cta ^ 1, relaxed=relaxed)
        if wg.cta == 0:
            await wg.mbarrier_try_wait_parity(self.turn, parity)
            self.take(wg, row.operation, start)

    async def in_a_row(
        self,
        wg: Warpgroup,
        row: Row,
        issuers: Collection[int],
        receivers: int,
        copy: Callable[[Warpgroup, int], Coroutine[Any, Any, None]],
        *,
        step: int = 1,
    ) -> None:
        """Measure ``BOXES`` copies of 16 KiB in a row, each to a target of its own.

        Parameters
        ----------
        wg : Warpgroup
            Warpgroup that takes part.
        row : Row
            Row of the measurement.
        issuers : collection of int
            CTAs that issue copies.
        receivers : int
            Mask of the CTAs that receive copies.
        copy : coroutine function
            It issues a copy to a target, which is given by its number.
        step : int
            A CTA issues the copies to each ``step``-th target.
        """
        for boxes in BOXES:
            receives = bool(receivers >> wg.cta & 1)
            start = await self.expect(wg, boxes * BOX_BYTES if receives else 0)
            if wg.cta in issuers:
                for number in range(wg.cta % step, boxes, step):
                    await copy(wg, number)
            if receives:
                await self.received(wg)
                self.take(wg, in_a_row(row, boxes), start)


def in_a_row(row: Row, boxes: int) -> str:
    """Return the name of the measurement of ``boxes`` copies."""
    return f"{boxes}: {row.operation}"


def measured(kernel: Kernel, params: TmaParams) -> dict[str, float]:
    """Run a kernel; return its measurements in clocks, by name, the longest one of all CTAs.

    Raises
    ------
    MeasurementError
        If the kernel fails.
    """
    (record,) = launch.run([(kernel, Setting())], params)
    if record.error or record.wrong:
        raise MeasurementError(f"{record.title}: {record.error or record.check}")
    clocks: dict[str, float] = {}
    for span in (span for sm in record.sms for span in sm.spans if span.track == TRACK):
        clocks[span.name] = max(span.end - span.start, clocks.get(span.name, 0))
    return clocks


def local_times(params: TmaParams = PRESETS["default"]) -> dict[Row, float]:
    """Return the clocks of each of ``LOCAL_ROWS``."""
    clocks = measured(LocalTimes(), params)
    return {row: clocks[row.operation] for row in LOCAL_ROWS}


def cluster_times(params: TmaParams = PRESETS["cluster"]) -> dict[Row, float]:
    """Return the clocks of each of ``CLUSTER_ROWS``."""
    clocks = measured(ClusterTimes(), params)
    times = {row: clocks[row.operation] for row in ONE_BY_ONE}
    few, many = BOXES
    issuers = {STREAM: 1, STREAMS: 1} | {row: n for (n, _), row in MULTICASTS.items()}
    for row, n in issuers.items():
        added = clocks[in_a_row(row, many)] - clocks[in_a_row(row, few)]
        times[row] = added * n / (many - few)
    return times


def table_of(times: Mapping[Row, float]) -> str:
    """Return the clocks of each row beside the silicon's."""
    rows = (
        [row.operation, row.cell(clocks), row.cell(row.silicon)] for row, clocks in times.items()
    )
    return table(("clocks", "here", "H200"), rows)
