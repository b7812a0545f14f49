"""Parser of the command lines, whose errors are one sentence, and their end after Ctrl-C."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, NoReturn, ParamSpec

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and the number of the signal."""

P = ParamSpec("P")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` with the nearest of the known names, or nothing.

    The dashes in front of options do not count.
    """
    names = {each.lstrip("-"): each for each in known}
    nearest = get_close_matches(name.lstrip("-"), names, 1)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""


class CommandError(RuntimeError):
    """Reason why a command cannot go on. It ends with this text and status 1."""


class Parser(argparse.ArgumentParser):
    """Parser without abbreviations, whose errors are a sentence without the usage.

    A wrong name of an option or of a choice is answered with the nearest right one.

    Members
    -------
    refused : dict of str to str
        Choices that are known and cannot be taken, each with the reason.
    remarks : sequence of str
        Lines that follow the error about an unknown choice.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **keywords})
        self.refused: Mapping[str, str] = {}
        self.remarks: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Print a message, and end the process with status 2."""
        self.exit(2, f"{self.prog}: {message}\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; one that is unknown is an error of the subcommand's parser."""
        options, unknown = super().parse_known_args(args, namespace)
        for argument in unknown:
            if argument.startswith("-"):
                name = argument.partition("=")[0]
                hint = suggestion(name, self._option_string_actions)
                self.error(f"{name}: there is no such option{hint or '; see --help'}")
            self.error(f"{argument}: there is no place for this argument; see --help")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        hint = suggestion(str(value), choices)
        unknown = [f"{value!r}: must be one of {', '.join(choices)}{hint}", *self.remarks]
        raise argparse.ArgumentError(action, self.refused.get(value, "\n".join(unknown)))


def entry_point(main: Callable[P, int]) -> Callable[P, int]:
    """Return the function of a command line, which ends with a sentence where Python would not.

    After Ctrl-C its status is ``INTERRUPTED``. It is 1 where memory is too small, where a file
    cannot be read or written, and after a ``CommandError``.
    """

    @wraps(main)
    def ending(*args: P.args, **keywords: P.kwargs) -> int:
        try:
            return main(*args, **keywords)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        except MemoryError as error:
            print(f"the memory of this computer is too small: {error}", file=sys.stderr)
            return 1
        except CommandError as error:
            print(error, file=sys.stderr)
            return 1
        except OSError as error:
            if error.filename is None:
                raise
            print(f"{error.filename}: {error.strerror}", file=sys.stderr)
            return 1

    return ending
