/* What programs know of the example SoC: addresses, console, clocks, and the driver's platform.
 *
 * With SOC_NATIVE, a program runs on the processor that simulates the system. */

#ifndef PLATFORM_H
#define PLATFORM_H

#include <stdint.h>

#include "tma.h"

#define SOC_UNIT 0x40000000u       /* registers of the unit */
#define SOC_DEVICES 0x80000000u    /* console, exit, clocks */
#define SOC_DATA 0x00000000u       /* memory for data */
#define SOC_PROGRAM 0x00800000u    /* the program, its variables and its stack */
#define SOC_PARAMETERS 0x00880000u /* what the program is called with */
#define SOC_RINGS 0x008a0000u      /* rings and tensor maps */
#define SOC_RESULTS 0x008c0000u    /* what the program returns, beside its status */

#ifdef SOC_NATIVE
uint8_t *soc_memory(void);
void soc_clock(void);
uint32_t soc_clocks(void);
int soc_interrupt(void);
void soc_put(char byte);

static inline void *soc_at(uint32_t address)
{
    return soc_memory() + address;
}
#else
static inline void *soc_at(uint32_t address)
{
    return (void *)(uintptr_t)address;
}

static inline uint32_t soc_clocks(void)
{
    return *(volatile uint32_t *)(SOC_DEVICES + 8);
}

static inline void soc_put(char byte)
{
    *(volatile uint32_t *)SOC_DEVICES = (uint8_t)byte;
}

/* Wait until an interrupt is pending, unless *done is set; a handler that is due runs before the
 * return. */
void soc_wait(volatile uint32_t *done);

/* Mask of the interrupts that are off; bit 3 is the unit's. Return the mask of before. */
uint32_t soc_mask(uint32_t mask);
#endif

/* A program calls it for the interrupt of the unit. */
void soc_handler(void);

static inline void soc_print(const char *text)
{
    while (*text)
        soc_put(*text++);
}

/* Rings of 16 request records and 16 completion records, and room for tensor maps behind them. */
#define SOC_LOG2 4
#define SOC_COMPLETIONS (SOC_RINGS + 0x400)
#define SOC_MAPS (SOC_RINGS + 0x800)
#define SOC_POLLS 2000000

static inline int soc_open(struct tma_device *device)
{
    struct tma_setup setup = {
        .registers = SOC_UNIT,
        .request_ring = soc_at(SOC_RINGS),
        .request_address = SOC_RINGS,
        .request_log2 = SOC_LOG2,
        .completion_ring = soc_at(SOC_COMPLETIONS),
        .completion_address = SOC_COMPLETIONS,
        .completion_log2 = SOC_LOG2,
        .time_limit = SOC_POLLS,
    };

    return tma_open(device, &setup);
}

#endif
