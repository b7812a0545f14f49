"""The main job: right on ragged sizes, wrong results are found, wrong input is named."""

import json

import ml_dtypes
import numpy as np
import pytest

from sim_tb import gemm
from sim_tb.sm import Span


@pytest.fixture
def output(tmp_path, monkeypatch):
    monkeypatch.setattr(gemm, "OUTPUT", tmp_path / "sim")
    return tmp_path / "sim"


@pytest.mark.parametrize(
    ("m", "n", "k", "stages"), [(130, 72, 72, 3), (1, 1, 8, 4), (128, 128, 128, 7)]
)
def test_equals_numpy(output, m, n, k, stages, capsys):
    arguments = ["--M", str(m), "--N", str(n), "--K", str(k), "--STAGES", str(stages)]
    assert gemm.main(arguments) == 0
    assert "bit for bit" in capsys.readouterr().out
    a, b = (np.load(output / f"{x}.npy").view(ml_dtypes.bfloat16) for x in "ab")
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.allclose(np.load(output / "c.npy"), exact, rtol=1e-3, atol=1e-3)
    assert (output / "timeline.png").stat().st_size > 10_000
    events = json.loads((output / "timeline.json").read_text())["traceEvents"]
    assert {"producer", "stage 0", "consumer 1", "tensor cores"} <= {
        event["args"]["name"] for event in events if event["ph"] == "M"
    }


def test_matrices_from_files(output, tmp_path):
    a = np.arange(40 * 16, dtype=np.float32).reshape(40, 16) % 7
    b = np.eye(24, 16, dtype=np.float16)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    assert gemm.main(["--A", str(tmp_path / "a.npy"), "--B", str(tmp_path / "b.npy")]) == 0
    assert np.array_equal(np.load(output / "c.npy"), a @ b.T.astype(np.float32))


def test_a_wrong_element_is_named(tmp_path, capsys):
    a = np.ones((2, 8), ml_dtypes.bfloat16)
    c = gemm.reference(a, a)
    c[1, 0] += 1
    np.save(tmp_path / "c.npy", c)
    np.savez(tmp_path / "activity.npz", lines=np.zeros(1), beats=np.zeros(1))
    span = {"track": "producer", "name": "issue 0", "start": 0, "end": 10}
    summary = {"cycles": 10, "seconds": 1, "lines": 1, "bytes": 1, "starved": 0}
    (tmp_path / "summary.json").write_text(
        json.dumps({**summary, "spans": [span], "tensor_cores": [[1, 2]]})
    )
    assert Span(**span).end == 10
    assert gemm.report(tmp_path, a, a, 3) == 1
    assert "first C[1, 0]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--K", "12"], "K = 12: a row has 24 bytes"),
        (["--M", "0"], "M = 0: must be at least 1"),
        (["--STAGES", "2"], "STAGES = 2: must be from 3 to 7"),
        (["--STAGES", "8"], "STAGES = 8: must be from 3 to 7"),
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
