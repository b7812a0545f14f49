"""Request queue: captures requests, and holds those of each channel apart from the others."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import channel_of, queued_request_layout, stream_of
from hw.lib.arbiter import Arbiter
from hw.lib.memory import RowMemory
from hw.params import TmaParams


class RequestQueue(wiring.Component):
    """Captures requests, and delivers those of each channel in the order of their issue.

    A *channel* is the loads and prefetches of a stream, or all stores. A request leaves for setup
    only if its generator certainly has room for its jobs: each channel has ``requests_waiting``
    credits. A request takes a credit when it leaves, and gives it back three clocks after it was
    ``freed`` by its generator or ``refused`` by setup. Therefore no stage between here and the
    generators waits for one channel, and a long box holds up only requests of its own channel.
    Channels take turns.

    All operands are captured when a request is accepted: the issuer may change its registers in the
    next clock.

    Latency: two clocks: all requests wait in one memory, and leave from its output register.
    Throughput: a request a clock, of all channels together. Back-pressure: each channel has room
    for ``request_queue_depth`` requests, and one more in the output register. A request of a
    channel without room holds up all requests behind it, of all channels. An issuer that checks
    ``room`` is never blocked by another channel. Errors: none; nothing is checked here.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(queued_request_layout(params)))
    tensor : Out(stream.Signature(queued_request_layout(params)))
        Requests with a tensor map.
    bulk : Out(stream.Signature(queued_request_layout(params)))
        Requests without a tensor map.
    freed : In(params.channels)
        A bit for each channel: a request of the channel has left the queue of its generator.
    refused : In(params.channels)
        A bit for each channel: a request of the channel was refused.
    room : Out(params.channels)
        A bit for each channel: the queue has room for the next request, even if another request is
        on its way to ``i``.
    busy : Out(1)
        A request waits here, or has a credit.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        port = stream.Signature(queued_request_layout(params))
        super().__init__(
            {
                "i": In(port),
                "tensor": Out(port),
                "bulk": Out(port),
                "freed": In(params.channels),
                "refused": In(params.channels),
                "room": Out(params.channels),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        place_bits = (p.request_queue_depth - 1).bit_length()
        m.submodules.requests = requests = RowMemory(
            queued_request_layout(p), p.channels << place_bits
        )
        m.submodules.turns = turns = Arbiter(p.channel_bits, p.channels)
        write, read = requests.write_port(), requests.read_port()
        places = data.ArrayLayout(place_bits, p.channels)
        first, free = Signal(places, name="first_place"), Signal(places, name="free_place")
        valid = Signal()  # a request is in the output register
        taken = Signal()
        is_bulk = read.data.operation.as_value()[0]  # see ``Operation``
        channel = Signal(p.channel_bits)
        accepts = Signal(p.channels)
        m.d.comb += [
            channel.eq(channel_of(p, self.i.p.operation, stream_of(p, self.i.p))),
            self.i.ready.eq(accepts.bit_select(channel, 1)),
            write.en.eq(self.i.valid & self.i.ready),
            write.addr.eq(Cat(free[channel], channel)),
            write.data.eq(self.i.payload),
            read.en.eq(turns.o.valid & turns.o.ready),
            read.addr.eq(Cat(first[turns.o.p], turns.o.p)),
            turns.o.ready.eq(~valid | taken),
            taken.eq(Mux(is_bulk, self.bulk.ready, self.tensor.ready)),
            self.tensor.valid.eq(valid & ~is_bulk),
            self.bulk.valid.eq(valid & is_bulk),
            *(output.payload.eq(read.data) for output in (self.tensor, self.bulk)),
        ]
        with m.If(~valid | taken):
            m.d.sync += valid.eq(turns.o.valid)
        with m.If(write.en):
            m.d.sync += free[channel].eq(self._after(free[channel]))
        with m.If(read.en):
            m.d.sync += first[turns.o.p].eq(self._after(first[turns.o.p]))
        busy = Signal(p.channels)
        m.d.comb += self.busy.eq(busy.any())
        for number in range(p.channels):
            comes = write.en & (channel == number)
            leaves = read.en & (turns.o.p == number)
            stored = Signal(range(p.request_queue_depth + 1), name=f"stored_{number}")
            may_leave, used = self._count_credits(m, number, leaves)
            m.d.comb += [
                busy[number].eq((stored != 0) | (used != 0)),
                accepts[number].eq(stored != p.request_queue_depth),
                turns.i[number].valid.eq((stored != 0) & may_leave),
                turns.i[number].p.eq(number),
            ]
            m.d.sync += [
                stored.eq(stored + comes - leaves),
                self.room[number].eq(stored + comes + 1 < p.request_queue_depth),
            ]
        return m

    def _after(self, place: Value) -> Value:
        """Return the place behind ``place`` in the rows of a channel."""
        return Mux(place == self.params.request_queue_depth - 1, 0, place + 1)

    def _count_credits(self, m: Module, number: int, leaves: Value) -> tuple[Signal, Value]:
        """Count the credits of a channel. Return whether a request may leave, from a register, and
        the credits that are taken.

        Registers make the paths short: credits are counted a clock late.
        """
        p = self.params
        may_leave = Signal(init=1, name=f"may_leave_{number}")
        credits_used = Signal(range(p.requests_waiting + 1), name=f"credits_used_{number}")
        left = Signal(name=f"left_{number}")
        credits_returned = Signal(2, name=f"credits_returned_{number}")
        used = credits_used + left
        m.d.sync += [
            left.eq(leaves),
            credits_returned.eq(self.freed[number] + self.refused[number]),
            credits_used.eq(used - credits_returned),
            may_leave.eq(Mux(leaves, used + 1 < p.requests_waiting, used < p.requests_waiting)),
            Assert(
                used >= credits_returned,
                "request_queue: a request was freed or refused twice\n",
            ),
        ]
        return may_leave, used
