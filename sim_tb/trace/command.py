"""Command ``python -m sim_tb trace``: writes the trace of a file of event records for Perfetto."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from sim_tb.trace.perfetto import trace_of
from sim_tb.trace.records import TraceError, read
from sim_tb.trace.requests import Requests

HELP = "turn dumped records of the port trace into a file for Perfetto"
"""Help of the command."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("records", type=Path, help="records of 16 bytes, as the unit gives them")
    parser.add_argument(
        "--perfetto",
        type=Path,
        metavar="FILE",
        help="JSON file for ui.perfetto.dev [RECORDS with the ending .json]",
    )


def run(options: argparse.Namespace, prog: str) -> int:
    """Carry out the command; return the exit status."""
    target: Path = options.perfetto or options.records.with_suffix(".json")
    try:
        events = read(options.records)
        target.write_text(json.dumps(trace_of(events)))
    except TraceError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{prog}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    kinds = Counter(event.kind.name for event in events)
    requests = Requests(events).all
    ended = sum(request.end is not None for request in requests)
    gaps = sum(event.has_gap for event in events)
    print(f"{len(events)} events of {len(requests)} requests, of which {ended} ended; {gaps} gaps")
    print(", ".join(f"{name} {count}" for name, count in sorted(kinds.items())))
    print(target)
    return 0
