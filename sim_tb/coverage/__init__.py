"""Coverage: kinds of requests that simulations had, branches that they took, edges of registers.

Samples and counts of simulations enter; a report leaves. ``python -m sim_tb.coverage`` is the
command. Testbenches know ``crosses.record``, and the simulator's build knows ``branches``.
"""
