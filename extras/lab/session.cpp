#include "extras/lab/session.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "apps/programs/train_arguments.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/digits/digits.hpp"
#include "extras/lab/files.hpp"
#include "extras/lab/json.hpp"
#include "extras/reviews/reviews.hpp"
#include "extras/sort/sort.hpp"
#include "network/initial_weights.hpp"
#include "network/mixer_flags.hpp"
#include "network/mixers.hpp"
#include "runs/checkpoint.hpp"
#include "settings/schedule.hpp"
#include "settings/setting_flags.hpp"
#include "tasks/plain_text.hpp"
#include "tasks/text/evaluation.hpp"
#include "tasks/text/text.hpp"

namespace abh {

namespace {

// Random site of the label noise, after the sites of tasks and before the sites of layers.
constexpr std::uint32_t site_of_noise = 15;

const DeviceChoice page_device{.device = "cpu", .threads = 1};

std::unique_ptr<TaskFigures> drawn_task(const std::string& task) {
  if (task == "text") return drawn_text();
  if (task == "sort") return drawn_sort();
  if (task == "reviews") return drawn_reviews();
  return drawn_digits();
}

// Converts "layers 4, mixer dot,additive" to a JSON object.
std::string settings_json(const std::string& text) {
  JsonObject settings;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(", ", begin), text.size()), space = text.find(' ', begin);
    settings.add(text.substr(begin, space - begin), text.substr(space + 1, end - space - 1));
    begin = end + 2;
  }
  return settings.text();
}

// During its lifetime, reads of a network's memory are recorded.
class Noting {
 public:
  Noting() { PageDevice::reads = &rows_; }
  ~Noting() { PageDevice::reads = nullptr; }
  Noting(const Noting&) = delete;
  Noting& operator=(const Noting&) = delete;

  // Returns the rows read since the last call if they hold `count` numbers: an array of the network. Otherwise returns
  // no rows: the array was computed from other arrays, for inspection.
  std::vector<PageDevice::Read> array_of(std::size_t count) {
    std::size_t found = 0;
    for (const PageDevice::Read& row : rows_) found += static_cast<std::size_t>(row.count);
    std::vector<PageDevice::Read> rows = std::exchange(rows_, {});
    if (found != count) rows.clear();
    return rows;
  }

 private:
  std::vector<PageDevice::Read> rows_;
};

// Splits a name such as "blocks.0.mixer.query_bch" into layer and name, and adds the extents.
JsonObject named(const std::string& name, const std::vector<Index>& shape) {
  const std::size_t dot = name.rfind('.');
  JsonObject object;
  object.add("layer", dot == name.npos ? "" : name.substr(0, dot))
      .add("name", dot == name.npos ? name : name.substr(dot + 1))
      .add("extents", shape);
  return object;
}

// Memory ranges that are already counted.
class Stretches {
 public:
  // Returns the number of these bytes that were not counted before.
  std::size_t add(const std::byte* begin, const std::byte* end) {
    std::size_t added = 0;
    auto next = end_of_.upper_bound(begin);
    if (next != end_of_.begin()) begin = std::max(begin, std::prev(next)->second);
    for (; begin < end; begin = std::max(begin, next->second), ++next) {
      const std::byte* const gap_end = next == end_of_.end() ? end : std::min(end, next->first);
      added += static_cast<std::size_t>(gap_end - begin);
      if (gap_end > begin) end_of_[begin] = gap_end;
      if (gap_end == end) break;
      begin = gap_end;
    }
    return added;
  }

 private:
  std::map<const std::byte*, const std::byte*> end_of_;
};

// During its lifetime, changes are applied to the network's computation.
class Touching {
 public:
  explicit Touching(const std::vector<Touch>& touches) { PageDevice::touches = &touches; }
  ~Touching() { PageDevice::touches = nullptr; }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;
};

