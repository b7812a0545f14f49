"""Packages that are pinned in ``.ci``, with the hashes of their files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from hw.flow.cache import ROOT

FILES = "sdist.txt", "requirements.txt"
"""Files of ``.ci`` in the order in which ``make setup`` installs them."""

PIN = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: *; *(?P<marker>.*?))?"
    r"(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})*)$",
    re.MULTILINE,
)


class Pin(NamedTuple):
    """One version of a package.

    Attributes
    ----------
    name : str
        Normalized name.
    version : str
        Its only version.
    hashes : set of str
        SHA-256 of the files of this version.
    here : bool
        Whether this interpreter needs the package.
    """

    name: str
    version: str
    hashes: set[str]
    here: bool


def pins(path: Path) -> Iterator[Pin]:
    """Yield what a file pins."""
    for found in PIN.finditer(path.read_text()):
        hashes = {*re.findall(r"sha256:(\w+)", found["hashes"])}
        here = found["marker"] is None or Marker(found["marker"]).evaluate()
        yield Pin(canonicalize_name(found["name"]), found["version"], hashes, here)


def pinned() -> dict[str, Pin]:
    """Return all that ``make setup`` installs, by name."""
    return {pin.name: pin for name in FILES for pin in pins(ROOT / ".ci" / name)}
