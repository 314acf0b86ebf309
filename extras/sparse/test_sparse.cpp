// Sparse attention patterns, computed as folds. extras/sparse/README.md.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "blocks/dot.hpp"
#include "extras/sparse/sparse_attention_case.hpp"
#include "tests/harness/attention_case.hpp"
#include "tests/harness/block_case.hpp"
#include "tests/harness/document.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/settings.hpp"

namespace abh {
namespace {

using Form = Pattern::Form;
using Part = Pattern::Part;

const char* name_of(Part part) {
  return part == Part::merged ? "merged" : part == Part::first ? "first" : part == Part::second ? "second" : "heads";
}

SparseAttentionCase sparse_case(const Pattern& pattern, Index B, Index C, Index N, Index K,
                                const Token* mask = nullptr) {
  const PatternTables tables = PatternTables::of(pattern, C, [](const char*, Index count, const auto& value) {
    Array<Token> table;
    for (Index i = 0; i < count; ++i) table.push_back(static_cast<Token>(value(i)));
    return kept(std::move(table));
  });
  return {{.B = B, .C = C, .N = N, .K = K, .mask_bs = mask}, pattern, tables};
}

// Every part of both, for a stride and, of fixed, a summary.
std::vector<Pattern> patterns(Index stride, Index summary) {
  std::vector<Pattern> all;
  for (const Part part : {Part::merged, Part::first, Part::second, Part::heads}) {
    all.push_back({.form = Form::strided, .part = part, .stride = stride});
    all.push_back({.form = Form::fixed, .part = part, .stride = stride, .summary = summary});
  }
  return all;
}
template <class Body>
void for_each_pattern(const std::vector<std::pair<Index, Index>>& sizes, const Body& body) {
  for (const auto& [stride, summary] : sizes) {
    for (const Pattern& pattern : patterns(stride, summary)) {
      const std::string form = pattern.form == Form::strided ? "strided" : "fixed", part = name_of(pattern.part);
      CAPTURE(form, part, stride, summary);
      body(pattern);
    }
  }
}

// In one pass: one row of scores per query, and a softmax over the keys in the pattern.
Array<double> by_definition(const SparseAttentionCase& layer, const Values<double>& in) {
  const Index B = layer.B, C = layer.C, N = layer.N, K = layer.K, H = layer.H();
  Array<double> out(in[0].size());
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const auto at = [&](Index c, Index k) { return size_of((b * C + c) * H + n * K + k); };
      for (Index c = 0; c < C; ++c) {
        double sum = 0;
        for (Index s = 0; s < C; ++s) {
          if (!layer.pattern.sees(n, c, s) || (layer.mask_bs && layer.mask_bs[b * C + s] == 0)) continue;
          double score = 0;
          for (Index k = 0; k < K; ++k) score += in[0][at(c, k)] * in[1][at(s, k)];
          const double power = std::exp(score / std::sqrt(static_cast<double>(K)));
          sum += power;
          for (Index k = 0; k < K; ++k) out[at(c, k)] += power * in[2][at(s, k)];
        }
        for (Index k = 0; k < K; ++k) out[at(c, k)] = sum == 0 ? 0 : out[at(c, k)] / sum;
      }
    }
  }
  return out;
}

TEST_CASE("sparse: folds and their merge equal the pattern", "[sparse]") {
  for_each_pattern({{1, 1}, {3, 1}, {4, 2}, {4, 4}, {5, 3}, {30, 7}}, [](const Pattern& pattern) {
    for (const Index C : {1, 4, 8, 11, 23}) {
      for (const bool masked : {false, true}) {
        CAPTURE(C, masked);
        const SparseAttentionCase layer = sparse_case(pattern, 2, C, 3, 2, masked ? holes(2, C) : nullptr);
        const Values<double> in = random_values(layer.inputs(), 5);
        const Values<double> expected = {by_definition(layer, in)};
        PlainDevice plain;
        CpuDevice<Isa::baseline> cpu(2);
        require_close(layer.outputs(), run_forward<double>(layer, plain, in), expected, 1e-14, "plain");
        require_close(layer.outputs(), run_forward<double>(layer, cpu, in), expected, 1e-14, "cpu");
      }
    }
  });
}

TEST_CASE("sparse: every derivative", "[sparse]") {
  for_each_pattern({{3, 1}, {4, 2}, {20, 19}}, [](const Pattern& pattern) {
    check_layer(sparse_case(pattern, 2, 10, 2, 3));
    check_layer(sparse_case(pattern, 1, 8, 3, 2, holes(1, 8)));
  });
}

