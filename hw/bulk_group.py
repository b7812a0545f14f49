"""Bulk groups: how threads wait for their stores and reductions (PTX ISA)."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts import (
    group_layout,
    group_result_layout,
    queued_request_layout,
    request_layout,
)
from hw.params import TmaParams


class BulkGroups(wiring.Component):
    """Counts the requests of each thread's bulk groups, and says when a wait for them is over.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_layout(params)))
    o : Out(stream.Signature(queued_request_layout(params)))
    source_read : In(stream.Signature(group_layout(params)))
    complete : In(stream.Signature(group_layout(params)))
    released : In(stream.Signature(group_layout(params)))
    result : Out(stream.Signature(group_result_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        if not params.stores:
            raise ValueError("stores = False: there are no bulk groups")
        self.params = params
        token = stream.Signature(group_layout(params))
        super().__init__(
            {
                "i": In(stream.Signature(request_layout(params))),
                "o": Out(stream.Signature(queued_request_layout(params))),
                "source_read": In(token),
                "complete": In(token),
                "released": In(token),
                "result": Out(stream.Signature(group_result_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        return Module()
