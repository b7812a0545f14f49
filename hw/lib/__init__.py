"""Parts that several stages use: queues, register slices, arbiters, tables and permutations.

Streams of any payload enter and leave; a part does not interpret more of a payload than its
docstring says. The parts know the parameters and the layouts, and no stage of the unit. Every stage
may use them.
"""
