"""Permutations of lanes: log2(lanes) stages of two-way multiplexers."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value


def permute(
    m: Module,
    lanes: Sequence[Value],
    amount: Value,
    name: str,
    source: Callable[[int, int], int],
) -> list[Value]:
    """Return ``lanes`` permuted by ``amount``; the stages are the signals ``<name>_0``, and so on.

    Stage n permutes if bit n of ``amount`` is set: its output lane ``i`` is its input lane
    ``source(i, 1 << n)``.
    """
    width = len(lanes[0])
    for bit in range(len(amount)):
        stage = Signal(width * len(lanes), name=f"{name}_{bit}")
        permuted = Cat(lanes[source(lane, 1 << bit)] for lane in range(len(lanes)))
        m.d.comb += stage.eq(Mux(amount[bit], permuted, Cat(lanes)))
        lanes = [stage.word_select(lane, width) for lane in range(len(lanes))]
    return list(lanes)


def exchange(m: Module, lanes: Sequence[Value], amount: Value, name: str) -> list[Value]:
    """Return ``lanes`` with input lane ``i`` at ``i ^ amount``."""
    return permute(m, lanes, amount, name, lambda lane, size: lane ^ size)


def rotate(m: Module, lanes: Sequence[Value], amount: Value, name: str) -> list[Value]:
    """Return ``lanes`` with input lane ``i`` at ``(i + amount) % len(lanes)``."""
    return permute(m, lanes, amount, name, lambda lane, size: (lane - size) % len(lanes))


def gather(m: Module, lanes: Sequence[Value], start: Value, mask: Value, name: str) -> list[Value]:
    """Return ``lanes`` with output lane ``i`` from input lane ``(i + start) % len(lanes) ^ mask``.

    A rotation and an exchange take the same stages: bit n of the number of the input lane is bit n
    of ``i``, inverted or not, and only the bits of ``i`` below n decide which. The stages are the
    signals ``<name>_0``, and so on.
    """
    width = len(lanes[0])
    for bit in range((len(lanes) - 1).bit_length()):
        size = 1 << bit
        inverts = Signal(size, name=f"{name}_inverts_{bit}")
        stage = Signal(width * len(lanes), name=f"{name}_{bit}")
        m.d.comb += [
            inverts.eq(
                Cat(start[bit] ^ mask[bit] ^ (start[:bit] + low)[bit] for low in range(size))
            ),
            stage.eq(
                Cat(
                    Mux(inverts[lane % size], lanes[lane ^ size], lanes[lane])
                    for lane in range(len(lanes))
                )
            ),
        ]
        lanes = [stage.word_select(lane, width) for lane in range(len(lanes))]
    return list(lanes)
