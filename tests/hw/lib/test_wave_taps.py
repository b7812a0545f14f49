"""Wave taps: the netlist has each stream under the name that it was given."""

from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.queue import Queue
from hw.lib.wave_taps import tap_streams


class Tapped(wiring.Component):
    """A queue whose output is tapped as ``queue__o``."""

    i: In(stream.Signature(8))
    o: Out(stream.Signature(8))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = Queue(8, 2)
        tap_streams(m, queue__o=queue.o)
        connect(m, flipped(self.i), queue.i)
        connect(m, queue.o, flipped(self.o))
        return m


def test_names() -> None:
    text = rtlil.convert(Tapped(), emit_src=False)
    for part in ("valid", "ready", "payload"):
        assert f"\\queue__o__{part}\n" in text
