"""Files of kernels that are broken, and names that two kernels have."""

import sys

import pytest

import sim_tb.kernels
from sim_tb.__main__ import main
from sim_tb.kernels import kernels, library
from sim_tb.sm.kernel import KERNELS

COPY = '''
from dataclasses import dataclass
from sim_tb.kernels.copy import Copy
from sim_tb.sm.kernel import kernel

@kernel("{}")
@dataclass
class {}(Copy):
    """A copy."""
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with kernels beside the project's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sim_tb.kernels, "__path__", [*sim_tb.kernels.__path__, str(tmp_path)])
    yield tmp_path
    for module in list(sys.modules):
        if module.startswith("sim_tb.kernels.mine"):
            del sys.modules[module]
    for registered in KERNELS.values():
        for place in list(registered):
            if place.startswith("sim_tb.kernels.mine"):
                del registered[place]


def test_a_broken_file_is_named_beside_the_others(folder, capsys):
    own = kernels()
    (folder / "mine.py").write_text("def f(:\n")
    (folder / "mine_too.py").write_text("from sim_tb.kernels import mine\n")
    (folder / "mine_right.py").write_text(COPY.format("right", "Right"))
    (folder / "mine_typo.py").write_text(f"{COPY.format('typo', 'Typo')}\nnone_such\n")
    loaded = library()
    assert loaded.kernels.keys() == {*own, "right"}
    wrong, typo = loaded.broken
    assert wrong.startswith("mine.py, mine_too.py: cannot be imported: SyntaxError: ")
    assert f'File "{folder / "mine.py"}", line 1' in wrong
    assert typo.startswith("mine_typo.py: cannot be imported: NameError: name 'none_such'")
    assert typo.count("File ") == 1
    with pytest.raises(ImportError, match=r"mine\.py"):
        kernels()
    assert main(["list"]) == 1
    listed = capsys.readouterr().out
    assert "flash_attention" in listed
    assert wrong in listed
    with pytest.raises(SystemExit):
        main(["run", "typo"])
    assert typo in capsys.readouterr().err


def test_two_kernels_of_one_name_are_refused(folder, capsys):
    (folder / "mine.py").write_text(COPY.format("gemm", "Mine"))
    loaded = library()
    assert "gemm" not in loaded.kernels
    assert "gemm_split_k" in loaded.kernels
    with pytest.raises(ImportError, match="gemm: 2 kernels have this name"):
        kernels()
    with pytest.raises(SystemExit):
        main(["run", "gemm", "--stages", "3"])
    printed = capsys.readouterr().err
    assert "argument KERNEL: gemm: 2 kernels have this name: Gemm in /" in printed
    assert "gemm.py, Mine in mine.py; rename all but one" in printed