// Converts rows of logits to probabilities.
std::vector<float> probabilities(std::vector<float> logits_rv, Index V) {
  for (auto row = logits_rv.begin(); row != logits_rv.end(); row += V) {
    const float most = *std::max_element(row, row + V);
    double sum = 0;
    for (Index v = 0; v < V; ++v) sum += std::exp(static_cast<double>(row[v] - most));
    for (Index v = 0; v < V; ++v) row[v] = static_cast<float>(std::exp(static_cast<double>(row[v] - most)) / sum);
  }
  return logits_rv;
}

}  // namespace

Session::Session(const std::vector<std::string>& words, Numbers& numbers) : numbers_(numbers), name_("the page") {
  command_ = "build/train";
  std::vector<const char*> argv = {"train"};
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
    command_ += " " + shell_word(word);
  }
  TrainArguments a(task_kinds());
  Flags flags("train", "Trains a small network on a text file or on another task.");
  if (read_command_line(flags, a, static_cast<int>(argv.size()), argv.data())) {
    throw UsageError("--help, --version: not available on this page, use them in a terminal");
  }
  if (a.out.empty()) throw UsageError("--out: expected a folder, found \"\"");
  for (const char* flag : {"resume", "init-from"}) {
    if (flags.given(flag))
      throw UsageError("--" + std::string(flag) + ": not available on this page, use it in a terminal");
  }
  check_task(flags, a);
  shape_new_run(flags, a);
  if (a.device.device != "auto" && a.device.device != "cpu") {
    throw UsageError("--device: expected cpu on this page, found " + a.device.device);
  }
  require_device(a.device);
  if (a.training.type != "float") throw UsageError("--type: expected float on this page, found " + a.training.type);
  TaskTraining::Started started = a.training_task().start({.model = a.model, .training = a.training});
  task_ = std::move(started.task);
  task_->set_order(a.training.order);
  notes_ = std::move(started.notes);
  task_->shape(a.model);
  check_model(a.model);
  check_training(a.model, a.training);
  config_ = a.model;
  training_ = a.training;
  metadata_ = task_->metadata();
  const NetworkCapacity capacity = training_capacity(config_, training_, a.recompute);
  memory_ = model_memory(page_device, config_, capacity);
  model_ = make_model(page_device, config_, capacity, training_.dropout);
  weights_ = initial_weights(parameter_table(config_), config_, training_.init_std, training_.seed);
  model_->write(Model::Arena::weights, weights_);
  if (training_.weight_average > 0) model_->write(Model::Arena::average, weights_);
  drawn_ = drawn_task(a.task);
}

Session::Session(std::string_view bytes, const std::string& name, Numbers& numbers)
    : numbers_(numbers), name_(name), trains_(false) {
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  Checkpoint read = checkpoint_of(SafetensorsFile::parse({first, first + bytes.size()}, name));
  config_ = std::move(read.config);
  metadata_ = std::move(read.task);
  weights_ = std::move(read.weights);
  step_ = read.step;
  memory_ = model_memory(page_device, config_, {.B = 1, .C = config_.context, .S = config_.source_context});
  const std::string& task = metadata_.at("task");
  if (task == "sort") task_ = std::make_unique<SortTask>(array_size_of(metadata_));
  if (task == "reviews" && metadata_.at("labels") != "file") task_ = reviews_again(metadata_, config_, {}, name);
  if (task == "digits" && !is_of_file(metadata_)) task_ = digits_again(metadata_, config_, {}, name);
  drawn_ = drawn_task(task);
}

std::vector<float> Session::evaluated_weights() const {
  std::vector<float> weights = weights_;
  if (trains_) weights = model_->read(training_.weight_average > 0 ? Model::Arena::average : Model::Arena::weights);
  for (const WeightTouch& touch : weight_touches_) weights[static_cast<std::size_t>(touch.place)] = touch.value;
  return weights;
}

std::unique_ptr<Model> Session::model_for(const NetworkCapacity& capacity) const {
  auto model = make_model(page_device, config_, capacity);
  model->write(Model::Arena::weights, evaluated_weights());
  return model;
}

Trained Session::trained() const { return {config_, metadata_, evaluated_weights(), step_}; }

