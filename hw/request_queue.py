"""The door of the unit: requests wait here for the descriptor cache."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts import request_layout
from hw.params import TmaParams
from hw.queue import Queue


class RequestQueue(wiring.Component):
    """Keeps requests in the order in which they were issued.

    All operands are captured when a request is accepted: the issuer may change its registers in the
    next clock. Latency, throughput and back-pressure are those of ``Queue`` with a depth of
    ``request_queue_depth``. Nothing is checked here: refusals come from the setup block, in order.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_layout(params)))
    o : Out(stream.Signature(request_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        port = stream.Signature(request_layout(params))
        super().__init__({"i": In(port), "o": Out(port)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = Queue(
            request_layout(self.params), self.params.request_queue_depth
        )
        connect(m, flipped(self.i), queue.i)
        connect(m, queue.o, flipped(self.o))
        return m
