"""The tables of docs/integration.md."""

import re

from hw.flow.cache import ROOT
from hw.host.registers import Register
from hw.layouts.host import WINDOW_BITS
from hw.layouts.isa import ErrorCode
from hw.params import PRESETS

DOCS = ROOT / "docs"
PAGE = (DOCS / "integration.md").read_text()


def test_figures_are_those_of_the_page_on_performance():
    """They are repeated here for those who choose parameters."""
    area = PAGE.partition("<!-- area -->")[2].partition("<!-- /area -->")[0]
    performance = (DOCS / "performance.md").read_text()
    for line in area.strip().splitlines()[2:]:
        name, width, tags, cells, clock = (cell.strip() for cell in line.strip("|").split("|"))
        name = name.strip("`")
        preset = PRESETS[name]
        assert (width, tags) == (f"{preset.line_bytes} bytes", str(preset.tags))
        sentences = rf"`{name}` has {cells} LUT4.*?(?=`\w+` has|\n)"
        (said,) = re.findall(sentences, performance)
        assert all(figure in said for figure in re.findall(r"\d+\.\d+", clock))


def test_the_codes_are_those_of_the_unit():
    table = PAGE.partition("\n## Errors\n")[2].partition("\n## ")[0]
    events = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    named = {name for event in events for name in re.findall(r"`([A-Z_]+)`", event)}
    assert named == {"MAP_FIELD", "MBAR_ALIGN", "DST_CTA", "GMEM_FAULT", "MBAR_FAULT", "WRONG_TAG"}
    codes = [code.name for code in sorted(ErrorCode, key=lambda code: code.value) if code.value]
    first, last = codes.index("MAP_FIELD"), codes.index("MBAR_ALIGN")
    assert {*codes[:first], *codes[last + 1 :]} == named - {"MAP_FIELD", "MBAR_ALIGN", "DST_CTA"}


def test_the_addresses_of_a_host():
    assert f"shared memory from {1 << WINDOW_BITS:#x} on" in PAGE
    assert min(Register) == 0
