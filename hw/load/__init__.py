"""The load path: it reads lines, converts and swizzles them, and counts what is written.

Line requests and fill enter; reads of global memory, writes to shared memory and completions of
barriers leave. The completion tracker gives each load its slot. The stage knows the layouts and
``lib``.
"""
