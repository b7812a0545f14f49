"""Failure of a kernel, as opposed to a failure of the unit or of its testbench."""

from sim_tb.testbench.environment import BenchError


class KernelError(BenchError):
    """The kernel is wrong. The text names the mistake, the place, the cycle and a remedy."""
