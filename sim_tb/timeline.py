"""Timelines of a run: a picture, and trace events for Perfetto."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sim_tb.spans import Span

COLOURS = {
    "wait": "#d9d9d9",
    "issue": "#e3872d",
    "mma": "#3a6ea5",
    "write": "#8a63a8",
    "store": "#c4547a",
    "reduce": "#c4547a",
    "filling": "#f2c879",
    "full": "#5b9e6f",
}
"""By the first word of a span's name."""


def picture(
    path: Path,
    spans: Sequence[Span],
    activity: dict[str, NDArray[np.uint64]],
    title: str,
    units: int = 1,
) -> None:
    """Draw the spans, one row a track in order of appearance, over the activity of the units.

    Parameters
    ----------
    path : Path
        A PNG file.
    spans : sequence of Span
        A bar each, coloured by the first word of its name.
    activity : dict of name to cycle stamps
        Shown as the share of cycles in which it happened.
    title : str
        Stands on top.
    units : int
        As many units were active: shares are means over them.
    """
    tracks = list(dict.fromkeys(span.track for span in spans))
    end = max(span.end for span in spans)
    heights = [1.1] * len(activity) + [0.55 * len(tracks)]
    figure = Figure(figsize=(15, 1.2 + sum(heights)))
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    bucket = max(1, end // 400)
    edges = np.arange(0, end + bucket, bucket)
    for axis, (name, stamps) in zip(axes, activity.items(), strict=False):
        share = np.histogram(stamps, edges)[0] / (bucket * units)
        axis.fill_between(edges[:-1], share, step="post", color="#3a6ea5", linewidth=0)
        axis.set_ylim(0, 1.05)
        axis.set_yticks([0, 1])
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    axis = axes[-1]
    for row, track in enumerate(tracks):
        for colour in COLOURS:
            bars = [
                (span.start, span.end - span.start)
                for span in spans
                if span.track == track and span.name.split()[0] == colour
            ]
            axis.broken_barh(bars, (row - 0.4, 0.8), color=COLOURS[colour], linewidth=0)
    axis.set_yticks(range(len(tracks)), tracks)
    axis.set_ylim(len(tracks) - 0.4, -0.6)
    axis.set_xlim(0, end)
    axis.set_xlabel("cycle")
    used = {span.name.split()[0] for span in spans}
    handles = [
        Rectangle((0, 0), 1, 1, color=colour, label=name)
        for name, colour in COLOURS.items()
        if name in used
    ]
    figure.legend(handles=handles, ncols=len(handles), loc="upper right", frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    figure.tight_layout(rect=(0, 0, 1, 0.99))
    figure.savefig(path, dpi=110)


def trace_events(
    path: Path,
    sms: Sequence[Sequence[Span]],
    activity: dict[str, NDArray[np.uint64]],
    bucket: int = 32,
) -> None:
    """Write Chrome's trace-event JSON, as Perfetto loads it; a microsecond there is a cycle.

    Each SM is a process; the activity of all of them is with the first.
    """
    events: list[dict[str, Any]] = []
    for sm, spans in enumerate(sms):
        args: dict[str, Any] = {"name": f"SM {sm}"}
        events.append({"ph": "M", "pid": sm, "tid": 0, "name": "process_name", "args": args})
        tracks = list(dict.fromkeys(span.track for span in spans))
        for number, track in enumerate(tracks, 1):
            args = {"name": track}
            thread = {"pid": sm, "tid": number, "name": "thread_name", "args": args}
            events.append({"ph": "M", **thread})
        for span in spans:
            events.append(
                {
                    "ph": "X",
                    "pid": sm,
                    "tid": tracks.index(span.track) + 1,
                    "name": span.name,
                    "ts": span.start,
                    "dur": span.end - span.start,
                }
            )
    end = max(span.end for spans in sms for span in spans)
    for name, stamps in activity.items():
        edges = np.arange(0, end + bucket, bucket)
        for start, count in zip(edges, np.histogram(stamps, edges)[0], strict=False):
            share = {name: float(count / bucket)}
            events.append({"ph": "C", "pid": 0, "name": name, "ts": int(start), "args": share})
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
