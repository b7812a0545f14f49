"""The reduction unit: arithmetic at the memory side, one 32-byte sector a clock.

Reduction requests enter; reads and writes of sectors leave, and an answer for each request. The
unit stands in front of L2, outside of the SM. It knows the layouts and ``lib``.
"""
