#include "tests/harness/pooling_blocks.hpp"

namespace abh {
namespace {

TEST_CASE("additive: every derivative, at every SIMD width, in every form", "[additive]") {
  for_each_form(additive_case(1, 3, 2, 5), [](const auto& block) { check_layer(block); });
  for_each_form(additive_case(3, 2, 1, 4), [](const auto& block) { check_layer(block); });
  check_layer(additive_case(2, 3, 3, 7));
  // One channel: the norms return their bias, and divide rounding errors by sqrt(epsilon). In double only.
  check_gradients(additive_case(1, 1, 1, 1), 1);
}

TEST_CASE("additive: a window of the sequence length equals global pooling", "[additive]") {
  const Values<double> in = random_values(additive_case(2, 3, 2, 6).inputs(), 3);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> global = run_forward<double>(additive_case(2, 3, 2, 6), device, in);
  CHECK(run_forward<double>(additive_case(2, 3, 2, 6, 6), device, in) == global);
}

TEST_CASE("additive: with a mask", "[additive]") {
  BlockCase<MakeAdditive> block = additive_case(2, 2, 2, 5);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  for_each_form(block, [](const auto& each) { check_layer(each); });
}

TEST_CASE("additive: with decay", "[additive]") {
  BlockCase<MakeAdditive> block = additive_case(2, 2, 2, 5);
  block.config.positions = "alibi";
  check_layer(block);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};
  for_each_form(block, [](const auto& each) { check_layer(each); });
}

TEST_CASE("additive: masked positions do not influence other positions", "[additive]") {
  BlockCase<MakeAdditive> block = additive_case(2, 3, 1, 4);
  block.mask_bc = {0, 1, 0, 1};
  Values<double> in = random_values(block.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  const Array<double> out = run_forward<double>(block, device, in)[0];
  for (std::size_t d = 0; d < 6; ++d) in[0][d] = 3 * in[0][d] + 1, in[0][12 + d] = static_cast<double>(d * d);
  const Array<double> other = run_forward<double>(block, device, in)[0];
  for (std::size_t d = 0; d < 6; ++d) {
    CHECK(out[6 + d] == other[6 + d]);
    CHECK(out[18 + d] == other[18 + d]);
    CHECK(out[d] != other[d]);
  }
}

TEST_CASE("additive: with dropout and fixed masks", "[additive]") {
  BlockCase<MakeAdditive> block = additive_case(1, 5, 2, 3);
  block.options.dropout = 0.35;
  block.options.layer = 3;
  for_each_form(block, [](const auto& each) { check_layer(each); });

  // The second mask is on u: without a residual, out = u v is 0 where u was dropped.
  block.options.residual = false;
  CpuDevice<Isa::baseline> device(1);
  const Array<double> out = run_forward<double>(block, device, random_values(block.inputs(), 9))[0];
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t word = philox_word(77, i, 3, sites::layer_site(3, sites::LayerUse::mixer_second));
    CHECK((out[i] == 0) == (word < static_cast<std::uint32_t>(std::ceil(0.35 * 0x1p32))));
  }
}

TEST_CASE("additive: dropout of the first pooling has its own mask", "[additive]") {
  // If the first pooling is dropped completely, the output does not depend on the keys. A projection mixes the
  // remaining vectors, without dropout after it.
  for (const bool projection : {false, true}) {
    BlockCase<MakeAdditive> block = additive_case(1, 6, 1, 1);
    block.config.additive.skip = "normed";
    block.config.additive.projection = projection;
    block.options.dropout = 0.5;
    CpuDevice<Isa::baseline> device(1);
    Values<double> in = random_values(block.inputs(), 9);
    const Array<double> out = run_forward<double>(block, device, in)[0];
    std::size_t key = 0;
    while (block.inputs()[key].name != "key_dd") ++key;
    // Row d of the key matrix has an influence exactly if element d of the first mask is kept, or always with a
    // projection.
    bool any_kept = false, any_dropped = false;
    for (std::size_t d = 0; d < 6; ++d) {
      Values<double> moved = in;
      for (std::size_t i = 0; i < 6; ++i) moved[key][6 * d + i] += 1;
      const bool kept = philox_word(77, d, 3, sites::layer_site(0, sites::LayerUse::mixer)) >= 0x80000000u;
      CHECK((run_forward<double>(block, device, moved)[0] != out) == (kept || projection));
      any_kept = any_kept || kept;
      any_dropped = any_dropped || !kept;
    }
    CHECK((any_kept && any_dropped));
  }
}

TEST_CASE("additive: without norm, and without residual", "[additive]") {
  BlockCase<MakeAdditive> block = additive_case(2, 2, 1, 4);
  block.options.norm = false;
  for_each_form(block, [](const auto& each) { check_layer(each); });
  block.options.residual = false;
  check_layer(block);
  block.options.norm = true;
  for_each_form(block, [](const auto& each) { check_layer(each); });
}

TEST_CASE("additive: matches the definition", "[additive]") {
  // Own values, projection: README and multi-head form written down, the poolings with plain sums.
  for (const char* skip : {"stream", "normed"}) {
    BlockCase<MakeAdditive> block = additive_case(2, 2, 1, 3);
    block.config.additive.values = "own";
    block.config.additive.projection = true;
    block.config.additive.skip = skip;
    const Values<double> in = random_values(block.inputs(), 8);
    const auto tensor = [&](const std::string& name) {
      const std::vector<TensorSpec> specs = block.inputs();
      std::size_t s = 0;
      while (specs[s].name != name) ++s;
      return in[s];
    };
    constexpr std::size_t C = 3, D = 4, K = 2;
    PlainDevice plain;
    static_assert(layernorm_epsilon == 1e-5);
    const auto normed = [&](const Array<double>& x, const std::string& prefix) {
      Array<double> y(x.size()), mean_c(C), rstd_c(C);
      layernorm_forward<PlainDevice, double>(plain, y.data(), mean_c.data(), rstd_c.data(), x.data(),
                                             tensor(prefix + "weight_d").data(), tensor(prefix + "bias_d").data(), C,
                                             D);
      return y;
    };
    const auto mapped = [&](const Array<double>& x, const std::string& name) {
      Array<double> y(x.size());
      linear_forward<PlainDevice, double>(plain, {.out_bco = y.data(),
                                                  .in_bci = x.data(),
                                                  .weight_oi = tensor(name).data(),
                                                  .shape = {.BC = C, .I = D, .O = D}});
      return y;
    };
    const auto pooled = [&](const Array<double>& x, const std::string& name) {
      Array<double> y(x.size());
      for (std::size_t c = 0; c < C; ++c) {
        for (std::size_t n = 0; n < D / K; ++n) {
          double sum = 0;
          for (std::size_t past = 0; past <= c; ++past) {
            double logit = 0;
            for (std::size_t k = n * K; k < (n + 1) * K; ++k) logit += x[past * D + k] * tensor(name)[k] / std::sqrt(K);
            sum += std::exp(logit);
            for (std::size_t k = n * K; k < (n + 1) * K; ++k) y[c * D + k] += std::exp(logit) * x[past * D + k];
          }
          for (std::size_t k = n * K; k < (n + 1) * K; ++k) y[c * D + k] /= sum;
        }
      }
      return y;
    };
    const Array<double> h = normed(in[0], "norm_");
    const Array<double> q = mapped(h, "query_dd"), k = mapped(h, "key_dd"), v = mapped(h, "value_dd");
    const Array<double> p = mapped(pooled(q, "query_pool_nk"), "mix_dd");
    Array<double> r(C * D);
    for (std::size_t i = 0; i < C * D; ++i) r[i] = h[i] + p[i] * k[i];
    const Array<double> u = pooled(normed(r, "mid_norm_"), "key_pool_nk");
    Values<double> expected(1, Array<double>(C * D));
    for (std::size_t i = 0; i < C * D; ++i) {
      expected[0][i] = (skip == std::string("stream") ? in[0][i] : r[i]) + u[i] * v[i];
    }
    CpuDevice<Isa::baseline> device(1);
    require_close(block.outputs(), run_forward<double>(block, device, in), expected, 1e-14, skip);
  }
}

TEST_CASE("additive: causal, and inference equals the full pass", "[additive][gpu]") {
  check_causality(additive_case(2, 5, 2, 9));
  for_each_form(additive_case(3, 3, 1, 12), [](const auto& block) { check_steps(block); });
}

TEST_CASE("additive: causal with decay, and inference equals the full pass", "[additive][gpu]") {
  BlockCase<MakeAdditive> block = additive_case(2, 4, 1, 13);
  block.config.positions = "alibi";
  check_causality(block);
  check_steps(block);
}

TEST_CASE("additive: GPU kernels", "[additive][gpu]") {
  for (const char* positions : {"none", "alibi"}) {
    BlockCase<MakeAdditive> block = additive_case(2, 16, 3, 21);
    block.config.positions = positions;
    check_gpu("additive", std::string("block, positions ") + positions, block);
  }
}

TEST_CASE("additive: large logits stay finite in float", "[additive]") {
  BlockCase<MakeAdditive> block = additive_case(2, 3, 2, 9);
  Values<double> in = random_values(block.inputs(), 12);
  const std::vector<TensorSpec> specs = block.inputs();
  for (std::size_t s = 0; s < specs.size(); ++s) {
    if (specs[s].name.find("pool_nk") == std::string::npos) continue;
    for (double& x : in[s]) x *= 300;
  }
  const Values<float> narrow = converted<float>(in);
  CpuDevice<Isa::baseline> reference(1);
  const Values<double> out = run_forward<double>(block, reference, converted<double>(narrow));
  const Values<float> d_out = converted<float>(random_values(block.outputs(), 13));
  for_each_cpu(1, [&](auto& device, const std::string& isa) {
    require_close(block.outputs(), converted<double>(run_forward<float>(block, device, narrow)), out, 1e-3, isa);
    for (const Array<double>& gradient : run_backward<float>(block, device, narrow, d_out)) {
      CHECK(std::isfinite(largest(gradient)));
    }
  });
}

}  // namespace
}  // namespace abh
