"""Timeline of a run: its rows, a picture, and trace events for Perfetto."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sim_tb.sm.record import Intervals, Record, SmRecord
from sim_tb.sm.spans import Span

COLOURS = {
    "other": "#b9c2cc",
    "wait": "#d9d9d9",
    "issue": "#e3872d",
    "math": "#4fa3a0",
    "mma": "#3a6ea5",
    "shared memory": "#8a63a8",
    "load": "#7fa6cf",
    "store": "#c4547a",
    "filling": "#f2c879",
    "full": "#5b9e6f",
}
"""Colour of each kind of span. Kind ``other`` are spans with a name of the kernel's own."""

KINDS = {
    **dict.fromkeys(("ldmatrix", "stmatrix", "ld.shared", "st.shared"), "shared memory"),
    **dict.fromkeys(("bar.sync", "barrier.cluster", "setmaxnreg"), "wait"),
}
"""Kind of a span by the first word of its name, if this word is not a kind itself."""

BUCKETS = 400
"""Most time steps of an activity over time."""

ACTIVITIES = {
    "lines_read": "lines read",
    "lines_written": "lines written",
    "beats_written": "smem beats written",
    "beats_read": "smem beats read",
}
"""Activities of the unit: attribute of ``SmRecord`` and label. At most one event per cycle."""

PIPES = {
    "tensor_cores": "tensor cores",
    "scheduler": "issue slots",
    "smem_port": "smem by threads",
    "mufu": "special functions",
}
"""Pipes of the SM: attribute of ``SmRecord`` and label."""

OUTSTANDING = {"load": "loads in flight", "store": "stores pending"}
"""Rows of requests. A store is pending until a ``wait_group`` without ``.read`` returns."""


def kind_of(name: str) -> str:
    """Return the kind of a span, which gives its colour."""
    word = name.partition(" ")[0]
    kind = KINDS.get(word, word)
    return kind if kind in COLOURS else "other"


