#include "layers/parts/attention_mask.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

// true: `stretch` contains exactly the positions in [0, count) for which `wanted` is true.
template <class Wanted>
bool holds(Stretch stretch, Index count, const Wanted& wanted) {
  bool same = true;
  for (Index i = 0; i < count; ++i) same = same && (stretch.begin <= i && i < stretch.end) == wanted(i);
  return same && (stretch.empty() || (stretch.begin >= 0 && stretch.end <= count));
}

// Every attention mask of few positions: body(attention mask).
template <class Body>
void for_each_mask(const Body& body) {
  for (const bool causal : {true, false}) {
    for (const Index query_offset : {-9, -3, -1, 0, 1, 2, 5, 8, 20}) {
      for (const Index window : {0, 1, 2, 3, 6, 30}) {
        CAPTURE(causal, query_offset, window);
        body(AttentionMask<float>{.causal = causal, .query_offset = query_offset, .window = window});
      }
    }
  }
}

TEST_CASE("attention_mask: offset, window and causality determine which keys a query attends to", "[attention_mask]") {
  const AttentionMask<float> whole, both{.causal = false}, near{.query_offset = 4, .window = 3};
  CHECK(whole.sees(2, 2));
  CHECK_FALSE(whole.sees(2, 3));
  CHECK(both.sees(0, 1000));
  CHECK_FALSE(near.sees(1, 2));  // query 1 has position 5
  CHECK(near.sees(1, 3));
  CHECK(near.sees(1, 5));
  CHECK_FALSE(near.sees(1, 6));
  for_each_mask([](const AttentionMask<float>& mask) {
    for (Index c = 0; c < 8; ++c) {
      for (Index s = 0; s < 12; ++s) {
        const Index past = c + mask.query_offset - s;  // distance from the query back to the key
        CHECK(mask.sees(c, s) == ((!mask.causal || past >= 0) && (mask.window == 0 || past < mask.window)));
      }
    }
  });
}

TEST_CASE("attention_mask: key ranges, query ranges and tiles agree with single pairs", "[attention_mask]") {
  const Index C = 6, S = 7;
  for_each_mask([&](const AttentionMask<float>& mask) {
    for (Index first = 0; first <= S; ++first) {
      for (Index end = first; end <= S; ++end) {
        CAPTURE(first, end);
        const auto any_sees = [&](Index s) {
          for (Index c = first; c < end; ++c) {
            if (mask.sees(c, s)) return true;
          }
          return false;
        };
        CHECK(holds(mask.keys_of({first, end}, S), S, any_sees));
        const auto sees_any = [&](Index c) {
          for (Index s = first; s < end; ++s) {
            if (mask.sees(c, s)) return true;
          }
          return false;
        };
        CHECK(holds(mask.queries_of({first, end}, C), C, sees_any));
        for (Index first_c = 0; first_c < C; first_c += 2) {
          for (Index end_c = first_c + 1; end_c <= C && end > first; end_c += 2) {
            Index seen = 0;
            for (Index c = first_c; c < end_c; ++c) {
              for (Index s = first; s < end; ++s) seen += mask.sees(c, s);
            }
            const Index pairs = (end_c - first_c) * (end - first);
            const TileMask expected = seen == 0 ? TileMask::empty : seen == pairs ? TileMask::full : TileMask::partial;
            CHECK(mask.tile_mask({first_c, end_c}, {first, end}) == expected);
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace abh
