"""The door of the unit: requests wait here, each kind for itself."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts import queued_request_layout
from hw.params import TmaParams
from hw.queue import Queue


class RequestQueue(wiring.Component):
    """Keeps requests of each kind in the order in which they were issued.

    Bulk requests need no tensor map and do not wait for one: they have a way of their own; without
    the parameter ``bulk``, where all are refused, it has no queue. All
    operands are captured when a request is accepted: the issuer may change its registers in the
    next clock. Latency, throughput and back-pressure of each way are those of ``Queue`` with a
    depth of ``request_queue_depth``; a full one holds back what is issued behind. Nothing is
    checked here.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``queued_request_layout``
    tensor : Out(stream) of ``queued_request_layout``
    bulk : Out(stream) of ``queued_request_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        port = stream.Signature(queued_request_layout(params))
        super().__init__({"i": In(port), "tensor": Out(port), "bulk": Out(port)})

    def elaborate(self, platform) -> Module:
        m = Module()
        layout, depth = queued_request_layout(self.params), self.params.request_queue_depth
        m.submodules.tensor_queue = tensor = Queue(layout, depth)
        connect(m, tensor.o, flipped(self.tensor))
        if self.params.bulk:
            m.submodules.bulk_queue = queue = Queue(layout, depth)
            connect(m, queue.o, flipped(self.bulk))
            bulk = queue.i
        else:
            bulk = self.bulk
        m.d.comb += [tensor.i.payload.eq(self.i.payload), bulk.payload.eq(self.i.payload)]
        with m.If(self.i.p.operation.as_value()[0]):  # see ``Operation``
            m.d.comb += [bulk.valid.eq(self.i.valid), self.i.ready.eq(bulk.ready)]
        with m.Else():
            m.d.comb += [tensor.i.valid.eq(self.i.valid), self.i.ready.eq(tensor.i.ready)]
        return m
