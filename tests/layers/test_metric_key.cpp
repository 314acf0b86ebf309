#include "blocks/parts/residual.hpp"
#include "cases/attention.hpp"
#include "cases/metric_key.hpp"
#include "layers/attention.hpp"
#include "layers/metric_key.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

std::size_t size_of(Index count) { return static_cast<std::size_t>(count); }

// The whole mixer without its projections: key = M p, then the core with query = value = p. p receives gradients on
// three paths.
struct MetricAttentionCase {
  Index B, C, N, K;
  MetricForm form = MetricForm::packed;
  bool causal = true;

  Index H() const { return N * K; }

  std::vector<TensorSpec> inputs() const {
    return {activation("project_bch", {B, C, H()}), weight("metric", {metric_count(form, N, K)}, 0.5)};
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bch", {B, C, H()})}; }
  std::vector<TensorSpec> saved() const {
    return {activation("key_bch", {B, C, H()}), statistic("lse_bnc", {B, N, C}), activation("d_key_bch", {B, C, H()}),
            activation("d_value_bch", {B, C, H()})};
  }

  MetricKeyCase keys() const { return {B * C, N, K, form}; }
  AttentionCase core() const { return {.B = B, .C = C, .N = N, .K = K, .causal = causal}; }
  template <class T>
  static PartArrays<T> of_keys(CaseArrays<T>& a) {
    return {.in = {{&a.in[0]}, {&a.in[1]}},
            .out = {{&a.saved[0]}},
            .d_out = {{&a.saved[2]}},
            .d_in = {{&a.d_in[0]}, {&a.d_in[1]}}};
  }
  template <class T>
  static PartArrays<T> of_core(CaseArrays<T>& a) {
    return {.in = {{&a.in[0]}, {&a.saved[0]}, {&a.in[0]}},
            .out = {{&a.out[0]}},
            .saved = {{&a.saved[1]}},
            .d_out = {{&a.d_out[0]}},
            .d_in = {{&a.d_in[0]}, {&a.saved[2]}, {&a.saved[3]}}};
  }

  template <class Device, class Arrays>
  void forward(Device& device, Arrays& a) const {
    auto for_keys = of_keys(a), for_core = of_core(a);
    keys().forward(device, for_keys);
    core().forward(device, for_core);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    auto for_keys = of_keys(a), for_core = of_core(a);
    core().backward(device, for_core);
    add<Device, T>(device, a.d_in[0].data(), a.d_in[0].data(), a.saved[3].data(), B * C * H());
    keys().backward(device, for_keys);
  }
};

// Expands a packed metric to full matrices, from the order of its numbers: k <= k', row by row.
Array<double> unpacked(const Array<double>& metric_nl, Index N, Index K) {
  Array<double> full_nkk(size_of(N * K * K));
  std::size_t l = 0;
  for (Index n = 0; n < N; ++n) {
    for (Index k = 0; k < K; ++k) {
      for (Index other = k; other < K; ++other, ++l) {
        full_nkk[size_of((n * K + k) * K + other)] = full_nkk[size_of((n * K + other) * K + k)] = metric_nl[l];
      }
    }
  }
  return full_nkk;
}

TEST_CASE("metric_key: every derivative, at every SIMD width", "[metric_key]") {
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    check_layer(MetricAttentionCase{2, 7, 2, 3, form});
    check_layer(MetricAttentionCase{1, 6, 1, 5, form, false});
    check_layer(MetricAttentionCase{3, 1, 2, 3, form});
    check_layer(MetricAttentionCase{1, 5, 3, 1, form});
    check_float(MetricAttentionCase{2, 70, 2, 19, form}, 3);
    check_threads(MetricAttentionCase{2, 70, 2, 19, form}, 3);
  }
}

TEST_CASE("metric_key: no rows", "[metric_key]") {
  CpuDevice<Isa::baseline> device(2);
  const Values<double> in = {{}, {1, 2, 3}};
  CHECK(run_forward<double>(MetricAttentionCase{0, 4, 1, 2}, device, in) == Values<double>{{}});
  CHECK(run_backward<double>(MetricAttentionCase{0, 4, 1, 2}, device, in, {{}}) == Values<double>{{}, {0, 0, 0}});
}

