"""Runs recorded cases through the RTL in a simulator."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from golden.vectors import Case
from golden.vectors import Outcome as TransferOutcome
from hw.params import PRESETS, TmaParams
from sim_tb.conformance.barriers import BarrierProgram, Result
from sim_tb.conformance.clusters import WINDOW_BYTES, ClusterProgram, Outcome
from sim_tb.conformance.memory_side import DEFAULT, MemorySide
from sim_tb.simulator import jobs

MODULE = "sim_tb.conformance.tb_conformance"
CLUSTER_MODULE = "sim_tb.conformance.tb_multicast"


BARRIER_MODULE = "sim_tb.conformance.tb_barriers"
PROGRAM_MODULE = "sim_tb.conformance.tb_clusters"

CLUSTER = replace(
    PRESETS["cluster"],
    ctas=8,
    smem_bytes=-(-WINDOW_BYTES // 128) * 128,
    tags=64,
    requests_in_flight=16,
    setup_pipelines=2,
    lane_depth=8,
    smem_reads=16,
    threads=4,
    streams=1,
    bulk_groups=4,
    barrier_waiters=8,
)
"""Cluster for recorded programs: as many CTAs as the largest of them, with their shared memory."""


def outcomes(
    cases: Iterable[Case],
    *,
    memory: MemorySide = DEFAULT,
    params: TmaParams = PRESETS["default"],
    cluster: TmaParams = PRESETS["cluster"],
    seed: int = 1,
) -> Iterator[TransferOutcome]:
    """Run ``cases`` on the RTL, all in one simulation; yield the outcome of each, in order.

    Parameters
    ----------
    cases : iterable of Case
        Recorded cases. Multicasts run on a cluster, in a second simulation.
    memory : MemorySide
        What is around the RTL.
    params : TmaParams
        Parameters of the unit.
    cluster : TmaParams
        Parameters of each unit of the cluster.
    seed : int
        Seed of the simulations.

    Raises
    ------
    SimulationError
        If a simulation fails.
    """
    selected = list(cases)
    units = {False: (MODULE, params), True: (CLUSTER_MODULE, cluster)}
    answers = {
        multicast: _results(
            module,
            [case for case in selected if case.is_multicast is multicast],
            memory=memory,
            params=unit,
            seed=seed,
        )
        for multicast, (module, unit) in units.items()
    }
    for case in selected:
        yield next(answers[case.is_multicast])
    for rest in answers.values():
        for _ in rest:  # wait for the end of the simulation
            pass


def barrier_results(
    programs: Sequence[BarrierProgram],
    *,
    memory: MemorySide = DEFAULT,
    params: TmaParams = PRESETS["default"],
    seed: int = 1,
) -> Iterator[list[Result]]:
    """Run programs of mbarrier operations on the RTL, all in one simulation.

    Parameters are those of `outcomes`. Yield the results of each program, in order: those of its
    operations up to the first one that failed.

    Raises
    ------
    SimulationError
        If the simulation fails.
    """
    return _results(BARRIER_MODULE, programs, memory=memory, params=params, seed=seed)


def cluster_outcomes(
    programs: Sequence[ClusterProgram],
    *,
    memory: MemorySide = DEFAULT,
    cluster: TmaParams = CLUSTER,
    seed: int = 1,
) -> Iterator[Outcome | str]:
    """Run programs on a cluster of the RTL, all in one simulation.

    Parameters are those of `outcomes`. Yield the outcome of each program, in order, or a message if
    the testbench found a violated rule.

    Raises
    ------
    ValueError
        If a program has more CTAs than the cluster.
    SimulationError
        If the simulation fails.
    """
    for program in programs:
        if program.ctas > cluster.ctas:
            raise ValueError(f"{program} has {program.ctas} CTAs: must have up to {cluster.ctas}")
    return _results(PROGRAM_MODULE, programs, memory=memory, params=cluster, seed=seed)


def _results(
    module: str, given: Sequence[Any], *, memory: MemorySide, params: TmaParams, seed: int
) -> Iterator[Any]:
    env = {"CONFORMANCE_MODELS": memory.models}
    return jobs.results(module, given, env=env, params=memory.of(params), seed=seed)
