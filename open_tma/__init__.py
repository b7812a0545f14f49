"""The project as one installed package, with the command ``open-tma``.

In a clone, the packages ``golden``, ``hw`` and ``sim_tb`` are beside this one. In a wheel, they are
inside of it, as ``open_tma.golden`` and so on: ``hatch_build.py`` moves them.
"""

from open_tma import installation


def __getattr__(name: str) -> str:
    """Return ``__version__``, which is only looked up when it is asked for."""
    if name == "__version__":
        return installation.version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
