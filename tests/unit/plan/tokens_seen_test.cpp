// Which tokens of a tile a row sees, as the device works it out: the same header, compiled for the host.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "catch.h"
#include "common/work_division.h"

using namespace xqajit::device;

namespace {

bool bit(u64 word, u32 t) { return (word >> t & 1) != 0; }

// Contract: token t of a request of len tokens is draft token t - (len - q_len), or before the draft, where each sees it.
bool tree_sees(u32 const* words, i32 len, i32 q_len, i32 i, i64 t) {
    i64 const draft = t - (i64{len} - q_len);
    return draft < 0 || draft == i || (words[draft / 32] >> (draft % 32) & 1) != 0;
}

}  // namespace

TEST_CASE("a tile's tokens inside a range are the bits of a word", "[plan][W21]") {
    for (u32 const first : {0u, 64u, 4096u, 0x7fffffc0u})
        for (u32 const begin : {0u, 1u, 63u, 64u, 65u, 100u, 127u, 128u, 4096u, 4100u, 0x7fffffc1u})
            for (u32 const count : {0u, 1u, 2u, 63u, 64u, 65u, 5000u}) {
                u64 const word = tokens_inside({begin, begin + count}, first);
                for (u32 t = 0; t < 64; ++t) {
                    INFO(first << ": [" << begin << ", " << begin + count << ") token " << t);
                    REQUIRE(bit(word, t) == (first + t >= begin && first + t < begin + count));
                }
            }
}

TEST_CASE("a tree's row sees itself, all before the draft, and what its mask has, in every tile and length", "[plan][W32]") {
    std::mt19937 random(32);
    for (i32 const q_len : {1, 2, 5, 31, 32, 33, 40, 63, 64})
        for (i32 const len : {1, 2, 30, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 191, 200, 0x7fffffff}) {
            // Of the words that the row has and no more: a read past them is the sanitizer's to tell.
            u32 const nb_words = (static_cast<u32>(q_len) + 31) / 32;
            std::unique_ptr<u32[]> const words(new u32[nb_words]);
            u32 const last_tile = (static_cast<u32>(len) - 1) / 64 * 64, first_tile = last_tile > 192 ? last_tile - 192 : 0;
            for (i32 i = 0; i < q_len; i += q_len < 8 ? 1 : 7)
                for (u32 tile = first_tile; tile <= last_tile; tile += 64) {
                    std::generate_n(words.get(), nb_words, [&] { return static_cast<u32>(random()); });
                    u64 const word = tokens_of_tree(words.get(), len, q_len, static_cast<u32>(i), tile);
                    for (u32 t = 0; t < 64 && tile + t < static_cast<u32>(len); ++t) {
                        INFO("q_len " << q_len << ", len " << len << ", row " << i << ", token " << tile + t);
                        REQUIRE(bit(word, t) == tree_sees(words.get(), len, q_len, i, tile + t));
                    }
                    if (tile == last_tile) break;  // the next would be past the largest length
                }
        }
}
