/* Driver of the unit for a host without an SM, in freestanding C99. See docs/host.md.
 *
 * Nothing is allocated. The compiler may call memcpy and memset. The driver is for one thread of
 * execution; calls from an interrupt handler and from the program must not overlap. */

#ifndef TMA_H
#define TMA_H

#include <stddef.h>
#include <stdint.h>

#include "tma_records.h"

#define TMA_MAP_WORDS 32
#define TMA_MAX_RANK 5
#define TMA_SMEM_WINDOW 0x100000 /* address of shared memory behind the registers */

/* Results. Those from TMA_DATA_TYPE on are the codes of docs/errors.md for tensor maps. */
enum tma_status {
    TMA_OK = 0,
    TMA_EMPTY = 1,     /* there is no new completion record */
    TMA_FULL = 2,      /* the request ring has no free record */
    TMA_TIMEOUT = 3,   /* the unit did not do it in time */
    TMA_NO_UNIT = 4,   /* ID is not that of the unit, or its version is another one */
    TMA_BAD_SETUP = 5, /* the unit refused the rings: tma_take_error says why */
    TMA_DATA_TYPE = 33,
    TMA_INTERLEAVE = 34,
    TMA_SWIZZLE = 35,
    TMA_L2_PROMOTION = 36,
    TMA_OOB_FILL = 37,
    TMA_RANK = 38,
    TMA_GLOBAL_ADDRESS = 39,
    TMA_GLOBAL_DIM = 40,
    TMA_GLOBAL_STRIDES = 41,
    TMA_ELEMENT_STRIDES = 42,
    TMA_BOX_DIM = 43,
    TMA_INNER_ALIGN = 44,
    TMA_INNER_SPAN = 45,
    TMA_BOX_BYTES = 46,
    TMA_CHANNELS_PER_PIXEL = 47,
    TMA_PIXELS_PER_COLUMN = 48,
    TMA_CORNER = 49,
    TMA_BOUNDING_BOX = 50
};

/* Sentence about a result; never NULL. */
const char *tma_status_text(int status);

/* Tensor maps. Numbers are those of cuda.h. */

enum tma_data_type {
    TMA_UINT8 = 0,
    TMA_UINT16 = 1,
    TMA_UINT32 = 2,
    TMA_INT32 = 3,
    TMA_UINT64 = 4,
    TMA_INT64 = 5,
    TMA_FLOAT16 = 6,
    TMA_FLOAT32 = 7,
    TMA_FLOAT64 = 8,
    TMA_BFLOAT16 = 9,
    TMA_FLOAT32_FTZ = 10,
    TMA_TFLOAT32 = 11,
    TMA_TFLOAT32_FTZ = 12
};

struct tma_tensor {
    uint64_t global_address;
    uint64_t global_dim[TMA_MAX_RANK];         /* elements, innermost dimension first */
    uint64_t global_strides[TMA_MAX_RANK - 1]; /* bytes, of dimensions 1 and up */
    uint32_t element_strides[TMA_MAX_RANK];    /* 1 to 8 */
    uint32_t rank;
    uint32_t data_type;    /* enum tma_data_type */
    uint32_t interleave;   /* 0 none, 1 16 bytes, 2 32 bytes */
    uint32_t swizzle;      /* 0 none, 1 32B, 2 64B, 3 128B */
    uint32_t l2_promotion; /* 0 none, 1 64B, 2 128B, 3 256B */
    uint32_t oob_fill;     /* 0 zero, 1 NaN */
};

/* Write the tensor map of CUDA's cuTensorMapEncodeTiled; box_dim has rank elements. */
int tma_encode_tiled(
    uint32_t map[TMA_MAP_WORDS], const struct tma_tensor *tensor, const uint32_t *box_dim);

/* Write the tensor map of CUDA's cuTensorMapEncodeIm2col; corners have rank - 2 elements, W first.
 */
int tma_encode_im2col(
    uint32_t map[TMA_MAP_WORDS], const struct tma_tensor *tensor, const int32_t *lower_corner,
    const int32_t *upper_corner, uint32_t channels_per_pixel, uint32_t pixels_per_column);

/* The unit. */

