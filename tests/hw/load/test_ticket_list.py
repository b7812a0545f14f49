"""Ticket list: entries in order, each under the number that it got."""

import random

import pytest

from hw.load.ticket_list import TicketList
from tests.hw.simulate import run_streams


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("depth", [4, 32])
def test_tickets_count_entries(depth: int, seed: int) -> None:
    """An entry is offered under the ticket that it got as it came."""
    dut = TicketList(8, depth)
    rng = random.Random(seed)
    entries = [rng.randrange(256) for _ in range(200)]
    tickets: dict[str, list[int]] = {"ticket": [], "oldest": []}
    seen = []

    def feed(run, _cycle):
        now = {name: ctx_of[0].get(getattr(dut, name)) for name in tickets}
        seen.append((now, len(run.taken["i"]), len(run.payloads["o"])))
        return {}

    ctx_of = []

    async def prepare(ctx):
        ctx_of.append(ctx)

    run = run_streams(
        dut, {"i": entries}, ["o"], seed=seed, stalls={"o": 0.9}, feed=feed, prepare=prepare
    )
    assert run.payloads["o"] == entries
    assert max(taken - given for _, taken, given in seen) == depth
    for now, taken, given in seen:
        assert now == {"ticket": taken % (2 * depth), "oldest": given % (2 * depth)}
