"""FlashAttention-3's forward pass: one producer, two consumers with half of each query block."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from golden import Swizzle
from sim_tb.kernels.gemm import F32, stage_boxes
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Check, Kernel, equal, init_ring, kernel, option, specialized
from sim_tb.sm.sm import BF16, Role, Warp, wide
from sim_tb.sm.smem import Ring, SmemLayout, Tile

QUERIES, KEYS = 128, 64
CONSUMERS = 2
ROWS = QUERIES // CONSUMERS
SWIZZLE = Swizzle.SWIZZLE_128B
BOX_COLUMNS = 64
"""Of a box: its rows are as long as the swizzle's span, so 128 columns are two boxes."""

LIMIT = 2.0**-7
"""P and the output are rounded to bf16, each by 2**-8 of itself at most. V is not negative, so that
nothing cancels; what is rounded to float32 is far below."""

Values = NDArray[np.float32]


@dataclass(frozen=True)
class Operand:
    """Where an operand lies: the barriers of its stages, and of each stage the boxes."""

    ring: Ring
    stages: list[list[Tile]]


@dataclass
class Rows:
    """Online softmax of rows: their greatest scores so far, and the sums of their weights."""

    top: Values = field(default_factory=lambda: np.full((ROWS, 1), -np.inf, F32))
    sums: Values = field(default_factory=lambda: np.zeros((ROWS, 1), F32))


