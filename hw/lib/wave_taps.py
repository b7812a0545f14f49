"""Wave taps: name the streams between blocks, so that traces show them under stable names."""

from amaranth.hdl import Elaboratable, Module, Signal


class WaveTaps(Elaboratable):
    """Copies of streams under names of their own.

    A net of the netlist gets the name of one of the ports that it joins, and which one depends on
    the design around it. The signals of this block keep their names: a stream that is added as
    ``setup_block__job`` is traced as ``setup_block__job__valid``, ``__ready`` and ``__payload``.
    Nothing reads the copies, so that they cost no gates.
    """

    def __init__(self) -> None:
        self._streams: dict[str, object] = {}

    def add(self, **streams) -> None:
        """Add streams to those that are traced; each keyword is the name of its stream."""
        self._streams |= streams

    def elaborate(self, platform) -> Module:
        m = Module()
        for name, stream in self._streams.items():
            for part in ("valid", "ready", "payload"):
                net = getattr(stream, part)
                m.d.comb += Signal(net.shape(), name=f"{name}__{part}").eq(net)
        return m