TEST_CASE("metric_key: a packed metric equals the full symmetric metric", "[metric_key]") {
  const MetricAttentionCase packed{2, 9, 3, 5, MetricForm::packed};
  const MetricAttentionCase full{2, 9, 3, 5, MetricForm::full};
  const Values<double> in = random_values(packed.inputs(), 1);
  const Values<double> full_in = {in[0], unpacked(in[1], packed.N, packed.K)};
  const Values<double> d_out = random_values(packed.outputs(), 2);
  CpuDevice<Isa::baseline> device(1);
  CHECK(run_forward<double>(packed, device, in) == run_forward<double>(full, device, full_in));

  // A number at two places of the matrix receives the gradients of both places.
  const Values<double> d_in = run_backward<double>(packed, device, in, d_out);
  const Values<double> d_full = run_backward<double>(full, device, full_in, d_out);
  Values<double> expected = {d_full[0], {}};
  for (Index n = 0; n < packed.N; ++n) {
    for (Index k = 0; k < packed.K; ++k) {
      for (Index other = k; other < packed.K; ++other) {
        const double upper = d_full[1][size_of((n * packed.K + k) * packed.K + other)];
        const double lower = d_full[1][size_of((n * packed.K + other) * packed.K + k)];
        expected[1].push_back(k == other ? upper : upper + lower);
      }
    }
  }
  require_close(packed.inputs(), d_in, expected, 1e-14, "gradients");
}

// score_cc' from the sum over packed numbers: one product on the diagonal of M, two off it.
TEST_CASE("metric_key: scores equal the packed double sum", "[metric_key]") {
  const Index C = 6, N = 2, K = 5;
  const MetricAttentionCase layer{1, C, N, K};
  const Values<double> in = random_values(layer.inputs(), 1);
  Array<double> key_ch(in[0].size());
  CpuDevice<Isa::baseline> device(1);
  metric_key_forward<CpuDevice<Isa::baseline>, double>(device, key_ch.data(),
                                                       {in[0].data(), in[1].data(), MetricForm::packed, C, N, K});
  for (Index n = 0; n < N; ++n) {
    for (Index c = 0; c < C; ++c) {
      for (Index other = 0; other < C; ++other) {
        const auto p = [&](Index row, Index k) { return in[0][size_of(row * N * K + n * K + k)]; };
        double expected = 0;
        Index l = n * K * (K + 1) / 2;
        for (Index f = 0; f < K; ++f) {
          for (Index g = f; g < K; ++g, ++l) {
            const double terms = f == g ? p(c, f) * p(other, f) : p(c, f) * p(other, g) + p(c, g) * p(other, f);
            expected += in[1][size_of(l)] * terms;
          }
        }
        double score = 0;
        for (Index k = 0; k < K; ++k) score += p(c, k) * key_ch[size_of(other * N * K + n * K + k)];
        CHECK_FALSE(!(std::abs(score - expected) <= 1e-13));
      }
    }
  }
}

// With an unsymmetric M the sides matter: row c is on the left, the key's row on the right.
TEST_CASE("metric_key: a full metric multiplies the key", "[metric_key]") {
  const Array<double> project_h = {1, 10}, metric_kk = {1, 2, 3, 4};
  Array<double> key_h(2), query_h(2);
  CpuDevice<Isa::baseline> device(1);
  const MetricKeyInputs<double> one_row{project_h.data(), metric_kk.data(), MetricForm::full, 1, 1, 2};
  metric_key_forward<CpuDevice<Isa::baseline>, double>(device, key_h.data(), one_row);
  metric_query_step<CpuDevice<Isa::baseline>, double>(device, query_h.data(), one_row);
  CHECK(key_h == Array<double>{21, 43});
  CHECK(query_h == Array<double>{31, 42});
}

TEST_CASE("metric_key: the identity metric gives dot-product attention of p with itself", "[metric_key]") {
  const MetricAttentionCase layer{2, 8, 2, 3, MetricForm::packed};
  Values<double> in = random_values(layer.inputs(), 1);
  in[1] = {1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1};
  Array<double> key_bch(in[0].size());
  CpuDevice<Isa::baseline> device(1);
  metric_key_forward<CpuDevice<Isa::baseline>, double>(
      device, key_bch.data(), {in[0].data(), in[1].data(), MetricForm::packed, layer.B * layer.C, layer.N, layer.K});
  CHECK(key_bch == in[0]);
}

