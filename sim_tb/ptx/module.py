"""Kernels of a PTX text, launched with arrays as arguments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import TensorMap
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.kernel import Kernels, align_up
from sim_tb.ptx.launch import Launch, Result, run
from sim_tb.sm.record import Setting

_FIRST_ADDRESS = 0x10_0000_0000
"""Global address of the first array of a launch."""

_ALIGNMENT = 256
"""Alignment of arrays in global memory, in bytes."""


class Module(Kernels):
    """Kernels of a PTX text.

    Parameters
    ----------
    text : str or bytes
        PTX, as ``nvcc -ptx``, Triton's ``kernel.asm["ptx"]`` or clang write it, for ``sm_90`` or
        ``sm_90a``.

    Raises
    ------
    PtxError
        If the text is binary code, broken, or for another target.

    Examples
    --------
    >>> import numpy as np
    >>> text = '''.version 8.0
    ... .target sm_90a
    ... .address_size 64
    ... .entry twice(.param .u64 array) {
    ...     .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [array];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     ld.global.u32 %r2, [%rd3];
    ...     add.s32 %r2, %r2, %r2;
    ...     st.global.u32 [%rd3], %r2;
    ...     ret; }'''
    >>> array = np.arange(4, dtype=np.uint32)
    >>> result = Module(text).launch("twice", (1, 1, 1), (4, 1, 1), [array], engine="golden")
    >>> array
    array([0, 2, 4, 6], dtype=uint32)
    """

    def launch(
        self,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        *,
        cluster: Sequence[int] | None = None,
        smem: int = 0,
        sms: int = 0,
        sanitize: bool = False,
        engine: str = "unit",
        setting: Setting | None = None,
    ) -> Result:
        """Run a grid; the kernel changes arrays in place.

        Parameters
        ----------
        entry : str
            Name of the kernel.
        grid, block, cluster : sequence of int
            One to three extents: blocks of the grid, threads of a block, blocks of a cluster.
        args : sequence
            One value for each parameter: an array, whose address the kernel gets; a
            `golden.TensorMap`, whose address is an offset in the
            last array before it; a number of the parameter's size; or bytes.
        smem : int
            Bytes of dynamic shared memory.
        sms : int
            SMs: so many blocks run at the same time, if their clusters fit. 0: one cluster.
        sanitize : bool
            Whether the sanitizer follows the threads, and names mistakes that this run may have
            survived. It takes about twice the time.
        engine : str
            What carries out copies and mbarrier operations: ``"unit"``, the simulated unit; or
            ``"golden"``, the golden model, which needs no simulator and knows no time.
        setting : Setting, optional
            Surroundings of the unit.

        Returns
        -------
        Result
            Clocks and instructions of the launch.

        Raises
        ------
        PtxError
            If an argument is wrong, or the kernel makes a mistake: the arrays are unchanged.
        """
        kernel = self.kernel(entry)
        if len(args) != len(kernel.parameters):
            raise PtxError(
                f"{entry} has {len(kernel.parameters)} parameters, {len(args)} arguments are given"
            )
        arrays: list[tuple[int, NDArray[np.uint8]]] = []
        outputs: list[tuple[int, NDArray[Any]]] = []
        data = np.zeros(kernel.parameter_bytes, np.uint8)
        address = _FIRST_ADDRESS
        for value, (name, offset, size) in zip(args, kernel.parameters, strict=True):
            if isinstance(value, np.ndarray) and value.ndim:
                raw = np.frombuffer(value.tobytes(), np.uint8)
                known = [at for at, each in outputs if each is value]
                if not known:
                    arrays.append((address, raw))
                    outputs.append((address, value))
                encoded = (known[0] if known else address).to_bytes(8, "little")
                address = address if known else align_up(address + raw.size, _ALIGNMENT)
            elif isinstance(value, TensorMap):
                encoded = self._relocated(name, value, outputs).encode()
            elif isinstance(value, bytes):
                encoded = value
            else:
                encoded = _scalar(name, value, size)
            if len(encoded) != size:
                raise PtxError(f"{name} has {size} bytes, its argument has {len(encoded)}")
            data[offset : offset + size] = np.frombuffer(encoded, np.uint8)
        launch = Launch(self.text, entry, grid, block, cluster, smem, data, arrays, sms, sanitize)
        result = run(launch, engine, setting)
        for (_, array), after in zip(outputs, result.allocations, strict=True):
            array[...] = after.view(array.dtype).reshape(array.shape)
        return result

    @staticmethod
    def _relocated(
        name: str, value: TensorMap, outputs: list[tuple[int, NDArray[Any]]]
    ) -> TensorMap:
        """Return a map whose address, an offset in the last array, is a global address."""
        if not outputs:
            raise PtxError(f"{name}: a tensor map needs an array among the arguments before it")
        at, array = outputs[-1]
        if value.global_address >= array.nbytes:
            raise PtxError(
                f"{name}: address {value.global_address:#x} of the map is outside the array before "
                f"it, which has {array.nbytes} bytes"
            )
        return value.with_address(at + value.global_address)


def _scalar(name: str, value: Any, size: int) -> bytes:
    """Return the bytes of a number as a parameter of ``size`` bytes."""
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, float) and size in (4, 8):
        return np.array(value, f"f{size}").tobytes()
    if isinstance(value, int):
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
        raise PtxError(f"{name} has {size} bytes: {value} does not fit")
    raise PtxError(f"{name}: an argument of type {type(value).__name__} is no parameter")
