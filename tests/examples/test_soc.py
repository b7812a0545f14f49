"""The example SoC: a program in C multiplies matrices with the unit, on RISC-V and natively."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.soc import system
from examples.soc.gemm import multiply
from hw.flow.cache import ROOT

pytestmark = pytest.mark.simulators.with_args(system.simulator)

needs_compiler = pytest.mark.skipif(
    not system.has_compiler(), reason=f"there is no {system.COMPILER} (Debian: {system.PACKAGE})"
)


@needs_compiler
@pytest.mark.parametrize("interrupts", [False, True])
def test_a_product_on_risc_v(interrupts):
    product = multiply(9, 7, 20, interrupts=interrupts)  # two tiles, of two steps each
    assert product.is_right, product
    assert (product.interrupts > 0) is interrupts
    assert 0 < product.wait_clocks < product.clocks < product.run.clocks


@pytest.mark.parametrize("interrupts", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (8, 8, 16), (9, 17, 33), (40, 24, 64)],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_products_natively(shape, interrupts):
    product = multiply(*shape, interrupts=interrupts, native=True, seed=sum(shape))
    assert product.is_right, product


def test_an_extent_out_of_range_is_refused():
    with pytest.raises(ValueError, match="k = 1025: must be from 1 to 1024"):
        multiply(1, 1, 1025, native=True)


def test_a_program_that_does_not_end_is_reported(tmp_path):
    source = tmp_path / "endless.c"
    source.write_text(
        '#include "platform.h"\nvoid soc_handler(void) {}\nvoid tma_pause(void) {}\n'
        "int main(void) { for (;;) (void)tma_read(SOC_UNIT, 0); }\n"
    )
    with pytest.raises(system.SocError, match="the program does not end, after 1001 clocks"):
        system.run(source, {}, (0, 4), native=True, limit=1000)


def test_a_ring_that_cannot_be_read_is_set_up_anew():
    source = Path(__file__).with_name("recover.c")
    assert system.run(source, {}, (0, 4), native=True, limit=1_000_000).status == 0


def test_the_command():
    command = [sys.executable, "-m", "examples.soc", "--m", "5", "--n", "3", "--k", "8", "--native"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert re.search(r"^clocks +\d", result.stdout, re.MULTILINE)
    assert result.stdout.endswith("C equals NumPy's: 15 elements\n")


def test_addresses_are_those_of_the_programs():
    header = (system.HERE / "platform.h").read_text()
    for name in ("DATA", "PROGRAM", "PARAMETERS", "RESULTS"):
        value = int(re.search(rf"#define SOC_{name} (0x\w+)u", header)[1], 16)
        assert value == getattr(system, name), name
