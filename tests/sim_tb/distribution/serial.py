"""Workers without processes of their own, for tests that change a module."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Serial:
    """Stand-in for ``Workers``: carries out tasks one after the other in this process."""

    @classmethod
    def of(cls, *command_line: object) -> "Serial":
        """Return the stand-in for ``workers.of``."""
        del command_line
        return cls()

    def __enter__(self) -> "Serial":
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing is open."""

    def run(
        self, function: Callable[[Any], Any], tasks: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        for key, task in tasks.items():
            yield key, function(task)
