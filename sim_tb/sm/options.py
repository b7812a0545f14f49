"""Options: dataclass fields that the command line can set, with a help text and limits."""

from dataclasses import field, fields
from typing import Any

MOST = 1 << 32
"""Greatest number that an option takes by default: the greatest extent of a tensor map."""


class OptionError(ValueError):
    """An option has a wrong value.

    Members
    -------
    name : str
        Name of the field.
    value : object
        Value that was given.
    reason : str
        What the value must be.
    """

    def __init__(self, name: str, value: Any, reason: str) -> None:
        super().__init__(f"{name} = {value}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


def option(
    default: Any, text: str, least: int = 1, most: int = MOST, *, separator: str = ","
) -> Any:
    """Return a dataclass field that the command line can set.

    Parameters
    ----------
    default : int, str or None
        Value if the command line does not give one.
    text : str
        Help text.
    least, most : int
        Limits of a number, both included.
    separator : str
        Character between the values in a list of texts.
    """
    metadata = {"help": text, "least": least, "most": most, "separator": separator}
    return field(default=default, metadata=metadata)


def check_limits(options: Any) -> None:
    """Check that the fields made by ``option`` of a dataclass object are within their limits.

    Raises
    ------
    OptionError
        If a field is outside of its limits.
    """
    for item in fields(options):
        value = getattr(options, item.name)
        if "least" not in item.metadata or not isinstance(value, int) or isinstance(value, bool):
            continue
        least, most = item.metadata["least"], item.metadata["most"]
        if not least <= value <= most:
            limits = f"from {least} to {most}"
            if most == MOST:
                limits = f"at least {least}" if value < least else f"at most {most}"
            raise OptionError(item.name, value, f"must be {limits}")
