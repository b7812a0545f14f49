"""A warp-specialized GEMM on behavioural SMs; runs inside the simulator.

One producer warp loads tiles of A and B into a ring of stages; two consumer warpgroups, each with
half of the rows, multiply and release the stages. Each stage has two barriers: *full*, which the
producer arms and the unit completes, and *empty*, on which both consumers arrive.

In a cluster each CTA has a tile of C of its own. CTAs of a row of the cluster need the same tiles
of A, those of a column the same tiles of B: each loads its share of them for all, by multicast. So
a stage is empty when the consumers of all CTAs that its loads go to have released it, and a
consumer tells all CTAs from which it gets tiles.

The epilogue: a consumer writes its half of a tile of C to a staging buffer of its own, fences, and
hands the buffer to the unit, which stores it or adds it to C. With the next half it waits until the
buffer has been read.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import cocotb
import ml_dtypes
import numpy as np
from cocotb.triggers import Event
from numpy.typing import NDArray

from golden import DataType, L2Promotion, ReductionOp, Swizzle, TensorMap
from sim_tb.bridge import LogKind
from sim_tb.cluster_environment import ClusterEnvironment
from sim_tb.environment import BenchError, Environment, Word
from sim_tb.sm import PIECE_BYTES, SM, Span, Warp

TILE_M, TILE_N, TILE_K = 128, 128, 64
CONSUMERS = 2
ITEM = 2
ROW_BYTES = TILE_K * ITEM
TILE_BYTES = TILE_M * ROW_BYTES
SWIZZLE = Swizzle.SWIZZLE_128B
BF16 = np.dtype(ml_dtypes.bfloat16)
C_ITEM = 4
C_ROWS = TILE_M // CONSUMERS
C_COLUMNS = 128 // C_ITEM
"""Of a box of C: its rows are as long as the swizzle's span, so a consumer has several boxes."""

C_BOX_BYTES = C_ROWS * C_COLUMNS * C_ITEM
STAGING_BYTES = C_ROWS * TILE_N * C_ITEM
C_PITCH_ALIGN = 128
"""C's rows start at lines, as ``cudaMallocPitch`` would have it; what is behind a row is no C."""

UNTOUCHED = 0x7FF7_DEAD
"""Words of global memory around C, and C itself before it is stored."""

A_ADDRESS, B_ADDRESS, C_ADDRESS = 0x1000_0000, 0x2000_0000, 0x3000_0000
MOST_CTAS = 16
ACTIVITY = "lines_read", "beats_written", "beats_read", "lines_written"
"""What is recorded of all units together."""

JOB = "TMA_GEMM_JOB"
"""Environment variable: the folder with ``a.npy`` and ``b.npy``; results go there, too."""


class Epilogue(StrEnum):
    """What becomes of a tile of results."""

    STORE = "store"
    """It is stored to C."""

    REDUCE = "reduce"
    """It is added to C: split-K, where each of two passes multiplies one half of K."""


