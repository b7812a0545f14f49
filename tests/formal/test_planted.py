"""The bugs that ``make formal`` plants still have their places."""

import pytest

from tests.formal.proof import AREAS, Bug, runs

BUGS = [run.bug for area in AREAS for run in runs(area) if run.bug]


@pytest.mark.parametrize("bug", dict.fromkeys(BUGS), ids=lambda bug: bug.name.replace(" ", "_"))
def test_its_text_is_there_once(bug):
    compile(bug.source(), bug.module, "exec")


def test_a_text_that_is_gone_is_an_error():
    with pytest.raises(ValueError, match="its old text is there 0 times"):
        Bug("nothing", "hw.lib.queue", "no such text", "", depth=1).source()
