"""A warp-specialized GEMM on the behavioural SM; runs inside the simulator.

One producer warp loads tiles of A and B into a ring of stages; two consumer warpgroups, each with
half of the rows, multiply and release the stages. Each stage has two barriers: *full*, which the
producer arms and the unit completes, and *empty*, on which both consumers arrive.

The epilogue: a consumer writes its half of a tile of C to a staging buffer of its own, fences, and
hands the buffer to the unit, which stores it or adds it to C. With the next half it waits until the
buffer has been read.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise, product
from pathlib import Path

import cocotb
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from golden import DataType, L2Promotion, ReductionOp, Swizzle, TensorMap
from sim_tb.bridge import LogKind
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


class Gemm:
    """The kernel: C[M, N] = A[M, K] @ B[N, K].T.

    Members
    -------
    work : list of (k steps, (m, n))
        Tiles of C in order, one pass after the other; every role goes through it.
    c : Output
    stage_spans : list of Span
        What the stages were.
    handed_over : list of list of int
        For each consumer the cycles at which it gave its staging buffer to the unit.
    """

    def __init__(
        self,
        sm: SM,
        a: NDArray[np.generic],
        b: NDArray[np.generic],
        stages: int,
        epilogue: Epilogue,
    ) -> None:
        self.sm = sm
        self.layout = Layout(stages)
        self.epilogue = epilogue
        (m, k), n = a.shape, b.shape[0]
        tiles = product(range(0, m, TILE_M), range(0, n, TILE_N))
        self.work = list(product(passes(k, epilogue), tiles))
        self.c = Output(sm.env, m, n, epilogue)
        self.map_a = self._place(a, A_ADDRESS, TILE_M)
        self.map_b = self._place(b, B_ADDRESS, TILE_N)
        self.stage_spans: list[Span] = []
        self.handed_over: list[list[int]] = [[] for _ in range(CONSUMERS)]

    def _place(self, matrix: NDArray[np.generic], address: int, rows: int) -> int:
        """Put a matrix and its tensor map into global memory; return the map's address."""
        env = self.sm.env
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

    @property
    def load_bytes(self) -> int:
        """What all loads write to shared memory."""
        return sum(len(k_steps) for k_steps, _ in self.work) * 2 * TILE_BYTES

    async def run(self) -> None:
        """Initialise the barriers, then run all warps."""
        warp = self.sm.warp("set-up")
        for stage in range(self.layout.stages):
            await warp.mbarrier_init(self.layout.full(stage), 1)
            await warp.mbarrier_init(self.layout.empty(stage), CONSUMERS)
            self._watch(stage)
        consumers = {f"consumer {n}": self.consumer(n) for n in range(CONSUMERS)}
        await self.sm.run({"producer": self.producer, **consumers})

    def _watch(self, stage: int) -> None:
        """Record when the stage is full and when it is free again."""
        env = self.sm.env
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
        """Keep the stages filled."""
        ring = self.layout
        steps = [(m, n, k) for k_steps, (m, n) in self.work for k in k_steps]
        for step, (m, n, k) in enumerate(steps):
            stage, round_ = step % ring.stages, step // ring.stages
            with warp.span(f"wait empty {stage}"):
                await warp.mbarrier_wait_parity(ring.empty(stage), (round_ & 1) ^ 1)
            with warp.span(f"issue {stage}"):
                full = ring.full(stage)
                await warp.mbarrier_arrive_expect_tx(full, 2 * TILE_BYTES)
                warp.cp_async_bulk_tensor(ring.a(stage), self.map_a, (k, m), full)
                warp.cp_async_bulk_tensor(ring.b(stage), self.map_b, (k, n), full)

    def consumer(self, number: int):  # type: ignore[no-untyped-def]  # a kernel for SM.run
        """The warpgroup that has rows ``number * 64`` to ``number * 64 + 63`` of each tile."""
        rows = slice(number * C_ROWS, (number + 1) * C_ROWS)

        async def kernel(warp: Warp) -> None:
            ring, sm = self.layout, self.sm
            step = 0
            for k_steps, (m, n) in self.work:
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
                    await warp.mbarrier_arrive(ring.empty(stage))
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
        self.handed_over[consumer].append(self.sm.env.cycle)

    def staging_spans(self) -> list[Span]:
        """When the unit had the staging buffers: until it has read the last byte of a tile."""
        env = self.sm.env
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


@cocotb.test()
async def gemm(dut: object) -> None:
    """Run the job, leave the result and what happened beside it."""
    job = Path(os.environ[JOB])
    a, b = (np.load(job / name).view(BF16) for name in ("a.npy", "b.npy"))
    settings = json.loads((job / "job.json").read_text())
    logs = [LogKind.LINE, LogKind.BEAT, LogKind.READ, LogKind.STORE]
    env = await Environment.start(dut, background="fault", logs=logs)
    sm = SM(env)
    kernel = Gemm(sm, a, b, settings["stages"], Epilogue(settings["epilogue"]))
    began = time.perf_counter()
    await kernel.run()
    seconds = time.perf_counter() - began
    cycles, c = env.cycle, kernel.c.matrix()
    spans = [*sm.spans, *kernel.stage_spans, *kernel.staging_spans()]
    await env.idle()
    if env.errors:
        raise BenchError(f"an error record after the end of the kernel: {env.errors[0]}")
    if c.tobytes() != kernel.c.matrix().tobytes():
        raise BenchError("C was written after the wait for the bulk groups")

    np.save(job / "c.npy", c)
    stores = env.log(LogKind.STORE)
    np.savez(
        job / "activity.npz",
        lines_read=env.log(LogKind.LINE)["cycle"],
        beats_written=env.log(LogKind.BEAT)["cycle"],
        beats_read=env.log(LogKind.READ)["cycle"],
        lines_written=stores["cycle"],
    )
    summary = {
        "cycles": cycles,
        "seconds": seconds,
        "lines_read": int(env.log(LogKind.LINE).size),
        "lines_written": int(stores.size),
        "load_bytes": kernel.load_bytes,
        "store_bytes": int(stores["value"].sum()) * PIECE_BYTES,
        "starved": sm.tensor_cores.starved,
        "spans": [asdict(span) for span in spans],
        "tensor_cores": sm.tensor_cores.busy,
    }
    (job / "summary.json").write_text(json.dumps(summary))