std::string Session::description() const {
  JsonObject out;
  JsonArray layers, weights;
  const std::vector<std::string> mixers = config_.mixer_names();
  for (Index layer = 0; layer < config_.own_layers(); ++layer) {
    layers.add_json(JsonObject()
                        .add("name", config_.own_prefix() + "blocks." + to_text(layer) + ".mixer")
                        .add("mixer", mixers[static_cast<std::size_t>(config_.encoder_layers + layer)])
                        .add("heads", config_.heads)
                        .text());
  }
  for (const Parameter& parameter : parameter_table(config_)) {
    weights.add_json(JsonObject().add("name", parameter.name).add("extents", parameter.shape).text());
  }
  const FigureExample subject = {};
  std::vector<std::string> vocabulary;
  if (metadata_.at("task") == "text") {
    const Tokenizer tokenizer = tokenizer_of(metadata_, name_);
    for (Index id = 0; id < tokenizer.size(); ++id) vocabulary.push_back(tokenizer.decode(static_cast<Token>(id)));
  }
  out.add("command", command_)
      .add("task", metadata_.at("task"))
      .add("trains", trains_)
      .add("step", step_)
      .add("steps", trains_ ? training_.steps : step_)
      .add("parameters", memory_.weights)
      .add_json("settings", settings_json(settings_text(config_, idle_flags(config_)) +
                                          (trains_ ? ", " + settings_text(training_) : "")))
      .add_json("layers", layers.text())
      .add_json("weights", weights.text())
      .add("vocabulary", vocabulary)
      .add("context", config_.context)
      .add("batch", training_.batch)
      .add("notes", notes_)
      .add("tokens_per_step", trains_ ? training_.batch * config_.context : 0)
      .add("examples", task_ ? task_->validation_rows() : 0)
      .add("summary", task_ ? task_->summary() : "");
  return out.text();
}

void Session::limit_data(Index batches, double noise) {
  batches_ = batches;
  noise_ = noise;
}

double Session::step() {
  if (!trains_) throw Error(name_ + ": expected a new run to train, found a network of a checkpoint");
  const Index number = batches_ > 0 ? step_ % batches_ : step_;
  Batch batch = task_->training_batch(training_.batch, training_.seed, number);
  for (std::size_t r = 0; noise_ > 0 && r < batch.target_r.size(); ++r) {
    const auto word = [&](std::size_t i) {
      return uniform_of(philox_word(training_.seed, 2 * r + i, static_cast<std::uint32_t>(number), site_of_noise));
    };
    const Index choices = config_.classes > 0 ? config_.classes : config_.vocabulary;
    if (batch.target_r[r] != ignored_target && word(0) < noise_)
      batch.target_r[r] = static_cast<Token>(word(1) * static_cast<double>(choices));
  }
  result_ = model_->train_step(batch, training_, step_);
  if (!std::isfinite(result_.loss) || !std::isfinite(result_.gradient_norm)) {
    const bool loss = !std::isfinite(result_.loss);
    throw Error(std::string(loss ? "the loss" : "the gradient") + " is not finite at step " + to_text(step_ + 1) +
                " (" + to_text(loss ? result_.loss : result_.gradient_norm) +
                "): the run stops; it had no checkpoint yet. A lower --learning-rate may help");
  }
  ++step_;
  return result_.loss;
}

double Session::learning_rate() const {
  return trains_ && step_ > 0 ? shown_learning_rate_at(training_, step_ - 1) : 0;
}

void Session::begin_evaluation() {
  if (!trains_) throw Error(name_ + ": expected a new run to evaluate, found a network of a checkpoint");
  const Index rows = done() ? task_->validation_rows() : task_->evaluation_rows(training_.eval_tokens);
  const Index B = training_.batch / training_.shards;
  evaluated_ = {.rows = rows, .batches = (rows + B - 1) / B};
  if (training_.weight_average == 0 && touches_.empty() && weight_touches_.empty()) return;
  NetworkCapacity capacity = training_capacity(config_, training_, false);
  capacity.training = false;
  evaluated_.model = model_for(capacity);
}

