"""AXI port: the ports of the GNIC, and those of tensor maps, as a master of AXI4."""

from collections.abc import Callable, Mapping
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi.read_port import ReadPort
from hw.axi.write_port import WritePort
from hw.layouts.axi import ar_layout, aw_layout, b_layout, r_layout, w_layout
from hw.params import TmaParams

PREFIX = "m_axi_"
"""Start of the names of the signals."""

READ_CHANNELS = {"ar": (Out, ar_layout), "r": (In, r_layout)}
WRITE_CHANNELS = {"aw": (Out, aw_layout), "w": (Out, w_layout), "b": (In, b_layout)}
"""Channels of AXI4: the direction of a payload, and its layout."""

Channels = Mapping[str, tuple[wiring.Flow, Callable[[TmaParams], StructLayout]]]


def channels(params: TmaParams) -> Channels:
    """Return the channels that a unit has."""
    return READ_CHANNELS | (WRITE_CHANNELS if params.stores else {})


def axi_signals(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the members of an AXI4 port: a signal each, with its name in AXI4."""
    ports = {}
    for channel, (flow, layout) in channels(params).items():
        for name, shape in layout(params).members.items():
            ports[f"{PREFIX}{channel}{name}"] = flow(shape)
        ports[f"{PREFIX}{channel}valid"] = flow(1)
        ports[f"{PREFIX}{channel}ready"] = flow.flip()(1)
    return ports


def join_channel(
    m: Module, signals: Any, name: str, channel: stream.Interface, *, drives: bool
) -> None:
    """Connect the signals of a channel to a stream, which ``drives`` all of them but ``ready``."""

    def signal(part: str) -> Signal:
        return getattr(signals, f"{PREFIX}{name}{part}")

    parts = {part: channel.p[part] for part in channel.p.shape().members}
    for part, inner in {**parts, "valid": channel.valid}.items():
        m.d.comb += signal(part).eq(inner) if drives else inner.eq(signal(part))
    ready = signal("ready")
    m.d.comb += channel.ready.eq(ready) if drives else ready.eq(channel.ready)


class AxiPort(wiring.Component):
    """A ``ReadPort`` and, with ``stores``, a ``WritePort``, whose channels are signals of AXI4.

    Latency, throughput, back-pressure and errors: those of the two.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.

    Members
    -------
    gnic_request, gnic_response, descriptor_request, descriptor_fill : as at ``ReadPort``
    gnic_write, gnic_ack, reduction, reduction_ack : as at ``WritePort``
    m_axi_arid, m_axi_araddr and so on :
        The signals of AR and R, and with ``stores`` of AW, W and B; see ``hw.layouts.axi``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self._blocks = {"read_port": ReadPort(params)}
        if params.stores:
            self._blocks["write_port"] = WritePort(params)
        streams = {
            name: member
            for block in self._blocks.values()
            for name, member in block.signature.members.items()
            if name not in READ_CHANNELS | WRITE_CHANNELS
        }
        super().__init__(streams | axi_signals(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        for block_name, block in self._blocks.items():
            m.submodules[block_name] = block
            for name, member in block.signature.members.items():
                if name in READ_CHANNELS | WRITE_CHANNELS:
                    drives = member.flow is Out
                    join_channel(m, self, name, getattr(block, name), drives=drives)
                elif member.flow is In:
                    connect(m, flipped(getattr(self, name)), getattr(block, name))
                else:
                    connect(m, getattr(block, name), flipped(getattr(self, name)))
        return m
