"""Pass port: connects a port of a component to the same port of the component around it."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped


def pass_port(m: Module, name: str, inner: Any, outer: wiring.Component) -> None:
    """Connect the port ``name`` of a component inside to that of the one around it."""
    member = outer.signature.members[name]
    inside, outside = getattr(inner, name), getattr(outer, name)
    if member.is_port:
        m.d.comb += inside.eq(outside) if member.flow is In else outside.eq(inside)
    elif member.flow is In:
        connect(m, flipped(outside), inside)
    else:
        connect(m, inside, flipped(outside))
