"""Parts that several stages use: queues, register slices, arbiters, free lists and permutations.

Streams of any payload enter and leave. A part reads only those fields of a payload that its
docstring names. The parts know the parameters and the layouts, and no stage of the unit. Every
stage may use them.
"""
