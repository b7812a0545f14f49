/* Tensor maps: the 128 bytes that CUDA's driver writes for Hopper, and what it refuses. */

#include "tma.h"

#define SMEM_BYTES 233472 /* most bytes of a box */

struct format {
    uint8_t bytes;    /* of an element */
    uint8_t code;     /* in the map */
    uint8_t rounds;   /* loads round to tf32 */
    uint8_t is_float; /* NaN is a value */
};

static const struct format formats[] = {
    [TMA_UINT8] = {1, 0, 0, 0},        [TMA_UINT16] = {2, 1, 0, 0},
    [TMA_UINT32] = {4, 2, 0, 0},       [TMA_INT32] = {4, 3, 0, 0},
    [TMA_UINT64] = {8, 4, 0, 0},       [TMA_INT64] = {8, 5, 0, 0},
    [TMA_FLOAT16] = {2, 6, 0, 1},      [TMA_FLOAT32] = {4, 7, 0, 1},
    [TMA_FLOAT64] = {8, 9, 0, 1},      [TMA_BFLOAT16] = {2, 10, 0, 1},
    [TMA_FLOAT32_FTZ] = {4, 8, 0, 1},  [TMA_TFLOAT32] = {4, 7, 1, 1},
    [TMA_TFLOAT32_FTZ] = {4, 8, 1, 1},
};

/* Values that each field can hold. */
static int check_fields(const struct tma_tensor *t)
{
    uint32_t i;

    if (t->rank < 1 || t->rank > TMA_MAX_RANK)
        return TMA_RANK;
    for (i = 0; i + 1 < t->rank; i++)
        if (t->global_strides[i] >> 40 || t->global_strides[i] % 16)
            return TMA_GLOBAL_STRIDES;
    for (i = 0; i < t->rank; i++)
        if (t->global_dim[i] < 1 || t->global_dim[i] > (uint64_t)1 << 32)
            return TMA_GLOBAL_DIM;
    for (i = 0; i < t->rank; i++)
        if (t->element_strides[i] < 1 || t->element_strides[i] > 8)
            return TMA_ELEMENT_STRIDES;
    if (t->data_type >= sizeof formats / sizeof *formats)
        return TMA_DATA_TYPE;
    if (t->interleave > 2)
        return TMA_INTERLEAVE;
    if (t->swizzle > 3)
        return TMA_SWIZZLE;
    if (t->l2_promotion > 3)
        return TMA_L2_PROMOTION;
    if (t->oob_fill > 1)
        return TMA_OOB_FILL;
    return TMA_OK;
}

/* Rules that several fields share; inner is the number of elements of a row of the box. */
static int check_rules(const struct tma_tensor *t, uint32_t min_rank, uint32_t inner)
{
    const struct format *format = &formats[t->data_type];
    uint32_t align = t->interleave == 2 ? 32 : 16;
    uint32_t row = inner * format->bytes;
    uint32_t i;

    if (t->rank < (t->interleave ? 3 : min_rank))
        return TMA_RANK;
    if (t->oob_fill && !format->is_float)
        return TMA_OOB_FILL;
    if (t->global_address % align)
        return TMA_GLOBAL_ADDRESS;
    for (i = 0; i + 1 < t->rank; i++)
        if (t->global_strides[i] % align)
            return TMA_GLOBAL_STRIDES;
    if (row % 16)
        return TMA_INNER_ALIGN;
    if (t->swizzle && !t->interleave && row > (uint32_t)16 << t->swizzle)
        return TMA_INNER_SPAN;
    return TMA_OK;
}

/* Write the words that tiled and im2col maps have in common. */
static void write_words(
    uint32_t map[TMA_MAP_WORDS], const struct tma_tensor *t, uint32_t mode, uint32_t inner,
    uint64_t elements)
{
    static const uint32_t swizzle_words[] = {0x10, 0x100, 0x200, 0x400};
    const struct format *format = &formats[t->data_type];
    uint32_t i;

    for (i = 0; i < TMA_MAP_WORDS; i++)
        map[i] = 0;
    map[0] = (uint32_t)t->global_address;
    map[1] = (uint32_t)(t->global_address >> 32);
    map[2] = mode | (t->rank - 1) << 4 | (uint32_t)format->code << 7 | t->interleave << 11 |
             t->swizzle << 13 | t->oob_fill << 15 | (uint32_t)format->rounds << 16 |
             t->l2_promotion << 17;
    for (i = 0; i + 1 < t->rank; i++) {
        map[3 + i] = (uint32_t)(t->global_strides[i] >> 4);
        map[7] |= (uint32_t)(t->global_strides[i] >> 36) << 4 * i;
    }
    for (i = 0; i < t->rank; i++) {
        map[8 + i] = (uint32_t)(t->global_dim[i] - 1);
        map[13] |= (t->element_strides[i] - 1) << 3 * i;
    }
    map[13] |= (inner - 1) << 24;
    map[16] = (uint32_t)(elements * format->bytes);
    map[18] = swizzle_words[t->swizzle];
}

