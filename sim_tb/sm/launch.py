"""Host side of kernel runs: starts simulations and yields a record of each run.

The cocotb module ``tb_kernel`` runs the kernels inside of the simulator.
"""

from bisect import bisect
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import fields, replace
from itertools import count, groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw.params import PRESETS, TmaParams
from sim_tb.simulator import jobs
from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError, kernel_code
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.record import Record, Setting
from sim_tb.sm.smem import SmemError, SmemLayout
from sim_tb.testbench.global_memory import MAP_BYTES, MAPS

COCOTB_MODULE = "sim_tb.sm.tb_kernel"

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables of the simulator. Tiles are so small that several BLAS threads take longer than one."""

MOST_STEP = 256
"""Most numbers that are tried, below one that an option must not have, for one that it may have."""

Job = tuple[Kernel, Setting]


class Addresses:
    """Addresses of tensors and maps in place of global memory, where there is no simulator."""

    def __init__(self) -> None:
        self._maps = count(MAPS, MAP_BYTES)

    def place(self, address: int, array: NDArray[Any]) -> None:
        """Do nothing: nobody reads the array by its address."""

    def place_map(self, words: NDArray[np.uint32]) -> int:  # noqa: ARG002
        """Return an address that was never used."""
        return next(self._maps)


def validate(kernel: Kernel, setting: Setting, params: TmaParams = PRESETS["default"]) -> None:
    """Check that a kernel can be run: its options, its host code, and its shared memory.

    ``host`` and ``smem`` run on a copy of the kernel, without a simulator.

    Raises
    ------
    ValueError
        If an option or a setting is outside of its limits, or the tensors do not fit into memory.
    SmemError
        If the kernel's shared memory does not fit. The text says which options must be smaller.
    KernelError
        If ``validate``, ``host`` or ``smem`` of the kernel raises another error.
    """
    setting.validate()
    try:
        with kernel_code("validate", ValueError, MemoryError):
            kernel.validate()
        _lay_out(kernel, params)
    except SmemError as error:
        raise SmemError("; ".join([str(error), *_remedies(kernel, params)])) from error
    except MemoryError as error:
        raise ValueError(f"the tensors do not fit into this computer's memory: {error}") from error


def _lay_out(kernel: Kernel, params: TmaParams) -> None:
    """Call ``host`` and ``smem`` of a copy of a kernel."""
    with kernel_code("ctas, grid_dim, sms and unit_params", ValueError):
        next(kernel.clusters())
        unit = unit_of(kernel, params)
    laid_out = copy(kernel)
    with kernel_code("host", MemoryError):
        device = Device(Addresses(), kernel.arch, kernel.given_inputs)
        laid_out.host(device)
    with kernel_code("smem", MemoryError, SmemError):
        laid_out.smem(SmemLayout(unit.smem_bytes))
    if kernel.given_inputs is not None:
        device.check_inputs()
        device.arrays()


def _remedies(kernel: Kernel, params: TmaParams) -> list[str]:
    """Return a sentence with each option that makes the shared memory fit if it is smaller.

    The list is empty if there is none.
    """

    def with_option(name: str, value: int) -> Kernel:
        return replace(kernel, **{name: value})

    def fits(name: str, value: int) -> bool:
        try:
            _lay_out(with_option(name, value), params)
        except (ValueError, MemoryError, KernelError):
            return False
        return True

    def is_legal(name: str, value: int) -> bool:
        try:
            with_option(name, value).validate()
        except ValueError:
            return False
        return True

    remedies = []
    for item in fields(kernel):
        name, value = item.name, getattr(kernel, item.name)
        if "least" not in item.metadata or not isinstance(value, int):
            continue
        smaller = range(item.metadata["least"], value)
        if smaller and fits(name, smaller[0]):
            fitting = smaller[: bisect(smaller, False, key=lambda each: not fits(name, each))]
            legal = (each for each in fitting[:-MOST_STEP:-1] if is_legal(name, each))
            remedies += [f"{name} must be at most {each}" for each in islice(legal, 1)]
    return [" or ".join(remedies)] if remedies else []


def run(work: Sequence[Job], params: TmaParams = PRESETS["default"]) -> Iterator[Record]:
    """Check kernels, and run them one after the other as ``simulate`` does.

    Raises
    ------
    ValueError, SmemError, KernelError
        As ``validate`` raises them. Nothing has run then.
    SimulationError
        As ``simulate`` raises it.
    """
    for kernel, setting in work:
        validate(kernel, setting, params)
    yield from simulate(work, params)


def run_arrays(
    kernel: Kernel,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    *,
    setting: Setting | None = None,
    params: TmaParams = PRESETS["default"],
) -> dict[str, NDArray[Any]]:
    """Run a kernel with arrays as its inputs; return its tensors. ``sim_tb.run`` is this function.

    Parameters
    ----------
    kernel : Kernel
        Object of the kernel's class, with its options.
    inputs : mapping, optional
        Arrays by the name of the tensor. Each takes the place of the values that ``host`` gives to
        ``device.tensor``, if it gives any.
    setting : Setting, optional
        Surroundings of the run.
    params : TmaParams
        Parameters of each unit, as in ``simulate``.

    Returns
    -------
    dict of str to array
        Contents of all tensors of the kernel at the end, by name.

    Raises
    ------
    KernelError
        If the run failed, or the result is wrong by the kernel's own check. The text says why.
    ValueError, SmemError, SimulationError
        As ``run`` raises them.
    """
    work = [(kernel.with_inputs(inputs or {}), setting or Setting())]
    (record,) = run(work, params)
    if record.failed:
        raise KernelError(record.error or record.check)
    return record.outputs


def simulate(work: Sequence[Job], params: TmaParams = PRESETS["default"]) -> Iterator[Record]:
    """Run kernels one after the other; yield the record of each when it is done.

    Parameters
    ----------
    work : sequence of (Kernel, Setting)
        Kernels that ``validate`` accepts, and their surroundings.
    params : TmaParams
        Parameters of each unit. The kernel overrides the number of CTAs and ``unit_params``.

    Raises
    ------
    SimulationError
        If the simulation breaks off. The failure of a kernel is in its record.
    """
    for unit, group in groupby(work, lambda job: unit_of(job[0], params)):
        remaining = deque(group)
        while remaining:
            results = jobs.results(COCOTB_MODULE, list(remaining), env=ENVIRONMENT, params=unit)
            with closing(results):
                for record in results:
                    kernel, _ = remaining.popleft()
                    yield replace(record, options=kernel.options)
                    if record.dirty:
                        break  # a reset does not free a unit with stuck requests: start a new one


def unit_of(kernel: Kernel, params: TmaParams) -> TmaParams:
    """Return the parameters with those that the kernel overrides."""
    return replace(params, ctas=kernel.sms, **kernel.unit_params)
