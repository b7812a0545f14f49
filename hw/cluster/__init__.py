"""The cluster port and the crossbar: connect an SM with the other SMs of its cluster.

Lines, fill and signals for other CTAs leave as packets and messages; packets and messages of other
CTAs are written to shared memory and signalled at barriers. A unit of one CTA does not have this
stage. It knows the layouts, ``lib``, the coalescer of ``barrier`` and the arithmetic of ``reduce``.
"""
