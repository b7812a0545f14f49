// Sums of the tensor cores, for sim_tb/arithmetic/tensor_cores.py, which has the rules.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// The loops are vectorised, also where the testbench is built for quick compiling.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((optimize("O3"), target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

namespace {

// Exponents of a zero, of the smallest sum, and of subnormal accumulators, as in tensor_cores.py.
constexpr int16_t kZero = -2000, kLeastSum = -400, kSubnormal = -126;

// Bits of fraction that a sum of narrow operands keeps.
constexpr int kNarrowFraction = 13;

double power_of_two(int64_t exponent) { return std::bit_cast<double>((exponent + 1023) << 52); }

// Return floor(log2) of a magnitude, `least` at least, and kZero for a zero.
int16_t exponent_of(double value, int least) {
    if (value == 0) return kZero;
    const int biased = std::bit_cast<uint64_t>(value) >> 52 & 0x7ff;
    return static_cast<int16_t>(std::max(biased - 1023, least));
}

// Return a sum without the bits that narrow operands do not keep.
double narrow(double total) {
    const int exponent = total == 0 ? kLeastSum : std::max<int>(std::ilogb(total), kLeastSum);
    const double last = power_of_two(exponent - kNarrowFraction);
    return std::trunc(total / last) * last;
}

// Round toward zero; a sum beyond the greatest number becomes that number.
float rounded(double total) {
    const float nearest = static_cast<float>(total);
    const bool is_beyond = std::abs(static_cast<double>(nearest)) > std::abs(total);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) - is_beyond);
}

// Products of one row of A, and what they are added to.
struct Row {
    const double* factors;
    const int16_t* exponents;
    float* accumulators;
};

// Sum up what one instruction multiplies: `k` products for each of `n` accumulators. Exponents of
// products are the sums of those of their operands.
VECTORISED void accumulate(const Row& row, size_t n, size_t k, int terms, const double* b,
                           const int16_t* b_exponents, int16_t* greatest, double* scale,
                           double* totals) {
    for (size_t step = 0; step < k; ++step) {
        const int16_t exponent = row.exponents[step];
        const int16_t* exponents = b_exponents + step * n;
        for (size_t column = 0; column < n; ++column) {
            const int16_t sum = static_cast<int16_t>(exponent + exponents[column]);
            greatest[column] = std::max(greatest[column], sum);
        }
    }
    for (size_t column = 0; column < n; ++column) {
        scale[column] = power_of_two(terms - greatest[column]);
        totals[column] = static_cast<int32_t>(row.accumulators[column] * scale[column]);
    }
    for (size_t step = 0; step < k; ++step) {
        const double factor = row.factors[step];
        const double* factors = b + step * n;
        for (size_t column = 0; column < n; ++column) {
            // Less than 2^(terms + 2): an integer of 32 bits holds it.
            totals[column] += static_cast<int32_t>(factor * factors[column] * scale[column]);
        }
    }
}

}  // namespace

extern "C" {

// Add the products of finite numbers a (m x k) and b (n x k) to m x n accumulators, `together` steps
// of k in each instruction. `a_least`, `b_least`: exponents of subnormal numbers. `terms`: bits below
// the greatest exponent of a sum that each term keeps.
void tensor_cores_multiply(size_t m, size_t n, size_t k, size_t together, int32_t a_least,
                           int32_t b_least, int32_t terms, uint32_t is_narrow, const double* a,
                           const double* b, float* c) {
    std::vector<double> columns(k * n), scale(n), totals(n);
    std::vector<int16_t> a_exponents(m * k), b_exponents(k * n), greatest(n);
    for (size_t place = 0; place < m * k; ++place) {
        a_exponents[place] = exponent_of(a[place], a_least);
    }
    for (size_t column = 0; column < n; ++column) {
        for (size_t step = 0; step < k; ++step) {
            const double value = b[column * k + step];
            columns[step * n + column] = value;
            b_exponents[step * n + column] = exponent_of(value, b_least);
        }
    }
    for (size_t step = 0; step < k; step += together) {
        const size_t steps = std::min(together, k - step);
        for (size_t number = 0; number < m; ++number) {
            const size_t place = number * k + step;
            const Row row = {a + place, a_exponents.data() + place, c + number * n};
            for (size_t column = 0; column < n; ++column) {
                const int16_t exponent = exponent_of(row.accumulators[column], kSubnormal);
                greatest[column] = std::max(exponent, kLeastSum);
            }
            accumulate(row, n, steps, terms, columns.data() + step * n,
                       b_exponents.data() + step * n, greatest.data(), scale.data(), totals.data());
            for (size_t column = 0; column < n; ++column) {
                const double total = totals[column] * power_of_two(greatest[column] - terms);
                row.accumulators[column] = rounded(is_narrow ? narrow(total) : total);
            }
        }
    }
}

}  // extern "C"
