"""docs/counters.md: its tables are those of the sources, and its numbers those of the RTL."""

from hw.flow import counter_page
from hw.flow.counter_page import PAGE, described, refreshed
from hw.flow.tables import read_table
from hw.layouts.monitor import Counter, EventKind
from hw.monitor.event_counters import PIPELINE
from hw.monitor.event_recorder import EVENTS_WAITING
from hw.params import PRESETS


def test_the_page_is_up_to_date():
    text = PAGE.read_text()
    assert text == refreshed(text), "run: python -m hw.counter_page"


def test_all_counters_and_kinds_are_described():
    assert list(described(Counter)) == [counter.name for counter in Counter]
    assert list(described(EventKind)) == [kind.name for kind in EventKind]
    head, rows = read_table(PAGE.read_text(), "counters")
    assert head == ["number", "counter", "unit", "meaning"]
    assert [int(row[0]) for row in rows] == [counter.value for counter in Counter]
    assert all(row[2] and row[3] for row in rows)


def test_numbers_of_the_text():
    text = PAGE.read_text()
    assert f"rises {64 + PIPELINE} clocks after `freeze`" in text
    assert f"and {EVENTS_WAITING} behind them" in text
    assert f"for {len(Counter)} remainders" in text
    assert not any(preset.counters for preset in PRESETS.values())


def test_names_in_the_text_are_those_of_counters():
    words = {word.strip(",.|`:") for word in PAGE.read_text().split()}
    stalls = {word for word in words if word.endswith("_STALLS")}
    assert stalls <= set(Counter.__members__)


def test_the_command_writes_a_file(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("<!-- counters -->\n<!-- /counters -->\n<!-- kinds --><!-- /kinds -->\n"
                    "<!-- record --><!-- /record -->\n")  # fmt: skip
    assert counter_page.main([str(path)]) == 0
    assert "`LINES_READ`" in path.read_text()
