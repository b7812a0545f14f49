"""The door of the unit: requests wait here, each channel's for themselves."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import channel_of, queued_request_layout, stream_of
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.params import TmaParams


class RequestQueue(wiring.Component):
    """Keeps the requests of each channel in the order in which they were issued.

    A *channel* is the loads and prefetches of a stream, or all stores. A request leaves for setup
    only when the generator is sure to have room for its job: at most ``requests_waiting`` of a
    channel are on the way there, counted from here until three clocks after they are ``freed`` by
    the generator or ``refused``. So nothing between here and the generators ever waits for a
    channel, and a long box holds back only those behind it in its own channel. Channels take turns.
    In a ``compact`` unit all channels share a queue and what is counted.

    Tensor requests and bulk requests leave by ways of their own, one each a clock.

    All operands are captured when a request is accepted: the issuer may change its registers in the
    next clock. With ``stores`` a request passes an empty queue in the same clock, because it comes
    from a register of the bulk groups; without, it is offered one clock later; in a ``compact``
    unit always two clocks later. Each queue holds ``request_queue_depth``; a full one holds back
    what is issued behind, of whatever channel: an issuer that minds offers only what has ``room``.
    Nothing is checked here.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``queued_request_layout``
    tensor : Out(stream) of ``queued_request_layout``
    bulk : Out(stream) of ``queued_request_layout``
    freed : In, a bit for each channel
        A request of the channel has left the queue of its generator.
    refused : In, a bit for each channel
        A request of the channel was refused.
    room : Out, a bit for each channel
        A request that is offered next will find room, also behind one that is on its way here.
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
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        layout = queued_request_layout(p)
        queues = [range(p.channels)] if p.compact else [(channel,) for channel in range(p.channels)]
        m.submodules.tensor_turns = tensor = Arbiter(layout, len(queues))
        m.submodules.bulk_turns = bulk = Arbiter(layout, len(queues))
        connect(m, tensor.o, flipped(self.tensor))
        connect(m, bulk.o, flipped(self.bulk))

        chosen = Signal(p.channels)
        accepts = Signal(p.channels)
        m.d.comb += [
            chosen.eq(1 << channel_of(p, self.i.p.operation, stream_of(p, self.i.p))),
            self.i.ready.eq((chosen & accepts).any()),
        ]
        latency = 2 if p.compact else int(not p.stores)
        for number, channels in enumerate(queues):
            queue = Queue(layout, p.request_queue_depth, latency=latency)
            m.submodules[f"queue_{number}"] = queue
            may_leave = Signal(init=1, name=f"may_leave_{number}")
            leaves = Signal(name=f"leaves_{number}")
            is_bulk = queue.o.p.operation.as_value()[0]  # see ``Operation``
            m.d.comb += [
                queue.i.valid.eq(self.i.valid & Cat(chosen[n] for n in channels).any()),
                queue.i.payload.eq(self.i.payload),
                *(accepts[n].eq(queue.i.ready) for n in channels),
                *(way.i[number].payload.eq(queue.o.payload) for way in (tensor, bulk)),
                tensor.i[number].valid.eq(queue.o.valid & may_leave & ~is_bulk),
                bulk.i[number].valid.eq(queue.o.valid & may_leave & is_bulk),
                queue.o.ready.eq(
                    may_leave & Mux(is_bulk, bulk.i[number].ready, tensor.i[number].ready)
                ),
                leaves.eq(queue.o.valid & queue.o.ready),
            ]

            # For short paths a register, and what is done with a request that leaves comes late.
            ahead = Signal(range(p.requests_waiting + 1), name=f"ahead_{number}")
            left = Signal(name=f"left_{number}")
            ends = [bit for n in channels for bit in (self.freed[n], self.refused[n])]
            ended = Signal(range(len(ends) + 1), name=f"ended_{number}")
            m.d.sync += [
                left.eq(leaves),
                ended.eq(sum(ends)),
                ahead.eq(ahead + left - ended),
                may_leave.eq(
                    Mux(
                        leaves,
                        ahead + left + 1 < p.requests_waiting,
                        ahead + left < p.requests_waiting,
                    )
                ),
                *(self.room[n].eq(queue.level + 2 < p.request_queue_depth) for n in channels),
                Assert(ahead + left >= ended, "RequestQueue: a request ended twice\n"),
            ]
        return m
