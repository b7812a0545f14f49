"""Runs the blocks' own tests on mutants: pytest, with a netlist in place of each block.

``netlist`` finds a mutant of the unit in the netlist of a block and compiles it with CXXRTL,
``engine`` simulates it behind Amaranth's simulator, ``plugin`` puts the engine under the tests, and
``judge`` chooses the tests of a mutant and runs them.
"""
