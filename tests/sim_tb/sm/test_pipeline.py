"""States of pipelines: the stages and parities of a ring."""

from itertools import islice

import pytest

from sim_tb.sm.pipeline import PipelineAsync
from sim_tb.sm.smem import SmemLayout


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_states_are_the_steps_of_the_ring(stages):
    """A producer waits for *empty* with the other parity, so that its first waits return."""
    ring = SmemLayout(4096).ring("", stages)
    pipeline = PipelineAsync(ring)
    consumer, producer = pipeline.consumer_state(), pipeline.producer_state()
    for number, (stage, parity) in enumerate(islice(ring.steps(), 4 * stages + 1)):
        assert (consumer.index, consumer.phase, consumer.count) == (stage, parity, number)
        assert (producer.index, producer.phase, producer.count) == (stage, parity ^ 1, number)
        consumer.advance()
        producer.advance()


@pytest.mark.parametrize("steps", range(12))
def test_several_steps_at_once(steps):
    pipeline = PipelineAsync(SmemLayout(4096).ring("", 3))
    once, often = pipeline.consumer_state(), pipeline.consumer_state()
    for state in (once, often):
        state.advance(2)
    once.advance(steps)
    for _ in range(steps):
        often.advance()
    assert once == often
