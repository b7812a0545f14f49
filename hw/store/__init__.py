"""The store path: it reads shared memory, assembles lines, and writes or reduces them.

Lines of stores enter; reads of shared memory, writes to global memory and ends of stores leave. The
store tracker gives each store its slot. The stage knows the layouts and ``lib``.
"""