bool Session::evaluate_some() {
  const Index B = training_.batch / training_.shards;
  if (evaluated_.next == evaluated_.batches) return false;
  const Touching touching(touches_);
  Model& model = evaluated_.model ? *evaluated_.model : *model_;
  const Score score = model.evaluate(task_->validation_batch(evaluated_.next * B, B, evaluated_.rows));
  evaluated_.loss += score.loss_sum;
  evaluated_.right += score.right;
  evaluated_.asked += score.asked;
  return ++evaluated_.next < evaluated_.batches;
}

std::string Session::evaluation() const {
  JsonObject out;
  out.add("loss", evaluated_.loss / static_cast<double>(task_->evaluation_targets(evaluated_.rows)));
  if (task_->counts_answers()) {
    out.add("accuracy", static_cast<double>(evaluated_.right) / static_cast<double>(evaluated_.asked))
        .add("right", evaluated_.right)
        .add("answers", evaluated_.asked);
  } else {
    out.add_json("accuracy", "null").add("right", 0).add("answers", 0);
  }
  return out.text();
}

// ---- Inspection ----

FigureExample Session::subject_of(const std::string& input) {
  // "e12": example 12 of the test set; "t3 1 2": a text; "p" and floats: the pixels of a picture, row by row, 0 to 1.
  const std::string rest = input.substr(1);
  const Index longest = std::min(longest_drawn, config_.context);
  if (input[0] == 'p') {
    const PatchGrid grid = grid_of_task(metadata_, name_);
    FigureExample subject = drawn_->subject(trained(), {.text = {}, .example = 0}, longest, name_);
    std::vector<float> pixels(rest.size() / sizeof(float));
    std::memcpy(pixels.data(), rest.data(), pixels.size() * sizeof(float));
    if (static_cast<Index>(pixels.size()) != grid.pixels()) {
      throw Error("picture: expected " + to_text(grid.pixels()) + " pixels, found " +
                  to_text(static_cast<Index>(pixels.size())));
    }
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const PatchGrid::Place place = grid.place_of(static_cast<Index>(i));
      subject.batch.patch_bpi[i] = 2 * pixels[static_cast<std::size_t>(place.y * grid.width + place.x)] - 1;
    }
    subject.batch.target_r.assign(1, ignored_target);
    return subject;
  }
  if (input[0] == 'e') {
    const Index number = from_text<Index>(rest).value_or(0);
    if (metadata_.at("task") != "text")
      return drawn_->subject(trained(), {.text = {}, .example = number}, longest, name_);
    const auto& task = static_cast<const TextTask&>(*task_);
    const Batch row = task.validation_batch(number % task.validation_rows(), 1, task.validation_rows());
    std::string text;
    for (Index c = 0; c < row.C && row.target_r[static_cast<std::size_t>(c)] != ignored_target; ++c) {
      text += task.tokenizer().decode(row.token_bc[static_cast<std::size_t>(c)]);
    }
    return drawn_->subject(trained(), {.text = text}, longest, name_);
  }
  return drawn_->subject(trained(), {.text = rest}, longest, name_);
}

std::string Session::example(Index number) {
  if (!task_) throw Error(name_ + ": expected a task with a test set, found none");
  const FigureExample subject = subject_of("e" + to_text(number));
  const std::string& task = metadata_.at("task");
  JsonObject out;
  out.add("example", number);
  const Batch& batch = subject.batch;
  const auto joined = [&](Index first, Index end, const char* between) {
    std::string text;
    for (Index c = first; c < end; ++c)
      text += (c > first ? between : "") + subject.name_c[static_cast<std::size_t>(c)];
    return text;
  };
  if (task == "digits") {
    const PatchGrid grid = grid_of_task(metadata_, name_);
    std::vector<float> pixels(batch.patch_bpi.size());
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const PatchGrid::Place place = grid.place_of(static_cast<Index>(i));
      pixels[static_cast<std::size_t>(place.y * grid.width + place.x)] = (batch.patch_bpi[i] + 1) / 2;
    }
    numbers_.values.clear();
    out.add("pixels", numbers_.add(pixels)).add("height", grid.height).add("width", grid.width);
  } else if (task == "text") {
    const Tokenizer tokenizer = tokenizer_of(metadata_, name_);
    std::string text;
    for (const Token token : batch.token_bc) text += tokenizer.decode(token);
    out.add("input", text);
  } else {
    const Index end = task == "sort" ? (batch.C + 1) / 2 : batch.C;
    out.add("input", joined(config_.has_cls() ? 1 : 0, end, " "));
  }
  std::string target;
  for (const Token answer : batch.target_r) {
    if (answer == ignored_target) continue;
    target += (target.empty() || task == "text" ? "" : " ") + subject.answer_o[static_cast<std::size_t>(answer)];
  }
  return out.add("target", target).text();
}

