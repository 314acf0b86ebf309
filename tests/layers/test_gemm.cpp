// The matrix product of the GPU's linear maps, on every GPU of this build, against the definition in double.

#include "cuda/gemm/gemm.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

struct Product {
  Index M, N, K;
  Index gap = 0;  // numbers between the rows of every matrix
  Index batches = 1;
  bool bias = false;
  float scale = 1;
  bool accumulate = false;
  float added = 0;  // this factor times another array is added; 0: none
};

enum class Layout { nt, nn, tn };  // which of a and b is transposed in memory

// A matrix of `batches` pictures in memory: element (row, column) at [batch * size + row * stride + column].
template <class T>
struct Stored {
  Index rows, columns, stride, size;
  Array<T> x;

  Stored(Index rows_, Index columns_, Index gap, Index batches, std::uint64_t seed)
      : rows(rows_), columns(columns_), stride(columns_ + gap), size(rows_ * stride) {
    x.resize(static_cast<std::size_t>(batches * size), T(std::numeric_limits<float>::quiet_NaN()));
    const Array<double> values = random_values(activation("x", {batches * rows * columns}), seed, 0);
    for (Index i = 0; i < batches * rows * columns; ++i) {
      const Index row = i / columns;
      x[static_cast<std::size_t>(row * stride + i % columns)] = T(values[static_cast<std::size_t>(i)]);
    }
  }
  double at(Index batch, Index row, Index column) const {
    return double(x[static_cast<std::size_t>(batch * size + row * stride + column)]);
  }
};

template <class T>
const char* name_of() {
  return std::is_same_v<T, bf16> ? "bf16" : "float";
}

template <class T, class Out, class Device>
void check_product(Device& device, const Product& p, Layout layout) {
  const bool a_transposed = layout == Layout::tn, b_transposed = layout == Layout::nt;
  const Stored<T> a(a_transposed ? p.K : p.M, a_transposed ? p.M : p.K, p.gap, p.batches, 1);
  const Stored<T> b(b_transposed ? p.N : p.K, b_transposed ? p.K : p.N, p.gap, p.batches, 2);
  const Stored<T> bias(1, p.N, 0, 1, 3);
  const Stored<Out> before(p.M, p.N, p.gap, p.batches, 4), other(p.M, p.N, p.gap, p.batches, 5);

  Stored<Out> out = before;
  Gemm<T, Out> g{.out_mn = out.x.data(),
                 .a_mk = a.x.data(),
                 .b_kn = b.x.data(),
                 .M = p.M,
                 .N = p.N,
                 .K = p.K,
                 .out_row = out.stride,
                 .a_row = a_transposed ? 1 : a.stride,
                 .a_col = a_transposed ? a.stride : 1,
                 .b_row = b_transposed ? 1 : b.stride,
                 .b_col = b_transposed ? b.stride : 1,
                 .scale = p.scale,
                 .accumulate = p.accumulate,
                 .batches = p.batches,
                 .out_batch = out.size,
                 .a_batch = a.size,
                 .b_batch = b.size};
  if (p.bias) g.bias_n = bias.x.data();
  if (p.added != 0) g.added_mn = other.x.data(), g.added_scale = p.added;
  gemm<T, Out>(device, g);
  device.synchronize();

  // Half an ulp of the output plus the rounding error of the sum. Some kernels of cuBLASLt round the product to the
  // output type before they add the old value or a bias, and round again.
  const double rounding = std::is_same_v<Out, bf16> ? std::ldexp(1, -8) : 0;
  Index wrong = 0, touched = 0;
  double worst = 0;  // error as a fraction of the tolerance
  for (Index batch = 0; batch < p.batches; ++batch) {
    for (Index m = 0; m < p.M; ++m) {
      for (Index n = 0; n < p.N; ++n) {
        const double of_bias = p.bias ? bias.at(0, 0, n) : 0;
        double sum = of_bias, size = std::abs(sum);
        for (Index k = 0; k < p.K; ++k) {
          const double a_mk = a_transposed ? a.at(batch, k, m) : a.at(batch, m, k);
          const double b_kn = b_transposed ? b.at(batch, n, k) : b.at(batch, k, n);
          sum += a_mk * b_kn;
          size += std::abs(a_mk * b_kn);
        }
        sum *= double(p.scale), size *= std::abs(double(p.scale));
        const double product = sum - double(p.scale) * of_bias;
        const double added = p.accumulate ? before.at(batch, m, n) : double(p.added) * other.at(batch, m, n);
        sum += added, size += std::abs(added);
        double bound = std::ldexp(double(p.K + 4), -23) * size + rounding * std::abs(sum);
        if (has_library_products(device) && (p.bias || added != 0)) bound += rounding * std::abs(product);
        const double error = std::abs(out.at(batch, m, n) - sum);
        wrong += !(error <= bound);
        if (bound > 0) worst = std::max(worst, error / bound);
      }
      for (Index n = p.N; n < out.stride; ++n) touched += !std::isnan(out.at(batch, m, n));
    }
  }
  INFO(name_of<T>() << " to " << name_of<Out>() << ", worst error " << worst << " of what is allowed");
  CHECK(wrong == 0);
  CHECK(touched == 0);
}

