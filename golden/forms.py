"""Forms of PTX's instructions around the unit, and the page ``docs/ptx_coverage.md`` about them.

``golden.form_list`` has the forms. A test executes every form that the golden model has, on every
architecture, and compares what is said of the RTL and of the silicon with both.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from golden.arch import Arch, Feature

Run = Callable[[Arch], object]
"""Executes a form on an architecture; a `TmaError` if the architecture lacks its feature."""

DOCUMENT = "document"
"""Evidence of a form that no recording has."""


@dataclass(frozen=True)
class Rtl:
    """Parts of the RTL that a form needs.

    Parameters
    ----------
    operation : str
        Name in ``hw.layouts.isa.Operation``; empty if the form is no request.
    mode : str
        Name in ``hw.layouts.isa.AccessMode``; empty if the operation has no mode.
    barrier_op : str
        Name in ``hw.layouts.barriers.BarrierOp``; empty if the form is no mbarrier operation.
    port : str
        Port of the unit that serves the form; empty if it is a request or an mbarrier operation.
    parameters : tuple of str
        Switches of ``TmaParams`` that must be set; ``ctas`` stands for more than one CTA.
    """

    operation: str = ""
    mode: str = ""
    barrier_op: str = ""
    port: str = ""
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        needs = [f"`{name}` > 1" if name == "ctas" else f"`{name}`" for name in self.parameters]
        return f"yes, {', '.join(needs)}" if needs else "yes"


@dataclass(frozen=True)
class Form:
    """A form of an instruction: its spelling up to equivalent choices.

    Parameters
    ----------
    ptx : str
        Spelling; braces have choices, of which all are meant.
    run : callable or None
        Executes the form; None: the golden model does not have it.
    since : str
        PTX version.
    target : str
        Least target. With ``feature``, the targets are those of the feature.
    feature : Feature or None
        Feature that the form needs.
    rtl : Rtl or None
        None: the RTL does not have the form.
    silicon : tuple of str
        Recordings with the form, as ``file: name``; empty: it rests on the document alone.
    absence : str
        Why the RTL does not have the form; empty if it has.
    """

    ptx: str
    run: Run | None = None
    since: str = "8.0"
    target: str = "sm_90"
    feature: Feature | None = None
    rtl: Rtl | None = None
    silicon: tuple[str, ...] = ()
    absence: str = ""

    @property
    def targets(self) -> str:
        """Targets as text."""
        if self.feature is None:
            return self.target
        return ", ".join(name.lower() for name in self.feature.targets)

    def row(self) -> str:
        """Return the row of the table."""
        files = ", ".join(dict.fromkeys(f"`{entry.split(':')[0]}`" for entry in self.silicon))
        cells = (
            f"`{self.ptx}`".replace("|", "\\|"),
            self.since,
            self.targets,
            "yes" if self.run else "no",
            str(self.rtl or f"no: {self.absence}"),
            files or DOCUMENT,
        )
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Group:
    """Forms of related instructions, under one heading."""

    title: str
    text: str
    forms: tuple[Form, ...]


_HEAD = """\
# Coverage of PTX

`.venv/bin/python -m golden forms docs/ptx_coverage.md` writes this page from
`golden/form_list.py`; a test fails if it is stale. The test also executes each form with *golden:
yes* on every member of `Arch`: those that have its feature accept it, and the others refuse it with
the name of the feature. It compares *RTL: yes* with the operations, modes, ports and parameters of
the unit, and each recording with the file that has it. *RTL: no* gives the reason: the form is no
work of the unit, or moves the same data without the qualifier.

Versions and targets are those of the PTX ISA 9.4. Of a family, such as `sm_100f`, the page names
the members that the golden model knows: `sm_90a`, `sm_100a`, `sm_103a`, `sm_107a` and `sm_120a`.
Braces have choices. The last column is the recording of an H200, in
[tests/silicon](../tests/silicon), or *document* if the form rests on the document alone.
"""


def forms_page(groups: Iterable[Group]) -> str:
    """Return the text of ``docs/ptx_coverage.md``."""
    lines = [_HEAD]
    all_forms: list[Form] = []
    for group in groups:
        all_forms += group.forms
        lines += [f"## {group.title}", "", *([group.text, ""] if group.text else [])]
        lines += ["| form | PTX | targets | golden | RTL | evidence |", "|---|---|---|---|---|---|"]
        lines += [*(form.row() for form in group.forms), ""]
    golden = sum(form.run is not None for form in all_forms)
    rtl = sum(form.rtl is not None for form in all_forms)
    recorded = sum(bool(form.silicon) for form in all_forms)
    counts = f"Of {len(all_forms)} forms, the golden model has {golden} and the RTL {rtl}; "
    lines.insert(1, f"{counts}{recorded} are recorded.\n")
    return "\n".join(lines)
