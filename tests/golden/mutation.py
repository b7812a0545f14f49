"""Mutation score of the golden model: ``make mutate-golden``.

mutmut plants the mutants, in copies of the modules below ``build/mutation/golden``, and runs the
tests that call the function of a mutant. Its settings are in ``pyproject.toml``. This command
chooses a sample, explains mutants that live by ``survivors.toml``, and writes the table.
docs/mutation.md says which mutants there are.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from hw.flow.cache import ROOT, digest, run_folder
from hw.flow.tables import filled, table
from sim_tb.command_line import CommandError, Parser, entry_point, suggestion
from sim_tb.mutation.command import share

FOLDER = run_folder() / "mutation" / "golden"
"""Where mutmut works: a copy of the clone, and one with mutants in ``mutants``."""

PAGE = ROOT / "docs" / "mutation.md"
EXPLANATIONS = Path(__file__).with_name("survivors.toml")
HEAD = "module", "mutants", "killed", "by types", "explained", "alive", "killed of the others"

SKIPPED = 34
"""Exit code by which mutmut marks a mutant that does not run."""

REFUSED, BY_TYPES = 37, "caught by type check"
CHECK_TYPES = (
    *("-m", "mypy", "--output=json"),
    "--no-warn-unused-ignores",  # mutmut adds comments
    "--disable-error-code=no-redef",  # each copy of a constructor declares the same members
)
NOT_RUN = {"not checked", "skipped"}
KILLED = {"killed", "timeout", "segfault", BY_TYPES}
"""States of mutmut in which a mutant is killed."""


@dataclass(frozen=True)
class Mutant:
    """A mutant.

    Parameters
    ----------
    name : str
        Its name in mutmut.
    old, new : str
        The changed lines before and after, joined by blanks.
    """

    name: str
    old: str
    new: str

    @property
    def module(self) -> str:
        """Name of the module, without the package."""
        return self.name.split(".")[1]

    @property
    def function(self) -> str:
        """Name of the function below the package.

        >>> Mutant("golden.walk.xǁWalkǁnext__mutmut_3", "a + b", "a - b").function
        'walk.Walk.next'
        >>> Mutant("golden.walk.x_start__mutmut_1", "1", "2").function
        'walk.start'
        """
        function = self.name.rpartition(".")[2].partition("__mutmut_")[0]
        return f"{self.module}.{function.removeprefix('x')[1:].replace('ǁ', '.')}"

    def __str__(self) -> str:
        return f"{self.name}: {self.old}  ->  {self.new}"


@dataclass(frozen=True)
class Explanation:
    """Reason why mutants live.

    Parameters
    ----------
    function : str
        Pattern of functions, as for file names: ``memory.HashedMemory.*``.
    reason : str
        Why no test can kill the mutants, in one sentence.
    old, new : str
        Parts of the changed lines before and after.
    points : int
        Exact number of mutants of the model that it fits.
    """

    function: str
    reason: str
    old: str = ""
    new: str = ""
    points: int = 1

    def fits(self, mutant: Mutant) -> bool:
        """Return whether the explanation fits a mutant."""
        in_function = fnmatchcase(mutant.function, self.function)
        return in_function and self.old in mutant.old and self.new in mutant.new


def explanations(path: Path = EXPLANATIONS) -> list[Explanation]:
    """Return the explanations of a file.

    Raises
    ------
    ValueError
        If one has an unknown field or lacks one.
    """
    try:
        return [Explanation(**each) for each in tomllib.loads(path.read_text()).get("survivor", [])]
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error


def sample(names: Iterable[str], count: int, seed: int) -> list[str]:
    """Return ``count`` of the names, at random.

    A larger sample begins with a smaller one, and a name keeps its place if others come or go.
    """
    return sorted(names, key=lambda name: sha256(f"{seed} {name}".encode()).digest())[:count]


def changes(old: Iterable[str], new: Iterable[str]) -> tuple[str, str]:
    """Return the lines that differ between two texts, of each text joined by blanks.

    >>> changes(["a", " b", "c"], ["a", " d", " e", "c"])
    ('b', 'd e')
    """
    lines = [*unified_diff([*old], [*new], n=0, lineterm="")][2:]
    of = {sign: " ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+"}
    return of["-"], of["+"]


def beside(path: Path, suffix: str) -> Path:
    """Return a file that mutmut writes beside a mutated file."""
    return path.with_name(f"{path.name}.{suffix}")


def spans_of(path: Path) -> dict[str, tuple[int, int]]:
    """Return the first and the last line of each function in a mutated file."""
    return {
        name: (first, last)
        for name, (first, last) in json.loads(beside(path, "spans").read_text())["spans"].items()
    }


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield the mutants in a mutated file."""
    lines, spans = path.read_text().splitlines(), spans_of(path)

    def source(function: str) -> list[str]:
        first, last = spans[function]
        return [line.replace(f"{function}(", "(") for line in lines[first - 1 : last]]

    for name in json.loads(beside(path, "meta").read_text())["exit_code_by_key"]:
        function = name.rpartition(".")[2]
        original = f"{function.partition('__mutmut_')[0]}__mutmut_orig"
        yield Mutant(name, *changes(source(original), source(function)))


