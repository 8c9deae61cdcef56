#include <cmath>

#include "catch.h"
#include "launches.h"

using namespace xqajit;

namespace {

std::uint32_t const kBatches[] = {1,  2,   3,   4,   5,   7,   8,   13,   16,   31,   32,   33,
                                  64, 100, 128, 250, 256, 500, 501, 1000, 3000, 6000, 6001, 65536};
std::uint32_t const kHeads[] = {1, 2, 3, 4, 8, 10, 16, 32, 128};
std::uint64_t const kLengths[] = {0,    1,    63,   64,   65,   127,  128,   129,   255,   256,   1000,   1024,    2047,
                                  2048, 4095, 4096, 8191, 8192, 8193, 16384, 32768, 65535, 65536, 131072, 1000000, 2147483647};
std::uint32_t const kSms[] = {1, 16, 20, 48, 84, 108, 132, 142, 148, 188};

// The reference's text, in doubles.
std::uint32_t decode_in_doubles(std::uint32_t batch, std::uint32_t heads, std::uint64_t past, std::uint32_t sms,
                                std::uint32_t max_sub_seq) {
    double n = std::floor(static_cast<double>(past) / 128);
    n = std::min(n, std::round(std::sqrt(n * 8)));
    n = std::max(n, 1.0);
    double const waves = static_cast<double>(batch) * heads * n / sms;
    if (waves > 8) n = std::max(1.0, std::floor(n / (waves / 8) + 1e-9));  // the margin: exact quotients stay whole
    n = std::min(n, std::floor(static_cast<double>(max_sub_seq) / batch));
    return static_cast<std::uint32_t>(std::max(n, 1.0));
}

}  // namespace

TEST_CASE("the decode formula is the reference's", "[plan]") {
    for (std::uint32_t const batch : kBatches)
        for (std::uint32_t const heads : kHeads)
            for (std::uint64_t const past : kLengths)
                for (std::uint32_t const sms : kSms)
                    for (std::uint32_t const most : {kMaxSubSeq, kMaxSubSeqMla}) {
                        std::uint32_t const n = decode_sub_seqs(batch, heads, past, sms, most);
                        std::uint32_t const expected = decode_in_doubles(batch, heads, past, sms, most);
                        if (n != expected)
                            FAIL(batch << " " << heads << " " << past << " " << sms << ": " << n << ", not " << expected);
                    }
}

TEST_CASE("the decode formula gives what is worked out by hand", "[plan]") {
    CHECK(decode_sub_seqs(1, 8, 127, 132, kMaxSubSeq) == 1);           // no full step
    CHECK(decode_sub_seqs(1, 8, 1024, 132, kMaxSubSeq) == 8);          // 8 steps; sqrt(64) = 8
    CHECK(decode_sub_seqs(1, 8, 8192, 132, kMaxSubSeq) == 23);         // 64 steps; sqrt(512) = 22.6
    CHECK(decode_sub_seqs(16, 8, 8192, 132, kMaxSubSeq) == 8);         // 22.3 waves at 23: 8 * 132 / 128 = 8.25
    CHECK(decode_sub_seqs(64, 8, 8192, 132, kMaxSubSeq) == 2);         // 8 * 132 / 512 = 2.06
    CHECK(decode_sub_seqs(132, 8, 8192, 132, kMaxSubSeq) == 1);        // 8 * 132 / 1056 = 1
    CHECK(decode_sub_seqs(1, 1, 1 << 30, 10000, kMaxSubSeq) == 6000);  // sqrt(8 * 2^23) = 8192
    CHECK(decode_sub_seqs(1, 1, 1 << 30, 10000, kMaxSubSeqMla) == 500);
    CHECK(decode_sub_seqs(7, 1, 1 << 30, 100000, kMaxSubSeq) == 857);  // 6000 / 7
    CHECK(mmha_wave_sub_seqs(4, 32, 132) == 4);                        // 528 blocks over 128 requests' heads
    CHECK(mmha_wave_sub_seqs(16, 32, 132) == 1);
    CHECK(mmha_wave_sub_seqs(64, 32, 132) == 1);
}

