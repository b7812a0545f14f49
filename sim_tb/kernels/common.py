"""Parts that several kernels share: the main loop of a GEMM, and the epilogue through staging."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from golden import ReductionOp, Swizzle
from sim_tb.sm.accumulators import Accumulator
from sim_tb.sm.device import TensorMapHandle
from sim_tb.sm.pipeline import PipelineAsync, PipelineState
from sim_tb.sm.pipes import WARPGROUP_THREADS
from sim_tb.sm.sm import Array
from sim_tb.sm.smem import SmemLayout, Tile
from sim_tb.sm.warps import Warpgroup

F32 = np.dtype(np.float32)
FIRST_OWN_BARRIER = 8
"""Number of the first named barrier at which the warps of one warpgroup meet."""

SWIZZLE = Swizzle.SWIZZLE_128B
"""Swizzle of all tiles of the GEMMs, of the convolution and of the attention."""

Values = NDArray[np.float32]
Cue = Callable[[Warpgroup], Coroutine[None, None, None]]
"""Coroutine that lets another warpgroup multiply."""

Release = Callable[[Warpgroup, PipelineState], Coroutine[None, None, None]]
"""Coroutine that lets a stage be overwritten."""


async def multiply_stages(
    wg: Warpgroup,
    pipeline: PipelineAsync,
    operands: Sequence[tuple[Tile, Tile]],
    state: PipelineState,
    k_steps: int,
    accumulator: Accumulator,
    *,
    release: Release | None = None,
    cue: Cue | None = None,
    in_flight: int = 0,
    promotion: int = 0,
) -> None:
    """Run the main loop of a GEMM: multiply the stages of a ring, and release each one afterwards.

    Parameters
    ----------
    wg : Warpgroup
        Warpgroup that multiplies.
    pipeline : PipelineAsync
        Stages of the operands.
    operands : sequence of (Tile, Tile)
        Rows of A and rows of B in each stage.
    state : PipelineState
        State of this consumer. The loop advances it by ``k_steps``.
    k_steps : int
        Steps of k, one stage each.
    accumulator : Accumulator
        Registers that the products are added to.
    release : coroutine function, optional
        It lets a stage be overwritten; default: that of the pipeline.
    cue : coroutine function, optional
        It is called when the last product has been issued.
    in_flight : int
        Products that may still run when the next one is issued.
    promotion : int
        Instructions on each accumulator after each step.
    """
    released, release = replace(state), release or pipeline.consumer_release
    for step in range(1, k_steps + 1):
        await pipeline.consumer_wait(wg, state)
        if step == 1 or promotion:
            await wg.wgmma_fence()
        await wg.wgmma(accumulator, *operands[state.index])
        await wg.wgmma_commit_group()
        state.advance()
        if cue is not None and step == k_steps:
            await cue(wg)
        if step > in_flight:
            await wg.wgmma_wait_group(in_flight)
            await release(wg, released)
            released.advance()
        await wg.alu(accumulator.size, promotion)
    await wg.wgmma_wait_group(0)
    while released.count < state.count:
        await release(wg, released)
        released.advance()


def staging_buffers(
    smem: SmemLayout,
    consumers: int,
    boxes: int,
    shape: tuple[int, int],
    dtype: np.dtype[np.generic],
) -> list[list[Tile]]:
    """Allocate a staging buffer for each consumer: ``boxes`` tiles beside each other."""
    return [smem.tiles(f"staging {i}", boxes, shape, dtype, SWIZZLE) for i in range(consumers)]


async def meet(wg: Warpgroup) -> None:
    """Let the warps of a warpgroup meet at a named barrier of their own (``bar.sync``)."""
    await wg.bar_sync(FIRST_OWN_BARRIER + wg.thread // WARPGROUP_THREADS, wg.threads)


async def store_tile(
    wg: Warpgroup,
    staging: Sequence[Tile],
    values: Array,
    tensor_map: TensorMapHandle,
    corner: Sequence[int],
    reduction: ReductionOp | None = None,
) -> None:
    """Store values through a staging buffer, box by box, as one bulk group.

    Each warp writes its rows, and the elected thread stores. The warps meet before they write, as
    only the elected thread knows that its earlier stores have read the buffer; and after they have
    written, each with a fence, before it stores.

    Parameters
    ----------
    wg : Warpgroup
        Warpgroup that stores.
    staging : sequence of Tile
        Tiles of the staging buffer, one per box. The earlier stores of this warpgroup may still
        read them.
    values : array
        Rows of the tile.
    tensor_map : TensorMapHandle
        Map of the tensor that is written.
    corner : sequence of int
        Coordinates of the first element, innermost first.
    reduction : ReductionOp, optional
        Operation that combines the values with those in global memory. None: overwrite them.
    """
    await wg.wait_group(0, read=True)
    await meet(wg)
    for box, tile in enumerate(staging):
        columns = tile.shape[1]
        await wg.stmatrix(tile, values[:, box * columns : (box + 1) * columns])
    await wg.fence_proxy_async(shared_cta=True)
    await meet(wg)
    first_column, *outer = corner
    for box, tile in enumerate(staging):
        coords = first_column + box * tile.shape[1], *outer
        if reduction is None:
            await wg.cp_async_bulk_tensor_store(tensor_map, coords, tile)
        else:
            await wg.cp_reduce_async_bulk_tensor(tensor_map, coords, tile, reduction)
    await wg.commit_group()
