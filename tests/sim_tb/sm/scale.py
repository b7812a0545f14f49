"""A script with a kernel: run as ``python scale.py``, or by its path."""

import enum
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

import sim_tb
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.options import option

FACTOR = 3
F32 = np.dtype(np.float32)


class Way(enum.Enum):
    """Sign of the result."""

    UP = 1
    DOWN = -1

    @property
    def other(self):
        return Way.DOWN if self is Way.UP else Way.UP


@cache
def factor_of(way):
    return F32.type(FACTOR * way.value)


@dataclass
class Base(Kernel):
    """A kernel without roles."""

    way: Way = Way.UP
    extra: int = option(0, "number that is added", 0)

    @cached_property
    def factor(self):
        return factor_of(self.way.other.other)

    def smem(self, smem):
        self.tile = smem.tile("tile", self.x.array.shape, F32)
        self.full = smem.mbarrier("full")


@dataclass
class Scale(Base):
    """y = factor * x + extra."""

    def host(self, device):
        self.x = device.tensor("x")
        self.y = device.empty("y", self.x.array.shape, F32)

    async def prologue(self, wg):
        await wg.mbarrier_init(self.full, 1)
        await wg.fence_mbarrier_init()

    def roles(self):
        return {"scaler": self.scaler}

    async def scaler(self, wg):
        await wg.mbarrier_arrive_expect_tx(self.full, self.tile.nbytes)
        await wg.cp_async_bulk(self.tile, self.x.at(), self.tile.nbytes, self.full)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        values = await wg.ld_shared(self.tile)
        await wg.st_shared(self.tile, self.factor * values + F32.type(self.extra))
        await wg.fence_proxy_async(shared_cta=True)
        await wg.bar_sync(1, wg.threads)
        await wg.cp_async_bulk_store(self.y.at(), self.tile, self.tile.nbytes)
        await wg.commit_group()
        await wg.wait_group(0)


if __name__ == "__main__":
    X = np.arange(64, dtype=F32).reshape(2, 32)

    class Typo(Scale):
        async def scaler(self, wg):
            await super().scaler(wg)
            await wg.such_an_instruction()

    out = sim_tb.run(Scale(way=Way.DOWN, extra=1), {"x": X})
    print(np.array_equal(out["y"], 1 - 3 * X), out.keys())
    try:
        sim_tb.run(Typo(), {"x": X})
    except Exception as error:
        print(error)
