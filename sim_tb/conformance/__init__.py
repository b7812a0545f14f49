"""Conformance: recordings of the silicon through the golden model and the RTL.

``python -m sim_tb.conformance`` is its command. Files of vectors enter; one verdict for each case
leaves.
"""
