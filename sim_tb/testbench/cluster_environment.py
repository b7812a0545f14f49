"""The environment of a cluster: an ``Environment`` for each SM."""

from collections.abc import Sequence
from typing import Any

import cocotb

from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import QUIET, Environment
from sim_tb.testbench.events import TIMEOUT
from sim_tb.testbench.global_memory import GlobalMemory
from sim_tb.testbench.interface import simulated_interface
from sim_tb.testbench.models import Models
from sim_tb.testbench.shared import DEFAULT_LOGS, SharedEnvironment


class ClusterEnvironment:
    """The testbench around a cluster. ``start`` makes it.

    Members
    -------
    shared : SharedEnvironment
        The part of the testbench that all SMs share.
    sms : list of Environment
        By rank of the CTA.
    """

    def __init__(self, shared: SharedEnvironment, seed: int) -> None:
        self.shared = shared
        self.sms = [Environment(shared, seed, sm) for sm in range(shared.interface.sms)]

    @classmethod
    async def start(
        cls,
        dut: Any,
        models: Models | Sequence[Models] | None = None,
        *,
        seed: int | None = None,
        background: str = "hash",
        logs: Sequence[LogKind] = DEFAULT_LOGS,
    ) -> "ClusterEnvironment":
        """Start the clock, and reset the cluster and its testbench.

        Parameters are those of ``Environment.start``, but ``models`` may also be a sequence with
        the models of each SM.
        """
        shared = SharedEnvironment(dut, simulated_interface())
        cluster = cls(shared, cocotb.RANDOM_SEED if seed is None else seed)
        await shared.begin(models, background, logs)
        return cluster

    async def reset(
        self,
        models: Models | Sequence[Models] | None = None,
        *,
        background: str = "hash",
        logs: Sequence[LogKind] = DEFAULT_LOGS,
    ) -> None:
        """Reset cluster and testbench, see ``SharedEnvironment.reset``."""
        await self.shared.reset(models, background=background, logs=logs)

    @property
    def gmem(self) -> GlobalMemory:
        """Global memory, which all SMs share."""
        return self.shared.gmem

    @property
    def running(self) -> int:
        """A bit for each CTA that runs. All of them run after a reset.

        A change reaches the design two clocks later.
        """
        return self.shared.running

    @running.setter
    def running(self, mask: int) -> None:
        self.shared.running = mask

    async def idle(self, quiet: int = QUIET, timeout: int = TIMEOUT) -> None:
        """Wait until all SMs are idle, see ``Environment.idle``."""
        await self.sms[0].idle(quiet, timeout)
