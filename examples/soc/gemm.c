/* C = A * B^T: integers of 16 bits, sums of 32 bits. The unit loads tiles of A and B into shared
 * memory and stores tiles of C; the processor multiplies. Elements outside of a matrix are 0 in its
 * tiles, and are not stored. The next tiles are on their way while the processor multiplies. */

#include "platform.h"

#define TILE 8    /* rows and columns of a tile of C */
#define TILE_K 16 /* elements of a row of a tile of A or B */
#define STAGES 2

/* Shared memory. */
#define TILE_BYTES (TILE * TILE_K * 2)
#define STAGE(stage) ((uint32_t)(stage) * 2 * TILE_BYTES)
#define C_TILE (STAGES * 2 * TILE_BYTES)
#define BARRIER(stage) (C_TILE + TILE * TILE * 4 + 8 * (uint32_t)(stage))

/* Tensor maps. */
#define MAP(number) (SOC_MAPS + 128 * (number))
enum { MAP_A, MAP_B, MAP_C };

#define WAIT_CLOCKS 1000000
enum { ID_LOAD = 1, ID_STORE = 100 };

struct parameters {
    uint32_t m, n, k;
    uint32_t a, b, c;                   /* addresses */
    uint32_t a_pitch, b_pitch, c_pitch; /* bytes from row to row, multiples of 16 */
    uint32_t uses_interrupts;
};

struct results {
    uint32_t clocks;      /* of the product */
    uint32_t wait_clocks; /* in which the processor waited for the unit */
    uint32_t interrupts;
    uint32_t error; /* of the unit or the driver */
};

static struct tma_device device;
static volatile uint32_t interrupts;
static volatile uint32_t was_notified;
static uint32_t uses_interrupts;

void soc_handler(void)
{
    tma_take_interrupts(&device);
    was_notified = 1;
    interrupts++;
}

/* Between two polls: with interrupts, sleep until there is one. */
void tma_pause(void)
{
#ifdef SOC_NATIVE
    soc_clock();
    if (uses_interrupts && soc_interrupt())
        soc_handler();
#else
    if (uses_interrupts)
        soc_wait(&was_notified);
    was_notified = 0;
#endif
}

static int encode(
    uint32_t number, uint32_t address, uint32_t rows, uint32_t columns, uint32_t pitch,
    uint32_t data_type, uint32_t box_columns)
{
    struct tma_tensor tensor = {
        .global_address = address,
        .global_dim = {columns, rows},
        .global_strides = {pitch},
        .element_strides = {1, 1},
        .rank = 2,
        .data_type = data_type,
    };
    uint32_t box[2] = {box_columns, TILE};

    return tma_encode_tiled(soc_at(MAP(number)), &tensor, box);
}

static int post(struct tma_request request, uint32_t id)
{
    request.request_id = (uint16_t)id;
    return tma_post(&device, &request);
}

/* Load the tiles of step k of the tile of C at (row, column) into a stage, and post the wait. */
static int post_load(uint32_t step, uint32_t row, uint32_t column, uint32_t k)
{
    uint32_t stage = step % STAGES;
    int32_t a[2] = {(int32_t)k, (int32_t)row}, b[2] = {(int32_t)k, (int32_t)column};
    struct tma_request load_a = tma_tensor_request(TMA_TENSOR_LOAD, MAP(MAP_A), STAGE(stage), 2, a);
    struct tma_request load_b =
        tma_tensor_request(TMA_TENSOR_LOAD, MAP(MAP_B), STAGE(stage) + TILE_BYTES, 2, b);
    int status =
        post(tma_barrier_request(TMA_ARRIVE_EXPECT_TX, BARRIER(stage), 2 * TILE_BYTES), ID_LOAD);

    load_a.mbarrier = load_b.mbarrier = BARRIER(stage);
    if (!status)
        status = post(load_a, ID_LOAD);
    if (!status)
        status = post(load_b, ID_LOAD);
    if (!status)
        status =
            post(tma_barrier_wait(BARRIER(stage), step / STAGES, WAIT_CLOCKS), ID_LOAD + stage);
    if (!status)
        tma_ring(&device);
    return status;
}

/* Wait for a completion record that is not that of another wait; records of loads may come early. */
static int wait_for(uint32_t id, uint32_t *arrived, struct results *results)
{
    uint32_t begin = soc_clocks();

    while (!(*arrived >> id & 1)) {
        struct tma_completion completion;
        int status = tma_wait(&device, &completion);

        if (status)
            return status;
        if (completion.kind == TMA_COMPLETION_ERROR || completion.kind == TMA_COMPLETION_REFUSED)
            return 1000 + completion.code;
        if (completion.kind == TMA_COMPLETION_BARRIER && (completion.code || !completion.detail))
            return 2000 + completion.code;
        *arrived |= completion.kind == TMA_COMPLETION_GROUP ? 1u << 31
                                                            : 1u << completion.request_id;
    }
    *arrived &= ~(1u << id);
    results->wait_clocks += soc_clocks() - begin;
    return TMA_OK;
}

