"""Prints what is wrong with the variables of make's command line; nothing if a target has them all.

usage: variables.py "GOALS" NAME...

A target has the variables that its help in the Makefile names.
"""

import re
import sys
from difflib import get_close_matches
from pathlib import Path

MAKEFILE = Path(__file__).parents[1] / "Makefile"


def problem(goals: list[str], names: list[str]) -> str:
    """Return a sentence about the first name that no goal has, or nothing."""
    helps = dict(re.findall(r"^([a-z-]+):.*## (.*)$", MAKEFILE.read_text(), re.MULTILINE))
    known = [name for goal in goals for name in re.findall(r"\b([A-Z]+)=", helps.get(goal, ""))]
    command = f"make {' '.join(goals)}"
    for name in names:
        if name not in known:
            nearest = get_close_matches(name.upper(), known, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            return f"{name}: {command} takes {', '.join(known) or 'no variables'}{hint}"
    return ""


if __name__ == "__main__":
    print(problem(sys.argv[1].split() or ["help"], sys.argv[2:]))
