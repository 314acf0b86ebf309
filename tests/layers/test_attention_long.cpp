// Attention over many keys and queries: long sums do not drift (docs/layers/attention.md, Long sums).

#include <cmath>

#include "layers/attention.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

// One heavy key before many equal light keys, with scores `lead`, 0, 0, ... Values: channel 0 is 1 for light keys,
// channel 1 is 1 for the heavy key, channel 2 is the same for all keys, and channel 3 is 0.3 for light keys.
Values<double> one_heavy_key(const AttentionCase& layer, double lead) {
  Values<double> in = {Array<double>(size_of(layer.C * layer.K)), Array<double>(size_of(layer.keys() * layer.K)),
                       Array<double>(size_of(layer.keys() * layer.K))};
  for (Index c = 0; c < layer.C; ++c) in[0][size_of(c * layer.K)] = 1;
  in[1][0] = lead;
  for (Index s = 0; s < layer.keys(); ++s) {
    double* value_k = in[2].data() + s * layer.K;
    value_k[s == 0] = 1;
    value_k[2] = 1;
    value_k[3] = s == 0 ? 0 : 0.3;
  }
  return in;
}

// Output for a query that attends to the first `seen` keys, in closed form.
Array<double> output_of(double lead, Index seen, Index K) {
  const double light = static_cast<double>(seen - 1), heavy = std::exp(static_cast<double>(static_cast<float>(lead)));
  Array<double> out(size_of(K), 0.0);
  out[0] = light / (heavy + light);
  out[1] = heavy / (heavy + light);
  out[2] = 1;
  out[3] = 0.3 * out[0];
  return out;
}

// Compares every entry relative to its own size, which is stricter than relative to the largest entry.
void check_entries(const Array<double>& got, const Array<double>& expected, double tolerance) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = at_least(worst, std::abs(got[i] - expected[i]) / std::max(expected[i], 1e-30));
  }
  CAPTURE(worst);  // `tests -s` prints it: the chapter's figures
  CHECK_FALSE(!(worst <= tolerance));
}

const double leads[] = {5, 13.8};

// Queries at the last positions; the very last query attends to all keys.
void check_forward(Index C, Index S, Index K, double tolerance, const auto& for_each) {
  const AttentionCase layer{.B = 1, .C = C, .N = 1, .K = K, .S = S, .query_offset = S - C, .scale = 1};
  for (const double lead : leads) {
    Values<float> in = converted<float>(one_heavy_key(layer, lead));
    Array<double> expected;
    for (Index c = 0; c < C; ++c) {
      const Array<double> row = output_of(lead, S - C + c + 1, K);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    for_each([&](auto& device, const std::string& name) {
      INFO(name << ", " << S << " keys, K " << K << ", lead " << lead);
      check_entries(converted<double>(run_forward<float>(layer, device, in))[0], expected, tolerance);
    });
  }
}

TEST_CASE("attention: a heavy key before many light keys", "[attention][long]") {
  const auto on_every_device = [](const auto& body) { for_each_device(1, body); };
  for (const Index S : {100, 1000, 1024, 1025, 4096, 4100, 16384}) check_forward(3, S, 4, 5e-6, on_every_device);
  check_forward(1, 65536, 4, 5e-6, on_every_device);
  check_forward(1, 20000, 130, 5e-6, on_every_device);  // on a GPU wide heads have kernels of their own
}

// The last, large key scales down the sums of the others, and their compensation with them.
TEST_CASE("attention: a heavy key after many light keys", "[attention][long]") {
  const Index S = 8192;
  for (const Index K : {4, 130}) {
    AttentionCase layer{.B = 1, .C = 1, .N = 1, .K = K, .S = S, .scale = 1};
    layer.causal = false;
    Values<float> in;
    for (const TensorSpec& spec : layer.inputs()) in.emplace_back(size_of(spec.count()), 0.0f);
    in[0][0] = 1;
    for (Index s = 0; s < S; ++s) {
      const bool is_heavy = s + 1 == S;
      in[1][size_of(s * K)] = is_heavy ? 12 : -0.3f - 0.1f * static_cast<float>(s % 7);
      in[2][size_of(s * K)] = 1;
      in[2][size_of(s * K + 1)] = is_heavy;
      in[2][size_of(s * K + 2)] = is_heavy ? 0.1f : 0.7f;
    }
    PlainDevice plain;
    const Values<double> expected = run_forward<double>(layer, plain, converted<double>(in));
    for_each_device(1, [&](auto& device, const std::string& name) {
      require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), expected, 1.5e-6, name);
    });
  }
}

