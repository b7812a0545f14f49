"""Options: dataclass fields that the command line can set, with a help text and limits."""

from dataclasses import field, fields
from typing import Any


def option(default: Any, text: str, least: int | None = 1, most: int | None = None) -> Any:
    """Return a dataclass field that the command line can set.

    Parameters
    ----------
    default : int, str or None
        Value if the command line does not give one.
    text : str
        Help text.
    least, most : int, optional
        Limits of a number, both included. None: no limit.
    """
    metadata = {"help": text, "least": least, "most": most}
    return field(default=default, metadata=metadata)


def check_limits(options: Any) -> None:
    """Check that the fields made by ``option`` of a dataclass object are within their limits.

    Raises
    ------
    ValueError
        If a field is outside of its limits. The text names option, value and limits.
    """
    for item in fields(options):
        value = getattr(options, item.name)
        least, most = item.metadata.get("least"), item.metadata.get("most")
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if (least is not None and value < least) or (most is not None and value > most):
            limit = f"at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"{item.name} = {value}: must be {limit}")
