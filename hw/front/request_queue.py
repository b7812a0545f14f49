"""Request queue: captures requests, and holds those of each channel apart from the others."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.jobs import channel_of, queued_request_layout, stream_of
from hw.lib.memory import RowMemory
from hw.lib.one_hot import index_of
from hw.params import TmaParams


def _first_one(mask: Value) -> Value:
    """Return ``mask`` with only its lowest set bit, for masks of few bits."""
    return Cat(bit & ~mask[:number].any() for number, bit in enumerate(mask))


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

    Latency: two clocks: all requests wait in memory, and leave from its output register.
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
        rows = p.channels << place_bits
        members = queued_request_layout(p).members
        others = [name for name in members if name != "global_address"]
        layout = data.StructLayout({name: members[name] for name in others})
        m.submodules.requests = requests = RowMemory(layout, rows)
        # Long paths begin with these fields, and block memory is slow.
        early_layout = data.StructLayout({"is_bulk": 1, "global_address": GLOBAL_ADDRESS_BITS})
        m.submodules.early = early = RowMemory(early_layout, rows, in_block=False)
        write, read = requests.write_port(), requests.read_port()
        write_early, read_early = early.write_port(), early.read_port()
        places = data.ArrayLayout(place_bits, p.channels)
        first, free = Signal(places, name="first_place"), Signal(places, name="free_place")
        valid = Signal()  # a request is in the output register
        taken = Signal()
        is_bulk = read_early.data.is_bulk
        channel = Signal(p.channel_bits)
        accepts = Signal(p.channels, init=-1)
        has_room = accepts.bit_select(channel, 1)
        waiting = Signal(p.channels)  # channels with a request that may leave
        turn = self._choose(m, waiting, read.en)
        first_place = Cat(
            Cat(turn[number] & first[number][bit] for number in range(p.channels)).any()
            for bit in range(place_bits)
        )
        m.d.comb += [
            channel.eq(channel_of(p, self.i.p.operation, stream_of(p, self.i.p))),
            self.i.ready.eq(has_room),
            # The free place is written in any case: ``i.valid`` is late, and memory far.
            write.en.eq(has_room),
            write.addr.eq(Cat(free[channel], channel)),
            *(write.data[name].eq(self.i.p[name]) for name in others),
            write_early.en.eq(write.en),
            write_early.addr.eq(write.addr),
            write_early.data.is_bulk.eq(self.i.p.operation.as_value()[0]),  # see ``Operation``
            write_early.data.global_address.eq(self.i.p.global_address),
            read.en.eq(waiting.any() & (~valid | taken)),
            read.addr.eq(Cat(first_place, index_of(turn))),
            read_early.en.eq(read.en),
            read_early.addr.eq(read.addr),
            taken.eq(Mux(is_bulk, self.bulk.ready, self.tensor.ready)),
            self.tensor.valid.eq(valid & ~is_bulk),
            self.bulk.valid.eq(valid & is_bulk),
        ]
        for output in self.tensor, self.bulk:
            m.d.comb += [
                *(output.p[name].eq(read.data[name]) for name in others),
                output.p.global_address.eq(read_early.data.global_address),
            ]
        with m.If(~valid | taken):
            m.d.sync += valid.eq(waiting.any())
        busy = Signal(p.channels)
        m.d.comb += self.busy.eq(busy.any())
        most = p.request_queue_depth
        for number in range(p.channels):
            comes = self.i.valid & accepts[number] & (channel == number)
            leaves = read.en & turn[number]
            stored = Signal(range(most + 1), name=f"stored_{number}")
            may_leave, used = self._count_credits(m, number, leaves)
            m.d.comb += busy[number].eq((stored != 0) | (used != 0))
            with m.If(comes):
                m.d.sync += free[number].eq(self._after(free[number]))
            with m.If(leaves):
                m.d.sync += first[number].eq(self._after(first[number]))
            # These are known ahead, from registers: the paths from ``comes`` and ``leaves`` on are
            # short. ``comes`` does not wait for ``i.ready``, which is chosen by ``channel``.
            m.d.sync += [
                stored.eq(stored + comes - leaves),
                accepts[number].eq(leaves | ((stored != most) & ~(comes & (stored == most - 1)))),
                self.room[number].eq((stored < most - 2) | ((stored == most - 2) & ~comes)),
                waiting[number].eq((comes | (stored > 1) | ((stored == 1) & ~leaves)) & may_leave),
            ]
        return m

    def _choose(self, m: Module, waiting: Signal, fire: Value) -> Signal:
        """Return whose turn it is among the channels that are ``waiting``, one-hot: that of the
        next one behind the channel that was chosen in the last clock with ``fire``.
        """
        turn = Signal(len(waiting))
        behind_last = Signal(len(waiting))  # mask of the channels
        next_ones = waiting & behind_last
        m.d.comb += turn.eq(Mux(next_ones.any(), _first_one(next_ones), _first_one(waiting)))
        with m.If(fire):
            m.d.sync += behind_last.eq(Cat(turn[:n].any() for n in range(len(turn))))
        return turn

    def _after(self, place: Value) -> Value:
        """Return the place behind ``place`` in the rows of a channel."""
        return Mux(place == self.params.request_queue_depth - 1, 0, place + 1)

    def _count_credits(self, m: Module, number: int, leaves: Value) -> tuple[Value, Value]:
        """Count the credits of a channel. Return whether a request may leave in the next clock, and
        the credits that are taken.

        Registers make the paths short: credits are counted a clock late.
        """
        p = self.params
        credits_used = Signal(range(p.requests_waiting + 1), name=f"credits_used_{number}")
        left = Signal(name=f"left_{number}")
        credits_returned = Signal(2, name=f"credits_returned_{number}")
        used = credits_used + left
        m.d.sync += [
            left.eq(leaves),
            credits_returned.eq(self.freed[number] + self.refused[number]),
            credits_used.eq(used - credits_returned),
            Assert(
                used >= credits_returned,
                "request_queue: a request was freed or refused twice\n",
            ),
        ]
        may_leave = Signal(name=f"may_leave_{number}")
        most = p.requests_waiting
        m.d.comb += may_leave.eq((used < most - 1) | ((used == most - 1) & ~leaves))
        return may_leave, used
