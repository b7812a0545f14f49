"""Oldest first: the head with the older ticket is taken, also when tickets have wrapped."""

from itertools import product

from hw.lib.oldest_first import second_goes_first
from tests.hw.simulate import evaluate

BITS = 4
TICKETS = range(1 << BITS)
IN_USE = len(TICKETS) // 2


def test_all_tickets():
    def build(_m, *signals):
        return second_goes_first(signals[:2], signals[2:])

    samples, wanted = [], []
    ages = range(IN_USE)
    for first_valid, second_valid, oldest, *pair in product((0, 1), (0, 1), TICKETS, ages, ages):
        tickets = [(oldest + age) % len(TICKETS) for age in pair]
        samples.append((first_valid, second_valid, *tickets))
        wanted.append(int(second_valid and (not first_valid or pair[1] < pair[0])))
    assert evaluate(build, [1, 1, BITS, BITS], samples) == wanted
