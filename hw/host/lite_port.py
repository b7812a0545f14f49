"""Lite port: takes the reads and writes of an AXI4-Lite master, one at a time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.axi import Response
from hw.layouts.host import BUS_ADDRESS_BITS, BUS_BITS, BusAccess, BusAnswer
from hw.lib.register_slice import SingleBuffer

PREFIX = "s_axi_"
"""Start of the names of the signals."""


class LiteAddress(data.Struct):
    """AW and AR: an address. AxPROT does not count."""

    addr: BUS_ADDRESS_BITS
    prot: 3


class LiteWrite(data.Struct):
    """W: data, and the bytes that are written."""

    data: BUS_BITS
    strb: BUS_BITS // 8


class LiteRead(data.Struct):
    """R: data, and SLVERR if the read was refused."""

    data: BUS_BITS
    resp: Response


class LiteResponse(data.Struct):
    """B: SLVERR if the write was refused."""

    resp: Response


LITE_CHANNELS = {
    "aw": (In, LiteAddress),
    "w": (In, LiteWrite),
    "b": (Out, LiteResponse),
    "ar": (In, LiteAddress),
    "r": (Out, LiteRead),
}
"""Channels of AXI4-Lite: the direction of a payload at a slave, and its layout."""


class LitePort(wiring.Component):
    """Slave of AXI4-Lite, which turns each read and write into an access.

    Accesses are done one after the other; a read and a write that wait both take turns. Latency:
    two clocks from a channel to ``access``, and one from ``answer`` to ``r`` or ``b``. Throughput:
    an access every three clocks, if it is answered in the clock after it. Back-pressure: a channel
    takes one payload until its access is taken. All outputs come from registers. Errors: an answer
    with an error is SLVERR.

    Members
    -------
    aw, w, ar : In(stream) of ``LiteAddress``, ``LiteWrite``, ``LiteAddress``
    b, r : Out(stream) of ``LiteResponse``, ``LiteRead``
    access : Out(stream) of ``BusAccess``
    answer : In(stream) of ``BusAnswer``
        One for each access.
    """

    def __init__(self) -> None:
        channels = {
            name: flow(stream.Signature(layout)) for name, (flow, layout) in LITE_CHANNELS.items()
        }
        super().__init__(
            channels
            | {
                "access": Out(stream.Signature(BusAccess)),
                "answer": In(stream.Signature(BusAnswer)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        buffers = {}
        for name in "aw", "w", "ar":
            channel = getattr(self, name)
            m.submodules[f"{name}_buffer"] = buffer = SingleBuffer(channel.payload.shape())
            connect(m, flipped(channel), buffer.i)
            buffers[name] = buffer.o
        aw, w, ar = buffers.values()
        m.submodules.accesses = accesses = SingleBuffer(BusAccess)
        m.submodules.writes = writes = SingleBuffer(LiteResponse)
        m.submodules.reads = reads = SingleBuffer(LiteRead)
        connect(m, accesses.o, flipped(self.access))
        connect(m, writes.o, flipped(self.b))
        connect(m, reads.o, flipped(self.r))

        # An access is begun when the one before it has been answered, and its answer taken.
        is_open = Signal(init=1)
        is_write = Signal()  # of the access that is under way, or was the last one
        has_write = aw.valid & w.valid
        writes_next = has_write & ~(ar.valid & is_write)
        begins = accesses.i.valid & accesses.i.ready
        access = accesses.i.p
        m.d.comb += [
            accesses.i.valid.eq(is_open & (has_write | ar.valid)),
            access.is_write.eq(writes_next),
            access.address.eq(Mux(writes_next, aw.p.addr, ar.p.addr)),
            access.data.eq(w.p.data),
            access.strobe.eq(w.p.strb),
            aw.ready.eq(begins & writes_next),
            w.ready.eq(begins & writes_next),
            ar.ready.eq(begins & ~writes_next),
        ]
        with m.If(begins):
            m.d.sync += [is_open.eq(0), is_write.eq(writes_next)]

        answers = self.answer
        resp = Mux(answers.p.error, Response.SLVERR, Response.OKAY)
        m.d.comb += [
            writes.i.valid.eq(answers.valid & is_write),
            reads.i.valid.eq(answers.valid & ~is_write),
            writes.i.p.resp.eq(resp),
            reads.i.p.resp.eq(resp),
            reads.i.p.data.eq(answers.p.data),
            answers.ready.eq(Mux(is_write, writes.i.ready, reads.i.ready)),
        ]
        with m.If(answers.valid & answers.ready):
            m.d.sync += is_open.eq(1)
        return m
