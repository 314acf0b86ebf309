#include <vector>

#include "layers/embedding.hpp"
#include "tests/layer_case.hpp"

namespace abh {
namespace {

// P: rows of the position table, at least C.
struct EmbeddingCase {
  Index B, C, D, V, P;
  bool positions = true;

  // Ids that repeat within and between sequences, the first and the last of the vocabulary among them.
  Array<Token> tokens() const {
    Array<Token> ids;
    for (Index i = 0; i < B * C; ++i) ids.push_back(static_cast<Token>((i * i + i / 3) % V));
    ids.front() = 0;
    ids.back() = static_cast<Token>(V - 1);
    return ids;
  }
  std::vector<Slot> inputs() const {
    std::vector<Slot> slots = {weight("token_vd", V * D)};
    if (positions) slots.push_back(weight("position_cd", P * D));
    return slots;
  }
  std::vector<Slot> outputs() const { return {activation("out_bcd", B * C * D)}; }

  template <class Device, class T>
  void forward(Device& device, const Values<T>& in, Values<T>& out) const {
    embedding_forward<Device, T>(device, out[0].data(), tokens().data(), in[0].data(),
                                 positions ? in[1].data() : nullptr, B, C, D);
  }
  template <class Device, class T>
  void backward(Device& device, const Values<T>&, const Values<T>& d_out, Values<T>& d_in) const {
    embedding_backward<Device, T>(device, d_in[0].data(), positions ? d_in[1].data() : nullptr, d_out[0].data(),
                                  tokens().data(), B, C, D, V);
  }
};

TEST_CASE("embedding: every derivative, every width", "[embedding]") {
  check_layer(EmbeddingCase{3, 5, 7, 11, 5});
  check_layer(EmbeddingCase{2, 7, 19, 3, 9});
  check_layer(EmbeddingCase{1, 1, 1, 1, 1});
  check_layer(EmbeddingCase{2, 3, 5, 4, 0, false});
  // More channels and rows than one task takes.
  check_float(EmbeddingCase{3, 67, 101, 13, 67}, 2);
  check_threads(EmbeddingCase{3, 67, 101, 13, 67}, 2);
}

TEST_CASE("embedding: out is the token's row and the position's row", "[embedding]") {
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

TEST_CASE("embedding: gradients add up over equal ids, and leave other rows alone", "[embedding]") {
  const Array<Token> tokens_bc = {2, 0, 2, 2};
  const Array<float> d_out_bcd = {1, 2, 3, 4, 5, 6, 7, 8};
  for_each_cpu(2, [&](auto& device, const std::string& isa) {
    INFO(isa);
    Array<float> d_token_vd(8, 100.0f), d_position_cd(6, 100.0f);
    embedding_backward<std::remove_reference_t<decltype(device)>, float>(
        device, d_token_vd.data(), d_position_cd.data(), d_out_bcd.data(), tokens_bc.data(), 2, 2, 2, 4);
    CHECK(d_token_vd == Array<float>{103, 104, 100, 100, 113, 116, 100, 100});
    CHECK(d_position_cd == Array<float>{106, 108, 110, 112, 100, 100});
  });
}

TEST_CASE("embedding: one position at a time gives the same as all at once", "[embedding]") {
  const EmbeddingCase layer{1, 9, 21, 5, 9};
  const Values<float> in = converted<float>(random_values(layer.inputs(), 4));
  const Array<Token> tokens_bc = layer.tokens();
  for_each_cpu(1, [&](auto& device, const std::string& isa) {
    INFO(isa);
    Array<float> steps(static_cast<std::size_t>(layer.C * layer.D));
    for (Index c = 0; c < layer.C; ++c) {
      embedding_forward<std::remove_reference_t<decltype(device)>, float>(
          device, steps.data() + c * layer.D, tokens_bc.data() + c, in[0].data(), in[1].data(), 1, 1, layer.D, c);
    }
    CHECK(steps == run_forward<float>(layer, device, in)[0]);
  });
}

TEST_CASE("embedding: no sequences", "[embedding]") {
  CpuDevice<Isa::baseline> device(2);
  Array<float> d_token_vd(6, 1.0f);
  embedding_forward<CpuDevice<Isa::baseline>, float>(device, nullptr, nullptr, d_token_vd.data(), nullptr, 0, 4, 2);
  embedding_backward<CpuDevice<Isa::baseline>, float>(device, d_token_vd.data(), nullptr, nullptr, nullptr, 0, 4, 2, 3);
  CHECK(d_token_vd == Array<float>(6, 1.0f));
}

}  // namespace
}  // namespace abh