std::string Session::look(const std::string& input) {
  FigureExample subject = subject_of(input);
  Batch& batch = subject.batch;
  const bool asked =
      std::any_of(batch.target_r.begin(), batch.target_r.end(), [](Token target) { return target != ignored_target; });
  const NetworkCapacity capacity{
      .B = 1, .C = batch.C, .training = true, .muon = training_.optimizer == "muon", .S = batch.S};
  const Touching touching(touches_);
  const std::unique_ptr<Model> viewer = model_for(capacity);
  numbers_.values.clear();
  JsonArray arrays;
  std::vector<ShownArray> shown;
  Noting noting;
  const auto show = [&](const std::string& name, const std::vector<Index>& shape, const std::vector<double>& values) {
    arrays.add_json(named(name, shape).add("at", numbers_.add(values)).text());
    const std::vector<PageDevice::Read> rows = noting.array_of(values.size());
    if (!rows.empty()) shown.push_back({name, shape, reinterpret_cast<const float*>(rows.front().at)});
  };
  viewer->inspect(batch, show);
  const Index R = static_cast<Index>(batch.target_r.size());
  const std::vector<float> logits_rv = viewer->logits(batch);
  const Index V = static_cast<Index>(logits_rv.size()) / R;
  show("logits_rv", {R, V}, {logits_rv.begin(), logits_rv.end()});
  JsonObject out;
  out.add("columns", V).add("rows", R).add("probabilities", numbers_.add(probabilities(logits_rv, V)));
  JsonArray targets;
  for (const Token target : batch.target_r) {
    targets.add_json(target == ignored_target ? "null" : json(subject.answer_o[static_cast<std::size_t>(target)]));
  }
  out.add("title", subject.title)
      .add("notes", subject.notes)
      .add("tokens", subject.name_c)
      .add_json("targets", targets.text())
      .add("outputs", subject.answer_o);
  gradient_.clear();
  std::string gradients = "[]";
  if (asked) {
    const std::vector<float> losses = viewer->losses(batch);
    double sum = 0, count = 0;
    for (std::size_t r = 0; r < losses.size(); ++r) {
      sum += static_cast<double>(losses[r]);
      count += batch.target_r[r] != ignored_target;
    }
    out.add("loss", sum / count).add("losses", numbers_.add(losses));
    gradients = this->gradients(*viewer, batch, shown);
  } else {
    out.add_json("loss", "null").add_json("losses", "null");
  }
  return out.add_json("arrays", arrays.text()).add_json("gradients", gradients).text();
}

// Gradients of the shown arrays, found during the backward pass. If one array is found several times, the last one is
// complete.
std::string Session::gradients(Model& viewer, const Batch& batch, const std::vector<ShownArray>& shown) {
  std::vector<std::pair<const ShownArray*, std::size_t>> found;
  const PageDevice::SeeGradient see = [&](const float* array, Index width, const float* gradient, Index stride) {
    for (const ShownArray& each : shown) {
      if (each.at < array || each.at >= array + width) continue;
      const Index columns = each.shape.back();
      Index rows = 1;
      for (std::size_t i = 0; i + 1 < each.shape.size(); ++i) rows *= each.shape[i];
      const Index step = stride > 0 ? stride : std::max(width, columns);
      std::erase_if(found, [&](const auto& before) { return before.first == &each; });
      found.emplace_back(&each, numbers_.values.size());
      for (Index row = 0; row < rows; ++row) {
        const float* from = gradient + (each.at - array) + row * step;
        numbers_.values.insert(numbers_.values.end(), from, from + columns);
      }
    }
  };
  PageDevice::sees_gradient = &see;
  gradient_ = viewer.gradient(batch);
  PageDevice::sees_gradient = nullptr;
  JsonArray gradients;
  for (const auto& [array, at] : found) gradients.add_json(named(array->name, array->shape).add("at", at).text());
  return gradients.text();
}