// In every type and layout; optionally in every thread order.
void check_everywhere(const Product& p, bool all_orders = false) {
  const auto check = [&](auto& device, const std::string& name) {
    for (int order = 0; order < (all_orders ? 3 : 1); ++order) {
      set_thread_order(order);
      for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn}) {
        INFO(name << ": M " << p.M << ", N " << p.N << ", K " << p.K << ", gap " << p.gap << ", batches " << p.batches
                  << ", layout " << int(layout) << ", thread order " << order);
        check_product<float, float>(device, p, layout);
        check_product<bf16, bf16>(device, p, layout);
        check_product<bf16, float>(device, p, layout);
      }
    }
    set_thread_order(0);
  };
  for_each_gpu(check, true);
}

void check_each(std::initializer_list<Product> products) {
  for (const Product& product : products) check_everywhere(product);
}

TEST_CASE("gemm on the GPU: sizes around the edges of tiles", "[gemm][gpu]") {
  check_everywhere({.M = 1, .N = 1, .K = 1}, true);
  check_everywhere({.M = 5, .N = 7, .K = 3}, true);
  check_everywhere({.M = 65, .N = 127, .K = 129}, true);
  check_each({{64, 64, 32}, {63, 65, 31}, {65, 63, 33}, {129, 64, 127}, {1, 130, 72}, {72, 1, 130}, {8, 72, 1}});
}

TEST_CASE("gemm on the GPU: strides, scale, bias, accumulation", "[gemm][gpu]") {
  for (const Index gap : {0, 1, 4, 8}) {
    check_everywhere({.M = 70, .N = 24, .K = 40, .gap = gap, .bias = true});
    check_everywhere({.M = 17, .N = 68, .K = 40, .gap = gap, .bias = true, .scale = -0.75f, .accumulate = true});
    check_everywhere({.M = 16, .N = 16, .K = 48, .gap = gap, .batches = 3, .scale = 2, .accumulate = true});
  }
  // Rows that are aligned, but do not end with a whole access.
  check_everywhere({.M = 13, .N = 21, .K = 35, .gap = 5});
  check_everywhere({.M = 27, .N = 19, .K = 37, .gap = 5, .accumulate = true});
  check_everywhere({.M = 33, .N = 9, .K = 50, .gap = 3, .batches = 2, .bias = true, .accumulate = true}, true);
  check_everywhere({.M = 17, .N = 68, .K = 40, .gap = 4, .batches = 2, .scale = 2, .added = -1.5f});
  check_everywhere({.M = 27, .N = 19, .K = 37, .gap = 5, .added = 3}, true);
}

TEST_CASE("gemm on the GPU: misaligned arrays", "[gemm][gpu]") {
  for_each_shifted_array(2, [](const std::string&) { check_everywhere({.M = 16, .N = 16, .K = 16, .bias = true}); });
}

TEST_CASE("gemm on the GPU: empty sums, empty results", "[gemm][gpu]") {
  check_everywhere({.M = 3, .N = 5, .K = 0, .bias = true, .scale = 3});
  check_everywhere({.M = 3, .N = 5, .K = 0, .accumulate = true});
  check_everywhere({.M = 0, .N = 5, .K = 2});
  check_everywhere({.M = 3, .N = 0, .K = 2});
  check_everywhere({.M = 3, .N = 5, .K = 2, .batches = 0});
}

TEST_CASE("gemm on the GPU: long sums split into parts", "[gemm][gpu]") {
  check_everywhere({.M = 40, .N = 50, .K = 2100, .gap = 2, .scale = 0.5f, .accumulate = true}, true);
  check_everywhere({.M = 40, .N = 50, .K = 1100, .gap = 2, .batches = 2, .scale = 0.5f, .added = 0.5f});
  check_everywhere({.M = 24, .N = 8, .K = 1024, .bias = true});
  check_everywhere({.M = 9, .N = 11, .K = 1100, .gap = 1, .batches = 3, .bias = true, .accumulate = true});
}

// Enough tiles for bf16 to use its large tiles.
TEST_CASE("gemm on the GPU: many tiles", "[gemm][gpu]") {
  const auto check = [](auto& device, const std::string& name) {
    INFO(name);
    check_product<bf16, bf16>(device, {.M = 129, .N = 130, .K = 33, .gap = 6, .batches = 32}, Layout::nt);
    check_product<bf16, bf16>(device, {.M = 136, .N = 144, .K = 40, .batches = 32, .accumulate = true}, Layout::nn);
    check_product<bf16, float>(device, {.M = 129, .N = 144, .K = 72, .gap = 7, .batches = 32}, Layout::tn);
  };
  for_each_gpu(check, true);
}

}  // namespace
}  // namespace abh
