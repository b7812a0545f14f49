"""Sanitizer: detects mistakes of kernels that hang or corrupt data on silicon, and names them.

It decides what *may* happen, not what happened in this schedule. Vector clocks say which events
each warp knows of (``clocks``). Barriers, groups and fences spread this knowledge (``barriers``,
``transfers``, ``tensor_cores``, ``flags``, ``tracking``). Shadows of shared and global memory hold
the last write and the latest reads of each word (``shadow``); an access that is not ordered behind
an earlier one is a race, even if it is harmless in this simulation (``memory``). ``tensor_maps``
follows the maps and who may use which version of them.

Agents are warps. The lanes of a warp are convergent: they are ordered from one instruction to the
next, as by ``__syncwarp``. Only within one instruction they are told apart. The async proxy (the
unit, and the tensor cores) sees writes of threads after ``fence.proxy.async`` only, and may
overtake reads of the thread that issues a request, unless a fence or a barrier is between. Scopes
are followed: a release or an acquire at CTA scope orders nothing between CTAs.
"""

from sim_tb.sm.sanitizer.barrier import TrackedBarrier
from sim_tb.sm.sanitizer.clocks import Scope, Threads
from sim_tb.sm.sanitizer.global_memory import GlobalBytes
from sim_tb.sm.sanitizer.memory import Access
from sim_tb.sm.sanitizer.requests import TrackedRequest
from sim_tb.sm.sanitizer.sanitizer import Sanitizer
from sim_tb.sm.sanitizer.warpgroups import TrackedWarpgroup

__all__ = [
    "Access",
    "GlobalBytes",
    "Sanitizer",
    "Scope",
    "Threads",
    "TrackedBarrier",
    "TrackedRequest",
    "TrackedWarpgroup",
]