@kernel("flash_attention")
@dataclass
class FlashAttention(Kernel):
    """softmax(Q K^T / sqrt(head_dim)) V of each head in bf16, without the scores in memory."""

    seq: int = option(256, "queries, and keys, of each head")
    heads: int = option(2, "heads")
    head_dim: int = option(64, "columns of Q, K and V: 64 or 128")
    causal: int = option(0, "1: a query sees no later keys", 0, 1)
    stages: int = option(3, "of the ring of K, and of that of V")

    @property
    def flops(self) -> int:
        """Of both products, for the pairs of query and key that count."""
        pairs = self.seq * (self.seq + 1) // 2 if self.causal else self.seq**2
        return 4 * self.heads * self.head_dim * pairs

    def validate(self) -> None:
        """A head has as many columns as boxes can hold."""
        super().validate()
        if self.head_dim not in (64, 128):
            raise ValueError(f"head_dim = {self.head_dim}: must be 64 or 128")

    def host(self, device: Device) -> None:
        """Three dimensions each, so that no box crosses from a head to the next.

        Most scores are negative: a key beyond the sequence, whose score is 0, would stand out.
        """
        shape = self.heads, self.seq, self.head_dim
        q, k, v = (self.rng(name).standard_normal(shape) for name in "qkv")
        self.inputs = [values.astype(BF16) for values in (q + 0.7, k - 0.7, np.abs(v))]
        rows = QUERIES, KEYS, KEYS
        self.map_q, self.map_k, self.map_v = (
            device.tensor_map(device.tensor(name, values), (BOX_COLUMNS, box, 1), SWIZZLE)
            for name, values, box in zip("QKV", self.inputs, rows, strict=True)
        )
        self.o = device.empty("O", shape, BF16)
        self.map_o = device.tensor_map(self.o, (BOX_COLUMNS, ROWS, 1), SWIZZLE)

    def smem(self, smem: SmemLayout) -> None:
        """One stage of Q, a ring of K and one of V, a staging buffer for each consumer."""
        boxes = self.head_dim // BOX_COLUMNS

        def operand(name: str, rows: int, stages: int) -> Operand:
            shape = rows, BOX_COLUMNS
            tiles = [smem.tiles(f"{name}[{s}]", boxes, shape, BF16, SWIZZLE) for s in range(stages)]
            return Operand(smem.ring(name, stages), tiles)

        self.staging = [
            smem.tiles(f"staging {i}", boxes, (ROWS, BOX_COLUMNS), BF16, SWIZZLE)
            for i in range(CONSUMERS)
        ]
        self.q = operand("Q", QUERIES, 1)
        self.k, self.v = (operand(name, KEYS, self.stages) for name in "KV")

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Head and first query of each block of queries."""
        return product(range(self.heads), range(0, self.seq, QUERIES))

    def key_blocks(self, m: int) -> range:
        """First key of each block that any query from ``m`` on sees."""
        return range(0, min(self.seq, m + QUERIES) if self.causal else self.seq, KEYS)

    async def prologue(self, warp: Warp) -> None:
        """Barriers."""
        for ring in (self.q.ring, self.k.ring, self.v.ring):
            await init_ring(warp, ring, CONSUMERS)

    def warps(self) -> Mapping[str, Role]:
        """One producer, two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, warp: Warp) -> None:
        """Load each block of queries, and all keys and values that it sees."""
        await warp.setmaxnreg(40)
        q_steps, kv_steps = self.q.ring.steps(), self.k.ring.steps()
        for head, m in self.blocks():
            await self.load(warp, self.q, next(q_steps), self.map_q, m, head)
            for n, step in zip(self.key_blocks(m), kv_steps, strict=False):
                await self.load(warp, self.k, step, self.map_k, n, head)
                await self.load(warp, self.v, step, self.map_v, n, head)

    async def load(
        self, warp: Warp, to: Operand, step: tuple[int, int], source: int, row: int, head: int
    ) -> None:
        """Fill a stage when it is free."""
        s, parity = step
        full, boxes = to.ring.full[s], to.stages[s]
        await warp.mbarrier_try_wait_parity(to.ring.empty[s], parity ^ 1)
        await warp.mbarrier_arrive_expect_tx(full, sum(tile.nbytes for tile in boxes))
        for box, tile in enumerate(boxes):
            await warp.cp_async_bulk_tensor(tile, source, (box * BOX_COLUMNS, row, head), full)

    async def consumer(self, number: int, warp: Warp) -> None:
        """Half of each block of queries: softmax while the P V of the block before is running."""
        await warp.setmaxnreg(232)
        q_steps, kv_steps = self.q.ring.steps(), self.k.ring.steps()
        for head, m in self.blocks():
            first, rows, out = m + number * ROWS, Rows(), np.zeros((ROWS, self.head_dim), F32)
            (_, parity), step = next(q_steps), next(kv_steps)
            await warp.mbarrier_try_wait_parity(self.q.ring.full[0], parity)
            n, *more = self.key_blocks(m)
            scores = await self.multiply_qk(warp, number, step)
            await warp.wgmma_wait_group(0)
            await warp.mbarrier_arrive(self.k.ring.empty[step[0]])
            p, _ = await self.softmax(warp, rows, scores, first, n)
            for n in more:
                before, step = step, next(kv_steps)
                scores = await self.multiply_qk(warp, number, step)
                await self.multiply_pv(warp, out, p, before)
                await warp.wgmma_wait_group(1)
                await warp.mbarrier_arrive(self.k.ring.empty[step[0]])
                p, rescale = await self.softmax(warp, rows, scores, first, n)
                await warp.wgmma_wait_group(0)
                await warp.mbarrier_arrive(self.v.ring.empty[before[0]])
                out *= rescale
                await warp.alu(out.size)
            await warp.mbarrier_arrive(self.q.ring.empty[0])
            await self.multiply_pv(warp, out, p, step)
            await warp.wgmma_wait_group(0)
            await warp.mbarrier_arrive(self.v.ring.empty[step[0]])
            await self.epilogue(warp, number, out / rows.sums, first, head)
        await warp.wait_group(0)

    async def multiply_qk(self, warp: Warp, number: int, step: tuple[int, int]) -> Values:
        """Wait for a block of keys, and begin the scores of this consumer's queries."""
        s, parity = step
        scores = np.zeros((ROWS, KEYS), F32)
        await warp.mbarrier_try_wait_parity(self.k.ring.full[s], parity)
        for q, k in zip(self.q.stages[0], self.k.stages[s], strict=True):
            await warp.wgmma(scores, q.rows(number * ROWS, (number + 1) * ROWS), k)
        await warp.wgmma_commit_group()
        return scores

    async def multiply_pv(
        self, warp: Warp, out: Values, p: NDArray[np.generic], step: tuple[int, int]
    ) -> None:
        """Wait for a block of values, and begin to add their sum, weighted with P, to ``out``."""
        s, parity = step
        await warp.mbarrier_try_wait_parity(self.v.ring.full[s], parity)
        for box, v in enumerate(self.v.stages[s]):
            columns = slice(box * BOX_COLUMNS, (box + 1) * BOX_COLUMNS)
            await warp.wgmma(out[:, columns], p, v, trans_b=False)
        await warp.wgmma_commit_group()

    async def softmax(
        self, warp: Warp, rows: Rows, scores: Values, m: int, n: int
    ) -> tuple[NDArray[np.generic], Values]:
        """P of the scores of queries ``m`` and keys ``n`` on, and what scales all before it.

        Loads fill keys beyond the sequence with zeros: their scores, 0, are masked here; their
        values must be numbers, as 0 times NaN is NaN.
        """
        queries, keys = np.arange(m, m + ROWS)[:, None], np.arange(n, n + KEYS)
        hidden = (keys >= self.seq) | (keys > queries if self.causal else False)
        if hidden.any():
            scores[np.broadcast_to(hidden, scores.shape)] = -np.inf
            await warp.alu(scores.size)
        before, rows.top = rows.top, np.maximum(rows.top, scores.max(axis=1, keepdims=True))
        log2e = F32.type(np.log2(np.e) / np.sqrt(self.head_dim))
        rescale = np.exp2((before - rows.top) * log2e)
        p = np.exp2((scores - rows.top) * log2e)
        rows.sums = rows.sums * rescale + p.sum(axis=1, keepdims=True)
        # Each score: maximum, scale and shift, sum, conversion.
        await warp.alu(scores.size, 4)
        await warp.mufu(scores.size + rescale.size)
        return p.astype(BF16), rescale

    async def epilogue(self, warp: Warp, number: int, out: Values, m: int, head: int) -> None:
        """Store this consumer's rows."""
        await warp.alu(out.size, 2)
        await stage_boxes(warp, self.staging[number], out.astype(BF16))
        for box, tile in enumerate(self.staging[number]):
            await warp.cp_async_bulk_tensor_store(self.map_o, (box * BOX_COLUMNS, m, head), tile)
        await warp.commit_group()

    def check(self) -> Check:
        """Softmax in double."""
        q, k, v = (wide(values) for values in self.inputs)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(self.head_dim)
        if self.causal:
            scores[:, ~np.tri(self.seq, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        return equal("O", self.o.array, weights / weights.sum(axis=2, keepdims=True) @ v, LIMIT)
