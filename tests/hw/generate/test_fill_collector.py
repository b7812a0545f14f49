"""Fill collector: each piece that is in no run once, each beat once, one end for each request."""

import random
from dataclasses import dataclass

import pytest

from hw.generate.fill_collector import FillCollector
from hw.params import TmaParams
from tests.hw.simulate import Run, run_streams

PARAMS = {
    "16-byte lines": TmaParams(line_bytes=16),
    "no gathered rows": TmaParams(line_bytes=64, short_rows=False),
    "32-byte lines": TmaParams(line_bytes=32),
    "128-byte lines": TmaParams(),
}


@dataclass(frozen=True)
class Filled:
    """Fill of a request: its pieces, its beats in order, and whether its end was marked."""

    slot: int
    pieces: list[int]
    beats: list[int]
    ended: bool


def random_steps(rng: random.Random, params: TmaParams, requests: int) -> list[dict]:
    """Steps of requests of one to three chains; each chain begins in a beat of its own."""
    steps = []
    for number in range(requests):
        slot = number % params.requests_in_flight
        beats = rng.choice((64, (1 << params.smem_beat_bits) - 128))
        address = rng.randrange(beats) * params.lanes
        chains = rng.randint(1, 3)
        for chain in range(chains):
            address += rng.randrange(params.lanes)
            begin = address
            chain_steps = []
            for _ in range(rng.choice((0, 1, 1, 2, 5))):
                address += rng.choice((0, 0, 1, rng.randrange(3 * params.lanes)))
                extent = rng.choice((1, 1, 2, rng.randint(1, 3 * params.lanes)))
                step = {"has_run": 1, "start": address, "extent": extent}
                if params.gathers_rows:
                    in_beat = min(extent, params.lanes - address % params.lanes)
                    mask = rng.choice((0, rng.randrange(1 << in_beat)))
                    step["inner_fill"] = mask & ~1  # a run begins with a row
                chain_steps.append(step)
                address += extent
            if not chain_steps:
                chain_steps = [{"has_run": 0, "start": rng.randrange(64), "extent": 9}]
            address += rng.choice((0, 0, 1, rng.randrange(3 * params.lanes)))
            for at, step in enumerate(chain_steps):
                is_last = at == len(chain_steps) - 1
                steps.append(
                    {
                        "slot": slot,
                        "row_mask": (1 << params.row_mask_bits) - 1,
                        "first_of_chain": at == 0,
                        "chain_begin": begin if at == 0 else rng.randrange(64),
                        **step,
                        "last_of_chain": is_last,
                        "chain_end": address if is_last else rng.randrange(64),
                        "last_of_request": is_last and chain == chains - 1,
                    }
                )
            address += -address % params.lanes
    return steps


def ref(steps: list[dict], params: TmaParams) -> list[Filled]:
    """The fill of each request that has some, or ends with a walk without runs."""
    requests = []
    pieces: list[int] = []
    for step in steps:
        if step["first_of_chain"]:
            at = step["chain_begin"]
        if step["has_run"]:
            pieces += range(at, step["start"])
            inner = step.get("inner_fill", 0)
            pieces += [step["start"] + i for i in range(step["extent"]) if inner >> i & 1]
            at = step["start"] + step["extent"]
        if step["last_of_chain"]:
            pieces += range(at, step["chain_end"])
        if step["last_of_request"]:
            if pieces or not step["has_run"]:
                beats = sorted({piece // params.lanes for piece in pieces})
                requests.append(Filled(step["slot"], sorted(pieces), beats, True))
            pieces = []
    return requests


def rtl(steps: list[dict], params: TmaParams, **options) -> tuple[list[Filled], Run]:
    """The fill that the collector gives, request by request; beats without pieces are left out."""
    run = run_streams(FillCollector(params), {"i": steps}, ["o"], **options)
    requests = []
    pieces: list[int] = []
    beats: list[int] = []
    for number, stretch in enumerate(run.payloads["o"]):
        for extra in range(stretch.extra_beats + 1):
            mask = (1 << params.lanes) - 1
            if extra == 0:
                mask = stretch.mask
            elif extra == stretch.extra_beats:
                mask = stretch.last_mask
            beat = stretch.beat + extra
            pieces += [beat * params.lanes + i for i in range(params.lanes) if mask >> i & 1]
            beats += [beat] if mask else []
        if stretch.last or number == len(run.payloads["o"]) - 1:
            requests.append(Filled(stretch.slot, sorted(pieces), beats, bool(stretch.last)))
            pieces, beats = [], []
    return requests, run


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PARAMS)
def test_collects_what_is_in_no_run(name: str, seed: int) -> None:
    params = PARAMS[name]
    steps = random_steps(random.Random(seed), params, 60)
    assert rtl(steps, params, seed=seed)[0] == ref(steps, params)


def test_a_step_a_clock() -> None:
    """Whatever is emitted on the way, as long as the chain does not end."""
    params = PARAMS["32-byte lines"]
    rng = random.Random(1)
    address, steps = 0, []
    for number in range(40):
        address += rng.randrange(5)
        steps.append({"has_run": 1, "start": address, "extent": 3, "first_of_chain": number == 0})
        address += 3
    steps[-1] |= {"last_of_chain": 1, "last_of_request": 1, "chain_end": address}
    got, run = rtl(steps, params, stall=0)
    assert run.taken["i"] == list(range(run.taken["i"][0], run.taken["i"][0] + 40))
    assert [request.pieces for request in got] == [
        request.pieces
        for request in ref(
            [
                {"slot": 0, "chain_begin": 0, "last_of_chain": 0, "last_of_request": 0, **step}
                for step in steps
            ],
            params,
        )
    ]