struct tma_setup {
    uintptr_t registers;            /* address of the AXI4-Lite port */
    void *request_ring;             /* where the processor finds the ring */
    uint64_t request_address;       /* where the unit finds it, a multiple of 64 */
    unsigned request_log2;          /* records, as a power of two: 1 to 15 */
    void *completion_ring;
    uint64_t completion_address;    /* a multiple of 16 */
    unsigned completion_log2;
    uint32_t time_limit;            /* polls after which a wait gives up */
};

struct tma_device {
    uintptr_t registers;
    volatile uint32_t *request_ring;
    volatile uint32_t *completion_ring;
    uint32_t request_mask, completion_mask; /* records of each ring, less 1 */
    uint32_t tail;                          /* index of the next request record */
    uint32_t rung;                          /* index that the unit was told */
    uint32_t head;                          /* index of the next completion record */
    uint32_t phase;                         /* of the completion record that is new */
    uint32_t time_limit;
};

/* Access to the registers. A platform whose registers are not at addresses of the processor, or
 * whose accesses need more than a load or a store, defines TMA_PLATFORM and has these functions. */
#ifdef TMA_PLATFORM
uint32_t tma_read(uintptr_t registers, uint32_t offset);
void tma_write(uintptr_t registers, uint32_t offset, uint32_t value);
void tma_pause(void); /* between two polls */
#else
static inline uint32_t tma_read(uintptr_t registers, uint32_t offset)
{
    return *(volatile uint32_t *)(registers + offset);
}

static inline void tma_write(uintptr_t registers, uint32_t offset, uint32_t value)
{
    *(volatile uint32_t *)(registers + offset) = value;
}

static inline void tma_pause(void)
{
}
#endif

/* Wait until the unit is idle, set up both rings and enable them. */
int tma_open(struct tma_device *device, const struct tma_setup *setup);

/* Wait until the unit is idle and has no request record left, or could not read one, and disable
 * the rings. */
int tma_close(struct tma_device *device);

/* Put a record into the ring; TMA_FULL if there is no room. The unit begins it with tma_ring. */
int tma_post(struct tma_device *device, const struct tma_request *request);

/* Ring the doorbell: the unit begins all records that were posted. */
void tma_ring(struct tma_device *device);

/* Take the next completion record; TMA_EMPTY if there is none. */
int tma_poll(struct tma_device *device, struct tma_completion *completion);

/* Ring the doorbell, and wait for the next completion record; TMA_TIMEOUT if none comes. */
int tma_wait(struct tma_device *device, struct tma_completion *completion);

/* Return the error that the unit keeps (enum tma_host_error) and its value, and clear it. */
int tma_take_error(struct tma_device *device, uint32_t *value);

/* Interrupts: enable those of a mask of TMA_HOST__INTERRUPT_ENABLE; return and clear the pending
 * ones. */
void tma_enable_interrupts(struct tma_device *device, uint32_t mask);
uint32_t tma_take_interrupts(struct tma_device *device);

/* Words of shared memory. */
uint32_t tma_smem_read(struct tma_device *device, uint32_t offset);
void tma_smem_write(struct tma_device *device, uint32_t offset, uint32_t value);

/* Request records; fields that are not named are 0. */

/* Load, store, reduction or prefetch of a box at coords, which has rank elements. */
struct tma_request tma_tensor_request(
    unsigned operation, uint64_t map, uint32_t smem, unsigned rank, const int32_t *coords);

/* Load, store, reduction or prefetch of bytes; a store writes all bytes of its mask. */
struct tma_request
tma_bulk_request(unsigned operation, uint64_t address, uint32_t smem, uint32_t bytes);

/* COMMIT_GROUP, WAIT_GROUP or WAIT_GROUP_READ; pending groups may remain. */
struct tma_request tma_group_request(unsigned operation, unsigned thread, unsigned pending);

/* Initialise a barrier for a number of arrivals in each phase. */
struct tma_request tma_barrier_init(uint32_t mbarrier, uint32_t arrivals);

/* Operation on a barrier with a count. */
struct tma_request tma_barrier_request(unsigned operation, uint32_t mbarrier, uint32_t count);

/* Wait, up to a number of clocks, for the end of the phase with a parity; it notifies. */
struct tma_request tma_barrier_wait(uint32_t mbarrier, unsigned parity, uint32_t clocks);

#endif
