"""Runs of kernels on worker processes, whose records stay in an SQLite file."""

import pickle
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hw.flow.cache import ROOT, digest
from hw.params import TmaParams
from sim_tb.distribution import workers
from sim_tb.distribution.store import PACKAGES, Store, code
from sim_tb.distribution.workers import Lost, Workers
from sim_tb.simulator import by_value, runner
from sim_tb.sm import launch
from sim_tb.sm.record import Record


@dataclass(frozen=True)
class Task:
    """A run: ``job`` is the pickle of a ``launch.Job``."""

    job: bytes
    params: TmaParams


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    Parameters
    ----------
    title : str
        Kernel, options and settings, as on the command line.
    cycles : int
    outcome : str
        "right", "wrong" or "failed".
    record : bytes
        Pickle of its ``Record``.
    """

    title: str
    cycles: int
    outcome: str
    record: bytes


def simulate(task: Task) -> Run:
    """Run a kernel in a simulation of its own."""
    (record,) = launch.simulate([by_value.loads(task.job)], task.params)
    outcome = "failed" if record.error else "wrong" if record.wrong else "right"
    return Run(record.title, record.cycles, outcome, pickle.dumps(record))


def sweep(
    work: Sequence[launch.Job], params: TmaParams, crew: Workers, results: Store[Run]
) -> Iterator[tuple[int, Record | Lost]]:
    """Run kernels on workers; yield the place of each in ``work``, and its record.

    Runs that ``results`` has are not repeated, unless code has changed.

    Parameters
    ----------
    work : sequence of (Kernel, Setting)
        Kernels that ``launch.validate`` accepts.
    params : TmaParams
        Parameters of each unit, as in ``launch.simulate``.
    crew : Workers
        They run the kernels.
    results : Store
        It gets the record of each run.

    Raises
    ------
    SendError
        If a kernel cannot be sent to a worker.
    SimulationError
        If a simulation breaks off.
    WorkersError
        If workers cannot run the kernels.
    """
    for unit in {launch.unit_of(kernel, params) for kernel, _ in work}:
        runner.build_as_asked(unit)  # here: the workers of this computer find it
    known = f"{code()} {imported()} {params}"
    places: dict[str, list[int]] = defaultdict(list)
    for place, (kernel, setting) in enumerate(work):
        places[digest([f"{known} {kernel} {setting}"])].append(place)
    tasks = {key: Task(by_value.dumps(work[first]), params) for key, (first, *_) in places.items()}
    for key, result in workers.stored(crew, simulate, tasks, results):
        ended = result if isinstance(result, Lost) else pickle.loads(result.record)
        for place in places[key]:
            yield place, ended


def imported() -> str:
    """Return the key of all modules of this process that are neither installed nor of the project.

    They are the files of kernels, and what these import.
    """
    ours = (ROOT / package for package in PACKAGES)
    others = *ours, *map(Path, sysconfig.get_paths().values())
    names = {getattr(module, "__file__", None) for module in sys.modules.values()}
    paths = (Path(name) for name in sorted(filter(None, names)))
    outside = [path for path in paths if not any(path.is_relative_to(each) for each in others)]
    return str(digest(path.read_text() for path in outside if path.suffix == ".py"))