// ---- Memory ----

std::string Session::memory() {
  const Index B = trains_ ? training_.batch / training_.shards : 1, C = config_.context;
  const Batch one_sequence{.B = 1, .C = C, .token_bc = std::vector<Token>(static_cast<std::size_t>(C))};
  const std::vector<Parameter> table = parameter_table(config_);
  const auto is_weight = [&](const std::string& name) {
    return std::any_of(table.begin(), table.end(), [&](const Parameter& each) { return each.name == name; });
  };
  JsonArray arrays;
  Noting noting;
  Stretches known;  // blocks that share memory have their arrays in one place
  const auto list = [&](const std::string& name, std::vector<Index> shape, const std::vector<double>& values) {
    std::size_t bytes = 0;
    const std::vector<PageDevice::Read> rows = noting.array_of(values.size());
    for (const PageDevice::Read& row : rows) {
      bytes += known.add(row.at, row.at + static_cast<std::size_t>(row.count) * row.size);
    }
    if (bytes == 0 || is_weight(name)) return;
    // One array per sequence, if it depends on the batch.
    const Index sequences = name[name.rfind('_') + 1] == 'b' ? B : 1;
    shape.front() *= sequences;
    bytes *= static_cast<std::size_t>(sequences);
    arrays.add_json(named(name, shape).add("type", rows.front().type).add("bytes", bytes).text());
  };
  if (!trains_ || training_.chunk == 0) {
    const std::unique_ptr<Model> viewer = trains_ ? nullptr : model_for({.B = 1, .C = C});
    (viewer ? *viewer : *model_).inspect(one_sequence, list);
  }
  const std::pair<const char*, std::size_t> parts[] = {
      {"weights", memory_.weight_bytes},           {"gradients", memory_.gradient_bytes},
      {"moments", memory_.moment_bytes},           {"activations", memory_.activation_bytes},
      {"borders of chunks", memory_.border_bytes}, {"state", memory_.state_bytes},
      {"scratch", memory_.workspace_bytes}};
  JsonArray told;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) told.add_json(JsonObject().add("name", name).add("bytes", bytes).text());
  }
  return JsonObject().add_json("parts", told.text()).add_json("activations", arrays.text()).text();
}

// ---- Changes ----

std::pair<Index, Index> Session::cores_of(const std::string& layer) const {
  Index first = 0;
  for (Index i = 0; i < config_.layers; ++i) {
    const std::string mixer = config_.mixer_names()[static_cast<std::size_t>(i)];
    const Index count = mixer == "additive" ? 2 : mixer == "identity" ? 0 : 1;
    if (layer == "blocks." + to_text(i) + ".mixer") {
      if (count == 0) throw Error("touch: expected a layer with heads, found " + mixer);
      return {first, count};
    }
    first += count;
  }
  throw Error("touch: expected blocks.N.mixer of a layer, found " + one_line(layer));
}

// Sparse patterns are computed in parts, so heads are changed by their weights: a disabled head has zero output
// weights, and a head with uniform attention has zero key weights.
void Session::touch_around_head(const std::string& layer, const std::string& what, Index head) {
  const Index K = config_.mixer_head_channels(), H = config_.heads * K;
  for (const Parameter& parameter : parameter_table(config_)) {
    const bool is_output = parameter.name == layer + ".output_dh";
    if (what == "off" ? !is_output : !parameter.name.starts_with(layer + ".key_")) continue;
    for (Index i = 0; i < parameter.count; ++i) {
      const Index h = is_output ? i % H : i / (parameter.count / H);
      if (h / K == head) weight_touches_.push_back({parameter.offset + i, 0});
    }
  }
}

