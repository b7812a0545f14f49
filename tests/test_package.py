"""The wheel: its names, its contents, and what it needs where it is installed."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import golden
import open_tma
from hatch_build import PACKAGES, rewritten
from hw.flow.cache import ROOT, VARIABLE, folder
from open_tma.installation import EXTRAS
from tests.golden.test_explain import PLAIN
from tests.pins import pinned
from tests.test_imports import statements, targets

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILD = "import hatchling.build, sys; print(hatchling.build.build_{}(sys.argv[1]))"
USERS = "golden", "hw", "sim_tb"
"""Names of modules that a user of the package may have, too."""

NAMES = {"golden.plan", "hw.flow", "sim_tb.sm.tb_kernel", "sim_tb.sm"}


def ran(
    command: Sequence[str | Path], where: Path, status: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder ``where`` and check its exit status."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        command, cwd=where, env=environment | variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result


# Names of modules


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from golden import A", "from open_tma.golden import A"),
        ("from golden.plan import (\n  Plan,\n)", "from open_tma.golden.plan import (\n  Plan,\n)"),
        ("if x:\n    from  hw import a", "if x:\n    from  open_tma.hw import a"),
        ("x = 'é'; from hw import a", "x = 'é'; from open_tma.hw import a"),
        (
            "import numpy, golden.plan as plan, hw as hw",
            "import numpy, open_tma.golden.plan as plan, open_tma.hw as hw",
        ),
        ('"sim_tb.sm.tb_kernel"', '"open_tma.sim_tb.sm.tb_kernel"'),
        ('f"{x} ``golden.plan``"', 'f"{x} ``open_tma.golden.plan``"'),
        ("'''a\n\tgolden.TmaError: b'''", "'''a\n\topen_tma.golden.TmaError: b'''"),
        ('"python -m golden explain"', '"python -m open_tma.golden explain"'),
        ('""">>> from golden import A"""', '""">>> from open_tma.golden import A"""'),
        *(
            (kept, kept)
            for kept in (
                "golden.plan",
                "golden = hw.flow",
                "from . import golden",
                "from goldenrod import hw",
                "import numpy as golden",
                '"golden", "golden.png", "tests.hw.flow", "hw/flow", "tests/golden.plan"',
                '"the golden model"',
            )
        ),
    ],
)
def test_names_of_modules_change(source, expected):
    assert rewritten(source, NAMES) == expected


@pytest.mark.parametrize("statement", ["import golden", "import hw.flow"])
def test_a_name_without_as_is_refused(statement):
    with pytest.raises(ValueError, match=f"{statement}: must be an import with `as`"):
        rewritten(statement, NAMES)


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that is built from the clone."""
    directory = tmp_path_factory.mktemp("wheel")
    name = ran([sys.executable, "-c", BUILD.format("wheel"), directory], ROOT).stdout.strip()
    return directory / name.splitlines()[-1]


def test_everything_is_in_one_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"open_tma", f"{info(wheel)}"}
    for package in PACKAGES:
        assert f"open_tma/{package}/__init__.py" in names
    assert {"open_tma/py.typed", "open_tma/golden/py.typed"} <= {*names}  # type checkers read it
    assert f"{info(wheel)}/licenses/LICENSE" in names
    for file in ("report/report.html", "testbench/tb_top.sv", "testbench/dpi/main.cpp"):
        assert f"open_tma/sim_tb/{file}" in names


def info(wheel: Path) -> str:
    """Return the name of the folder with the metadata."""
    return f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"


def test_modules_of_the_wheel_import_modules_of_the_wheel(wheel):
    """None is missing because it is only in the clone, and none has its name of the clone."""
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name): archive.read(name) for name in archive.namelist()}
    trees = {file: ast.parse(text) for file, text in texts.items() if file.suffix == ".py"}
    modules = {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in trees}
    assert len(modules) > 100
    for file, tree in trees.items():
        for statement, _ in statements(tree):
            named = targets(statement, modules)
            assert not {name.partition(".")[0] for name in named} & {*PACKAGES}, file
            own = {name for name in named if name.startswith("open_tma")}
            assert own <= modules, f"{file}: imports {', '.join(own - modules)}"


WHERE = """
from open_tma.hw.flow import cache
from open_tma.installation import CLONE
print(cache.folder(), cache.run_folder(), CLONE, sep="\\n")
"""


