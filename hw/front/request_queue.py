"""Request queue: captures requests, and holds those of each channel apart from the others."""

from amaranth.hdl import Assert, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import channel_of, queued_request_layout, stream_of
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
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

    Latency: two clocks: requests wait in a memory, and leave from its output register. Throughput:
    a tensor request and a bulk request a clock, through ports of their own; with a
    ``request_queue_depth`` of 2, a request of a channel every two clocks. Back-pressure: each queue
    holds ``request_queue_depth`` requests. A request for a full queue holds up all requests behind
    it, of all channels. An issuer that checks ``room`` is never blocked by another channel. Errors:
    none; nothing is checked here.

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
        m.submodules.tensor_turns = tensor = Arbiter(layout, p.channels)
        m.submodules.bulk_turns = bulk = Arbiter(layout, p.channels)
        connect(m, tensor.o, flipped(self.tensor))
        connect(m, bulk.o, flipped(self.bulk))

        chosen = Signal(p.channels)
        accepts = Signal(p.channels)
        m.d.comb += [
            chosen.eq(1 << channel_of(p, self.i.p.operation, stream_of(p, self.i.p))),
            self.i.ready.eq((chosen & accepts).any()),
        ]
        for number in range(p.channels):
            queue = Queue(layout, p.request_queue_depth, latency=2)
            m.submodules[f"queue_{number}"] = queue
            may_leave = Signal(init=1, name=f"may_leave_{number}")
            push = Signal(name=f"push_{number}")
            fire = Signal(name=f"fire_{number}")
            is_bulk = queue.o.p.operation.as_value()[0]  # see ``Operation``
            m.d.comb += [
                queue.i.valid.eq(self.i.valid & chosen[number]),
                queue.i.payload.eq(self.i.payload),
                push.eq(queue.i.valid & queue.i.ready),
                accepts[number].eq(queue.i.ready),
                *(output.i[number].payload.eq(queue.o.payload) for output in (tensor, bulk)),
                tensor.i[number].valid.eq(queue.o.valid & may_leave & ~is_bulk),
                bulk.i[number].valid.eq(queue.o.valid & may_leave & is_bulk),
                queue.o.ready.eq(
                    may_leave & Mux(is_bulk, bulk.i[number].ready, tensor.i[number].ready)
                ),
                fire.eq(queue.o.valid & queue.o.ready),
            ]

            # Registers make the paths short: credits are counted a clock late.
            credits_used = Signal(range(p.requests_waiting + 1), name=f"credits_used_{number}")
            fire_q = Signal(name=f"fire_q_{number}")
            credits_returned = Signal(2, name=f"credits_returned_{number}")
            m.d.sync += [
                fire_q.eq(fire),
                credits_returned.eq(self.freed[number] + self.refused[number]),
                credits_used.eq(credits_used + fire_q - credits_returned),
                may_leave.eq(
                    Mux(
                        fire,
                        credits_used + fire_q + 1 < p.requests_waiting,
                        credits_used + fire_q < p.requests_waiting,
                    )
                ),
                self.room[number].eq(queue.level + push + 1 < p.request_queue_depth),
                Assert(
                    credits_used + fire_q >= credits_returned,
                    "request_queue: a request was freed or refused twice\n",
                ),
            ]
        return m
