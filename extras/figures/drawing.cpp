#include "extras/figures/drawing.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/available.hpp"
#include "extras/figures/gallery.hpp"
#include "extras/figures/picture_frame.hpp"
#include "files/atomic_file.hpp"
#include "files/folder_lock.hpp"
#include "files/text_file.hpp"
#include "network/model.hpp"

namespace abh {

namespace {

constexpr Index most_at_once = 32;  // copies of the sequence per batch, each with one position masked

// "dot", or "dot, metric" if layers differ.
std::string mixers_of_layers(const ModelConfig& config) {
  std::string names;
  for (const char c : config.mixer) names += c == ',' ? std::string(", ") : std::string(1, c);
  return names;
}

// As many figures as fit; a single head of a single layer is never omitted.
PicturePage page_of(const Observed& seen, const FigureExample& subject, const TaskFigures& task,
                    const PicturePage& empty) {
  Thinning thinning;
  while (true) {
    PicturePage page = empty;
    if (thinning.heads > 1 || thinning.layers > 1) {
      page.introduction.push_back("The network is too large for one page, which shows heads 0, " +
                                  to_text(thinning.heads) + ", ... of layers 0, " + to_text(thinning.layers) +
                                  ", and so on.");
    }
    page.sections = gallery(seen, subject, thinning);
    PictureSection own = task.section(subject, seen, thinning);
    if (!own.figures.empty()) page.sections.insert(page.sections.begin() + 1, std::move(own));
    const bool thins_heads = thinning.heads < seen.config().heads;
    if (page.bytes() <= largest_drawing || (!thins_heads && thinning.layers >= seen.config().own_layers())) return page;
    (thins_heads ? thinning.heads : thinning.layers) *= 2;
  }
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    throw Error(folder + ": cannot make this folder" + (error ? ": " + error.message() : ""));
  }
}

// Figures named by an older page in this folder. Throws Error if the page is not from draw, so that foreign files are
// kept.
std::vector<std::string> older_pictures(const std::string& index) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(index, none) || std::filesystem::file_size(index, none) == 0) return {};
  const auto files = pictures_named_by(read_text_file(index));
  if (!files) throw Error(index + ": was not written by draw, expected another --out");
  return *files;
}

// Removes an older page first and then its figures: a page in the folder always has its own figures.
void drop_page(const std::filesystem::path& folder, const std::vector<std::string>& pictures) {
  std::error_code ignored;
  std::filesystem::remove(folder / "index.html", ignored);
  for (const std::string& file : pictures) {
    const std::filesystem::path name = file;
    if (name == name.filename() && name.extension() == ".svg") std::filesystem::remove(folder / name, ignored);
  }
}

// Writes the figures, then the page.
void write_page(const PicturePage& page, const std::filesystem::path& folder) {
  for (const PictureSection& section : page.sections) {
    for (const Figure& figure : section.figures) {
      write_file_atomically((folder / figure.file).string(), figure.svg);
    }
  }
  write_file_atomically((folder / "index.html").string(), page.html());
}

class Drawing : public TaskCommand {
 public:
  explicit Drawing(std::unique_ptr<TaskFigures> task) : task_(std::move(task)) {}

  void add_flags(Flags& flags) override { task_->add_flags(flags); }

  void check(const Flags& flags) const override {
    if (flags.given("text") == flags.given("example")) {
      throw UsageError(std::string("--text, --example: expected one of the two, found ") +
                       (flags.given("text") ? "both" : "none"));
    }
    if (flags.given("text") && flags.value("text").empty()) throw UsageError("--text: expected a text, found \"\"");
    if (flags.given("out") && flags.value("out").empty()) throw UsageError("--out: expected a folder, found \"\"");
    task_->check(flags);
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags& flags) override {
    TaskFigures::FigureRequest request;
    if (flags.given("text")) request.text = flags.value("text");
    if (request.text && flags.given("data")) throw UsageError("--data: expected together with --example, found --text");
    if (flags.given("example")) request.example = *from_text<Index>(flags.value("example"));
    const ModelConfig& config = trained.config;
    const Index longest = config.has_position_table() ? std::min(longest_drawn, config.context) : longest_drawn;
    FigureExample subject = task_->subject(trained, request, longest, source);

    std::string folder = flags.value("out");
    if (folder.empty()) folder = std::filesystem::path(source).replace_filename("pictures").string();
    make_folder(folder);
    const FolderLock lock(folder);  // two concurrent runs would mix their figures
    const std::string index = (std::filesystem::path(folder) / "index.html").string();
    const std::vector<std::string> older = older_pictures(index);
    // Checks that the page can be written before the computation starts.
    { const AtomicFile probe(index); }

    const Index C = subject.batch.C;
    const NetworkCapacity capacity{.B = std::min(C, most_at_once), .C = C, .S = subject.batch.S};
    require_memory(host_bytes(machine.device, model_memory(machine.device, config, capacity, machine.type)));
    const auto model = make_model(machine.device, config, capacity, 0, machine.type);
    model->write(Model::Arena::weights, trained.weights);
    if (config.classes > 0 && subject.batch.target_r.front() == ignored_target) {
      subject.notes.push_back("The label is unknown: the loss is that of the network's own prediction.");
    }
    const Observed seen(*model, config, trained.weights, subject.batch, capacity.B);

    for (const std::string& note : subject.notes) std::cout << one_line("note: " + note) << "\n";
    const std::string network = to_text(config.layers) + (config.layers == 1 ? " layer of " : " layers of ") +
                                mixers_of_layers(config) + ", " + to_text(config.channels) + " channels, " +
                                to_text(config.heads) + (config.heads == 1 ? " head" : " heads");
    PicturePage page{.title = "Activations of a network for " + subject.title,
                     .introduction = {network + ", after " + to_text(trained.step) + " steps; " + to_text(C) +
                                      " positions, " + short_number(seen.losses().mean, 4) + " nats per target."},
                     .sections = {}};
    page.introduction.insert(page.introduction.end(), subject.notes.begin(), subject.notes.end());
    page.introduction.push_back(
        "Attention is not an explanation: a prediction need not depend on a position with a large weight, and may "
        "depend on others. So the caption of every map gives the loss after masking the position of most weight.");
    page = page_of(seen, subject, *task_, page);
    drop_page(folder, older);
    write_page(page, folder);
    Index count = 0;
    for (const PictureSection& section : page.sections) count += static_cast<Index>(section.figures.size());
    std::cout << "draw: " << count << " pictures of " << one_line(subject.title) << ", "
              << short_number(seen.losses().mean, 4) << " nats\n"
              << "pictures: " << one_line(index) << "\n";
    return 0;
  }

 private:
  std::unique_ptr<TaskFigures> task_;
};

}  // namespace

std::unique_ptr<TaskCommand> drawing(std::unique_ptr<TaskFigures> task) {
  return std::make_unique<Drawing>(std::move(task));
}

}  // namespace abh
