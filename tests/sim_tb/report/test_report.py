"""Report of made-up runs: the page has their numbers, loads nothing, and can be drawn."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import plotly.graph_objects as go
import pytest

from hw.layouts.monitor import Counter, EventKind
from sim_tb.report import report
from sim_tb.report.timeline import coverage, kind_of, rows_of
from sim_tb.sm.record import Record, RequestRecord, Setting, SmRecord
from sim_tb.sm.smem import Ring
from sim_tb.sm.spans import Span
from sim_tb.trace.records import Event

BROWSERS = "chromium", "chromium-browser", "chromium-headless-shell", "google-chrome"
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
NODE = shutil.which("node")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=20000",
]


def sm_of(cycles, seed):
    """The record of an SM whose producer and consumer take turns."""
    rng = np.random.default_rng([3, seed])
    spans = []
    for start in range(0, cycles - 40, 40):
        spans.append(Span("producer", "issue", start, start + 8))
        spans.append(Span("producer", "wait empty[0]", start + 8, start + 40))
        spans.append(Span("consumer", "wait full[0]", start, start + 20))
        spans.append(Span("consumer", "mma", start + 20, start + 40))
    stamps = [np.sort(rng.choice(cycles, 30, replace=False)).astype(np.uint64) for _ in range(4)]
    completions = [(start + 20, "full[0]") for start in range(0, cycles - 40, 40)]
    completions += [(start + 40, "empty[0]") for start in range(0, cycles - 40, 40)]
    return SmRecord(
        spans=spans,
        tensor_cores=[(start + 20, start + 40) for start in range(0, cycles - 40, 40)],
        scheduler=[(start, start + 8) for start in range(0, cycles - 40, 40)],
        smem_port=[],
        mufu=[],
        phase_completions=sorted(completions),
        waits=[("full[0]", 0), ("full[1]", 1), ("full[0]", 5), ("empty[0]", 7), ("empty[0]", 8)],
        lines_read=stamps[0],
        beats_written=stamps[1],
        beats_read=stamps[2],
        lines_written=stamps[3],
        load_bytes=4096,
        store_bytes=512,
        fma=1000,
        bank_conflicts=seed,
    )


def record_of(stages=1, memory="l2", latency=234.5, cycles=400, sms=1, **changes):
    """The record of a run."""
    values = {
        "kernel": "made_up",
        "summary": "Nothing, with </script> & <b>.",
        "options": {"seed": 1, "stages": stages, "a": "", "m": None},
        "setting": Setting(memory=memory),
        "latency": latency,
        "cycles": cycles,
        "seconds": 0.5,
        "check": "C equals NumPy's, bit for bit: 6 elements",
        "wrong": False,
        "error": "",
        "dirty": False,
        "flops": 100_000,
        "smem_bytes": 1040,
        "sms": [sm_of(cycles, number) for number in range(sms)],
        "requests": [
            RequestRecord("load", 0, "producer", 2, 20, 4096),
            RequestRecord("load", 0, "producer", 10, 60, 4096),
            RequestRecord("store", 0, "consumer", 100, None, 0),
        ],
        "rings": [Ring("", (0,), (8,))],
    }
    return Record(**{**values, **changes})


def contents(text):
    """The JSON data of a page."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(data)


def chart(details, title):
    (chart,) = [chart for chart in details["charts"] if chart["title"] == title]
    return chart


def test_the_page_has_the_numbers_of_the_record():
    record = record_of()
    (details,) = contents(report.page([record]))["records"]
    assert details["title"] == record.title
    assert details["verdict"] == record.check
    assert details["figures"] == report.figures_of(record)
    (view,) = details["views"]
    spans = [
        Span(view["rows"][row], view["names"][name], start, end)
        for row, name, start, end in zip(
            *(view[column] for column in ("row", "span", "start", "end")), strict=True
        )
    ]
    assert spans == rows_of(record)
    assert set(record.sms[0].spans) <= set(spans)
    utilization = {trace["name"]: trace for trace in chart(details, "Utilization")["data"]}
    step = utilization["lines read"]["x"][1]
    for name in ("lines_read", "lines_written"):
        shares = utilization[name.replace("_", " ")]["y"]
        assert sum(shares) * step == pytest.approx(getattr(record.sms[0], name).size)
    assert sum(utilization["tensor cores"]["y"]) * step == record.busy("tensor_cores") * 400
    waits = {
        trace["name"].partition(":")[0]: dict(zip(trace["x"], trace["y"], strict=True))
        for trace in chart(details, "Waits at barriers")["data"]
    }
    assert waits["full"] == {"0": 1, "1": 1, "2–3": 0, "4–7": 1, "8–15": 0}  # noqa: RUF001
    assert waits["empty"] == {"0": 0, "1": 0, "2–3": 0, "4–7": 1, "8–15": 1}  # noqa: RUF001


