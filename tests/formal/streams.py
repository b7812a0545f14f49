"""The stream law, for proofs."""

from collections.abc import Callable

from amaranth.asserts import AnySeq
from amaranth.hdl import Module, Signal, Value


def hold(m: Module, port, name: str, rule: Callable) -> None:
    """Require that ``port`` keeps an offered payload, unchanged, until it is taken.

    ``rule`` is ``Assume`` where the environment offers and ``Assert`` where the design does.
    """
    payload = Value.cast(port.payload)
    stalled = Signal(name=f"{name}_stalled")
    offered = Signal(len(payload), name=f"{name}_offered")
    m.d.sync += [stalled.eq(port.valid & ~port.ready), offered.eq(payload)]
    with m.If(stalled):
        m.d.comb += rule(port.valid & (payload == offered))


def offer(m: Module, port) -> None:
    """Let the solver choose when ``port`` offers a payload, and which."""
    m.d.comb += [
        port.valid.eq(AnySeq(1)),
        port.payload.eq(AnySeq(len(Value.cast(port.payload)))),
    ]
