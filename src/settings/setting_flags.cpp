#include "settings/setting_flags.hpp"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include "base/text.hpp"
#include "program/flags.hpp"
#include "settings/presets.hpp"
#include "settings/table.hpp"

namespace abh {

namespace {

struct FlagAdder {
  Flags& flags;
  const std::vector<std::string>& only;
  HelpText help = [](const Setting& setting) { return setting.help; };

  void operator()(const WholeSetting& s, Index& value) const {
    if (wanted(s)) flags.integer(s.flag, value, s.unit, help(s), s.low, s.high);
  }
  void operator()(const RealSetting& s, double& value) const {
    if (wanted(s)) flags.real(s.flag, value, s.unit, help(s), {s.low, s.high});
  }
  void operator()(const ChoiceSetting& s, std::string& value) const {
    if (wanted(s)) flags.choice(s.flag, value, s.choices, help(s));
  }
  void operator()(const Setting& s, std::string& value) const {
    if (wanted(s)) flags.text(s.flag, value, s.unit, help(s));
  }
  void operator()(const Setting& s, bool& value) const {
    if (wanted(s)) flags.toggle(s.flag, value, help(s));
  }
  void operator()(const Setting& s, std::uint64_t& value) const {
    if (wanted(s)) flags.seed(s.flag, value, help(s));
  }
  void operator()(const Setting&, double&) const {}  // no flag

  bool wanted(const Setting& s) const {
    return !s.flag.empty() && (only.empty() || std::find(only.begin(), only.end(), s.flag) != only.end());
  }
};

// Collects `flag value` pairs in one line.
struct SettingsText {
  std::string text{};

  template <class Value>
  void operator()(const Setting& s, const Value& value) {
    if (s.flag.empty()) return;
    text += (text.empty() ? "" : ", ") + s.flag + " ";
    if constexpr (std::is_same_v<Value, std::string>) {
      text += one_line(value);
    } else if constexpr (std::is_same_v<Value, bool>) {
      text += value ? "1" : "0";
    } else {
      text += to_text(value);
    }
  }
};

// Flags, and their names in nanoGPT, llm.c, trainers of PyTorch and llama.cpp.
constexpr std::pair<const char*, const char*> other_words[] = {
    {"learning-rate", "lr max-lr"},
    {"steps", "epochs epoch num-epochs iterations iters max-iters max-steps num-steps"},
    {"layers", "n-layer n-layers num-layers depth"},
    {"heads", "n-head n-heads num-heads"},
    {"channels", "n-embd embd d-model dim hidden-size width"},
    {"context", "block-size sequence-length seq-len ctx-size"},
    {"batch", "batch-size bs"},
    {"order", "shuffle shuffled"},
    {"shards", "grad-accum grad-accum-steps gradient-accumulation-steps"},
    {"clip", "grad-clip max-grad-norm"},
    {"weight-decay", "wd"},
    {"weight-average", "ema ema-decay swa"},
    {"warmup", "warmup-iters warmup-steps"},
    {"eval-every", "eval-interval"},
    {"eval-tokens", "eval-iters eval-steps max-eval-steps"},
    {"log-every", "log-interval"},
    {"checkpoint-every", "save-every"},
    {"optimizer", "optim"},
    {"type", "dtype precision"},
    {"mixer", "attention"},
    {"init-from", "finetune"},
    {"resume", "continue"},
    {"overwrite", "force"}};

}  // namespace

void add_model_flags(Flags& flags, ModelConfig& model, const HelpText& help, const std::vector<std::string>& only) {
  visit_model(FlagAdder{flags, only, help}, model);
  for (const auto& [flag, words] : other_words) {
    for (const std::string& word : words_in(words)) flags.also_called(word, flag);
  }
}
std::vector<std::pair<std::string, std::string>> changeable_settings() {
  std::vector<std::pair<std::string, std::string>> names;
  TrainingConfig training;
  visit_training(
      [&](const Setting& setting, const auto&) {
        if (setting.changeable) names.emplace_back(setting.flag, setting.key);
      },
      training);
  return names;
}
bool is_model_flag(const std::string& flag) {
  bool found = false;
  ModelConfig model;
  visit_model([&](const Setting& setting, const auto&) { found = found || setting.flag == flag; }, model);
  return found;
}
void add_training_flags(Flags& flags, TrainingConfig& training, const std::vector<std::string>& only) {
  visit_training(FlagAdder{flags, only}, training);
}

IdleFlags idle_flags(const TrainingConfig& training, Index context) {
  IdleFlags idle;
  const auto add = [&](const char* flag, bool is_idle, const std::string& reason) {
    if (is_idle) idle.emplace_back(flag, reason);
  };
  const Index steps = training.steps, every = training.eval_every;
  add("truncated", training.chunk >= context, "--chunk is not shorter than --context");
  add("muon-rounds", training.optimizer != "muon", "--optimizer is " + training.optimizer);
  add("schedule", 0 < steps && steps <= training.warmup, "--warmup is not shorter than the run");
  add("eval-tokens", every == 0 || every >= steps, "--eval-every is not shorter than the run");
  return idle;
}

std::string settings_text(const ModelConfig& model, const IdleFlags& idle) {
  SettingsText settings;
  const std::map<std::string, std::string> written = model.metadata();
  visit_model(
      [&](const Setting& setting, const auto& value) {
        if (!written.count(setting.key)) return;  // omits keys with their default
        const auto is_this = [&](const auto& each) { return each.first == setting.flag; };
        if (std::none_of(idle.begin(), idle.end(), is_this)) settings(setting, value);
      },
      model);
  return settings.text;
}
std::string settings_text(const TrainingConfig& training) {
  SettingsText settings;
  visit_training(settings, training);
  return settings.text;
}

std::string peek_preset(int argc, const char* const* argv) {
  const std::string wanted = peek_flag(argc, argv, "preset").value_or("");
  const bool known = std::find(preset_names.begin(), preset_names.end(), wanted) != preset_names.end();
  return known ? wanted : preset_names.front();
}

}  // namespace abh