TEST_CASE("the square root rounds half up, exactly", "[plan]") {
    // Alone on a huge GPU the decode formula is min(steps, round(sqrt(8 steps))).
    for (std::uint64_t steps = 8; steps < 5000000; steps += 1 + steps / 300) {
        std::uint64_t const n = decode_sub_seqs(1, 1, steps * 128, 4000000000u, 4000000000u);
        CHECK(4 * 8 * steps >= (2 * n - 1) * (2 * n - 1));
        CHECK(4 * 8 * steps < (2 * n + 1) * (2 * n + 1));
    }
}

TEST_CASE("the kernel-side bounds are the reference's", "[plan]") {
    for (std::uint32_t const batch : kBatches)
        for (std::uint32_t const heads : kHeads)
            for (std::uint64_t const len : kLengths)
                for (std::uint32_t const sms : kSms) {
                    double const share = static_cast<double>(sms) / (static_cast<double>(batch) * heads);
                    double const gmma = std::min(std::max(1.0, std::round(0.75 * share)), std::ceil(static_cast<double>(len) / 64));
                    double const hmma = std::min(std::max(1.0, std::floor(share)), std::ceil(static_cast<double>(len) / 256));
                    bool const same =
                        gmma_kernel_sub_seqs(batch, heads, len, sms) == static_cast<std::uint32_t>(std::max(gmma, 1.0)) &&
                        hmma_kernel_sub_seqs(batch, heads, len, sms) == static_cast<std::uint32_t>(std::max(hmma, 1.0));
                    if (!same) FAIL(batch << " " << heads << " " << len << " " << sms);
                }
}

TEST_CASE("the MLA formula is the reference's", "[plan]") {
    for (std::uint32_t const batch : kBatches)
        for (std::uint64_t const past : kLengths)
            for (std::uint32_t const sms : kSms) {
                double const n = std::min({std::round(static_cast<double>(sms) / batch), std::ceil(static_cast<double>(past) / 128),
                                           std::floor(500.0 / batch)});
                if (mla_sub_seqs(batch, past, sms) != static_cast<std::uint32_t>(std::max(n, 1.0)))
                    FAIL(batch << " " << past << " " << sms);
            }
}

TEST_CASE("the speculative formula gives what is worked out by hand", "[plan]") {
    struct Case {
        std::uint32_t batch, heads;
        std::uint64_t past;
        std::uint32_t q_len, group, sms, n;
    };
    auto const c = GENERATE(values<Case>({
        {33, 1, 8192, 4, 8, 132, 1},    // batch over 32
        {1, 1, 2047, 4, 8, 132, 1},     // short
        {17, 8, 8192, 4, 8, 132, 1},    // 136 single blocks
        {1, 8, 8192, 4, 8, 132, 8},     // 8 single: 16, shifted by 1
        {1, 8, 8193, 4, 8, 132, 4},     // 16, log2 13: by 3 - 1 = 2
        {1, 4, 8192, 4, 8, 132, 8},     // 32, by 2
        {1, 4, 2048, 4, 8, 132, 4},     // 32, log2 11: by 3
        {1, 4, 4096, 4, 8, 132, 8},     // log2 12: by 2
        {1, 4, 16384, 4, 8, 132, 16},   // log2 14: by 1
        {1, 4, 65535, 4, 8, 132, 16},   // log2 15: by 1
        {1, 4, 65536, 4, 8, 132, 32},   // long: not shifted
        {1, 1, 65536, 4, 8, 132, 64},   // 128 capped at 64
        {1, 1, 65536, 64, 64, 132, 2},  // one token a block: 64 single
        {2, 8, 65536, 9, 8, 132, 4},    // 2 blocks of 8 tokens: 32 single
        {2, 8, 4096, 8, 8, 132, 8},     // 16 single: over 8, not shifted
        {1, 12, 4096, 8, 8, 132, 8},    // 11 rounded down to a power of two
    }));
    INFO(c.batch << " " << c.heads << " " << c.past << " " << c.q_len << " " << c.group);
    CHECK(spec_gmma_sub_seqs(c.batch, c.heads, c.past, c.q_len, c.group, c.sms) == c.n);
}

