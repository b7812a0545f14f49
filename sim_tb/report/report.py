"""Report of kernel runs: an HTML page without external resources, a picture, and trace events.

The page contains all figures as JSON. The script in ``report.html`` draws them with plotly.js,
which is part of the page.
"""

import html
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from plotly.offline import get_plotlyjs

from sim_tb.report.timeline import (
    COLOURS,
    OUTSTANDING,
    activity,
    cluster_rows,
    coverage,
    edges_of,
    in_flight,
    kind_of,
    picture,
    rows_of,
    stages,
    trace_events,
)
from sim_tb.sm.record import Record, as_options
from sim_tb.sm.spans import Span
from sim_tb.trace.counts import mean, stall_text
from sim_tb.trace.perfetto import trace_of
from sim_tb.trace.records import decode

TEMPLATE = Path(__file__).with_name("report.html")
PAGE, PICTURE, TRACE = "report.html", "timeline.png", "timeline.json"
UNIT_TRACE = "unit_{}.json"
"""Trace for Perfetto of the events of the unit of an SM."""

LINES = [COLOURS[kind] for kind in ("mma", "issue", "full", "store", "math", "shared memory")]
MOST_TICKS = 16
"""Most ticks of an axis that has a tick at each value."""

DASHES = "solid", "dash", "dot", "dashdot"
PANEL, GAP = 70, 20
"""Height of a small chart, and gap between two of them, in pixels."""

MARGIN = {"l": 172, "r": 24, "t": 8, "b": 44}
"""Margins of charts over time, in pixels: the same for all, so that their cycles align."""

FIGURE_HEIGHT = 330

Figure = dict[str, Any]


def write(directory: Path, records: Sequence[Record]) -> list[Path]:
    """Write the report of one or more runs to a directory; return the files.

    The picture and the trace events are written only if there is one run. Those of the units are
    written if these have counters. Files of an earlier report are removed.
    """
    prepare(directory)
    for stale in (PAGE, PICTURE, TRACE):
        (directory / stale).unlink(missing_ok=True)
    for stale_path in directory.glob(UNIT_TRACE.format("*")):
        stale_path.unlink()
    files = [directory / PAGE]
    files[0].write_text(page(records), encoding="utf-8")
    if len(records) == 1:
        files += [directory / PICTURE, directory / TRACE]
        picture(files[1], records[0])
        trace_events(files[2], records[0])
        for number, sm in enumerate(records[0].sms):
            if sm.trace:
                files.append(directory / UNIT_TRACE.format(number))
                files[-1].write_text(json.dumps(trace_of(decode(sm.trace))))
    return files


def prepare(directory: Path) -> None:
    """Make the directory of a report.

    Raises
    ------
    OSError
        If there can be no files in it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=directory):
        pass


def page(records: Sequence[Record]) -> str:
    """Return the text of the HTML page."""
    contents = {
        "kinds": list(COLOURS.items()),
        "sweep": [_against(records, name) for name in swept(records)],
        "records": [_details(record) for record in records],
    }
    # A closing tag inside of the JSON would end the script element.
    data = json.dumps(contents, separators=(",", ":")).replace("</", "<\\/")
    first = records[0]
    common = {name: value for name, value in first.options.items() if name not in swept(records)}
    parts = {
        "title": html.escape(first.kernel),
        "options": html.escape(as_options(common)),
        "lead": html.escape(first.summary),
        "summary": _html_table(records) if len(records) > 1 else "",
        "plotly": get_plotlyjs(),
        "data": data,
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"[[{name}]]", part)
    return text


def verdict(record: Record) -> str:
    """Return the outcome of a run in words: failed, wrong, or equal to NumPy's result."""
    if record.error:
        return f"FAILED: {record.error}"
    return record.check or "the kernel does not check its result"


