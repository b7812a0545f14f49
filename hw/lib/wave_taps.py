"""Wave taps: name the streams between blocks, so that traces show them under stable names."""

from amaranth.hdl import Module, Signal


def tap_streams(m: Module, **streams) -> None:
    """Copy streams to nets of ``m``, each under the name of its keyword.

    A net of the netlist gets the name of one of the ports that it joins, and which one depends on
    the design around it. A copy keeps its name: ``setup_block__job=setup_block.job`` is traced as
    ``setup_block__job__valid``, ``__ready`` and ``__payload``. Nothing reads the copies, so that
    they cost no gates; for the same reason they cannot be a module of their own, as Amaranth leaves
    modules without cells out of the netlist.
    """
    for name, stream in streams.items():
        for part in ("valid", "ready", "payload"):
            net = getattr(stream, part)
            m.d.comb += Signal(net.shape(), name=f"{name}__{part}").eq(net)
