#include "docs/kernels/cases.hpp"

#include <cmath>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "docs/kernels/sizes.hpp"
#include "layers/attention.hpp"
#include "layers/embedding.hpp"
#include "layers/layernorm.hpp"
#include "layers/linear.hpp"
#include "layers/pooling.hpp"
#include "plain/plain.hpp"

namespace abh::kernels {

namespace {

std::size_t count_of(const std::vector<long>& shape) {
  std::size_t count = 1;
  for (const long extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

// Multiples of 0.25 between -2 and 2, which depend on the seed. They are short in a trace, and exact.
Array input(const std::string& name, const std::vector<long>& shape, unsigned seed, const std::string& type = "f4") {
  Array array{name, type, shape, std::vector<float>(count_of(shape)), false};
  unsigned state = 12345 + 977 * seed;
  for (float& x : array.x) {
    state = state * 1664525 + 1013904223;
    x = float(int(state >> 16) % 17 - 8) / 4;
    if (type == "bf") x = bf16(x);
  }
  return array;
}
Array result(const std::string& name, const std::vector<long>& shape) { return {name, "f4", shape, {}, true}; }

using Doubles = std::vector<double>;
Doubles doubles(const Case& given, const std::string& name) {
  for (const Array& array : given.arrays) {
    if (array.name == name) return Doubles(array.x.begin(), array.x.end());
  }
  throw Error("a case without the array " + name);
}

}  // namespace

std::vector<int> shown_sizes(const std::string& operation) {
  if (operation == "layernorm") return {8, 128};
  if (operation == "pooling") return {1, 160, 8};
  if (operation == "product") return {32, 32, 32};
  if (operation == "attention") return {1, 48};
  return {12, 64, 8};
}

std::vector<std::vector<int>> odd_sizes(const Level& level) {
  const auto& [operation, number, idea, run, tolerance] = level;
  if (operation == "layernorm" && number < 3) return {{1, 1}, {5, 33}, {9, 130}, {130, 3}};
  if (operation == "layernorm") return {{1, 4}, {5, 36}, {9, 132}, {7, 512}};
  if (operation == "pooling") return {{1, 1, 1}, {2, 33, 5}, {3, 130, 9}, {1, 300, 7}};
  if (operation == "product" && number < 4) return {{1, 1, 1}, {3, 5, 7}, {33, 19, 18}, {17, 40, 65}};
  if (operation == "product") return {{1, 8, 1}, {5, 8, 3}, {33, 24, 47}, {17, 40, 65}};
  if (operation == "attention") return {{1, 1}, {2, 33}, {3, 70}, {1, 16}};
  if (number < 3) return {{1, 1, 1}, {7, 33, 5}, {50, 130, 9}};
  return {{1, 4, 1}, {7, 36, 5}, {50, 132, 9}};
}

Case case_of(const std::string& operation, const std::vector<int>& sizes, bool narrow) {
  const std::string type = narrow ? "bf" : "f4";
  Case given;
  given.sizes = sizes;
  const auto n = [&](std::size_t i) { return long{sizes.at(i)}; };
  if (operation == "layernorm") {
    const std::vector<long> rows = {n(0)}, channels = {n(1)}, both = {n(0), n(1)};
    given.arrays = {input("in_bcd", both, 1),      input("weight_d", channels, 2), input("bias_d", channels, 3),
                    input("d_out_bcd", both, 4),   result("out_bcd", both),        result("mean_bc", rows),
                    result("rstd_bc", rows),       result("d_in_bcd", both),       input("d_weight_d", channels, 5),
                    input("d_bias_d", channels, 6)};
    given["d_weight_d"].result = given["d_bias_d"].result = true;
  } else if (operation == "pooling") {
    const std::vector<long> rows = {n(0), n(1), n(2)};
    const long chunks = (n(1) + pooling_chunk - 1) / pooling_chunk;
    given.arrays = {input("logit_bc", {n(0), n(1)}, 1), input("x_bck", rows, 2), result("out_bck", rows),
                    result("state_of_chunk", {n(0), chunks, n(2) + 2})};
  } else if (operation == "product") {
    given.arrays = {input("in_bci", {n(0), n(1)}, 1, type), input("weight_oi", {n(2), n(1)}, 2, type),
                    result("out_bco", {n(0), n(2)})};
  } else if (operation == "attention") {
    const std::vector<long> rows = {n(0), n(1), attention_channels};
    given.arrays = {input("query_bck", rows, 1, type), input("key_bsk", rows, 2, type),
                    input("value_bsk", rows, 3, type), result("out_bck", rows)};
  } else {
    const long BC = n(0), D = n(1), V = n(2);
    given.arrays = {input("d_out_bcd", {BC, D}, 1), input("d_token_vd", {V, D}, 2), input("token_bc", {BC}, 3, "i4"),
                    input("row_r", {BC}, 4, "i4"), input("first_v", {V + 1}, 5, "i4")};
    given["d_token_vd"].result = true;
    auto &token = given["token_bc"].x, &row = given["row_r"].x, &first = given["first_v"].x;
    for (long bc = 0; bc < BC; ++bc) token[std::size_t(bc)] = float(bc * bc * 5 % 7 % V);  // some tokens have no row
    row.clear();
    for (long v = 0; v < V; ++v) {
      first[std::size_t(v)] = float(row.size());
      for (long bc = 0; bc < BC; ++bc) {
        if (token[std::size_t(bc)] == float(v)) row.push_back(float(bc));
      }
    }
    first[std::size_t(V)] = float(row.size());
  }
  return given;
}

std::map<std::string, std::vector<double>> expected(const std::string& operation, const Case& given) {
  PlainDevice plain;
  std::map<std::string, Doubles> out;
  const auto n = [&](std::size_t i) { return Index{given.sizes.at(i)}; };
  const auto of = [&](const char* name) { return doubles(given, name); };
  const auto size = [](Index count) { return static_cast<std::size_t>(count); };
  if (operation == "layernorm") {
    const Doubles in = of("in_bcd"), weight = of("weight_d"), bias = of("bias_d"), d_out = of("d_out_bcd");
    Doubles y(in.size()), mean(size(n(0))), rstd(size(n(0))), d_in(in.size()), d_weight = of("d_weight_d"),
                                                                               d_bias = of("d_bias_d");
    layernorm_forward(plain, y.data(), mean.data(), rstd.data(), in.data(), weight.data(), bias.data(), n(0), n(1));
    layernorm_backward<PlainDevice, double>(plain, {.d_in_bcd = d_in.data(),
                                                    .d_weight_d = d_weight.data(),
                                                    .d_bias_d = d_bias.data(),
                                                    .d_out_bcd = d_out.data(),
                                                    .in_bcd = in.data(),
                                                    .mean_bc = mean.data(),
                                                    .rstd_bc = rstd.data(),
                                                    .weight_d = weight.data(),
                                                    .BC = n(0),
                                                    .D = n(1)});
    out = {{"out_bcd", y},     {"mean_bc", mean},        {"rstd_bc", rstd},
           {"d_in_bcd", d_in}, {"d_weight_d", d_weight}, {"d_bias_d", d_bias}};
  } else if (operation == "pooling") {
    const Doubles logit = of("logit_bc"), x = of("x_bck");
    Doubles y(x.size()), max(logit.size()), sum(logit.size());
    PoolingForward<double> a{.out_bch = y.data(), .max_bnc = max.data(), .sum_bnc = sum.data(), .in = {}};
    a.in = {.logit_bnc = logit.data(), .x_bch = x.data(), .shape = {.B = n(0), .C = n(1), .N = 1, .K = n(2)}};
    pooling_forward(plain, a);
    out = {{"out_bck", y}};
  } else if (operation == "product") {
    const Doubles in = of("in_bci"), weight = of("weight_oi");
    Doubles y(size(n(0) * n(2)));
    linear_forward<PlainDevice, double>(
        plain, {.out_bco = y.data(), .in_bci = in.data(), .weight_oi = weight.data(), .shape = {n(0), n(1), n(2)}});
    out = {{"out_bco", y}};
  } else if (operation == "attention") {
    const Doubles query = of("query_bck"), key = of("key_bsk"), value = of("value_bsk");
    Doubles y(query.size()), lse(size(n(0) * n(1)));
    AttentionForward<double> a{.out_bch = y.data(), .lse_bnc = lse.data(), .in = {}};
    a.in = {.query_bch = query.data(),
            .key_bsh = key.data(),
            .value_bsh = value.data(),
            .mask = {},
            .B = n(0),
            .C = n(1),
            .S = n(1),
            .N = 1,
            .K = attention_channels};
    attention_forward(plain, a);
    out = {{"out_bck", y}};
  } else {
    const Doubles d_out = of("d_out_bcd"), token = of("token_bc");
    Doubles d_token = of("d_token_vd");
    const std::vector<Token> tokens(token.begin(), token.end());
    embedding_backward(plain, d_token.data(), static_cast<double*>(nullptr), d_out.data(), tokens.data(), Index{1},
                       n(0), n(1), n(2));
    out = {{"d_token_vd", d_token}};
  }
  return out;
}

}  // namespace abh::kernels
