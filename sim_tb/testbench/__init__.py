"""The testbench of the unit: an environment for each SM, memory models, and the bridge to C++.

A simulated test uses an ``Environment`` to issue requests and to inspect memory. The SystemVerilog
top and the C++ models are here, too. The package depends on ``golden`` and on the ports of the
simulated design.
"""
