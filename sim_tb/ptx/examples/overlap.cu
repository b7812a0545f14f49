// The same copy and the same GEMM, once with threads that compute addresses, once with the unit.
// `nvcc -ptx -arch=sm_90a overlap.cu` makes overlap.ptx.
#include <cuda.h>
#include <stdint.h>

constexpr int kRows = 64;           // of a tile
constexpr int kRowBytes = 128;      // 64 elements of bf16: the span of the swizzle
constexpr int kTileBytes = kRows * kRowBytes;
constexpr int kThreads = 128;
constexpr int kPieces = kTileBytes / 16 / kThreads;  // of 16 bytes, of each thread
constexpr int kStages = 4;

__device__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Offset of a piece of 16 bytes in a tile with the 128-byte swizzle.
__device__ uint32_t piece_offset(int row, int piece) {
    return row * kRowBytes + ((piece ^ (row & 7)) << 4);
}

// Threads with ld.global and st.shared.
struct Registers {
    uint4 pieces[kPieces];

    __device__ void load(const char* source, int64_t pitch) {
        for (int i = 0; i < kPieces; ++i) {
            const int number = i * kThreads + threadIdx.x, row = number / 8, piece = number % 8;
            pieces[i] = *reinterpret_cast<const uint4*>(source + row * pitch + piece * 16);
        }
    }
    __device__ void store(uint32_t tile) {
        for (int i = 0; i < kPieces; ++i) {
            const int number = i * kThreads + threadIdx.x;
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                             tile + piece_offset(number / 8, number % 8)),
                         "r"(pieces[i].x), "r"(pieces[i].y), "r"(pieces[i].z), "r"(pieces[i].w)
                         : "memory");
        }
    }
};

// Threads with cp.async.
__device__ void copy_asynchronously(uint32_t tile, const char* source, int64_t pitch) {
    for (int i = 0; i < kPieces; ++i) {
        const int number = i * kThreads + threadIdx.x, row = number / 8, piece = number % 8;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         tile + piece_offset(row, piece)),
                     "l"(source + row * pitch + piece * 16)
                     : "memory");
    }
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// The unit.
__device__ void init(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ void expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}
__device__ void wait(uint32_t barrier, int parity) {
    asm volatile(
        "{\n.reg .pred complete;\n"
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
        "@!complete bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
__device__ void load_box(uint32_t tile, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(tile),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}
__device__ void store_box(const CUtensorMap* map, int x, int y, uint32_t tile) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            map),
        "r"(x), "r"(y), "r"(tile)
        : "memory");
}

// Copies: each block copies `tiles` tiles, one beside the other.

extern "C" __global__ void copy_registers(const char* source, char* target, int64_t pitch,
                                          int tiles) {
    __shared__ alignas(1024) char memory[kTileBytes];
    const uint32_t tile = shared_address(memory);
    const int64_t first = blockIdx.x * kRows * pitch;
    Registers registers;
    for (int t = 0; t < tiles; ++t) {
        registers.load(source + first + t * kRowBytes, pitch);
        registers.store(tile);
        __syncthreads();
        for (int i = 0; i < kPieces; ++i) {
            const int number = i * kThreads + threadIdx.x, row = number / 8, piece = number % 8;
            *reinterpret_cast<uint4*>(target + first + t * kRowBytes + row * pitch + piece * 16) =
                *reinterpret_cast<uint4*>(memory + piece_offset(row, piece));
        }
        __syncthreads();
    }
}

extern "C" __global__ void copy_async(const char* source, char* target, int64_t pitch,
                                      int tiles) {
    __shared__ alignas(1024) char memory[kStages][kTileBytes];
    const int64_t first = blockIdx.x * kRows * pitch;
    for (int t = 0; t < kStages - 1; ++t) {
        if (t < tiles) {
            copy_asynchronously(shared_address(memory[t]), source + first + t * kRowBytes, pitch);
        }
        commit_copies();
    }
    for (int t = 0; t < tiles; ++t) {
        const int next = t + kStages - 1;
        if (next < tiles) {
            copy_asynchronously(shared_address(memory[next % kStages]),
                                source + first + next * kRowBytes, pitch);
        }
        commit_copies();
        wait_copies<kStages - 1>();
        __syncthreads();
        for (int i = 0; i < kPieces; ++i) {
            const int number = i * kThreads + threadIdx.x, row = number / 8, piece = number % 8;
            *reinterpret_cast<uint4*>(target + first + t * kRowBytes + row * pitch + piece * 16) =
                *reinterpret_cast<uint4*>(memory[t % kStages] + piece_offset(row, piece));
        }
        __syncthreads();
    }
}

