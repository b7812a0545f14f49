"""Rules of tensor maps: where they are, how they change, and who has acquired the change."""

from collections import defaultdict
from dataclasses import dataclass, field

from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError
from sim_tb.sm.sanitizer.clocks import HAPPENED, Threads
from sim_tb.sm.sanitizer.requests import TrackedRequest
from sim_tb.sm.sanitizer.tracking import Tracking
from sim_tb.sm.smem import SmemLayout

MAP_BYTES, MAP_ALIGN = 128, 64

Event = tuple[int, int]
"""Component and time."""


@dataclass
class TrackedMap:
    """A tensor map, as the sanitizer sees it.

    Members
    -------
    contents : bytes
        Contents that the changes so far explain.
    version : int
        Number of changes by ``tensormap.replace``.
    change : str
        The last one, in words.
    changed, released : (int, int), optional
        Events of the last change, and of the release behind it.
    acquired : dict of int to int
        Version that each CTA has acquired.
    missing : dict of int to str
        What the last acquire of a CTA lacked to get the last version.
    """

    contents: bytes
    version: int = 0
    change: str = ""
    changed: Event | None = None
    released: Event | None = None
    acquired: dict[int, int] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)


class TensorMaps(Tracking):
    """Follows the tensor maps of a device."""

    def __init__(self, layout: SmemLayout, ctas: int, cluster: int, device: Device) -> None:
        super().__init__(layout, ctas, cluster)
        self.device = device
        self.map_users: dict[int, dict[int, tuple[int, TrackedRequest]]] = defaultdict(dict)
        self._maps: dict[int, TrackedMap] = {}

    def _map(self, address: int) -> TrackedMap:
        found = self._maps.get(address)
        if found is None:
            found = self._maps[address] = TrackedMap(self.device.maps[address].tobytes())
        return found

    def launch(self) -> None:
        """Follow the launch of the kernel: maps that the host has written until now are known."""
        for address in self.device.maps:
            self._map(address)

    def replace_map(self, threads: Threads, address: int, text: str) -> None:
        """Check and record a change of a tensor map in global memory, before it happens.

        Raises
        ------
        KernelError
            If a request that uses the map may still be in flight.
        """
        known = threads.group.rows[threads.lead, HAPPENED]
        for component, (time, request) in self.map_users[address].items():
            if time > known[component]:
                raise KernelError(
                    f"{text} changes the tensor map at {address:#x}, which {request} may still be "
                    "using; wait for this request's barrier or bulk group first"
                )
        tensor_map = self._map(address)
        self._check_host(threads, text, address, tensor_map)
        tensor_map.version += 1
        tensor_map.change, tensor_map.contents = text, b""
        group = threads.group
        tensor_map.changed = group.warps[threads.lead], group.time(threads.lead)
        tensor_map.released = None
        self.progress += 1

    def release_map(self, threads: Threads, address: int | None = None) -> None:
        """Follow ``fence.proxy.tensormap::generic.release``, or ``tensormap.cp_fenceproxy``.

        It releases the changes that the thread knows of, of one map or of all.
        """
        group, lead = threads.group, threads.lead
        chosen = self._maps.values() if address is None else [self._map(address)]
        for tensor_map in chosen:
            changed = tensor_map.changed
            if changed is None or tensor_map.released is not None:
                continue
            if group.rows[lead, HAPPENED, changed[0]] >= changed[1]:
                tensor_map.released = group.warps[lead], group.time(lead)
        threads.tick()
        self.progress += 1

    def acquire_map(self, threads: Threads, address: int) -> None:
        """Follow ``fence.proxy.tensormap::generic.acquire``, which holds for the whole CTA."""
        tensor_map, cta = self._map(address), threads.group.cta
        known = threads.group.rows[threads.lead, HAPPENED]
        tensor_map.missing.pop(cta, None)
        if tensor_map.version:
            released = tensor_map.released
            if released is None:
                tensor_map.missing[cta] = (
                    "the change was not released; call fence_proxy_tensormap_release after the "
                    "changes, then let the threads meet, then acquire"
                )
            elif known[released[0]] < released[1]:
                tensor_map.missing[cta] = (
                    f"nothing orders the acquire by {threads.label} behind the release; let both "
                    "meet at a barrier between them"
                )
            else:
                tensor_map.acquired[cta] = tensor_map.version
        self.progress += 1

    def use_map(self, threads: Threads, text: str, address: int, cycle: int) -> None:
        """Check the use of a tensor map by a request.

        Raises
        ------
        KernelError
            If there is no map there, it was freed, or it was changed and the CTA has not acquired
            the change.
        """
        about = f"{threads.label}: {text} in cycle {cycle}"
        if address not in self.device.maps:
            raise KernelError(f"{about}: {self._no_map(address)}")
        tensor_map, cta = self._map(address), threads.group.cta
        if tensor_map.acquired.get(cta, 0) < tensor_map.version:
            missing = tensor_map.missing.get(
                cta,
                "without fence.proxy.tensormap acquire: the descriptor cache may hold the old map; "
                "call fence_proxy_tensormap before the request",
            )
            raise KernelError(
                f"{about} uses the tensor map at {address:#x} after {tensor_map.change}, {missing}"
            )
        self._check_host(threads, f"{text} in cycle {cycle}", address, tensor_map)

    def _check_host(
        self, threads: Threads, text: str, address: int, tensor_map: TrackedMap
    ) -> None:
        """Check that nobody but ``tensormap.replace`` has changed a map since the launch."""
        contents = self.device.maps[address].tobytes()
        if tensor_map.contents and tensor_map.contents != contents:
            raise KernelError(
                f"{threads.label}: {text} uses the tensor map at {address:#x}, which the host has "
                "changed since the kernel was launched: L2 and the descriptor cache may hold the "
                "old map; change maps between two launches, or with tensormap_replace, a release "
                "and fence_proxy_tensormap"
            )
        tensor_map.contents = contents

    def _no_map(self, address: int) -> str:
        """Return why there is no map at an address, in words."""
        freed = self.device.freed.get(address)
        if freed is not None:
            return (
                f"the tensor map at {address:#x} was freed ({freed}); keep it until the last "
                "request that uses it is complete"
            )
        for start in self.device.maps:
            if start < address < start + MAP_BYTES:
                return (
                    f"{address:#x} is {address - start} bytes into the tensor map at {start:#x}: "
                    f"a map is aligned to {MAP_ALIGN} bytes, and is named by its first byte"
                )
        if 0 <= address < self.layout.limit:
            return (
                f"the tensor map's address, {address:#x}, is one of shared memory: requests read "
                "their map from global, constant or parameter memory; copy it there, and use that "
                "address"
            )
        aligned = "" if address % MAP_ALIGN == 0 else f", and is no multiple of {MAP_ALIGN}"
        return (
            f"there is no tensor map at {address:#x}{aligned}: use what device.tensor_map or "
            "device.im2col_map returned"
        )
