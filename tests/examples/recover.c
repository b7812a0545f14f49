/* Opens the unit with a request ring that memory does not have, and then with one that it has. */

#include "platform.h"

#define ABSENT 0x30000000u /* no memory is there */
#define BARRIER 64u

void soc_handler(void)
{
}

void tma_pause(void)
{
#ifdef SOC_NATIVE
    soc_clock();
#endif
}

int main(void)
{
    struct tma_device device;
    struct tma_setup setup = {
        .registers = SOC_UNIT,
        .request_ring = soc_at(SOC_RINGS),
        .request_address = ABSENT,
        .request_log2 = SOC_LOG2,
        .completion_ring = soc_at(SOC_COMPLETIONS),
        .completion_address = SOC_COMPLETIONS,
        .completion_log2 = SOC_LOG2,
        .time_limit = 10000,
    };
    struct tma_request init = tma_barrier_init(BARRIER, 1);
    struct tma_completion completion;
    uint32_t index;

    init.flags = TMA_NOTIFY;
    init.request_id = 7;
    if (tma_open(&device, &setup) || tma_post(&device, &init))
        return 1;
    if (tma_wait(&device, &completion) != TMA_TIMEOUT)
        return 2;
    if (tma_take_error(&device, &index) != TMA_ERROR_REQUEST_RING || index != 0)
        return 3;
    if (tma_close(&device))
        return 4;
    setup.request_address = SOC_RINGS;
    if (tma_open(&device, &setup) || tma_post(&device, &init))
        return 5;
    if (tma_wait(&device, &completion) || completion.request_id != 7)
        return 6;
    return tma_close(&device);
}