template <class T, class Device>
Values<T> step_by_step(const MetricAttentionCase& layer, Device& device, const Values<T>& in) {
  Values<T> out = {Array<T>(in[0].size())};
  Array<T> query_h(size_of(layer.H()));
  for (Index c = 0; c < layer.C; ++c) {
    metric_query_step<Device, T>(device, query_h.data(),
                                 {in[0].data() + c * layer.H(), in[1].data(), layer.form, 1, layer.N, layer.K});
    attention_step<Device, T>(device, {.out_h = out[0].data() + c * layer.H(),
                                       .query_h = query_h.data(),
                                       .key_ch = in[0].data(),
                                       .value_ch = in[0].data(),
                                       .length = c + 1,
                                       .N = layer.N,
                                       .K = layer.K});
  }
  return out;
}

// docs/layers/metric_key.md. The chapter uses channels 0 and 1 of 4.
TEST_CASE("metric_key: the worked example of the chapter", "[metric_key][gpu]") {
  const double log2 = std::log(2.0), log3 = std::log(3.0);
  const Array<double> project = {2, 0, 0, 0, -1, 1, 0, 0}, d_out = {1, 1, 0, 0, 6, 9, 0, 0};
  const Array<double> metric_l = {-log2, -log2, 0, 0, log2, 0, 0, 0, 0, 0};

  const auto check = [&]<class T>(auto& device, const std::string& name, T, double tolerance) {
    const auto close = [&](const std::string& what, const Array<double>& got, const Array<double>& expected) {
      require_close({activation(what, {})}, {got}, {expected}, tolerance, name);
    };
    for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
      const bool packed = form == MetricForm::packed;
      const MetricAttentionCase layer{1, 2, 1, 4, form};
      const auto arrays = [&](const Array<double>& rows) {
        return arrays_of(layer, converted<T>(Values<double>{rows, packed ? metric_l : unpacked(metric_l, 1, 4)}));
      };
      CaseArrays<T> a = arrays(project);
      layer.forward(device, a);
      wait_for(device);
      const Values<double> saved = converted<double>(a.saved);
      close("key", saved[0], {-2 * log2, -2 * log2, 0, 0, 0, 2 * log2, 0, 0});
      close("out", converted<double>(a.out)[0], {2, 0, 0, 0, 0, 2.0 / 3, 0, 0});
      close("lse", saved[1], {-2 * log2, log3});

      const Array<double> number(metric_l.size(), 0.0), entry(16, 0.0);
      a.d_out = converted<T>(Values<double>{d_out});
      a.d_in = converted<T>(Values<double>{Array<double>(8, 0.0), packed ? number : entry});
      layer.backward(device, a);
      wait_for(device);
      const Values<double> d_saved = converted<double>(a.saved), d_in = converted<double>(a.d_in);
      close("d_key", d_saved[2], {-1, 1, 0, 0, 1, -1, 0, 0});
      close("d_value", d_saved[3], {3, 4, 0, 0, 4, 6, 0, 0});
      close("d_project", d_in[0], {3, 4 + 2 * log2, 0, 0, 4 - 2 * log2, 6 - 6 * log2, 0, 0});
      packed ? close("d_metric", d_in[1], {-3, 4, 0, 0, -1, 0, 0, 0, 0, 0})
             : close("gradient", d_in[1], {-3, 1, 0, 0, 3, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});

      // The third path to p, and the contribution of each position to the gradient of the matrix.
      if (!packed) {
        const auto of_position = [&](const Array<double>& row, const Array<double>& d_key) {
          return run_backward<T>(MetricKeyCase{.BC = 1, .N = 1, .K = 4, .form = form}, device,
                                 converted<T>(Values<double>{row, unpacked(metric_l, 1, 4)}),
                                 converted<T>(Values<double>{d_key}));
        };
        const Values<double> first = of_position({2, 0, 0, 0}, {-1, 1, 0, 0}),
                             second = of_position({-1, 1, 0, 0}, {1, -1, 0, 0});
        close("M d_key, c = 0", first[0], {0, 2 * log2, 0, 0});
        close("M d_key, c = 1", second[0], {0, -2 * log2, 0, 0});
        close("d_key project, c = 0", first[1], {-2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        close("d_key project, c = 1", second[1], {-1, 1, 0, 0, 1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        Array<double> d_query;
        for (std::size_t i = 0; i < 8; ++i) {
          d_query.push_back(d_in[0][i] - d_saved[3][i] - (i < 4 ? first[0][i] : second[0][i - 4]));
        }
        close("d_query", d_query, {0, 0, 0, 0, -2 * log2, -4 * log2, 0, 0});
      }

      // One channel per position that no score uses; in these channels out is the weights.
      CaseArrays<T> marked = arrays({2, 0, 1, 0, -1, 1, 0, 1});
      layer.forward(device, marked);
      wait_for(device);
      const Array<double> out = converted<double>(marked.out)[0];
      close("weight", out, {2, 0, 1, 0, 0, 2.0 / 3, 1.0 / 3, 2.0 / 3});
      close("score", {std::log(out[2]) + saved[1][0], std::log(out[6]) + saved[1][1], std::log(out[7]) + saved[1][1]},
            {-2 * log2, 0, log2});

      // The core's internal values for the pairs (0, 0), (1, 0) and (1, 1). d_score follows from d_key, as p is (2, 0)
      // and (-1, 1); the other values follow from d_score.
      const Array<double>& d_key = d_saved[2];
      const Array<double> d_score = {d_key[0] + d_key[1], 2 * d_key[1], 2 * d_key[5]};
      const Array<double> delta = {2 * d_out[0], out[4] * d_out[4] + out[5] * d_out[5]};
      close("d_score", d_score, {0, 2, -2});
      close("delta", delta, {2, 6});
      close("d_weight",
            {d_score[0] / out[2] + delta[0], d_score[1] / out[6] + delta[1], d_score[2] / out[7] + delta[1]},
            {2, 12, 3});

      Array<T> query_h(4);
      metric_query_step<std::remove_reference_t<decltype(device)>, T>(
          device, query_h.data(), {a.in[0].data() + 4, a.in[1].data(), form, 1, 1, 4});
      wait_for(device);
      close("query of a step", converted<double>(Values<T>{query_h})[0], {0, 2 * log2, 0, 0});
    }
  };
  PlainDevice plain;
  check(plain, "plain, double", double{}, 1e-14);
  CpuDevice<Isa::baseline> cpu(1);
  check(cpu, "cpu, double", double{}, 1e-14);
  for_each_device(1, [&](auto& device, const std::string& name) { check(device, name, float{}, 1e-6); });
}

TEST_CASE("metric_key: inference from the cache of p equals the full pass", "[metric_key]") {
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    for (const MetricAttentionCase& layer :
         {MetricAttentionCase{1, 66, 2, 7, form}, MetricAttentionCase{1, 12, 1, 40, form},
          MetricAttentionCase{1, 9, 4, 1, form}}) {
      const Values<double> in = random_values(layer.inputs(), 1);
      CpuDevice<Isa::baseline> baseline(1);
      PlainDevice plain;
      const Values<double> reference = run_forward<double>(layer, plain, in);
      require_close(layer.outputs(), step_by_step<double>(layer, baseline, in), reference, 1e-11, "double");
      for_each_cpu(1, [&](auto& device, const std::string& isa) {
        require_close(layer.outputs(), converted<double>(step_by_step<float>(layer, device, converted<float>(in))),
                      reference, 1e-4, isa);
      });
    }
  }
}

TEST_CASE("metric_key: later tokens change no bit of earlier outputs", "[metric_key]") {
  const MetricAttentionCase layer{1, 100, 2, 7};
  const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
  for_each_cpu(1, [&](auto& device, const std::string& isa) {
    const Values<float> before = run_forward<float>(layer, device, in);
    for (const Index from : {1, 37, 64, 99}) {
      Values<float> changed = in;
      const Index begin = from * layer.H();
      for (Index i = begin; i < layer.C * layer.H(); ++i) changed[0][size_of(i)] = 3 - 20 * in[0][size_of(i)];
      const Values<float> after = run_forward<float>(layer, device, changed);
      INFO(isa << ", changed from position " << from);
      CHECK(std::equal(before[0].begin(), before[0].begin() + begin, after[0].begin()));
      CHECK_FALSE(std::equal(before[0].begin(), before[0].end(), after[0].begin()));
    }
  });
}

TEST_CASE("metric_key: SIMD widths agree at every odd size", "[metric_key]") {
  check_widths([](Index size) { return MetricKeyCase{.BC = 3, .N = 2, .K = size, .form = MetricForm::packed}; });
  check_widths([](Index size) { return MetricKeyCase{.BC = 3, .N = 2, .K = size, .form = MetricForm::full}; });
}

TEST_CASE("metric_key: GPU kernels at every size", "[metric_key][gpu]") {
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    check_gpu(
        "metric_key", MetricKeyCase{.BC = 3 * 37, .N = 5, .K = 8, .form = form},
        MetricKeyCase{.BC = 41, .N = 2, .K = 13, .form = form}, MetricKeyCase{.BC = 1, .N = 5, .K = 8, .form = form},
        MetricKeyCase{.BC = 70, .N = 3, .K = 1, .form = form}, MetricKeyCase{.BC = 1025, .N = 1, .K = 3, .form = form},
        MetricKeyCase{.BC = 65, .N = 2, .K = 66, .form = form}, MetricAttentionCase{2, 19, 2, 8, form});
    check_alignment(MetricKeyCase{.BC = 9, .N = 2, .K = 8, .form = form});
  }
}

TEST_CASE("metric_key: the query of one inference step", "[metric_key][gpu]") {
  PlainDevice plain;
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    for (const auto& size : {std::pair<Index, Index>{1, 1}, {5, 8}, {3, 19}, {2, 67}}) {
      const Index N = size.first, K = size.second;
      const std::vector<TensorSpec> specs = {activation("project_h", {N * K}),
                                             weight("metric", {metric_count(form, N, K)})};
      const auto query = [&]<class T, class Device>(Device& device, const Values<T>& in) {
        Values<T> query_h = {Array<T>(size_of(N * K))};
        metric_query_step<Device, T>(device, query_h[0].data(), {in[0].data(), in[1].data(), form, 1, N, K});
        wait_for(device);
        return converted<double>(query_h);
      };
      const auto check = [&]<class T>(auto& device, const std::string& name, T, double tolerance) {
        const Values<T> in = converted<T>(random_values(specs, 1));
        require_close({specs[0]}, query(device, in), query(plain, converted<double>(in)), tolerance, name);
      };
      CpuDevice<Isa::baseline> baseline(1);
      check(baseline, "double", double{}, 1e-14);
      for_each_cpu(1, [&](auto& device, const std::string& name) { check(device, name, float{}, 1e-5); });
      for_each_gpu([&](auto& device, const std::string& name) {
        check(device, name, float{}, 1e-5);
        check(device, name + ", bf16", bf16{}, 1e-2);
      });
    }
  }
}