def figures_of(record: Record) -> dict[str, str]:
    """Return the figures of a run by name, formatted for printing.

    For a run that ended early these are counts of what happened, and no rates. For a wrong result
    there are no flops per clock.
    """
    if record.error:
        return _counts_of(record)
    cycles, per = max(1, record.cycles), "" if len(record.sms) == 1 else " and SM"
    lines, stored = record.rate("lines_read"), record.rate("lines_written")
    figures = {
        "cycles": f"{record.cycles:,}",
        "bytes into shared memory": f"{record.total('load_bytes'):,}",
        "load bytes per cycle": f"{record.total('load_bytes') / cycles:.1f}",
        "lines read": f"{sum(sm.lines_read.size for sm in record.sms):,}",
        f"lines read per cycle{per}": f"{lines:.3f}",
        "bytes written to global memory": f"{record.total('store_bytes'):,}",
        f"lines written per cycle{per}": f"{stored:.3f}",
        "shared memory taken": f"{record.smem_bytes:,} bytes",
        "bank conflicts": f"{record.total('bank_conflicts'):,} clocks",
        "issue slots taken": f"{record.busy('scheduler'):.1%}",
    }
    if record.total("fma"):
        figures["tensor cores busy"] = f"{record.busy('tensor_cores'):.1%}"
        figures["tensor cores starve"] = f"{record.starvation:.1%}"
    if record.flops and not record.wrong:
        peak = record.peak_flops_per_clock
        share = f"({record.share_of_peak:.1%})"
        figures["flops per clock"] = f"{record.flops_per_clock:,.0f} of {peak:,} {share}"
    figures |= _counters_of(record)
    figures["simulated"] = f"{record.cycles / max(record.seconds, 1e-9):,.0f} cycles/s"
    return figures


def _counters_of(record: Record) -> dict[str, str]:
    """Return what the units counted, if they have counters: sums and means over all SMs."""
    if not all(sm.counts for sm in record.sms):
        return {}
    total: Counter[str] = Counter()
    for sm in record.sms:
        total.update(sm.counts)
    lookups = total["MAP_HITS"] + total["MAP_MISSES"]
    return {
        "tensor maps": f"{total['MAP_HITS']:,} hits, {total['MAP_MISSES']:,} misses"
        f" ({total['MAP_HITS'] / max(1, lookups):.1%} hits)",
        "pieces of fill": f"{total['FILL_PIECES']:,} of {total['PIECES_WRITTEN']:,}",
        "lines in flight": f"{mean(total, 'READS_IN_FLIGHT'):.1f} read, "
        f"{mean(total, 'WRITES_IN_FLIGHT'):.1f} written",
        "stalls of the unit": stall_text(total),
    }


def _counts_of(record: Record) -> dict[str, str]:
    """Return what happened in a run that ended early."""
    figures = {"cycles until the failure": f"{record.cycles:,}"}
    loads = [request for request in record.requests if request.tx_bytes]
    stores = [request for request in record.requests if not request.tx_bytes]
    for name, requests in (("loads", loads), ("stores", stores)):
        done = sum(request.done is not None for request in requests)
        figures[name] = f"{len(requests):,} issued, {done:,} completed"
    figures["lines requested"] = f"{sum(sm.lines_read.size for sm in record.sms):,}"
    figures["lines written"] = f"{sum(sm.lines_written.size for sm in record.sms):,}"
    return figures


def swept(records: Sequence[Record]) -> list[str]:
    """Return the names of the options and settings that differ between records."""
    every = [record.choices for record in records]
    return [name for name in every[0] if len({options.get(name) for options in every}) > 1]


def table_of(records: Sequence[Record]) -> list[dict[str, str]]:
    """Return a row for each record: the options that differ, and the results, by column.

    The results of a run that failed are empty, because they were not measured.
    """
    names = swept(records)
    rows = []
    for record in records:
        row = {name.replace("_", " "): str(record.choices[name]) for name in names}
        results = {
            "cycles": f"{record.cycles:,}",
            "lines read per cycle": f"{record.rate('lines_read'):.3f}",
        }
        if any(each.total("bank_conflicts") for each in records):
            results["bank conflicts"] = f"{record.total('bank_conflicts'):,}"
        if any(each.flops for each in records):
            results["tensor cores starve"] = f"{record.starvation:.1%}"
            results["flops per clock"] = f"{record.flops_per_clock:,.0f}"
            results["share of peak"] = f"{record.share_of_peak:.1%}"
        row |= dict.fromkeys(results, "") if record.failed else results
        row["result"] = "failed" if record.error else "WRONG" if record.wrong else "right"
        rows.append(row)
    return rows


