#include "network/mixer_flags.hpp"

#include "network/mixers.hpp"

namespace abh {

void add_model_flags(Flags& flags, ModelConfig& model, const std::vector<std::string>& only) {
  const auto replace = [](std::string& text, const std::string& word, const std::string& by) {
    if (const std::size_t at = text.find(word); at != std::string::npos) text.replace(at, word.size(), by);
  };
  add_model_flags(
      flags, model,
      [&](std::string text) {
        replace(text, "{mixers}", listed_mixers());
        replace(text, "{windowed}", listed_mixers([](const MixerProperties& mixer) { return mixer.has_window; }));
        return text;
      },
      only);
}

}  // namespace abh
