"""The behavioural SM: warps, shared memory, pipes, and the sanitizer that follows them.

Kernels run on it; every copy and barrier operation goes through the unit's ports. The package knows
the test bench and the simulator.
"""
