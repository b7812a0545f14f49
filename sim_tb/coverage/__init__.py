"""Coverage: the kinds of loads that simulations had, and the branches of the RTL that they took.

Samples and counts of simulations enter; a report leaves. ``python -m sim_tb.coverage`` is the
command. Testbenches know ``load_kinds.record``, and the simulator's build knows ``branches``.
"""
