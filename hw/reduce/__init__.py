"""The reduction unit: performs reductions at the memory side, one sector of 32 bytes per clock.

Reduction requests enter; reads and writes of sectors leave, and one answer per request. The unit is
in front of L2, outside the SM. It knows the layouts and ``lib``.
"""
