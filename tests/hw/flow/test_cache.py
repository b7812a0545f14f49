"""The cache of generated files: each folder is made once, whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hw.flow import cache

MAKES = """
import os, sys, time
from hw.flow.cache import cached

def make(folder):
    with open(sys.argv[1], "a") as log:
        print(os.getpid(), file=log)
    (folder / "first").touch()
    time.sleep(1)
    (folder / "second").touch()

print(sorted(file.name for file in cached("kind", "key", make).iterdir()))
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))


def test_two_processes_make_a_folder_once(tmp_path: Path) -> None:
    """Both see it whole."""
    log = tmp_path / "log"
    command = [sys.executable, "-c", MAKES, str(log)]
    environment = {**os.environ, "PYTHONPATH": str(cache.ROOT)}
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in both] == ["['first', 'second']\n"] * 2
    assert len(log.read_text().splitlines()) == 1


def test_what_fails_is_made_again(tmp_path: Path) -> None:
    """The files of a failed call stay for inspection, and do not count as the folder."""

    def fail(folder: Path) -> None:
        (folder / "log").write_text("no")
        raise RuntimeError("on purpose")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            cache.cached("kind", "key", fail)
        assert (tmp_path / "cache/kind/key.failed/log").read_text() == "no"
    made = cache.cached("kind", "key", lambda folder: (folder / "log").write_text("yes"))
    assert (made / "log").read_text() == "yes"


def test_keys_depend_on_each_text() -> None:
    assert cache.digest(["ab", "c"]) == cache.digest(iter(["ab", "c"]))
    assert cache.digest(["ab", "c"]) != cache.digest(["a", "bc"])
    assert cache.sources("hw") != cache.sources("hw", "golden")


def test_the_cache_is_in_the_clone_unless_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.folder() == tmp_path / "cache"
    monkeypatch.delenv(cache.VARIABLE)
    assert cache.folder() == cache.ROOT / "build"


def test_a_folder_that_cannot_be_created_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv(cache.VARIABLE, str(file))
    with pytest.raises(cache.CacheError, match=f"^{file}/kind: Not a directory: .* OPEN_TMA_CACHE"):
        cache.cached("kind", "key", Path.touch)
