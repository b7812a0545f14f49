"""The files that follow from ``registers.rdl``: docs/registers.md, and the C header."""

import pytest

from hw.flow import registers
from hw.flow.cache import ROOT
from hw.params import PRESETS


@pytest.mark.parametrize("path", registers.FILES, ids=str)
def test_files_are_up_to_date(path):
    assert (ROOT / path).read_text() == registers.FILES[path](), "run: make registers"


def test_the_command_writes_all_files(tmp_path):
    assert registers.main([str(tmp_path)]) == 0
    for path in registers.FILES:
        assert (tmp_path / path).read_text() == (ROOT / path).read_text()


def test_values_at_reset_follow_from_the_parameters():
    sizes = {}
    for preset in ("host", "default"):
        top = registers.address_map(PRESETS[preset])
        fields = {field.inst_name: field for field in top.get_child_by_name("GEOMETRY").fields()}
        sizes[preset] = {name: field.get_property("reset") for name, field in fields.items()}
    assert sizes == {
        "host": {"LINE_BYTES": 64, "ADDRESS_BITS": 32, "TAGS": 32},
        "default": {"LINE_BYTES": 128, "ADDRESS_BITS": 64, "TAGS": 512},
    }
