"""The tables of README.md are those of the sources."""

from pathlib import Path

from hw.flow.tables import refreshed

README = Path(__file__).parents[3] / "README.md"


def test_readme_is_up_to_date():
    text = README.read_text()
    assert text == refreshed(text), "run: python -m hw.tables README.md"
