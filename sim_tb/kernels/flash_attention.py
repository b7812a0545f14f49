"""Forward pass of FlashAttention-3: one producer, two consumers with half of each query block."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sim_tb.arithmetic.tensor_cores import BF16, wide
from sim_tb.kernels.common import F32, SWIZZLE, staging_buffers, store_tile
from sim_tb.sm.accumulators import Accumulator
from sim_tb.sm.check import Check, equal
from sim_tb.sm.device import Device, TensorMapHandle
from sim_tb.sm.kernel import Kernel, kernel, specialized
from sim_tb.sm.options import OptionError, option
from sim_tb.sm.pipeline import PipelineState, PipelineTmaAsync
from sim_tb.sm.smem import SmemLayout, Tile
from sim_tb.sm.warps import Role, Warpgroup

QUERIES, KEYS = 128, 64
CONSUMERS = 2
ROWS = QUERIES // CONSUMERS
BOX_COLUMNS = 64
"""Columns of a box: as long as the swizzle's span, so a head of 128 columns has two boxes."""

LIMIT = 2.0**-7
"""Greatest error allowed, relative to the greatest expected magnitude.

P and the output are rounded to bf16, each with a relative error of at most 2**-8. V is not
negative, so that nothing cancels. The errors of float32 are far smaller.
"""

Values = NDArray[np.float32]


@dataclass(frozen=True)
class Operand:
    """Pipeline of an operand, and the boxes of each of its stages."""

    pipeline: PipelineTmaAsync
    stages: list[list[Tile]]


@dataclass
class Softmax:
    """State of the online softmax: greatest score and sum of the weights of each row so far."""

    greatest: Values = field(default_factory=lambda: np.full((ROWS, 1), -np.inf, F32))
    sums: Values = field(default_factory=lambda: np.zeros((ROWS, 1), F32))