TEST_CASE("sparse: tiles, at every edge", "[sparse][heavy]") {
  for_each_pattern({{5, 2}, {16, 8}, {64, 8}, {70, 33}, {100, 64}, {300, 5}}, [](const Pattern& pattern) {
    for (const Index C : {64, 140, 257}) {
      CAPTURE(C);
      SparseAttentionCase layer = sparse_case(pattern, 2, C, 2, 5);
      check_float(layer, 3, 1e-5, 2e-5, false);
      layer = sparse_case(pattern, 1, C, 1, 16, holes(1, C));
      check_float(layer, 3, 1e-5, 2e-5, false);
    }
    check_threads(sparse_case(pattern, 3, 257, 2, 8), 3);
  });
}

TEST_CASE("sparse: GPU kernels", "[sparse][gpu]") {
  for_each_pattern({{5, 2}, {16, 16}, {70, 9}}, [](const Pattern& pattern) {
    const std::string what = std::string(pattern.form == Form::strided ? "strided, " : "fixed, ") +
                             name_of(pattern.part) + ", stride " + std::to_string(pattern.stride);
    if (pattern.stride == 5) {
      check_gpu("attention", what, sparse_case(pattern, 2, 80, 3, 8));
    } else {
      check_gpu("attention", what + ", masked", sparse_case(pattern, 1, 75, 1, 7, holes(1, 75)));
    }
  });
}

// A single stair: all queries of a stretch attend to the same last key.
TEST_CASE("sparse: stairs at every offset", "[sparse][attention]") {
  for (const auto& [queries, keys] :
       {std::pair<Index, Index>{1, 3}, {3, 1}, {4, 2}, {7, 7}, {40, 9}, {64, 64}, {100, 3}}) {
    for (const Index offset : {-1, 0, -9, 70}) {
      const AttentionMask<float> attention_mask{.query_offset = offset, .step_queries = queries, .step_keys = keys};
      const Index C = 150, S = 200;
      Index wrong = 0;
      for (Index c = 0; c < C; ++c) {
        const Index stands = c / queries * keys + offset;
        wrong += !(attention_mask.at(c) == stands);
        for (Index s = 0; s < S; ++s) wrong += attention_mask.sees(c, s) != (s <= stands);
      }
      for (Index begin = 0; begin < C; begin += 13) {
        for (const Index end : {begin + 1, begin + 9}) {
          wrong += !(attention_mask.keys_of({begin, end}, S).end == std::min(attention_mask.at(end - 1) + 1, S));
        }
      }
      for (Index s = 0; s < S; ++s) {
        Index first = 0;
        while (first < 10 * S * queries && !attention_mask.sees(first, s)) ++first;
        wrong += !(attention_mask.first_at(s) == first || (first == 0 && attention_mask.first_at(s) <= 0));
      }
      CAPTURE(queries, keys, offset);
      CHECK(wrong == 0);
      check_float(AttentionCase{.B = 1,
                                .C = C,
                                .N = 1,
                                .K = 5,
                                .S = S,
                                .query_offset = offset,
                                .step_queries = queries,
                                .step_keys = keys},
                  7, 1e-5, 2e-5, false);
    }
  }
  const AttentionCase small{.B = 2,
                            .C = 9,
                            .N = 2,
                            .K = 3,
                            .mask_bs = holes(2, 7),
                            .S = 7,
                            .query_offset = -1,
                            .step_queries = 4,
                            .step_keys = 3};
  check_layer(small);
}

TEST_CASE("sparse: stairs on the GPU", "[sparse][gpu]") {
  for (const Index K : {8, 64, 130}) {
    check_gpu("attention", "a stair, K " + std::to_string(K),
              AttentionCase{.B = 2,
                            .C = 150,
                            .N = 2,
                            .K = K,
                            .mask_bs = holes(2, 70),
                            .S = 70,
                            .query_offset = -1,
                            .step_queries = 20,
                            .step_keys = 9});
  }
}

// ---- As a block ----

BlockCase<MakeBlock<DotBlock>> block_case(const Pattern& pattern, Index B, Index C, Index N = 2) {
  BlockCase<MakeBlock<DotBlock>> block = case_of_heads<MakeBlock<DotBlock>>(6, N, 3, B, C);
  block.config.extras.pattern = pattern.form == Form::strided ? "strided" : "fixed";
  block.config.extras.stride = pattern.stride;
  block.config.extras.summary = pattern.summary;
  const bool alone = pattern.part == Part::first || pattern.part == Part::second;
  block.config.extras.part = alone ? "layers" : name_of(pattern.part);
  block.options.layer = pattern.part == Part::second ? 1 : 0;
  return block;
}

