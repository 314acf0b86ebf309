#include <cmath>
#include <functional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "files/safetensors.hpp"
#include "settings/schedule.hpp"
#include "settings/setting_flags.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/settings.hpp"

namespace abh {
namespace {

ModelConfig valid() {
  ModelConfig model;
  model.vocabulary = 65;
  return model;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    CHECK(error.status() == 2);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "no error";
}

TEST_CASE("config: one mixer for all layers, or one per layer", "[config]") {
  ModelConfig model = valid();
  model.layers = 3;
  const auto names = [&] {
    std::vector<std::string> result;
    for (const MixerProperties& mixer : mixer_properties(model)) result.push_back(mixer.name);
    return result;
  };
  CHECK(names() == std::vector<std::string>(3, "additive"));
  model.mixer = "metric,quadratic,dot";
  CHECK(names() == std::vector<std::string>{"metric", "quadratic", "dot"});
  const auto mixers = [&] { mixers_of(model); };
  model.mixer = "dot,dot";
  CHECK(error_of(mixers) == "--mixer: expected 1 or 3 entries, one per layer, found 2 in \"dot,dot\"");
  for (const char* name : {"", "Dot", "dot ", "nothing"}) {
    model.mixer = name;
    CHECK(error_of(mixers) ==
          "--mixer: expected " + listed_mixers() + ", or a comma list of them, found \"" + model.mixer + "\"");
  }
  model.mixer = "dot,,metric";
  CHECK(contains(error_of(mixers), "found \"\""));
}

TEST_CASE("config: one window for all layers, or one per layer", "[config]") {
  // Checks the window flag of pooling or that of attention.
  const auto check = [](const std::string& flag, std::string ModelConfig::*window,
                        std::vector<Index> (ModelConfig::*windows_of)() const) {
    ModelConfig model = valid();
    const auto windows = [&] { return (model.*windows_of)(); };
    model.layers = 2;
    CHECK(windows() == std::vector<Index>{0, 0});
    model.*window = "16";
    CHECK(windows() == std::vector<Index>{16, 16});
    model.*window = "4,0";
    CHECK(windows() == std::vector<Index>{4, 0});
    // A window that covers the whole context is global. Without positions, it must cover any length.
    model.context = 32;
    model.*window = "31,32";
    CHECK(windows() == std::vector<Index>{31, 0});
    model.*window = "9223372036854775807";
    CHECK(windows() == std::vector<Index>{0, 0});
    model.positions = "none";
    model.*window = "32,9223372036854775807";
    CHECK(windows() == std::vector<Index>{32, 0});
    model.*window = "4,8,16";
    CHECK(error_of(windows) == flag + ": expected 1 or 2 entries, one per layer, found 3 in \"4,8,16\"");
    model.layers = 1;
    model.*window = "0,1";
    CHECK(error_of(windows) == flag + ": expected 1 entry, one per layer, found 2 in \"0,1\"");
    model.layers = 2;
    for (const char* text : {"-1", "x", "4x", "1.5", "", "9223372036854775808", "4, 8"}) {
      model.*window = text;
      CHECK(error_of(windows).rfind(flag + ": expected whole numbers, 0 for a global window", 0) == 0);
    }
  };
  check("--window", &ModelConfig::window, &ModelConfig::windows);
  check("--attention-window", &ModelConfig::attention_window, &ModelConfig::attention_windows);
}

TEST_CASE("config: settings of an impossible network are refused", "[config]") {
  const std::vector<ConfigFault> cases = Rows<ConfigFault, ModelConfig>::all(
      {{"", "no error"},
       {"layers=0", "--layers: expected 1 to 1000, found 0"},
       {"layers=1001", "--layers: expected 1 to 1000, found 1001"},
       {"channels=0", "--channels: expected 1 to 262144, found 0"},
       {"channels=262145", "--channels: expected 1 to 262144, found 262145"},
       {"heads=0", "--heads: expected 1 to 262144, found 0"},
       {"context=0", "--context: expected 1 to 4194304, found 0"},
       {"vocabulary_size=0", "vocabulary_size: expected 1 to 2097152, found 0"},
       {"hidden_channels=-1", "hidden_channels: expected 0 to 1048576, found -1"},
       {"head_channels=65537", "head_channels: expected 0 to 65536, found 65537"},
       {"conv_kernel=1025", "--conv-kernel: expected 0 to 1024, found 1025"},
       {"conv_groups=-1", "--conv-groups: expected 0 to 262144, found -1"},
       {"heads=3", "--heads: 3 does not divide the 128 channels"},
       {"conv_kernel=4 conv_groups=3", "--conv-groups: 3 does not divide the 128 channels"},
       {"mixer=nothing", "--mixer: expected " + listed_mixers() + ", or a comma list of them, found \"nothing\""},
       {"values=both", "--additive-values: expected shared or own, found \"both\""},
       {"positions=sine", "--positions: expected learned, none, sinusoidal, rotary or alibi, found \"sine\""},
       {"positions=alibi alibi_slopes=bloom", "--alibi-slopes: expected formula or interleaved, found \"bloom\""},
       {"positions=alibi alibi_slopes=interleaved", "no error"},
       {"alibi_slopes=interleaved",
        "--alibi-slopes: interleaved goes with --positions alibi, found --positions learned"},
       // Unused settings are not checked. The cores may have heads of any width.
       {"conv_groups=3", "no error"},
       {"conv_kernel=4 conv_groups=0", "no error"},
       {"mixer=metric heads=3 head_channels=50", "no error"},
       {"causal=0 mixer=dot attention_window=5",
        "--attention-window: expected 0 or at least the context, 64, where causal is 0 and the mixer dot, found 5"},
       {"causal=0 mixer=dot attention_window=64", "no error"},
       {"causal=0 mixer=dot attention_window=64 positions=none", "no error"},  // not global: see windows above
       {"causal=0 mixer=dot attention_window=63 positions=none",
        "--attention-window: expected 0 or at least the context, 64, where causal is 0 and the mixer dot, found 63"},
       {"mixer=dot causal=0 positions=alibi", "no error"},
       {"mixer=dot,dot,additive,dot heads=3 head_channels=50", "--heads: 3 does not divide the 128 channels"}});
  for (const auto& [changes, message] : cases) {
    CAPTURE(changes);
    CHECK(error_of([&, &changed_by = changes] { check_model(changed(valid(), changed_by)); }) == message);
  }
  ModelConfig two_lines = valid();
  two_lines.additive.skip = "a\nb";
  CHECK(error_of([&] { check_model(two_lines); }) == "--additive-skip: expected stream or normed, found \"a b\"");
}

TEST_CASE("config: training settings out of range are refused", "[config]") {
  const std::string shards = "--shards: expected a power of two that divides the 12 sequences of --batch, found ";
  const std::vector<ConfigFault> cases = Rows<ConfigFault, TrainingConfig>::all(
      {{"", "no error"},
       {"batch=0", "--batch: expected 1 to 65536, found 0"},
       {"shards=1", "no error"},
       {"shards=2", "no error"},
       {"shards=4", "no error"},
       {"shards=3", shards + "3"},
       {"shards=5", shards + "5"},
       {"shards=6", shards + "6"},
       {"shards=8", shards + "8"},
       {"shards=12", shards + "12"},
       {"steps=-1", "--steps: expected 0 to 1000000000, found -1"},
       {"warmup=-5", "--warmup: expected 0 to 1000000000, found -5"},
       {"eval_every=-1", "--eval-every: expected 0 to 1000000000, found -1"},
       {"checkpoint_every=-1", "--checkpoint-every: expected 0 to 1000000000, found -1"},
       {"log_every=-1", "--log-every: expected 0 to 1000000000, found -1"},
       {"dropout=1.5", "--dropout: expected 0 to 1, found 1.5"},
       {"label_smoothing=-0.1", "--label-smoothing: expected 0 to 1, found -0.1"},
       {"weight_decay=-1", "--weight-decay: expected 0 to 1e+06, found -1"},
       {"optimizer=sgd", "--optimizer: expected adamw or muon, found \"sgd\""},
       {"muon_rounds=-1", "--muon-rounds: expected 0 to 100, found -1"},
       {"clip=-1", "--clip: expected 0 to 1e+30, found -1"},
       {"beta1=2", "--beta1: expected 0 to below 1, found 2"},
       {"beta2=2", "--beta2: expected 0 to below 1, found 2"},
       {"init_std=-1", "--init-std: expected 0 to 1e+06, found -1"},
       {"weight_average=-1", "--weight-average: expected 0 to 1000000000, found -1"}});
  for (const auto& [changes, message] : cases) {
    CAPTURE(changes);
    CHECK(error_of([&, &changed_by = changes] { changed(TrainingConfig(), changed_by).check(); }) == message);
  }
  const TrainingConfig no_number{.learning_rate = std::nan("")};
  CHECK(error_of([&] { no_number.check(); }).starts_with("--learning-rate: expected "));
  CHECK(TrainingConfig::from_metadata({}, "file").shards == 1);          // a file written before shards existed
  CHECK(TrainingConfig::from_metadata({}, "file").weight_average == 0);  // a file written before averages existed
}

TEST_CASE("config: metadata round trip", "[config]") {
  // Every field away from its default, so that one that is forgotten shows. Features add the values of their keys.
  using Metadata = std::map<std::string, std::string>;
  const auto changed_in = [](const Metadata& defaults, const std::string& core, const std::vector<std::string>& more) {
    Metadata all = defaults;
    for (const auto& [key, value] : settings(core)) all[key] = value;
    for (const std::string& of_feature : more) {
      for (const auto& [key, value] : settings(of_feature)) all[key] = value;
    }
    CHECK(all.size() == defaults.size());
    for (const auto& [key, value] : all) {
      INFO(key);
      CHECK((value != defaults.at(key) || !feature_of(key).empty()));
    }
    return all;
  };
  const Metadata written = changed_in(
      ModelConfig().metadata(),
      "layers=2 channels=30 heads=5 hidden_channels=77 head_channels=9 context=33 vocabulary_size=12 mixer=dot,metric "
      "values=own projection=1 skip=normed causal=0 attention_bias=1 conv_kernel=3 conv_groups=2 ffn_bias=0 "
      "embedding_norm=1 final_norm=0 logit_bias=1 logit_scale=0.1 positions=alibi alibi_slopes=interleaved",
      Rows<std::string, ModelConfig>::all());
  const ModelConfig model = ModelConfig::from_metadata(written, "file");
  CHECK(model.metadata() == written);
  CHECK(model.logit_scale == 0.1);
  CHECK(mixers_of(model).size() == 2);

  Metadata kept = changed_in(
      TrainingConfig().metadata(),
      "batch=3 steps=17 optimizer=muon muon_rounds=3 warmup=5 weight_decay=1e-300 clip=0 beta1=0.5 beta2=0.75 "
      "label_smoothing=0.05 init_std=0.5 type=bf16 eval_every=1 checkpoint_every=2 log_every=3 "
      "learning_rate=0.30000000000000004 schedule=linear dropout=0.3333333333333333 shards=4 weight_average=1000000000 "
      "seed=18446744073709551615",
      Rows<std::string, TrainingConfig>::all());
  // Keys that are written only if their value is not the default, in files of any version: files without them stay
  // unchanged.
  kept["eval_tokens"] = "1000000";
  kept["order"] = "shuffled";
  const TrainingConfig training = TrainingConfig::from_metadata(kept, "file");
  CHECK(training.metadata() == kept);
  CHECK(training.learning_rate == 0.1 + 0.2);
  CHECK(training.dropout == 1.0 / 3);
  CHECK(training.weight_decay == 1e-300);
  CHECK(training.weight_average == largest_steps);
  CHECK(training.seed == ~std::uint64_t{0});
  CHECK(training.eval_tokens == 1'000'000);
  CHECK(training.order == "shuffled");
  Metadata without = TrainingConfig().metadata();
  CHECK(without.count("eval_tokens") == 0);
  CHECK(TrainingConfig::from_metadata(without, "file", safetensors_version).eval_tokens == 0);
  CHECK(without.count("order") == 0);
  CHECK(TrainingConfig::from_metadata(without, "file", safetensors_version).order == "random");
}

TEST_CASE("config: metadata of golden files", "[config]") {
  // Absent keys get the golden files' defaults. Foreign keys are ignored.
  const ModelConfig model = ModelConfig::from_metadata({{"layers", "2"}, {"case", "language_model"}}, "file");
  check_settings(model,
                 "layers=2 ffn_bias=0 final_norm=1 embedding_norm=0 logit_bias=0 logit_scale=1 conv_kernel=0 "
                 "conv_groups=1 values=shared skip=stream projection=0 causal=1 window=0 alibi_slopes=formula");
}

TEST_CASE("config: malformed metadata are refused", "[config]") {
  const auto error = [](const std::string& key, const std::string& value) -> std::string {
    try {
      ModelConfig::from_metadata({{key, value}}, "dir/model.safetensors");
      TrainingConfig::from_metadata({{key, value}}, "dir/model.safetensors");
    } catch (const Error& caught) {
      CHECK(caught.status() == 1);
      return caught.what();
    }
    return "no error";
  };
  const std::string metadata = "dir/model.safetensors: metadata ";
  CHECK(error("layers", "four") == metadata + "layers: expected a number, found \"four\"");
  CHECK(error("layers", "4.5") == metadata + "layers: expected a number, found \"4.5\"");
  CHECK(error("layers", "") == metadata + "layers: expected a number, found \"\"");
  CHECK(error("ffn_bias", "yes\n") == metadata + "ffn_bias: expected 0 or 1, found \"yes \"");
  CHECK(error("logit_scale", "inf") == metadata + "logit_scale: expected a finite number, found \"inf\"");
  CHECK(error("dropout", "nan") == metadata + "dropout: expected a finite number, found \"nan\"");
  CHECK(error("seed", "-1") == metadata + "seed: expected a number, found \"-1\"");
}

TEST_CASE("config: presets", "[config]") {
  ModelConfig model;
  TrainingConfig training;
  model.layers = 99;
  training.steps = 1;
  for (const std::string& name : preset_names) {
    apply_preset(name, model, training);
    model.vocabulary = 65;
    CAPTURE(name);
    CHECK_NOTHROW(check_model(model));
    CHECK_NOTHROW(training.check());
  }
  // fastformer: the form of the README
  check_settings(model, "heads=1 embedding_norm=1 final_norm=0 logit_bias=1 skip=stream");
  check_settings(training, "label_smoothing=0.1");

  apply_preset("tiny", model, training);  // nothing remains of the preset before
  check_settings(model, "layers=4 channels=128 context=64 embedding_norm=0");
  check_settings(training, "batch=12 steps=4000 label_smoothing=0");
  CHECK(error_of([&] { apply_preset("huge", model, training); }) ==
        "--preset: expected tiny, baby, shakespeare or fastformer, found \"huge\"");

  const auto peek = [](std::vector<const char*> line) {
    return peek_preset(static_cast<int>(line.size()), line.data());
  };
  CHECK(peek({"train"}) == "tiny");
  CHECK(peek({"train", "--preset", "baby"}) == "baby");
  CHECK(peek({"train", "--preset", "huge"}) == "tiny");
}

TEST_CASE("config: cosine schedule with warm-up, down to a tenth", "[config]") {
  TrainingConfig training{.steps = 101, .learning_rate = 2, .warmup = 10};
  for (Index step = 0; step < 10; ++step) {
    CHECK_FALSE(!(std::abs(learning_rate_at(training, step) - 2.0 * static_cast<double>(step + 1) / 11) <= 1e-15));
  }
  CHECK(learning_rate_at(training, 10) == 2);
  CHECK_FALSE(!(std::abs(learning_rate_at(training, 55) - 1.1) <= 1e-14));  // half way
  CHECK_FALSE(!(std::abs(learning_rate_at(training, 100) - 0.2) <= 1e-14));
  for (Index step = 1; step <= 100; ++step) {
    INFO(step);
    if (step <= 10) CHECK(learning_rate_at(training, step) > learning_rate_at(training, step - 1));
    if (step > 10) CHECK(learning_rate_at(training, step) < learning_rate_at(training, step - 1));
  }

  // No warm-up; warm-up to the end; a single step.
  training.warmup = 0;
  CHECK(learning_rate_at(training, 0) == 2);
  training.warmup = 100;
  CHECK_FALSE(!(learning_rate_at(training, 99) <= 2));
  CHECK(std::isfinite(learning_rate_at(training, 100)));
  training.warmup = 0;
  training.steps = 1;
  CHECK(std::isfinite(learning_rate_at(training, 0)));
}

TEST_CASE("config: linear schedule ends at 0, inverse-root schedule ignores the total", "[config]") {
  const auto near = [](double found, double expected) { return std::abs(found - expected) <= 1e-14; };
  TrainingConfig training{.steps = 110, .learning_rate = 2, .warmup = 10};
  training.schedule = "linear";
  CHECK(learning_rate_at(training, 10) == 2);
  CHECK(near(learning_rate_at(training, 60), 1));
  CHECK(near(learning_rate_at(training, 109), 0.02));  // the last step still moves
  training.schedule = "inverse-sqrt";
  CHECK(learning_rate_at(training, 10) == 2);
  CHECK(near(learning_rate_at(training, 43), 1));  // four times as many steps, half the rate
  const double before = learning_rate_at(training, 70);
  training.steps = 1000;
  CHECK(learning_rate_at(training, 70) == before);
  // The same warm-up for every schedule; no warm-up; a single step.
  for (const char* schedule : {"cosine", "linear", "inverse-sqrt"}) {
    training.schedule = schedule;
    CHECK(near(learning_rate_at(training, 4), 2.0 * 5 / 11));
    TrainingConfig one{.steps = 1, .learning_rate = 2, .warmup = 0};
    one.schedule = schedule;
    CHECK(std::isfinite(learning_rate_at(one, 0)));
  }
}

TEST_CASE("config: a learning rate is printed with the digits of a float", "[config]") {
  TrainingConfig training{.steps = 3000, .learning_rate = 3e-3, .warmup = 100};
  for (const char* schedule : {"cosine", "linear", "inverse-sqrt"}) {
    training.schedule = schedule;
    bool same = true;
    for (Index step = 0; step < training.steps; ++step) {
      const float used = static_cast<float>(learning_rate_at(training, step));
      same &= to_text(shown_learning_rate_at(training, step)) == to_text(used);
    }
    INFO(schedule);
    CHECK(same);
  }
}

}  // namespace
}  // namespace abh
