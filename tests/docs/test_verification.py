"""docs/verification.md is up to date, and no block has a stage without its evidence."""

from dataclasses import replace

import pytest

from hw.flow.tables import with_tables
from tests.docs import verification
from tests.docs.verification import Block, Points
from tests.formal.queue import PROOFS

CLOSED = Block(
    file="hw/lib/queue.py",
    contract=True,
    tests=("tests/hw/lib/test_queue.py",),
    proofs=tuple(PROOFS),
    branches=Points(9, 1, 0),
    toggles=Points(98, 4, 2),
    stale=False,
    killed=97,
    mutants=100,
)


def test_the_tables_are_up_to_date():
    """If this fails, run ``make verification``."""
    text = verification.PAGE.read_text()
    assert with_tables(text, verification.TABLES) == text


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        ({}, "D2 V3"),
        ({"killed": 96}, "D2 V2"),
        ({"killed": 9, "mutants": 9}, "D2 V2"),
        ({"toggles": Points(97, 0, 3)}, "D2 V2"),
        ({"branches": Points(9, 1, 1)}, "D2 V1"),
        ({"proofs": ()}, "D2 V1"),
        ({"stale": True}, "D2 V1"),
        ({"branches": None, "toggles": None}, "D1 V1"),
        ({"tests": ()}, "D2 V0"),
        ({"contract": False}, "D0 V3"),
    ],
)
def test_a_stage_needs_its_evidence(change, stages):
    assert replace(CLOSED, **change).row[-1] == stages


def test_every_block_is_found():
    blocks = {block.file: block for block in verification.blocks()}
    queue = blocks["hw/lib/queue.py"]
    assert "tests/hw/lib/test_queue.py" in queue.tests
    assert {proof.name for proof in PROOFS} <= {proof.name for proof in queue.proofs}
    assert any(block.mutants for block in blocks.values())
