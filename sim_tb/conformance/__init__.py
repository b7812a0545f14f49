"""Conformance: recorded cases of the silicon, run through the golden model and the RTL.

Vector files enter; one verdict for each case leaves. ``python -m sim_tb.conformance`` is the
command. The RTL is known only through ``sim_tb.testbench``.
"""
