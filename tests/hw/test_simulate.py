"""Simulations that are run several times."""

import pytest

from hw.lib.queue import Queue
from tests.hw.simulate import Simulation, run_streams, simulation


def test_each_run_begins_from_reset() -> None:
    shared = Simulation(Queue(8, 4))
    for seed in range(4):
        items = list(range(10 * seed, 10 * seed + 20))
        alone = run_streams(Queue(8, 4), {"i": items}, ["o"], seed=seed)
        assert run_streams(shared, {"i": items}, ["o"], seed=seed) == alone


def test_a_run_that_fails_leaves_nothing() -> None:
    shared = Simulation(Queue(8, 4))
    for _ in range(2):
        with pytest.raises(AssertionError, match="still busy after 30 clocks"):
            run_streams(shared, {"i": list(range(100))}, ["o"], limit=30)
        assert run_streams(shared, {"i": [1, 2]}, ["o"]).payloads["o"] == [1, 2]


def test_equal_parameters_share_a_simulation() -> None:
    first = simulation(Queue, 8, depth=4)
    run_streams(first, {"i": [1]}, ["o"])
    assert simulation(Queue, 8, depth=4) is first
