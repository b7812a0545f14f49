"""Map guard: maps in the range are read, all others have an error, and answers keep their order."""

import random

import pytest

from hw.context.map_guard import MapGuard
from hw.params import TmaParams
from tests.hw.simulate import run_streams

PARAMS = TmaParams(address_bits=40)
FIRST, LAST = 0x20, 0x2F
OUTSTANDING = 4


@pytest.mark.parametrize("seed", range(4))
def test_answers_keep_their_order(seed: int) -> None:
    rng = random.Random(seed)
    guard = MapGuard(PARAMS, OUTSTANDING)
    ends = FIRST * 128 - 64, FIRST * 128, LAST * 128 + 64, LAST * 128 + 128
    addresses = [rng.choice((*ends, 64 * rng.randrange(128))) for _ in range(60)]
    high = 1 << PARAMS.address_bits  # is ignored
    seen = 0

    async def allow(ctx):
        ctx.set(guard.allowed, {"first": FIRST, "last": LAST})

    def feed(run, _cycle):
        nonlocal seen
        new = run.payloads["o"][seen:]
        seen += len(new)
        return {"o_answer": [{"words": [address % high] + [0] * 15} for address in new]}

    run = run_streams(
        guard,
        {"i": [high * rng.randrange(2) + address for address in addresses], "o_answer": []},
        ["o", "answer"],
        seed=seed,
        stall=rng.choice((0, 0.5)),
        feed=feed,
        prepare=allow,
    )
    inside = [FIRST <= address // 128 <= LAST for address in addresses]
    read = [address for address, is_inside in zip(addresses, inside, strict=True) if is_inside]
    assert [address % high for address in run.payloads["o"]] == read
    answers = run.payloads["answer"]
    assert [each.error for each in answers] == [not is_inside for is_inside in inside]
    assert [each.words[0] for each in answers if not each.error] == read


def test_reads_wait_while_too_many_are_unanswered() -> None:
    guard = MapGuard(PARAMS, OUTSTANDING)
    clocks = iter(range(50))

    async def allow(ctx):
        ctx.set(guard.allowed, {"first": 0, "last": LAST})

    run = run_streams(guard, {"i": [64 * n for n in range(9)], "o_answer": []}, ["o", "answer"],
                      stall=0, prepare=allow,
                      until=lambda _: next(clocks, None) is None)  # fmt: skip
    assert run.payloads["o"] == [64 * n for n in range(OUTSTANDING)]
