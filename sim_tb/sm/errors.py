"""Failure of a kernel, as opposed to a failure of the unit or of its testbench."""

from sim_tb.testbench.errors import CheckError


class KernelError(CheckError):
    """The kernel is wrong. The text names the mistake, the place, the cycle and a remedy."""