int tma_encode_tiled(
    uint32_t map[TMA_MAP_WORDS], const struct tma_tensor *tensor, const uint32_t *box_dim)
{
    uint64_t elements = 1;
    uint32_t i;
    int status = check_fields(tensor);

    if (status)
        return status;
    for (i = 0; i < tensor->rank; i++)
        if (box_dim[i] < 1 || box_dim[i] > 256)
            return TMA_BOX_DIM;
    status = check_rules(tensor, 1, box_dim[0]);
    if (status)
        return status;
    for (i = 0; i < tensor->rank; i++)
        elements *= box_dim[i] / tensor->element_strides[i];
    if (elements * formats[tensor->data_type].bytes > SMEM_BYTES)
        return TMA_BOX_BYTES;
    write_words(map, tensor, 0, box_dim[0], elements);
    for (i = 1; i < tensor->rank; i++)
        map[14] |= (box_dim[i] - 1) << 8 * (i - 1);
    return TMA_OK;
}

int tma_encode_im2col(
    uint32_t map[TMA_MAP_WORDS], const struct tma_tensor *tensor, const int32_t *lower_corner,
    const int32_t *upper_corner, uint32_t channels_per_pixel, uint32_t pixels_per_column)
{
    static const uint8_t corner_bits[] = {16, 8, 5}; /* of ranks 3 to 5 */
    uint32_t spatial, first, bits, i;
    int32_t limit;
    int status = check_fields(tensor);

    if (status)
        return status;
    if (channels_per_pixel < 1 || channels_per_pixel > 256)
        return TMA_CHANNELS_PER_PIXEL;
    if (pixels_per_column < 1 || pixels_per_column > 1024)
        return TMA_PIXELS_PER_COLUMN;
    if (tensor->rank < 3)
        return TMA_RANK;
    spatial = tensor->rank - 2;
    bits = corner_bits[spatial - 1];
    limit = (int32_t)1 << (bits - 1);
    for (i = 0; i < spatial; i++)
        if (lower_corner[i] < -limit || lower_corner[i] >= limit || upper_corner[i] < -limit ||
            upper_corner[i] >= limit)
            return TMA_CORNER;
    status = check_rules(tensor, 3, channels_per_pixel);
    if (status)
        return status;
    first = tensor->interleave ? 0 : 1; /* dimension of W */
    for (i = 0; i < spatial; i++) {
        /* CUDA's driver adds in 32 bits. */
        uint32_t end = (uint32_t)tensor->global_dim[first + i] + (uint32_t)upper_corner[i];
        int64_t signed_end = (int64_t)end - ((int64_t)(end >> 31) << 32);

        if (signed_end - lower_corner[i] <= 0)
            return TMA_BOUNDING_BOX;
    }
    write_words(
        map, tensor, 1, channels_per_pixel, (uint64_t)channels_per_pixel * pixels_per_column);
    for (i = 0; i < spatial; i++) {
        uint32_t mask = ((uint32_t)1 << bits) - 1;

        map[14] |= ((uint32_t)lower_corner[i] & mask) << bits * i;
        map[14] |= ((uint32_t)upper_corner[i] & mask) << (16 + bits * i);
    }
    map[15] = pixels_per_column - 1;
    return TMA_OK;
}

const char *tma_status_text(int status)
{
    switch (status) {
    case TMA_OK: return "success";
    case TMA_EMPTY: return "there is no new completion record";
    case TMA_FULL: return "the request ring is full";
    case TMA_TIMEOUT: return "the unit did not end in time";
    case TMA_NO_UNIT: return "there is no unit at the registers, or it has another version";
    case TMA_BAD_SETUP: return "the unit refused the rings";
    case TMA_DATA_TYPE: return "data_type: must be a type of Hopper, 0 to 12";
    case TMA_INTERLEAVE: return "interleave: must be 0 to 2";
    case TMA_SWIZZLE: return "swizzle: must be 0 to 3";
    case TMA_L2_PROMOTION: return "l2_promotion: must be 0 to 3";
    case TMA_OOB_FILL: return "oob_fill: must be 0, or 1 with a floating-point type";
    case TMA_RANK: return "rank: must be 1 to 5, at least 3 with interleave or im2col";
    case TMA_GLOBAL_ADDRESS: return "global_address: must be a multiple of 16, of 32 with "
                                    "interleave 2";
    case TMA_GLOBAL_DIM: return "global_dim: must be 1 to 2^32";
    case TMA_GLOBAL_STRIDES: return "global_strides: must be below 2^40 and a multiple of 16, of "
                                    "32 with interleave 2";
    case TMA_ELEMENT_STRIDES: return "element_strides: must be 1 to 8";
    case TMA_BOX_DIM: return "box_dim: must be 1 to 256";
    case TMA_INNER_ALIGN: return "row of the box: must be a multiple of 16 bytes";
    case TMA_INNER_SPAN: return "row of the box: must not be longer than the span of the swizzle";
    case TMA_BOX_BYTES: return "box: must have at most 233472 bytes";
    case TMA_CHANNELS_PER_PIXEL: return "channels_per_pixel: must be 1 to 256";
    case TMA_PIXELS_PER_COLUMN: return "pixels_per_column: must be 1 to 1024";
    case TMA_CORNER: return "corner: must fit in 16 bits (rank 3), 8 (rank 4) or 5 (rank 5)";
    case TMA_BOUNDING_BOX: return "corners: must leave a position in each spatial dimension";
    default: return "unknown status";
    }
}
