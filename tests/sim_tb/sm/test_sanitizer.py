"""The sanitizer names the mistakes of kernels: one run and one message for each mistake."""

import re

import pytest

from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from tests.sim_tb.sm.mistakes import StagedCopy

pytestmark = pytest.mark.simulators

MISTAKES = {
    "too large": (
        r"the kernel hangs: no progress since cycle \d+\n"
        r"full\[0\]: expect_tx is 512 bytes too large: expect_tx: 2560 bytes by producer in cycle "
        r"\d+; loads: request 0 \(cp\.async\.bulk\.tensor of x at \(0, 0\) by producer in cycle "
        r"\d+, 1024 bytes\); request 1 .*; expect the bytes of all loads.*"
        r"full\[0\]: phase 0, 0 of 1 arrivals pending, tx-count 512; 0 phases completed.*"
        r"producer: in 'wait empty\[0\]' since cycle \d+.*consumer: in 'wait full\[0\]' since"
    ),
    "too small": r"full\[0\]: expect_tx is 512 bytes too small: .*1536.*request 0.*request 1",
    "half": (
        r"full\[0\]: phase 0 completed in cycle \d+, but expect_tx is 1024 bytes too small: "
        r"expect_tx: 1024 bytes by producer .*request 0.*request 1"
    ),
    "never initialised": (
        r"(consumer: mbarrier\.try_wait\.parity|producer: mbarrier\.arrive\.expect_tx) on "
        r"full\[1\] in cycle \d+: this barrier was never initialised; call mbarrier_init"
    ),
    "consumer waits for the wrong phase": (
        r"consumer: ldmatrix of stage\[0\] in cycle \d+, at 0x0 of shared memory: request 0 \(.*\) "
        r"writes there and signals full\[0\], and the warpgroup has not waited for that phase: its "
        r"last wait, for parity 1, returned in cycle \d+, when 0 phases had completed"
        r"|consumer: ldmatrix of stage\[0\] in cycle \d+ reads 0x\w+ of shared memory, which nobody"
    ),
    "producer waits for the wrong phase": (
        r"no progress since.*empty\[0\]: phase 0, 1 of 1 arrivals pending, tx-count 0; 0 phases "
        r"completed.*requests in flight:\n  none.*producer: in 'wait empty\[0\]' since cycle"
    ),
    "arrival missing": (
        r"empty\[0\]: 1 of 2 arrivals are missing in phase 0; arrived: consumer; add the missing"
    ),
    "overwritten before its release": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 32\) in cycle \d+ overwrites 0x0 of "
        r"shared memory before its release: consumer reads the data that request 0 .* wrote there, "
        r"and nothing orders this read before the write; wait for a barrier or a group"
    ),
    "arrival twice": (
        r"producer: one arrival too many at full\[0\] in cycle \d+: phase 0 already has all of "
        r"its 1 arrivals \(producer\) and waits for 2048 bytes; wait for the phase before"
    ),
    "source changed": (
        r"consumer: stmatrix of out in cycle \d+ overwrites 0x1000 of shared memory before its "
        r"release: a store of consumer reads the data that stmatrix of out by consumer in cycle "
        r"\d+ wrote"
    ),
    "fence": (
        r"consumer: cp\.async\.bulk\.tensor to y at \(0, 0\) in cycle \d+, at 0x1000 of shared "
        r"memory: without fence\.proxy\.async, the unit may not see an earlier write \(stmatrix of "
        r"out by consumer in cycle \d+\); call fence_proxy_async"
    ),
    "map patched": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 0\) in cycle \d+ uses the tensor map at "
        r"0x\w+ after tensormap\.replace of global_address by producer in cycle \d+, without "
        r"fence\.proxy\.tensormap acquire: the descriptor cache may hold the old map; call "
        r"fence_proxy_tensormap"
    ),
    "map patched in use": (
        r"tensormap\.replace of global_address by producer in cycle \d+ changes the tensor map at "
        r"0x\w+, which request 1 \(.*1024 bytes\) may still be using; wait for this request's"
    ),
    "phase of the swizzle": (
        r"consumer: ldmatrix of stage\[0\] in cycle \d+: the tile is at 0x80, so the phase of its "
        r"swizzle 128B is off by 1 of 8 rows: .* align the tile to 1024 bytes"
    ),
    "another swizzle": (
        r"consumer: ldmatrix of stage\[0\] in cycle \d+, at 0x0 of shared memory: it reads with "
        r"swizzle NONE the data that request 0 \(.*\) wrote with swizzle 128B; use one swizzle"
    ),
    "overlap": (
        r"(consumer: stmatrix of out|producer: cp\.async\.bulk\.tensor of x at) .*in cycle \d+,? "
        r"(at 0x800 of shared memory: |overwrites 0x800 of shared memory before its release)"
    ),
    "copy beyond the tensor": (
        r"producer: cp\.async\.bulk of 128 bytes at 0x\w+ in cycle \d+: the last 64 bytes are "
        r"beyond the end of x, which has 10240 bytes at 0x\w+; copy fewer bytes"
    ),
    "copy beyond shared memory": (
        r"producer: cp\.async\.bulk of 128 bytes at 0x\w+ in cycle \d+ accesses bytes 0x\w+ to "
        r"0x\w+ of shared memory: \d+ bytes beyond the end of the kernel's layout, 0x\w+; allocate"
    ),
    "nothing written": (
        r"consumer: ldmatrix of out in cycle \d+ reads 0x1000 of shared memory, which nobody has "
        r"written"
    ),
    "load at the end": (
        r"the kernel ends before phase \d+ of full\[0\] has completed: expect_tx: 1024 bytes by "
        r"producer in cycle \d+; loads: request \d+ .*; wait for this phase"
    ),
    "store at the end": (
        r"consumer: the CTA ends in cycle \d+ while a store of consumer may still read the data "
        r"that stmatrix of out by consumer in cycle \d+ wrote at 0x1000 of shared memory; wait for"
    ),
    "refused": r"the unit refused request 0 \(.*\): MBAR_ALIGN, dimension 0, value 0x",
    "registers": (
        r"consumer: setmaxnreg 250 in cycle \d+: the number must be a multiple of 8 from 24 to 256"
    ),
}


@pytest.fixture(scope="module")
def records():
    work = [(StagedCopy(mistake=mistake), Setting(watchdog=4096)) for mistake in ("", *MISTAKES)]
    return dict(zip(("", *MISTAKES), launch.run(work), strict=True))


def test_the_kernel_without_a_mistake_is_right(records):
    record = records[""]
    assert not record.error
    assert not record.wrong
    assert record.check.endswith("bit for bit: 5120 elements")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(records, mistake):
    error = records[mistake].error
    assert re.search(MISTAKES[mistake], error, re.DOTALL), error
