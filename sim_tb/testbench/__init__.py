"""The test bench of the unit: its environment, the memory models, and the bridge to C++.

A simulated test uses ``Environment`` to issue requests and to inspect memory. The SystemVerilog top
and the C++ of the memories are here, too. The package knows ``golden`` and the simulated ports.
"""
