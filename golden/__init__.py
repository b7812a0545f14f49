"""Golden model of the Tensor Memory Accelerator, in NumPy.

What the unit does, to be read, run and compared with: tensor maps as CUDA's driver encodes them,
every request of the unit, mbarriers and bulk groups. Nothing here knows the RTL.

``definition`` is the literal text to be checked against documents; ``Plan`` and ``execute`` are the
vectorised model, which agrees with it; ``Cluster`` adds shared memories, barriers and groups.
"""

from golden.advice import advice
from golden.bulk_group import BulkGroups
from golden.cluster import Cluster
from golden.descriptor import Descriptor
from golden.enums import (
    AccessMode,
    Arch,
    DataType,
    Interleave,
    L2Promotion,
    MapMode,
    OobFill,
    ReductionOp,
    Swizzle,
)
from golden.errors import ErrorCode, TmaError, TmaWarning
from golden.memory import ArrayMemory, HashedMemory, LayeredMemory, Memory
from golden.model import check, execute
from golden.plan import Plan
from golden.request import (
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    Completion,
    DsmemCopy,
    DsmemReduce,
    Load,
    Prefetch,
    Reduce,
    Request,
    Store,
)
from golden.tensor_map import TensorMap
from golden.tensormap_replace import tensormap_replace

__all__ = [
    "AccessMode",
    "Arch",
    "ArrayMemory",
    "BulkGroups",
    "BulkLoad",
    "BulkPrefetch",
    "BulkReduce",
    "BulkStore",
    "Cluster",
    "Completion",
    "DataType",
    "Descriptor",
    "DsmemCopy",
    "DsmemReduce",
    "ErrorCode",
    "HashedMemory",
    "Interleave",
    "L2Promotion",
    "LayeredMemory",
    "Load",
    "MapMode",
    "Memory",
    "OobFill",
    "Plan",
    "Prefetch",
    "Reduce",
    "ReductionOp",
    "Request",
    "Store",
    "Swizzle",
    "TensorMap",
    "TmaError",
    "TmaWarning",
    "advice",
    "check",
    "execute",
    "tensormap_replace",
]
