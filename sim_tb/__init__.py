"""Simulation of the unit: test bench, behavioural SM, kernels, and the commands around them.

``sim_tb.run(kernel, inputs)`` runs a kernel with arrays, see ``sim_tb.sm.launch.run_arrays``.
"""

from importlib import import_module
from typing import Any

from open_tma.installation import need

need(__name__, "sim")


def __getattr__(name: str) -> Any:
    """Return ``run``, whose module is only imported when it is asked for."""
    if name == "run":
        return import_module(f"{__name__}.sm.launch").run_arrays
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
