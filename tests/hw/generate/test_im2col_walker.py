"""Im2col walker of compact units, behind the setup block: every pixel once, at its address."""

from dataclasses import replace

import numpy as np
import pytest

from hw.params import PRESETS, TmaParams
from tests.hw.generate.columns import check_stores, requests_of, walk
from tests.hw.golden_requests import KINDS, STORE_KINDS, arch_of, expected, random_requests
from tests.hw.setup.test_block import covered_by
from tests.quick import quick


def compact(preset: str) -> TmaParams:
    """Return the parameters of a preset with one setup pipeline."""
    return replace(PRESETS[preset], setup_pipelines=1)


@pytest.mark.parametrize("seed", quick(range(2), 1))
@pytest.mark.parametrize("kind", KINDS)
def test_walks_cover_the_box(kind: str, seed: int) -> None:
    """The walks of each request cover its box."""
    loads = random_requests(np.random.default_rng(seed), kind, 10)
    run = walk(loads, compact(KINDS[kind]), seed=seed)
    found = requests_of(run)
    assert len(found) == len(loads)
    for number, (load, jobs) in enumerate(zip(loads, found, strict=True)):
        assert covered_by(jobs) == expected(load, arch_of(kind)), load
        assert {job.slot for job in jobs} == {number}


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_walks_of_a_store_cover_what_is_inside(kind: str) -> None:
    """Dimension 0 counts in whole pieces; in the others the golden model decides."""
    count = 5 if "im2col" in kind else 20
    stores = random_requests(np.random.default_rng(3), kind, count)
    params = compact(STORE_KINDS[kind])
    run = walk(stores, params, seed=1, stall=0.3)
    check_stores(stores, run, arch_of(kind))
