"""How proofs look inside of a design, for invariants that its ports do not show."""

import sys
from types import SimpleNamespace

from amaranth.hdl import Elaboratable, Module, Value
from amaranth.lib.memory import Memory


def inside(component: Elaboratable) -> SimpleNamespace:
    """Return the local variables of ``component.elaborate``, which is called now and once."""
    code = type(component).elaborate.__code__
    found = {}

    def note(frame, event, _arg) -> None:
        if event == "return" and frame.f_code is code:
            found.update(frame.f_locals)

    sys.setprofile(note)
    try:
        module = component.elaborate("formal")
    finally:
        sys.setprofile(None)
    component.elaborate = lambda _platform: module
    return SimpleNamespace(**found)


def row(m: Module, memory: Memory, index: int) -> Value:
    """Return what is in a row of ``memory``, by one more port that only reads."""
    port = memory.read_port(domain="comb")
    m.d.comb += port.addr.eq(index)
    return port.data
