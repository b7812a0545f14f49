"""PTX kernels, as a compiler wrote them, on the behavioural SM.

`Module` has kernels and launches them; ``sim_tb.ptx.replay`` runs recorded launches and compares
memory byte by byte. Copies, mbarriers and bulk groups go through the ports of the simulated unit.
"""

from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.module import Module

__all__ = ["Module", "PtxError"]