void Session::touch(const std::vector<std::vector<std::string>>& changes) {
  touches_.clear();
  weight_touches_.clear();
  const auto whole = [](const std::string& text, Index end) {
    const std::optional<Index> value = from_text<Index>(text);
    if (value && *value >= 0 && *value < end) return *value;
    throw Error("touch: expected a whole number below " + to_text(end) + ", found " + one_line(text));
  };
  const auto real = [](const std::string& text) {
    const std::optional<double> value = from_text<double>(text);
    if (value && std::isfinite(*value)) return static_cast<float>(*value);
    throw Error("touch: expected a number, found " + one_line(text));
  };
  for (const std::vector<std::string>& words : changes) {
    const std::string& what = words.at(0);
    if (what == "weight") {
      const std::vector<Parameter> table = parameter_table(config_);
      const auto parameter =
          std::find_if(table.begin(), table.end(), [&](const Parameter& each) { return each.name == words.at(1); });
      if (parameter == table.end()) throw Error("touch: expected a weight of the network, found " + words.at(1));
      weight_touches_.push_back({parameter->offset + whole(words.at(2), parameter->count), real(words.at(3))});
      continue;
    }
    const auto [first, count] = cores_of(words.at(1));
    if (config_.extras.has_pattern() && (what == "off" || what == "uniform")) {
      touch_around_head(words.at(1), what, whole(words.at(2), config_.heads));
    } else if (what == "off") {
      touches_.push_back({Touch::What::off, first + count - 1, whole(words.at(2), config_.heads)});
    } else if (what == "uniform") {
      for (Index core = first; core < first + count; ++core) {
        touches_.push_back({Touch::What::uniform, core, whole(words.at(2), config_.heads)});
      }
    } else if (what == "logit") {
      const Index core = words.at(2) == "e_bnc" ? first + count - 1 : first;
      touches_.push_back({Touch::What::logit, core, whole(words.at(3), config_.heads),
                          whole(words.at(4), config_.context), real(words.at(5))});
    } else {
      throw Error("touch: expected off, uniform, logit or weight, found " + one_line(what));
    }
  }
}

std::string Session::values(const std::string& name, const std::string& arena) {
  for (const Parameter& parameter : parameter_table(config_)) {
    if (parameter.name != name) continue;
    std::vector<float> all;
    if (arena == "weights") {
      all = trains_ ? model_->read(Model::Arena::weights) : weights_;
    } else if (arena == "gradients") {
      if (gradient_.empty()) throw Error("gradients: expected an inspected input with known targets, found none");
      all = gradient_;
    } else if (!trains_) {
      throw Error(arena + ": expected a new run, found a network of a checkpoint, which has no moments");
    } else if (arena == "first moments") {
      all = model_->read(Model::Arena::first_moments);
    } else if (arena == "second moments") {
      all = model_->read(Model::Arena::second_moments);
    } else {
      throw Error("arena: expected weights, gradients, first moments or second moments, found " + arena);
    }
    numbers_.values.assign(all.begin() + parameter.offset, all.begin() + parameter.offset + parameter.count);
    return JsonObject().add("extents", parameter.shape).add("at", 0).text();
  }
  throw Error("weight: expected a weight of the network, found " + name);
}

// ---- Generation, answers, texts, files ----

void Session::begin_writing(const std::string& prompt, bool has_prompt, const SamplingSettings& settings) {
  generator_.reset();
  Trained model = trained();
  writer_.emplace(text_model(std::move(model.config), model.task, std::move(model.weights), model.step, name_));
  const Tokenizer& tokenizer = writer_->tokenizer;
  written_ = has_prompt ? prompt : opening_of_text(tokenizer);
  prepare_text(written_, "prompt", "", &tokenizer);
  std::vector<Token> tokens = tokenizer.encode(written_, "prompt");
  const Touching touching(touches_);
  generator_ = std::make_unique<Generator>(page_device, *writer_);
  if (tokens.empty()) tokens = tokenizer.encode(opening_of_text(tokenizer), "prompt");
  generator_->feed(tokens);
  sampling_ = settings;
}

