"""Bulk refusal: refuses bulk requests in a unit that is built without them."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import ErrorCode
from hw.layouts.jobs import channel_of, queued_request_layout, refusal_layout, stream_of
from hw.lib.register_slice import SingleBuffer
from hw.params import TmaParams


class BulkRefusal(wiring.Component):
    """Answers each bulk request with a refusal (MAP_MODE, with the operation as its value).

    Latency: one clock. Throughput: one request every two clocks. Back-pressure: a request waits
    while a refusal waits.

    Parameters
    ----------
    params : TmaParams
        Without ``bulk``.

    Members
    -------
    i : In(stream) of ``queued_request_layout``
    error : Out(stream) of ``refusal_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(queued_request_layout(params))),
                "error": Out(stream.Signature(refusal_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.register = register = SingleBuffer(refusal_layout(p))
        connect(m, register.o, flipped(self.error))
        request, refusal = self.i.p, register.i.p
        m.d.comb += [
            register.i.valid.eq(self.i.valid),
            self.i.ready.eq(register.i.ready),
            refusal.request_id.eq(request.request_id),
            refusal.code.eq(ErrorCode.MAP_MODE),
            refusal.value.eq(request.operation.as_value()),
            refusal.channel.eq(channel_of(p, request.operation, stream_of(p, request))),
            *([refusal.group.eq(request.group)] if p.stores else ()),
        ]
        return m
