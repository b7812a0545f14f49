"""The main job: right on ragged sizes, wrong results are found, wrong input is named."""

import json
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from sim_tb import gemm
from sim_tb.environment import BenchError
from sim_tb.gemm_kernel import ACTIVITY, C_ADDRESS, Epilogue, Grid, Output, passes
from sim_tb.sm import Span
from tests.sim_tb.units import CLUSTER, OCTET


@pytest.fixture
def output(tmp_path, monkeypatch):
    monkeypatch.setattr(gemm, "OUTPUT", tmp_path / "sim")
    return tmp_path / "sim"


@pytest.mark.parametrize(
    ("m", "n", "k", "stages", "epilogue"),
    [
        (130, 72, 72, 3, Epilogue.STORE),
        (130, 72, 72, 4, Epilogue.REDUCE),
        (1, 1, 8, 4, Epilogue.STORE),
        (1, 1, 8, 4, Epilogue.REDUCE),
        (128, 128, 128, 5, Epilogue.STORE),
        (65, 131, 136, 3, Epilogue.REDUCE),
    ],
)
def test_equals_numpy(output, m, n, k, stages, epilogue, capsys):
    arguments = ["--M", str(m), "--N", str(n), "--K", str(k), "--STAGES", str(stages)]
    assert gemm.main([*arguments, "--EPILOGUE", epilogue]) == 0
    assert f"bit for bit: {m * n} elements" in capsys.readouterr().out
    a, b = (np.load(output / f"{x}.npy").view(ml_dtypes.bfloat16) for x in "ab")
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.allclose(np.load(output / "c.npy"), exact, rtol=1e-3, atol=1e-3)
    assert (output / "timeline.png").stat().st_size > 10_000
    events = json.loads((output / "timeline.json").read_text())["traceEvents"]
    assert {"producer", "stage 0", "consumer 1", "staging 0", "tensor cores"} <= {
        event["args"]["name"] for event in events if event["ph"] == "M"
    }
    assert {"wait read", "write tile", "wait group", epilogue} <= {
        event["name"] for event in events if event["ph"] == "X"
    }
    summary = json.loads((output / "summary.json").read_text())
    row_bytes, tiles_of_k = -(-n // 4) * 16, -(-k // 64)
    times = min(2, tiles_of_k) if epilogue is Epilogue.REDUCE else 1
    assert summary["store_bytes"] == times * m * row_bytes
    assert summary["lines_written"] == times * m * -(-row_bytes // 128)
    assert summary["load_bytes"] == -(-m // 128) * -(-n // 128) * tiles_of_k * 32768


@pytest.mark.parametrize(
    ("cluster", "unit", "m", "n", "k", "epilogue"),
    [
        ("2x1", CLUSTER, 300, 136, 136, Epilogue.STORE),
        ("2x2", CLUSTER, 200, 260, 72, Epilogue.REDUCE),
        pytest.param(*("4x2", OCTET, 450, 230, 72, Epilogue.STORE), marks=pytest.mark.regress),
    ],
)
def test_clusters_share_tiles(output, monkeypatch, capsys, cluster, unit, m, n, k, epilogue):
    """The same result; a line that several CTAs need is read once for all of them."""
    monkeypatch.setattr(gemm, "unit_of", lambda _: unit)
    grid = Grid.parse(cluster)
    arguments = ["--M", str(m), "--N", str(n), "--K", str(k), "--CLUSTER", cluster]
    assert gemm.main([*arguments, "--EPILOGUE", epilogue]) == 0
    assert f"bit for bit: {m * n} elements" in capsys.readouterr().out
    assert (output / "timeline.png").stat().st_size > 10_000
    events = json.loads((output / "timeline.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {f"SM {number}" for number in range(grid.ctas)}
    summary = json.loads((output / "summary.json").read_text())
    tiles = -(-m // (128 * grid.rows)), -(-n // (128 * grid.columns))
    tall, wide = tiles[0] * grid.rows, tiles[1] * grid.columns
    # Each tile of A for one CTA of a row, each of B for one of a column.
    lines_a, lines_b = (
        times * lines(rows, k, unit.line_bytes) for rows, times in ((m, wide), (n, tall))
    )
    once = lines_a // grid.columns + lines_b // grid.rows
    assert summary["lines_read"] == once
    assert summary["lines_without_multicast"] == lines_a + lines_b
    assert summary["load_bytes"] == tall * wide * -(-k // 64) * 32768


def lines(rows: int, k: int, line_bytes: int) -> int:
    """Lines of a matrix of bf16, tile by tile along k."""
    count = 0
    for row in range(rows):
        for step in range(0, k, 64):
            begin = (row * k + step) * 2
            end = (row * k + min(step + 64, k)) * 2
            count += (end - 1) // line_bytes - begin // line_bytes + 1
    return count


@pytest.mark.parametrize("epilogue", list(Epilogue))
def test_numbers_that_are_none(output, tmp_path, epilogue):
    a, b = np.ones((66, 136), np.float32), np.ones((5, 136), np.float32)
    a[1, 0], a[2, 0], a[2, 100], a[65, 7] = np.inf, np.inf, -np.inf, np.nan
    a[3] *= -0.0
    a[4], b[1] = 3e38, -3e38
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    files = ["--A", str(tmp_path / "a.npy"), "--B", str(tmp_path / "b.npy")]
    assert gemm.main([*files, "--EPILOGUE", epilogue]) == 0
    c = np.load(output / "c.npy")
    assert np.isnan(c[[2, 65]]).all()
    assert np.isinf(c[[1, 4]]).all()
    if epilogue is Epilogue.REDUCE:
        assert set(c[65].view(np.uint32)) == {0x7FFF_FFFF}


@pytest.mark.parametrize(
    ("k", "halves"),
    [(8, [[0]]), (64, [[0]]), (72, [[0], [64]]), (192, [[0, 64], [128]])],
)
def test_split_k(k, halves):
    assert [list(steps) for steps in passes(k, Epilogue.REDUCE)] == halves
    assert [list(steps) for steps in passes(k, Epilogue.STORE)] == [
        [step for half in halves for step in half]
    ]


@pytest.mark.parametrize(
    ("row", "word", "where"),
    [(0, 0, "C[-1, 0]"), (1, 8, "C[0, 8]"), (3, 31, "C[2, 31]"), (4, 3, "C[3, 3]")],
)
def test_writes_beside_the_result_are_found(row, word, where):
    placed = {}
    memory = SimpleNamespace(place=placed.__setitem__)
    env = SimpleNamespace(gmem=memory, descriptor=lambda _: 0)
    result = Output(env, 3, 5, Epilogue.STORE)
    words = placed[C_ADDRESS]
    words[1:4, :8] = 0  # C and the rest of each row's last 16 bytes
    assert np.array_equal(result.matrix(), np.zeros((3, 5)))
    words[row, word] = 0
    with pytest.raises(BenchError, match="1 words outside of C") as caught:
        result.matrix()
    assert where in str(caught.value)


def test_matrices_from_files(output, tmp_path):
    a = np.arange(40 * 16, dtype=np.float32).reshape(40, 16) % 7
    b = np.eye(24, 16, dtype=np.float16)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    assert gemm.main(["--A", str(tmp_path / "a.npy"), "--B", str(tmp_path / "b.npy")]) == 0
    assert np.array_equal(np.load(output / "c.npy"), a @ b.T.astype(np.float32))


def test_a_wrong_element_is_named(tmp_path, capsys):
    a = np.ones((2, 8), ml_dtypes.bfloat16)
    c = gemm.reference(a, a, Epilogue.STORE)
    c[1, 0] += 1
    np.save(tmp_path / "c.npy", c)
    np.savez(tmp_path / "activity.npz", **dict.fromkeys(ACTIVITY, np.zeros(1)))
    span = {"track": "producer", "name": "issue 0", "start": 0, "end": 10}
    counts = ("lines_read", "lines_written", "load_bytes", "store_bytes")
    summary = {"cycles": 10, "seconds": 1, "starved": [0], **dict.fromkeys(counts, 1)}
    (tmp_path / "summary.json").write_text(
        json.dumps({**summary, "spans": [[span]], "tensor_cores": [[[1, 2]]]})
    )
    assert Span(**span).end == 10
    assert gemm.report(tmp_path, a, a, 3, Epilogue.STORE, Grid()) == 1
    assert "first C[1, 0]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--K", "12"], "K = 12: a row has 24 bytes"),
        (["--M", "0"], "M = 0: must be at least 1"),
        (["--STAGES", "2"], "STAGES = 2: must be from 3 to 5"),
        (["--STAGES", "6"], "STAGES = 6: must be from 3 to 5"),
        (["--CLUSTER", "2"], "CLUSTER = 2: must be ROWSxCOLUMNS"),
        (["--CLUSTER", "3x1"], "CLUSTER = 3x1: must be of 1, 2, 4 or 8 rows"),
        (["--CLUSTER", "8x4"], "and of at most 16 CTAs"),
        (["--EPILOGUE", "add"], "--EPILOGUE: invalid choice: 'add'"),
        (["--A", "no.npy"], "A = no.npy"),
    ],
)
def test_wrong_input_is_named(output, arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        gemm.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_shapes_must_fit(tmp_path, output, capsys):
    np.save(tmp_path / "a.npy", np.zeros((4, 16), np.float32))
    with pytest.raises(SystemExit):
        gemm.main(["--A", str(tmp_path / "a.npy"), "--K", "24"])
    assert "axis 1 must be 24" in capsys.readouterr().err
    np.save(tmp_path / "a.npy", np.zeros(16, np.int32))
    with pytest.raises(SystemExit):
        gemm.main(["--A", str(tmp_path / "a.npy")])
    assert "must be a matrix of floats" in capsys.readouterr().err
    assert not output.exists()
