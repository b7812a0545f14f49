"""The behavioural SM by itself: tiles in shared memory, and the fence before a store."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from golden import ReductionOp, Swizzle
from sim_tb.environment import BenchError
from sim_tb.sm import SM, SMEM_BYTES_PER_CYCLE


class StandIn:
    """As much of an environment as a warp needs: time passes at once."""

    def __init__(self):
        self.smem = np.zeros(4096, np.uint8)
        self.cycle = 0
        self.stores = []

    async def cycles(self, count):
        self.cycle += count

    def commit_group(self, thread):
        self.stores.append(SimpleNamespace(thread=thread))

    async def wait_group(self, groups, *, read, thread):
        self.waited = groups, read, thread

    def submit_store(self, *operands, **named):
        self.stores.append(SimpleNamespace(operands=operands, **named))
        return len(self.stores)


def finish(coroutine):
    """Run a coroutine that never has to wait."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


@pytest.mark.parametrize("swizzle", list(Swizzle)[:4])
def test_a_tile_is_written_where_the_swizzle_says(swizzle):
    sm = SM(StandIn())
    tile = np.arange(16 * 32, dtype=np.uint8).reshape(16, 32)
    if swizzle is Swizzle.SWIZZLE_128B:
        tile = tile.reshape(4, 128)
    sm.write_tile(640, tile, swizzle)
    expected = np.zeros(4096, np.uint8)
    for offset, byte in enumerate(tile.ravel(), 640):
        expected[offset ^ (offset >> 3 & swizzle.mask)] = byte
    assert np.array_equal(sm.env.smem, expected)
    assert np.array_equal(sm.read_tile(640, *tile.shape, swizzle, np.dtype(np.uint8)), tile)


def test_a_part_of_an_array_is_written_in_rows():
    sm = SM(StandIn())
    values = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
    sm.write_tile(0, values[:, 32:], Swizzle.SWIZZLE_128B)
    read = sm.read_tile(0, 8, 128, Swizzle.SWIZZLE_128B, np.dtype(np.float32))
    assert np.array_equal(read, values[:, 32:])


def test_a_store_needs_the_fence():
    env = StandIn()
    sm = SM(env)
    sm.smem_writes = nullcontext()
    warp = sm.warp("consumer")
    finish(warp.write_tile(0, np.ones((8, 32), np.float32), Swizzle.SWIZZLE_128B))
    assert env.cycle == 8 * 128 // SMEM_BYTES_PER_CYCLE
    with pytest.raises(BenchError, match=r"consumer: .* without fence\.proxy\.async"):
        warp.cp_async_bulk_tensor_store(0, (0, 0), 0)
    with pytest.raises(BenchError, match=r"without fence\.proxy\.async"):
        warp.cp_reduce_async_bulk_tensor(0, (0, 0), 0, ReductionOp.ADD)
    assert not env.stores
    warp.fence_proxy_async()
    assert warp.cp_async_bulk_tensor_store(0, (0, 0), 0) == 1
    assert warp.cp_reduce_async_bulk_tensor(0, (0, 0), 0, ReductionOp.ADD) == 2


def test_the_source_of_a_store_is_not_written_before_it_is_read():
    env = StandIn()
    sm = SM(env)
    sm.smem_writes = nullcontext()
    warp = sm.warp("consumer")
    tile = np.ones((8, 32), np.float32)

    def write(address):
        finish(warp.write_tile(address, tile, Swizzle.SWIZZLE_128B))

    for address in (0, 1024):
        write(address)
        warp.fence_proxy_async()
        warp.cp_async_bulk_tensor_store(0, (0, 0), address)
        warp.commit_group()
    write(2048)
    finish(warp.wait_group(1, read=True))
    assert env.waited == (1, True, warp.thread)
    write(0)
    with pytest.raises(BenchError, match="consumer: the source of a store is written"):
        warp.write_tile(1024, tile, Swizzle.SWIZZLE_128B).send(None)
    finish(warp.wait_group(0, read=True))
    write(1024)


def test_each_warp_issues_as_a_thread_of_its_own():
    env = StandIn()
    sm = SM(env)
    for role in ("producer", "consumer 0", "consumer 1"):
        sm.warp(role).cp_async_bulk_tensor_store(0, (0, 0), 0)
    assert len({store.thread for store in env.stores}) == 3
