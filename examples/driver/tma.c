/* Rings, registers and records of the unit. */

#include "tma.h"
#include "tma_registers.h"

/* Offsets only: an access through the packed type may be split into bytes, which is refused. */
#define REGISTER(name) ((uint32_t)offsetof(tma_host_t, name))

#define IDENTIFIER                                                                                 \
    ((uint32_t)TMA_HOST__ID__NAME_reset << TMA_HOST__ID__NAME_bp | TMA_HOST__ID__VERSION_reset)
#define RECORD_WORDS (TMA_RECORD_BYTES / 4)
#define COMPLETION_WORDS (TMA_COMPLETION_BYTES / 4)

/* Order of accesses to memory and to registers, also as other masters see them. */
static void barrier_of_memory(void)
{
#if defined(__riscv)
    __asm__ volatile("fence" ::: "memory");
#else
    __sync_synchronize();
#endif
}

static uint32_t get(const struct tma_device *device, uint32_t offset)
{
    return tma_read(device->registers, offset);
}

static void set(const struct tma_device *device, uint32_t offset, uint32_t value)
{
    tma_write(device->registers, offset, value);
}

/* Wait until the unit is idle and no request record is left, or none is read any more. */
static int wait_idle(const struct tma_device *device)
{
    uint32_t polls = device->time_limit;

    do {
        uint32_t status = get(device, REGISTER(STATUS));
        int ends = !(status & TMA_HOST__STATUS__WAITS_bm) || status & TMA_HOST__STATUS__HALTED_bm;

        if ((status & TMA_HOST__STATUS__IDLE_bm) && ends)
            return TMA_OK;
        tma_pause();
    } while (polls--);
    return TMA_TIMEOUT;
}

int tma_open(struct tma_device *device, const struct tma_setup *setup)
{
    uint32_t i;
    int status;

    device->registers = setup->registers;
    device->request_ring = setup->request_ring;
    device->completion_ring = setup->completion_ring;
    device->request_mask = ((uint32_t)1 << setup->request_log2) - 1;
    device->completion_mask = ((uint32_t)1 << setup->completion_log2) - 1;
    device->tail = device->rung = device->head = 0;
    device->phase = 1;
    device->time_limit = setup->time_limit;
    if (get(device, REGISTER(ID)) != IDENTIFIER)
        return TMA_NO_UNIT;
    status = wait_idle(device);
    if (status)
        return status;
    for (i = 0; i < (device->completion_mask + 1) * COMPLETION_WORDS; i++)
        device->completion_ring[i] = 0;
    barrier_of_memory();
    set(device, REGISTER(CONTROL), 0);
    set(device, REGISTER(ERROR), 0);
    set(device, REGISTER(INTERRUPT_STATUS), ~(uint32_t)0);
    set(device, REGISTER(REQUEST_BASE_LOW), (uint32_t)setup->request_address);
    set(device, REGISTER(REQUEST_BASE_HIGH), (uint32_t)(setup->request_address >> 32));
    set(device, REGISTER(REQUEST_SIZE), setup->request_log2);
    set(device, REGISTER(COMPLETION_BASE_LOW), (uint32_t)setup->completion_address);
    set(device, REGISTER(COMPLETION_BASE_HIGH), (uint32_t)(setup->completion_address >> 32));
    set(device, REGISTER(COMPLETION_SIZE), setup->completion_log2);
    set(device, REGISTER(CONTROL), TMA_HOST__CONTROL__ENABLE_bm);
    return get(device, REGISTER(ERROR)) ? TMA_BAD_SETUP : TMA_OK;
}

int tma_close(struct tma_device *device)
{
    int status = wait_idle(device);

    if (status)
        return status;
    set(device, REGISTER(CONTROL), 0);
    return TMA_OK;
}

int tma_post(struct tma_device *device, const struct tma_request *request)
{
    union {
        struct tma_request request;
        uint32_t words[RECORD_WORDS];
    } record;
    volatile uint32_t *place = device->request_ring + device->tail * RECORD_WORDS;
    uint32_t next = (device->tail + 1) & device->request_mask;
    uint32_t i;

    if (next == get(device, REGISTER(REQUEST_HEAD)))
        return TMA_FULL;
    record.request = *request;
    for (i = 0; i < RECORD_WORDS; i++)
        place[i] = record.words[i];
    device->tail = next;
    return TMA_OK;
}