TEST_CASE("the speculative formula fills the SMs at most once", "[plan]") {
    for (std::uint32_t const batch : kBatches)
        for (std::uint32_t const heads : kHeads)
            for (std::uint64_t const past : kLengths)
                for (std::uint32_t const sms : kSms)
                    for (std::uint32_t const group : {1u, 5u, 8u, 64u}) {
                        std::uint32_t const n = spec_gmma_sub_seqs(batch, heads, past, 8, group, sms);
                        std::uint64_t const single = std::uint64_t{batch} * heads * ((8 + 64 / group - 1) / (64 / group));
                        if (n < 1 || n > 64 || (n > 1 && n * single > sms))
                            FAIL(batch << " " << heads << " " << past << " " << sms);
                    }
}

TEST_CASE("no formula grows with the batch or shrinks with the length", "[plan]") {
    test::RandomLaunch random(7);
    for (int i = 0; i < 20000; ++i) {
        auto const batch = static_cast<std::uint32_t>(1 + random.spread(7000));
        auto const heads = static_cast<std::uint32_t>(1 + random.spread(128));
        auto const sms = static_cast<std::uint32_t>(1 + random.below(200));
        std::uint64_t const len = random.spread(1 << 22);
        bool const ok =
            decode_sub_seqs(batch + 1, heads, len, sms, kMaxSubSeq) <= decode_sub_seqs(batch, heads, len, sms, kMaxSubSeq) &&
            decode_sub_seqs(batch, heads, len + 1, sms, kMaxSubSeq) >= decode_sub_seqs(batch, heads, len, sms, kMaxSubSeq) &&
            mla_sub_seqs(batch + 1, len, sms) <= mla_sub_seqs(batch, len, sms) &&
            mla_sub_seqs(batch, len + 1, sms) >= mla_sub_seqs(batch, len, sms) &&
            mmha_wave_sub_seqs(batch + 1, heads, sms) <= mmha_wave_sub_seqs(batch, heads, sms) &&
            gmma_kernel_sub_seqs(batch + 1, heads, len, sms) <= gmma_kernel_sub_seqs(batch, heads, len, sms) &&
            gmma_kernel_sub_seqs(batch, heads, len + 1, sms) >= gmma_kernel_sub_seqs(batch, heads, len, sms) &&
            hmma_kernel_sub_seqs(batch + 1, heads, len, sms) <= hmma_kernel_sub_seqs(batch, heads, len, sms) &&
            hmma_kernel_sub_seqs(batch, heads, len + 1, sms) >= hmma_kernel_sub_seqs(batch, heads, len, sms);
        if (!ok) FAIL(batch << " " << heads << " " << len << " " << sms);
    }
}

TEST_CASE("the formulas stand counts of 0 and the largest there are", "[plan]") {
    std::uint32_t const most = UINT32_MAX;
    for (std::uint32_t const batch : {0u, 1u, most})
        for (std::uint32_t const heads : {0u, 1u, most})
            for (std::uint64_t const len : {std::uint64_t{0}, UINT64_MAX})
                for (std::uint32_t const sms : {0u, 132u, most}) {
                    CHECK(decode_sub_seqs(batch, heads, len, sms, kMaxSubSeq) >= 1);
                    CHECK(decode_sub_seqs(batch, heads, len, sms, kMaxSubSeq) <= kMaxSubSeq);
                    CHECK(mmha_wave_sub_seqs(batch, heads, sms) >= 1);
                    CHECK(gmma_kernel_sub_seqs(batch, heads, len, sms) >= 1);
                    CHECK(hmma_kernel_sub_seqs(batch, heads, len, sms) >= 1);
                    CHECK(spec_gmma_sub_seqs(batch, heads, len, most, most, sms) >= 1);
                    CHECK(mla_sub_seqs(batch, len, sms) >= 1);
                    CHECK(mla_sub_seqs(batch, len, sms) <= kMaxSubSeqMla);
                }
}
