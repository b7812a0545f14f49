"""Mistakes of kernels are named: one run for each, and what its message says."""

import re

import pytest

from sim_tb import launch
from sim_tb.record import Setting
from tests.sim_tb.mistakes import Twice

pytestmark = pytest.mark.simulators

MISTAKES = {
    "too large": (
        r"nothing has happened since cycle \d+\n"
        r"full\[0\]: expect_tx is 512 bytes too large: expect_tx: 2560 of producer in cycle \d+; "
        r"counted: request 0 \(cp\.async\.bulk\.tensor of x at \(0, 0\) of producer in cycle \d+, "
        r"1024 bytes\); request 1 .*"
        r"full\[0\]: phase 0, 0 of 1 arrivals pending, tx-count 512; 0 phases completed.*"
        r"producer: in 'wait empty\[0\]' since cycle \d+.*consumer: in 'wait full\[0\]' since"
    ),
    "too small": r"full\[0\]: expect_tx is 512 bytes too small: .*1536.*request 0.*request 1",
    "half": (
        r"full\[0\]: phase 0 completed in cycle \d+ with expect_tx 1024 bytes too small: "
        r"expect_tx: 1024 of producer .*request 0.*request 1"
    ),
    "never initialised": (
        r"consumer: mbarrier\.try_wait\.parity on full\[1\], which was never initialised"
        r"|producer: mbarrier\.arrive\.expect_tx on full\[1\], which was never initialised"
    ),
    "consumer waits for the wrong phase": (
        r"consumer: ldmatrix of stage\[0\] in cycle \d+, at 0x0 of shared memory: request 0 \(.*\) "
        r"writes there, and the warp has not waited for that phase of full\[0\]: it waited for "
        r"parity 1 in cycle \d+, when 0 phases had completed"
        r"|consumer: ldmatrix of stage\[0\] in cycle \d+: nobody has written shared memory at 0x"
    ),
    "producer waits for the wrong phase": (
        r"nothing has happened.*empty\[0\]: phase 0, 1 of 1 arrivals pending, tx-count 0; 0 phases "
        r"completed.*requests in flight:\n  none.*producer: in 'wait empty\[0\]' since cycle"
    ),
    "arrival missing": r"empty\[0\]: 1 of 2 arrivals are missing; there were: consumer\n",
    "overwritten before its release": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 32\) in cycle \d+ overwrites shared "
        r"memory at 0x0 before its release: consumer reads there what request 0 .* wrote"
    ),
    "arrival twice": (
        r"producer: arrives at full\[0\] in cycle \d+, whose phase 0 has all of its 1 arrivals "
        r"\(producer\) and waits for 2048 bytes"
    ),
    "source changed": (
        r"consumer: stmatrix of out in cycle \d+ overwrites shared memory at 0x1000 before its "
        r"release: a store of consumer reads there what stmatrix of out by consumer in cycle \d+ "
        r"wrote"
    ),
    "fence": (
        r"consumer: cp\.async\.bulk\.tensor to y at \(0, 0\) in cycle \d+: without "
        r"fence\.proxy\.async, the unit may not see what was written before \(stmatrix of out by"
    ),
    "map patched": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 0\) uses the tensor map at 0x\w+ after "
        r"tensormap\.replace of global_address by producer in cycle \d+, without "
        r"fence\.proxy\.tensormap acquire: the descriptor cache may hold the old one"
    ),
    "map patched in use": (
        r"tensormap\.replace of global_address by producer in cycle \d+ changes the tensor map at "
        r"0x\w+ that request 1 \(.*1024 bytes\) uses: nothing says that it is done"
    ),
    "phase of the swizzle": (
        r"consumer: ldmatrix of stage\[0\] at 0x80: the phase of its swizzle 128B is off by 1 rows "
        r"of 8: .* align the tile to 1024 bytes"
    ),
    "another swizzle": (
        r"consumer: ldmatrix of stage\[0\] with swizzle NONE: it was written with swizzle 128B by "
        r"request 0"
    ),
    "overlap": (
        r"(consumer: stmatrix of out|producer: cp\.async\.bulk\.tensor of x at) .*in cycle \d+,? "
        r"(at 0x800 of shared memory: |overwrites shared memory at 0x800 before its release)"
    ),
    "copy beyond the tensor": (
        r"producer: cp\.async\.bulk of 128 bytes at 0x\w+: 64 bytes beyond the end of x, which has "
        r"10240 bytes at 0x\w+"
    ),
    "copy beyond shared memory": (
        r"producer: cp\.async\.bulk of 128 bytes at 0x\w+: bytes 0x\w+ to 0x\w+ of shared memory: "
        r"\d+ bytes beyond the end of what the kernel has, 0x\w+"
    ),
    "nothing written": r"consumer: ldmatrix of out in cycle \d+: nobody has written .* at 0x1000",
    "load at the end": (
        r"the kernel ends with loads on their way to full\[0\]: expect_tx: 1024 of producer in "
        r"cycle \d+; counted: request \d+ "
    ),
    "store at the end": (
        r"consumer: the CTA ends while a store of consumer may read what stmatrix of out by "
        r"consumer in cycle \d+ wrote at 0x1000 of shared memory: nobody has waited for that"
    ),
    "refused": r"the unit refused request 0 \(.*\): MBAR_ALIGN, dimension 0, value 0x",
    "registers": r"consumer: setmaxnreg 250: must be from 24 to 256, a multiple of 8",
}


@pytest.fixture(scope="module")
def records():
    work = [(Twice(mistake=mistake), Setting(watchdog=4096)) for mistake in ("", *MISTAKES)]
    return dict(zip(("", *MISTAKES), launch.run(work), strict=True))


def test_the_right_kernel_is_right(records):
    record = records[""]
    assert not record.error
    assert not record.wrong
    assert record.check.endswith("bit for bit: 5120 elements")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_is_named(records, mistake):
    error = records[mistake].error
    assert re.search(MISTAKES[mistake], error, re.DOTALL), error
