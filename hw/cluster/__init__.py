"""The cluster port and the network: what goes to other SMs of a cluster and comes from them.

Lines, fill and signals for other CTAs enter and leave as packets and messages; what arrives is
written to shared memory and signalled at barriers. The stage is absent from a unit of one CTA. It
knows the layouts, ``lib``, and the arithmetic of ``reduce``.
"""
