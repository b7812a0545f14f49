"""Mutation score: what is kept of the runs of mutants, and how it is counted."""

import re
import tomllib
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from hw.flow.cache import ROOT
from hw.flow.mutate import Mutant, Mutants
from sim_tb.mutation import command, suites
from sim_tb.mutation.command import (
    COUNT,
    SEED,
    Crew,
    Fate,
    contradictions,
    explanations,
    fates,
    main,
    table,
)
from sim_tb.mutation.results import Results
from sim_tb.mutation.suites import SUITES, Trial, Verdict
from sim_tb.simulator import runner
from tests.sim_tb.distribution.serial import Serial
from tests.top import test_loads, test_stores

NAMES = ["recordings", "random"]
KILLERS = {1: {"recordings", "random"}, 2: {"random"}, 3: set(), 4: set()}
"""Suites that kill each mutant; the third is equivalent."""


class Stub(Mutants):
    """Mutants without a netlist."""

    def is_equivalent(self, mutant: Mutant, seconds: float = 60) -> bool:
        del seconds
        return mutant.number == 3


MUTANTS = Stub(Path(), [Mutant(number, "AB"[number % 2], f"-port {number}") for number in KILLERS])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Return the list of runs of suites on mutants, which are not simulated."""
    made = []

    def judge(
        numbers: list[int], suite: str, known: list[Trial], subject: str, directory: Path
    ) -> dict[int, Verdict]:
        del known, subject, directory
        made.extend((number, suite) for number in numbers)
        how = "a test: failed"
        return {
            number: Verdict(how if suite in KILLERS[number] else None, 1.0) for number in numbers
        }

    monkeypatch.setattr(suites, "judge", judge)
    monkeypatch.setattr(suites, "rtl", lambda mutants, _: mutants.directory)
    monkeypatch.setattr(command, "plant", lambda *_: MUTANTS)
    return made


def run_all(path: Path, apart: int = COUNT, **changed: str) -> list[Fate]:
    results = Results(path, {name: changed.get(name, "first") for name in NAMES})
    for name in NAMES:
        results.put_trials(name, [Trial("a test", 100, [1, 2]), Trial("another", 50, [2, 4])])
    crew = Crew(Serial(), Console())
    found = fates(crew, (4, 1, "unit"), MUTANTS.planted, NAMES, results, apart)
    results.close()
    return found


def test_each_suite_runs_on_each_mutant(tmp_path, runs):
    found = run_all(tmp_path / "results")
    assert runs == [(number, name) for name in NAMES for number in (1, 2, 4)]  # 3 never acts
    assert [each.killed_by for each in found] == [frozenset(names) for names in KILLERS.values()]
    assert [each.equivalent for each in found] == [False, False, True, False]
    assert [each.is_alive for each in found] == [False, False, False, True]


def test_suites_run_on_what_quicker_ones_left_alive(tmp_path, runs):
    together = run_all(tmp_path / "together", apart=0)
    assert runs == [(1, "random"), (2, "random"), (4, "random"), (4, "recordings")]
    runs.clear()
    found = run_all(tmp_path / "apart", apart=1)
    assert runs == [
        (1, "recordings"),
        (1, "random"),
        (2, "random"),
        (4, "random"),
        (4, "recordings"),
    ]
    assert [each.killed_by for each in found] == [frozenset(names) for names in KILLERS.values()]
    assert [each.is_alive for each in together] == [each.is_alive for each in found]


def test_a_second_run_goes_on_where_the_first_ended(tmp_path, runs):
    first = run_all(tmp_path / "results")
    runs.clear()
    assert run_all(tmp_path / "results") == first
    assert not runs
    run_all(tmp_path / "results", random="second")
    assert runs == [(4, "random")]


def test_the_table_counts_mutants_that_are_not_equivalent(tmp_path, runs):
    del runs
    shown = table(run_all(tmp_path / "results"), NAMES)
    rows = list(zip(*(column.cells for column in shown.columns), strict=True))
    assert rows == [
        ("A", "2", "0", "0", "1", "0", "1", "50.0%"),
        ("B", "2", "1", "1", "1", "0", "0", "100.0%"),
        ("all", "4", "1", "1", "2", "0", "1", "66.7%"),
    ]


def test_a_mutant_with_a_reason_is_explained(tmp_path, runs, monkeypatch):
    del runs
    monkeypatch.setattr(command, "explanations", lambda _netlist: {"-port 4": "It is right."})
    shown = table(run_all(tmp_path / "results"), NAMES)
    rows = list(zip(*(column.cells for column in shown.columns), strict=True))
    assert rows[-1] == ("all", "4", "1", "1", "2", "1", "0", "66.7%")


EQUIVALENT = Fate(Mutant(5, "A", "-port 5"), frozenset({"blocks"}), equivalent=True)
"""Equivalent in the unit; the tests of its block look at what the unit does not use."""


def test_an_equivalent_mutant_is_not_counted_as_killed():
    alive = Fate(Mutant(1, "A", "-port 1"), frozenset(), equivalent=False)
    shown = table([alive, EQUIVALENT], ["blocks"])
    rows = list(zip(*(column.cells for column in shown.columns), strict=True))
    assert rows[0] == ("A", "2", "1", "0", "0", "1", "0.0%")


def test_reasons_and_proofs_do_not_contradict_tests():
    killed = replace(EQUIVALENT, equivalent=False)
    explained = replace(killed, killed_by=frozenset(), reason="x")
    assert contradictions([EQUIVALENT, killed, explained]) == []
    assert contradictions([replace(killed, reason="x"), replace(EQUIVALENT, reason="x")]) == [
        "survivors.toml explains mutant 5, which is killed by blocks",
        "survivors.toml explains mutant 5, which is equivalent",
    ]
    assert contradictions([replace(EQUIVALENT, killed_by=frozenset({"blocks", "random"}))]) == [
        "mutant 5 is proved equivalent, and killed by blocks, random"
    ]


def test_reasons_are_of_one_mutant_each(tmp_path):
    path = tmp_path / "survivors.toml"
    head = 'netlist = "1234"\n'
    entry = '[[survivor]]\nmutants = ["-mode inv", "-mode const0"]\nreason = "It is right."\n'
    path.write_text(head + entry)
    reasons = dict.fromkeys(["-mode inv", "-mode const0"], "It is right.")
    assert explanations("1234", path) == reasons
    assert explanations("5678", path) == {}  # the options name cells of another netlist
    path.write_text(head + entry * 2)
    with pytest.raises(ValueError, match=r"two reasons for -mode inv$"):
        explanations("1234", path)
    path.write_text(head + entry.replace("reason", "why"))
    with pytest.raises(ValueError, match="a table has mutants, why: not mutants and reason"):
        explanations("1234", path)
    of_unit = tomllib.loads(command.EXPLANATIONS.read_text())["netlist"]
    assert explanations(of_unit)


def test_the_count_is_positive(capsys):
    with pytest.raises(SystemExit):
        main(["--count", "0"])
    assert "--count 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in suites.SUBJECTS if name != "unit"])
def test_mutants_are_in_blocks_around_the_unit(name):
    subject = suites.SUBJECTS[name]
    kinds = {block.kind for block in subject.design().blocks()}
    assert subject.kinds & kinds
    assert "RequestQueue" not in subject.kinds


def test_no_mutants_may_be_apart(capsys):
    with pytest.raises(SystemExit):
        main(["--apart", "-1"])
    assert "--apart -1: must be at least 0" in capsys.readouterr().err


def test_suites_that_know_the_unit_need_it(capsys):
    with pytest.raises(SystemExit):
        main(["--design", "axi", "--suite", "blocks"])
    assert "--suite blocks: needs --design unit" in capsys.readouterr().err


def test_directed_tests_are_those_of_the_unit():
    assert list(suites.LOAD_RULES) == test_loads.RULES
    assert list(suites.STORE_RULES) == test_stores.RULES
    edges = (ROOT / "tests" / "top" / "tb_edges.py").read_text()
    assert list(suites.EDGES) == re.findall(r"@cocotb\.test\(\)\nasync def (\w+)", edges)


@pytest.mark.regress
def test_suites_pass_without_a_mutant_and_kill_mutants():
    mutants = suites.plant(COUNT, SEED, "unit")
    directory = suites.rtl(mutants, "unit")
    runner.build(suites.SUBJECTS["unit"].params, rtl=directory, optimisation=suites.OPTIMISATION)
    differing = (each.number for each in mutants.planted if not mutants.is_equivalent(each))
    chosen = list(islice(differing, 8))
    for name in SUITES:
        known = suites.trials(name, "unit", mutants)
        verdicts = suites.judge(chosen, name, known, "unit", directory)
        killed = [number for number in chosen if verdicts[number].killed_by is not None]
        assert len(killed) >= 4, f"{name} kills {killed} of {chosen}"