def test_generated_files_are_in_the_folder_for_caches(wheel, tmp_path):
    site, named, user = (tmp_path / name for name in ("site", "named", "cache"))
    zipfile.ZipFile(wheel).extractall(site)
    for cache, variable in ((user / "open-tma", ""), (named, str(named))):
        variables = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(user), VARIABLE: variable}
        output = ran([sys.executable, "-c", WHERE], tmp_path, **variables).stdout
        assert output.splitlines() == [str(cache), str(cache), "None"]


def test_an_editable_installation_is_refused(tmp_path):
    error = ran([sys.executable, "-c", BUILD.format("editable"), tmp_path], ROOT, status=1).stderr
    assert "open-tma cannot be installed as editable" in error.splitlines()[-1]


def build(directory: Path, *options: str) -> Path:
    """Return the wheel that `build` makes from a source distribution, which it makes first."""
    ran([sys.executable, "-m", "build", "--outdir", directory, *options, ROOT], directory)
    (source,) = directory.glob("*.tar.gz")
    (made,) = directory.glob("*.whl")
    assert f"{source.name.removesuffix('.tar.gz')}-" in made.name
    return made


def test_the_source_distribution_makes_the_same_wheel(wheel, tmp_path):
    made = build(tmp_path, "--no-isolation")
    assert made.name == wheel.name
    assert made.read_bytes() == wheel.read_bytes()


# Installed


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment that has NumPy, ml_dtypes and the wheel."""
    environment = tmp_path_factory.mktemp("environment")
    ran([sys.executable, "-m", "venv", "--without-pip", environment], environment)
    (site,) = environment.glob("lib/python*/site-packages")
    for name in "numpy", "ml_dtypes":
        parts = {file.parts[0] for file in distribution(name).files or ()}
        for part in parts - {".."}:
            (site / part).symlink_to(Path(str(distribution(name).locate_file(part))))
    install(environment, "--no-index", wheel)
    return environment / "bin"


def install(environment: Path, *arguments: str | Path) -> None:
    """Install packages with the pip of the tests' environment."""
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    ran([*pip, "install", "--quiet", "--no-compile", *arguments], environment)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Path]:
    """Return a user's folder with files of the same names as the project's packages."""
    for name in USERS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the user')\n")
    (tmp_path / "map.bin").write_bytes(PLAIN.encode())
    (tmp_path / "script.py").write_text(
        "import open_tma\n"
        "import open_tma.golden as golden\n"
        "print(open_tma.__version__, golden.TensorMap.decode(open('map.bin', 'rb').read()))\n"
    )
    return tmp_path


def test_the_golden_model_needs_no_extra(installed, user):
    """Files of a user beside the script have the names of the project's packages in a clone."""
    version = PROJECT["project"]["version"]
    assert ran([installed / "python", "script.py"], user).stdout == f"{version} {PLAIN}\n"
    expected = ran([installed / "open-tma", "explain", "map.bin"], user).stdout
    assert expected.startswith(f"{PLAIN}\n")
    module = [installed / "python", "-m", "open_tma.golden", "explain", "map.bin"]
    assert ran(module, user).stdout == expected
    for command in "version", "--version":
        assert ran([installed / "open-tma", command], user).stdout == f"open-tma {version}\n"


@pytest.mark.parametrize(
    ("command", "extra", "status"),
    [
        ("open-tma draw map.bin --coords 0,0", "plots", 2),
        ("open-tma run copy", "sim", 2),
        ("python -m open_tma.sim_tb run copy", "sim", 1),
        ("python -m open_tma.hw.verilog", "rtl", 1),
    ],
)
def test_a_missing_extra_is_named_in_a_sentence(installed, user, command, extra, status):
    program, *arguments = command.split()
    error = ran([installed / program, *arguments], user, status).stderr
    assert error.count("\n") == 1
    assert f"run `pip install 'open-tma[{extra}]'`" in error
    assert set(re.findall(r"\w+", error)) >= {*EXTRAS[extra]} - {*EXTRAS[""]}


def test_an_import_without_its_extra_names_it(installed, user):
    error = ran([installed / "python", "-c", "import open_tma.hw"], user, status=1).stderr
    last = error.splitlines()[-1]
    assert last.startswith("open_tma.installation.MissingPackageError: open_tma.hw needs amaranth,")
    assert "open-tma[rtl]" in last