// The gradient of the distance bias sums over sequences: the first one has a large term.
TEST_CASE("attention: the gradient of a distance bias over many sequences", "[attention][long]") {
  AttentionCase layer{.B = 512, .C = 2, .N = 1, .K = 4, .scale = 1};
  layer.distances = 2;
  layer.learns_bias = true;
  Values<double> in, d_out = {Array<double>(size_of(layer.B * 8), 0.0)};
  for (const TensorSpec& spec : layer.inputs()) in.emplace_back(size_of(spec.count()), 0.0);
  for (Index b = 0; b < layer.B; ++b) {
    in[2][size_of(b * 8)] = 1;                           // value of key 0; that of key 1 is 0
    d_out[0][size_of(b * 8 + 4)] = b == 0 ? 1 : 5.5e-8;  // of query 1: less than half a unit in the last place
  }
  check_long_sums(layer, in, d_out, 2.5e-6);
}

TEST_CASE("attention: a heavy key before a million light keys, on the CPU", "[attention][long][heavy]") {
  check_forward(1, 1 << 20, 4, 1e-5, [](const auto& body) { for_each_cpu(1, body); });
}
TEST_CASE("attention: a heavy key before a million light keys, on the GPU", "[attention][long][gpu][check_all]") {
  check_forward(1, 1 << 20, 4, 1e-5, [](const auto& body) { for_each_gpu(body); });
}

TEST_CASE("attention: an inference step over a million past positions", "[attention][long][heavy]") {
  for (const Index length : {65, 4096, 65536, 1 << 20}) {
    const AttentionCase layer{.B = 1, .C = 1, .N = 1, .K = 4, .S = length, .scale = 1};
    for (const double lead : leads) {
      const Values<float> in = converted<float>(one_heavy_key(layer, lead));
      for_each_device(1, [&](auto& device, const std::string& name) {
        INFO(name << ", " << length << " positions, lead " << lead);
        CaseArrays<float> a = arrays_of(layer, in);
        using Device = std::remove_reference_t<decltype(device)>;
        attention_step<Device, float>(device, {.out_h = a.out[0].data(),
                                               .query_h = a.in[0].data(),
                                               .key_ch = a.in[1].data(),
                                               .value_ch = a.in[2].data(),
                                               .scale = 1,
                                               .length = length,
                                               .N = 1,
                                               .K = 4});
        wait_for(device);
        check_entries(converted<double>(a.out)[0], output_of(lead, length, 4), length <= 65536 ? 5e-6 : 1e-5);
      });
    }
  }
}

// Gradients against the plain loops in double, by the rule of the golden files and to their tolerance.
void check_backward(const AttentionCase& layer, const Values<double>& wide_in, const Values<double>& wide_d_out,
                    const auto& for_each) {
  const Values<float> in = converted<float>(wide_in), d_out = converted<float>(wide_d_out);
  PlainDevice plain;
  const Values<double> expected = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
  for_each([&](auto& device, const std::string& name) {
    INFO(name << ", C " << layer.C << ", S " << layer.keys() << ", K " << layer.K);
    require_close(layer.inputs(), run_backward<float>(layer, device, in, d_out), expected, 2e-5, name);
  });
}

// Many keys after a heavy one. Every other one of them has a value, and is where the query would go in channel 1.
void check_many_keys(Index S, Index K, const auto& for_each) {
  const AttentionCase layer{.B = 1, .C = 2, .N = 1, .K = K, .S = S, .query_offset = S - 2, .scale = 1};
  Values<double> in = one_heavy_key(layer, 5), d_out = {Array<double>(size_of(2 * K), 0.0)};
  for (Index s = 1; s < S; ++s) {
    in[1][size_of(s * K + 1)] = s % 2 == 0 ? 0.7 : 0;
    in[2][size_of(s * K)] = s % 2 == 0 ? 1 : 0;
  }
  for (Index c = 0; c < 2; ++c) d_out[0][size_of(c * K)] = 1;
  check_backward(layer, in, d_out, for_each);
}

// Many queries: the first one wants e^5 times as much as each of the others.
void check_many_queries(Index C, Index K, const auto& for_each) {
  const AttentionCase layer{.B = 1, .C = C, .N = 1, .K = K, .causal = false, .S = 3, .scale = 1};
  Values<double> in = one_heavy_key(layer, 0.7), d_out = {Array<double>(size_of(C * K), 0.0)};
  for (Index c = 0; c < C; ++c) {
    d_out[0][size_of(c * K)] = c == 0 ? std::exp(5.0) : 1;
    d_out[0][size_of(c * K + 2)] = 0.3;
  }
  check_backward(layer, in, d_out, for_each);
}