def passes(k: int, epilogue: Epilogue) -> list[range]:
    """The steps of k that each pass over C takes; a second pass without steps is left out."""
    steps = range(0, k, TILE_K)
    if epilogue is Epilogue.STORE:
        return [steps]
    half = -(-len(steps) // 2)
    return [part for part in (steps[:half], steps[half:]) if part]


@dataclass(frozen=True)
class Grid:
    """CTAs of a cluster in rows and columns; ranks go along the rows."""

    rows: int = 1
    columns: int = 1

    @classmethod
    def parse(cls, text: str) -> "Grid":
        """``2x1`` is two rows of one.

        Raises
        ------
        ValueError
            If it is nothing like that, or tiles cannot be shared evenly.
        """
        rows, _, columns = text.partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            raise ValueError(f"CLUSTER = {text}: must be ROWSxCOLUMNS, such as 2x1")
        grid = cls(int(rows), int(columns))
        sizes = 1, 2, 4, 8
        if grid.rows not in sizes or grid.columns not in sizes or grid.ctas > MOST_CTAS:
            raise ValueError(
                f"CLUSTER = {text}: must be of 1, 2, 4 or 8 rows and columns, and of at most "
                f"{MOST_CTAS} CTAs"
            )
        return grid

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def ctas(self) -> int:
        """All of them."""
        return self.rows * self.columns

    def place(self, cta: int) -> tuple[int, int]:
        """Row and column of a rank."""
        return divmod(cta, self.columns)

    def of_row(self, cta: int) -> list[int]:
        """Ranks of the CTAs in its row, itself included."""
        row, _ = self.place(cta)
        return [row * self.columns + column for column in range(self.columns)]

    def of_column(self, cta: int) -> list[int]:
        """Ranks of the CTAs in its column, itself included."""
        _, column = self.place(cta)
        return [row * self.columns + column for row in range(self.rows)]

    def partners(self, cta: int) -> list[int]:
        """Ranks of the CTAs that share tiles with it, itself included."""
        return sorted({*self.of_row(cta), *self.of_column(cta)})


def accumulate(total: NDArray[np.float32], a: NDArray[np.float32], b: NDArray[np.float32]) -> None:
    """Add a @ b.T to ``total``, one k after the other: each product is exact, each sum rounds."""
    scratch = np.empty_like(total)
    with np.errstate(over="ignore", invalid="ignore"):
        for column, row in zip(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), strict=True):
            np.multiply(column[:, None], row, out=scratch)
            np.add(total, scratch, out=total)


@dataclass(frozen=True)
class Layout:
    """Shared memory: the ring's stages, the staging buffers, the barriers of the stages."""

    stages: int

    def a(self, stage: int) -> int:
        """Tile of A."""
        return stage * 2 * TILE_BYTES

    def b(self, stage: int) -> int:
        """Tile of B."""
        return self.a(stage) + TILE_BYTES

    def staging(self, consumer: int) -> int:
        """Staging buffer of a consumer: its boxes of C from left to right."""
        return self.a(self.stages) + consumer * STAGING_BYTES

    def full(self, stage: int) -> int:
        """Barrier: the stage's tiles are there."""
        return self.staging(CONSUMERS) + 16 * stage

    def empty(self, stage: int) -> int:
        """Barrier: the stage may be overwritten."""
        return self.full(stage) + 8

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.full(self.stages)


