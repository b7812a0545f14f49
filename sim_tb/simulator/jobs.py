"""Several jobs in one simulation: a file has the list of jobs, another file receives the results.

``results`` is for the process that starts the simulator. ``given`` and ``Results`` are for the
cocotb module that carries out the jobs.
"""

import fcntl
import hashlib
import os
import pickle
import signal
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from hw.flow import cache
from hw.params import PRESETS, TmaParams
from sim_tb.simulator import by_value, runner

JOBS, RESULTS = "JOBS_FILE", "JOBS_RESULTS"
LOOK = 0.05
"""Seconds between two reads of the file of results."""


def results(
    module: str,
    jobs: Sequence[Any],
    *,
    env: Mapping[str, str],
    params: TmaParams = PRESETS["default"],
    seed: int = 1,
) -> Generator[Any, None, None]:
    """Carry out ``jobs`` in the cocotb module ``module``; yield each result as soon as it is there.

    Jobs and results can be of any type that pickle supports; classes of jobs may also be those of a
    script or of a notebook. If the simulation fails, their files stay under ``build/jobs`` for the
    command that repeats it.

    Raises
    ------
    SendError
        If a job cannot be pickled.
    SimulationError
        If the simulation fails, or ends before all jobs have results.
    KeyboardInterrupt
        After Ctrl-C, when the simulator has ended.
    """
    if not jobs:
        return
    contents = by_value.dumps(jobs)
    runner.build_as_asked(params)  # here, because Ctrl-C does not end the thread of the simulation
    label = hashlib.sha256(contents + repr((params, seed, sorted(env.items()))).encode())
    directory = cache.created(cache.run_folder() / "jobs" / label.hexdigest()[:16])
    given, made = directory / "jobs", directory / "results"
    files = {JOBS: str(given), RESULTS: str(made)}
    with ThreadPoolExecutor(1) as pool, given.open("ab") as lock, made.open("ab+") as file:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may carry out the same jobs
        given.write_bytes(contents)
        file.truncate(0)
        file.seek(0)
        run = pool.submit(runner.run, module, params=params, seed=seed, env={**files, **env})
        process: int | None = None
        try:
            process = _next(file, run)
            for _ in jobs:
                yield _next(file, run)
        except KeyboardInterrupt:
            with suppress(ProcessLookupError, runner.SimulationError):
                os.kill(process or _next(file, run), signal.SIGTERM)
            raise
        run.result()
        for each in given, made:  # emptied, not removed: another process may wait for the lock
            os.truncate(each, 0)


def _next(file: Any, run: "Future[Path]") -> Any:
    while True:
        last, start = run.done(), file.tell()
        try:
            return pickle.load(file)
        except (EOFError, pickle.UnpicklingError):
            file.seek(start)  # the next result is incomplete or missing
        if last:
            run.result()
            raise runner.SimulationError("the simulation ended before all jobs had results")
        time.sleep(LOOK)


def given() -> Any:
    """Return the list of jobs, in the simulator."""
    return by_value.loads(Path(os.environ[JOBS]).read_bytes())


class Results:
    """Context manager that writes the results in the simulator, in the order of the jobs.

    The file begins with the number of the simulator's process.
    """

    def __enter__(self) -> "Results":
        self._file = Path(os.environ[RESULTS]).open("wb", buffering=0)
        self.put(os.getpid())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def put(self, result: Any) -> None:
        """Write one result for the process that started the simulator."""
        self._file.write(pickle.dumps(result))
