#include <optional>
#include <utility>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "files/text_file.hpp"
#include "tasks/plain_text.hpp"
#include "tasks/text/text.hpp"
#include "tasks/text/warm_start.hpp"

namespace abh {

namespace {

class TextTraining : public TaskTraining {
 public:
  TextTraining() { data = "data/tinyshakespeare.txt"; }

  void add_flags(Flags& flags) override {
    flags.text("data", data, "FILE",
               "task text: text in UTF-8 (any file with --tokenizer byte), by default Tiny Shakespeare, whose last "
               "10 % are the validation split (with --resume, another path must contain the same text)");
    flags.choice("tokenizer", tokenizer_, {"char", "byte"},
                 "tokens of the tasks text and pairs; char: Unicode characters; byte: bytes of any file");
  }

  void check(const Flags&) const override {
    if (data.empty()) throw UsageError("--data: expected a file, found \"\"");
  }

  void take(const Metadata& task, const std::string& source) override {
    tokenizer_ = tokenizer_of(task, source).kind();
  }

  void require_teachable(const ModelConfig& model, const std::string& source) const override {
    if (model.classes) throw Error(source + ": this model is a classifier: it cannot learn to generate a text");
  }
  bool predicts() const override { return true; }

  Started start(Request request) const override {
    Started started;
    const auto make = [&](const std::string& text, const Tokenizer& tokenizer) {
      started.task = std::make_unique<TextTask>(data, text, tokenizer, request.model.context);
    };
    if (request.task) {
      const std::string text = text_of_run(request, started.notes);
      make(text, tokenizer_of(*request.task, request.source));
      return started;
    }
    std::string text = read_text_file(data);
    if (request.trained) {
      Trained& trained = *request.trained;
      const TextModel old =
          text_model(std::move(trained.config), trained.task, std::move(trained.weights), trained.step, request.source);
      started.notes = prepare_text(text, data, data, &old.tokenizer);
      WarmStart warm =
          warm_start(old, request.model.context, text, data, request.training.init_std, request.training.seed);
      started.weights = std::move(warm.weights);
      started.summary = std::move(warm.summary);
      make(text, warm.tokenizer);
      return started;
    }
    const Tokenizer bytes = Tokenizer::of_bytes();
    const bool of_bytes = tokenizer_ == "byte";
    started.notes = prepare_text(text, data, data, of_bytes ? &bytes : nullptr);
    make(text, of_bytes ? bytes : Tokenizer::of_characters(text, data));
    return started;
  }

 private:
  // Text of a resumed run, identified by its fingerprint; the stored path is a hint.
  std::string text_of_run(const Request& request, std::vector<std::string>& notes) const {
    const std::string wanted = "; expected the text that the run in " + request.run + " was trained on (" +
                               *request.fingerprint + "), give its path with --data";
    std::string text;
    try {
      text = read_text_file(data);
    } catch (const Error& error) {
      throw Error(error.what() + wanted);
    }
    const std::string found = fingerprint(text);
    if (found == *request.fingerprint) return text;
    if (const std::optional<std::string> note = drop_mark(text, data);
        note && fingerprint(text) == *request.fingerprint) {
      notes.push_back(*note);
      return text;
    }
    throw Error(data + ": another text (" + found + ")" + wanted);
  }

  std::string tokenizer_ = "char";
};

}  // namespace

std::unique_ptr<TaskTraining> text_training() { return std::make_unique<TextTraining>(); }

}  // namespace abh
