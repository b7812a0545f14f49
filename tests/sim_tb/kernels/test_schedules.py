"""Every shipped kernel in random schedules: nothing is found, and the results are right."""

import pytest

from hw.params import PRESETS
from sim_tb.kernels import kernels
from sim_tb.kernels.all_gather import AllGather
from sim_tb.kernels.gather import Gather
from sim_tb.kernels.gemm import Gemm
from sim_tb.kernels.gemm_split_k import GemmSplitK
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
from tests.top.units import CLUSTER, LATER

SCHEDULES = range(1, 9)
CLUSTERS = [
    Gemm(m=300, n=260, k=200, cluster="2x2", stages=2),
    GemmSplitK(m=130, n=260, k=304, cluster="1x4"),
    AllGather(),
]
ALONE = [kernel() for kernel in kernels().values()]
WORK = {
    "default": [each for each in ALONE if each.ctas == 1 and not each.unit_params],
    "later": [Gather(rows=50, columns=36, indices=37, stages=2)],
    "cluster": CLUSTERS,
}
UNITS = {"default": PRESETS["default"], "later": LATER, "cluster": CLUSTER}


def test_every_kernel_has_a_place():
    assert {kernel.name for work in WORK.values() for kernel in work} == kernels().keys()


@pytest.mark.regress
@pytest.mark.simulators(PRESETS["default"], LATER, CLUSTER)
@pytest.mark.parametrize("unit", WORK)
def test_no_schedule_has_a_mistake(unit):
    work = [(kernel, Setting(schedule=s)) for kernel in WORK[unit] for s in SCHEDULES]
    for record in launch.run(work, UNITS[unit]):
        assert not record.failed, f"{record.title}: {record.error or record.check}"
