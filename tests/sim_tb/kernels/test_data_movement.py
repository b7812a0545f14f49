"""Kernels that move data: equal to NumPy on ragged sizes, with the expected traffic."""

import re

import pytest

from hw.params import PRESETS
from sim_tb.kernels.all_gather import AllGather
from sim_tb.kernels.gather import Gather
from sim_tb.kernels.grouped_gemm import GroupedGemm
from sim_tb.kernels.transpose import Transpose
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from tests.sim_tb.sm.without import Without
from tests.top.units import CLUSTER, LATER

SWIZZLES = "none", "32B", "64B", "128B"
ROWS, COLUMNS = 70, 45
TRANSPOSES = [Transpose(rows=ROWS, columns=COLUMNS, swizzle=swizzle) for swizzle in SWIZZLES]
GROUPED = [
    GroupedGemm(sizes="130,8x8x8,72x136x264,1,65x40", n=72, k=72, stages=3),
    GroupedGemm(sizes="200x40x200", stages=1),
]
GATHERS = [
    Gather(rows=50, columns=36, indices=37, stages=2),
    Gather(rows=300, columns=72, indices=131),
    Gather(rows=1, columns=1, indices=4, stages=1),
]
RINGS = [AllGather(size=5040), AllGather(size=48), AllGather(size=2064, chunk=1024)]

MISTAKES = {
    "transpose, fence_proxy_async": (
        r"transposer: cp\.async\.bulk\.tensor to out at \(0, 0\) in cycle \d+, at 0x\w+ of shared "
        r"memory: without fence\.proxy\.async, the unit may not see an earlier write"
    ),
    "transpose, wait_group": (
        r"transposer: st\.shared of out 0\[0\] in cycle \d+ overwrites 0x\w+ of shared memory "
        r"before its release: a store of transposer reads the data"
    ),
    "grouped_gemm, fence_proxy_tensormap": (
        r"producer: cp\.async\.bulk\.tensor of A0 at \(0, 0\) in cycle \d+ uses the tensor map at "
        r"0x\w+ after tensormap\.replace of global_stride by producer in cycle \d+, without "
        r"fence\.proxy\.tensormap acquire"
    ),
    "gather, wait_group": (
        r"producer: cp\.async\.bulk\.tensor of in at .* before its release: a store of storer"
    ),
    "all_gather, cluster_sync": (
        r"ring of CTA \d: cp\.async\.bulk of shard.* on arrived\[1\] of CTA \d in cycle \d+: this "
        r"barrier was initialised by prologue of CTA \d in cycle \d+, and nothing orders this "
        r"operation behind that; let both meet at a barrier\.cluster"
    ),
}


def mistaken(*kernels):
    """These kernels, each with every mistake that ``MISTAKES`` has for it."""
    return [
        Without(kernel=kernel, operation=operation)
        for name, operation in (mistake.split(", ") for mistake in MISTAKES)
        for kernel in kernels
        if kernel.name == name
    ]


@pytest.fixture(scope="module")
def all_records():
    """Records of all runs of this file, from one simulation for each unit."""
    runs = [
        ([*TRANSPOSES, *GROUPED, *mistaken(TRANSPOSES[-1], GROUPED[0])], {}),
        ([*GATHERS, *mistaken(GATHERS[0])], {"params": LATER}),
        ([*RINGS, *mistaken(RINGS[0])], {"params": CLUSTER}),
    ]
    records = []
    for kernels, unit in runs:
        records += launch.run([(kernel, Setting(watchdog=4096)) for kernel in kernels], **unit)
    return records


@pytest.fixture(scope="module")
def records(all_records):
    """Records of each kernel, by its name."""
    by_kernel = {}
    for record in all_records:
        by_kernel.setdefault(record.kernel, []).append(record)
    return by_kernel


def checked_sm(record, elements):
    """The first SM of a run, whose result must be right."""
    assert not record.error
    assert not record.wrong
    assert record.check.endswith(f"bit for bit: {elements} elements")
    return record.sms[0]


@pytest.mark.simulators(PRESETS["default"], LATER, CLUSTER)
def test_transpose(records):
    tiles = 3 * 2
    for record in records["transpose"]:
        sm = checked_sm(record, ROWS * COLUMNS)
        assert sm.load_bytes == tiles * 32 * 32 * 4
        assert sm.store_bytes == COLUMNS * 288
    assert records["transpose"][-1].sms[0].lines_read.size == 2 * ROWS


