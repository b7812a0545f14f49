"""Messages about mistakes of kernels: their parts, and the figures of a run that failed.

The mistakes themselves are in ``tests/mistakes``.
"""

import re

import pytest

from sim_tb.report.report import figures_of
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from tests.mistakes import probe
from tests.sim_tb.sm import mistakes
from tests.sim_tb.sm.mistakes import StagedCopy

pytestmark = pytest.mark.simulators

MISTAKES = {
    "too large": (
        r"the kernel hangs: nothing can move any more\n"
        r"full\[0\]: expect_tx is 512 bytes too large: expect_tx: 2560 bytes by producer in cycle "
        r"\d+; loads: request 0 \(cp\.async\.bulk\.tensor of x at \(0, 0\) by producer in cycle "
        r"\d+, 2048 bytes\); expect the bytes of all loads.*"
        r"full\[0\]: phase 0, 0 of 1 arrivals pending, tx-count 512; 0 phases completed.*"
        r"producer: in 'wait empty\[0\]' since cycle \d+.*consumer: in 'wait full\[0\]' since"
    ),
    "error of Python": (
        r"^consumer \(warps 4 to 7\), cycle \d+: AttributeError: 'StagedCopy' object has no "
        rf"attribute 'stages_of'\n  File \"{re.escape(probe.__file__)}\", line \d+, in consumer\n.*"
        rf"  File \"{re.escape(mistakes.__file__)}\", line \d+, in use\n"
        r"    stage = self\.stages_of\[step\]\n[ ~^]+$"
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
    "overlap": (
        r"(consumer: stmatrix of out|producer: cp\.async\.bulk\.tensor of x at) .*in cycle \d+,? "
        r"(at 0x800 of shared memory: |overwrites 0x800 of shared memory before its release)"
    ),
    "copy beyond shared memory": (
        r"producer: cp\.async\.bulk of 128 bytes at 0x\w+ in cycle \d+ accesses bytes 0x\w+ to "
        r"0x\w+ of shared memory: \d+ bytes beyond the end of the kernel's layout, 0x\w+; allocate"
    ),
    "refused": r"the unit refused request 0 \(.*\): COORD_ALIGN, dimension 0, value 0x4",
    "barrier misaligned": (
        r"producer: cp\.async\.bulk\.tensor of x at \(0, 0\) in cycle \d+: 0x\w+ is inside of "
        r"full\[0\], at 0x\w+: a barrier is aligned to 8 bytes; use its own address"
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
        "loads": "2 issued, 0 completed",
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
