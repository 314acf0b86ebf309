#include <vector>

#include "cases/embedding.hpp"
#include "layers/embedding.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// P: rows of the position table, at least C.
// Ids that repeat within and between sequences, the first and the last of the vocabulary among them.
EmbeddingCase embedding(Index B, Index C, Index D, Index V, Index P, bool positions = true) {
  Array<Token> tokens_bc;
  for (Index i = 0; i < B * C; ++i) tokens_bc.push_back(static_cast<Token>((i * i + i / 3) % V));
  tokens_bc.front() = 0;
  tokens_bc.back() = static_cast<Token>(V - 1);
  return {B, C, D, V, P, kept(std::move(tokens_bc)), positions};
}

// The same with patches (no token) at every third position, and in the whole last sequence.
EmbeddingCase with_gaps(EmbeddingCase layer) {
  Array<Token> tokens_bc(layer.tokens_bc, layer.tokens_bc + layer.B * layer.C);
  for (Index i = 0; i < layer.B * layer.C; ++i) {
    if (i % 3 == 1 || i >= (layer.B - 1) * layer.C) tokens_bc[static_cast<std::size_t>(i)] = -1;
  }
  layer.tokens_bc = kept(std::move(tokens_bc));
  return layer;
}

TEST_CASE("embedding: every derivative, at every SIMD width", "[embedding]") {
  check_layer(with_gaps(embedding(3, 5, 7, 4, 5)));
  check_layer(with_gaps(embedding(2, 7, 19, 3, 0, false)));
  check_layer(embedding(3, 5, 7, 11, 5));
  check_layer(embedding(2, 7, 19, 3, 9));
  check_layer(embedding(1, 1, 1, 1, 1));
  check_layer(embedding(2, 3, 5, 4, 0, false));
  // More channels and rows than one task takes.
  check_float(embedding(3, 67, 101, 13, 67), 2);
  check_threads(embedding(3, 67, 101, 13, 67), 2);
}

TEST_CASE("embedding: the output is the token's row plus the position's row", "[embedding]") {
  const Array<double> token_vd = {1, 2, 3, 4, 5, 6};
  const Array<double> position_cd = {10, 20, 30, 40, 50, 60, 70, 80};
  const Array<Token> tokens_bc = {2, 0, 2, 1};
  Array<double> out_bcd(8);
  CpuDevice<Isa::baseline> device(1);
  embedding_forward<CpuDevice<Isa::baseline>, double>(device, out_bcd.data(), tokens_bc.data(), token_vd.data(),
                                                      position_cd.data(), 2, 2, 2);
  CHECK(out_bcd == Array<double>{15, 26, 31, 42, 15, 26, 33, 44});
  embedding_forward<CpuDevice<Isa::baseline>, double>(device, out_bcd.data(), tokens_bc.data(), token_vd.data(),
                                                      position_cd.data(), 2, 2, 2, 2);
  CHECK(out_bcd == Array<double>{55, 66, 71, 82, 55, 66, 73, 84});
}

TEST_CASE("embedding: gradients of equal ids add up, other rows keep theirs", "[embedding][gpu]") {
  const Array<Token> tokens_bc = {2, 0, 2, 2};
  const EmbeddingCase layer{.B = 2, .C = 2, .D = 2, .V = 4, .P = 3, .tokens_bc = tokens_bc.data()};
  for_each_device(2, [&](auto& device) {
    const Values<double> d_in = run_backward<float>(layer, device, {}, {{1, 2, 3, 4, 5, 6, 7, 8}});
    CHECK(d_in == Values<double>{{3, 4, 0, 0, 13, 16, 0, 0}, {6, 8, 10, 12, 0, 0}});
  });
}

TEST_CASE("embedding: one position at a time equals the whole sequence", "[embedding][gpu]") {
  const EmbeddingCase layer = embedding(1, 9, 21, 5, 9);
  const Values<float> in = converted<float>(random_values(layer.inputs(), 4));
  for_each_device(1, [&]<class Device>(Device& device) {
    Array<float> steps(static_cast<std::size_t>(layer.C * layer.D));
    for (Index c = 0; c < layer.C; ++c) {
      embedding_forward<Device, float>(device, steps.data() + c * layer.D, layer.tokens_bc + c, in[0].data(),
                                       in[1].data(), 1, 1, layer.D, c);
    }
    CHECK(steps == run_forward<float>(layer, device, in)[0]);
  });
}