// A row with a scalar rest, once directly after another row and once far from it: no compiler may round differently.
TEST_CASE("metric_key: an inference step has the same bits at every alignment", "[metric_key]") {
  for_each_cpu(1, [](auto& device, const std::string& name) {
    using Device = std::decay_t<decltype(device)>;
    for (Index K = 3; K <= 20; ++K) {
      CAPTURE(name, K);
      const Array<double> values =
          random_values(weight("value", {K + K * (K + 1) / 2}), 9, static_cast<std::uint32_t>(K));
      std::vector<std::vector<float>> queries;
      for (const Index distance : {K, K + 1, K + 3, K + 64}) {
        std::vector<float> rows(static_cast<std::size_t>(distance + K)), metric;
        for (Index k = 0; k < K; ++k) rows[static_cast<std::size_t>(k)] = static_cast<float>(values[std::size_t(k)]);
        for (std::size_t l = static_cast<std::size_t>(K); l < values.size(); ++l)
          metric.push_back(static_cast<float>(values[l]));
        metric_query_step<Device, float>(device, rows.data() + distance,
                                         {rows.data(), metric.data(), MetricForm::packed, 1, 1, K});
        queries.emplace_back(rows.begin() + distance, rows.end());
        CHECK(queries.back() == queries.front());
      }
    }
  });
}

}  // namespace
}  // namespace abh
