"""The sanitizer names the mistakes of kernels: one run and one message for each mistake."""

import re

import pytest

from sim_tb.report.report import figures_of
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from tests.sim_tb.sm import mistakes
from tests.sim_tb.sm.mistakes import StagedCopy

pytestmark = pytest.mark.simulators

MISTAKES = {
    "too large": (
        r"the kernel hangs: nothing can move any more\n"
        r"full\[0\]: expect_tx is 512 bytes too large: expect_tx: 2560 bytes by producer in cycle "
        r"\d+; loads: request 0 \(cp\.async\.bulk\.tensor of x at \(0, 0\) by producer in cycle "
        r"\d+, 1024 bytes\); request 1 .*; expect the bytes of all loads.*"
        r"full\[0\]: phase 0, 0 of 1 arrivals pending, tx-count 512; 0 phases completed.*"
        r"producer: in 'wait empty\[0\]' since cycle \d+.*consumer: in 'wait full\[0\]' since"
    ),
    "too small": (
        r"full\[0\]: phase 0 has all of its arrivals in cycle \d+, but expect_tx is 512 bytes too "
        r"small: expect_tx: 1536 bytes by producer .*request 0 .*request \(.*; expect the bytes of "
        r"all loads .* Silicon signals the bytes of a request in parts: the phase may end at a part"
    ),
    "half": (
        r"full\[0\]: phase 0 has all of its arrivals in cycle \d+, but expect_tx is 1024 bytes too "
        r"small: expect_tx: 1024 bytes by producer .*request 0 .*request \("
    ),
    "initialised twice": (
        r"mbarrier\.init of 1 on full\[1\] in cycle \d+: this barrier is already initialised; "
        r"initialise it once, or call mbarrier_inval first"
    ),
    "no arrivals": (
        r"mbarrier\.init of 0 on full\[0\] in cycle \d+: the count must be from 1 to 1048575"
    ),
    "used after inval": (
        r"(consumer: mbarrier\.try_wait\.parity|producer: mbarrier\.arrive\.expect_tx) on "
        r"full\[1\] in cycle \d+: this barrier was invalidated by \w+ in cycle \d+; call "
        r"mbarrier_init before it is used again"
    ),
    "inval in use": (
        r"producer: mbarrier\.inval on full\[0\] in cycle \d+: phase 0 has begun: 1 arrivals; "
        r"expect_tx: 2048 bytes by producer .*request 0 .*; wait for this phase first"
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
        r"hangs: nothing can move any more\nempty\[0\]: 1 of 1 arrivals are missing in phase 0; "
        r"arrived: nobody; producer waits with parity 0 since cycle \d+; let each consumer call "
        r"mbarrier_arrive .*, or use parity 1 for a first wait that must return at once\n"
        r"full\[0\]: .*; the producer waits for an empty stage\ncircle: producer waits for phase "
        r"0 of "
        r"empty\[0\], which consumer completes; consumer waits for phase 0 of full\[0\], which "
        r"producer completes\nbarriers:.*"
        r"empty\[0\]: phase 0, 1 of 1 arrivals pending, tx-count 0; 0 phases "
        r"completed.*requests in flight:\n  none.*producer: in 'wait empty\[0\]' since cycle"
    ),
    "parity never changes": (
        r"\nempty\[0\]: 1 of 1 arrivals are missing in phase 1; arrived: nobody; producer waits "
        r"with parity 1 since cycle \d+; phase 0 has completed, and producer never waited for it: "
        r"to wait for phase 0, use parity 0\nfull\[0\]: "
    ),
    "arrival missing": (
        r"\nempty\[0\]: 1 of 2 arrivals are missing in phase 0; arrived: consumer; producer waits "
        r"with parity 0 since cycle \d+; add the missing arrivals, or lower the count"
    ),
    "no release": (
        r"\nempty\[0\]: 1 of 1 arrivals are missing in phase 0; arrived: nobody; producer waits "
        r"with parity 0 since cycle \d+; consumer has waited for phase 0 of full\[0\], and now "
        r"waits for phase 1 of full\[0\]; let each consumer call mbarrier_arrive when it has read "
        r"the stage\nfull\[0\]: 1 of 1 arrivals are missing in phase 1; arrived: nobody; consumer "
        r"waits with parity 1 since cycle \d+; producer arrived in phases before, and now waits "
        r"for phase 0 of empty\[0\]\ncircle: producer waits for phase 0 of empty\[0\], which "
        r"consumer "
        r"completes; consumer waits for phase 1 of full\[0\], which producer completes\nbarriers:"
    ),
    "bytes without an arrival": (
        r"\nfull\[0\]: 1 of 1 arrivals are missing in phase 0; arrived: nobody; consumer waits "
        r"with parity 0 since cycle \d+; producer announced 2048 bytes and did not arrive: use "
        r"mbarrier_arrive_expect_tx\nempty\[0\]: .*; the stage waits for phase 0 of full\[0\]\n"
    ),
    "too few at bar.sync": (
        r"hangs: nothing can move any more\nbar\.sync 1: 128 of 384 threads have arrived: "
        r"consumer; let "
        r"the others arrive, or lower the number\nempty\[0\]: .*; nobody has waited for phase 0 of "
        r"full"
    ),
    "registers that are taken": (
        r"hangs: nothing can move any more\nconsumer: setmaxnreg waits for registers: the "
        r"warpgroups "
        r"hold \d+ of 512 per thread; let another role release more of them, or ask for fewer\n"
    ),
    "error of Python": (
        r"^consumer \(warps 4 to 7\), cycle \d+: AttributeError: 'StagedCopy' object has no "
        rf"attribute 'tyles'\n  File \"{re.escape(mistakes.__file__)}\", line \d+, in consumer\n"
        r"    tile = self\.tyles\[s\]\n[ ~^]+$"
    ),
    "error in check": (
        r"^check: ValueError: operands could not be broadcast together .*\n"
        rf'  File "{re.escape(mistakes.__file__)}", line \d+, in check\n    return eq.*\n[ ~^]+$'
    ),
    "overwritten before its release": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 32\) in cycle \d+ overwrites 0x0 of "
        r"shared memory before its release: warp 0 of consumer reads the data that request 0 .* "
        r"wrote there, and nothing orders this read before the write; wait for a barrier or a group"
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
        r"producer: the CTA ends in cycle \d+ while request \d+ \(.*\) may still write to its "
        r"shared memory: nobody of the CTA has waited for phase 3 of full\[0\]; wait for this "
        r"phase before"
    ),
    "store at the end": (
        r"consumer: the CTA ends in cycle \d+ while a store of consumer may still read the data "
        r"that stmatrix of out by consumer in cycle \d+ wrote at 0x1000 of shared memory; wait for"
    ),
    "refused": r"the unit refused request 0 \(.*\): COORD_ALIGN, dimension 0, value 0x4",
    "barrier misaligned": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 0\) in cycle \d+: 0x\w+ is inside of "
        r"full\[0\], at 0x\w+: a barrier is aligned to 8 bytes; use its own address"
    ),
    "init without a fence": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 0\) on full\[0\] in cycle \d+: this "
        r"barrier was initialised by prologue in cycle \d+, without fence\.mbarrier_init: the unit "
        r"may not see the initialisation; call fence_mbarrier_init after mbarrier_init"
    ),
    "wait of one thread": (
        r"consumer: stmatrix of out in cycle \d+ overwrites 0x\w+ of shared memory before its "
        r"release: a store of consumer reads the data that stmatrix of out by consumer in cycle"
    ),
    "warps that race": (
        r"consumer: cp\.async\.bulk\.tensor to y at \(0, 0\) in cycle \d+, at 0x\w+ of shared "
        r"memory: nothing orders it behind stmatrix of out by consumer in cycle \d+, by warp 1 of "
        r"consumer: only a barrier orders the warps of a warpgroup; let them meet at a named "
        r"barrier \(bar_sync\) after the write"
    ),
    "registers": (
        r"consumer: setmaxnreg 250 in cycle \d+: the number must be a multiple of 8 from 24 to 256"
    ),
}


