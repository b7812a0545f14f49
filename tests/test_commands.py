"""The command ``open-tma``; commands in documents work in a clone as they are written."""

import argparse
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import pytest

from hw.flow.cache import ROOT
from open_tma.__main__ import COMMANDS, PROG, kernels, maps
from open_tma.__main__ import main as open_tma_main
from open_tma.installation import python

PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
CODE = re.compile(r"^```\w*\n(?P<block>.*?)^```$|(?<!`)`(?P<inline>[^`\n]+)`", re.M | re.S)
TOOLS = {"build", "dask", "mypy", "pytest", "ruff"}
"""Modules of other projects that documents run."""
PLACEHOLDERS = {"NAME": "gemm", "double.py": "sim_tb/kernels/copy.py"}
"""Words of documents that stand for an argument, and an argument."""


class ParsedError(Exception):
    """The arguments of a command were accepted."""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the page and the words of each command that begins a line of code."""
    for page in PAGES:
        for code in CODE.finditer((ROOT / page).read_text()):
            for line in (code["block"] or code["inline"]).splitlines():
                if re.match(r"\S*python\d? -m |make [a-z]|open-tma ", line):
                    words = shlex.split(re.sub(r"[\[\]]", "", line), comments=True)
                    yield page, [PLACEHOLDERS.get(word, word) for word in words]


def of(program: str) -> list[tuple[str, list[str]]]:
    """Return the commands whose first word ends like ``program``, each once."""
    found = {" ".join(words): (page, words) for page, words in commands()}
    return [command for command in found.values() if command[1][0].endswith(program)]


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each command end when its arguments are parsed."""
    parse = argparse.ArgumentParser.parse_args

    def parse_args(parser, arguments=None):
        parse(parser, arguments)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)


@pytest.mark.parametrize(("page", "words"), of("python"))
@pytest.mark.usefixtures("parse_only")
def test_modules_run_in_the_environment_and_accept_their_arguments(page, words):
    program, option, module, *arguments = words
    assert (program, option) == (python(), "-m"), f"{page}: {' '.join(words)}"
    if module in TOOLS:
        paths = (word for word in arguments if "/" in word and "://" not in word)
        assert all((ROOT / word.partition("::")[0]).exists() for word in paths)
        return
    assert module.partition(".")[0] in {"golden", "hw", "sim_tb", "tests"}
    spec = find_spec(module)
    name = f"{module}.__main__" if spec.submodule_search_locations else module
    with pytest.raises(ParsedError):
        import_module(name).main(arguments)


@pytest.mark.parametrize(("page", "words"), of(PROG))
@pytest.mark.usefixtures("parse_only")
def test_the_installed_command_accepts_its_arguments(page, words):
    command, *arguments = words[1:]
    assert command in {"--help", *COMMANDS}, page
    if command == "--help":
        return
    with pytest.raises(ParsedError):
        COMMANDS[command][0]()([command, *arguments], prog=PROG)


@pytest.mark.parametrize(("page", "words"), of("make"))
def test_make_has_the_target_and_the_variables(page, words):
    makefile = (ROOT / "Makefile").read_text()
    target, *settings = words[1:]
    assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: make {target}"
    for setting in settings:
        name = setting.partition("=")[0]
        assert f"$({name})" in makefile, f"{page}: {' '.join(words)}"


def test_commands_are_found():
    assert len(of("python")) > 10
    assert {words[1] for _, words in of(PROG)} >= {"explain", "draw", "verilog", "run", "sweep"}
    assert {words[1] for _, words in of("make")} >= {"sim", "test", "verilog", "bench"}


def test_the_command_in_a_clone(capsys):
    with pytest.raises(SystemExit) as caught:
        open_tma_main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", shown, re.MULTILINE)
        with pytest.raises(SystemExit) as caught:
            open_tma_main([command, "--help"])
        assert caught.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: open-tma {command} [-h]")
    assert open_tma_main(["explain", "zz"]) == 2
    assert capsys.readouterr().err.startswith("open-tma explain: 'zz': must be")
    with pytest.raises(SystemExit) as caught:
        open_tma_main(["explian"])
    assert caught.value.code == 2
    assert "invalid choice: 'explian'" in capsys.readouterr().err


@pytest.mark.parametrize("load", [maps, kernels])
def test_the_command_has_all_commands_of_a_package(load, capsys):
    with pytest.raises(SystemExit):
        load()(["--help"], prog=PROG)
    listed = re.findall(r"^    (\w+)  +\w", capsys.readouterr().out, re.MULTILINE)
    assert {name for name, (loads, _) in COMMANDS.items() if loads is load} == {*listed}
