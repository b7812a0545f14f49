"""The simulator: it builds Verilator models, runs tests in them, and writes waves.

Parameters and names of cocotb modules enter; results, log files and traces leave. The package does
not depend on kernels or benchmarks.
"""
