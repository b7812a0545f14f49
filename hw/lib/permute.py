"""Permutations of lanes in log2 stages of one two-way mux."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal


def permute(m: Module, lanes: list, amount, name: str, source: Callable[[int, int], int]) -> list:
    """Return ``lanes`` permuted by ``amount``, through signals ``<name>_0``, ``<name>_1``, ...

    ``source(lane, step)`` is the lane that output ``lane`` takes in a stage of size ``step``.
    """
    width = len(lanes[0])
    for bit in range(len(amount)):
        stage = Signal(width * len(lanes), name=f"{name}_{bit}")
        moved = Cat(lanes[source(lane, 1 << bit)] for lane in range(len(lanes)))
        m.d.comb += stage.eq(Mux(amount[bit], moved, Cat(lanes)))
        lanes = [stage.word_select(lane, width) for lane in range(len(lanes))]
    return lanes


def exchange(m: Module, lanes: list, amount, name: str) -> list:
    """Return ``lanes`` with lane ``i`` at ``i ^ amount``."""
    return permute(m, lanes, amount, name, lambda lane, step: lane ^ step)


def rotate(m: Module, lanes: list, amount, name: str) -> list:
    """Return ``lanes`` with lane ``i`` at ``i + amount``, around the end."""
    return permute(m, lanes, amount, name, lambda lane, step: (lane - step) % len(lanes))