def test_stages_and_requests():
    record = record_of()
    rows = rows_of(record)
    assert [span[1:] for span in rows if span.track == "stage 0"][:4] == [
        ("filling", 2, 20), ("full", 20, 40), ("filling", 40, 60), ("full", 60, 80),
    ]  # fmt: skip
    assert [span[1:] for span in rows if span.track == "loads in flight"] == [
        ("load (1)", 2, 10), ("load (2)", 10, 20), ("load (1)", 20, 60),
    ]  # fmt: skip
    assert [span[1:] for span in rows if span.track == "stores pending"] == [
        ("store (1)", 100, 400)
    ]
    kinds = {"ld.shared": "shared memory", "bar.sync 1": "wait", "load (2)": "load", "odd": "other"}
    assert {name: kind_of(name) for name in kinds} == kinds


def test_coverage():
    """Overlapping intervals add up; outside of the edges nothing counts."""
    edges = np.arange(0, 50, 10)
    assert coverage([(0, 20), (5, 10), (38, 60)], edges).tolist() == [1.5, 1.0, 0.0, 0.2]
    assert coverage([], edges).tolist() == [0, 0, 0, 0]


def test_a_sweep():
    records = [
        record_of(stages, memory, latency, cycles=400 * stages)
        for stages in (1, 2)
        for memory, latency in (("l2", 300), ("latency=600", 600))
    ]
    records.append(record_of(3, "l2", 300, error="it hangs\nhere", check=""))
    page = contents(report.page(records))
    assert [chart["title"] for chart in page["sweep"]] == ["Against stages", "Against memory"]
    lines = {
        (trace["name"], trace["yaxis"]): (trace["x"], trace["y"])
        for trace in page["sweep"][0]["data"]
    }
    assert lines["memory l2", "y2"] == ([1, 2], [400, 800])  # without the run that failed
    assert lines["memory l2", "y"] == ([1, 2], [record.starvation for record in records[:3:2]])
    assert lines["memory latency=600", "y3"] == ([1, 2], [250, 125])
    against_memory = page["sweep"][1]["data"][0]
    assert against_memory["name"] == "stages 1"
    assert against_memory["x"] == [300, 600]
    table = report.table_of(records)
    assert [row["stages"] for row in table] == ["1", "1", "2", "2", "3"]
    assert [row["result"] for row in table] == ["right"] * 4 + ["failed"]
    assert [details["failed"] for details in page["records"]] == [False] * 4 + [True]


@pytest.mark.parametrize("changes", [{"error": "it hangs"}, {"wrong": True}])
def test_a_failure_has_no_figures_that_were_not_measured(changes):
    records = [record_of(1), record_of(2, **changes)]
    figures = report.figures_of(records[1])
    assert "flops per clock" not in figures
    if records[1].error:
        assert list(figures) == [
            "cycles until the failure", "loads", "stores", "lines requested", "lines written",
        ]  # fmt: skip
        assert figures["loads"] == "2 issued, 2 completed"
        assert figures["stores"] == "1 issued, 0 completed"
    right, wrong = report.table_of(records)
    assert right["flops per clock"] == "250"
    assert not any(value for name, value in wrong.items() if name not in ("stages", "result"))


def test_without_products():
    """A sweep of a kernel that only moves data shows bytes per clock."""
    records = [record_of(stages, flops=0, sms=2) for stages in (1, 2)]
    assert [row["bank conflicts"] for row in report.table_of(records)] == ["1", "1"]
    (against,) = contents(report.page(records))["sweep"]
    assert [trace["yaxis"] for trace in against["data"]] == ["y", "y2"]
    assert against["data"][1]["y"] == [2 * (4096 + 512) / 400] * 2


def every_figure(text):
    page = contents(text)
    yield from page["sweep"]
    for details in page["records"]:
        yield from details["charts"]


def test_plotly_knows_all_attributes():
    text = report.page([record_of(1, sms=2), record_of(2, sms=2)])
    figures = list(every_figure(text))
    assert len(figures) == 1 + 2 * 4
    for figure in figures:
        go.Figure({"data": figure["data"], "layout": figure["layout"]})


