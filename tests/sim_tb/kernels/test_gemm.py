"""GEMM: ragged sizes, infinities and NaN, tiles shared in a cluster, wrong options."""

from io import BytesIO
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from sim_tb.kernels.gemm import Gemm, Grid
from sim_tb.sm.device import GUARD_BYTES, Device
from sim_tb.sm.launch import run, validate
from sim_tb.sm.record import Setting
from sim_tb.testbench.errors import CheckError
from tests.sim_tb.arithmetic.literal import sum_of
from tests.top.units import CLUSTER

SIZES = {"130x72x72": (3, 1), "1x1x8": (4, 1), "128x128x128": (5, 1), "65x131x136": (1, 3)}
"""Stages and issue interval of each size."""


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records of all runs on one SM, from one simulation, by size or by name of the matrices."""
    directory = tmp_path_factory.mktemp("matrices")
    work = {}
    for name, (stages, interval) in SIZES.items():
        m, n, k = map(int, name.split("x"))
        work[name] = Gemm(m=m, n=n, k=k, stages=stages), Setting(issue_interval=interval)
    special = np.ones((66, 136), np.float32), np.ones((5, 136), np.float32)
    a, b = special
    a[1, 0], a[2, 0], a[2, 100], a[65, 7] = np.inf, np.inf, -np.inf, np.nan
    a[3] *= -0.0
    a[4], b[1] = 3e38, -3e38
    whole = np.arange(40 * 16, dtype=np.float32).reshape(40, 16) % 7, np.eye(24, 16, dtype="f2")
    for name, matrices in {"special": special, "whole": whole}.items():
        paths = [directory / f"{name}_{letter}.npy" for letter in "ab"]
        for path, values in zip(paths, matrices, strict=True):
            np.save(path, values)
        work[name] = Gemm(a=str(paths[0]), b=str(paths[1])), Setting()
    return dict(zip(work, run(list(work.values())), strict=True))


@pytest.mark.simulators
@pytest.mark.parametrize("name", SIZES)
def test_equals_numpy(records, name):
    m, n, k = map(int, name.split("x"))
    record = records[name]
    assert not record.error
    assert record.check == f"C equals NumPy's, bit for bit: {m * n} elements"
    row_bytes, steps = -(-n // 4) * 16, -(-k // 64)
    tiles = -(-m // 128) * -(-n // 128)
    assert record.total("store_bytes") == m * row_bytes
    assert sum(sm.lines_written.size for sm in record.sms) == m * -(-row_bytes // 128)
    assert record.total("load_bytes") == tiles * steps * 32768
    assert record.total("fma") == tiles * steps * 128 * 128 * 64
    assert record.flops == 2 * m * n * k
    assert {span.track for span in record.sms[0].spans} == {
        "prologue", "producer", "consumer 0", "consumer 1"
    }  # fmt: skip


@pytest.mark.simulators
@pytest.mark.parametrize("name", ["special", "whole"])
def test_matrices_from_files(records, name):
    elements = {"special": 66 * 5, "whole": 40 * 24}[name]
    assert records[name].check == f"C equals NumPy's, bit for bit: {elements} elements"


@pytest.mark.simulators(CLUSTER)
def test_clusters_share_tiles():
    """The result is the same, and a line that several CTAs need is read once."""
    m, n, k = 200, 260, 72
    (record,) = run([(Gemm(m=m, n=n, k=k, cluster="2x2"), Setting())], CLUSTER)
    assert record.check == f"C equals NumPy's, bit for bit: {m * n} elements"
    tall, wide = 2 * -(-m // 256), 2 * -(-n // 256)
    # One CTA of a row reads a tile of A, one CTA of a column a tile of B.
    once = lines(m, k) * wide // 2 + lines(n, k) * tall // 2
    assert sum(sm.lines_read.size for sm in record.sms) == once
    assert record.total("load_bytes") == tall * wide * -(-k // 64) * 32768
    assert len(record.sms) == 4
    assert all(sm.tensor_cores for sm in record.sms)


def lines(rows, k, pitch_align=128):
    """Lines of 128 bytes of a bf16 matrix, tile by tile along k. Each row starts at a line."""
    pitch = -(-2 * k // pitch_align) * pitch_align
    count = 0
    for row in range(rows):
        for step in range(0, k, 64):
            begin = row * pitch + step * 2
            end = row * pitch + min(step + 64, k) * 2
            count += (end - 1) // 128 - begin // 128 + 1
    return count


def hosted(kernel):
    """The device of a kernel after its host code, without a simulation."""
    device = Device(SimpleNamespace(place=lambda *_: None, place_map=lambda _: 0))
    kernel.host(device)
    return device


def test_the_check_finds_a_wrong_element():
    kernel = Gemm(m=3, n=5, k=80)
    hosted(kernel)
    a, b = (operand.astype(np.float64) for operand in kernel.operands)
    for i in range(3):
        for j in range(5):
            kernel.c.array[i, j] = sum_of(a[i], b[j], 0)
    assert not kernel.check().wrong
    assert np.allclose(kernel.c.array, a @ b.T, rtol=1e-5, atol=1e-5)
    kernel.c.array[1, 0] = np.nextafter(kernel.c.array[1, 0], np.float32(np.inf))
    assert "1 of 15 elements differ; first C[1, 0]: expected" in str(kernel.check())


@pytest.mark.parametrize("where", [GUARD_BYTES - 1, GUARD_BYTES + 32, GUARD_BYTES + 3 * 128])
def test_writes_beside_the_result_are_found(where):
    """Writes before C, behind the last piece of a row, and after C."""
    kernel = Gemm(m=3, n=5, k=8)
    device = hosted(kernel)
    kernel.c.raw[GUARD_BYTES : GUARD_BYTES + 3 * 128].reshape(3, 128)[:, :32] = 0
    device.check_guards()
    kernel.c.raw[where] = 0
    with pytest.raises(CheckError, match="1 bytes were written around C"):
        device.check_guards()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 12}, "k = 12: a row has 24 bytes"),
        ({"m": 0}, "m = 0: must be at least 1"),
        ({"seed": -1}, "seed = -1: must be at least 0"),
        ({"stages": 0}, "stages = 0: must be at least 1"),
        ({"stages": 6}, r"shared memory: .* must be at most 233472; stages must be at most 5$"),
        ({"cluster": "2"}, "cluster = 2: must be ROWSxCOLUMNS"),
        ({"cluster": "3x1"}, "cluster = 3x1: must be of 1, 2, 4 or 8 rows"),
        ({"cluster": "8x4"}, "and of at most 16 CTAs"),
        ({"a": "no.npy"}, "a = no.npy: No such file"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        validate(Gemm(**options), Setting())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"memory": "l3"}, "memory = l3: 'l3': must be one of l2, dram"),
        ({"memory": "l2,latency=soon"}, "memory = .*: 'latency=soon': must have a number"),
        ({"issue_interval": 0}, "issue_interval = 0: must be at least 1"),
        ({"watchdog": 0}, "watchdog = 0: must be at least 1"),
    ],
)
def test_wrong_settings_are_named(setting, message):
    with pytest.raises(ValueError, match=message):
        validate(Gemm(m=1, n=1, k=8), Setting(**setting))


def test_shapes_must_fit(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((4, 16), np.float32))
    with pytest.raises(ValueError, match=r"a = .*axis 1 must be 24"):
        validate(Gemm(a=str(path), k=24), Setting())
    np.save(path, np.zeros((4, 12), np.float32))
    with pytest.raises(ValueError, match=r"a = .*: a row has 24 bytes.*K must be a multiple of 8"):
        validate(Gemm(a=str(path)), Setting())
    np.save(path, np.zeros((0, 16), np.float32))
    with pytest.raises(ValueError, match=r"a = .*shape \(0, 16\): axis 0 must be at least 1"):
        validate(Gemm(a=str(path)), Setting())
    np.save(path, np.zeros(16, np.int32))
    with pytest.raises(ValueError, match=r"a int32 array of shape .*must be a matrix of floats"):
        validate(Gemm(a=str(path)), Setting())
    values = np.arange(64, dtype=np.float32).reshape(4, 16).astype(ml_dtypes.bfloat16)
    np.save(path, values)  # NumPy loads bf16 as raw elements of 2 bytes
    assert np.array_equal(Gemm(a=str(path)).operands[0], values)


def npy(values):
    """The contents of an .npy file."""
    file = BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def npz(values):
    """The contents of an .npz file."""
    file = BytesIO()
    np.savez(file, a=values)
    return file.getvalue()


MATRIX = np.zeros((4, 16), np.float32)


@pytest.mark.parametrize(
    "contents",
    [b"", b"1 2 3", npz(MATRIX), npy(np.array([[None]])), npy(MATRIX)[:-1]],
    ids=["empty", "text", "npz", "objects", "cut off"],
)
def test_files_that_hold_no_matrix(contents, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=r"a = .*must be an \.npy file with one matrix of floats"):
        validate(Gemm(a=str(path)), Setting())


def test_sizes_stand_in_the_title(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, MATRIX)
    assert Gemm(a=str(path), n=24).options.items() >= {"m": 4, "n": 24, "k": 16}.items()


def test_grid():
    grid = Grid.parse("2x4")
    assert grid.ctas == 8
    assert grid.place(6) == (1, 2)
    assert grid.of_row(6) == [4, 5, 6, 7]
    assert grid.of_column(6) == [2, 6]
    assert grid.partners(6) == [2, 4, 5, 6, 7]
