"""Workers and the store: tasks outlive their workers, and results outlive the run."""

import argparse
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import distributed
import pytest

from sim_tb.command_line import Parser, entry_point
from sim_tb.distribution import store, workers
from sim_tb.distribution.store import Store
from sim_tb.distribution.workers import Lost, Workers, WorkersError


@dataclass(frozen=True)
class Square:
    """A result: the number, its square, and the process that found it."""

    number: int
    square: int
    process: int


@dataclass(frozen=True)
class Task:
    """A number; a worker dies of it ``deaths`` times. Each try leaves a file in a folder."""

    folder: Path
    number: int
    deaths: int = 0

    @property
    def tries(self) -> list[Path]:
        return [*self.folder.glob(f"{self.number}.*")]


def square(task: Task) -> Square:
    tries = len(task.tries)
    (task.folder / f"{task.number}.{tries}").touch()
    time.sleep(0.2)  # as long as a worker needs to hand over its result before
    if tries < task.deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    if task.number < 0:
        raise ValueError(f"{task.number}: must be at least 0")
    return Square(task.number, task.number**2, os.getpid())


def tasks(folder: Path, **deaths: int) -> dict[str, Task]:
    return {str(n): Task(folder, n, deaths.get(f"task_{n}", 0)) for n in range(8)}


def squares(results: dict[str, object]) -> dict[str, int]:
    return {key: each.square for key, each in results.items() if isinstance(each, Square)}


SQUARES = {str(n): n * n for n in range(8)}


def test_a_worker_that_is_killed_costs_its_task_only(tmp_path):
    given = tasks(tmp_path, task_3=1)
    with Workers(count=2) as crew:
        results = dict(crew.run(square, given))
    assert squares(results) == SQUARES
    processes = {each.process for each in results.values()}
    assert len(processes) >= 2
    assert os.getpid() not in processes
    assert {key: len(task.tries) for key, task in given.items()} == {
        key: 2 if key == "3" else 1 for key in given
    }


def test_a_task_that_kills_each_worker_is_lost_alone(tmp_path):
    with Workers(count=2) as crew:
        results = dict(crew.run(square, tasks(tmp_path, task_5=100)))
    assert isinstance(results["5"], Lost)
    assert squares(results) == {key: value for key, value in SQUARES.items() if key != "5"}


def test_a_run_goes_on_where_it_stopped(tmp_path):
    given = tasks(tmp_path)
    path = tmp_path / "folder" / "results.sqlite"
    with Workers(count=2) as crew:
        with Store(path, Square) as results:
            first = workers.stored(crew, square, given, results)
            kept = [next(first) for _ in range(3)]
            first.close()
        before = {key: len(task.tries) for key, task in given.items()}
        with Store(path, Square) as results:
            assert [results.get(key) for key, _ in kept] == [each for _, each in kept]
            assert squares(dict(workers.stored(crew, square, given, results))) == SQUARES
    for key, _ in kept:
        assert len(given[key].tries) == before[key]


def test_commands_run_at_the_same_time(tmp_path):
    """Each scheduler takes a free port: a warning about one in use would be an error."""
    given = tasks(tmp_path)
    with Workers(count=1) as first, Workers(count=1) as second:
        ways = first.run(square, given), second.run(square, given)
        assert [squares(dict(way)) for way in ways] == [SQUARES, SQUARES]


def test_an_error_of_a_task_ends_the_run(tmp_path):
    with Workers(count=1) as crew, pytest.raises(ValueError, match="-1: must be at least 0"):
        list(crew.run(square, {"-1": Task(tmp_path, -1)}))


def test_workers_of_a_scheduler_have_the_same_code(tmp_path, monkeypatch):
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        with Workers(cluster.scheduler_address) as crew:
            assert squares(dict(crew.run(square, tasks(tmp_path)))) == SQUARES
        monkeypatch.setattr(store, "code", lambda: "other")
        with (
            Workers(cluster.scheduler_address) as crew,
            pytest.raises(WorkersError, match="clone of the same commit"),
        ):
            list(crew.run(square, tasks(tmp_path)))


def test_workers_have_one_thread(tmp_path):
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, dashboard_address=":0"
        ) as cluster,
        Workers(cluster.scheduler_address) as crew,
        pytest.raises(WorkersError, match="2 threads; must be 1: --nthreads 1"),
    ):
        list(crew.run(square, tasks(tmp_path)))


@entry_point
def command(arguments: list[str]) -> int:
    parser = Parser(prog="command")
    workers.add_arguments(parser)
    with workers.of(parser.parse_args(arguments), parser) as crew:
        list(crew.run(square, {"1": Task(Path(), 1)}))
    return 0


def test_a_scheduler_that_nobody_reaches_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(workers, "PATIENCE", 1)
    assert command(["--scheduler", "tcp://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("--scheduler tcp://127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "--workers 0: must be at least 1"),
        (["--workers", "1", "--scheduler", "tcp://a:1"], "not allowed with argument"),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        command(arguments)
    assert message in capsys.readouterr().err


def test_defaults_are_all_cores():
    parser = argparse.ArgumentParser()
    workers.add_arguments(parser)
    assert vars(parser.parse_args([])) == {"scheduler": None, "workers": None}