def coverage(intervals: Intervals, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean number of open intervals, from each of ``edges`` to the next."""
    ends = np.array(intervals, np.int64).reshape(-1, 2)
    cycles = ends.T.ravel()
    steps = np.repeat([1, -1], len(ends))
    order = np.argsort(cycles, kind="stable")
    cycles, level = cycles[order], np.cumsum(steps[order])
    area = np.concatenate([[0], np.cumsum(level[:-1] * np.diff(cycles))])
    if not len(ends):
        return np.zeros(len(edges) - 1)
    means: NDArray[np.float64] = np.diff(np.interp(edges, cycles, area)) / np.diff(edges)
    return means


def edges_of(record: Record, buckets: int = BUCKETS) -> NDArray[np.int64]:
    """Return the first cycle of each time step, and the cycle after the last step."""
    cycles = max(1, record.cycles)
    step = -(-cycles // buckets)
    return np.arange(0, cycles + step, step)


def activity(record: Record, edges: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Return the share of cycles in which each part was busy, the mean over the SMs.

    Activities of the unit are always included, pipes only if they were busy at all.
    """
    shares = {}
    for name, label in ACTIVITIES.items():
        stamps = np.concatenate([getattr(sm, name) for sm in record.sms])
        shares[label] = np.histogram(stamps, edges)[0] / np.diff(edges) / len(record.sms)
    for name, label in PIPES.items():
        if record.busy(name):
            every = [coverage(getattr(sm, name), edges) for sm in record.sms]
            shares[label] = np.mean(every, axis=0)
    return shares


def stages(record: Record, sm: SmRecord) -> dict[str, list[list[Span]]]:
    """Return the spans of each stage of each ring: *filling* and *full* in turns.

    A stage is filling from the release of its previous contents on, at first from the first request
    of the run on.
    """
    begin = min((request.cycle for request in record.requests), default=0)
    completions = defaultdict(list)
    for cycle, name in sm.phase_completions:
        completions[name].append(cycle)
    rings = {}
    for ring in record.rings:
        prefix = f"{ring.name}." if ring.name else ""
        rings[ring.name] = [
            list(
                _stage_spans(f"{prefix}stage {i}", begin, record.cycles,
                             completions[f"{prefix}full[{i}]"], completions[f"{prefix}empty[{i}]"])
            )
            for i in range(len(ring.full))
        ]  # fmt: skip
    return rings


def _stage_spans(
    track: str, begin: int, end: int, full: Sequence[int], empty: Sequence[int]
) -> Iterable[Span]:
    """Yield the spans of a stage, *filling* and *full* in turns.

    Contents that never get full are left out. So are releases before the first contents, with
    which some kernels start.
    """
    empty = [cycle for cycle in empty if full and cycle > full[0]]
    for filled, released, start in zip(full, [*empty, end], [begin, *empty], strict=False):
        yield Span(track, "filling", start, filled)
        yield Span(track, "full", filled, released)


def in_flight(record: Record, cta: int | None = None) -> dict[str, list[tuple[int, int]]]:
    """Return the intervals of loads and stores from issue to completion, of one CTA or of all."""
    intervals: dict[str, list[tuple[int, int]]] = {"load": [], "store": []}
    for request in record.requests:
        if cta in (None, request.cta):
            done = record.cycles if request.done is None else request.done
            intervals["load" if request.tx_bytes else "store"].append((request.cycle, done))
    return intervals


def _counted(kind: str, intervals: Intervals) -> Iterable[Span]:
    """Yield the spans of a row that shows the number of loads or stores in flight."""
    steps: dict[int, int] = defaultdict(int)
    for first, end in intervals:
        steps[first] += 1
        steps[end] -= 1
    level, start = 0, 0
    for cycle in sorted(cycle for cycle, step in steps.items() if step):
        if level:
            yield Span(OUTSTANDING[kind], f"{kind} ({level})", start, cycle)
        level, start = level + steps[cycle], cycle


def rows_of(record: Record, cta: int = 0) -> list[Span]:
    """Return the spans of all rows of an SM: warpgroups, stages, tensor cores, requests."""
    sm = record.sms[cta]
    rows = list(sm.spans)
    for ring in stages(record, sm).values():
        for stage in ring:
            rows += stage
    rows += [Span("tensor cores", "mma", *times) for times in sm.tensor_cores]
    for kind, intervals in in_flight(record, cta).items():
        rows += _counted(kind, intervals)
    return rows


def cluster_rows(record: Record) -> list[Span]:
    """Return the spans of a row for each SM: activities and waits of the consumers.

    Consumers are the warpgroups that multiply. If there are none, all warpgroups are included.
    """
    rows = []
    for number, sm in enumerate(record.sms):
        consumers = {span.track for span in sm.spans if kind_of(span.name) == "mma"}
        for span in sorted(sm.spans, key=lambda span: kind_of(span.name) != "wait"):
            if not consumers or span.track in consumers:
                rows.append(Span(f"SM {number}", span.name, span.start, span.end))
    return rows


def picture(path: Path, record: Record) -> None:
    """Draw a run as a PNG file: the activities over time, and below them the timeline.

    The timeline has the rows of the SM, or in a cluster one row for each SM.
    """
    spans = rows_of(record) if len(record.sms) == 1 else cluster_rows(record)
    tracks = list(dict.fromkeys(span.track for span in spans))
    edges = edges_of(record)
    shares = activity(record, edges)
    heights = [0.7] * len(shares) + [1 + 0.5 * len(tracks)]
    figure = Figure(figsize=(15, 1.2 + sum(heights)))
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    for axis, (name, share) in zip(axes, shares.items(), strict=False):
        axis.fill_between(edges[:-1], share, step="post", color=COLOURS["mma"], linewidth=0)
        axis.set_ylim(0, 1.05)
        axis.set_yticks([0, 1])
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    axis = axes[-1]
    bars = defaultdict(list)
    for span in spans:
        bars[span.track, kind_of(span.name)].append((span.start, span.end - span.start))
    for (track, kind), extents in bars.items():
        row = tracks.index(track)
        axis.broken_barh(extents, (row - 0.4, 0.8), color=COLOURS[kind], linewidth=0)
    axis.set_yticks(range(len(tracks)), tracks)
    axis.set_ylim(len(tracks) - 0.4, -0.6)
    axis.set_xlim(0, max(1, record.cycles))
    axis.set_xlabel("cycle")
    used = {kind for _, kind in bars}
    handles = [
        Rectangle((0, 0), 1, 1, color=colour, label=kind)
        for kind, colour in COLOURS.items()
        if kind in used
    ]
    figure.suptitle(record.title, x=0.01, ha="left", fontsize=12)
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / figure.get_figheight()))
    place = 1 - 0.35 / figure.get_figheight()
    figure.legend(handles=handles, ncols=len(COLOURS), loc="upper left",
                  bbox_to_anchor=(0.005, place), frameon=False)  # fmt: skip
    figure.savefig(path, dpi=110)


def trace_events(path: Path, record: Record) -> None:
    """Write trace events in Chrome's JSON format, which Perfetto loads. A cycle is a microsecond.

    Each SM is a process. The activities, which are means over all SMs, belong to the first one.
    """
    events: list[dict[str, Any]] = []
    for sm in range(len(record.sms)):
        spans = rows_of(record, sm)
        events.append(_name(sm, 0, "process_name", f"SM {sm}"))
        tracks = {track: n for n, track in enumerate(dict.fromkeys(s.track for s in spans), 1)}
        events += [_name(sm, number, "thread_name", track) for track, number in tracks.items()]
        for span in spans:
            times = {"ts": span.start, "dur": span.end - span.start}
            event = {"ph": "X", "pid": sm, "tid": tracks[span.track], "name": span.name}
            events.append({**event, **times})
    edges = edges_of(record)
    for name, shares in activity(record, edges).items():
        for start, share in zip(edges, shares, strict=False):
            counter: Mapping[str, Any] = {"name": name, "ts": int(start), "args": {name: share}}
            events.append({"ph": "C", "pid": 0, **counter})
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def _name(sm: int, track: int, kind: str, name: str) -> dict[str, Any]:
    """Return the event that names a process or a thread."""
    return {"ph": "M", "pid": sm, "tid": track, "name": kind, "args": {"name": name}}