def copy_of(source: Path, target: Path) -> None:
    """Copy a file or a folder of the clone, with its times; files that are gone go."""
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


@dataclass(frozen=True)
class Work:
    """Folder in which mutmut works: copies of the files of the clone, and ``mutants``."""

    folder: Path

    def prepare(self) -> list[Mutant]:
        """Plant the mutants in the modules that changed; return all."""
        from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_file_mutants
        from mutmut.configuration import config
        from mutmut.utils.file_utils import walk_mutatable_files, walk_source_files

        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(self.folder):
            settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
            # Copies, not links: what builds the wheel follows links, also into ignored folders.
            for name in (
                "pyproject.toml",
                "tests",
                *settings["source_paths"],
                *settings["also_copy"],
            ):
                copy_of(ROOT / name, Path(name))
            shutil.rmtree("mutants/tests", ignore_errors=True)
            self._forget_stale_calls()
            with contextlib.redirect_stdout(io.StringIO()):
                copy_src_dir()
                copy_also_copy_files()
                for path in walk_source_files():
                    if error := create_file_mutants(path).error:
                        raise error
            assert config().should_mutate("golden/model.py")
            files = sorted(walk_mutatable_files())
            return [each for file in files for each in mutants_of("mutants" / file)]

    def _forget_stale_calls(self) -> None:
        """Remove what mutmut knows of the functions that each test calls, if a test changed."""
        from mutmut.configuration import config

        paths = [ROOT / name for name in config().pytest_add_cli_args_test_selection]
        files = [file for path in paths for file in (sorted(path.rglob("*.py")) or [path])]
        now = digest(file.read_text() for file in files if file != Path(__file__))
        key, calls = Path("tests.key"), Path("mutants/mutmut-stats.json")
        if not key.exists() or key.read_text() != now:
            calls.unlink(missing_ok=True)
            key.write_text(now)

    def _meta(self) -> Iterator[Path]:
        return (self.folder / "mutants").rglob("*.py.meta")

    def states(self) -> dict[str, str]:
        """Return the state of each mutant, in mutmut's words."""
        from mutmut.stats import status_by_exit_code

        codes = [json.loads(path.read_text())["exit_code_by_key"] for path in self._meta()]
        return {name: status_by_exit_code[code] for each in codes for name, code in each.items()}

    def refused(self) -> set[str]:
        """Return the mutants that mypy refuses.

        Raises
        ------
        CommandError
            If it refuses a copy without a mutant.
        """
        mutants = self.folder / "mutants"
        files = [path.relative_to(mutants).with_suffix("") for path in self._meta()]
        command = [sys.executable, *CHECK_TYPES, *files]
        report = subprocess.run(command, cwd=mutants, capture_output=True, text=True, check=False)
        lines: dict[str, list[int]] = {}
        for each in map(json.loads, filter(None, report.stdout.splitlines())):
            if each["severity"] == "error":
                lines.setdefault(each["file"], []).append(each["line"])
        found = set()
        for file, wrong in lines.items():
            spans = sorted((span, name) for name, span in spans_of(mutants / file).items())
            for line in wrong:
                (_, last), name = spans[bisect(spans, line, key=lambda each: each[0][0]) - 1]
                if line > last or name.endswith("_orig"):
                    raise CommandError(f"{file}: mypy refuses line {line}, which is no mutant's")
                found.add(f"{file.removesuffix('.py').replace('/', '.')}.{name}")
        return found

    def choose(self, chosen: set[str], again: set[str]) -> bool:
        """Let the mutants run that are chosen and have no result, or shall run again.

        Return whether there are any.
        """
        states = self.states()
        is_new = any(states[name] in NOT_RUN for name in chosen)
        refused = self.refused() if is_new else set()
        for path in self._meta():
            meta = json.loads(path.read_text())
            codes = meta["exit_code_by_key"]
            for name, code in codes.items():
                if name in refused:
                    codes[name] = REFUSED
                elif name not in chosen:
                    codes[name] = SKIPPED if code is None else code
                elif code == SKIPPED or name in again:
                    codes[name] = None
            path.write_text(json.dumps(meta, indent=4))
        states = self.states()
        return any(states[name] in NOT_RUN for name in chosen)

    def run(self, children: int) -> None:
        """Run mutmut.

        Raises
        ------
        CommandError
            If it fails.
        """
        programs = Path(sys.executable).parent
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        command = [programs / "mutmut", "run", "--max-children", str(children)]
        if status := subprocess.run(
            command, cwd=self.folder, env={**os.environ, "PATH": path}, check=False
        ).returncode:
            raise CommandError(f"mutmut ended with status {status}")


