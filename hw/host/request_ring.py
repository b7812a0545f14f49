"""Request ring: reads the request records of a host from a ring in memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.host.ring import Ring, after
from hw.layouts.host import INDEX_BITS, RECORD_BYTES, HostError, record_layout
from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import descriptor_fill_layout
from hw.lib.queue import Queue
from hw.params import TmaParams

RECORDS = 4
"""Records that are read ahead of the one that is begun next."""


class RequestRing(wiring.Component):
    """Reads records in their order, from the first to the one in front of ``host_index``.

    Latency: two clocks from a new ``host_index`` to ``fetch``, and one from ``fill`` to ``o``.
    Throughput: a record every two clocks. Back-pressure: at most ``RECORDS`` are asked for or wait
    at ``o``, so that ``fill`` never waits.

    ``unit_index`` counts the records that were taken at ``o``: the host may write over them. When
    ``enabled`` falls, no further record is asked for, and those that were read go on. When it
    rises, the ring begins at index 0, as soon as the records of before are taken.

    Errors: a record that cannot be read gives the fault REQUEST_RING. The records before it go on;
    it, and all behind it, are dropped. No record is read until ``enabled`` has fallen.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    ring : In(Ring)
        Its ``base`` and ``size`` are constant while it is ``enabled``.
    halted : Out(1)
        A record could not be read.
    fetch : Out(stream) of 64 bits
        Reads of ``RECORD_BYTES``, by address.
    fill : In(stream) of ``descriptor_fill_layout``
        Records that were read, in order.
    o : Out(stream) of ``record_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "ring": In(Ring(params)),
                "halted": Out(1),
                "fetch": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "fill": In(stream.Signature(descriptor_fill_layout(params))),
                "o": Out(stream.Signature(record_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        ring = self.ring
        m.submodules.records = records = Queue(record_layout(self.params), RECORDS)
        connect(m, records.o, flipped(self.o))
        is_running = Signal()
        has_failed = Signal()
        asks = Signal()
        address = Signal.like(ring.base)  # of the record that is asked for: a base may change then
        next_index = Signal(INDEX_BITS)  # of the record that is asked for
        fill_index = Signal(INDEX_BITS)  # of the record that comes
        held = Signal(range(RECORDS + 1))  # records that are asked for, or wait
        fetches = self.fetch.valid & self.fetch.ready
        takes = self.o.valid & self.o.ready
        fills = self.fill.valid
        fails = fills & self.fill.p.error & ~has_failed
        is_dropped = self.fill.p.error | has_failed
        m.d.comb += [
            self.halted.eq(has_failed),
            ring.busy.eq((held != 0) | asks),
            ring.fault.value.eq(fill_index),
            self.fetch.valid.eq(asks),
            self.fetch.payload.eq(address),
            self.fill.ready.eq(1),
            records.i.valid.eq(fills & ~is_dropped),
            records.i.payload.eq(self.fill.p.words),
        ]
        with m.If(fails):
            m.d.comb += ring.fault.code.eq(HostError.REQUEST_RING)
        m.d.sync += held.eq(held + fetches - takes - (fills & is_dropped))
        with m.If(fails):
            m.d.sync += has_failed.eq(1)
        with m.If(fills):
            m.d.sync += fill_index.eq(after(fill_index, ring))
        with m.If(takes):
            m.d.sync += ring.unit_index.eq(after(ring.unit_index, ring))
        with m.If(fetches):
            m.d.sync += [asks.eq(0), next_index.eq(after(next_index, ring))]
        with m.Elif(~asks):
            has_more = next_index != ring.host_index
            m.d.sync += [
                asks.eq(is_running & ring.enabled & ~has_failed & has_more & (held != RECORDS)),
                address.eq(ring.base + next_index * RECORD_BYTES),
            ]
        with m.If(~ring.enabled):
            m.d.sync += is_running.eq(0)
        with m.Elif(~is_running & ~ring.busy):
            m.d.sync += [
                is_running.eq(1),
                has_failed.eq(0),
                next_index.eq(0),
                fill_index.eq(0),
                ring.unit_index.eq(0),
            ]
        return m