static void multiply(uint32_t stage, int32_t sums[TILE][TILE])
{
    static uint32_t tiles[2][TILE][TILE_K / 2];
    uint32_t i, j, n;

    for (i = 0; i < 2; i++)
        for (j = 0; j < TILE; j++)
            for (n = 0; n < TILE_K / 2; n++)
                tiles[i][j][n] = tma_smem_read(
                    &device, STAGE(stage) + i * TILE_BYTES + j * TILE_K * 2 + n * 4);
    for (i = 0; i < TILE; i++)
        for (j = 0; j < TILE; j++)
            for (n = 0; n < TILE_K / 2; n++) {
                uint32_t a = tiles[0][i][n], b = tiles[1][j][n];

                sums[i][j] += (int32_t)(int16_t)a * (int16_t)b;
                sums[i][j] += (int32_t)(int16_t)(a >> 16) * (int16_t)(b >> 16);
            }
}

static int store(uint32_t row, uint32_t column, int32_t sums[TILE][TILE])
{
    int32_t c[2] = {(int32_t)column, (int32_t)row};
    uint32_t i, j;
    int status;

    for (i = 0; i < TILE; i++)
        for (j = 0; j < TILE; j++)
            tma_smem_write(&device, C_TILE + (i * TILE + j) * 4, (uint32_t)sums[i][j]);
    status = post(tma_tensor_request(TMA_TENSOR_STORE, MAP(MAP_C), C_TILE, 2, c), ID_STORE);
    if (!status)
        status = post(tma_group_request(TMA_COMMIT_GROUP, 0, 0), ID_STORE);
    if (!status)
        status = post(tma_group_request(TMA_WAIT_GROUP, 0, 0), ID_STORE);
    if (!status)
        tma_ring(&device);
    return status;
}

static int gemm(const struct parameters *p, struct results *results)
{
    uint32_t tiles_n = (p->n + TILE - 1) / TILE, tiles = (p->m + TILE - 1) / TILE * tiles_n;
    uint32_t steps = (p->k + TILE_K - 1) / TILE_K, total = tiles * steps;
    uint32_t arrived = 0, next = 0, step, stage;
    int32_t sums[TILE][TILE] = {{0}};
    int status = TMA_OK;

    for (stage = 0; stage < STAGES && !status; stage++)
        status = post(tma_barrier_init(BARRIER(stage), 1), 0);
    for (step = 0; step < total && !status; step++) {
        uint32_t tile = step / steps;

        for (; next < total && next < step + STAGES && !status; next++)
            status = post_load(
                next, next / steps / tiles_n * TILE, next / steps % tiles_n * TILE,
                next % steps * TILE_K);
        if (!status)
            status = wait_for(ID_LOAD + step % STAGES, &arrived, results);
        if (status)
            break;
        multiply(step % STAGES, sums);
        if (step % steps == steps - 1) {
            /* The tile of C in shared memory is free when the store before has ended. */
            if (tile)
                status = wait_for(31, &arrived, results);
            if (!status)
                status = store(tile / tiles_n * TILE, tile % tiles_n * TILE, sums);
            for (stage = 0; stage < TILE * TILE; stage++)
                sums[stage / TILE][stage % TILE] = 0;
        }
    }
    return status ? status : wait_for(31, &arrived, results);
}

int main(void)
{
    const struct parameters *p = soc_at(SOC_PARAMETERS);
    struct results *results = soc_at(SOC_RESULTS);
    uint32_t begin;
    int status = soc_open(&device);

    uses_interrupts = p->uses_interrupts;
    if (!status)
        status = encode(MAP_A, p->a, p->m, p->k, p->a_pitch, TMA_UINT16, TILE_K);
    if (!status)
        status = encode(MAP_B, p->b, p->n, p->k, p->b_pitch, TMA_UINT16, TILE_K);
    if (!status)
        status = encode(MAP_C, p->c, p->m, p->n, p->c_pitch, TMA_INT32, TILE);
    if (status) {
        soc_print(tma_status_text(status));
        soc_print("\n");
        return 1;
    }
    if (uses_interrupts) {
        tma_enable_interrupts(&device, 3);
#ifndef SOC_NATIVE
        soc_mask(0);
#endif
    }
    begin = soc_clocks();
    status = gemm(p, results);
    results->clocks = soc_clocks() - begin;
    uses_interrupts = 0;
    tma_enable_interrupts(&device, 0);
    results->interrupts = interrupts;
    results->error = (uint32_t)status;
    if (status)
        soc_print("the product failed\n");
    else
        status = tma_close(&device);
    return status != 0;
}
