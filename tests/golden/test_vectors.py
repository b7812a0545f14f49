"""Vector files: wrong outcomes are found, and the message names the element."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from golden import ErrorCode
from golden.archive import VectorError, check_fields, read_arrays
from golden.conformance import outcomes
from golden.vectors import TIMING_FIELDS, Outcome, Refusal, check, read_cases, read_timings
from sim_tb.conformance.command import main
from sim_tb.conformance.memory_side import MemorySide
from sim_tb.conformance.recordings import Transfers

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


def refused_by(code):
    return Outcome(refused=Refusal(code, 0, 0))


def test_a_wrong_verdict_is_found(case, outcome):
    assert "got refused: COORD_ALIGN" in check(
        case, Outcome(refused=Refusal(ErrorCode.COORD_ALIGN, 0, 0))
    )
    refused = next(c for c in read_cases(TRANSFERS, ["load_mis"]) if c.refused)
    assert "silicon refused, got accepted" in check(refused, outcome)
    assert "got refused: SMEM_ALIGN" in check(
        refused, Outcome(refused=Refusal(ErrorCode.SMEM_ALIGN, 0, 0))
    )


def test_a_write_by_a_refused_request_is_found():
    refused = next(c for c in read_cases(TRANSFERS, ["load_mis"]) if c.refused)
    memory = refused.smem()
    right = Outcome(refused=Refusal(ErrorCode.COORD_ALIGN, 0, 0), memory=memory)
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


def npz(**arrays):
    """Return the bytes of an archive of arrays, with pickles if NumPy needs them."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


HUGE = npy(np.zeros(16, np.uint8)).replace(b"(16,), }       ", b"(%d,), }" % (1 << 50))
DAMAGED = bytearray(npz(cases=np.arange(1000)))
DAMAGED[500] ^= 1
FILES = {
    "text": (b"hello\n", "the file is no archive: must be an .npz file with the array cases"),
    "empty": (b"", "the file is empty: must be an .npz file with the array cases"),
    "one array": (npy(np.zeros(3)), "the file is a single array (.npy): must be an .npz file"),
    "one object": (npy(np.array([None])), "the file is a single array (.npy)"),
    "pickle": (b"\x80\x04]\x94.", "the file is no archive"),
    "cut off": (TRANSFERS.read_bytes()[:3000], "the archive is damaged or cut off: must be"),
    "no array": (zipped(), "no cases: the file has no arrays, must be an .npz file"),
    "other arrays": (npz(a=np.zeros(1), b=np.zeros(1)), "no cases: the file has a, b, must be"),
    "objects": (npz(cases=np.array([None])), "the array cases holds Python objects: must"),
    "records of objects": (
        npz(cases=np.zeros(1, [("name", object)])),
        "the array cases holds Python obj",
    ),
    "flipped bit": (bytes(DAMAGED), "the array cases is damaged"),
    "no Python in the header": (
        zipped(cases=npy(np.zeros(2)).replace(b"{'descr'", b"((\x01scr'")),
        "the array cases is damaged",
    ),
    "no header": (zipped(cases=b"hello"), "the array cases is damaged"),
    "more than memory": (zipped(cases=HUGE), "the array cases is damaged"),
    "no records": (npz(cases=np.zeros(3)), "cases without the fields box_dim, "),
    "one record": (npz(cases=np.zeros((), "i4,i4")), "cases has 0 axes: must be a list of records"),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("reader", [read_cases, read_timings])
def test_a_file_of_something_else(tmp_path, kind, reader):
    """No message advises to load the file unsafely, as those of NumPy do."""
    path = tmp_path / "x.npz"
    data, message = FILES[kind]
    path.write_bytes(data)
    with pytest.raises(VectorError) as caught:
        reader(path)
    text = str(caught.value)
    kind_of_file = "a timing file" if reader is read_timings else "a file of vectors"
    assert text.startswith(f"{path}: not {kind_of_file}: {message}")
    assert "pickle" not in text
    assert "\n" not in text


def test_a_path_that_is_no_file(tmp_path):
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "x", "No such file or dir")):
        with pytest.raises(
            VectorError, match=rf"{path}: not a file of vectors: {reason}.*: must be an .npz file"
        ):
            read_cases(path)


def test_optional_arrays(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(3), b=np.arange(2))
    assert list(read_arrays(path, "a file", ["a"], ["b", "c"])) == ["a", "b"]
    with pytest.raises(VectorError, match="not a file: no c, d: the file has a, b, must be an "):
        read_arrays(path, "a file", ["a", "c", "d"])


@pytest.mark.parametrize(
    ("field", "kind", "message"),
    [
        ("rank", "f4", "the field rank of cases is float32: must be integer"),
        ("mode", "i4", "the field mode of cases is int32: must be text"),
        ("coords", "(4,)i4", "the field coords of cases is ('<i4', (4,)): must be integer 5"),
        ("silicon_cycles", "U8", "the field silicon_cycles of cases is <U8: must be number"),
    ],
)
def test_fields_of_another_kind(field, kind, message):
    rows = read_timings(TRANSFERS.with_name("timing_random.npz"))
    dtype = [(name, kind if name == field else rows.dtype[name]) for name in rows.dtype.names]
    with pytest.raises(VectorError) as caught:
        check_fields(Path("x.npz"), "a file", np.zeros(2, dtype), TIMING_FIELDS)
    assert str(caught.value) == f"x.npz: not a file: {message}"


def test_a_blob_that_is_not_bytes(tmp_path):
    path = tmp_path / "x.npz"
    with np.load(TRANSFERS) as file:
        np.savez(path, cases=file["cases"][:1], blob=np.zeros(3))
    with pytest.raises(VectorError, match="blob must be a list of bytes, is float64"):
        read_cases(path)


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        ("red_tile", "red_op", 8, "red_op of case 1 is 8: must be from 0 to 7"),
        ("red_tile", "red_op", -1, "red_op of case 1 is -1: must be from 0 to 7"),
        ("bulk_red", "dtype", 16, "dtype of case 1 is 16: must be from 0 to 15"),
        ("load_tile", "issuer", 1, "issuer of case 1 is 1: must be from 0 to 0"),
        ("multicast", "issuer", 4, "issuer of case 1 is 4: must be from 0 to 3"),
        ("store_tile", "smem_before", (0, 233473), "smem_before of case 1: must have at most 2334"),
    ],
)
def test_values_that_no_request_has(tmp_path, kind, field, value, message):
    path = tmp_path / "x.npz"
    with np.load(TRANSFERS) as file:
        rows, blob = file["cases"], file["blob"]
    rows = rows[rows["kind"] == kind][:2]
    rows[field][1] = value
    np.savez(path, cases=rows, blob=blob)
    with pytest.raises(VectorError, match=f"x.npz: {message}"):
        read_cases(path)


def test_a_timing_file_without_cases(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, cases=read_timings(TRANSFERS.with_name("timing_random.npz"))[:0])
    with pytest.raises(VectorError, match="cases is empty: must have at least one case"):
        read_timings(path)


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
    verdicts = Transfers(read_cases(MAPS, limit=2)).verdicts(range(2), "rtl", MemorySide())
    assert [verdict.difference for verdict in verdicts] == [
        f"encode[{n}]: is run by the golden model only" for n in range(2)
    ]
