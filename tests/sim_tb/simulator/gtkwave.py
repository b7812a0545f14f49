"""The rules of GTKWave's reader for the declarations of a VCD."""

import re
from collections.abc import Iterator

TYPES = {
    *("event", "integer", "parameter", "real", "reg", "supply0", "supply1", "time", "tri", "wire"),
    *("triand", "trior", "trireg", "tri0", "tri1", "wand", "wor", "bit", "logic", "int", "string"),
}
RANGE = re.compile(r"\[-?\d+(:-?\d+)?\]")


def unread(header: str) -> Iterator[str]:
    """Yield the declarations that GTKWave refuses or reads under another name.

    A name ends at a blank, and, unless it begins with a backslash, at a colon or bracket that
    follows no opening bracket. If its last character is a bracket, its last brackets are a range.
    """
    for line in header.splitlines():
        words = line.split()
        match words:
            case ["$scope", _, _, "$end"]:
                pass
            case ["$var", kind, size, _, name, *rest, "$end"]:
                if kind not in TYPES or not size.isdigit() or not _is_read(name, rest):
                    yield line
            case ["$var" | "$scope", *_]:
                yield line


def _is_read(name: str, rest: list[str]) -> bool:
    if name.startswith("\\"):
        return not rest or (len(rest) == 1 and bool(RANGE.fullmatch(rest[0])))
    whole = "".join([name, *rest])
    stem = whole[: whole.rfind("[")] if whole.endswith("]") else whole
    if whole.endswith("]") and not RANGE.fullmatch(whole, len(stem)):
        return False
    return len(rest) < 2 and not re.match(r"[^[]*[:\]]", whole)
