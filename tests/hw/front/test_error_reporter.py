"""Error reporter: every error and every barrier fault becomes one record."""

import random

import pytest

from hw.front.error_reporter import ErrorReporter
from hw.layouts.barriers import BarrierFault
from hw.layouts.isa import ErrorCode
from hw.params import TmaParams
from tests.hw.simulate import run_streams

RANK = 2


class Ports(ErrorReporter):
    """Error reporter whose inputs have names, for the simulation."""

    def __getattr__(self, name: str):
        if name.startswith("source_"):
            return self.i[int(name.removeprefix("source_"))]
        raise AttributeError(name)


@pytest.mark.parametrize("ctas", [1, 4])
@pytest.mark.parametrize("seed", range(2))
def test_every_error_is_reported(ctas: int, seed: int) -> None:
    rng = random.Random(seed)
    codes = [ErrorCode.GMEM_FAULT, ErrorCode.COORD_NEG, ErrorCode.DST_CTA]
    inputs: dict[str, list] = {
        f"source_{source}": [
            {
                "request_id": 1000 * source + number,
                "code": rng.choice(codes),
                "dim": rng.randrange(5),
                "value": rng.randrange(1 << 64),
            }
            for number in range(30)
        ]
        for source in range(3)
    }
    faults = [
        {
            "request_id": 9000 + number,
            "address": 8 * rng.randrange(1 << 12),
            "fault": rng.choice([BarrierFault.LOCKED, BarrierFault.TX_RANGE]),
        }
        | ({"cta": rng.randrange(ctas)} if ctas > 1 else {})
        for number in range(30)
    ]

    async def set_rank(ctx) -> None:
        if ctas > 1:
            ctx.set(dut.cta_rank, RANK)

    dut = Ports(TmaParams(ctas=ctas), 3)
    inputs |= {"fault": faults, "wrong_read": [3, 1], "wrong_write": [2]}
    run = run_streams(dut, inputs, ["o"], seed=seed, prepare=set_rank)
    wrong = [record for record in run.payloads["o"] if record.code == ErrorCode.WRONG_TAG]
    found = sorted((record.dim, record.value, record.request_id) for record in wrong)
    assert found == [(0, 1, 0), (0, 3, 0), (1, 2, 0)]
    records = [record for record in run.payloads["o"] if record.code != ErrorCode.WRONG_TAG]
    assert len(records) == 120
    for given in (inputs[f"source_{source}"] for source in range(3)):
        ids = [error["request_id"] for error in given]
        assert [(r.request_id, r.code, r.dim, r.value) for r in records if r.request_id in ids] == [
            tuple(error.values()) for error in given
        ]
    reported = [record for record in records if record.request_id >= 9000]
    for record, fault in zip(reported, faults, strict=True):
        assert record.request_id == fault["request_id"]
        assert record.code == ErrorCode.MBAR_FAULT
        assert (record.dim, record.value) == (fault["fault"].value, fault["address"])
        if ctas > 1:
            assert record.cta == fault["cta"]
    if ctas > 1:
        assert all(record.cta == RANK for record in records if record.request_id < 9000)


def test_inputs_take_turns() -> None:
    """Inputs that always have an error: a record every three clocks, of the inputs in turn."""
    inputs: dict[str, list] = {
        f"source_{source}": [{"request_id": source} for _ in range(4)] for source in range(3)
    }
    inputs |= {"fault": [{"request_id": 3}] * 4, "wrong_read": [9] * 4, "wrong_write": [9] * 4}
    run = run_streams(Ports(TmaParams(), 3), inputs, ["o"], stall=0)
    assert run.cycles["o"] == list(range(2, 2 + 3 * 24, 3))
    in_turn = [(0, 0), (1, 0), (2, 0), (3, 0), (0, 0), (0, 1)]
    assert [(record.request_id, record.dim) for record in run.payloads["o"]] == in_turn * 4