def _html_table(records: Sequence[Record]) -> str:
    """Return the table of a sweep. The first cell of a row is a button that opens the run."""
    rows = table_of(records)
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in rows[0])
    body = []
    for number, (record, row) in enumerate(zip(records, rows, strict=True)):
        first, *others = row.values()
        label = html.escape(", ".join(f"{name} {value}" for name, value in row.items() if value))
        button = (
            f'<button type="button" aria-controls="details" aria-label="{label}">'
            f"{html.escape(first)}</button>"
        )
        cells = "".join(f"<td>{cell}</td>" for cell in (button, *map(html.escape, others)))
        failed = ' class="failed"' if record.failed else ""
        body.append(f'<tr data-record="{number}"{failed}>{cells}</tr>')
    return (
        f'<table id="summary"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    )


# Charts of a sweep


def _against(records: Sequence[Record], name: str) -> Figure:
    """Return a chart of the results over an option, a line for each combination of the others."""
    others = [other for other in swept(records) if other != name]
    groups: dict[str, list[tuple[Any, Record]]] = defaultdict(list)
    values = [_value(record, name) for record in records]
    label = name.replace("_", " ")
    if name == "memory":
        latencies = {record.setting.memory: record.latency for record in records}
        if len(set(latencies.values())) == len(latencies):
            values = [record.latency for record in records]
            label = "mean latency of a line, clocks"
    for value, record in zip(values, records, strict=True):
        if not record.failed:
            options = record.choices
            groups[", ".join(f"{o.replace('_', ' ')} {options[o]}" for o in others)].append(
                (value, record)
            )
    panels = _measures(records)
    width = 1 / len(panels)
    data: list[Figure] = []
    layout: Figure = {"height": 400, "margin": {"l": 64, "r": 24, "t": 40, "b": 52}}
    for number, (title, unit) in enumerate(panels, 1):
        axis = "" if number == 1 else str(number)
        for line, (group, points) in enumerate(groups.items()):
            numeric = all(isinstance(value, int | float) for value, _ in points)
            points = sorted(points, key=lambda point: point[0]) if numeric else points
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": group,
                    "legendgroup": group,
                    "showlegend": number == 1 and bool(group),
                    "x": [value for value, _ in points],
                    "y": [_measure(record, title) for _, record in points],
                    "xaxis": f"x{axis}",
                    "yaxis": f"y{axis}",
                    "line": {
                        "color": LINES[line % len(LINES)],
                        "dash": DASHES[line // len(LINES) % len(DASHES)],
                        "width": 2,
                    },
                    "marker": {"size": 7},
                    "hovertemplate": f"%{{x}}: %{{y:{unit}}}<extra>{html.escape(group)}</extra>",
                }
            )
        start = (number - 1) * width
        layout[f"xaxis{axis}"] = {
            "title": {"text": label},
            "domain": [
                start + (0.05 if number > 1 else 0),
                start + width - (0.03 if number < len(panels) else 0),
            ],
            "anchor": f"y{axis}",
        }
        if name != "memory" and len(set(values)) <= MOST_TICKS:
            layout[f"xaxis{axis}"] |= {"tickmode": "array", "tickvals": sorted(set(values))}
        layout[f"yaxis{axis}"] = {
            "title": {"text": title},
            "anchor": f"x{axis}",
            "rangemode": "tozero",
            "tickformat": unit,
        }
    if records[0].flops:
        peak = records[0].peak_flops_per_clock
        number = [title for title, _ in panels].index("flops per clock") + 1
        layout["shapes"] = [
            {
                "type": "line",
                "xref": f"x{number} domain",
                "yref": f"y{number}",
                "x0": 0,
                "x1": 1,
                "y0": peak,
                "y1": peak,
                "line": {"color": "#8a94a0", "dash": "dash", "width": 1.5},
                "label": {"text": "peak", "textposition": "end", "yanchor": "top"},
            }
        ]
        layout[f"yaxis{number}"]["range"] = [0, 1.05 * peak]
    text = "Each point is a run. "
    text += (
        "The less the tensor cores starve, the closer the flops per clock are to the peak (dashed "
        "line)."
        if records[0].flops
        else "Fewer cycles and more bytes per clock are better."
    )
    return _figure(f"Against {name.replace('_', ' ')}", text, data, layout)


def _value(record: Record, name: str) -> Any:
    value = record.choices[name]
    return value if isinstance(value, int) else str(value)


