"""Vector files: wrong outcomes are found, and the message names the element."""

from pathlib import Path

import numpy as np
import pytest

from golden import ErrorCode
from golden.conformance import outcomes
from golden.vectors import Outcome, VectorError, check, read_cases
from sim_tb.conformance.command import diagnoses, main

TRANSFERS = Path(__file__).parents[1] / "silicon" / "transfers.npz"
MAPS = TRANSFERS.with_name("tensor_maps.npz")


@pytest.fixture(scope="module")
def case():
    return next(c for c in read_cases(TRANSFERS, ["load_tile"]) if c.rank == 2)


@pytest.fixture
def outcome(case):
    (right,) = outcomes([case])
    assert check(case, right) is None
    return right


def test_a_wrong_byte_is_named_with_its_element(case, outcome):
    written = int(np.flatnonzero(case.expect != 0xCD)[0])
    outcome.memory[written] ^= 0xFF
    text = check(case, outcome)
    assert f"first shared byte {written:#x}" in text
    assert "element (" in text


def test_a_byte_too_many_is_found(case, outcome):
    outcome.memory[case.expect.size + 5] = 0
    assert f"{case.expect.size + 5:#x} written" in check(case, outcome)


def test_a_wrong_count_is_found(case, outcome):
    wrong = Outcome(bytes=outcome.bytes + 16, memory=outcome.memory)
    assert "complete_tx" in check(case, wrong)


def test_a_wrong_verdict_is_found(case, outcome):
    assert "got refused: COORD_ALIGN" in check(case, Outcome(refused=ErrorCode.COORD_ALIGN))
    refused = next(c for c in read_cases(TRANSFERS, ["load_mis"]) if c.refused)
    assert "silicon refused, got accepted" in check(refused, outcome)
    assert "got refused: SMEM_ALIGN" in check(refused, Outcome(refused=ErrorCode.SMEM_ALIGN))


def test_a_write_by_a_refused_request_is_found():
    refused = next(c for c in read_cases(TRANSFERS, ["load_mis"]) if c.refused)
    memory = refused.smem()
    right = Outcome(refused=ErrorCode.COORD_ALIGN, memory=memory)
    assert check(refused, right) is None
    memory[5] = 0
    assert "memory was written" in check(refused, right)


@pytest.mark.parametrize("memory", [None, np.zeros(16, np.uint8)])
def test_too_little_memory_is_found(case, memory):
    assert "bytes of memory, expected" in check(case, Outcome(bytes=case.bytes, memory=memory))


@pytest.mark.parametrize("kind", ["store_tile", "red_im2col", "bulk_store"])
def test_a_wrong_byte_of_global_memory_is_named(kind):
    (case,) = read_cases(TRANSFERS, [kind], limit=1)
    (right,) = outcomes([case])
    assert check(case, right) is None
    right.memory[70] ^= 1
    text = check(case, right)
    assert "first global byte 0x46, " in text
    assert ("element (" in text) == (kind != "bulk_store")


def test_a_wrong_byte_of_global_memory_is_named_with_its_element():
    case = next(c for c in read_cases(TRANSFERS, ["store_tile"]) if c.rank == 3)
    (right,) = outcomes([case])
    dims, (row, plane) = case.fields["global_dim"][:3], case.fields["global_strides"][:2]
    item = case.tensor_map().data_type.itemsize
    x, y, z = (int(n) - 1 for n in dims)
    right.memory[case.global_address + x * item + y * int(row) + z * int(plane)] ^= 1
    assert f"element ({x}, {y}, {z}):" in check(case, right)


def test_a_wrong_cta_is_named():
    (case,) = read_cases(TRANSFERS, ["multicast"], limit=1)
    (right,) = outcomes([case])
    assert check(case, right) is None
    right.memory.reshape(4, -1)[2, 5] ^= 1
    assert "CTA 2: 1 bytes differ" in check(case, right)


def test_a_wrong_byte_of_a_convolution_is_named_with_its_element():
    case = next(c for c in read_cases(TRANSFERS, ["load_im2col"]) if c.rank == 4)
    (right,) = outcomes([case])
    written = int(np.flatnonzero(case.expect != 0xCD)[0])
    right.memory[written] ^= 0xFF
    assert "element (" in check(case, right)


def test_mode_and_operation_that_make_no_request():
    (case,) = read_cases(TRANSFERS, ["bulk_load"], limit=1)
    case.fields["op"] = "encode"
    with pytest.raises(VectorError, match="there is no request encode with mode bulk"):
        case.request()


@pytest.mark.parametrize(
    ("kinds", "limit", "message"),
    [(["nonsense"], None, "no kind nonsense"), ([], 0, "no case selected")],
)
def test_bad_selection(kinds, limit, message):
    with pytest.raises(VectorError, match=message):
        read_cases(TRANSFERS, kinds, limit)


def test_bad_file(tmp_path):
    path = tmp_path / "x.npz"
    path.write_text("no")
    with pytest.raises(VectorError, match="not a file of vectors"):
        read_cases(path)
    np.savez(path, cases=np.zeros(1, [("kind", "U4")]))
    with pytest.raises(VectorError, match="cases without"):
        read_cases(path)


@pytest.mark.parametrize("damage", ["empty", "truncated", "lone array", "missing"])
def test_damaged_file(tmp_path, damage):
    path = tmp_path / "x.npz"
    if damage == "lone array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif damage != "missing":
        path.write_bytes(TRANSFERS.read_bytes()[: 3000 * (damage == "truncated")])
    with pytest.raises(VectorError, match="not a file of vectors"):
        read_cases(path)


def test_bytes_beyond_the_blob(tmp_path):
    path = tmp_path / "x.npz"
    with np.load(TRANSFERS) as file:
        np.savez(path, cases=file["cases"][:4], blob=file["blob"][:100])
    with pytest.raises(VectorError, match="expect of case 0 is not in the blob"):
        read_cases(path)


@pytest.mark.parametrize(
    ("file", "arguments", "status", "last"),
    [
        (TRANSFERS, ["--kinds", "load_mis,load_tile_big"], 0, "28 passed, 0 failed"),
        (MAPS, ["--limit", "3", "--target", "rtl"], 1, "0 passed, 3 failed"),
    ],
)
def test_command_line(capsys, file, arguments, status, last):
    """The golden model passes; the RTL fails with a message, because it has no encoder."""
    assert main([str(file), *arguments]) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


@pytest.mark.parametrize("arguments", [["--kinds", "nonsense"], ["--limit", "0"]])
def test_errors_of_the_command_line(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(TRANSFERS), *arguments])
    assert caught.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_the_rtl_encodes_no_maps():
    assert list(diagnoses(read_cases(MAPS, limit=2), "rtl")) == [
        f"encode[{n}]: tensor maps are encoded by the golden model only" for n in range(2)
    ]
