"""Kernels whose run measures the sanitizer: its share of the time, and the size of its state."""

import inspect
import time
from dataclasses import dataclass, field, replace

from sim_tb.sm.kernel import Kernel


@dataclass
class Measured(Kernel):
    """A kernel with a clock around each call of the sanitizer. Its check has the measurements.

    ``cost`` is the run's CPU time over that without the sanitizer, and ``name=number`` are sizes of
    the sanitizer's state at the end.
    """

    name = "measured"

    kernel: Kernel = field(default_factory=Kernel)

    @property
    def ctas(self):
        return self.kernel.ctas

    @property
    def unit_params(self):
        return self.kernel.unit_params

    def host(self, device):
        self.kernel.host(device)

    def smem(self, smem):
        self.kernel.smem(smem)

    async def prologue(self, wg):
        if wg.cta == 0:
            self.begin(wg.sm.sanitizer)
        await self.kernel.prologue(wg)

    def roles(self):
        return self.kernel.roles()

    def begin(self, sanitizer):
        self.sanitizer, self.depth, self.inside = sanitizer, 0, 0.0
        for name, method in inspect.getmembers(sanitizer, inspect.ismethod):
            if not name.startswith("_"):
                setattr(sanitizer, name, self.clocked(method))
        self.start = time.process_time()

    def clocked(self, method):
        def call(*arguments, **keywords):
            if self.depth:
                return method(*arguments, **keywords)
            self.depth, start = 1, time.process_time()
            try:
                return method(*arguments, **keywords)
            finally:
                self.inside += time.process_time() - start
                self.depth = 0

        return call

    def check(self):
        """Check the kernel; the name of the check has the cost and the sizes as well."""
        total = time.process_time() - self.start
        sizes = " ".join(f"{name}={size}" for name, size in self.sanitizer.sizes().items())
        check = self.kernel.check()
        return replace(check, name=f"cost={total / (total - self.inside):.3f} {sizes} {check.name}")
