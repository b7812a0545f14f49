"""Shared-memory read port: shares the read port of shared memory between two users."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.layouts.ports import lanes_layout, smem_read_layout
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.params import TmaParams

USERS = 2
"""Number of users: the store path, and reductions in shared memory."""


def outstanding(params: TmaParams) -> int:
    """Return the largest number of unanswered reads: enough for both users."""
    return 2 * params.smem_reads + 16


class SmemReadPort(wiring.Component):
    """Passes the reads of two users to shared memory, and returns each answer to its user.

    Shared memory answers reads in order, at the earliest one clock after the read. Each user gets
    its answers in the order of its reads.

    Latency: none from ``read`` to ``smem_read`` and from ``smem_data`` to ``data``, but an answer
    passes at the earliest two clocks after its read. Throughput: one read per clock for both users
    together; while both read, they alternate. Back-pressure: reads wait for shared memory, and
    while ``outstanding(params)`` reads are unanswered. An answer that its user does not take blocks
    the answers behind it, also those of the other user, so a user must have room for the answers to
    its reads. Errors: none.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    read : In(stream.Signature(smem_read_layout(params))).array(USERS)
        Reads of each user.
    data : Out(stream.Signature(lanes_layout(params))).array(USERS)
        Answers for each user.
    smem_read : Out(stream.Signature(smem_read_layout(params)))
        Reads of shared memory.
    smem_data : In(stream.Signature(lanes_layout(params)))
        Answers of shared memory, in order.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "read": In(stream.Signature(smem_read_layout(params))).array(USERS),
                "data": Out(stream.Signature(lanes_layout(params))).array(USERS),
                "smem_read": Out(stream.Signature(smem_read_layout(params))),
                "smem_data": In(stream.Signature(lanes_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.reads = reads = Arbiter(smem_read_layout(self.params), USERS)
        m.submodules.owners = owners = Queue(1, outstanding(self.params))
        for user, port in enumerate(self.read):
            connect(m, wiring.flipped(port), reads.i[user])
        m.d.comb += [
            self.smem_read.p.eq(reads.o.p),
            self.smem_read.valid.eq(reads.o.valid & owners.i.ready),
            reads.o.ready.eq(self.smem_read.ready & owners.i.ready),
            owners.i.valid.eq(reads.o.valid & self.smem_read.ready),
            owners.i.payload.eq(reads.i[1].ready),
        ]
        owner = owners.o.payload
        for user, port in enumerate(self.data):
            is_owner = owners.o.valid & (owner == user)
            m.d.comb += [
                port.p.eq(self.smem_data.p),
                port.valid.eq(self.smem_data.valid & is_owner),
            ]
            with m.If(is_owner):
                m.d.comb += self.smem_data.ready.eq(port.ready)
        m.d.comb += owners.o.ready.eq(self.smem_data.valid & self.smem_data.ready)
        return m