TEST_CASE("sparse: the block is causal, and inference equals the full pass", "[sparse][gpu]") {
  for_each_pattern({{3, 2}, {4, 1}, {1, 1}, {50, 20}}, [](const Pattern& pattern) {
    check_causality(block_case(pattern, 2, 9));
    for (const Index N : {1, 2, 3}) check_steps(block_case(pattern, 1, 14, N));
  });
  for_each_pattern({{3, 2}}, [](const Pattern& pattern) {
    BlockCase<MakeBlock<DotBlock>> block = block_case(pattern, 2, 7);
    check_layer(block);
    block.config.positions = "rotary";
    block.config.rescale = 3;
    block.mask_bc = {1, 0, 1, 1, 0, 1, 1, /**/ 0, 0, 1, 1, 0, 1, 0};
    check_layer(block);
  });
}

TEST_CASE("sparse: a sequence shorter than the context", "[sparse][gpu]") {
  for_each_pattern({{4, 2}, {9, 1}}, [](const Pattern& pattern) {
    const BlockCase<MakeBlock<DotBlock>> block = block_case(pattern, 2, 11), longer = block_case(pattern, 3, 26);
    const Values<double> in = random_values(block.inputs(), 5);
    for_each_device(2, [&]<class Device>(Device& device) {
      const Values<float> narrow = converted<float>(in);
      const auto run = [&](const BlockCase<MakeBlock<DotBlock>>& built_for) {
        BuiltBlock<MakeBlock<DotBlock>, Device, float> built(device, block.make, block.config,
                                                             {built_for.B, built_for.C, 0}, block.options);
        built.put_weights(narrow);
        Array<float> out(narrow[0].size()), d_x = narrow[0];
        built->forward(device, out.data(), narrow[0].data(), block.pass());
        built.put_gradients(narrow);
        built->backward(device, d_x.data(), narrow[0].data(), block.pass());
        wait_for(device);
        return Values<float>{out, d_x};
      };
      const std::vector<TensorSpec> specs = {block.outputs()[0], block.inputs()[0]};
      require_close(specs, converted<double>(run(longer)), converted<double>(run(block)), 1e-6, "in a longer network");
    });
  });
}

// Inspected weights are positive exactly where a query attends to a key.
TEST_CASE("sparse: inspected weights are positive exactly inside the pattern", "[sparse][inspector]") {
  for_each_pattern({{3, 2}, {5, 1}}, [](const Pattern& pattern) {
    const SparseAttentionCase layer = sparse_case(pattern, 2, 13, 2, 3, holes(2, 13));
    PlainDevice device;
    CaseArrays<double> a = arrays_of(layer, random_values(layer.inputs(), 3));
    layer.forward(device, a);
    const Index C = layer.C, N = layer.N, K = layer.K;
    Array<double> weight(size_of(layer.B * N * C * C));
    layer.weights(device, weight.data(), a);
    Index wrong = 0;
    double error = 0;
    for (Index i = 0; i < layer.B * N * C; ++i) {
      const Index b = i / (N * C), n = i / C % N, c = i % C;
      for (Index k = 0; k < K; ++k) {
        double sum = 0;
        for (Index s = 0; s < C; ++s)
          sum += weight[size_of(i * C + s)] * a.in[2][size_of((b * C + s) * N * K + n * K + k)];
        error = at_least(error, std::abs(sum - a.out[0][size_of((b * C + c) * N * K + n * K + k)]));
      }
      for (Index s = 0; s < C; ++s) {
        const bool sees = pattern.sees(n, c, s) && layer.mask_bs[b * C + s] != 0;
        wrong += sees != (weight[size_of(i * C + s)] > 0);
      }
    }
    CHECK(wrong == 0);
    CHECK_FALSE(!(error <= 1e-14));
  });
}

// ---- Cost ----

// Pairs in the tiles of 64 that the folds of a pattern compute, as a share of half of C^2.
double share_of_pairs(const Pattern& pattern, Index C) {
  const Index tile = 64;
  const Folds folds = folds_of(pattern, pattern.part, {}, C, C);
  double tiles = 0;
  for (int m = 0; m < folds.count; ++m) {
    const Fold& fold = folds.fold[m];
    const AttentionMask<float> attention_mask{.query_offset = fold.offset,
                                              .window = fold.reach,
                                              .step_queries = fold.step_queries,
                                              .step_keys = fold.step_keys};
    const Index queries = fold.queries / fold.sequences, keys = fold.keys / fold.sequences;
    Index of_sequence = 0;
    for (Index c = 0; c < queries; c += tile) {
      for (Index s = 0; s < keys; s += tile) {
        of_sequence += attention_mask.tile_mask({c, std::min(c + tile, queries)}, {s, std::min(s + tile, keys)}) !=
                       TileMask::empty;
      }
    }
    tiles += static_cast<double>(of_sequence * fold.sequences);
  }
  return tiles * tile * tile / (0.5 * static_cast<double>(C) * static_cast<double>(C));
}

