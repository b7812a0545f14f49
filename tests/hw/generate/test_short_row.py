"""Tables of short rows: an entry for each pair of numbers, and 0 for no pieces."""

from itertools import product

from hw.generate.short_row import lookup
from tests.hw.simulate import evaluate


def test_every_entry() -> None:
    def build(_m, pieces, number):
        return lookup(pieces, number, lambda pieces, number: pieces * (number + 1), 5)

    samples = list(product(range(8), range(4)))
    wanted = [pieces * (number + 1) for pieces, number in samples]
    assert evaluate(build, [3, 2], samples) == wanted
