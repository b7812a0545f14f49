"""Timing diagrams of simulations, drawn by WaveDrom."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import wavedrom
from amaranth.hdl import Value, ValueLike
from amaranth.sim import Simulator

SVG = "http://www.w3.org/2000/svg"
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
IDLE = 2
"""Most clocks without any change that are all shown."""
LONGEST = 1000
"""Clocks of a simulation at most."""
MARGIN = 20
"""Pixels on the left, for fonts that are wider than WaveDrom expects."""
GAP = "|"
"""Column of clocks that are left out."""


@dataclass
class Wave:
    """A signal of a diagram.

    Parameters
    ----------
    value : ValueLike
        A bit, or with ``text`` a value of any shape.
    text : str or callable, optional
        What is written on the value, or a function that returns it.
    valid : ValueLike, optional
        Bit: the value is undefined while it is 0.
    """

    value: ValueLike
    text: str | Callable[[Any], str] | None = None
    valid: ValueLike = 1

    def shown(self, value: Any) -> int | str:
        """Return a value as a bit or a text."""
        if callable(self.text):
            return self.text(value)
        return int(value) if self.text is None else self.text


class Recorder:
    """Samples signals in each clock of a simulation, at its end.

    Parameters
    ----------
    simulator : Simulator
    waves : dict of Wave
        Signals, by the name that a diagram gives them.
    """

    def __init__(self, simulator: Simulator, waves: dict[str, Wave]) -> None:
        self._waves = waves
        self.values: dict[str, list[Any]] = {name: [] for name in waves}
        """Value of each signal in each clock: a bit, a text, or None if it is undefined."""
        self._ends: list[int] = []
        simulator.add_process(self._sample)

    async def _sample(self, ctx: Any) -> None:
        waves = self._waves.values()
        signals = [wave.value for wave in waves] + [Value.cast(wave.valid) for wave in waves]
        async for _, reset, *sampled in ctx.tick().sample(*signals):
            if reset:
                continue
            for name, wave, value, valid in zip(
                self._waves, waves, sampled, sampled[len(waves) :], strict=False
            ):
                self.values[name].append(wave.shown(value) if valid else None)
            if len(self.values[name]) > LONGEST:
                raise RuntimeError(f"the simulation does not end within {LONGEST} clocks")

    def end_part(self) -> None:
        """End a part of the simulation; the next clock begins another one."""
        self._ends.append(len(next(iter(self.values.values()))))

    def diagram(
        self, title: str, groups: Sequence[str], scale: int, part: int = 0
    ) -> dict[str, Any]:
        """Return WaveDrom's JSON of groups of signals, from the first ``valid`` to the last one.

        A group is all signals whose names begin with a text. A blank line is between two groups.
        """
        begin, end = [0, *self._ends, None][part : part + 2]
        shown = [[name for name in self.values if name.startswith(group)] for group in groups]
        names = [name for group in shown for name in group]
        clocks = [*zip(*(self.values[name][begin:end] for name in names), strict=True)]
        flags = [number for number, name in enumerate(names) if name.endswith("valid")]
        active = [n for n, clock in enumerate(clocks) if any(clock[number] for number in flags)]
        columns = without_idle(clocks[max(active[0] - 1, 0) : active[-1] + 2])
        ticks = "".join(GAP if column is GAP else "." for column in columns)
        lines: list[dict[str, Any]] = [{"name": "clk", "wave": f"p{ticks[1:]}"}]
        for group in shown:
            for name in group:
                number = names.index(name)
                values = [column if column is GAP else column[number] for column in columns]
                lines.append(line_of(name, values))
            lines.append({})
        return {"signal": lines[:-1], "head": {"text": title}, "config": {"hscale": scale}}


def without_idle(clocks: Sequence[Any]) -> list[Any]:
    """Return the clocks, with a gap for the last ones of many that are alike."""
    columns: list[Any] = []
    first = 0
    for n, clock in enumerate(clocks):
        if n + 1 < len(clocks) and clocks[n + 1] == clock:
            continue
        alike = list(clocks[first : n + 1])
        columns += [alike[0], GAP] if len(alike) > IDLE else alike
        first = n + 1
    return columns


def line_of(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return WaveDrom's line of bits, texts, None (undefined) and gaps."""
    wave, data, before = "", [], object()
    for value in values:
        if value is GAP or value == before:
            wave += GAP if value is GAP else "."
            continue
        if value is None:
            wave += "x"
        elif isinstance(value, str):
            wave += "="
            data.append(value)
        else:
            wave += str(value)
        before = value
    return {"name": name, "wave": wave, "data": data}


def drawn(source: dict[str, Any]) -> str:
    """Return a diagram as SVG, on a white ground and without the shapes that it does not use."""
    drawing = wavedrom.WaveDrom().render_waveform(0, source, [])
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(drawing.tostring())
    attributes = [item for element in root.iter() for item in element.attrib.items()]
    used = {value.removeprefix("#") for name, value in attributes if name.endswith("href")}
    for shapes in root.iter(f"{{{SVG}}}defs"):
        for shape in [*shapes]:
            if shape.tag == f"{{{SVG}}}g" and shape.get("id") not in used:
                shapes.remove(shape)
    for style in root.iter(f"{{{SVG}}}style"):
        style.text = (style.text or "").replace("Helvetica", FONT).replace("11pt", "9pt")
    left, top, *size = (int(number) for number in root.get("viewBox", "").split(","))
    width, height = size[0] + MARGIN, size[1]
    ground = {"x": f"{left - MARGIN}", "width": f"{width}", "height": f"{height}", "fill": "white"}
    root.insert(0, ElementTree.Element(f"{{{SVG}}}rect", ground))
    root.attrib |= {"width": f"{width}", "viewBox": f"{left - MARGIN} {top} {width} {height}"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"
