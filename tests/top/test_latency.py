"""Latency of the default memory models: a single load takes about as long as on an H200."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sim_tb.sm import launch
from sim_tb.sm.check import equal
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.options import option
from sim_tb.sm.record import Setting
from sim_tb.testbench.models import surroundings

SILICON = Path(__file__).parents[1] / "silicon" / "latency.csv"
HIT, MISS, DRAM = (
    "tensor load, map in the descriptor cache, data in L2",
    "tensor load, map not in the descriptor cache but in L2, data in L2",
    "tensor load, map in the descriptor cache, data in DRAM",
)
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

    def roles(self):
        return {"loader": self.loader}

    async def loader(self, wg):
        for parity in (0, 1):
            await wg.mbarrier_arrive_expect_tx(self.full, self.tile.nbytes)
            await wg.cp_async_bulk_tensor(self.tile, self.map_x, (0, 0), self.full)
            await wg.mbarrier_try_wait_parity(self.full, parity)
            self.got = await wg.ld_shared(self.tile)

    def check(self):
        return equal("tile", self.got, self.x.array)


@pytest.fixture(scope="module")
def clocks():
    """Clocks from the request to the completion of the phase, by kind of load and number of lines.

    The lines are 1, 8 and 128; the tensor map misses (``MISS``) or hits (``HIT``) the cache.
    """
    rows = 1, 8, 128
    records = launch.run([(LoadTwice(rows=count), Setting()) for count in rows])
    taken = {}
    for count, record in zip(rows, records, strict=True):
        assert record.check.endswith(f"bit for bit: {count * 128} elements")
        miss, hit = (request.done - request.cycle for request in record.requests)
        taken |= {(MISS, count): miss, (HIT, count): hit}
    return taken


def silicon(what, lines, column="median"):
    with SILICON.open() as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == what]
    return next(int(row[column]) for row in rows if int(row["lines"]) == lines)


@pytest.mark.simulators
@pytest.mark.parametrize("what", [HIT, MISS])
@pytest.mark.parametrize("lines", [1, 8, 128])
def test_a_load_takes_as_long_as_on_silicon(clocks, what, lines):
    assert clocks[what, lines] == pytest.approx(silicon(what, lines), rel=0.06)


@pytest.mark.simulators
@pytest.mark.parametrize("bandwidth", [0.25, 0.6, 0.8])
def test_memory_has_its_bandwidth(bandwidth):
    lines = 256
    setting = Setting(memory=f"bandwidth={bandwidth}")
    (record,) = launch.run([(LoadTwice(rows=lines), setting)])
    taken = record.sms[0].lines_read[lines:]
    assert taken.size == lines
    assert int(taken[-1] - taken[0]) == pytest.approx(lines / bandwidth, rel=0.02)


def test_dram_is_as_far_as_on_silicon():
    lines = surroundings("dram").lines
    assert lines.low + AROUND == pytest.approx(silicon(DRAM, 1, "least"), rel=0.06)
    assert (lines.low + lines.high) / 2 + AROUND == pytest.approx(silicon(DRAM, 1), rel=0.06)


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
        ("l3", "memory = l3: must be one of l2, dram"),
        ("l2,latency", "latency: must be a number"),
        ("l2,width=3", "width=3: must be latency="),
        ("bandwidth=1.5", "bandwidth 1.5: must be above 0 and up to 1"),
    ],
)
def test_illegal_surroundings(text, message):
    with pytest.raises(ValueError, match=message):
        surroundings(text)