TEST_CASE("sparse: the numbers of computed pairs are those of the chapter", "[sparse]") {
  const std::vector<Parts> rows =
      matches(document("extras/sparse/README.md"),
              "\\| (\\d+), (\\d+), (\\d+) \\| (0\\.\\d{3}) \\| (0\\.\\d{3}) \\| (0\\.\\d{3}) \\|");
  REQUIRE(rows.size() == 2);
  for (const Parts& row : rows) {
    CAPTURE(row);
    const Index C = std::stol(row[1]), stride = std::stol(row[2]), summary = std::stol(row[3]);
    const double shares[] = {
        share_of_pairs({.form = Form::strided, .part = Part::first, .stride = stride}, C),
        share_of_pairs({.form = Form::strided, .stride = stride}, C),
        share_of_pairs({.form = Form::fixed, .stride = stride, .summary = summary}, C),
    };
    for (std::size_t i = 0; i < 3; ++i) CHECK(fixed_text(shares[i], 3) == row[4 + i]);
  }
}

TEST_CASE("sparse: memory grows linearly with the length", "[sparse]") {
  for (const Form form : {Form::strided, Form::fixed}) {
    for (const Part part : {Part::merged, Part::heads}) {
      const auto scratch = [&](Index C) {
        const SparseAttentionCase layer =
            sparse_case({.form = form, .part = part, .stride = 32, .summary = form == Form::fixed ? 4 : 0}, 1, C, 2, 4);
        CpuDevice<Isa::baseline> device(1);
        CaseArrays<float> a = arrays_of(layer, converted<float>(random_values(layer.inputs(), 3)));
        layer.forward(device, a);
        put_d_out(a, layer.inputs(), layer.outputs(), converted<float>(random_values(layer.outputs(), 4)));
        layer.backward(device, a);
        return static_cast<double>(device.workspace.peak());
      };
      const double shorter = scratch(8192), longer = scratch(16384);
      CAPTURE(name_of(part), shorter, longer);
      CHECK(longer <= 2.2 * shorter);
    }
  }
}

// ---- Settings ----

TEST_CASE("sparse: impossible settings are refused", "[sparse]") {
  const auto fault = [](const std::string& changes) {
    ModelConfig config{.layers = 2, .channels = 6, .heads = 2, .context = 7, .vocabulary = 11, .mixer = "dot"};
    config = changed(config, changes);
    try {
      check_model(config);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(fault("pattern=strided stride=3") == "");
  CHECK(fault("pattern=fixed stride=3 summary=3 part=heads") == "");
  CHECK(fault("pattern=window stride=3") == "--pattern: expected none, strided or fixed, found \"window\"");
  CHECK(fault("pattern=strided") == "--stride: expected 1 at least, where there is a --pattern, found 0");
  CHECK(fault("pattern=strided stride=3 summary=1") == "--summary: expected none where --pattern is strided, found 1");
  CHECK(fault("pattern=fixed stride=3") ==
        "--summary: expected 1 to the 3 of --stride, where --pattern is fixed, found 0");
  CHECK(fault("pattern=fixed stride=3 summary=4") ==
        "--summary: expected 1 to the 3 of --stride, where --pattern is fixed, found 4");
  CHECK(fault("stride=3") == "--stride: expected a --pattern that has one, found 3");
  CHECK(fault("summary=3") == "--summary: expected a --pattern that has one, found 3");
  CHECK(fault("part=heads") == "--part: expected a --pattern that has parts, found heads");
  CHECK(fault("pattern=strided stride=3 part=first") == "--part: expected merged, layers or heads, found \"first\"");
  CHECK(fault("pattern=strided stride=3 positions=alibi") ==
        "--positions: expected no alibi where there is a --pattern, found alibi");
  CHECK(fault("pattern=strided stride=3 causal=0 classes=2") ==
        "--pattern: expected none where causal is 0 and the mixer dot, found strided");
  ModelConfig config{.mixer = "dot"};
  config.extras.pattern = "strided";
  config.extras.stride = 3;
  CHECK(why_no_chunks(config) == "--chunk: expected a network without a --pattern, found strided");
}

}  // namespace
}  // namespace abh