class Parsed(HTMLParser):
    """Checks that the elements of a page are closed in order, and collects their attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        assert len(dict(attrs)) == len(attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag):
        """The attributes of each element of this name."""
        return [attributes for each, attributes, _ in self.elements if each == tag]


def own_text(text):
    """A page without plotly.js."""
    return text.replace(report.get_plotlyjs(), "")


def test_the_page_is_well_formed():
    """Elements are closed in order, ids are unique, and each run of a sweep has a button."""
    records = [record_of(1), record_of(2, error="no < such & map")]
    page = Parsed(report.page(records))
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(page.of("tr")) == 1 + len(records)
    buttons = [(attrs, inside) for tag, attrs, inside in page.elements if tag == "button"]
    labels = [attributes["aria-label"] for attributes, _ in buttons]
    assert labels[0].startswith("stages 1, cycles 400, ")
    assert labels[1] == "stages 2, result failed"
    for attributes, inside in buttons:
        assert inside[-3:] == ("tbody", "tr", "td")
        assert attributes["type"] == "button"
        assert attributes["aria-controls"] in ids


def test_the_title_has_the_sizes():
    """The title of the page has all options of the kernel that do not differ between its runs."""
    options = [{"m": 328, "a": "", "stages": stages} for stages in (1, 2)]
    records = [record_of(options=each) for each in options]
    assert "<title>made_up --m 328</title>" in report.page(records)
    assert "<h1>made_up <small>--m 328 --stages 1</small></h1>" in report.page(records[:1])


def test_both_colour_schemes_have_all_colours():
    """Colours are named, and each name has a value for light pages and one for dark pages."""
    text = own_text(report.page([record_of()]))
    style = text[text.index("<style>") : text.index("</style>")]
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    named = [set(re.findall(r"--([a-z-]+):", scheme)) for scheme in (light, dark)]
    assert named[0] == named[1]
    assert set(re.findall(r"var\(--([a-z-]+)\)", style)) <= named[0]
    assert set(re.findall(r'colour\("([a-z-]+)"\)', text)) <= named[0]
    script = text[text.rindex("<script>") :]
    for rest in (style.replace(light, "").replace(dark, ""), script):
        assert not re.search(r"#[0-9a-f]{3}\b|#[0-9a-f]{6}\b", rest)


@pytest.mark.skipif(NODE is None, reason="no Node.js is installed")
def test_the_script_can_be_parsed(tmp_path):
    text = report.page([record_of()])
    script = tmp_path / "page.js"
    script.write_text(text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")])
    subprocess.run([NODE, "--check", script], check=True, capture_output=True)


def test_the_page_loads_no_resources():
    text = report.page([record_of(), record_of(2)])
    page = Parsed(text)
    assert {"style", "script", "table"} <= {tag for tag, _, _ in page.elements}
    attributes = {name for _, attributes, _ in page.elements for name in attributes}
    assert not attributes & {"src", "href", "srcset", "data"}
    own = own_text(text)
    assert "http" not in own
    assert "@import" not in own
    assert "url(" not in own
    assert not re.search(r"\[\[[a-z]+\]\]", own)  # no placeholder of the template is left


def test_files(tmp_path):
    files = report.write(tmp_path, [record_of(sms=2)])
    assert [path.name for path in files] == ["report.html", "timeline.png", "timeline.json"]
    assert (tmp_path / "timeline.png").stat().st_size > 10_000
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"SM 0", "SM 1", "producer", "consumer", "stage 0", "tensor cores"} <= names
    spans = [event for event in events if event["ph"] == "X" and event["name"] == "wait empty[0]"]
    assert {(event["pid"], event["dur"]) for event in spans} == {(0, 32), (1, 32)}
    report.write(tmp_path, [record_of(), record_of(2)])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_run_that_failed_at_once(tmp_path):
    """The report of a run without any activity can be written."""
    empty = np.zeros(0, np.uint64)
    sm = SmRecord([], [], [], [], [], [], [], empty, empty, empty, empty, 0, 0, 0, 0)
    record = record_of(0, sms=0, cycles=0, error="no such map", requests=[])
    record.sms.append(sm)
    assert len(report.write(tmp_path, [record])) == 3
    (details,) = contents((tmp_path / "report.html").read_text())["records"]
    assert details["verdict"] == "FAILED: no such map"


def drawn(page, directory, *flags):
    """The body of a page after a browser has drawn it, without the scripts."""
    command = [BROWSER, *FLAGS, *flags, f"--user-data-dir={directory / 'profile'}", "--dump-dom"]
    browser = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    return re.sub(r"<script.*?</script>", "", browser.stdout.partition("<body")[2], flags=re.S)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_draws_it(tmp_path):
    records = [record_of(1), record_of(2)]
    (page,) = report.write(tmp_path, records)
    body = drawn(page, tmp_path)
    charts = 1 + 1 + 4  # one of the sweep, the timeline, and four of the first run
    assert body.count('class="js-plotly-plot"') == charts
    assert body.count('class="main-svg"') >= charts
    data = contents(page.read_text())
    figures = [*data["sweep"], *data["records"][0]["charts"]]
    kinds = {kind_of(span.name) for span in rows_of(records[0])}
    traces = sum(len(figure["data"]) for figure in figures) + len(kinds)
    assert len(re.findall(r'<g class="(?:trace |trace")', body)) == traces
    for name, value in report.figures_of(records[0]).items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in body


ACTIONS = """<script>
const button = document.querySelectorAll("tr[data-record] button")[1];
button.focus();
document.activeElement.click();
document.body.dataset.pressed = button.getAttribute("aria-pressed");
const choice = document.querySelector("select");
choice.selectedIndex = 2;
choice.onchange();
const [timelinePlot, ...others] = document.querySelectorAll("#details .js-plotly-plot");
Plotly.relayout(timelinePlot, {"xaxis.range": [100, 200]}).then(() => {
  for (const paint of plots.values()) paint();
  const box = timelinePlot.getBoundingClientRect(), {xaxis, yaxis} = timelinePlot._fullLayout;
  timelinePlot.dispatchEvent(new MouseEvent("mousemove", {
    clientX: box.left + xaxis._offset + xaxis.d2p(150),
    clientY: box.top + yaxis._offset + yaxis.d2p(1)}));
  const overTime = others.filter(plot => plot.layout.xaxis.title.text === "cycle");
  document.body.dataset.ranges = overTime.map(plot => plot.layout.xaxis.range).join(" ");
});
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_reader_chooses_and_zooms(tmp_path):
    """Choose run 2 and its second SM, zoom to cycles 100 to 200, change the colours, and point at
    a span, all in the dark.
    """
    records = [record_of(1, sms=2), record_of(2, sms=2)]
    (page,) = report.write(tmp_path, records)
    page.write_text(page.read_text().replace("</body>", ACTIONS))
    body = drawn(page, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert 'data-pressed="true"' in body
    assert f"<code>{records[1].title}</code>" in body
    (card,) = set(re.findall(r'<svg class="main-svg"[^>]*background: (rgb[^;]*);', body))
    assert card == "rgb(24, 32, 41)"
    assert 'data-ranges="100,200 100,200 100,200"' in body
    rows = re.findall(r'class="ytick".*?<text[^>]*>([^<]*)<', body)
    assert {"producer", "consumer", "stage 0", "tensor cores"} <= set(rows)
    tip = "consumer: mma, cycles 140 to 160 (20)"
    assert re.search(f'<div id="tip"[^>]*>{re.escape(tip)}</div>', body)


def test_counters_of_the_units(tmp_path):
    """Figures are sums and means over the SMs; each unit has a trace of its own."""
    counts = {counter.name: 0 for counter in Counter} | {"CYCLES": 400, "READ_TAG_STALLS": 100}
    counts |= {"MAP_HITS": 9, "MAP_MISSES": 1, "FILL_PIECES": 5, "PIECES_WRITTEN": 50}
    counts |= {"READS_IN_FLIGHT": 1000}
    record = record_of(sms=2)
    assert "tensor maps" not in report.figures_of(record)
    trace = Event(7, EventKind.ACCEPTED, request_id=3).encode()
    sms = [replace(sm, counts=counts, trace=trace) for sm in record.sms]
    record = replace(record, sms=sms)
    figures = report.figures_of(record)
    assert figures["tensor maps"] == "18 hits, 2 misses (90.0% hits)"
    assert figures["pieces of fill"] == "10 of 100"
    assert figures["lines in flight"] == "2.5 read, 0.0 written"
    assert figures["stalls of the unit"] == "read tag 25%"
    files = report.write(tmp_path, [record])
    assert [file.name for file in files[3:]] == ["unit_0.json", "unit_1.json"]
    assert any(event["ts"] == 7 for event in json.loads(files[3].read_text())["traceEvents"]
               if "ts" in event)  # fmt: skip
    assert report.write(tmp_path, [record_of()]) == files[:3]
    assert not files[3].exists()
