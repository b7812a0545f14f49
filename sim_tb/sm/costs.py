"""Costs of the behavioural SM's instructions: issue slots and clocks.

Costs of barrier operations, fences, waits and map edits are medians of an H200, recorded in
tests/silicon/latency_cluster.csv. All other costs are the model's own numbers (choice). What the
unit itself takes, from the acceptance of a request or of a barrier operation on, is not here: it is
simulated.
"""

from dataclasses import dataclass

GLOBAL_PATH = 20
"""Clocks by which a load of threads takes longer than the unit waits for a line (choice)."""

WORD_FIELDS = ("global_address", "global_dim")
"""Fields of a tensor map that fill whole words."""


@dataclass(frozen=True)
class Cost:
    """Cost of an instruction to the warpgroup that executes it.

    Parameters
    ----------
    slots : int
        Issue slots of the warp scheduler.
    clocks : int
        Clocks from the first slot until the warpgroup can execute its next instruction, at least.
        0: the warpgroup continues after the slots.
    """

    slots: int
    clocks: int = 0


@dataclass(frozen=True)
class Costs:
    """Costs of all instructions.

    The elected threads of all warpgroups are on the same scheduler, which issues one instruction
    every ``interval`` clocks. A warpgroup has one warp on each of the four schedulers, so an
    instruction of all 128 threads takes one slot of each scheduler.

    Parameters
    ----------
    interval : int
        Clocks from one instruction to the next. Above 1, issue slots are scarce.
    arrive : int
        ``mbarrier.arrive`` in all its forms, and ``mbarrier.init``. Sixteen arrivals take an H200
        67 clocks.
    arrival_state : int
        Clocks from the first slot of an arrival that returns its state until the state is there.
        An H200 takes 53.
    fence_mbarrier_init : int
        ``fence.mbarrier_init``. An H200 takes 2 clocks.
    expect_tx : int
        ``mbarrier.expect_tx``. An H200 issues sixteen in less than a clock each; here an
        instruction takes at least one slot.
    try_wait : Cost
        ``mbarrier.try_wait``, if the phase is complete.
    test_wait : Cost
        ``mbarrier.test_wait``, whether the phase is complete or not.
    arrival : int
        Clocks from the first slot of ``mbarrier.arrive`` until the unit receives the operation. An
        H200 takes 175 clocks from the arrival of a warp to the end of another warp's wait, and the
        unit takes 4 of them.
    release : int
        Clocks by which the release at cluster scope delays an arrival at a barrier of another CTA.
        There and back, an H200 takes 1,306 clocks with it and 647 without.
    fence_async, fence_async_shared : Cost
        ``fence.proxy.async`` and ``fence.proxy.async.shared::cta``.
    fence_tensormap : Cost
        ``fence.proxy.tensormap`` acquire. Sixteen take an H200 142 clocks.
    replace_word, replace_part, replace_stride : Cost
        ``tensormap.replace`` of whole words, of a part of a word, and of a stride, which lies in
        two words. Sixteen take an H200 63, 195 and 554 clocks.
    tma : int
        A request to the unit, with its coordinates.
    global_load : int
        Clocks from the first slot of a load or an atomic operation of threads on global memory
        until its result is there: those from the unit's request of a line to its data, and
        ``GLOBAL_PATH``. An H200 takes 320 if the data is in L2 (tests/silicon/latency.csv).
    fence_acq_rel : int
        ``fence.acq_rel``.
    cluster_load : int
        Clocks from the first slot of ``ld.shared::cluster`` of another CTA until the data is there.
        An H200 takes 216.
    shared_load : int
        Clocks from the slot of ``ld.shared`` until its data is there, without bank conflicts
        (choice).
    parameter_load : int
        The same of ``ld.param`` and ``ld.const`` (choice).
    block_start : int
        Clocks from the last instruction of a PTX cluster to the first of the next one on the same
        SMs (choice). Arrivals under way take effect before it.
    mapa : int
        ``mapa``.
    st_async : int
        ``st.async`` and ``red.async`` of a warp.
    sync : int
        ``bar.sync`` and ``barrier.cluster``.
    wgmma_fence : int
        ``wgmma.fence``.
    wgmma : int
        One wgmma of k = 16, with its descriptors.
    chunk : int
        Slots that a warpgroup takes at once before the other warpgroups get their turn.
    """

    interval: int = 1
    arrive: int = 4
    arrival_state: int = 53
    fence_mbarrier_init: int = 2
    expect_tx: int = 1
    try_wait: Cost = Cost(4, 69)
    test_wait: Cost = Cost(4, 66)
    arrival: int = 171
    release: int = 330
    fence_async: Cost = Cost(4, 303)
    fence_async_shared: Cost = Cost(4, 10)
    fence_tensormap: Cost = Cost(4, 9)
    replace_word: Cost = Cost(4)
    replace_part: Cost = Cost(4, 12)
    replace_stride: Cost = Cost(4, 35)
    tma: int = 8
    global_load: int = 320
    fence_acq_rel: int = 4
    cluster_load: int = 216
    shared_load: int = 29
    parameter_load: int = 8
    block_start: int = 1000
    mapa: int = 1
    st_async: int = 4
    sync: int = 4
    wgmma_fence: int = 1
    wgmma: int = 4
    chunk: int = 64

    def replace(self, field: str) -> Cost:
        """Return the cost of ``tensormap.replace`` of a field, such as ``"box_dim"``."""
        if field == "global_stride":
            return self.replace_stride
        return self.replace_word if field in WORD_FIELDS else self.replace_part
