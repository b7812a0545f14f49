"""Instructions of the SM: their results are those of NumPy or of the golden model."""

import re

import pytest

from hw.params import PRESETS
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from sim_tb.sm.warps import warps
from tests.sim_tb.sm import instructions
from tests.top import units

pytestmark = pytest.mark.simulators(PRESETS["default"], units.CLUSTER, units.LATER)

UNITS = {
    PRESETS["default"]: instructions.LOCAL,
    units.CLUSTER: instructions.CLUSTERED,
    units.LATER: instructions.LATER,
}
NAMES = [kernel.name for kernels in UNITS.values() for kernel in kernels]


@pytest.fixture(scope="module")
def records():
    """Records of all kernels, by name, from one simulation for each unit."""
    made = {}
    for unit, kernels in UNITS.items():
        for record in launch.run([(kernel, Setting()) for kernel in kernels], unit):
            made[record.kernel] = record
    return made


@pytest.mark.parametrize("name", NAMES)
def test_results(name, records):
    assert records[name].error == ""
    assert "equal" in records[name].check
    assert not records[name].wrong


def test_a_grid_runs_in_waves(records):
    """Eight CTAs take eight times as long on one SM as on eight, and two waves on four SMs."""
    alone, four = records["Grid"], records["GridOfSms"]
    assert 3.5 < alone.cycles / four.cycles < 4.5
    for record, ctas in ((alone, 8), (four, 2)):
        assert {len(sm.waits) for sm in record.sms} == {ctas}


WRONG = {
    "Bare": r"^role: mbarrier\.arrive .*: barrier is 1032 \(int\): must be a Mbarrier, as "
    r"smem\.mbarrier or smem\.ring returns it$",
    "Address": r"^role: cp\.async\.bulk .*: source is \d+ \(int\): must be a GlobalPoin",
    "Map": r"^role: cp\.async\.bulk\.tensor .*: tensor_map is Tensor\(name='x'.*\.\.\. "
    r"\(Tensor\): must be a TensorMapHandle, as device\.tensor_map or ",
    "Rows": r"^role: ldmatrix .*: tile is array\(.* \(ndarray\): must be a Tile, as smem",
    "Values": r"^tile\[0\]: the values are 3 \(int\): must be an array$",
    "Shape": r"^tile\[0\]: a tile of shape \(4, 32\) and type uint32 cannot take values of shape ",
    "Outside": r"^role: ld\.global of x .*: thread 1 has index 256 in dimension 0: must be "
    r"from 0 to 255; exclude it by where=$",
    "TooMany": r"^role: ld\.global of x .*: 3 indices: must be 2, one for each dimension",
    "Fraction": r"^role: ld\.global of x .*: index has type float64: must be of integers$",
    "Threads": r"^role: st\.global of x .*: values is array\(.*: must have one entry for ea",
    "Minimum": r"^role: atom\.global of f .*: min of float32: there is no such atomic",
    "Op": r"^role: atom\.global .*: op is 'ADD' \(str\): must be a ReductionOp, such as Reduc",
    "Mode": r"^role: cp\.async\.bulk\.tensor of x .*: mode is 'TILE' \(str\): must be a Acc",
    "Named": r"^role: bar\.sync 16, 128 .*: the number must be from 0 to 15$",
    "Odd": r"^role: bar\.sync 1, 100 .*: 100 threads: must be a multiple of 32 from 128, ",
    "Registers": r"^role: setmaxnreg .*: the role has 1 warps: all warps of a warpgroup mus",
    "Products": r"^role: wgmma_fence: all four warps of a warpgroup must execute it, and the role ",
    "Nobody": r"^role: mapa of tile\[0\] .*: CTA 1: must be from 0 to 0, a rank in the clu",
}
"""Wrong operands, by the name of the kernel that has them, and the message."""


@pytest.fixture(scope="module")
def errors():
    """Errors of the kernels with wrong operands."""
    work = [(instructions.Wrong(name), Setting()) for name in WRONG]
    return dict(zip(WRONG, (record.error for record in launch.run(work)), strict=True))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_operands_are_named(name, errors):
    assert re.search(WRONG[name], errors[name]), errors[name]


def test_grids_that_do_not_fit_are_named():
    for grid, sms, message in (
        ((3, 1, 1), 4, r"grid_dim \(3, 1, 1\): must be three numbers of at least 1, the first a m"),
        ((4, 0, 1), 4, r"grid_dim \(4, 0, 1\): must be"),
        ((4, 1, 1), 8, r"sms 8: must be 4, the CTAs of the cluster; only CTAs without a cluster"),
    ):
        kernel = instructions.Sized(grid=grid, number=sms)
        with pytest.raises(ValueError, match=message):
            launch.validate(kernel, Setting())


def test_warps_of_a_role():
    with pytest.raises(ValueError, match=r"warps\(5\): must be from 1 to 4"):
        warps(5)
