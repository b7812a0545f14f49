"""Pipelines without back-pressure, for proofs: outputs and the inputs of earlier clocks."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assume, Module, ResetSignal, Signal, Value


def past(m: Module, name: str, value: Value, clocks: int) -> Signal:
    """Return ``value`` of so many clocks before."""
    for clock in range(1, clocks + 1):
        later = Signal(value.shape(), name=f"{name}_{clock}", reset_less=True)
        m.d.sync += later.eq(value)
        value = later
    return value


def choose_clock(m: Module, clocks: int) -> Signal:
    """Return a signal that is set in clocks in which a pipeline of so many clocks is examined.

    The solver chooses these clocks, but not the first ones and none in the ``clocks`` clocks behind
    another one. So the induction over one clock more examines a single one, and its time is that of
    a single comparison.
    """
    chosen, age = Signal(name="chosen"), Signal(range(clocks + 1), name="age")
    m.d.comb += [
        chosen.eq(AnySeq(1)),
        Assume(~ResetSignal()),
        Assume(~chosen | (age == clocks)),
    ]
    with m.If(chosen):
        m.d.sync += age.eq(0)
    with m.Elif(age != clocks):
        m.d.sync += age.eq(age + 1)
    return chosen
