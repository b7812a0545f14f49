"""Payloads of mbarrier operations, their results, and what the unit signals at barriers."""

from functools import cache

from amaranth.lib import data, enum

from hw.layouts.ports import issuer_field
from hw.params import SMEM_OFFSET_BITS, TmaParams

BARRIER_COUNT_BITS = 21
"""A number of arrivals or of transaction bytes."""


BARRIER_TAG_BITS = 16
"""A thread's name for its barrier operation."""


BARRIER_WORD_ADDRESS_BITS = SMEM_OFFSET_BITS - 3
"""A barrier's place in shared memory, in words of 64 bits."""


TIME_LIMIT_BITS = 32
"""Clocks that a thread may wait in the mbarrier unit."""


class BarrierOp(enum.Enum, shape=4):
    """Operations of the mbarrier unit."""

    INIT = 0
    INVAL = 1
    ARRIVE = 2
    ARRIVE_EXPECT_TX = 3
    EXPECT_TX = 4
    COMPLETE_TX = 5
    TEST_WAIT_PARITY = 6
    TEST_WAIT = 7
    TRY_WAIT_PARITY = 8
    TRY_WAIT = 9
    ARRIVE_NO_COMPLETE = 10
    ARRIVE_DROP = 11
    ARRIVE_DROP_NO_COMPLETE = 12
    ARRIVE_DROP_EXPECT_TX = 13
    PENDING_COUNT = 14
    REPORT = 15


class BarrierFault(enum.Enum, shape=3):
    """Why a barrier operation was not done (MBAR_FAULT)."""

    NONE = 0
    LOCKED = 1
    UNINITIALISED = 2
    OVER_ARRIVAL = 3
    TX_RANGE = 4
    COUNT = 5
    COMPLETES = 6
    OPERATION = 7


class BarrierCommand(data.Struct):
    """One mbarrier operation of a thread.

    ``count``: arrivals of INIT and the arrivals, bytes of the tx operations, the parity of the
    waits by parity, the report of REPORT. ARRIVE_EXPECT_TX and ARRIVE_DROP_EXPECT_TX are one
    arrival and ``count`` bytes. ``state``: of TEST_WAIT, TRY_WAIT and PENDING_COUNT.
    ``time_limit``: clocks that a TRY_WAIT waits, 0 for none. ``v1``: of INIT, the layout; of the
    waits, for the conditional phase. ``tag`` comes back.
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    count: BARRIER_COUNT_BITS
    state: 64
    time_limit: TIME_LIMIT_BITS
    v1: 1
    tag: BARRIER_TAG_BITS


class BarrierResult(data.Struct):
    """The answer to a command, in the order of the commands.

    ``done``: a test found the phase complete. ``waits``: a TRY_WAIT did not, and is answered by a
    ``BarrierWake``. ``fault``: why the operation was not done. ``state``: the word before the
    operation; of PENDING_COUNT, the count.
    """

    tag: BARRIER_TAG_BITS
    done: 1
    waits: 1
    fault: BarrierFault
    state: 64


class BarrierWake(data.Struct):
    """The end of a TRY_WAIT that had to wait.

    ``done``: the phase is complete; else its time is over, or there is a ``fault``.
    """

    tag: BARRIER_TAG_BITS
    done: 1
    fault: BarrierFault


@cache
def barrier_completion_layout(params: TmaParams) -> data.StructLayout:
    """Bytes of a request that are in shared memory, for the barrier that counts them.

    In a cluster, ``cta`` issued the request and ``holder`` holds the barrier.
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            **issuer_field(params),
            **({"holder": params.cta_bits} if params.ctas > 1 else {}),
            "address": SMEM_OFFSET_BITS,
            "tx_bytes": BARRIER_COUNT_BITS,
        }
    )


@cache
def barrier_update_layout(params: TmaParams) -> data.StructLayout:
    """An operation on a barrier that has no result: COMPLETE_TX, or one of another CTA's threads.

    ``count`` as in ``BarrierCommand``. ``request_id`` and ``cta`` come back in the record of a
    fault.
    """
    return data.StructLayout(
        {
            "op": BarrierOp,
            "address": SMEM_OFFSET_BITS,
            "count": BARRIER_COUNT_BITS,
            "request_id": params.request_id_bits,
            **issuer_field(params),
        }
    )


@cache
def barrier_fault_layout(params: TmaParams) -> data.StructLayout:
    """An update that the barrier at ``address`` could not take."""
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            **issuer_field(params),
            "address": SMEM_OFFSET_BITS,
            "fault": BarrierFault,
        }
    )


@cache
def barrier_message_layout(params: TmaParams) -> data.StructLayout:
    """An update on its way to the CTA ``holder``."""
    return data.StructLayout({"holder": params.cta_bits, "update": barrier_update_layout(params)})
