"""The RTL against silicon vectors: runs cases in a simulator and says what it did."""

from collections.abc import Iterable, Iterator

from golden.vectors import Case, Outcome
from hw.params import PRESETS, TmaParams
from sim_tb import jobs

MODULE = "sim_tb.bench_conformance"


def unsupported(case: Case) -> str | None:
    """Why the unit has no answer to ``case`` yet; None if it has."""
    return "multicast" if case.is_multicast else None


def outcomes(
    cases: Iterable[Case],
    *,
    models: str = "fixed",
    params: TmaParams = PRESETS["default"],
    seed: int = 1,
) -> Iterator[Outcome]:
    """Run ``cases`` on the RTL, all in one simulation; yield an outcome each, as they finish.

    Parameters
    ----------
    cases : iterable of Case
        What the unit does not do yet is not simulated: its outcome has a note that says so.
    models : str
        A preset of ``sim_tb.models``, such as ``fixed`` or ``rough``.
    params, seed
        As for ``sim_tb.runner.run``.

    Raises
    ------
    SimulationError
        When the simulator breaks off.
    """
    selected = list(cases)
    simulated = [case for case in selected if unsupported(case) is None]
    env = {"CONFORMANCE_MODELS": models}
    answers = jobs.results(MODULE, simulated, env=env, params=params, seed=seed)
    for case in selected:
        reason = unsupported(case)
        yield Outcome(note=f"not supported yet: {reason}") if reason else next(answers)
    for _ in answers:  # lets the simulation end
        pass
