"""Writes the messages of ``docs/mistakes.md``, or prints those of single entries.

``.venv/bin/python -m tests.mistakes`` writes the document. With names of entries it prints what is
said about the wrong one of each.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.mistakes.catalogue import MISTAKES, PAGE, quoted, said


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mistakes", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[[], *(each.name for each in MISTAKES)])
    names = parser.parse_args(arguments).name
    if not names:
        PAGE.write_text(quoted(PAGE.read_text(), said(MISTAKES)))
        return 0
    for name, (wrong, _) in said(each for each in MISTAKES if each.name in names).items():
        print(f"{name}:\n{wrong}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
