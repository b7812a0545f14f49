"""The timing diagrams of docs/integration.md are those of the RTL."""

from hw.flow.cache import ROOT
from tests.docs.timing import FOLDER, diagrams, requests
from tests.docs.waves import GAP, line_of, without_idle


def test_the_diagrams_are_those_of_the_rtl():
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    drawn = diagrams()
    stale = [name for name in written | drawn if written.get(name) != drawn.get(name)]
    assert not stale, "`python -m tests.docs.timing` draws them again: look at them"


def test_each_diagram_is_on_a_page():
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert all(f"](timing/{path.name})" in pages for path in FOLDER.iterdir())


def test_what_the_page_says_of_the_diagrams():
    values = requests().values
    reads = [tag for tag in values["gnic_request.tag"] if tag]
    answers = [tag for tag in values["gnic_response.tag"] if tag]
    assert sorted({*reads}) == sorted(answers)
    assert answers != sorted(answers)
    assert [*dict.fromkeys(filter(None, values["barrier_result.tag"]))] == ["0", "1", "2"]
    accepted, result = (values[f"barrier_{name}.tag"].index("0") for name in ("command", "result"))
    assert result - accepted == 3  # two clocks after the edge that ends the clock of the command


def test_idle_clocks_are_left_out():
    clocks = [(0,), (1,), (1,), (0,), (0,), (0,), (1,)]
    columns = without_idle(clocks)
    assert columns == [(0,), (1,), (1,), (0,), GAP, (1,)]
    values = [column if column is GAP else column[0] for column in columns]
    assert line_of("a", values) == {"name": "a", "wave": "01.0|1", "data": []}
    assert line_of("b", ["x", "x", None, GAP, "y"])["wave"] == "=.x|="
