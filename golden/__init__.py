"""Golden model of the Tensor Memory Accelerator, in NumPy.

The package is an executable specification of the unit: tensor maps as CUDA's driver encodes them,
every request, mbarriers and bulk groups. It imports nothing of the RTL.

``definition`` describes each request element by element, for comparison with the documents. `Plan`
and `execute` are the vectorised model, which agrees with it. `Cluster` adds shared memories,
mbarriers and bulk groups.
"""

from open_tma.installation import need

need(__name__)

from golden.advice import advice
from golden.arch import Arch, Feature
from golden.bulk_group import BulkGroups
from golden.cluster import Cluster
from golden.descriptor import Descriptor
from golden.enums import (
    AccessMode,
    DataType,
    Interleave,
    L2Promotion,
    MapMode,
    OobFill,
    Ordering,
    ReductionOp,
    ReportMechanism,
    Swizzle,
)
from golden.errors import ErrorCode, TmaError, TmaWarning
from golden.lint import Finding, LintCode, Severity, assert_clean, lint
from golden.memory import ArrayMemory, HashedMemory, LayeredMemory, Memory
from golden.model import check, execute
from golden.plan import Plan
from golden.request import (
    ApplyPriority,
    BulkApplyPriority,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkStore,
    Completion,
    DsmemCopy,
    DsmemReduce,
    Load,
    Override,
    Prefetch,
    Reduce,
    Request,
    Store,
)
from golden.tensor_map import TensorMap
from golden.tensormap_replace import tensormap_replace

__all__ = [
    "AccessMode",
    "ApplyPriority",
    "Arch",
    "ArrayMemory",
    "BulkApplyPriority",
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
    "Feature",
    "Finding",
    "HashedMemory",
    "Interleave",
    "L2Promotion",
    "LayeredMemory",
    "LintCode",
    "Load",
    "MapMode",
    "Memory",
    "OobFill",
    "Ordering",
    "Override",
    "Plan",
    "Prefetch",
    "Reduce",
    "ReductionOp",
    "ReportMechanism",
    "Request",
    "Severity",
    "Store",
    "Swizzle",
    "TensorMap",
    "TmaError",
    "TmaWarning",
    "advice",
    "assert_clean",
    "check",
    "execute",
    "lint",
    "tensormap_replace",
]