def _measures(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return name and number format of each result that a sweep shows."""
    if records[0].flops:
        return [("starving", ".0%"), ("cycles", ",d"), ("flops per clock", ",.0f")]
    return [("cycles", ",d"), ("bytes per clock", ",.1f")]


def _measure(record: Record, name: str) -> float:
    if name == "bytes per clock":
        moved = record.total("load_bytes") + record.total("store_bytes")
        return moved / max(1, record.cycles)
    values = {
        "starving": record.starvation,
        "cycles": record.cycles,
        "flops per clock": record.flops_per_clock,
    }
    return values[name]


# Charts of one run


def _details(record: Record) -> dict[str, Any]:
    if len(record.sms) == 1:
        views = [_view("SM 0", rows_of(record))]
    else:
        views = [_view("all SMs", cluster_rows(record))]
        views += [_view(f"SM {cta}", rows_of(record, cta)) for cta in range(len(record.sms))]
    figures = [_utilization(record), _occupancy(record), _requests(record), _waits(record)]
    return {
        "title": record.title,
        "figures": figures_of(record),
        "verdict": verdict(record),
        "failed": record.failed,
        "cycles": record.cycles,
        "views": views,
        "charts": [figure for figure in figures if figure["data"]],
    }


def _view(name: str, spans: Sequence[Span]) -> dict[str, Any]:
    """Return spans as columns. Names and rows are given by number."""
    rows = {row: n for n, row in enumerate(dict.fromkeys(span.track for span in spans))}
    names = {text: n for n, text in enumerate(dict.fromkeys(span.name for span in spans))}
    kinds = list(COLOURS)
    return {
        "name": name,
        "rows": list(rows),
        "names": list(names),
        "kinds": [kinds.index(kind_of(text)) for text in names],
        "row": [rows[span.track] for span in spans],
        "span": [names[span.name] for span in spans],
        "start": [span.start for span in spans],
        "end": [span.end for span in spans],
    }


def _figure(
    title: str,
    text: str,
    data: Sequence[Mapping[str, Any]],
    layout: Mapping[str, Any],
    *,
    over_time: bool = False,
) -> Figure:
    return {
        "title": title,
        "text": text,
        "data": list(data),
        "layout": dict(layout),
        "over_time": over_time,
    }


def _panels(
    title: str,
    text: str,
    record: Record,
    panels: Mapping[str, Sequence[tuple[str, str, Any]]],
    tops: Sequence[float],
    height: int = PANEL,
) -> Figure:
    """Return small charts over time, below each other. Each chart has stacked areas.

    ``panels`` has the name, colour and values of each area, by the label of the chart; ``tops`` the
    greatest value of each chart's axis.
    """
    edges = edges_of(record)
    total = len(panels) * (height + GAP) - GAP
    data: list[Figure] = []
    layout: Figure = {
        "height": total + MARGIN["t"] + MARGIN["b"],
        "margin": MARGIN,
        "xaxis": {"range": [0, record.cycles], "title": {"text": "cycle"}, "anchor": "free"},
        "hovermode": "x unified",
    }
    layout["xaxis"]["position"] = 0
    for number, ((label, areas), top) in enumerate(zip(panels.items(), tops, strict=True), 1):
        axis = f"y{number}" if number > 1 else "y"
        upper = 1 - (number - 1) * (height + GAP) / total
        layout[axis.replace("y", "yaxis")] = {
            "domain": [max(0.0, upper - height / total), upper],
            "range": [0, top],
            "fixedrange": True,
            "title": {"text": ""},
            "tickvals": [0, top],
            "zeroline": False,
        }
        layout.setdefault("annotations", []).append(
            {
                "text": label,
                "xref": "paper",
                "x": 0,
                "xanchor": "right",
                "xshift": -34,
                "yref": "paper",
                "y": upper - height / total / 2,
                "yanchor": "middle",
                "showarrow": False,
            }
        )
        for name, colour, values in areas:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": name,
                    "x": edges[:-1].tolist(),
                    "y": np.round(values, 4).tolist(),
                    "line": {"shape": "hv", "width": 0},
                    "fillcolor": colour,
                    "fill": "tonexty",
                    "stackgroup": axis,
                    "yaxis": axis,
                    "showlegend": False,
                    "hovertemplate": "%{y:.3~f}",
                }
            )
    return _figure(title, text, data, layout, over_time=True)


def _utilization(record: Record) -> Figure:
    edges = edges_of(record)
    shares = activity(record, edges)
    colours = {"tensor cores": COLOURS["mma"], "issue slots": COLOURS["issue"]}
    memory = {name: COLOURS["shared memory"] for name in shares if name.startswith("smem")}
    colours |= memory
    panels = {
        name: [(name, colours.get(name, COLOURS["load"]), values)]
        for name, values in shares.items()
    }
    scope = "" if len(record.sms) == 1 else ", the mean over all SMs"
    text = (
        f"Share of cycles in which each part was busy, in steps of {edges[1]} cycles{scope}. A "
        "part that is busy all the time limits the kernel. If no part is, the kernel waits for "
        "latency."
    )
    return _panels("Utilization", text, record, panels, [1] * len(panels))


def _occupancy(record: Record) -> Figure:
    edges = edges_of(record)
    every = [stages(record, sm) for sm in record.sms]
    panels, tops = {}, []
    for ring in record.rings:
        areas = []
        for kind in ("full", "filling"):
            spans = [
                (span.start, span.end)
                for rings in every
                for stage in rings[ring.name]
                for span in stage
                if span.name == kind
            ]
            areas.append((kind, COLOURS[kind], coverage(spans, edges) / len(record.sms)))
        panels[f"ring {ring.name}".strip()] = areas
        tops.append(len(ring.full))
    text = (
        "Number of full stages (green) and of filling stages (yellow). A stage is filling from "
        "the release of its previous contents on. If several stages are full, the loads are ahead "
        "of the consumers. If no stage is full, the consumers wait."
    )
    return _panels("Stage ring", text, record, panels, tops, height=130)


def _requests(record: Record) -> Figure:
    edges = edges_of(record)
    panels, tops = {}, []
    for kind, intervals in in_flight(record).items():
        if intervals:
            level = coverage(intervals, edges)
            panels[OUTSTANDING[kind]] = [(f"{kind}s", COLOURS[kind], level)]
            tops.append(max(1, int(np.ceil(level.max()))))
    text = (
        "Loads from issue to the completion of their barrier's phase. Stores from issue until a "
        "wait for their bulk group returns (wait_group without .read). Loads in flight hide the "
        "latency of memory."
    )
    return _panels("Requests", text, record, panels, tops, height=100)


def _waits(record: Record) -> Figure:
    """Return a histogram of the waits, by the names of the barriers without their numbers."""
    classes: dict[str, list[int]] = defaultdict(list)
    for sm in record.sms:
        for name, cycles in sm.waits:
            classes[name.partition("[")[0]].append(cycles)
    longest = max((max(waits) for waits in classes.values()), default=0)
    bounds = [0, *(1 << power for power in range(longest.bit_length() + 1))]
    labels = [
        str(low) if high == low + 1 else f"{low:,}–{high - 1:,}"  # noqa: RUF001
        for low, high in pairwise(bounds)
    ]
    data = []
    for number, (name, waits) in enumerate(sorted(classes.items())):
        counts, _ = np.histogram(waits, [*bounds[:-1], bounds[-1] - 0.5])
        data.append(
            {
                "type": "bar",
                "name": f"{name}: {len(waits)} waits, {sum(waits):,} cycles",
                "x": labels,
                "y": counts.tolist(),
                "marker": {"color": LINES[number % len(LINES)]},
                "hovertemplate": f"%{{y}} waits of %{{x}} cycles<extra>{html.escape(name)}</extra>",
            }
        )
    layout = {
        "height": FIGURE_HEIGHT,
        "margin": {**MARGIN, "l": 64, "t": 40},
        "xaxis": {"title": {"text": "cycles of a wait"}, "type": "category"},
        "yaxis": {"title": {"text": "waits"}},
        "barmode": "group",
        "bargap": 0.25,
        "showlegend": True,
    }
    text = (
        "Clocks that warpgroups waited at barriers, by the names of the barriers. Long waits for "
        "full: the data arrive too late. Long waits for empty: the producer is ahead, as it should "
        "be."
    )
    return _figure("Waits at barriers", text, data, layout)
