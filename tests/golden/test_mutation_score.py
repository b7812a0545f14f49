"""Tool of the golden model's mutation score, without a run of mutmut."""

import doctest
import json
import re

from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

from hw.flow.cache import ROOT
from hw.flow.tables import read_table
from tests.golden import mutation
from tests.golden.mutation import Explanation, Mutant, Score

SOURCE = """
def half(value):
    other = value // 2
    return other
"""


def planted(folder):
    """Return the mutants of SOURCE, which mutmut plants in a module of the golden model."""
    file = folder / "walk.py"
    made = mutate_file_contents("golden/walk.py", SOURCE)
    file.write_text(made.code)
    spans = {name: (at.start, at.end) for name, at in made.line_span_by_function_name.items()}
    mutation.beside(file, "spans").write_text(json.dumps({"spans": spans}))
    names = [get_mutant_name(ROOT / "golden/walk.py", name) for name in made.mutant_names]
    names = [name.rpartition("golden.")[2] for name in names]
    codes = {f"golden.{name}": None for name in names}
    mutation.beside(file, "meta").write_text(json.dumps({"exit_code_by_key": codes}))
    return [*mutation.mutants_of(file)]


def test_examples():
    assert doctest.testmod(mutation).failed == 0


def test_a_mutant_has_the_lines_that_change(tmp_path):
    mutants = planted(tmp_path)
    assert {mutant.function for mutant in mutants} == {"walk.half"}
    assert {mutant.old for mutant in mutants} == {"other = value // 2"}
    assert {mutant.new for mutant in mutants} >= {"other = value / 2", "other = None"}


def test_a_larger_sample_begins_with_a_smaller_one():
    names = [f"golden.walk.x_start__mutmut_{number}" for number in range(50)]
    first = mutation.sample(names, 10, 1)
    assert mutation.sample(names[::-1], 20, 1)[:10] == first
    assert mutation.sample(names, 10, 2) != first
    others = {f"golden.model.x_check__mutmut_{number}" for number in range(50)}
    assert [name for name in mutation.sample([*names, *others], 100, 1) if name in names] == (
        mutation.sample(names, 50, 1)
    )


def test_an_explanation_fits_exactly_its_points(tmp_path):
    mutants = planted(tmp_path)
    states = {mutant.name: "survived" for mutant in mutants}
    known = [Explanation("walk.h*", "Nothing reads it.", "// 2", "None")]
    explained, wrong = mutation.misfits(known, mutants, states)
    assert {mutant.new for mutant in explained} == {"other = None"}
    assert not wrong
    wide = [Explanation("walk.h*", "Nothing reads it.", "// 2")]
    assert "not 1" in mutation.misfits(wide, mutants, states)[1][0]
    killed = states | {mutant.name: "killed" for mutant in explained}
    assert "but killed" in mutation.misfits(known, mutants, killed)[1][0]


def test_counts():
    mutants = [Mutant(f"golden.walk.x_start__mutmut_{number}", "", "") for number in range(6)]
    states = "killed", "timeout", mutation.BY_TYPES, "survived", "no tests", "survived"
    score = Score(dict(zip(mutants, states, strict=True)), {mutants[5]})
    cells = "6", "3", "1", "1", "2", "60.0%"
    assert [*score.rows()] == [("walk", *cells), ("**all**", *cells)]
    assert score.alive == mutants[3:5]


def test_explanations_are_about_the_code_as_it_is():
    for each in mutation.explanations():
        module = each.function.partition(".")[0]
        sources = [path.read_text() for path in (ROOT / "golden").glob(f"{module}.py")]
        assert any(each.old in " ".join(source.split()) for source in sources), each
        assert each.reason.endswith("."), each


def test_the_documented_table_adds_up():
    head, rows = read_table(mutation.PAGE.read_text(), "golden")
    assert tuple(head) == mutation.HEAD
    counts = [[int(cell) for cell in row[1:6]] for row in rows]
    assert [sum(column) for column in zip(*counts[:-1], strict=True)] == counts[-1]
    for mutants, killed, by_types, explained, alive in counts:
        assert mutants == killed + explained + alive
        assert by_types <= killed
    assert all(re.fullmatch(r"\d+\.\d%|-", row[6]) for row in rows)
