"""Runs recorded cases through the RTL in a simulator."""

from collections.abc import Iterable, Iterator

from golden.vectors import Case, Outcome
from hw.params import PRESETS, TmaParams
from sim_tb.simulator import jobs

MODULE = "sim_tb.conformance.tb_conformance"
CLUSTER_MODULE = "sim_tb.conformance.tb_multicast"


def outcomes(
    cases: Iterable[Case],
    *,
    models: str = "fixed",
    params: TmaParams = PRESETS["default"],
    cluster: TmaParams = PRESETS["cluster"],
    seed: int = 1,
) -> Iterator[Outcome]:
    """Run ``cases`` on the RTL, all in one simulation; yield the outcome of each, in order.

    Parameters
    ----------
    cases : iterable of Case
        Recorded cases. Multicasts run on a cluster, in a second simulation.
    models : str
        Preset of ``sim_tb.testbench.models``, such as ``fixed`` or ``rough``.
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
    env = {"CONFORMANCE_MODELS": models}
    units = {False: (MODULE, params), True: (CLUSTER_MODULE, cluster)}
    answers = {
        multicast: jobs.results(
            module,
            [case for case in selected if case.is_multicast is multicast],
            env=env,
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
