"""Kernels for the behavioural SM, each in a file of its own.

A kernel is a class; ``kernels`` returns all classes by name. The package imports ``sim_tb.sm``,
which does not import it.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from sim_tb.sm.kernel import KERNELS, Kernel


def kernels() -> Mapping[str, type[Kernel]]:
    """Import all modules of this package; return the kernels that they register, by name."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return dict(sorted(KERNELS.items()))