@pytest.fixture(scope="module")
def records():
    work = [(StagedCopy(mistake=mistake), Setting(watchdog=4096)) for mistake in ("", *MISTAKES)]
    work.append((StagedCopy(), Setting(memory="latency=9000", watchdog=4096)))
    return dict(zip(("", *MISTAKES, "late"), launch.run(work), strict=True))


def test_the_kernel_without_a_mistake_is_right(records):
    record = records[""]
    assert not record.error
    assert not record.wrong
    assert record.check.endswith("bit for bit: 5120 elements")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(records, mistake):
    error = records[mistake].error
    assert re.search(MISTAKES[mistake], error, re.DOTALL), error


def test_loads_that_are_late(records):
    """A memory that is slower than the watchdog is named, and nothing counts that came later."""
    record = records["late"]
    late = r"full\[0\]: the bytes of phase 0 have not arrived: request 0 .*; if the memory"
    assert re.search(late, record.error)
    (requested,) = re.findall(r"lines: (\d+) requested", record.error)
    assert figures_of(record) == {
        "cycles until the failure": f"{record.cycles:,}",
        "loads": "4 issued, 0 completed",
        "stores": "0 issued, 0 completed",
        "lines requested": requested,
        "lines written": "0",
    }


def test_a_failure_counts_what_happened(records):
    """Activities that were planned for later do not count, whatever the unit finished later."""
    for record in records.values():
        for sm in record.sms:
            stamps = [sm.lines_read, sm.beats_written, sm.beats_read, sm.lines_written]
            assert all(int(each[-1]) <= record.cycles for each in stamps if each.size)
            intervals = [*sm.scheduler, *sm.smem_port, *((s.start, s.end) for s in sm.spans)]
            assert all(first < end <= record.cycles for first, end in intervals)