def results(output: str) -> list[str]:
    """Return what a run of a kernel printed, without the speed of the simulator and paths."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    kept = [line for line in lines if "│" in line or "equals NumPy's, bit for bit" in line]
    return [line for line in kept if "│ simulated │" not in line]


@pytest.mark.regress
def test_make_sim_runs_where_the_wheel_is_installed(wheel, user):
    """The packages of ``[sim]`` are loaded from their index, so this test needs a network."""
    made = build(user)
    assert made.read_bytes() == wheel.read_bytes()
    environment = user / "environment"
    ran([sys.executable, "-m", "venv", "--without-pip", environment], user)
    install(environment, f"{made}[sim]")
    (package,) = environment.glob("lib/python*/site-packages/open_tma")
    files = {file for file in package.rglob("*") if file.suffix != ".pyc"}
    command = [environment / "bin/open-tma", "run", "gemm", "--report", "report"]
    output = ran(command, user, **{VARIABLE: str(folder())}).stdout
    clone = [sys.executable, "-m", "sim_tb", "run", "gemm", "--report", user / "clone"]
    assert results(output) == results(ran(clone, ROOT).stdout)
    assert "C equals NumPy's, bit for bit: 65600 elements" in results(output)
    assert (user / "report" / "report.html").exists()
    assert {file for file in package.rglob("*") if file.suffix != ".pyc"} == files
    script = user / "typed.py"
    script.write_text("from open_tma.golden import Plan\n\nreveal_type(Plan)\n")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    checked = ran([*mypy, "--python-executable", environment / "bin/python", script], user)
    assert "-> open_tma.golden.plan.Plan" in checked.stdout


# In a clone


def test_every_public_name_exists():
    assert sorted(golden.__all__) == golden.__all__
    assert [name for name in golden.__all__ if not hasattr(golden, name)] == []


@pytest.mark.parametrize(
    ("module", "first"),
    [("golden", "numpy"), ("sim_tb", "numpy"), ("sim_tb.waves", "numpy"), ("hw.verilog", "numpy")],
)
def test_a_clone_without_its_environment_says_so(module, first):
    error = ran([sys.executable, "-S", "-m", module, "--help"], ROOT, status=1).stderr
    assert error.startswith(f"{module.partition('.')[0]} needs {first}, ")
    assert error.endswith(f"run `make setup`, then `.venv/bin/python -S -m {module} --help`\n")
    assert error.count("\n") == 1


def test_the_version_is_written_once():
    assert open_tma.__version__ == PROJECT["project"]["version"]
    with pytest.raises(AttributeError, match="module 'open_tma' has no attribute 'nothing'"):
        open_tma.nothing  # noqa: B018


# Versions


def requirements(extra: str) -> list[Requirement]:
    """Return what an extra of the project requires, with the extras in it resolved."""
    project = PROJECT["project"]
    texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
    found = []
    for requirement in map(Requirement, texts):
        inner = requirement.extras if requirement.name == project["name"] else ()
        found += [item for name in sorted(inner) for item in requirements(name)]
        found += [] if inner else [requirement]
    return found


def test_the_environment_of_a_clone_is_in_the_ranges():
    pins = pinned()
    wanted = [*requirements(""), *requirements("all")]
    for group in PROJECT["dependency-groups"].values():
        wanted += map(Requirement, group)
    wanted += map(Requirement, PROJECT["build-system"]["requires"])
    for requirement in wanted:
        pin = pins[canonicalize_name(requirement.name)]
        assert pin.version in requirement.specifier, requirement


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_installs_is_what_the_packages_ask_for(extra):
    owners = packages_distributions()
    asked = {canonicalize_name(owners[module][0]) for module in EXTRAS[extra]}
    installs = {canonicalize_name(item.name) for item in [*requirements(""), *requirements(extra)]}
    assert asked == installs


def test_an_upper_bound_for_each_package():
    """A later major version may break the package after it is installed."""
    for requirement in [*requirements(""), *requirements("all")]:
        operators = {item.operator for item in requirement.specifier}
        assert operators & {"<", "~=", "=="}, requirement


def test_all_is_everything():
    """The extra ``nvcc`` is apart: NVIDIA's compiler has a licence of its own."""
    extras = PROJECT["project"]["optional-dependencies"].keys() - {"nvcc"}
    everything = {str(item) for extra in extras for item in requirements(extra)}
    assert {str(item) for item in requirements("all")} == everything