void tma_ring(struct tma_device *device)
{
    if (device->rung == device->tail)
        return;
    barrier_of_memory();
    set(device, REGISTER(REQUEST_TAIL), device->tail);
    device->rung = device->tail;
}

int tma_poll(struct tma_device *device, struct tma_completion *completion)
{
    union {
        struct tma_completion completion;
        uint32_t words[COMPLETION_WORDS];
    } record;
    volatile uint32_t *place = device->completion_ring + device->head * COMPLETION_WORDS;
    uint32_t i;

    /* The last word has the phase; the others are read behind it. */
    if (place[COMPLETION_WORDS - 1] >> 24 != device->phase)
        return TMA_EMPTY;
    barrier_of_memory();
    for (i = 0; i < COMPLETION_WORDS; i++)
        record.words[i] = place[i];
    *completion = record.completion;
    device->head = (device->head + 1) & device->completion_mask;
    if (device->head == 0)
        device->phase ^= 1;
    barrier_of_memory();
    set(device, REGISTER(COMPLETION_HEAD), device->head);
    return TMA_OK;
}

int tma_wait(struct tma_device *device, struct tma_completion *completion)
{
    uint32_t polls = device->time_limit;

    tma_ring(device);
    do {
        if (tma_poll(device, completion) == TMA_OK)
            return TMA_OK;
        tma_pause();
    } while (polls--);
    return TMA_TIMEOUT;
}

int tma_take_error(struct tma_device *device, uint32_t *value)
{
    uint32_t code = get(device, REGISTER(ERROR));

    *value = get(device, REGISTER(ERROR_VALUE));
    set(device, REGISTER(ERROR), 0);
    return (int)code;
}

void tma_enable_interrupts(struct tma_device *device, uint32_t mask)
{
    set(device, REGISTER(INTERRUPT_ENABLE), mask);
}

uint32_t tma_take_interrupts(struct tma_device *device)
{
    uint32_t pending = get(device, REGISTER(INTERRUPT_STATUS));

    set(device, REGISTER(INTERRUPT_STATUS), pending);
    return pending;
}

uint32_t tma_smem_read(struct tma_device *device, uint32_t offset)
{
    return get(device, TMA_SMEM_WINDOW + offset);
}

void tma_smem_write(struct tma_device *device, uint32_t offset, uint32_t value)
{
    set(device, TMA_SMEM_WINDOW + offset, value);
}

static struct tma_request empty_request(unsigned operation)
{
    struct tma_request request = {0};

    request.operation = (uint8_t)operation;
    return request;
}

struct tma_request tma_tensor_request(
    unsigned operation, uint64_t map, uint32_t smem, unsigned rank, const int32_t *coords)
{
    struct tma_request request = empty_request(operation);
    unsigned i;

    request.global_address = map;
    request.smem_address = smem;
    request.mode_and_rank = TMA_MODE_AND_RANK(TMA_TILE, rank);
    for (i = 0; i < rank && i < TMA_MAX_RANK; i++)
        request.coords[i] = coords[i];
    return request;
}

struct tma_request
tma_bulk_request(unsigned operation, uint64_t address, uint32_t smem, uint32_t bytes)
{
    struct tma_request request = empty_request(operation);

    request.global_address = address;
    request.smem_address = smem;
    request.size = bytes;
    request.byte_mask = 0xffff;
    return request;
}

struct tma_request tma_group_request(unsigned operation, unsigned thread, unsigned pending)
{
    struct tma_request request = empty_request(operation);

    request.thread = (uint16_t)thread;
    request.size = pending;
    return request;
}

struct tma_request tma_barrier_request(unsigned operation, uint32_t mbarrier, uint32_t count)
{
    struct tma_request request = empty_request(operation);

    request.mbarrier = mbarrier;
    request.size = count;
    return request;
}

struct tma_request tma_barrier_init(uint32_t mbarrier, uint32_t arrivals)
{
    struct tma_request request = tma_barrier_request(TMA_INIT, mbarrier, 0);
    uint64_t pending = (((uint64_t)1 << 20) - arrivals) & 0xfffff;

    /* Pending and expected arrivals of the first phase, whose parity is 0. */
    request.global_address = pending << 1 | pending << 43;
    return request;
}

struct tma_request tma_barrier_wait(uint32_t mbarrier, unsigned parity, uint32_t clocks)
{
    struct tma_request request = tma_barrier_request(TMA_TRY_WAIT_PARITY, mbarrier, parity & 1);

    request.flags = TMA_NOTIFY;
    request.coords[0] = (int32_t)clocks;
    return request;
}
