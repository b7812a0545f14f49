"""Times of instructions are those of the silicon or better, and docs/kernels.md has them."""

import pytest

from hw.flow.tables import read_table
from hw.params import PRESETS
from sim_tb.performance import times
from sim_tb.simulator import runner
from sim_tb.sm.costs import Costs
from tests.top.units import CLUSTER

KERNELS = runner.ROOT / "docs" / "kernels.md"
STALE = "run: python -m sim_tb.bench_docs docs --only times"
DSMEM_ROWS = [*times.ONE_BY_ONE, times.STREAM, times.STREAMS]


def text(row):
    return row.operation


@pytest.fixture(scope="module")
def local():
    return times.local_times()


@pytest.fixture(scope="module")
def small_cluster():
    """Times on a cluster whose units have too few tags for loads at full rate."""
    return times.cluster_times(CLUSTER)


@pytest.fixture(scope="module")
def cluster():
    return times.cluster_times()


@pytest.fixture(scope="module")
def documented():
    _, rows = read_table(KERNELS.read_text(), "times")
    return {operation: (here, silicon) for operation, here, silicon in rows}


def is_bounded(row, clocks):
    least, most = row.bounds
    return least <= clocks / row.silicon <= most


@pytest.mark.simulators(PRESETS["default"], CLUSTER)
@pytest.mark.parametrize("row", times.LOCAL_ROWS, ids=text)
def test_instructions_take_as_long_as_on_silicon(row, local):
    assert is_bounded(row, local[row])


@pytest.mark.simulators(PRESETS["default"], CLUSTER)
@pytest.mark.parametrize("row", DSMEM_ROWS, ids=text)
def test_dsmem_is_not_slower_than_on_silicon(row, small_cluster):
    assert is_bounded(row, small_cluster[row])


@pytest.mark.simulators(PRESETS["default"], CLUSTER)
def test_documented_times_of_one_sm(local, documented):
    for row, clocks in local.items():
        assert documented[row.operation][0] == row.cell(clocks), STALE


@pytest.mark.regress
@pytest.mark.simulators(PRESETS["cluster"])
def test_documented_times_of_a_cluster(cluster, documented):
    for row, clocks in cluster.items():
        assert is_bounded(row, clocks), row.operation
        assert documented[row.operation][0] == row.cell(clocks), STALE


def test_documented_times_of_the_silicon(documented):
    rows = *times.LOCAL_ROWS, *times.CLUSTER_ROWS
    assert list(documented) == [row.operation for row in rows], STALE
    for row in rows:
        assert documented[row.operation][1] == row.cell(row.silicon), STALE


@pytest.mark.parametrize(
    ("name", "figure", "value"),
    [
        ("local,arrive, state returned", "median", 53),
        ("local,complete_tx to test_wait true, same thread", "max", 168),
        ("round trip,bulk copy 16384 test_wait", "median", 2055),
        ("bulk load, test_wait,16384", "min", 465),
        ("stream,copy one way 16384", "bytes_per_clk", 21.33),
        ("multicast,tile issuers=1 mask=f 16KiB", "cycles_per_box_and_issuer", 146.75),
        ("descriptor,replace, cp_fenceproxy, acquire, load", "median", 1656),
        ("tensor load, map in DRAM, data in L2,1", "p90", 1205),
    ],
)
def test_recordings_have_their_names(name, figure, value):
    assert times.recorded()[name][figure] == value


@pytest.mark.parametrize(
    ("field", "clocks"),
    [
        ("global_address", 0),
        ("global_dim", 0),
        ("global_stride", 35),
        ("box_dim", 12),
        ("rank", 12),
    ],
)
def test_an_edit_of_a_part_of_a_word_takes_longer(field, clocks):
    assert Costs().replace(field).clocks == clocks


def test_documents_have_the_costs():
    """The text around the tables has the delays of an arrival."""
    costs, overlap = Costs(), KERNELS.with_name("overlap.md")
    for page in (KERNELS, overlap):
        assert f" {costs.arrival} clocks" in page.read_text()
    assert f"({costs.arrival} + latency + " in overlap.read_text()
    assert f"by {costs.release} clocks" in KERNELS.read_text()
