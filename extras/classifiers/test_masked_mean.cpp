#include <limits>

#include "extras/classifiers/masked_mean.hpp"
#include "extras/classifiers/masked_mean_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// A sequence with holes, one without a position left, one of which all count.
const Token* mask_of_three(Index C) {
  Array<Token> mask_bc(static_cast<std::size_t>(3 * C), 1);
  for (Index c = 0; c < C; ++c) {
    mask_bc[static_cast<std::size_t>(c)] = c % 3 != 1;
    mask_bc[static_cast<std::size_t>(C + c)] = 0;
  }
  return kept(std::move(mask_bc));
}

TEST_CASE("masked_mean: every derivative, at every SIMD width", "[masked_mean]") {
  check_layer(MaskedMeanCase{.B = 2, .C = 5, .D = 7});
  check_layer(MaskedMeanCase{.B = 3, .C = 4, .D = 19, .mask_bc = mask_of_three(4)});
  check_layer(MaskedMeanCase{.B = 1, .C = 1, .D = 1});
  check_widths([](Index size) { return MaskedMeanCase{.B = 3, .C = 3, .D = size, .mask_bc = mask_of_three(3)}; });
}

TEST_CASE("masked_mean: the worked example of the chapter", "[masked_mean]") {
  const MaskedMeanCase layer{1, 4, 2, kept(Array<Token>{1, 0, 1, 0})};
  const Values<double> in = {{1, 2, 50, 60, 5, 8, 70, 80}};
  const auto check = [&](auto& device) {
    CHECK(run_forward<double>(layer, device, in)[0] == Array<double>{3, 5});
    CHECK(run_backward<double>(layer, device, in, {{4, 6}})[0] == Array<double>{2, 3, 0, 0, 2, 3, 0, 0});
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

TEST_CASE("masked_mean: all positions masked, no sequences, no positions", "[masked_mean][gpu]") {
  const MaskedMeanCase nothing{1, 2, 3, kept(Array<Token>{0, 0})};
  for_each_device(2, [&](auto& device) {
    CHECK(run_forward<float>(nothing, device, {{1, 2, 3, 4, 5, 6}})[0] == Array<float>{0, 0, 0});
    CHECK(run_backward<float>(nothing, device, {{1, 2, 3, 4, 5, 6}}, {{1, 1, 1}})[0] == Array<double>(6, 0.0));
    CHECK(run_forward<float>(MaskedMeanCase{.B = 0, .C = 2, .D = 3}, device, {{}})[0].empty());
    CHECK(run_forward<float>(MaskedMeanCase{.B = 1, .C = 0, .D = 2}, device, {{}})[0] == Array<float>{0, 0});
  });
}

TEST_CASE("masked_mean: no number of a masked position enters, not even NaN", "[masked_mean][gpu]") {
  const MaskedMeanCase layer{1, 4, 1, kept(Array<Token>{1, 0, 1, 0})};
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for_each_device(2, [&](auto& device) {
    CHECK(run_forward<float>(layer, device, {{1, nan, 5, infinity}})[0] == Array<float>{3});
  });
}

TEST_CASE("masked_mean: long sequences, many channels", "[masked_mean]") {
  check_float(MaskedMeanCase{.B = 3, .C = 701, .D = 130, .mask_bc = mask_of_three(701)}, 1);
  check_threads(MaskedMeanCase{.B = 3, .C = 701, .D = 130, .mask_bc = mask_of_three(701)}, 1);
}

TEST_CASE("masked_mean: on the GPU, rows of any size", "[masked_mean][gpu]") {
  for (Index D : {1, 3, 8, 33, 128, 260}) {
    check_gpu("masked_mean", MaskedMeanCase{.B = 3, .C = 19, .D = D, .mask_bc = mask_of_three(19)});
  }
  check_gpu("masked_mean", MaskedMeanCase{.B = 3, .C = 1, .D = 8});
  check_alignment(MaskedMeanCase{.B = 2, .C = 9, .D = 8});
}

}  // namespace
}  // namespace abh
