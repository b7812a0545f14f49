"""The simulations of ``make coverage``: which there are, and how they run."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from golden.vectors import read_cases
from hw.params import PRESETS as PARAMS
from sim_tb.coverage.kinds import SAMPLES
from sim_tb.simulator import runner
from sim_tb.simulator.progress import progress_bar
from sim_tb.testbench.models import PRESETS as MODELS

SILICON = runner.ROOT / "tests" / "silicon" / "transfers.npz"

LOADS = "tests.top.tb_loads"
STORES = "tests.top.tb_stores"
CLUSTERS = "tests.top.tb_clusters"
EDGES = "tests.top.tb_edges"
BARRIERS = "tests/hw/barrier/test_barrier_step.py"
SERIAL_MODELS = ("fixed", "rough")
"""Memory models with which random loads also run one at a time."""

WORKERS = 2
"""Simulations that run at the same time."""


@dataclass(frozen=True)
class Job:
    """A simulation: its name in messages, and the arguments of ``python -m``.

    One of another design than the unit has kinds only, and counts no branches.
    """

    name: str
    command: tuple[str, ...]
    counts_branches: bool = True


def jobs(preset: str, seeds: int, count: int) -> list[Job]:
    """Return all simulations of a unit, loads first.

    Parameters
    ----------
    preset : str
        Parameters of the unit. Only the default unit runs the recorded transfers.
    seeds : int
        Number of seeds of the random requests.
    count : int
        Random requests of each simulation.
    """
    made = []
    if preset == "default":
        options = ("--target", "rtl", "--kinds", silicon_kinds())
        made.append(Job("recorded transfers", ("sim_tb.conformance", str(SILICON), *options)))
        given = ("--env", "CLUSTER_MODELS=fixed", "--env", f"CLUSTER_COUNT={5 * count // 2}")
        cluster = ("sim_tb.runner", CLUSTERS, "random_requests", "--preset", "cluster", *given)
        made.append(Job("requests in a cluster", cluster, counts_branches=False))
    made.append(Job("barrier operations", ("pytest", "-q", "-p", "no:cacheprovider", BARRIERS)))
    made.append(Job("edges", ("sim_tb.runner", EDGES, "--preset", preset)))
    for seed, models in itertools.product(range(1, seeds + 1), MODELS):
        env = ("--env", f"LOADS_MODELS={models}", "--env", f"LOADS_COUNT={count}")
        arguments = ("--preset", preset, "--seed", str(seed), *env)
        if (seed, models) == (1, "fixed"):  # all tests of the module, directed ones included
            made.append(Job("rules and loads", ("sim_tb.runner", LOADS, *arguments)))
            continue
        for test in ["one_at_a_time"] * (models in SERIAL_MODELS) + ["in_flight"]:
            command = ("sim_tb.runner", LOADS, test, *arguments)
            made.append(Job(f"{test}, {models}, seed {seed}", command))
    for seed, models in itertools.product(range(1, seeds + 1), MODELS):
        env = ("--env", f"STORES_MODELS={models}", "--env", f"STORES_COUNT={count}")
        arguments = ("--preset", preset, "--seed", str(seed), *env)
        if (seed, models) == (1, "fixed"):  # all tests of the module, directed ones included
            made.append(Job("rules and stores", ("sim_tb.runner", STORES, *arguments)))
            continue
        command = ("sim_tb.runner", STORES, "random_stores", *arguments)
        made.append(Job(f"random_stores, {models}, seed {seed}", command))
    return made


def silicon_kinds() -> str:
    """Return the kinds of recorded cases that a unit without a cluster can run, for ``--kinds``."""
    is_supported: dict[str, bool] = {}
    for case in read_cases(SILICON):
        is_supported[case.kind] = is_supported.get(case.kind, True) and not case.is_multicast
    return ",".join(kind for kind, supported in is_supported.items() if supported)


def simulate(preset: str, selected: Sequence[Job], directory: Path, console: Console) -> list[str]:
    """Run simulations on the build that counts branches.

    Parameters
    ----------
    preset : str
        Parameters of the unit.
    selected : sequence of Job
        Simulations to run.
    directory : Path
        Its folders ``kinds`` and ``branches`` are emptied and then receive the counts.
    console : Console
        Shows the progress.

    Returns
    -------
    list of str
        Output of each simulation that failed.
    """
    kinds, branches = directory / "kinds", directory / "branches"
    for folder in kinds, branches:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    env = {
        **os.environ,
        SAMPLES: str(kinds.resolve()),
        runner.COVERAGE_DIRECTORY: str(branches.resolve()),
    }
    runner.build(PARAMS[preset], coverage=True)
    failed = []
    with (
        progress_bar(console) as progress,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        task = progress.add_task("simulations", total=len(selected))
        runs = {pool.submit(_run, job, env): job for job in selected}
        for run in as_completed(runs):
            progress.update(task, advance=1, description=runs[run].name)
            result = run.result()
            if result.returncode:
                failed.append(f"{runs[run].name} failed\n{result.stdout}{result.stderr}")
    return failed


def _run(job: Job, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", "-m", *job.command]
    if not job.counts_branches:
        env = {name: text for name, text in env.items() if name != runner.COVERAGE_DIRECTORY}
    return subprocess.run(
        command, env=env, cwd=runner.ROOT, capture_output=True, text=True, check=False
    )
