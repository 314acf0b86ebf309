#include "tasks/text/generator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "device/available.hpp"
#include "device/choice.hpp"
#include "network/mixers.hpp"

namespace abh {

Token sample_token(std::span<const float> logits_v, const SamplingSettings& settings, std::uint64_t index) {
  for (float logit : logits_v) {
    if (!std::isfinite(logit)) throw Error("the model computed a logit that is not finite: its weights are broken");
  }
  if (settings.temperature == 0) {
    return static_cast<Token>(std::max_element(logits_v.begin(), logits_v.end()) - logits_v.begin());
  }
  std::vector<Token> order(logits_v.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit_of = [&](Token token) { return static_cast<double>(logits_v[static_cast<std::size_t>(token)]); };
  std::sort(order.begin(), order.end(),
            [&](Token a, Token b) { return logit_of(a) != logit_of(b) ? logit_of(a) > logit_of(b) : a < b; });
  if (settings.top_k > 0 && settings.top_k < static_cast<Index>(order.size())) {
    order.resize(static_cast<std::size_t>(settings.top_k));
  }
  std::vector<double> weights;
  for (Token token : order) {
    weights.push_back(std::exp((logit_of(token) - logit_of(order[0])) / settings.temperature));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (settings.top_p < 1) {
    double reached = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && reached < settings.top_p * total) reached += weights[kept++];
    weights.resize(std::max<std::size_t>(kept, 1));
    total = std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  double left = total * uniform_of(philox_word(settings.seed, index, 0, sites::sampling));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[weights.size() - 1];
}

// Positions per chunk of a prompt: enough work for a few threads, in little memory.
static constexpr Index prompt_chunk = 256;
// Capacity for sequences of any length.
static constexpr Index unlimited = std::numeric_limits<Index>::max();

// True if the inference state of a network has constant size.
static bool is_recurrent(const ModelConfig& config) {
  const std::vector<MixerProperties> mixers = mixer_properties(config);
  const std::vector<Index> windows = config.attention_windows();
  bool recurrent = !config.has_position_table();
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    const bool has_table = mixers[layer].takes("rotary") && config.has_rotary();  // the table of angles is finite
    const bool forgets =
        !mixers[layer].has_cache || windows[layer] > 0 || (mixers[layer].takes("span") && config.learns_reach());
    recurrent = recurrent && forgets && !has_table;
  }
  return recurrent;
}

NetworkCapacity generation_extent(const ModelConfig& config) {
  const Index sequence = is_recurrent(config) ? unlimited : config.context;
  const Index segment = segment_of(config);
  const Index chunk = std::min((prompt_chunk + segment - 1) / segment * segment, sequence);
  return {.B = 1, .C = chunk, .training = false, .positions = config.context, .chunk = chunk, .sequence = sequence};
}

Generator::Generator(const DeviceChoice& device, const TextModel& text_model, const std::string& type) {
  const ModelConfig& config = text_model.config;
  if (config.classes) throw Error("this model is a classifier: it cannot generate a text");
  if (!config.causal) throw Error("this model has no causal mask: it cannot generate a text");
  const NetworkCapacity capacity = generation_extent(config);
  limit_ = capacity.sequence == unlimited ? 0 : capacity.sequence;
  require_memory(host_bytes(device, model_memory(device, config, capacity, type)));
  model_ = make_model(device, config, capacity, 0, type);
  model_->write(Model::Arena::weights, text_model.weights);
  start();
}

void Generator::start() {
  begin({});
  generated_ = 0;
}

void Generator::feed(Token token) {
  if (limit_ && position_ == limit_) {
    // The last half of the context becomes the beginning of a new context.
    const std::vector<Token> again(recent_.begin(), recent_.end());
    begin(again);
  }
  logits_v_ = model_->decode(token, position_);
  remember({&token, 1});
}

void Generator::begin(std::span<const Token> tokens) {
  position_ = 0;
  recent_.clear();
  if (tokens.empty()) return model_->reset();
  logits_v_ = model_->prefill(tokens);
  remember(tokens);
}

void Generator::remember(std::span<const Token> tokens) {
  position_ += static_cast<Index>(tokens.size());
  if (!limit_) return;
  recent_.insert(recent_.end(), tokens.begin(), tokens.end());
  while (static_cast<Index>(recent_.size()) > limit_ / 2) recent_.pop_front();
}

void Generator::feed(std::span<const Token> tokens) {
  const Index count = static_cast<Index>(tokens.size()), half = limit_ / 2;
  Index first = 0;
  if (limit_ && position_ == 0 && count > limit_) {
    // The context is full before token `limit`, and then after every `limit - half` tokens. Tokens before the half that
    // is read again at the last of these times have no effect, so they are not read.
    first = limit_ - half + (count - 1 - limit_) / (limit_ - half) * (limit_ - half);
  }
  tokens = tokens.subspan(static_cast<std::size_t>(first));
  if (position_ == 0 && tokens.size() > 1) {
    const std::size_t fit = limit_ ? std::min(tokens.size(), static_cast<std::size_t>(limit_)) : tokens.size();
    begin(tokens.first(fit));
    tokens = tokens.subspan(fit);
  }
  for (const Token token : tokens) feed(token);
}

Token Generator::next(const SamplingSettings& settings) {
  const Token token = sample_token(logits_v_, settings, generated_++);
  feed(token);
  return token;
}

std::string opening_of_text(const Tokenizer& tokenizer) {
  const bool has_line_break = tokenizer.kind() == "byte" || tokenizer.vocabulary().find('\n') != std::string::npos;
  return has_line_break ? "\n" : tokenizer.decode(0);
}

std::optional<std::string> generate_text(const DeviceChoice& device, const TextModel& text_model,
                                         const std::string& prompt, Index count, const SamplingSettings& settings,
                                         const std::function<bool()>& keep_going) {
  Generator generator(device, text_model);
  generator.feed(text_model.tokenizer.encode(prompt, "prompt"));
  std::string text = prompt;
  for (Index i = 0; i < count; ++i) {
    if (!keep_going()) return std::nullopt;
    text += text_model.tokenizer.decode(generator.next(settings));
  }
  return text;
}

}  // namespace abh
