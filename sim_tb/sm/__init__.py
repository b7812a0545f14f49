"""The behavioural SM: warpgroups, shared memory, pipes, and the sanitizer that checks kernels.

Kernels enter and records of their runs leave; each copy and each barrier operation of a kernel goes
through the ports of the unit. The package imports ``sim_tb.arithmetic``, ``sim_tb.testbench`` and
``sim_tb.simulator``. It knows neither ``sim_tb.kernels`` nor ``sim_tb.report``.
"""
