/* Functions that the compiler and the driver expect of a platform. */

#include "platform.h"

void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);

void *memcpy(void *to, const void *from, size_t bytes)
{
    uint8_t *t = to;
    const uint8_t *f = from;

    while (bytes--)
        *t++ = *f++;
    return to;
}

void *memset(void *to, int byte, size_t bytes)
{
    uint8_t *t = to;

    while (bytes--)
        *t++ = (uint8_t)byte;
    return to;
}

uint32_t tma_read(uintptr_t registers, uint32_t offset)
{
    return *(volatile uint32_t *)(registers + offset);
}

void tma_write(uintptr_t registers, uint32_t offset, uint32_t value)
{
    *(volatile uint32_t *)(registers + offset) = value;
}
