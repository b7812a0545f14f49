"""Signals of AXI4: the channels of a port as single signals, with the names of AXI4."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import data, stream, wiring

Channels = Mapping[str, tuple[wiring.Flow, ShapeLike]]
"""Channels of a port: the direction of a payload, and its layout."""


def channel_signals(channels: Channels, prefix: str) -> dict[str, wiring.Member]:
    """Return the members of a port: a signal for each part of each channel."""
    ports = {}
    for channel, (flow, layout) in channels.items():
        for name, field in data.Layout.cast(layout):
            ports[f"{prefix}{channel}{name}"] = flow(field.shape)
        ports[f"{prefix}{channel}valid"] = flow(1)
        ports[f"{prefix}{channel}ready"] = flow.flip()(1)
    return ports


def join_channel(
    m: Module, signals: Any, prefix: str, name: str, channel: stream.Interface, *, drives: bool
) -> None:
    """Connect the signals of a channel to a stream, which ``drives`` all of them but ``ready``."""

    def signal(part: str) -> Signal:
        return getattr(signals, f"{prefix}{name}{part}")

    parts = {str(part): channel.p[part] for part, _ in data.Layout.cast(channel.p.shape())}
    for part, inner in {**parts, "valid": channel.valid}.items():
        m.d.comb += signal(part).eq(inner) if drives else inner.eq(signal(part))
    ready = signal("ready")
    m.d.comb += channel.ready.eq(ready) if drives else ready.eq(channel.ready)