TEST_CASE("attention: gradients over many keys and many queries", "[attention][long][heavy]") {
  const auto on_every_device = [](const auto& body) { for_each_device(1, body); };
  for (const Index count : {1025, 4100, 65536}) {
    check_many_keys(count, 4, on_every_device);
    check_many_queries(count, 4, on_every_device);
  }
  check_many_keys(20000, 130, on_every_device);
  check_many_queries(20000, 130, on_every_device);
}

TEST_CASE("attention: gradients over a million keys and queries, on the CPU", "[attention][long][slow]") {
  const auto on_every_cpu = [](const auto& body) { for_each_cpu(1, body); };
  check_many_keys(1 << 20, 4, on_every_cpu);
  check_many_queries(1 << 20, 4, on_every_cpu);
}

// An emulated GPU takes a minute and a half for it: tools/check_all.sh has the time.
TEST_CASE("attention: gradients over a million keys and queries, on the GPU", "[.check_all][slow]") {
  const auto on_every_gpu = [](const auto& body) { for_each_gpu(body); };
  check_many_keys(1 << 20, 4, on_every_gpu);
  check_many_queries(1 << 20, 4, on_every_gpu);
}

TEST_CASE("attention: long sums at the borders of sections", "[attention][long][heavy]") {
  // Sections have 1,024 positions on a CPU and 4,096 on a GPU. Queries attend to one section or several, or start
  // inside a section; some sections are fully masked.
  for (const Index border : {1024, 4096}) {
    Array<Token> masked(size_of(border + 80), 1), late(size_of(border + 80), 0);
    for (Index s = 0; s < border + 80; ++s) masked[size_of(s)] = s < border - 90 || s > border + 70 ? 0 : s % 3 != 0;
    for (Index s = border + 2; s < border + 80; ++s) late[size_of(s)] = 1;
    const AttentionCase layer{.B = 1, .C = 90, .N = 2, .K = 5, .S = border + 80, .query_offset = border - 30};
    AttentionCase reach = layer, masks = layer, none_before = layer, whole = layer, aligned = layer, wide = layer;
    reach.window = 70;
    masks.mask_bs = kept(std::move(masked));
    none_before.mask_bs = kept(std::move(late));
    whole.causal = false;
    whole.S = 2 * border + 3;
    whole.C = 3;
    aligned.K = 16;
    wide.K = 130;
    wide.C = 2;
    AttentionCase queries{.B = 1, .C = border + 80, .N = 1, .K = 4, .S = 90, .query_offset = -border + 30};
    AttentionCase window = queries;
    window.window = 75;
    window.query_offset = -border + 80;
    for (AttentionCase each : {layer, reach, masks, none_before, whole, aligned, wide, queries, window}) {
      CAPTURE(border, each.C, each.keys(), each.K, each.query_offset, each.window, each.mask_bs != nullptr);
      check_float(each, 3);
      each.distances = border + 200;
      check_float(each, 4);
    }
  }
}

TEST_CASE("attention: later tokens change no bit across sections", "[attention][long]") {
  for (const Index border : {1024, 4096}) {
    for (const Index K : {4, 130}) {
      // Queries at the last four positions of a section and the first four of the next.
      const AttentionCase layer{.B = 1, .C = 8, .N = 1, .K = K, .S = border + 4, .query_offset = border - 4};
      for_each_device(1, [&](auto& device, const std::string& name) {
        INFO(name << ", K " << K << ", section of " << border);
        const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
        const Array<float> before = run_forward<float>(layer, device, in)[0];
        Values<float> changed = in;
        for (Index i = border * K; i < (border + 4) * K; ++i) changed[1][size_of(i)] = changed[2][size_of(i)] = 30;
        const Array<float> after = run_forward<float>(layer, device, changed)[0];
        CHECK(std::equal(before.begin(), before.begin() + 4 * K, after.begin()));
        CHECK_FALSE(std::equal(before.begin() + 4 * K, before.begin() + 5 * K, after.begin() + 4 * K));
        // The same holds with no keys after the section.
        AttentionCase shorter = layer;
        shorter.S = border;
        shorter.C = 4;
        Values<float> less = in;
        less[0].resize(size_of(4 * K));
        less[1].resize(size_of(border * K));
        less[2].resize(size_of(border * K));
        const Array<float> alone = run_forward<float>(shorter, device, less)[0];
        CHECK(std::equal(alone.begin(), alone.end(), before.begin()));
      });
    }
  }
}

TEST_CASE("attention: sections have the same bits with any number of threads", "[attention][long]") {
  check_threads(AttentionCase{.B = 1, .C = 1200, .N = 1, .K = 5}, 3);
  check_threads(AttentionCase{.B = 2, .C = 70, .N = 3, .K = 8, .causal = false, .S = 2100}, 3);
}

}  // namespace
}  // namespace abh
