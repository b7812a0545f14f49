"""Worker processes that carry out tasks, on this computer or on those of a scheduler."""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from sim_tb.command_line import CommandError, Parser
from sim_tb.distribution import store

Task = TypeVar("Task")
Result = TypeVar("Result")

ADDRESS_HELP = "address of the scheduler of a dask.distributed cluster, such as tcp://host:8786"
WORKERS_HELP = "worker processes on this computer; default: one for each core"

PATIENCE = 10
"""Seconds in which a scheduler must answer."""


SATURATION = "distributed.scheduler.worker-saturation"
"""Setting of the scheduler: tasks that a worker has, for each of its threads."""


class WorkersError(CommandError):
    """Workers cannot be reached, or cannot run the tasks. The text names the reason."""


@dataclass(frozen=True)
class Lost:
    """End of a task without a result: its worker died, and so did those that tried it again."""

    reason: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--scheduler`` and ``--workers`` to a command line."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="ADDRESS", help=ADDRESS_HELP)
    where.add_argument("--workers", type=int, metavar="N", help=WORKERS_HELP)


def of(options: argparse.Namespace, parser: Parser) -> "Workers":
    """Return the workers that a command line asks for."""
    if options.workers is not None and options.workers < 1:
        parser.error(f"--workers {options.workers}: must be at least 1")
    return Workers(options.scheduler, options.workers)


class Workers:
    """Workers of ``dask.distributed``, as a context manager.

    A worker carries out one task at a time. If its process dies, another one takes its place, and
    carries out the task again.

    Parameters
    ----------
    scheduler : str, optional
        Address of a scheduler, whose workers run in clones of the same commit. Default: processes
        on this computer.
    count : int, optional
        Processes on this computer; default: one for each core.
    """

    def __init__(self, scheduler: str | None = None, count: int | None = None) -> None:
        self._address, self._count = scheduler, count or os.cpu_count() or 1
        self._owned: list[Any] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: object) -> None:
        for each in self._owned:
            each.close()

    def _client(self) -> Any:
        """Return the client; the first call starts the processes, or connects to the scheduler."""
        if self._owned:
            return self._owned[0]
        import dask.config  # here: a command that needs no workers starts sooner
        import distributed

        if self._address is None:
            # A task that waits at a worker would share its death.
            with dask.config.set({SATURATION: 1}):
                cluster = distributed.LocalCluster(
                    n_workers=self._count,
                    threads_per_worker=1,
                    dashboard_address=":0",
                    memory_limit=0,
                )
            self._owned = [distributed.Client(cluster), cluster]
            return self._owned[0]
        try:
            self._owned = [distributed.Client(self._address, timeout=PATIENCE)]
        except (OSError, ValueError) as error:
            raise WorkersError(f"--scheduler {self._address}: {error}") from error
        return self._owned[0]

    def run(
        self, function: Callable[[Task], Result], tasks: Mapping[str, Task]
    ) -> Iterator[tuple[str, Result | Lost]]:
        """Carry out tasks; yield the key and the result of each as soon as it has ended.

        Parameters
        ----------
        function : callable
            Function of a module, which each worker imports.
        tasks : mapping
            Task of each key.

        Raises
        ------
        WorkersError
            If a worker has other code, or several threads.
        Exception
            What the function raises. Tasks that have not begun are given up.
        """
        if not tasks:
            return
        import distributed

        client = self._client()
        futures = {
            client.submit(
                _call,
                function,
                task,
                store.code(),
                key=f"{key} {uuid4()}",
                pure=False,
            ): key
            for key, task in tasks.items()
        }
        # Results are fetched while the caller has others: one that a worker holds dies with it.
        ended = distributed.as_completed(futures, with_results=True, raise_errors=False)
        try:
            for future, result in ended:
                key = futures.pop(future)
                error = future.exception()
                if isinstance(error, distributed.KilledWorker):
                    yield key, Lost(str(error))
                elif error is not None:
                    raise error
                else:
                    yield key, result
                future.release()
        finally:
            client.cancel(list(futures))


def stored(
    workers: Workers,
    function: Callable[[Task], Result],
    tasks: Mapping[str, Task],
    results: store.Store[Result],
    keep: Callable[[Result], bool] = lambda _: True,
) -> Iterator[tuple[str, Result | Lost]]:
    """Yield the result of each task: first those of the store, then new ones, as ``Workers.run``.

    The store keeps new results, unless ``keep`` returns False.
    """
    known = {key: row for key in tasks if (row := results.get(key)) is not None}
    yield from known.items()
    missing = {key: task for key, task in tasks.items() if key not in known}
    for key, result in workers.run(function, missing):
        if not isinstance(result, Lost) and keep(result):
            results.put(key, result)
        yield key, result


def _call(function: Callable[[Any], Any], task: Any, expected: str) -> Any:
    """Carry out a task on a worker."""
    from distributed import get_worker

    worker = get_worker()
    if store.code() != expected:
        raise WorkersError(
            f"worker {worker.address}: its code differs from that of this command: it must run in "
            "a clone of the same commit"
        )
    if worker.state.nthreads != 1:
        raise WorkersError(
            f"worker {worker.address}: {worker.state.nthreads} threads; must be 1: --nthreads 1"
        )
    return function(task)
