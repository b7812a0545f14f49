"""The benchmark: cycles per box, bandwidth, latency and fairness of the unit.

``python -m sim_tb.bench`` is its command. Recorded and random boxes enter; tables and
``build/bench.json`` leave.
"""
