#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tasks/text/generator.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/generator_rows.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/settings.hpp"

using namespace abh;

namespace {

TextModel some_checkpoint(const std::string& mixer, const std::string& positions = "learned",
                          const std::string& window = "0", Index context = 8, const std::string& changes = "") {
  const Tokenizer tokenizer = Tokenizer::of_characters("abcdefghij\n", "test");
  const ModelConfig config =
      model_with("layers=2 channels=8 heads=2 conv_kernel=3 conv_groups=0 mixer=" + mixer + " window=" + window +
                 " positions=" + positions + " context=" + std::to_string(context) +
                 " vocabulary_size=" + std::to_string(tokenizer.size()) + " " + changes);
  // Large weights, so that every earlier token changes the logits measurably.
  return {config, tokenizer, some_weights(config, 0.5, 7), 0};
}

const DeviceChoice one_thread{.device = "cpu", .threads = 1};

std::unique_ptr<Model> stepwise_model(const TextModel& checkpoint) {
  auto model = with_weights(make_model(one_thread, checkpoint.config, {.positions = checkpoint.config.context}),
                            checkpoint.weights);
  model->reset();
  return model;
}

Token most_likely(std::span<const float> logits_v) {
  return static_cast<Token>(std::max_element(logits_v.begin(), logits_v.end()) - logits_v.begin());
}

std::vector<double> softmax(std::span<const float> logits_v, double temperature) {
  const double highest = *std::max_element(logits_v.begin(), logits_v.end());
  std::vector<double> p;
  for (float logit : logits_v) p.push_back(std::exp((static_cast<double>(logit) - highest) / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& each : p) each /= sum;
  return p;
}

std::vector<double> frequencies(std::span<const float> logits_v, const SamplingSettings& settings, int draws) {
  std::vector<double> counts(logits_v.size());
  for (int i = 0; i < draws; ++i) {
    const Token token = sample_token(logits_v, settings, static_cast<std::uint64_t>(i));
    counts[static_cast<std::size_t>(token)] += 1.0 / draws;
  }
  return counts;
}

}  // namespace

TEST_CASE("generator: tokens are drawn with the probabilities of the softmax", "[generator][heavy]") {
  const std::vector<float> logits_v = {1.5f, -2.0f, 0.0f, 3.0f, 2.9f, -30.0f};
  constexpr int draws = 200'000;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    const std::vector<double> expected = softmax(logits_v, temperature);
    const std::vector<double> found = frequencies(logits_v, {.temperature = temperature, .seed = 3}, draws);
    for (std::size_t v = 0; v < logits_v.size(); ++v) {
      // Five standard deviations of a count.
      const double tolerance = 5 * std::sqrt(expected[v] * (1 - expected[v]) / draws) + 1e-9;
      INFO("temperature " << temperature << ", token " << v << ": " << found[v] << ", expected " << expected[v]);
      CHECK_FALSE(!(std::abs(found[v] - expected[v]) <= tolerance));
    }
  }
}

TEST_CASE("generator: draws differ between places and seeds", "[generator]") {
  const std::vector<float> logits_v(16, 0.0f);
  const auto draws_of = [&](std::uint64_t seed) {
    std::vector<Token> tokens;
    for (std::uint64_t i = 0; i < 32; ++i) tokens.push_back(sample_token(logits_v, {.seed = seed}, i));
    return tokens;
  };
  CHECK(draws_of(1) == draws_of(1));
  CHECK(draws_of(1) != draws_of(2));
  const std::vector<Token> tokens = draws_of(1);
  CHECK(std::count(tokens.begin(), tokens.end(), tokens[0]) < 16);
}

// The top four bits of a word name one of sixteen tokens that are equally likely.
TEST_CASE("generator: token i of a text is drawn with word i of the sampling site", "[generator][random]") {
  const std::vector<float> logits_v(16, 0.0f);
  for (const std::uint64_t i : {0u, 1u, 2u, 3u, 4u, 1000u}) {
    const auto expected = static_cast<Token>(philox_word(7, i, 0, sites::sampling) >> 28);
    CHECK(sample_token(logits_v, {.seed = 7}, i) == expected);
    CHECK(sample_token(logits_v, {.top_k = 16, .top_p = 1, .seed = 7}, i) == expected);
  }
}