class Output:
    """C in global memory: rows from line to line, with a row of guards on either side."""

    def __init__(self, env: Environment, m: int, n: int, epilogue: Epilogue) -> None:
        self._shape = m, n
        pitch = -(-n * C_ITEM // C_PITCH_ALIGN) * C_PITCH_ALIGN
        self._words = np.full((m + 2, pitch // C_ITEM), UNTOUCHED, np.uint32)
        piece = PIECE_BYTES // C_ITEM
        self._written = np.zeros(self._words.shape, bool)
        self._written[1 : m + 1, : -(-n // piece) * piece] = True  # stores write whole pieces
        if epilogue is Epilogue.REDUCE:
            self._words[self._written] = 0
        env.gmem.place(C_ADDRESS, self._words)
        self.tensor_map = env.descriptor(
            TensorMap.tiled(
                DataType.FLOAT32,
                C_ADDRESS + pitch,
                [n, m],
                [pitch],
                [C_COLUMNS, C_ROWS],
                swizzle=SWIZZLE,
            )
        )

    def matrix(self) -> NDArray[np.float32]:
        """A copy of C as it is now.

        Raises
        ------
        BenchError
            If anything behind a row's last piece, or above or below C, was written.
        """
        stray = np.argwhere((self._words != UNTOUCHED) & ~self._written)
        if stray.size:
            row, column = map(int, stray[0])
            raise BenchError(
                f"{len(stray)} words outside of C were written; first C[{row - 1}, {column}]"
            )
        m, n = self._shape
        return self._words[1 : m + 1, :n].copy().view(np.float32)


def mask_of(ctas: Sequence[int]) -> int:
    """The multicast mask of these ranks."""
    return sum(1 << cta for cta in ctas)


class Gemm:
    """The kernel: C[M, N] = A[M, K] @ B[N, K].T.

    Members
    -------
    sms : list of SM
        By rank of the CTA.
    grid : Grid
    work : list of (k steps, (m, n))
        Tiles of C of the first CTA in order, one pass after the other; every role goes through it.
    c : Output
    stage_spans : list of Span
        What the stages of the first SM were.
    handed_over : list of list of int
        For each consumer of the first SM, the cycles at which it gave its staging buffer to the
        unit.
    """

    def __init__(
        self,
        sms: Sequence[SM],
        a: NDArray[np.generic],
        b: NDArray[np.generic],
        stages: int,
        epilogue: Epilogue,
        grid: Grid,
    ) -> None:
        self.sms = list(sms)
        self.grid = grid
        self.layout = Layout(stages)
        self.epilogue = epilogue
        (m, k), n = a.shape, b.shape[0]
        tiles = product(range(0, m, grid.rows * TILE_M), range(0, n, grid.columns * TILE_N))
        self.work = list(product(passes(k, epilogue), tiles))
        self.c = Output(self.sms[0].env, m, n, epilogue)
        # A CTA loads its share of a tile, and its share goes to all.
        self.rows_a, self.rows_b = TILE_M // grid.columns, TILE_N // grid.rows
        self.map_a = self._place(a, A_ADDRESS, self.rows_a)
        self.map_b = self._place(b, B_ADDRESS, self.rows_b)
        self._shapes = a.shape, b.shape
        self.stage_spans: list[Span] = []
        self.handed_over: list[list[int]] = [[] for _ in range(CONSUMERS)]
        self._ready = 0
        self._all_ready = Event()

    def _place(self, matrix: NDArray[np.generic], address: int, rows: int) -> int:
        """Put a matrix and its tensor map into global memory; return the map's address."""
        env = self.sms[0].env
        env.gmem.place(address, matrix)
        height, width = matrix.shape
        tensor_map = TensorMap.tiled(
            DataType.BFLOAT16,
            address,
            [width, height],
            [width * ITEM],
            [TILE_K, rows],
            swizzle=SWIZZLE,
            l2_promotion=L2Promotion.L2_128B,
        )
        return env.descriptor(tensor_map)

    def tile(self, cta: int, corner: tuple[int, int]) -> tuple[int, int]:
        """Where the tile of a CTA begins, from that of the first."""
        row, column = self.grid.place(cta)
        return corner[0] + row * TILE_M, corner[1] + column * TILE_N

    @property
    def load_bytes(self) -> int:
        """What all loads write to shared memory."""
        steps = sum(len(k_steps) for k_steps, _ in self.work)
        return self.grid.ctas * steps * 2 * TILE_BYTES

    @property
    def lines_without_multicast(self) -> int:
        """Lines that would be read, row by row, if each CTA loaded its tiles for itself."""
        line_bytes = self.sms[0].env.interface.parameters["line_bytes"]

        @cache
        def lines(which: int, k: int, row: int) -> int:
            height, width = self._shapes[which]
            begin = np.arange(row, min(row + TILE_M, height)) * width + k
            end = begin + min(TILE_K, width - k)
            return int(((end * ITEM - 1) // line_bytes - begin * ITEM // line_bytes + 1).sum())

        total = 0
        for k_steps, corner in self.work:
            for cta in range(self.grid.ctas):
                m, n = self.tile(cta, corner)
                total += sum(lines(0, k, m) + lines(1, k, n) for k in k_steps)
        return total

    async def run(self) -> None:
        """Run the CTAs until all are done."""
        tasks = [cocotb.start_soon(self._cta(sm)) for sm in self.sms]
        for task in tasks:
            await task

    async def _cta(self, sm: SM) -> None:
        """Initialise the barriers, then run all warps."""
        warp = sm.warp("set-up")
        releases = CONSUMERS * len(self.grid.partners(sm.cta))
        for stage in range(self.layout.stages):
            await warp.mbarrier_init(self.layout.full(stage), 1)
            await warp.mbarrier_init(self.layout.empty(stage), releases)
            if sm.cta == 0:
                self._watch(stage)
        await self._cluster_sync()
        consumers = {f"consumer {n}": self.consumer(n) for n in range(CONSUMERS)}
        await sm.run({"producer": self.producer, **consumers})

    async def _cluster_sync(self) -> None:
        """``barrier.cluster``: no CTA uses barriers of others before they are there."""
        self._ready += 1
        if self._ready == self.grid.ctas:
            self._all_ready.set()
        await self._all_ready.wait()

    def _watch(self, stage: int) -> None:
        """Record when the stage is full and when it is free again."""
        env = self.sms[0].env
        since = env.cycle

        def changed(name: str) -> Callable[[int, Word], None]:
            def record(cycle: int, _: Word) -> None:
                nonlocal since
                self.stage_spans.append(Span(f"stage {stage}", name, since, cycle))
                since = cycle

            return record

        env.watch(self.layout.full(stage), changed("filling"))
        env.watch(self.layout.empty(stage), changed("full"))

    async def producer(self, warp: Warp) -> None:
        """Keep the stages filled, those of the partners too."""
        ring, grid, cta = self.layout, self.grid, warp.sm.cta
        share_a, share_b = (
            (whole.index(cta), mask_of(whole) if len(whole) > 1 else None)
            for whole in (grid.of_row(cta), grid.of_column(cta))
        )
        steps = [(self.tile(cta, corner), k) for k_steps, corner in self.work for k in k_steps]
        for step, ((m, n), k) in enumerate(steps):
            stage, round_ = step % ring.stages, step // ring.stages
            with warp.span(f"wait empty {stage}"):
                await warp.mbarrier_wait_parity(ring.empty(stage), (round_ & 1) ^ 1)
            with warp.span(f"issue {stage}"):
                full = ring.full(stage)
                await warp.mbarrier_arrive_expect_tx(full, 2 * TILE_BYTES)
                for (share, mask), rows, tensor_map, row, tile in (
                    (share_a, self.rows_a, self.map_a, m, ring.a(stage)),
                    (share_b, self.rows_b, self.map_b, n, ring.b(stage)),
                ):
                    first = share * rows
                    where = tile + first * ROW_BYTES, tensor_map, (k, row + first), full
                    warp.cp_async_bulk_tensor(*where, cta_mask=mask)

    def consumer(self, number: int):  # type: ignore[no-untyped-def]  # a kernel for SM.run
        """The warpgroup that has rows ``number * 64`` to ``number * 64 + 63`` of each tile."""
        rows = slice(number * C_ROWS, (number + 1) * C_ROWS)

        async def kernel(warp: Warp) -> None:
            ring, sm = self.layout, warp.sm
            step = 0
            for k_steps, corner in self.work:
                m, n = self.tile(sm.cta, corner)
                total = np.zeros((C_ROWS, TILE_N), np.float32)
                for _ in k_steps:
                    stage, round_ = step % ring.stages, step // ring.stages
                    step += 1
                    with warp.span(f"wait full {stage}"):
                        await warp.mbarrier_wait_parity(ring.full(stage), round_ & 1)
                    a = sm.read_tile(ring.a(stage), TILE_M, ROW_BYTES, SWIZZLE, BF16)[rows]
                    b = sm.read_tile(ring.b(stage), TILE_N, ROW_BYTES, SWIZZLE, BF16)
                    accumulate(total, a.astype(np.float32), b.astype(np.float32))
                    with warp.span(f"mma {stage}"):
                        await sm.tensor_cores.mma(C_ROWS, TILE_N, TILE_K)
                    for cta in self.grid.partners(sm.cta):
                        await warp.mbarrier_arrive(ring.empty(stage), cta=cta)
                await self._hand_over(warp, number, total, m + rows.start, n)
            with warp.span("wait group"):
                await warp.wait_group(0)

        return kernel

    async def _hand_over(
        self, warp: Warp, consumer: int, total: NDArray[np.float32], m: int, n: int
    ) -> None:
        """The epilogue: ``total`` goes to C at row ``m`` and column ``n``.

        The unit clips boxes that lie outside of C, in part or as a whole.
        """
        staging = self.layout.staging(consumer)
        boxes = range(TILE_N // C_COLUMNS)
        with warp.span("wait read"):
            await warp.wait_group(0, read=True)
        with warp.span("write tile"):
            for box in boxes:
                part = total[:, box * C_COLUMNS : (box + 1) * C_COLUMNS]
                await warp.write_tile(staging + box * C_BOX_BYTES, part, SWIZZLE)
        warp.fence_proxy_async()
        for box in boxes:
            where = (n + box * C_COLUMNS, m), staging + box * C_BOX_BYTES
            if self.epilogue is Epilogue.STORE:
                warp.cp_async_bulk_tensor_store(self.c.tensor_map, *where)
            else:
                warp.cp_reduce_async_bulk_tensor(self.c.tensor_map, *where, ReductionOp.ADD)
        warp.commit_group()
        if warp.sm.cta == 0:
            self.handed_over[consumer].append(warp.sm.env.cycle)

    def staging_spans(self) -> list[Span]:
        """When the unit of the first SM had the staging buffers: until it has read the last byte
        of a tile.
        """
        env = self.sms[0].env
        reads = env.log(LogKind.READ)
        spans = []
        for consumer, handed_over in enumerate(self.handed_over):
            start = self.layout.staging(consumer)
            mine = reads["key"] * env.interface.parameters["line_bytes"]
            cycles = reads["cycle"][(start <= mine) & (mine < start + STAGING_BYTES)]
            for since, until in pairwise([*handed_over, env.cycle + 1]):
                during = cycles[(since <= cycles) & (cycles < until)]
                if during.size:
                    track = f"staging {consumer}"
                    spans.append(Span(track, self.epilogue, since, int(during[-1]) + 1))
        return spans


async def environments(dut: object, grid: Grid, logs: Sequence[LogKind]) -> list[Environment]:
    """One for each CTA."""
    if grid.ctas == 1:
        return [await Environment.start(dut, background="fault", logs=logs)]
    cluster = await ClusterEnvironment.start(dut, background="fault", logs=logs)
    return cluster.sms[: grid.ctas]


@cocotb.test()
async def gemm(dut: object) -> None:
    """Run the job, leave the result and what happened beside it."""
    job = Path(os.environ[JOB])
    a, b = (np.load(job / name).view(BF16) for name in ("a.npy", "b.npy"))
    settings = json.loads((job / "job.json").read_text())
    grid = Grid.parse(settings["cluster"])
    logs = [LogKind.LINE, LogKind.BEAT, LogKind.READ, LogKind.STORE]
    envs = await environments(dut, grid, logs)
    sms = [SM(env) for env in envs]
    kernel = Gemm(sms, a, b, settings["stages"], Epilogue(settings["epilogue"]), grid)
    began = time.perf_counter()
    await kernel.run()
    seconds = time.perf_counter() - began
    cycles, c = envs[0].cycle, kernel.c.matrix()
    spans = [[asdict(span) for span in sm.spans] for sm in sms]
    spans[0] += [asdict(span) for span in (*kernel.stage_spans, *kernel.staging_spans())]
    await envs[0].idle()
    errors = [error for env in envs for error in env.errors]
    if errors:
        raise BenchError(f"an error record after the end of the kernel: {errors[0]}")
    if c.tobytes() != kernel.c.matrix().tobytes():
        raise BenchError("C was written after the wait for the bulk groups")

    np.save(job / "c.npy", c)
    records = {
        name: np.concatenate([env.log(kind) for env in envs])
        for name, kind in zip(ACTIVITY, logs, strict=True)
    }
    lines_read, beats_written, beats_read, lines_written = (
        records[name]["cycle"] for name in ACTIVITY
    )
    np.savez(
        job / "activity.npz",
        lines_read=lines_read,
        beats_written=beats_written,
        beats_read=beats_read,
        lines_written=lines_written,
    )
    summary = {
        "cycles": cycles,
        "seconds": seconds,
        "lines_read": int(records["lines_read"].size),
        "lines_without_multicast": kernel.lines_without_multicast,
        "lines_written": int(records["lines_written"].size),
        "load_bytes": kernel.load_bytes,
        "store_bytes": int(records["lines_written"]["value"].sum()) * PIECE_BYTES,
        "starved": [sm.tensor_cores.starved for sm in sms],
        "spans": spans,
        "tensor_cores": [sm.tensor_cores.busy for sm in sms],
    }
    (job / "summary.json").write_text(json.dumps(summary))
