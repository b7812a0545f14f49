"""AXI ports of all widths, before the RAM of cocotbext-axi."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from hw.axi.port import AxiPort
from hw.params import TmaParams
from tests.hw.axi.test_read_port import params_of
from tests.hw.cocotb_bench import Bench
from tests.quick import quick


def run_copies(params: TmaParams, folder: Path, seed: int, pause: float, fails: float) -> None:
    env = {
        "AXI_PARAMS": json.dumps(asdict(params)),
        "AXI_PAUSE": str(pause),
        "AXI_FAILS": str(fails),
    }
    Bench(AxiPort, "axi_port", params).run("tests.hw.axi.tb_axi_ram", "copies", folder, seed, env)


@pytest.mark.parametrize(("pause", "fails"), quick([(0.5, 0.2), (0.0, 0.0)], 1))
@pytest.mark.parametrize(
    "bits",
    [64, *(pytest.param(bits, marks=pytest.mark.regress) for bits in (128, 512, 1024))],
)
def test_copies(bits: int, pause: float, fails: float, tmp_path: Path) -> None:
    run_copies(params_of(64, bits), tmp_path, 1, pause, fails)