TEST_CASE("generator: top-k keeps the k most likely tokens, ties to the lower id", "[generator]") {
  const std::vector<float> logits_v = {0, 2, 1, 2, 1, 1};
  const auto support = [&](SamplingSettings settings) {
    std::vector<Token> tokens;
    const std::vector<double> found = frequencies(logits_v, settings, 3000);
    for (std::size_t v = 0; v < found.size(); ++v) {
      if (found[v] > 0) tokens.push_back(static_cast<Token>(v));
    }
    return tokens;
  };
  using Tokens = std::vector<Token>;
  CHECK(support({.top_k = 1}) == Tokens{1});
  CHECK(support({.top_k = 2}) == Tokens{1, 3});
  CHECK(support({.top_k = 3}) == Tokens{1, 2, 3});
  CHECK(support({.top_k = 5}) == Tokens{1, 2, 3, 4, 5});
  CHECK(support({.top_k = 6}) == Tokens{0, 1, 2, 3, 4, 5});
  CHECK(support({.top_k = 1'000'000}) == Tokens{0, 1, 2, 3, 4, 5});
  CHECK(support({.temperature = 0}) == Tokens{1});
}

TEST_CASE("generator: top-p keeps the fewest most likely tokens that reach p", "[generator]") {
  // Probabilities 1/2, 1/4, 1/8, 1/8: exact in floating point, except for the logarithms.
  const std::vector<float> logits_v = {0, std::log(4.0f), std::log(2.0f), 0};
  const auto support = [&](double p, Index k = 0) {
    const std::vector<double> found = frequencies(logits_v, {.top_k = k, .top_p = p}, 3000);
    return std::count_if(found.begin(), found.end(), [](double each) { return each > 0; });
  };
  for (const auto& [p, kept] :
       {std::pair{0.0, 1}, {1e-12, 1}, {0.49, 1}, {0.51, 2}, {0.74, 2}, {0.76, 3}, {0.88, 4}, {1.0, 4}}) {
    INFO("p " << p);
    CHECK(support(p) == kept);
  }
  // Top-p applies after top-k: 1/2 and 1/4 become two thirds and one third.
  CHECK(support(0.6, 2) == 1);
  CHECK(support(0.7, 2) == 2);
  // The kept tokens are drawn in proportion to their probabilities.
  const std::vector<double> found = frequencies(logits_v, {.top_p = 0.7}, 40'000);
  CHECK_FALSE(!(std::abs(found[1] - 2.0 / 3) <= 0.015));
}

TEST_CASE("generator: extreme temperatures and logits", "[generator]") {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> logits_v = {-largest, largest, 0, largest};
  for (std::uint64_t i = 0; i < 100; ++i) {
    for (const double temperature : {5e-324, 1e-300, 1.0}) {
      const Token token = sample_token(logits_v, {.temperature = temperature}, i);
      CHECK((token == 1 || token == 3));
    }
  }
  const std::vector<double> found = frequencies(std::vector<float>{1, 2, 3, 4}, {.temperature = 1e6}, 40'000);
  for (double each : found) CHECK_FALSE(!(std::abs(each - 0.25) <= 0.015));
  for (const float broken : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    const std::vector<float> with_broken = {0, broken, 1};
    CHECK_THROWS_AS(sample_token(with_broken, {}, 0), Error);
    CHECK_THROWS_AS(sample_token(with_broken, {.temperature = 0}, 0), Error);
  }
}

TEST_CASE("generator: within the context the logits are those of the model", "[generator]") {
  for (const auto& [mixer, positions, window] :
       Rows<GeneratorCase, WithinContext>::all({{"additive"}, {"metric"}, {"quadratic"}, {"dot"}, {"dot,additive"}})) {
    INFO(mixer);
    const TextModel checkpoint = some_checkpoint(mixer);
    const auto model = stepwise_model(checkpoint);
    Generator generator(one_thread, checkpoint);
    generator.feed(3);
    std::span<const float> logits_v = model->decode(3, 0);
    for (Index position = 1; position < 8; ++position) {
      const Token token = most_likely(logits_v);
      CHECK(generator.next({.temperature = 0}) == token);
      logits_v = model->decode(token, position);
    }
  }
}

TEST_CASE("generator: a full context restarts from its last half", "[generator]") {
  for (const auto& [mixer, positions, window] : Rows<GeneratorCase, FullContext>::all({{"additive"},
                                                                                       {"dot"},
                                                                                       {"dot", "none"},
                                                                                       {"metric", "none"},
                                                                                       {"dot,additive", "none"},
                                                                                       {"quadratic", "alibi"}})) {
    INFO(mixer << ", positions " << positions);
    const TextModel checkpoint = some_checkpoint(mixer, positions);
    const auto model = stepwise_model(checkpoint);
    const std::vector<Token> text = {0, 5, 2, 9, 1, 7, 3, 8, 4, 6, 10, 2, 5, 5, 1, 0, 9, 3, 3, 7};
    for (std::size_t i = 0; i < text.size(); ++i) {
      // The tokens read so far: the first 8; or, after each further 4, the last 4 and the following ones.
      const std::size_t first = i < 8 ? 0 : i / 4 * 4 - 4;
      model->reset();
      std::span<const float> logits_v;
      for (std::size_t j = first; j <= i; ++j) logits_v = model->decode(text[j], static_cast<Index>(j - first));
      INFO("after token " << i);
      Generator generator(one_thread, checkpoint);
      for (std::size_t j = 0; j <= i; ++j) generator.feed(text[j]);
      CHECK(generator.next({.temperature = 0}) == most_likely(logits_v));
    }
  }
}

namespace {

// A prompt read in one pass, with any number of threads, is followed by the same text as a prompt read token by token.
// Later prompts continue after the first prompt and its text.
void check_reading(const TextModel& checkpoint, Index threads, const std::vector<Token>& prompt, Index tokens,
                   int times) {
  Generator at_once({.device = "cpu", .threads = threads}, checkpoint), one_by_one(one_thread, checkpoint);
  for (int time = 0; time < times; ++time) {
    at_once.feed(prompt);
    for (const Token token : prompt) one_by_one.feed(token);
    for (Index i = 0; i < tokens; ++i) CHECK(at_once.next({.seed = 4}) == one_by_one.next({.seed = 4}));
  }
}

}  // namespace

TEST_CASE("generator: only the usable end of a long prompt is read", "[generator]") {
  for (const Index context : {1, 2, 5, 8}) {
    for (const char* positions : {"learned", "none"}) {
      const TextModel checkpoint = some_checkpoint("additive,dot", positions, "0", context);
      std::vector<Token> prompt;
      for (Index count = 1; count < 30; ++count) {
        prompt.push_back(static_cast<Token>((count * count + 3) % 11));
        INFO("context " << context << ", " << positions << ", " << count << " tokens");
        check_reading(checkpoint, 1, prompt, context + 2, 1);
      }
    }
  }
  // A model that remembers the whole prompt reads all of it, in several passes.
  for (const auto& [mixer, positions, window] : Rows<GeneratorCase, LongPrompt>::all({{"additive", "none"}})) {
    INFO(mixer << ", window " << window << ", " << positions);
    const TextModel checkpoint = some_checkpoint(mixer, positions, window);
    std::vector<Token> prompt;
    for (Index i = 0; i < 700; ++i) prompt.push_back(static_cast<Token>((i * i + 3) % 11));
    check_reading(checkpoint, 2, prompt, 20, 2);
  }
  // Five million tokens in the time of a few.
  const TextModel checkpoint = some_checkpoint("additive", "learned");
  Generator generator(one_thread, checkpoint);
  const auto begin = std::chrono::steady_clock::now();
  generator.feed(std::vector<Token>(5'000'000, 3));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("generator: a recurrent model without position table never restarts", "[generator]") {
  for (const auto& [mixer, positions, window] : Rows<GeneratorCase, EndlessText>::all(
           {{"additive", "none"}, {"additive", "alibi"}, {"dot,metric", "none"}, {"dot,quadratic", "alibi"}})) {
    INFO("window " << window << ", positions " << positions << ", " << mixer);
    const TextModel checkpoint = some_checkpoint(mixer, positions, window, 8, "attention_window=3,5");
    const auto model = stepwise_model(checkpoint);
    Generator generator(one_thread, checkpoint);
    generator.feed(2);
    std::span<const float> logits_v = model->decode(2, 0);
    for (Index i = 1; i < 100; ++i) {
      const Token token = sample_token(logits_v, {.seed = 4}, static_cast<std::uint64_t>(i - 1));
      CHECK(generator.next({.seed = 4}) == token);
      logits_v = model->decode(token, i);
    }
  }
}

TEST_CASE("generator: memory does not grow with the text", "[generator]") {
  const auto resident_pages = [] {
    std::ifstream file("/proc/self/statm");
    long size = 0, resident = 0;
    file >> size >> resident;
    return file ? resident : -1;
  };
  if (resident_pages() < 0) return;  // the system does not report memory
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const long allowed = 400'000'000;  // a sanitizer keeps 256 MiB of freed memory and its records
#else
  const long allowed = 200'000;  // 40 bytes a token
#endif
  for (const auto& [mixer, positions, window] :
       {std::tuple{"additive", "none", "0"}, {"dot", "learned", "0"}, {"dot", "none", "7"}}) {
    Generator generator(one_thread,
                        some_checkpoint(mixer, positions, "0", 8, std::string("attention_window=") + window));
    generator.feed(0);
    for (int i = 0; i < 100; ++i) generator.next({});
    const long before = resident_pages();
    for (int i = 0; i < 5000; ++i) generator.next({});
    const long grown = (resident_pages() - before) * ::sysconf(_SC_PAGESIZE);
    INFO(mixer << ": " << grown << " bytes more");
    CHECK(grown < allowed);
  }
}

TEST_CASE("generator: a text starts with its prompt and has the requested length", "[generator]") {
  const TextModel checkpoint = some_checkpoint("additive");
  const auto always = [] { return true; };
  const auto text_of = [&](Index threads, std::uint64_t seed) {
    return generate_text({.device = "cpu", .threads = threads}, checkpoint, "abc", 50, {.seed = seed}, always).value();
  };
  const std::string text = text_of(1, 2);
  CHECK(text.size() == 53);
  CHECK(text.starts_with("abc"));
  CHECK(text == text_of(2, 2));
  CHECK(text != text_of(1, 3));
  CHECK(generate_text(one_thread, checkpoint, "abc", 0, {}, always) == "abc");
  // The generated text continues the whole prompt.
  Generator generator(one_thread, checkpoint);
  for (Token token : checkpoint.tokenizer.encode("abc", "test")) generator.feed(token);
  CHECK(text.substr(3, 1) == checkpoint.tokenizer.decode(generator.next({.seed = 2})));
  CHECK(text.substr(4, 1) == checkpoint.tokenizer.decode(generator.next({.seed = 2})));
  CHECK_THROWS_AS(generate_text(one_thread, checkpoint, "xyz", 5, {}, always), Error);
  // The reader may stop before any token.
  for (const int most : {0, 1, 49, 50}) {
    int asked = 0;
    const auto keep_going = [&] { return asked++ < most; };
    const auto some = generate_text(one_thread, checkpoint, "abc", 50, {.seed = 2}, keep_going);
    CHECK(some.has_value() == (most == 50));
    CHECK(asked == std::min(most + 1, 50));
  }
}

TEST_CASE("generator: a text starts with a line break if the vocabulary has one", "[generator]") {
  CHECK(opening_of_text(Tokenizer::of_bytes()) == "\n");
  CHECK(opening_of_text(Tokenizer::of_characters("ab\nc", "test")) == "\n");
  CHECK(opening_of_text(Tokenizer::of_characters("cab", "test")) == "a");
}