std::string Session::write_some(Index tokens) {
  const Touching touching(touches_);
  for (Index i = 0; i < tokens; ++i) written_ += writer_->tokenizer.decode(generator_->next(sampling_));
  return JsonObject().add("text", written_).text();
}

std::string Session::answer(const std::string& input) {
  FigureExample subject = subject_of(input);
  Batch& batch = subject.batch;
  const std::string& task = metadata_.at("task");
  if (task == "text") throw Error(name_ + ": expected a task with answers, found text");
  const Touching touching(touches_);
  const auto model = model_for({.B = 1, .C = batch.C, .S = batch.S});
  JsonObject out;
  numbers_.values.clear();
  const auto likeliest = [](const float* row, Index V) {
    return static_cast<Token>(std::max_element(row, row + V) - row);
  };
  std::string text;
  bool right = true, known = true;
  std::vector<float> logits_rv;
  const Index R = static_cast<Index>(batch.target_r.size());
  if (task == "sort") {
    // Predicts digit by digit. Each predicted digit is the next input.
    const Index length = (batch.C + 1) / 2;
    for (Index i = 0; i < length; ++i) {
      logits_rv = model->logits(batch);
      const Index V = static_cast<Index>(logits_rv.size()) / R, c = length - 1 + i;
      const Token digit = likeliest(logits_rv.data() + c * V, V);
      right = right && digit == batch.target_r[static_cast<std::size_t>(c)];
      if (c + 1 < batch.C) batch.token_bc[static_cast<std::size_t>(c + 1)] = digit;
      text += (i > 0 ? " " : "") + subject.answer_o[static_cast<std::size_t>(digit)];
    }
  } else {
    logits_rv = model->logits(batch);
    const Token best = likeliest(logits_rv.data(), static_cast<Index>(logits_rv.size()) / R);
    text = subject.answer_o[static_cast<std::size_t>(best)];
    known = batch.target_r.front() != ignored_target;
    right = known && best == batch.target_r.front();
  }
  const Index V = static_cast<Index>(logits_rv.size()) / R;
  out.add("answer", text)
      .add_json("right", known ? json(right) : "null")
      .add("outputs", subject.answer_o)
      .add("columns", V)
      .add("rows", R)
      .add("probabilities", numbers_.add(probabilities(logits_rv, V)));
  return out.text();
}

std::string Session::score(const std::string& text) {
  Trained model = trained();
  const TextModel of_text =
      text_model(std::move(model.config), model.task, std::move(model.weights), model.step, name_);
  const Touching touching(touches_);
  std::string prepared = text;
  prepare_text(prepared, "text", "", &of_text.tokenizer);
  std::vector<float> losses;
  std::vector<std::string> characters;
  const Evaluation evaluation = evaluate_text(page_device, "float", of_text, {.context = config_.context}, prepared,
                                              "text", [&](std::string_view character, std::optional<double> nats) {
                                                characters.emplace_back(character);
                                                losses.push_back(static_cast<float>(nats.value_or(0)));
                                              });
  numbers_.values.clear();
  return JsonObject()
      .add("line", evaluation_line("text", evaluation))
      .add("nats", evaluation.nats)
      .add("loss", evaluation.nats / static_cast<double>(std::max<std::size_t>(characters.size(), 2) - 1))
      .add("characters", characters)
      .add("losses", numbers_.add(losses))
      .text();
}

std::vector<char> Session::checkpoint() {
  const Checkpoint trained{this->trained(), {}, 0};  // with changed weights, if any
  std::vector<char> bytes;
  checkpoint_bytes("model.safetensors", trained, [&](const void* data, std::size_t size) {
    const auto* first = static_cast<const char*>(data);
    bytes.insert(bytes.end(), first, first + size);
  });
  return bytes;
}

}  // namespace abh
