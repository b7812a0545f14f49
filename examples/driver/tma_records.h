/* Records of a host: requests, completions, and their numbers. See docs/host.md.
 *
 * A test compares every field and number with hw/layouts/host.py. The records are little-endian;
 * so must be the processor. */

#ifndef TMA_RECORDS_H
#define TMA_RECORDS_H

#include <stdint.h>

enum tma_operation {
    TMA_TENSOR_LOAD = 0,
    TMA_BULK_LOAD = 1,
    TMA_TENSOR_PREFETCH = 2,
    TMA_BULK_PREFETCH = 3,
    TMA_TENSOR_STORE = 4,
    TMA_BULK_STORE = 5,
    TMA_TENSOR_REDUCE = 6,
    TMA_BULK_REDUCE = 7,
    TMA_COMMIT_GROUP = 8,
    TMA_WAIT_GROUP = 9,
    TMA_WAIT_GROUP_READ = 10,
    TMA_INIT = 0x10, /* operations on mbarriers */
    TMA_INVAL = 0x11,
    TMA_ARRIVE = 0x12,
    TMA_ARRIVE_EXPECT_TX = 0x13,
    TMA_EXPECT_TX = 0x14,
    TMA_COMPLETE_TX = 0x15,
    TMA_TEST_WAIT_PARITY = 0x16,
    TMA_TEST_WAIT = 0x17,
    TMA_TRY_WAIT_PARITY = 0x18,
    TMA_TRY_WAIT = 0x19,
    TMA_ARRIVE_NO_COMPLETE = 0x1a,
    TMA_ARRIVE_DROP = 0x1b,
    TMA_ARRIVE_DROP_NO_COMPLETE = 0x1c,
    TMA_ARRIVE_DROP_EXPECT_TX = 0x1d,
    TMA_PENDING_COUNT = 0x1e,
    TMA_REPORT = 0x1f,
    TMA_INVALIDATE_MAP = 0x20, /* operations on tensor maps that the unit keeps */
    TMA_INVALIDATE_ALL_MAPS = 0x21,
    TMA_PREFETCH_MAP = 0x22
};

enum tma_flags {
    TMA_FENCE = 1,       /* begin when all records before have ended */
    TMA_NOTIFY = 2,      /* a barrier operation gives a completion record */
    TMA_JOINS_GROUP = 4, /* a load joins the bulk group of its thread */
    TMA_V1 = 8           /* a test or wait asks for the conditional phase */
};

enum tma_mode {
    TMA_TILE = 0,
    TMA_IM2COL = 1,
    TMA_TILE_GATHER4 = 2,
    TMA_TILE_SCATTER4 = 3,
    TMA_IM2COL_W = 4,
    TMA_IM2COL_W_128 = 5
};

enum tma_reduction_op {
    TMA_ADD = 0,
    TMA_MIN = 1,
    TMA_MAX = 2,
    TMA_INC = 3,
    TMA_DEC = 4,
    TMA_AND = 5,
    TMA_OR = 6,
    TMA_XOR = 7
};

struct tma_request {
    uint8_t operation;       /* enum tma_operation */
    uint8_t flags;           /* enum tma_flags */
    uint16_t request_id;     /* completion records return it */
    uint8_t mode_and_rank;   /* TMA_MODE_AND_RANK */
    uint8_t type_and_op;     /* TMA_TYPE_AND_OP of a reduction */
    uint16_t thread;         /* owner of the bulk groups */
    uint64_t global_address; /* of the tensor map, or of the bytes; state of a barrier operation */
    uint32_t smem_address;   /* offset in shared memory */
    uint32_t mbarrier;       /* offset in shared memory */
    uint32_t size;           /* bytes, pending groups, or count of a barrier operation */
    int32_t coords[5];       /* dimension 0 first; coords[0]: time limit of a wait */
    uint16_t im2col_info[3]; /* offsets, W first */
    uint16_t byte_mask;      /* bytes of each 16 that a bulk store writes: 0xffff without cp_mask */
    uint64_t cache_policy;
};

#define TMA_MODE_AND_RANK(mode, rank) ((uint8_t)((mode) | (rank) << 4))
#define TMA_TYPE_AND_OP(type, op) ((uint8_t)((type) | (op) << 4))

#define TMA_RECORD_BYTES 64

enum tma_completion_kind {
    TMA_COMPLETION_BARRIER = 0, /* a barrier operation or its wait has ended */
    TMA_COMPLETION_GROUP = 1,   /* a wait for bulk groups has ended */
    TMA_COMPLETION_ERROR = 2,   /* a request failed: code of docs/errors.md */
    TMA_COMPLETION_REFUSED = 3  /* a record is not legal: enum tma_host_error */
};

struct tma_completion {
    uint64_t value;      /* state of a barrier operation, or value of an error */
    uint16_t request_id; /* of the request record */
    uint8_t kind;        /* enum tma_completion_kind */
    uint8_t code;        /* fault or error; 0 if there is none */
    uint8_t detail;      /* BARRIER: 1 if the phase is complete; ERROR: its dimension */
    uint8_t zero[2];
    uint8_t phase;       /* 1 in the first round of the ring, 0 in the second, and so on */
};

#define TMA_COMPLETION_BYTES 16

enum tma_host_error {
    TMA_ERROR_NONE = 0,
    TMA_ERROR_ADDRESS = 1,
    TMA_ERROR_READ_ONLY = 2,
    TMA_ERROR_PARTIAL_WRITE = 3,
    TMA_ERROR_RING_STATE = 4,
    TMA_ERROR_RING_BASE = 5,
    TMA_ERROR_RING_SIZE = 6,
    TMA_ERROR_RING_INDEX = 7,
    TMA_ERROR_REQUEST_RING = 8,
    TMA_ERROR_COMPLETION_RING = 9,
    TMA_ERROR_RESERVED_BITS = 10,
    TMA_ERROR_OPERATION = 11,
    TMA_ERROR_MBARRIER = 12
};

/* Compile-time checks of the sizes. */
typedef char tma_request_has_64_bytes[sizeof(struct tma_request) == TMA_RECORD_BYTES ? 1 : -1];
typedef char
    tma_completion_has_16_bytes[sizeof(struct tma_completion) == TMA_COMPLETION_BYTES ? 1 : -1];

#endif
