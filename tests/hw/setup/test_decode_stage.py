"""Decode stage: each request is offered batch by batch, in the clocks in which it is admitted."""

import random
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from golden.request import as_descriptor
from hw.layouts.isa import AccessMode
from hw.layouts.jobs import request_with_map_layout
from hw.params import DIMS, PRESETS, TmaParams
from hw.setup.decode_stage import DecodeStage, request_batch_layout
from tests.hw.golden_requests import KINDS, random_requests, setup_input
from tests.hw.simulate import run_streams

UNIT = PRESETS["sm_107a"]
GATHERS = AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4


class Admitted(wiring.Component):
    """Decode stage of which a clock in two, at random, or every clock admits a batch.

    ``clocks``: a bit for each of the next clocks, 1 if it admits.
    """

    def __init__(self, params: TmaParams, clocks: list[bool]) -> None:
        self.params = params
        self.clocks = clocks
        batches = stream.Signature(request_batch_layout(params))
        super().__init__(
            {"i": In(stream.Signature(request_with_map_layout(params))), "o": Out(batches)}
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.stage = stage = DecodeStage(self.params)
        connect(m, flipped(self.i), stage.i)
        pattern = Signal(
            len(self.clocks), init=sum(bit << at for at, bit in enumerate(self.clocks))
        )
        m.d.sync += pattern.eq(pattern.rotate_right(1))
        m.d.comb += [
            stage.admits_next.eq(pattern[0]),
            self.o.valid.eq(stage.o.valid),
            self.o.payload.eq(stage.o.payload),
        ]
        return m


def batches_of(request, pipelines: int) -> int:
    """Return the batches of a request, with an item for each pipeline in each."""
    d = as_descriptor(request.tensor_map)
    mode = AccessMode((d if request.mode is None else request).mode.value)
    if mode in GATHERS:
        return 4
    is_tile = mode == AccessMode.TILE
    items = max(1, d.rank - 1 + bool(d.interleave)) if is_tile else DIMS
    return -(-items // pipelines)


@pytest.mark.parametrize("admits", ["every clock", "at random"])
@pytest.mark.parametrize("pipelines", range(1, DIMS + 1))
def test_batches_of_requests(pipelines: int, admits: str) -> None:
    print(f"seed {pipelines}: tests/hw/setup/test_decode_stage.py")
    rng = random.Random(pipelines)
    params = replace(UNIT, setup_pipelines=pipelines)
    requests = [
        request
        for kind in KINDS
        for request in random_requests(np.random.default_rng(pipelines), kind, 4)
    ]
    rng.shuffle(requests)
    inputs = [setup_input(request, number) for number, request in enumerate(requests)]
    expected = [
        (number, batch, batch == 0, batch == count - 1)
        for number, count in enumerate(batches_of(request, pipelines) for request in requests)
        for batch in range(count)
    ]
    is_random = admits == "at random"
    clocks = [not is_random or rng.random() < 0.5 for _ in range(997)]
    run = run_streams(Admitted(params, clocks), {"i": inputs}, ["o"], stall=0)
    got = [
        (batch.request.request_id, batch.number, bool(batch.first), bool(batch.last))
        for batch in run.payloads["o"]
    ]
    assert got == expected
    if is_random:  # clock 0 admits a batch after a reset, and each other one by the clock before
        assert all(clocks[clock - 1] for clock in run.cycles["o"])
    else:
        assert run.cycles["o"] == list(range(1, 1 + len(expected)))
