"""The RTL against silicon vectors: runs cases in a simulator and says what it did."""

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
    """Run ``cases`` on the RTL, all in one simulation; yield an outcome each, as they finish.

    Parameters
    ----------
    cases : iterable of Case
        Multicasts go to a cluster, in a simulation of their own.
    models : str
        A preset of ``sim_tb.testbench.models``, such as ``fixed`` or ``rough``.
    params, seed
        As for ``sim_tb.simulator.runner.run``.
    cluster : TmaParams
        The units of the cluster.

    Raises
    ------
    SimulationError
        When the simulator breaks off.
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
        for _ in rest:  # lets the simulation end
            pass
