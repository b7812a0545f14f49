"""Host side of kernel runs: starts simulations and yields a record of each run.

The cocotb module ``tb_kernel`` runs the kernels inside of the simulator.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby

from hw.params import PRESETS, TmaParams
from sim_tb.simulator import jobs
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.record import Record, Setting
from sim_tb.sm.smem import SmemLayout

COCOTB_MODULE = "sim_tb.sm.tb_kernel"

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables of the simulator. Tiles are so small that several BLAS threads take longer than one."""

Job = tuple[Kernel, Setting]


def validate(kernel: Kernel, setting: Setting, params: TmaParams = PRESETS["default"]) -> None:
    """Check that a kernel can be run.

    Raises
    ------
    ValueError
        If an option or a setting is outside of its limits.
    SmemError
        If the kernel's shared memory does not fit.
    """
    kernel.validate()
    setting.validate()
    kernel.smem(SmemLayout(unit_of(kernel, params).smem_bytes))


def run(work: Sequence[Job], params: TmaParams = PRESETS["default"]) -> Iterator[Record]:
    """Run kernels one after the other; yield the record of each when it is done.

    Parameters
    ----------
    work : sequence of (Kernel, Setting)
        Kernels and their surroundings.
    params : TmaParams
        Parameters of each unit. The kernel overrides the number of CTAs and ``unit_params``.

    Raises
    ------
    ValueError
        If an option or a setting is outside of its limits. Nothing has run then.
    SmemError
        If the shared memory of a kernel does not fit. Nothing has run then.
    SimulationError
        If the simulation breaks off. The failure of a kernel is in its record.
    """
    for kernel, setting in work:
        validate(kernel, setting, params)
    for unit, group in groupby(work, lambda job: unit_of(job[0], params)):
        remaining = deque(group)
        while remaining:
            results = jobs.results(COCOTB_MODULE, list(remaining), env=ENVIRONMENT, params=unit)
            with closing(results):
                for record in results:
                    remaining.popleft()
                    yield record
                    if record.dirty:
                        break  # a reset does not free a unit with stuck requests: start a new one


def unit_of(kernel: Kernel, params: TmaParams) -> TmaParams:
    """Return the parameters with those that the kernel overrides."""
    return replace(params, ctas=kernel.ctas, **kernel.unit_params)
