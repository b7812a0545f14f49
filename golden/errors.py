"""Why a tensor map or a request is refused: codes, and messages that say what to change."""

import enum


class Cause(enum.IntEnum):
    """Machine-readable causes, in order: of several, the first is reported.

    The unit's error records carry the same numbers.
    """

    NONE = 0
    MAP_FIELD = 1
    MAP_MODE = 2
    SMEM_ALIGN = 3
    SMEM_RANGE = 4
    COORD_ALIGN = 5
    COORD_NEG = 6
    IM2COL_START = 7
    IM2COL_CORNER = 8
    IM2COL_OFFSET = 9
    RED_TYPE = 10
    BULK_ALIGN = 11
    MASK = 12
    DST_CTA = 13
    MBAR_ALIGN = 14
    MBAR_FAULT = 15
    GMEM_FAULT = 16


class TensorMapError(ValueError):
    """A tensor map cannot be built: the driver's encoder answers ``CUDA_ERROR_INVALID_VALUE``.

    Attributes
    ----------
    parameter : str
        As the encoder names it, with an index where it has one.
    value : object
    """

    def __init__(self, parameter: str, value: object, rule: str) -> None:
        super().__init__(f"{parameter} = {value}: {rule}")
        self.parameter = parameter
        self.value = value


class Refusal(Exception):  # noqa: N818 - it is the unit's answer, not a failure of the model
    """The unit refuses a request; nothing has happened.

    Attributes
    ----------
    cause : Cause
    dim : int
        The dimension it was found in, or 0.
    value : int
        The offending value, as the unit's error record has it.
    """

    def __init__(self, cause: Cause, dim: int, value: int, message: str) -> None:
        super().__init__(f"{cause.name}: {message}")
        self.cause = cause
        self.dim = dim
        self.value = value