extern "C" __global__ void copy_unit(const __grid_constant__ CUtensorMap source,
                                     const __grid_constant__ CUtensorMap target, int tiles) {
    __shared__ alignas(1024) char memory[kStages][kTileBytes];
    __shared__ alignas(8) uint64_t full[kStages];
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) init(shared_address(full + stage), 1);
        asm volatile("fence.mbarrier_init.release.cluster;");
        const int y = blockIdx.x * kRows;
        for (int t = 0; t < tiles + kStages - 1; ++t) {
            if (t < tiles) {
                const uint32_t barrier = shared_address(full + t % kStages);
                if (t >= kStages) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                expect(barrier, kTileBytes);
                load_box(shared_address(memory[t % kStages]), &source, t * 64, y, barrier);
            }
            const int done = t - (kStages - 1);
            if (done < 0) continue;
            wait(shared_address(full + done % kStages), done / kStages & 1);
            store_box(&target, done * 64, y, shared_address(memory[done % kStages]));
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// GEMMs: each block of a warpgroup computes 64 x 64 elements of C = A B^T.

__device__ uint64_t matrix_descriptor(uint32_t address) {
    return (address >> 4 & 0x3fff) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
           uint64_t{1} << 62;
}
__device__ void multiply(float (&sum)[32], uint32_t a, uint32_t b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 4; ++k) {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "%32, %33, 1, 1, 1, 0, 0;"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]),
              "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]),
              "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]),
              "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]),
              "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]),
              "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
              "+f"(sum[30]), "+f"(sum[31])
            : "l"(matrix_descriptor(a + 32 * k)), "l"(matrix_descriptor(b + 32 * k)));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__device__ void store_sums(const float (&sum)[32], float* c, int columns) {
    const int row = blockIdx.y * 64 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int column = blockIdx.x * 64 + threadIdx.x % 4 * 2;
    for (int i = 0; i < 32; i += 2) {
        const int at = (row + i / 2 % 2 * 8) * columns + column + i / 4 * 8;
        *reinterpret_cast<float2*>(c + at) = make_float2(sum[i], sum[i + 1]);
    }
}
__device__ void fence_proxies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

extern "C" __global__ void gemm_registers(const char* a, const char* b, float* c, int columns,
                                          int64_t pitch, int steps) {
    __shared__ alignas(1024) char memory[2][kTileBytes];
    const uint32_t tile = shared_address(memory[0]);
    const char* rows_a = a + blockIdx.y * kRows * pitch;
    const char* rows_b = b + blockIdx.x * kRows * pitch;
    float sum[32] = {};
    Registers next_a, next_b;
    next_a.load(rows_a, pitch);
    next_b.load(rows_b, pitch);
    for (int step = 0; step < steps; ++step) {
        next_a.store(tile);
        next_b.store(tile + kTileBytes);
        fence_proxies();
        __syncthreads();
        if (step + 1 < steps) {
            next_a.load(rows_a + (step + 1) * kRowBytes, pitch);
            next_b.load(rows_b + (step + 1) * kRowBytes, pitch);
        }
        multiply(sum, tile, tile + kTileBytes);
        __syncthreads();
    }
    store_sums(sum, c, columns);
}

extern "C" __global__ void gemm_async(const char* a, const char* b, float* c, int columns,
                                      int64_t pitch, int steps) {
    extern __shared__ __align__(1024) char stages[];
    const uint32_t base = shared_address(stages) + 1023 & ~1023u;
    const char* rows_a = a + blockIdx.y * kRows * pitch;
    const char* rows_b = b + blockIdx.x * kRows * pitch;
    float sum[32] = {};
    for (int step = 0; step < steps + kStages - 1; ++step) {
        if (step < steps) {
            const uint32_t tile = base + step % kStages * 2 * kTileBytes;
            copy_asynchronously(tile, rows_a + step * kRowBytes, pitch);
            copy_asynchronously(tile + kTileBytes, rows_b + step * kRowBytes, pitch);
        }
        commit_copies();
        const int done = step - (kStages - 1);
        if (done < 0) continue;
        wait_copies<kStages - 1>();
        fence_proxies();
        __syncthreads();
        const uint32_t tile = base + done % kStages * 2 * kTileBytes;
        multiply(sum, tile, tile + kTileBytes);
        __syncthreads();
    }
    store_sums(sum, c, columns);
}

extern "C" __global__ void gemm_unit(const __grid_constant__ CUtensorMap a,
                                     const __grid_constant__ CUtensorMap b, float* c, int columns,
                                     int steps) {
    extern __shared__ __align__(1024) char stages[];
    __shared__ alignas(8) uint64_t full[kStages];
    const uint32_t base = shared_address(stages) + 1023 & ~1023u;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) init(shared_address(full + stage), 1);
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    float sum[32] = {};
    for (int step = 0; step < steps + kStages - 1; ++step) {
        if (step < steps && threadIdx.x == 0) {
            const uint32_t tile = base + step % kStages * 2 * kTileBytes;
            const uint32_t barrier = shared_address(full + step % kStages);
            expect(barrier, 2 * kTileBytes);
            load_box(tile, &a, step * 64, blockIdx.y * kRows, barrier);
            load_box(tile + kTileBytes, &b, step * 64, blockIdx.x * kRows, barrier);
        }
        const int done = step - (kStages - 1);
        if (done < 0) continue;
        wait(shared_address(full + done % kStages), done / kStages & 1);
        const uint32_t tile = base + done % kStages * 2 * kTileBytes;
        multiply(sum, tile, tile + kTileBytes);
        __syncthreads();
    }
    store_sums(sum, c, columns);
}