// If all positions are patches there is no token table: rows are those of the position table, or 0.
TEST_CASE("embedding: without token table, and without position table", "[embedding][gpu]") {
  for_each_device(2, [&]<class Device>(Device& device) {
    const Array<Token> tokens_bc = {-1, 1, -1, -1};
    const Array<float> token_vd = {1, 2, 3, 4}, position_cd = {10, 20, 30, 40}, d_out_bcd = {1, 2, 3, 4, 5, 6, 7, 8};
    Array<float> out_bcd(8, 7.0f), d_token_vd(4, 1.0f), d_position_cd(4, 1.0f);
    const auto run = [&](const Token* tokens, const float* token, const float* position, Index V) {
      embedding_forward<Device, float>(device, out_bcd.data(), tokens, token, position, 2, 2, 2);
      embedding_backward<Device, float>(device, token ? d_token_vd.data() : nullptr,
                                        position ? d_position_cd.data() : nullptr, d_out_bcd.data(), tokens, 2, 2, 2,
                                        V);
      wait_for(device);
    };
    run(tokens_bc.data(), token_vd.data(), position_cd.data(), 2);
    CHECK(out_bcd == Array<float>{10, 20, 33, 44, 10, 20, 30, 40});
    CHECK(d_token_vd == Array<float>{1, 1, 4, 5});
    CHECK(d_position_cd == Array<float>{7, 9, 11, 13});
    const Array<Token> none(4, -1);
    run(none.data(), nullptr, position_cd.data(), 0);
    CHECK(out_bcd == Array<float>{10, 20, 30, 40, 10, 20, 30, 40});
    CHECK(d_position_cd == Array<float>{13, 17, 21, 25});
    run(none.data(), nullptr, nullptr, 0);
    CHECK(out_bcd == Array<float>(8, 0.0f));
  });
}

TEST_CASE("embedding: no sequences", "[embedding][gpu]") {
  for_each_device(2, [&]<class Device>(Device& device) {
    Array<float> d_token_vd(6, 1.0f), d_position_cd(8, 1.0f);
    embedding_forward<Device, float>(device, nullptr, nullptr, d_token_vd.data(), nullptr, 0, 4, 2);
    embedding_backward<Device, float>(device, d_token_vd.data(), d_position_cd.data(), nullptr, nullptr, 0, 4, 2, 3);
    wait_for(device);
    CHECK(d_token_vd == Array<float>(6, 1.0f));
    CHECK(d_position_cd == Array<float>(8, 1.0f));
  });
}

TEST_CASE("embedding: SIMD widths agree at every odd size", "[embedding]") {
  check_widths([](Index size) { return embedding(2, 5, size, 7, 5); });
}

TEST_CASE("embedding: GPU kernels at every size", "[embedding][gpu]") {
  check_gpu("embedding", embedding(3, 37, 40, 13, 37), embedding(3, 1, 40, 13, 1), embedding(1, 1025, 8, 65, 1025));
  // An odd number of channels, unused positions, and no position table.
  check_gpu("embedding", embedding(5, 7, 37, 3, 9), embedding(2, 29, 66, 11, 0, false), embedding(1, 1, 1, 1, 1),
            with_gaps(embedding(6, 17, 32, 3, 17)));
  // More sequences than are summed at once, all with the same token.
  check_gpu("embedding", embedding(21, 19, 5, 1, 19));
  // Two tiles of the table, and chunks that are cut by the size of the vocabulary: 2 groups of rows, the last has 1.
  check_gpu("embedding", embedding(3, 200, 6, 150, 200));
  // A large vocabulary: one chunk, added to the gradient directly, with 8 tiles of which the last is not full.
  check_gpu("embedding", embedding(2, 167, 34, 1000, 167));
  check_alignment(embedding(2, 9, 8, 5, 9), 0);
}

// Sums of small whole numbers are exact in any order, so that not a single row may be lost or added twice.
TEST_CASE("embedding: on the GPU every row counts once, for any vocabulary", "[embedding][gpu]") {
  const Index B = 3, C = 171, D = 2;
  for (const Index V : {1, 2, 127, 128, 129, 170, 257, 513, 5000}) {
    Array<Token> tokens_bc;
    Array<float> d_out_bcd;
    // Half of them are one common token.
    for (Index bc = 0; bc < B * C; ++bc) {
      const std::uint32_t word = philox_word(3, static_cast<std::uint64_t>(bc), 0, 1000);
      tokens_bc.push_back(word % 2 == 0 ? static_cast<Token>(V - 1) : static_cast<Token>(word / 2 % std::uint32_t(V)));
      for (Index d = 0; d < D; ++d) d_out_bcd.push_back(static_cast<float>((bc + d) % 7 - 2));
    }
    Array<float> expected(static_cast<std::size_t>(V * D), 0.5f);
    for (std::size_t i = 0; i < d_out_bcd.size(); ++i) {
      expected[static_cast<std::size_t>(tokens_bc[i / 2]) * 2 + i % 2] += d_out_bcd[i];
    }
    for_each_gpu([&](auto& device, const std::string& name) {
      INFO(name << ", " << V << " tokens");
      Array<float> d_token_vd(static_cast<std::size_t>(V * D), 0.5f);
      embedding_backward<std::remove_reference_t<decltype(device)>, float>(
          device, d_token_vd.data(), nullptr, d_out_bcd.data(), tokens_bc.data(), B, C, D, V);
      wait_for(device);
      CHECK(d_token_vd == expected);
      // The sums of chunks take no more memory than d_out.
      CHECK(device.workspace.peak() <= d_out_bcd.size() * sizeof(float));
    });
  }
}

}  // namespace
}  // namespace abh
