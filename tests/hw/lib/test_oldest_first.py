"""Oldest first: the head with the older ticket is taken, also when tickets have wrapped."""

from itertools import product

from hw.lib.oldest_first import second_goes_first
from tests.hw.simulate import evaluate

BITS = 3
TICKETS = range(1 << BITS)


def test_all_tickets():
    def build(_m, *signals):
        return second_goes_first(signals[:2], signals[2:4], signals[4])

    samples = list(product((0, 1), (0, 1), TICKETS, TICKETS, TICKETS))
    wanted = []
    for first_valid, second_valid, first, second, oldest in samples:
        ages = [(ticket - oldest) % len(TICKETS) for ticket in (first, second)]
        wanted.append(int(second_valid and (not first_valid or ages[1] < ages[0])))
    assert evaluate(build, [1, 1, BITS, BITS, BITS], samples) == wanted