@pytest.mark.simulators(PRESETS["default"], LATER, CLUSTER)
def test_a_wider_swizzle_has_fewer_bank_conflicts(records):
    """Conflicts per tile: 32 columns of 32 words take 32 or 4 clocks each instead of 1.

    With a narrow swizzle, a row of a box is shorter than the 32 words of a warp and conflicts, too.
    """
    conflicts = [record.total("bank_conflicts") / 6 for record in records["transpose"]]
    columns, short_rows = [31, 3, 3, 3], [0, 4 - 1, 2 - 1, 0]
    assert conflicts == [32 * (a + b) for a, b in zip(columns, short_rows, strict=True)]
    cycles = [record.cycles for record in records["transpose"]]
    assert cycles[0] > 2 * cycles[-1]


@pytest.mark.simulators(PRESETS["default"], LATER, CLUSTER)
def test_grouped_gemm(records):
    for record, kernel in zip(records["grouped_gemm"], GROUPED, strict=True):
        sm = checked_sm(record, sum(m * n for m, n, _ in kernel.shapes))
        tiles = sum(-(-m // 128) * -(-n // 128) * -(-k // 64) for m, n, k in kernel.shapes)
        assert sm.load_bytes == tiles * 32768
        assert sm.store_bytes == sum(m * -(-n // 4) * 16 for m, n, _ in kernel.shapes)
        assert record.flops == 2 * sum(m * n * k for m, n, k in kernel.shapes)


@pytest.mark.simulators(PRESETS["default"], LATER, CLUSTER)
def test_gather_reads_only_rows_inside_of_the_matrix(records):
    for record, kernel in zip(records["gather"], GATHERS, strict=True):
        sm = checked_sm(record, kernel.indices * kernel.columns)
        columns, rows = -(-kernel.columns // 32), kernel.padded
        assert sm.load_bytes == columns * rows * 128 + rows * 4
        inside = kernel.indices - 4
        assert sm.lines_read.size == columns * inside + rows * 4 // 128
        assert sm.store_bytes == kernel.indices * -(-kernel.columns // 4) * 16


@pytest.mark.simulators(PRESETS["default"], LATER, CLUSTER)
def test_all_gather_reads_each_shard_once(records):
    for record, kernel in zip(records["all_gather"], RINGS, strict=True):
        checked_sm(record, 16 * kernel.size)
        lines = -(-kernel.size // 128)
        for sm in record.sms:
            assert sm.lines_read.size == lines
            assert sm.beats_written.size == 4 * lines
            assert sm.load_bytes == kernel.size
            assert sm.store_bytes == 4 * kernel.size


@pytest.mark.simulators(PRESETS["default"], LATER, CLUSTER)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_instruction_that_is_left_out_is_named(records, mistake):
    name, operation = mistake.split(", ")
    (record,) = (
        record
        for record in records["without"]
        if record.options["operation"] == operation and record.options["kernel_name"] == name
    )
    assert re.search(MISTAKES[mistake], record.error), record.error


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Transpose(swizzle="96B"), "swizzle = 96B: must be one of NONE, 32B, 64B, 128B"),
        (GroupedGemm(sizes="8,"), "sizes = 8,: '': must be M, MxN or MxNxK"),
        (GroupedGemm(sizes="8x8x8x8"), "sizes = 8x8x8x8: '8x8x8x8': must be M, MxN or MxNxK"),
        (GroupedGemm(sizes="8,0x8"), "sizes = 8,0x8: '0x8': must be M, MxN or MxNxK"),
        (GroupedGemm(sizes="8x8x12"), "sizes = 8x8x12: group 8x8x12: K must be a multiple of 8"),
        (Gather(indices=3), "indices = 3: must be from 4 to 4096"),
        (AllGather(size=24), "size = 24: must be a multiple of 16"),
        (AllGather(chunk=24), "chunk = 24: must be a multiple of 16"),
        (AllGather(cluster=1), "cluster = 1: must be from 2 to 16"),
    ],
)
def test_wrong_options_are_named(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel.validate()
