"""A warp-specialized GEMM on the behavioural SM; runs inside the simulator.

One producer warp loads tiles of A and B into a ring of stages; two consumer warpgroups, each with
half of the rows, multiply and release the stages. Each stage has two barriers: *full*, which the
producer arms and the unit completes, and *empty*, on which both consumers arrive.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import cocotb
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from golden import DataType, L2Promotion, Swizzle, TensorMap
from sim_tb.bridge import LogKind
from sim_tb.environment import Environment, Word
from sim_tb.sm import SM, SMEM_BYTES_PER_CYCLE, Span, Warp

TILE_M, TILE_N, TILE_K = 128, 128, 64
CONSUMERS = 2
ITEM = 2
ROW_BYTES = TILE_K * ITEM
TILE_BYTES = TILE_M * ROW_BYTES
SWIZZLE = Swizzle.SWIZZLE_128B
BF16 = np.dtype(ml_dtypes.bfloat16)
A_ADDRESS, B_ADDRESS = 0x1000_0000, 0x2000_0000
JOB = "TMA_GEMM_JOB"
"""Environment variable: the folder with ``a.npy`` and ``b.npy``; results go there, too."""


def accumulate(total: NDArray[np.float32], a: NDArray[np.float32], b: NDArray[np.float32]) -> None:
    """Add a @ b.T to ``total``, one k after the other: each product is exact, each sum rounds."""
    scratch = np.empty_like(total)
    for column, row in zip(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), strict=True):
        np.multiply(column[:, None], row, out=scratch)
        np.add(total, scratch, out=total)


@dataclass(frozen=True)
class Ring:
    """Where the stages and their barriers are in shared memory."""

    stages: int

    def a(self, stage: int) -> int:
        """Tile of A."""
        return stage * 2 * TILE_BYTES

    def b(self, stage: int) -> int:
        """Tile of B."""
        return self.a(stage) + TILE_BYTES

    def full(self, stage: int) -> int:
        """Barrier: the stage's tiles are there."""
        return self.stages * 2 * TILE_BYTES + 16 * stage

    def empty(self, stage: int) -> int:
        """Barrier: the stage may be overwritten."""
        return self.full(stage) + 8

    @property
    def bytes(self) -> int:
        """Shared memory that it takes."""
        return self.full(self.stages)


class Gemm:
    """The kernel: C[M, N] = A[M, K] @ B[N, K].T."""

    def __init__(self, sm: SM, a: NDArray[np.generic], b: NDArray[np.generic], stages: int) -> None:
        self.sm = sm
        self.ring = Ring(stages)
        (self.m, self.k), self.n = a.shape, b.shape[0]
        self.c = np.zeros((self.m, self.n), np.float32)
        self.tiles = list(product(range(0, self.m, TILE_M), range(0, self.n, TILE_N)))
        self.k_steps = range(0, self.k, TILE_K)
        self.map_a = self._place(a, A_ADDRESS, TILE_M)
        self.map_b = self._place(b, B_ADDRESS, TILE_N)
        self.stage_spans: list[Span] = []

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
        return env.descriptor(np.frombuffer(tensor_map.encode(), "<u4").copy())

    async def run(self) -> None:
        """Initialise the barriers, then run all warps."""
        warp = self.sm.warp("set-up")
        for stage in range(self.ring.stages):
            await warp.mbarrier_init(self.ring.full(stage), 1)
            await warp.mbarrier_init(self.ring.empty(stage), CONSUMERS)
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

        env.watch(self.ring.full(stage), changed("filling"))
        env.watch(self.ring.empty(stage), changed("full"))

    async def producer(self, warp: Warp) -> None:
        """Keep the stages filled."""
        ring = self.ring
        for step, ((m, n), k) in enumerate(product(self.tiles, self.k_steps)):
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
        rows = slice(number * TILE_M // CONSUMERS, (number + 1) * TILE_M // CONSUMERS)
        count = rows.stop - rows.start

        async def kernel(warp: Warp) -> None:
            ring, sm = self.ring, self.sm
            step = 0
            for m, n in self.tiles:
                total = np.zeros((count, TILE_N), np.float32)
                for _ in self.k_steps:
                    stage, round_ = step % ring.stages, step // ring.stages
                    step += 1
                    with warp.span(f"wait full {stage}"):
                        await warp.mbarrier_wait_parity(ring.full(stage), round_ & 1)
                    a = sm.read_tile(ring.a(stage), TILE_M, ROW_BYTES, SWIZZLE, BF16)[rows]
                    b = sm.read_tile(ring.b(stage), TILE_N, ROW_BYTES, SWIZZLE, BF16)
                    accumulate(total, a.astype(np.float32), b.astype(np.float32))
                    with warp.span(f"mma {stage}"):
                        await sm.tensor_cores.mma(count, TILE_N, TILE_K)
                    await warp.mbarrier_arrive(ring.empty(stage))
                with warp.span("store"):
                    await sm.env.cycles(total.nbytes // SMEM_BYTES_PER_CYCLE)
                    part = self.c[m : m + TILE_M][rows, n : n + TILE_N]
                    part[:] = total[: part.shape[0], : part.shape[1]]

        return kernel


@cocotb.test()
async def gemm(dut: object) -> None:
    """Run the job, leave the result and what happened beside it."""
    job = Path(os.environ[JOB])
    a, b = (np.load(job / name).view(BF16) for name in ("a.npy", "b.npy"))
    settings = json.loads((job / "job.json").read_text())
    logs = [LogKind.LINE, LogKind.BEAT]
    env = await Environment.start(dut, background="fault", logs=logs)
    sm = SM(env)
    kernel = Gemm(sm, a, b, settings["stages"])
    began = time.perf_counter()
    await kernel.run()
    seconds = time.perf_counter() - began

    np.save(job / "c.npy", kernel.c)
    np.savez(
        job / "activity.npz",
        lines=env.log(LogKind.LINE)["cycle"],
        beats=env.log(LogKind.BEAT)["cycle"],
    )
    summary = {
        "cycles": env.cycle,
        "seconds": seconds,
        "lines": int(env.log(LogKind.LINE).size),
        "bytes": len(kernel.tiles) * len(kernel.k_steps) * 2 * TILE_BYTES,
        "starved": sm.tensor_cores.starved,
        "spans": [asdict(span) for span in [*sm.spans, *kernel.stage_spans]],
        "tensor_cores": sm.tensor_cores.busy,
    }
    (job / "summary.json").write_text(json.dumps(summary))
