"""Payloads of mbarrier operations: commands of threads, completions of requests, results."""

from functools import cache

from amaranth.lib import data, enum

from hw.layouts.isa import CTA_FIELD_BITS
from hw.layouts.ports import holder_field, issuer_field, reports_field
from hw.params import SMEM_OFFSET_BITS, TmaParams

BARRIER_COUNT_BITS = 21
"""Width of a count of arrivals or of transaction bytes.

Legal counts are below ``2**20``. All others act alike, so an SM may give any of them as ``2**20``.
"""


LANES_BITS = 6
"""Width of a number of lanes of a warp, 1 to 32."""


BARRIER_TAG_BITS = 16
"""Width of the tag by which an SM recognizes the result of a barrier operation."""


BARRIER_BYTES = 8
"""Bytes of the word of a barrier."""

BARRIER_WORD_ADDRESS_BITS = SMEM_OFFSET_BITS - (BARRIER_BYTES - 1).bit_length()
"""Width of a barrier's word address: its byte offset in shared memory divided by 8."""


TIME_LIMIT_BITS = 32
"""Width of a time limit: clocks that a thread may wait in the mbarrier unit."""


class BarrierOp(enum.Enum, shape=4):
    """Operation on an mbarrier. `MbarrierUnit` defines each of them."""

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
    """Cause of a failed barrier operation: ``dim`` of an error record with MBAR_FAULT.

    `MbarrierUnit` lists the conditions. ``golden.mbarrier.Fault`` has the same names and numbers.
    """

    NONE = 0
    LOCKED = 1
    OVER_ARRIVAL = 2
    TX_RANGE = 3
    COUNT = 4
    OPERATION = 5


class BarrierCommand(data.Struct):
    """Command: one mbarrier operation of a thread, or of several lanes of a warp.

    Lanes whose instruction is for the same barrier make one command, which acts once. The lanes of
    a NO_COMPLETE form must also have the same count.

    Members
    -------
    op : operation
    address : byte offset of the barrier in shared memory; the low three bits are ignored
    count : operand of the operation, the sum over its lanes. ARRIVE, ARRIVE_DROP and their
        NO_COMPLETE forms: arrivals. EXPECT_TX and COMPLETE_TX: bytes. ARRIVE_EXPECT_TX and
        ARRIVE_DROP_EXPECT_TX: bytes, beside one arrival of each lane. TEST_WAIT_PARITY and
        TRY_WAIT_PARITY: parity in bit 0. REPORT: report in bits 7:0
    lanes : number of lanes: arrivals of ARRIVE_EXPECT_TX and ARRIVE_DROP_EXPECT_TX
    state : TEST_WAIT, TRY_WAIT and PENDING_COUNT: state that an earlier arrival returned. INIT:
        word that is written. NO_COMPLETE forms: mask of the lanes in bits 31:0
    time_limit : clocks after which a TRY_WAIT or TRY_WAIT_PARITY gives up; 0: it does not wait
    v1 : tests and waits: 1 asks for the conditional phase
    tag : number that the SM chooses; the result and the wake return it
    """

    op: BarrierOp
    address: SMEM_OFFSET_BITS
    count: BARRIER_COUNT_BITS
    lanes: LANES_BITS
    state: 64
    time_limit: TIME_LIMIT_BITS
    v1: 1
    tag: BARRIER_TAG_BITS


class BarrierResult(data.Struct):
    """Result of a command. Results come in the order of the commands.

    Members
    -------
    tag : ``tag`` of the command
    done : 1 if a test or wait found the phase complete
    waits : 1 if the thread waits; a `BarrierWake` with this tag ends the wait
    fault : cause, if the operation failed
    state : bits 63:32 of the barrier word before the operation, with the mask of the lanes in bits
        31:0 for the NO_COMPLETE forms and 0 for others; in layout v1 all of the word, except for
        these forms. PENDING_COUNT: number of pending arrivals
    """

    tag: BARRIER_TAG_BITS
    done: 1
    waits: 1
    fault: BarrierFault
    state: 64


class BarrierWake(data.Struct):
    """Wake: end of the wait of a TRY_WAIT or TRY_WAIT_PARITY.

    Without ``done`` and without a fault, the time limit of the wait has expired.

    Members
    -------
    tag : ``tag`` of the command
    done : 1 if the phase is complete
    fault : LOCKED, if an error ended the wait
    """

    tag: BARRIER_TAG_BITS
    done: 1
    fault: BarrierFault


@cache
def barrier_completion_layout(params: TmaParams) -> data.StructLayout:
    """Completion: bytes of a request that were written, for the barrier that counts them.

    Members
    -------
    request_id : ``request_id`` of the request
    cta : rank of the CTA that issued the request; present if ``ctas`` is above 1
    holder : rank of the CTA that holds the barrier; present with ``cta_group_2``
    address : byte offset of the barrier in the shared memory of its CTA
    tx_bytes : number of bytes
    reports : see `reports_field`
    """
    return data.StructLayout(
        {
            "request_id": params.request_id_bits,
            **issuer_field(params),
            **holder_field(params),
            "address": SMEM_OFFSET_BITS,
            "tx_bytes": BARRIER_COUNT_BITS,
            **reports_field(params),
        }
    )


@cache
def barrier_update_layout(params: TmaParams) -> data.StructLayout:
    """Update: a barrier operation without a result.

    It is the COMPLETE_TX of a completion, or an operation of a thread of another CTA.

    Members
    -------
    op : operation
    address : byte offset of the barrier in shared memory; the low three bits are ignored
    count, lanes : operands of the operation, as in `BarrierCommand`
    request_id : number that the record of a fault returns
    cta : rank of the issuing CTA, which the record of a fault returns; present if ``ctas`` is
        above 1
    reports : before its completion check, COMPLETE_TX reports that the data is not valid; 0 in
        operations of threads; present with ``report_mechanism``
    """
    return data.StructLayout(
        {
            "op": BarrierOp,
            "address": SMEM_OFFSET_BITS,
            "count": BARRIER_COUNT_BITS,
            "lanes": LANES_BITS,
            "request_id": params.request_id_bits,
            **issuer_field(params),
            **reports_field(params),
        }
    )


def assign_complete_tx(update: data.View, completion: data.View) -> list:
    """Return the assignments that make ``update`` the COMPLETE_TX of ``completion``."""
    names = (
        name for name in ("request_id", "cta", "reports") if name in completion.shape().members
    )
    return [
        update.op.eq(BarrierOp.COMPLETE_TX),
        update.address.eq(completion.address),
        update.count.eq(completion.tx_bytes),
        *(update[name].eq(completion[name]) for name in names),
    ]


@cache
def barrier_fault_layout(params: TmaParams) -> data.StructLayout:
    """Fault: an update that failed.

    Members
    -------
    request_id, cta : as in the update
    address : byte offset of the barrier in shared memory
    fault : cause
    """
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
    """Message: an update for a barrier of any CTA of the cluster.

    Members
    -------
    holder : rank of the CTA that holds the barrier
    update : operation on the barrier
    """
    return data.StructLayout({"holder": CTA_FIELD_BITS, "update": barrier_update_layout(params)})