@dataclass(frozen=True)
class Score:
    """States of the mutants of a sample, and those of them that are explained."""

    states: Mapping[Mutant, str]
    explained: set[Mutant]

    @property
    def alive(self) -> list[Mutant]:
        """Mutants that live without an explanation."""
        living = [each for each, state in self.states.items() if state not in KILLED]
        return [each for each in living if each not in self.explained]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each module, and of all."""
        for module in (*sorted({mutant.module for mutant in self.states}), "**all**"):
            states = {
                mutant: state
                for mutant, state in self.states.items()
                if module in (mutant.module, "**all**")
            }
            part = Score(states, self.explained & states.keys())
            killed = sum(state in KILLED for state in states.values())
            alive = len(part.alive)
            counts = (
                len(states),
                killed,
                sum(state == BY_TYPES for state in states.values()),
                len(states) - killed - alive,
                alive,
            )
            yield module, *map(str, counts), share(killed, killed + alive)


def misfits(
    known: Sequence[Explanation], mutants: Iterable[Mutant], states: Mapping[str, str]
) -> tuple[set[Mutant], list[str]]:
    """Return the mutants that are explained, and a line for each explanation that is wrong."""
    fitting = {each: [mutant for mutant in mutants if each.fits(mutant)] for each in known}
    lines = [
        f"{EXPLANATIONS.name}: {each.function}, {each.old!r}: fits {len(found)} mutants, not "
        f"{each.points}"
        for each, found in fitting.items()
        if len(found) != each.points
    ]
    explained = {mutant for found in fitting.values() for mutant in found}
    lines += [f"explained, but killed: {each}" for each in explained if states[each.name] in KILLED]
    return explained, lines


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m tests.golden.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="mutants [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of their choice [%(default)s]")
    parser.add_argument("--module", help="only mutants of this module; default: all")
    parser.add_argument("--workers", type=int, default=1, help="processes [%(default)s]")
    parser.add_argument(
        "--docs", action="store_true", help=f"write the table to {PAGE.relative_to(ROOT)} too"
    )
    options = parser.parse_args(arguments)
    for name in "count", "workers":
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be at least 1")
    work, known = Work(FOLDER), explanations()
    mutants = {mutant.name: mutant for mutant in work.prepare()}
    modules = {mutant.module for mutant in mutants.values()}
    if options.module not in (None, *modules):
        hint = suggestion(options.module, modules)
        parser.error(f"--module {options.module}: no module with mutants has this name{hint}")
    names = [name for name, each in mutants.items() if options.module in (None, each.module)]
    chosen = sample(names, options.count, options.seed)
    states = work.states()
    explained, _ = misfits(known, mutants.values(), states)
    run = {*chosen} - {mutant.name for mutant in explained}
    if work.choose(run, {name for name in run if states[name] not in KILLED}):
        work.run(options.workers)
    states = work.states()
    if left := sum(states[name] in NOT_RUN for name in run):
        raise CommandError(f"{left} mutants have not run yet: the same command goes on")
    explained, wrong = misfits(known, mutants.values(), states)
    score = Score({mutants[name]: states[name] for name in sorted(chosen)}, explained)
    shown = table(HEAD, score.rows())
    (FOLDER / "score.md").write_text(f"{shown}\n")
    for line in (*wrong, *(f"alive: {mutant}" for mutant in score.alive), shown):
        print(line)
    if options.docs:
        PAGE.write_text(filled(PAGE.read_text(), {"golden": shown}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
