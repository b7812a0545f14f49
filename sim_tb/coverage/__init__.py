"""Coverage: kinds of loads that simulations had, and branches of the RTL that they took.

``python -m sim_tb.coverage`` is its command. Counts of simulations enter; a report leaves.
"""
