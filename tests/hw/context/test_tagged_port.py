"""Tagged port: contexts take turns, and each gets its own answers."""

import random

import pytest

from hw.context.tagged_port import TaggedPort
from hw.layouts.ports import gnic_request_layout, gnic_response_layout
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(line_bytes=16, tags=16, contexts=4, smem_bytes=4096)


class Ports(TaggedPort):
    """Port with a name for each context's streams, which the simulation needs."""

    def __init__(self) -> None:
        layouts = gnic_request_layout, gnic_response_layout
        inner, answer = (layout(PARAMS) for layout in layouts)
        outer, outer_answer = (layout(PARAMS.of_all_contexts) for layout in layouts)
        super().__init__(inner, outer, answer, outer_answer, PARAMS.contexts)

    def __getattr__(self, name):
        if name.startswith(("i_", "answer_")):
            side, context = name.split("_")
            return getattr(self, side)[int(context)]
        raise AttributeError(name)


NAMES = [f"answer_{context}" for context in range(PARAMS.contexts)]


def data_of(context: int, tag: int) -> int:
    return (1000 * context + tag + 1) * 0x9E3779B97F4A7C15 % (1 << 128)


@pytest.mark.parametrize("seed", range(4))
def test_each_gets_its_answers(seed: int) -> None:
    rng = random.Random(seed)
    counts = [rng.choice((0, 5, PARAMS.tags)) for _ in range(PARAMS.contexts)]
    accesses = {
        f"i_{context}": [{"tag": tag, "line": 100 * context + tag} for tag in range(count)]
        for context, count in enumerate(counts)
    }
    seen, waiting = 0, []

    def feed(run, _cycle):
        nonlocal seen
        new = run.payloads["o"][seen:]
        seen += len(new)
        for access in new:
            context, tag = divmod(access.tag, PARAMS.tags)
            assert access.line == 100 * context + tag
            waiting.append({"tag": access.tag, "data": data_of(context, tag)})
        rng.shuffle(waiting)
        return {"o_answer": [waiting.pop()]} if waiting and rng.random() < 0.4 else {}

    run = run_streams(Ports(), {**accesses, "o_answer": []}, ["o", *NAMES], seed=seed, feed=feed)
    for context, count in enumerate(counts):
        answers = {each.tag: each.data for each in run.payloads[f"answer_{context}"]}
        assert answers == {tag: data_of(context, tag) for tag in range(count)}


def test_contexts_take_turns() -> None:
    """A context that always has an access leaves one clock in four to each of the others."""
    accesses = {
        f"i_{context}": [{"tag": tag} for tag in range(16)] for context in range(PARAMS.contexts)
    }
    run = run_streams(Ports(), accesses, ["o"], stall=0)
    assert run.cycles["o"] == [*range(64)]
    assert [access.tag // PARAMS.tags for access in run.payloads["o"]] == [0, 1, 2, 3] * 16
