"""Recorded requests of the silicon, by the driver in C, in the example SoC.

``make regress`` replays all that fit in its memory, natively; ``make test`` replays some of each
kind, and a few on the RISC-V processor.
"""

from collections import defaultdict

import pytest

from examples.soc import system
from golden.vectors import Case, check
from tests.examples.replay import fitting, outcomes
from tests.examples.test_soc import needs_compiler

pytestmark = pytest.mark.simulators.with_args(system.simulator)


def sample(count: int) -> list[Case]:
    """Return cases of each kind, refused and accepted, the same each time."""
    kinds = defaultdict(list)
    for case in fitting("transfers.npz"):
        kinds[case.op, case.mode, case.refused].append(case)
    return [case for cases in kinds.values() for case in cases[:: -(-len(cases) // count)]]


def compare(cases: list[Case], *, native: bool) -> int:
    """Replay cases, and compare each with its recording; return their number."""
    differences = []
    count = 0
    for case, outcome in outcomes(cases, native=native):
        count += 1
        if difference := check(case, outcome):
            differences.append(difference)
    assert count == len(cases)
    assert not differences, "\n".join(differences[:10])
    return count


def test_a_sample_natively():
    assert compare(sample(6), native=True) > 40


@needs_compiler
def test_a_few_on_risc_v():
    assert compare(sample(1), native=False) >= 8


@pytest.mark.regress
@pytest.mark.parametrize(("name", "count"), [("transfers.npz", 1000), ("workloads.npz", 1)])
def test_all_that_fit(name, count):
    assert compare(fitting(name), native=True) > count
