"""Memory models of kernels: bandwidth, DRAM as far away as on an H200, and illegal options."""

from dataclasses import dataclass

import numpy as np
import pytest

from sim_tb.performance.times import recorded
from sim_tb.sm import launch
from sim_tb.sm.check import equal
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.options import option
from sim_tb.sm.record import Setting
from sim_tb.testbench.models import surroundings

DRAM = "tensor load, map in the descriptor cache, data in DRAM,1"
AROUND = 28
"""Clocks of a load on an H200 outside memory: 328 in total, less the memory model's 300."""


@dataclass
class LoadTwice(Kernel):
    """Load a box twice. The first load misses the descriptor cache, the second hits."""

    name = "load_twice"

    rows: int = option(1, "of 128 bytes")

    def host(self, device):
        self.x = device.tensor("x", self.rng("x").integers(0, 256, (self.rows, 128), np.uint8))
        self.map_x = device.tensor_map(self.x, (128, self.rows))

    def smem(self, smem):
        self.tile = smem.tile("tile", (self.rows, 128), np.uint8)
        self.full = smem.mbarrier("full")

    async def prologue(self, wg):
        await wg.mbarrier_init(self.full, 1)
        await wg.fence_mbarrier_init()

    def roles(self):
        return {"loader": self.loader}

    async def loader(self, wg):
        for parity in (0, 1):
            await wg.mbarrier_arrive_expect_tx(self.full, self.tile.nbytes)
            await wg.cp_async_bulk_tensor(self.tile, self.map_x, (0, 0), self.full)
            await wg.mbarrier_try_wait_parity(self.full, parity)
            self.got = await wg.ld_shared(self.tile)
            await wg.bar_sync(1, wg.threads)

    def check(self):
        return equal("tile", self.got, self.x.array)


@pytest.mark.simulators
def test_memory_has_its_bandwidth():
    bandwidths, lines = (0.25, 0.6, 0.8), 256
    settings = [Setting(memory=f"bandwidth={bandwidth}") for bandwidth in bandwidths]
    records = launch.run([(LoadTwice(rows=lines), setting) for setting in settings])
    for bandwidth, record in zip(bandwidths, records, strict=True):
        taken = record.sms[0].lines_read[lines:]
        assert taken.size == lines
        assert int(taken[-1] - taken[0]) == pytest.approx(lines / bandwidth, rel=0.02)


def test_dram_is_as_far_as_on_silicon():
    lines, silicon = surroundings("dram").lines, recorded()[DRAM]
    assert lines.low + AROUND == pytest.approx(silicon["least"], rel=0.06)
    assert (lines.low + lines.high) / 2 + AROUND == pytest.approx(silicon["median"], rel=0.06)


@pytest.mark.parametrize(
    ("text", "low", "high", "bandwidth", "descriptors"),
    [
        ("l2", 300, 300, 1, 250),
        ("latency=600", 600, 600, 1, 250),
        ("dram,bandwidth=0.5", 510, 850, 0.5, 440),
        ("l2,descriptor=7,latency=9,bandwidth=0.25", 9, 9, 0.25, 7),
    ],
)
def test_surroundings(text, low, high, bandwidth, descriptors):
    models = surroundings(text)
    assert (models.lines.low, models.lines.high) == (low, high)
    assert models.lines.bandwidth == models.stores.bandwidth == bandwidth
    assert models.descriptors.low == descriptors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l3", "'l3': must be one of l2, dram"),
        ("l2,latency", "'latency': must have a number after ="),
        ("l2,width=3", "'width=3': must be latency="),
        ("bandwidth=1.5", "bandwidth 1.5: must be above 0 and up to 1"),
    ],
)
def test_illegal_surroundings(text, message):
    with pytest.raises(ValueError, match=message):
        surroundings(text)
