"""Remainders by 3, for values of any width."""

import random

import pytest

from hw.lib.remainder import modulo_3
from tests.hw.simulate import evaluate


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 17, 24])
def test_modulo_3(bits):
    rng = random.Random(bits)
    most = (1 << bits) - 1
    values = {*range(min(most, 300) + 1), most, *(rng.randint(0, most) for _ in range(300))}
    values |= {*range(300, most, max(1, most // 1350))}  # over the whole range
    samples = [(value,) for value in sorted(values)]
    wanted = [value % 3 for (value,) in samples]
    assert evaluate(lambda m, value: modulo_3(m, value, "result"), [bits], samples) == wanted