@kernel("flash_attention")
@dataclass
class FlashAttention(Kernel):
    """softmax(Q K^T / sqrt(head_dim)) V of each head in bf16, without the scores in memory."""

    seq: int = option(256, "queries, and keys, of each head")
    heads: int = option(2, "heads")
    head_dim: int = option(64, "columns of Q, K and V: 64 or 128")
    causal: int = option(0, "1: a query does not see later keys; 0: it sees all keys", 0, 1)
    stages: int = option(3, "stages of the ring of K, and of the ring of V")

    @property
    def flops(self) -> int:
        """Floating-point operations of both products, for the pairs that the mask leaves."""
        pairs = self.seq * (self.seq + 1) // 2 if self.causal else self.seq**2
        return 4 * self.heads * self.head_dim * pairs

    def validate(self) -> None:
        """Check the limits, and that a head consists of whole boxes."""
        super().validate()
        if self.head_dim not in (64, 128):
            raise OptionError("head_dim", self.head_dim, "must be 64 or 128")

    def host(self, device: Device) -> None:
        """Allocate the tensors and encode their maps.

        The tensors have three dimensions, so that no box crosses from one head to the next. Most
        scores are negative, so that a missing mask of keys beyond the sequence, whose scores are
        0, changes the result.
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
        """Allocate one stage of Q, rings of K and of V, and a staging buffer for each consumer."""
        boxes = self.head_dim // BOX_COLUMNS

        def operand(name: str, rows: int, stages: int) -> Operand:
            shape = rows, BOX_COLUMNS
            tiles = [smem.tiles(f"{name}[{s}]", boxes, shape, BF16, SWIZZLE) for s in range(stages)]
            stage_bytes = sum(tile.nbytes for tile in tiles[0])
            return Operand(PipelineTmaAsync(smem.ring(name, stages), stage_bytes), tiles)

        self.staging = staging_buffers(smem, CONSUMERS, boxes, (ROWS, BOX_COLUMNS), BF16)
        self.q = operand("Q", QUERIES, 1)
        self.k, self.v = (operand(name, KEYS, self.stages) for name in "KV")

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield head and first query of each block of queries."""
        return product(range(self.heads), range(0, self.seq, QUERIES))

    def key_blocks(self, m: int) -> range:
        """Return the first key of each block that a query of the block at ``m`` sees."""
        return range(0, min(self.seq, m + QUERIES) if self.causal else self.seq, KEYS)

    async def prologue(self, wg: Warpgroup) -> None:
        """Initialise the barriers of the three pipelines."""
        for operand in (self.q, self.k, self.v):
            await operand.pipeline.init(wg, CONSUMERS)
        await wg.fence_mbarrier_init()

    def roles(self) -> Mapping[str, Role]:
        """Return one producer and two consumers."""
        return specialized(self.producer, self.consumer, CONSUMERS)

    async def producer(self, wg: Warpgroup) -> None:
        """Load each block of queries, and all blocks of keys and values that it sees."""
        await wg.setmaxnreg(40)
        q, k, v = (each.pipeline.producer_state() for each in (self.q, self.k, self.v))
        for head, m in self.blocks():
            await self.load(wg, self.q, q, self.map_q, m, head)
            for n in self.key_blocks(m):
                await self.load(wg, self.k, k, self.map_k, n, head)
                await self.load(wg, self.v, v, self.map_v, n, head)

    async def load(
        self,
        wg: Warpgroup,
        operand: Operand,
        state: PipelineState,
        tensor_map: TensorMapHandle,
        row: int,
        head: int,
    ) -> None:
        """Load rows of a head into the next stage when it is empty."""
        await operand.pipeline.producer_acquire(wg, state)
        full = operand.pipeline.barrier(state)
        for box, tile in enumerate(operand.stages[state.index]):
            await wg.cp_async_bulk_tensor(tile, tensor_map, (box * BOX_COLUMNS, row, head), full)
        state.advance()

    async def release(self, wg: Warpgroup, operand: Operand, state: PipelineState) -> None:
        """Let the stage be overwritten, and go on to the next one."""
        await operand.pipeline.consumer_release(wg, state)
        state.advance()

    async def consumer(self, number: int, wg: Warpgroup) -> None:
        """Compute half of each block of queries: softmax overlaps with P V of the previous keys."""
        await wg.setmaxnreg(232)
        q, k, v = (each.pipeline.consumer_state() for each in (self.q, self.k, self.v))
        for head, m in self.blocks():
            first, state, out = m + number * ROWS, Softmax(), wg.accumulator(ROWS, self.head_dim)
            await self.q.pipeline.consumer_wait(wg, q)
            n, *later_blocks = self.key_blocks(m)
            scores = await self.multiply_qk(wg, number, k)
            await wg.wgmma_wait_group(0)
            await self.release(wg, self.k, k)
            p, _ = await self.softmax(wg, state, scores, first, n)
            for n in later_blocks:
                scores = await self.multiply_qk(wg, number, k)
                await self.multiply_pv(wg, out, p, v)
                await wg.wgmma_wait_group(1)
                await self.release(wg, self.k, k)
                p, rescale = await self.softmax(wg, state, scores, first, n)
                await wg.wgmma_wait_group(0)
                await self.release(wg, self.v, v)
                out.write(out.values * rescale)
                await wg.alu(out.size)
            await self.release(wg, self.q, q)
            await self.multiply_pv(wg, out, p, v)
            await wg.wgmma_wait_group(0)
            await self.release(wg, self.v, v)
            await self.epilogue(wg, number, out.values / state.sums, first, head)
        await wg.wait_group(0)

    async def multiply_qk(self, wg: Warpgroup, number: int, state: PipelineState) -> Accumulator:
        """Wait for a block of keys, and start Q K^T for this consumer; return the scores."""
        scores = wg.accumulator(ROWS, KEYS)
        await self.k.pipeline.consumer_wait(wg, state)
        await wg.wgmma_fence()
        for q, k in zip(self.q.stages[0], self.k.stages[state.index], strict=True):
            await wg.wgmma(scores, q.rows(number * ROWS, (number + 1) * ROWS), k)
        await wg.wgmma_commit_group()
        return scores

    async def multiply_pv(
        self, wg: Warpgroup, out: Accumulator, p: NDArray[np.generic], state: PipelineState
    ) -> None:
        """Wait for a block of values, and start to add P V to ``out``."""
        await self.v.pipeline.consumer_wait(wg, state)
        await wg.wgmma_fence()
        for box, v in enumerate(self.v.stages[state.index]):
            columns = out.columns(box * BOX_COLUMNS, (box + 1) * BOX_COLUMNS)
            await wg.wgmma(columns, p, v, trans_b=False)
        await wg.wgmma_commit_group()

    async def softmax(
        self, wg: Warpgroup, state: Softmax, accumulator: Accumulator, m: int, n: int
    ) -> tuple[NDArray[np.generic], Values]:
        """Return P of the scores, and the factor that rescales the earlier output of each row.

        ``m`` is the first query and ``n`` the first key. Loads fill keys beyond the sequence with
        zeros, so their scores are 0 and are masked here. Loads fill values with zeros, too: a NaN
        would remain, as 0 times NaN is NaN.
        """
        scores = accumulator.values.copy()
        queries, keys = np.arange(m, m + ROWS)[:, None], np.arange(n, n + KEYS)
        hidden = (keys >= self.seq) | (keys > queries if self.causal else False)
        if hidden.any():
            scores[np.broadcast_to(hidden, scores.shape)] = -np.inf
            await wg.alu(scores.size)
        previous = state.greatest
        state.greatest = np.maximum(previous, scores.max(axis=1, keepdims=True))
        log2e = F32.type(np.log2(np.e) / np.sqrt(self.head_dim))
        rescale = np.exp2((previous - state.greatest) * log2e)
        p = np.exp2((scores - state.greatest) * log2e)
        state.sums = state.sums * rescale + p.sum(axis=1, keepdims=True)
        # Four instructions per score: maximum, scale and shift, sum, conversion.
        await wg.alu(scores.size, 4)
        await wg.mufu(scores.size + rescale.size)
        return p.astype(BF16), rescale

    async def epilogue(self, wg: Warpgroup, number: int, out: Values, m: int, head: int) -> None:
        """Store the rows of this consumer."""
        await wg.alu(out.size, 2)
        values = out.astype(BF16)
        await store_tile(wg, self.staging[number], values, self.map_o, (0, m, head))

    def check(self) -> Check:
        """Compare the output with softmax in double."""
        q, k, v = (wide(values) for values in self.inputs)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(self.head_dim)
        if self.causal:
            scores[:, ~np.tri(self.seq, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        return equal("O", self.o.array, weights / weights.sum(axis=2, keepdims=True) @ v, LIMIT)
