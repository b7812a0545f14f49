"""Reading port of shared memory, for two users."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.layouts.ports import lanes_layout, smem_read_layout
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.params import TmaParams

USERS = 2


def outstanding(params: TmaParams) -> int:
    """Reads that can be on their way: those of the store path, and some more."""
    return 2 * params.smem_reads + 16


class SmemReadPort(wiring.Component):
    """Passes the reads of two users to shared memory in turn, and each answer to whose it is.

    Shared memory answers in order, a clock after it was asked at the earliest. A user's answers
    come in the order of its reads.

    Latency: none from ``read`` to ``smem_read``, none from ``smem_data`` to ``data``, but that an
    answer can pass two clocks after its read at the earliest. Throughput: a read a clock, of both
    users together; while both ask, each is given every second clock. Back-pressure: reads wait for
    shared memory, and while ``outstanding(params)`` were not answered. An answer that its user
    does not take holds up the answers behind it, the other user's, too: a user asks for what it has
    room for. Errors: there are none.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    read : In(stream) of ``smem_read_layout``, one for each user
    data : Out(stream) of ``lanes_layout``, one for each user
    smem_read : Out(stream) of ``smem_read_layout``
    smem_data : In(stream) of ``lanes_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        reads = stream.Signature(smem_read_layout(params))
        answers = stream.Signature(lanes_layout(params))
        super().__init__(
            {
                "read": In(reads).array(USERS),
                "data": Out(answers).array(USERS),
                "smem_read": Out(reads),
                "smem_data": In(answers),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.turns = turns = Arbiter(smem_read_layout(self.params), USERS)
        m.submodules.owners = owners = Queue(1, outstanding(self.params))
        for user, port in enumerate(self.read):
            connect(m, wiring.flipped(port), turns.i[user])
        m.d.comb += [
            self.smem_read.p.eq(turns.o.p),
            self.smem_read.valid.eq(turns.o.valid & owners.i.ready),
            turns.o.ready.eq(self.smem_read.ready & owners.i.ready),
            owners.i.valid.eq(turns.o.valid & self.smem_read.ready),
            owners.i.payload.eq(turns.i[1].ready),
        ]
        owner = owners.o.payload
        for user, port in enumerate(self.data):
            mine = owners.o.valid & (owner == user)
            m.d.comb += [
                port.p.eq(self.smem_data.p),
                port.valid.eq(self.smem_data.valid & mine),
            ]
            with m.If(mine):
                m.d.comb += self.smem_data.ready.eq(port.ready)
        m.d.comb += owners.o.ready.eq(self.smem_data.valid & self.smem_data.ready)
        return m
