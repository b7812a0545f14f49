"""Instructions of the SM: their results are those of NumPy or of the golden model."""

import pytest

from hw.params import PRESETS
from sim_tb.sm import launch
from sim_tb.sm.record import Setting
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
