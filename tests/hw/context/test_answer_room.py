"""Answer room: accesses wait for room, and answers never wait for their context."""

import pytest

from hw.context.answer_room import AnswerRoom
from hw.layouts.ports import gnic_request_layout, gnic_response_layout
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(line_bytes=16, tags=64)
SHAPES = gnic_request_layout(PARAMS), gnic_response_layout(PARAMS)
ROOM = 6


def answering(run, seen: list[int]) -> dict[str, list]:
    """Return the answers to the reads that came to memory since the last call."""
    new = run.payloads["o"][seen[0] :]
    seen[0] += len(new)
    return {"o_answer": [{"tag": each.tag} for each in new if not each.prefetch]}


@pytest.mark.parametrize("stall", [0, 0.5])
def test_every_answer_comes_once(stall: float) -> None:
    seen = [0]
    accesses = [{"tag": tag, "prefetch": tag % 5 == 0} for tag in range(PARAMS.tags)]
    run = run_streams(AnswerRoom(*SHAPES, ROOM), {"i": accesses, "o_answer": []}, ["o", "answer"],
                      stall=stall, feed=lambda run, _: answering(run, seen))  # fmt: skip
    assert [each.tag for each in run.payloads["o"]] == [*range(PARAMS.tags)]
    assert [each.tag for each in run.payloads["answer"]] == [
        tag for tag in range(PARAMS.tags) if tag % 5
    ]


def test_answers_are_taken_although_the_context_takes_none() -> None:
    """As many accesses leave as have room, and memory gets rid of all its answers."""
    seen, clocks = [0], iter(range(60))
    accesses = [{"tag": tag} for tag in range(20)]
    run = run_streams(AnswerRoom(*SHAPES, ROOM), {"i": accesses, "o_answer": []}, ["o", "answer"],
                      stall=0, stalls={"answer": 1}, feed=lambda run, _: answering(run, seen),
                      until=lambda _: next(clocks, None) is None)  # fmt: skip
    assert [each.tag for each in run.payloads["o"]] == [*range(ROOM)]
    assert len(run.taken["o_answer"]) == ROOM
