"""Recordings of barriers, clusters and edits of maps: the golden model agrees with the silicon."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden import ErrorCode, TmaError, mbarrier
from golden.archive import VectorError, read_arrays
from golden.mbarrier import Barrier, Op
from sim_tb.conformance import golden_barriers, golden_clusters, rtl
from sim_tb.conformance.barriers import BarrierProgram, barrier_file
from sim_tb.conformance.clusters import cluster_file
from sim_tb.conformance.command import NO_ACCESS, NOTES, main
from sim_tb.conformance.memory_side import MemorySide
from sim_tb.conformance.recordings import read_recording
from tests.sim_tb.conformance.ended_at_a_part import ENDED_AT_A_PART

SILICON = Path(__file__).parents[2] / "silicon"
BARRIERS = SILICON / "barriers.npz"
CLUSTERS = SILICON / "clusters.npz"
ODD = SILICON / "clusters_odd.npz"
EDITS = SILICON / "tensormap_replace.npz"
PARTS = SILICON / "complete_tx_parts.npz"


@pytest.fixture(scope="module")
def barriers():
    return barrier_file(BARRIERS, read_arrays(BARRIERS))


@pytest.fixture(scope="module")
def clusters():
    return cluster_file(CLUSTERS, read_arrays(CLUSTERS))


@pytest.fixture(scope="module")
def odd():
    file = cluster_file(ODD, read_arrays(ODD))
    return {program.name: program for program in file}


def conformance(capsys, file, *arguments):
    """Run the command; return its status and the lines of its output."""
    status = main([str(file), *arguments])
    return status, capsys.readouterr().out.splitlines()


def test_barriers_of_one_thread(capsys):
    status, lines = conformance(capsys, BARRIERS, "--limit", "300")
    assert (status, lines[-1]) == (0, "300 passed, 0 failed")


def test_barriers_of_a_warp_and_directed_ones(capsys):
    status, lines = conformance(capsys, BARRIERS, "--kinds", "lanes,odd,first")
    assert (status, lines[-1]) == (0, "755 passed, 0 failed")


@pytest.mark.regress
def test_all_barriers(capsys):
    status, lines = conformance(capsys, BARRIERS)
    assert (status, lines[-1]) == (0, "3755 passed, 0 failed")


def test_clusters(capsys):
    status, lines = conformance(capsys, CLUSTERS)
    assert (status, lines[-1]) == (0, "655 passed, 0 failed")
    notes = lines[lines.index(NOTES) + 1 : -1]
    assert [note.strip() for note in notes] == ENDED_AT_A_PART["golden"]


@pytest.mark.parametrize(
    ("file", "last"),
    [
        (ODD, "221 passed, 0 failed"),
        (EDITS, "300 passed, 0 failed"),
        (PARTS, "1116 passed, 0 failed"),
    ],
)
def test_odd_clusters_edits_and_parts(capsys, file, last):
    status, lines = conformance(capsys, file)
    assert (status, lines[-1]) == (0, last)


LOCKED = 0x7FFFEC00001FFFFA
FAULTS = {
    "over": (mbarrier.init(2), [(Op.ARRIVE, 3)]),
    "over_tx": (mbarrier.init(1), [(Op.EXPECT_TX, 16), (Op.ARRIVE, 1), (Op.ARRIVE, 1)]),
    "arrexp_over": (mbarrier.init(1), [(Op.ARRIVE_EXPECT_TX, 16)] * 2),
    "drop_over": (mbarrier.init(2), [(Op.ARRIVE_DROP, 3)]),
    "nc_over": (mbarrier.init(3), [(Op.ARRIVE_NO_COMPLETE, 4)]),
    "txpos": (mbarrier.init(3), [(Op.EXPECT_TX, 1048565), (Op.EXPECT_TX, 16)]),
    "txneg": (mbarrier.init(3), [(Op.COMPLETE_TX, 1048565), (Op.COMPLETE_TX, 16)]),
    "operand": (mbarrier.init(3), [(Op.EXPECT_TX, 1 << 20)]),
    "operand_arr": (mbarrier.init((1 << 20) - 1), [(Op.ARRIVE, 1 << 20)]),
    "lanes16": (mbarrier.init(16), [(Op.ARRIVE, 32)]),
    "init0_arrive": (mbarrier.init(0), [(Op.ARRIVE, 1)]),
    "locked_arrive": (LOCKED, [(Op.ARRIVE, 1)]),
    "locked_expect": (LOCKED, [(Op.EXPECT_TX, 16)]),
    "locked_test": (LOCKED, []),
}
"""Word, and operations of which the last one faults, for each row of ``after_fault``."""


def test_words_after_a_fault():
    """Words in a core dump: the lock is set, and all else stays."""
    rows = read_arrays(BARRIERS)["after_fault"]
    assert set(rows["name"]) == set(FAULTS)
    for name, expected in rows.tolist():
        word, operations = FAULTS[name]
        for op, count in operations[:-1]:
            word = mbarrier.update(word, op, count)
        with pytest.raises(TmaError) as caught:
            mbarrier.update(word, *operations[-1]) if operations else mbarrier.is_complete(word, 0)
        assert caught.value.value == expected, name


# Wrong results are found


def barrier_results(program):
    return list(golden_barriers.outcome(program))


def test_a_wrong_result_of_a_barrier_is_found(barriers):
    program = barriers[barriers.kinds.index("lanes")]
    right = barrier_results(program)
    assert program.check(right) is None
    last = right[-1]
    lane = program.operations[-1].lowest_lane
    words, states = list(last.words), list(last.states)
    words[program.operations[-1].barrier] ^= 1
    states[lane] ^= 1 << 40
    for changed, text in (
        ({"words": words}, "word: expected"),
        ({"states": states}, "state: expected"),
        ({"predicates": last.predicates ^ 1 << lane}, "predicate: expected"),
        ({"states": [n ^ (i != lane) for i, n in enumerate(last.states)]}, "states of all lanes"),
        ({"error": ErrorCode.MBAR_FAULT}, "silicon finished it, got MBAR_FAULT"),
    ):
        assert text in program.check([*right[:-1], replace(last, **changed)])
    assert "no result" in program.check(right[:-1])


def test_a_missing_fault_of_a_barrier_is_found(barriers):
    program = barriers[int(barriers.rows["error"].argmax())]
    right = barrier_results(program)
    assert program.check(right) is None
    for error, text in ((None, "got no error"), (ErrorCode.MBAR_ALIGN, "got MBAR_ALIGN")):
        wrong = program.check([*right[:-1], replace(right[-1], error=error)])
        assert "silicon: launch failure, " + text in wrong


def test_a_wrong_result_of_a_cluster_is_found(clusters):
    program = clusters[1]
    right = golden_clusters.outcome(program)
    assert program.check(right) is None
    last = right.results[-1]
    word = last.words.copy()
    word[1, 0] ^= 1
    for changed, text in (
        ({"words": word}, "word 0 of CTA 1: expected"),
        ({"state": last.state ^ 1}, "state: expected"),
        ({"predicate": not last.predicate}, "predicate: expected"),
        ({"error": ErrorCode.DST_CTA}, "silicon finished it, got DST_CTA"),
    ):
        results = [*right.results[:-1], replace(last, **changed)]
        assert text in program.check(replace(right, results=results))
    assert "no result" in program.check(replace(right, results=right.results[:-1]))
    smem = [memory.copy() for memory in right.smem]
    smem[2][0x830] ^= 0xFF
    assert "shared memory of CTA 2: 1 bytes differ, first 0x830" in program.check(
        replace(right, smem=smem)
    )


def test_a_wrong_byte_of_global_memory_is_found(odd):
    program = odd["bulkst_size24"]
    right = golden_clusters.outcome(program)
    assert program.check(right) is None
    gmem = right.gmem.copy()
    gmem[20] ^= 1
    assert "global memory: 1 bytes differ, first 0x800014" in program.check(
        replace(right, gmem=gmem)
    )


def test_a_refusal_is_compared_with_the_error_of_silicon(odd):
    for name, error, other in (
        ("tile2_map_tile1", ErrorCode.MAP_MODE, ErrorCode.SMEM_ALIGN),
        ("bulk_src+1", ErrorCode.BULK_ALIGN, ErrorCode.MAP_MODE),
        ("bulk_mbar_out", ErrorCode.SMEM_RANGE, None),
        ("dcopy_rank3of2", ErrorCode.DST_CTA, None),
    ):
        program = odd[name]
        right = golden_clusters.outcome(program)
        assert right.results[-1].error is error
        assert program.check(right) is None
        results = [*right.results[:-1], replace(right.results[-1], error=other)]
        assert "silicon: " in program.check(replace(right, results=results))


WAITS = Barrier(phase=0, pending=0, expected=3, tx_count=64)
ONCE = replace(WAITS, tx_count=-32)
EARLY = Barrier(phase=1, pending=3, expected=3, tx_count=-32)


@pytest.mark.parametrize(
    ("silicon", "got", "explained"),
    [
        (ONCE, EARLY, True),
        (EARLY, ONCE, True),
        (ONCE, ONCE, False),
        (ONCE, replace(EARLY, pending=2), False),
        (ONCE, replace(EARLY, tx_count=-16), False),
        (replace(ONCE, tx_count=16), replace(EARLY, tx_count=16), False),
    ],
)
def test_an_end_at_a_part_explains_one_difference_only(clusters, silicon, got, explained):
    """96 bytes come at a barrier that waits for 64: the phase may end, or not."""
    program = clusters[0]
    step = next(step for step in program.steps if step.request is not None)
    before, recorded, words = np.zeros((3, program.ctas, 8), np.uint64)
    before[1, 2], recorded[1, 2], words[1, 2] = (b.encode() for b in (WAITS, silicon, got))
    assert replace(step, words=recorded).ended_at_a_part(before, words) is explained
    words[0, 0] ^= np.uint64(1)
    assert not replace(step, words=recorded).ended_at_a_part(before, words)


# Files of another form


def rewritten(tmp_path, file, **changes):
    """Write a file with changed arrays; return its path. None removes an array."""
    arrays = {**read_arrays(file), **changes}
    path = tmp_path / "x.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def with_field(file, array, field, value):
    """Return an array of a file in which the first row has another value."""
    rows = read_arrays(file)[array].copy()
    rows[field][0] = value
    return {array: rows}


GARBAGE = {
    "no op names": (BARRIERS, {"op_names": None}, "there is no array op_names"),
    "numbers for names": (BARRIERS, {"op_names": np.arange(29)}, "op_names has type int64"),
    "unknown names": (BARRIERS, {"op_names": np.array(["ARRIVES"] * 29)}, "unknown instructions"),
    "no wide results": (BARRIERS, {"wide": np.zeros(0)}, "wide without the fields words"),
    "beyond the operations": (
        BARRIERS,
        with_field(BARRIERS, "programs", "count", 1 << 31),
        "operations of row 0 are 2147483648 from 0 on: the file has 105687",
    ),
    "op": (BARRIERS, with_field(BARRIERS, "ops", "op", 99), "op of row 0 is 99: must be from 0"),
    "lanes": (BARRIERS, with_field(BARRIERS, "ops", "lanes", 0), "an operation has no lanes"),
    "error": (ODD, with_field(ODD, "programs", "error", 1), "unknown CUDA errors 1"),
    "ctas": (ODD, with_field(ODD, "programs", "ctas", 0), "ctas - 1 of row 0 is -1"),
    "runs": (ODD, with_field(ODD, "runs", "offset", 8190), "bytes of a run of row 0 are 64"),
    "blob": (ODD, {"blob": np.zeros(16, np.uint8)}, "the file has 16"),
    "floats for words": (ODD, {"words": np.zeros(99)}, "words has type float64"),
    "maps": (ODD, {"maps": np.zeros((38, 31), np.uint32)}, "maps has shape (38, 31): must be any"),
    "reductions": (ODD, {"reductions": np.array(["mul.u32"] * 12)}, "type or operation mul.u32"),
    "steps": (
        ODD,
        {"steps": np.zeros(900, [("op", "f4")])},
        "steps without the fields issuer",
    ),
    "edits": (
        EDITS,
        {"after": np.zeros((300, 12, 31), np.uint32)},
        "after has shape (300, 12, 31)",
    ),
    "fields": (EDITS, {"fields": np.array(["rank"])}, "field of row"),
    "values": (EDITS, {"value": np.zeros((300, 12))}, "value has type float64"),
    "requests": (PARTS, with_field(PARTS, "cases", "request", "dcopy_x"), "dcopy_x: unknown"),
    "another form": (
        EDITS,
        {"before": None, "after": None},
        "no known form of recording: its arrays are field, index, value, fields",
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_in_words(tmp_path, capsys, name):
    file, changes, text = GARBAGE[name]
    path = rewritten(tmp_path, file, **changes)
    with pytest.raises(VectorError) as caught:
        read_recording(path)
    assert text in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(SystemExit) as ended:
        main([str(path)])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err.replace("\n", " ")


def test_a_file_is_recognised_by_its_arrays(tmp_path, capsys):
    """Neither the name of the file nor the number of its programs matters."""
    rows = read_arrays(ODD)["programs"][:7]
    path = rewritten(tmp_path, ODD, programs=rows, unknown=np.zeros(3))
    status, lines = conformance(capsys, path)
    assert (status, lines[-1]) == (0, "7 passed, 0 failed")


def test_failures_set_the_status(tmp_path, capsys):
    path = rewritten(tmp_path, EDITS, **with_field_of_edits())
    status, lines = conformance(capsys, path, "--limit", "2")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    assert any("tensormap_replace[0]: edit 0, " in line for line in lines)


def with_field_of_edits():
    after = read_arrays(EDITS)["after"].copy()
    after[0, 0, 31] ^= 1
    return {"after": after}


def after(phase, rest):
    """Return the word of a barrier for one arrival that counts bytes of the next phase."""
    return Barrier(phase, pending=phase, expected=1, tx_count=-rest).encode()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ends": (True, False, False)}, f"expected {after(0, 16):#018x}, got {after(1, 16):#x}"),
        ({"word_after": (5, 5, 5)}, "word of run 0: expected 0x0000000000000005"),
        ({"expected": 17, "ends": True, "word_after": after(1, 15)}, "at a part of 1 bytes"),
        (
            {"ends": (True, False, True), "word_after": [after(n, 16) for n in (1, 0, 1)]},
            "the runs differ",
        ),
    ],
)
def test_a_part_that_no_rule_explains_is_found(tmp_path, capsys, changes, text):
    rows = read_arrays(PARTS)["cases"][:1].copy()
    for field, value in changes.items():
        rows[field] = np.array(value, rows[field].dtype)
    status, lines = conformance(capsys, rewritten(tmp_path, PARTS, cases=rows))
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")
    assert text in lines[0]


def test_the_rtl_runs_no_edits(capsys):
    """The RTL has no tensormap.replace: threads execute it."""
    status, lines = conformance(capsys, EDITS, "--target", "rtl", "--limit", "1")
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")


def test_barrier_programs_do_not_use_the_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says so. The golden model stands in for the RTL."""

    def results(programs: Sequence[BarrierProgram], *, memory: MemorySide) -> Iterator[Any]:
        assert memory.port == "axi"
        return map(golden_barriers.outcome, programs)

    monkeypatch.setattr(rtl, "barrier_results", results)
    assert main([str(BARRIERS), "--target", "rtl", "--port", "axi", "--limit", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == NO_ACCESS.format(port="axi")
    assert lines[-1] == "5 passed, 0 failed"
