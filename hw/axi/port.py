"""AXI port: the ports of the GNIC, and those of tensor maps, as a master of AXI4."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi.atomic_splitter import AtomicSplitter
from hw.axi.line_reducer import LineReducer
from hw.axi.read_port import ReadPort
from hw.axi.signals import Channels, channel_signals, join_channel
from hw.axi.write_port import WritePort, completion_ports
from hw.layouts.axi import ar_layout, aw_layout, b_layout, r_layout, w_layout
from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import (
    descriptor_fill_layout,
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
)
from hw.params import TmaParams

PREFIX = "m_axi_"
"""Start of the names of the signals."""

READ_CHANNELS = {"ar": (Out, ar_layout), "r": (In, r_layout)}
WRITE_CHANNELS = {"aw": (Out, aw_layout), "w": (Out, w_layout), "b": (In, b_layout)}
"""Channels of AXI4: the direction of a payload, and its layout."""


def channels(params: TmaParams) -> Channels:
    """Return the channels that a unit has."""
    names = READ_CHANNELS | (WRITE_CHANNELS if params.stores else {})
    return {name: (flow, layout(params)) for name, (flow, layout) in names.items()}


def axi_signals(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the members of an AXI4 port: a signal each, with its name in AXI4."""
    return channel_signals(channels(params), PREFIX)


def streams_of(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the members of an AXI port that a unit has in the other direction."""
    streams = {
        "gnic_request": In(stream.Signature(gnic_request_layout(params))),
        "gnic_response": Out(stream.Signature(gnic_response_layout(params))),
        "descriptor_request": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
        "descriptor_fill": Out(stream.Signature(descriptor_fill_layout(params))),
    }
    if params.stores:
        streams |= {
            "gnic_write": In(stream.Signature(gnic_write_layout(params))),
            "gnic_ack": Out(stream.Signature(gnic_ack_layout(params))),
        }
    return streams


class AxiPort(wiring.Component):
    """Reads and writes global memory as a master of AXI4.

    It is a ``ReadPort``; with ``stores`` a ``WritePort``; with ``reductions`` a ``LineReducer`` in
    front of both; with ``axi_atomics`` an ``AtomicSplitter`` between the last two. Latency,
    throughput, back-pressure and errors are those of its blocks.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.

    Members
    -------
    gnic_request, gnic_response, descriptor_request, descriptor_fill : as at ``ReadPort``
    gnic_write, gnic_ack : as at ``WritePort``, with reductions; present with ``stores``
    completion_write, completion_ack : as at ``WritePort``; present with ``host``
    m_axi_arid, m_axi_araddr and so on :
        The signals of AR and R, and with ``stores`` of AW, W and B; see ``hw.layouts.axi``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(streams_of(params) | completion_ports(params) | axi_signals(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.read_port = read_port = ReadPort(p)
        ports: dict[str, Any] = dict.fromkeys(READ_CHANNELS, read_port)
        connect(m, flipped(self.gnic_request), read_port.gnic_request)
        connect(m, read_port.gnic_response, flipped(self.gnic_response))
        connect(m, flipped(self.descriptor_request), read_port.descriptor_request)
        connect(m, read_port.descriptor_fill, flipped(self.descriptor_fill))
        if p.stores:
            m.submodules.write_port = write_port = WritePort(p)
            ports |= dict.fromkeys(WRITE_CHANNELS, write_port)
        if p.reductions:
            m.submodules.line_reducer = reducer = LineReducer(p)
            connect(m, flipped(self.gnic_write), reducer.i)
            if p.axi_atomics:
                m.submodules.atomic_splitter = splitter = AtomicSplitter(p)
                connect(m, reducer.o, splitter.i)
                connect(m, splitter.o, write_port.gnic_write)
                connect(m, write_port.gnic_ack, splitter.ack)
                connect(m, splitter.answered, reducer.ack)
            else:
                connect(m, reducer.o, write_port.gnic_write)
                connect(m, write_port.gnic_ack, reducer.ack)
            connect(m, reducer.answered, flipped(self.gnic_ack))
            connect(m, reducer.read, read_port.reduction_read)
            connect(m, read_port.reduced_line, reducer.line)
        elif p.stores:
            connect(m, flipped(self.gnic_write), write_port.gnic_write)
            connect(m, write_port.gnic_ack, flipped(self.gnic_ack))
        if p.host:
            connect(m, flipped(self.completion_write), write_port.completion_write)
            connect(m, write_port.completion_ack, flipped(self.completion_ack))
        for name, (flow, _) in channels(p).items():
            channel = getattr(ports[name], name)
            join_channel(m, self, PREFIX, name, channel, drives=flow is Out)
        return m
