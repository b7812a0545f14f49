/* Replays recorded requests by the driver: each job has the parameters of a tensor map, a request, and
 * the memories before; the program writes what became of it. tests/examples/replay.py has the form. */

#include "platform.h"

#define BARRIER (233472u - 8) /* last word of shared memory */
#define COPY_BARRIER (BARRIER - 8)
#define UNKNOWN 0xffffffffu

struct job {
    struct tma_tensor tensor;
    uint32_t box_dim[5];
    int32_t lower_corner[3], upper_corner[3];
    uint32_t channels_per_pixel, pixels_per_column;
    uint32_t is_bulk, is_im2col;
    uint32_t operation, rank;
    int32_t coords[5];
    uint32_t offsets[3];
    uint32_t smem_address, bytes, element_type, reduction_op;
    uint32_t memory_image, memory_bytes; /* global memory from 0 on */
    uint32_t smem_image, smem_bytes;     /* shared memory from 0 on */
    uint32_t result, result_bytes;       /* of a load shared memory, otherwise global memory */
    uint32_t status;                     /* results: of the driver */
    uint32_t code;                       /* of the unit's error record */
    uint32_t errors;                     /* number of error records */
    uint32_t complete;                   /* the barrier or the group is complete */
    uint32_t map[TMA_MAP_WORDS];
};

typedef char job_has_416_bytes[sizeof(struct job) == 416 ? 1 : -1];

struct parameters {
    uint32_t count, jobs, background;
};

static struct tma_device device;

void soc_handler(void)
{
}

void tma_pause(void)
{
#ifdef SOC_NATIVE
    soc_clock();
#endif
}

static void copy(uint32_t to, uint32_t from, uint32_t bytes)
{
    uint8_t *t = soc_at(to);
    const uint8_t *f = soc_at(from);

    while (bytes && (((uintptr_t)t | (uintptr_t)f | bytes) & 3)) {
        *t++ = *f++;
        bytes--;
    }
    for (; bytes; bytes -= 4, t += 4, f += 4)
        *(uint32_t *)(void *)t = *(const uint32_t *)(const void *)f;
}

/* Post records, and wait for the completion record of the last one; note errors. */
static int perform(struct tma_request *requests, unsigned count, uint16_t id, struct job *job)
{
    struct tma_completion completion;
    unsigned i;
    int status = TMA_OK;

    for (i = 0; i < count && !status; i++) {
        requests[i].request_id = id;
        status = tma_post(&device, &requests[i]);
    }
    while (!status) {
        status = tma_wait(&device, &completion);
        if (status || completion.request_id != id)
            return status ? status : (int)UNKNOWN;
        switch (completion.kind) {
        case TMA_COMPLETION_BARRIER: job->complete = completion.detail; return TMA_OK;
        case TMA_COMPLETION_GROUP: job->complete = 1; return TMA_OK;
        default: job->code = completion.kind << 8 | completion.code; job->errors++;
        }
    }
    return status;
}

/* Put a load between the initialisation of its barrier and a test behind a fence. */
static int load(struct tma_request request, uint32_t mbarrier, uint32_t bytes, struct job *job)
{
    struct tma_request requests[4] = {
        tma_barrier_init(mbarrier, 1),
        tma_barrier_request(TMA_ARRIVE_EXPECT_TX, mbarrier, bytes),
        request,
        tma_barrier_request(TMA_TEST_WAIT_PARITY, mbarrier, 0),
    };

    requests[2].mbarrier = mbarrier;
    requests[3].flags = TMA_NOTIFY | TMA_FENCE;
    return perform(requests, 4, 3, job);
}

static int store(struct tma_request request, struct job *job)
{
    struct tma_request requests[3] = {
        request,
        tma_group_request(TMA_COMMIT_GROUP, 0, 0),
        tma_group_request(TMA_WAIT_GROUP, 0, 0),
    };

    return perform(requests, 3, 7, job);
}

/* Copy between global memory and the start of shared memory, by the unit. */
static int move(unsigned operation, uint32_t address, uint32_t bytes)
{
    struct job copies = {.complete = 0};
    uint32_t size = (bytes + 15) & ~15u;
    struct tma_request request = tma_bulk_request(operation, address, 0, size);
    int status = operation == TMA_BULK_LOAD ? load(request, COPY_BARRIER, size, &copies)
                                            : store(request, &copies);

    return status ? status : copies.errors || !copies.complete ? (int)UNKNOWN : TMA_OK;
}

static int replay(struct job *job)
{
    struct tma_request request;
    int is_load = job->operation <= TMA_BULK_LOAD;
    int status = TMA_OK;

    if (job->is_bulk) {
        request = tma_bulk_request(
            job->operation, job->tensor.global_address, job->smem_address, job->bytes);
    } else {
        struct tma_request forget = {.operation = TMA_INVALIDATE_ALL_MAPS};
        unsigned i;

        status = job->is_im2col
                     ? tma_encode_im2col(
                           job->map, &job->tensor, job->lower_corner, job->upper_corner,
                           job->channels_per_pixel, job->pixels_per_column)
                     : tma_encode_tiled(job->map, &job->tensor, job->box_dim);
        for (i = 0; i < TMA_MAP_WORDS; i++)
            ((volatile uint32_t *)soc_at(SOC_MAPS))[i] = job->map[i];
        if (!status)
            status = tma_post(&device, &forget);
        request = tma_tensor_request(
            job->operation, SOC_MAPS, job->smem_address, job->rank, job->coords);
        if (job->is_im2col)
            request.mode_and_rank = TMA_MODE_AND_RANK(TMA_IM2COL, job->rank);
        for (i = 0; i < 3; i++)
            request.im2col_info[i] = (uint16_t)job->offsets[i];
    }
    request.type_and_op = TMA_TYPE_AND_OP(job->element_type, job->reduction_op);
    if (!status && job->smem_bytes)
        status = move(TMA_BULK_LOAD, job->smem_image, job->smem_bytes);
    if (!status)
        status = is_load ? load(request, BARRIER, job->bytes ? job->bytes : 16, job)
                         : store(request, job);
    if (!status && is_load)
        status = move(TMA_BULK_STORE, job->result, job->result_bytes);
    return status;
}

int main(void)
{
    const struct parameters *p = soc_at(SOC_PARAMETERS);
    struct job *jobs = soc_at(p->jobs);
    uint32_t i;

    if (soc_open(&device)) {
        soc_print("the unit cannot be opened\n");
        return 1;
    }
    for (i = 0; i < p->count; i++) {
        struct job *job = &jobs[i];

        copy(SOC_DATA, job->memory_image, job->memory_bytes);
        job->status = (uint32_t)replay(job);
        if (job->operation > TMA_BULK_LOAD)
            copy(job->result, SOC_DATA, job->result_bytes);
        copy(SOC_DATA, p->background, job->memory_bytes);
    }
    return tma_close(&device) ? 2 : 0;
}
