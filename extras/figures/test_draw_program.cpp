// draw as its users meet it.

#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "extras/figures/picture_page.hpp"
#include "network/mixers.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/settings.hpp"
#include "tests/harness/xml.hpp"

namespace abh {
namespace {

Outcome draw(const Arguments& arguments, const RunOptions& options = {}) {
  return run_program_of_build("draw", Arguments{"--threads", "1"} + arguments, options);
}

std::string page_of(const std::string& folder) { return read_bytes(folder + "/index.html"); }

// Draws, and checks every property of a page; returns its pictures.
std::vector<std::string> require_page(const Arguments& arguments, const std::string& folder) {
  const Outcome outcome = require_success(draw(arguments + Arguments{"--out", folder}));
  CHECK(last_line(outcome.out) == "pictures: " + folder + "/index.html");
  const std::string html = page_of(folder);
  CHECK(well_formed(html.substr(html.find('\n') + 1)));
  CHECK(count(html, "<script") == 0);
  CHECK(count(html, "http") == 0);
  CHECK(contains(html, "Attention is not an explanation"));
  const std::vector<std::string> files = pictures_named_by(html).value();
  CHECK(count(html, " alt=\"") == files.size());
  CHECK(count(html, " alt=\"\"") == 0);
  CHECK(count(html, "<figcaption></figcaption>") == 0);
  std::size_t bytes = html.size();
  for (const std::string& file : files) {
    INFO(file);
    const std::string svg = read_bytes(folder + "/" + file);
    CHECK(well_formed(svg));
    CHECK(count(svg, "http") == 1);
    CHECK(count(svg, "<title id=\"title\"></title>") + count(svg, "<desc id=\"desc\"></desc>") == 0);
    CHECK(contains(svg, "prefers-color-scheme:dark"));
    CHECK(count(svg, "nan") + count(svg, "inf\"") == 0);
    bytes += svg.size();
  }
  CHECK(bytes <= 2000000);
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == static_cast<long>(files.size()) + 1);
  return files;
}

bool has(const std::vector<std::string>& files, const std::string& file) {
  return std::find(files.begin(), files.end(), file) != files.end();
}

}  // namespace

TEST_CASE("programs: draw makes pictures of every mixer", "[programs][drawing]") {
  const TestFolder folder;
  for (const MixerProperties& mixer : Mixers::properties) {
    const std::string name = mixer.name;
    CAPTURE(name);
    const std::string run = trained(with(words(flags_of(name)), {"--conv-kernel", "3"}));
    const auto files = require_page({"--checkpoint", run, "--text", "the cat"}, folder / name);
    for (const char* file : {"answers.svg", "worth.svg", "tokens.svg", "stream.svg", "layer-0-taps.svg"}) {
      CHECK(has(files, file));
    }
    CHECK(has(files, "positions.svg") == !mixer.takes("segments"));
    const bool looks = name != "identity";
    CHECK(has(files, "layer-0-rows.svg") == !looks);
    CHECK((has(files, "layer-0-head-0.svg") || has(files, "layer-0-a-head-0.svg")) == looks);
    CHECK(has(files, "layer-0-head-1.svg") == (looks && name != "average" && name != "additive"));
    CHECK(has(files, "layer-0-e-head-1.svg") == (name == "additive"));
    CHECK(has(files, "layer-0-gate-u.svg") == (name == "additive"));
    CHECK(has(files, "layer-0-gate.svg") == (name == "leap"));
    CHECK(has(files, "layer-0-metric-head-1.svg") == (name == "metric" || name == "quadratic"));
    CHECK(has(files, "layer-0-distance-head-1.svg") == (name == "metric" || name == "quadratic"));
    CHECK(has(files, "layer-0-product-head-1.svg") == (name == "dot" || name == "transformer_xl"));
  }
}

TEST_CASE("programs: draw follows the settings of a network", "[programs][drawing]") {
  const TestFolder folder;
  const std::vector<Arguments> settings = {
      words("--mixer leap --window 3 --positions alibi"),
      words("--mixer additive --additive-values own --additive-projection 1 --additive-skip normed"),
      words("--mixer dot --positions rotary --rescale 4 --tokenizer byte"),
      words("--mixer metric --positions sinusoidal --embedding-norm 1"),
      words("--mixer average --window 2 --positions none --final-norm 0"),
      words("--layers 2 --mixer dot --span 9 --ramp 4 --attention-window 0,3"),
      words("--layers 2 --mixer dot,identity --conv-kernel 2 --conv-groups 0")};
  for (const Arguments& flags : settings) {
    CAPTURE(flags);
    const std::string run = trained(flags);
    const auto files = require_page({"--checkpoint", run, "--text", "the cat"}, folder / "page");
    const bool adds = std::count(flags.begin(), flags.end(), "alibi") + std::count(flags.begin(), flags.end(), "none") +
                          std::count(flags.begin(), flags.end(), "rotary") ==
                      0;
    CHECK(has(files, "positions.svg") == adds);
    CHECK(has(files, "layer-1-spans.svg") == (std::count(flags.begin(), flags.end(), "--span") > 0));
  }
  CHECK(contains(page_of(folder / "page"), "Layer 1: identity"));
  // The same words and the same bytes, with any number of threads, and repeated over existing files.
  const std::string html = page_of(folder / "page"), run = trained(settings.back());
  require_success(run_program_of_build(
      "draw", {"--checkpoint", run, "--text", "the cat", "--out", folder / "page", "--threads", "3"}));
  CHECK(page_of(folder / "page") == html);
  // Next to the checkpoint, and with the plain loops.
  const std::string copy = folder / "run";
  copy_run(run, copy);
  CHECK(last_line(require_success(draw({"--checkpoint", copy, "--text", "the cat", "--device", "plain"})).out) ==
        "pictures: " + copy + "/pictures/index.html");
}

TEST_CASE("programs: draw shows each task in its own form", "[programs][drawing]") {
  const TestFolder folder;
  const auto train_on = [&](const std::string& task, const std::string& more, const std::string& run) {
    require_success(
        train(words("--task " + task + " --steps 1 --threads 1 " + more) + Arguments{"--out", folder / run}));
    return folder / run;
  };
  const std::string sort = train_on("sort", "", "sort");
  auto files = require_page({"--checkpoint", sort, "--text", "3 1 2 1 3 2"}, folder / "a");
  CHECK(has(files, "way-2-2.svg"));
  CHECK(contains(page_of(folder / "a"), "the array 3 1 2 1 3 2"));
  require_page({"--checkpoint", sort, "--example", "167"}, folder / "a");
  require_refusal(draw({"--checkpoint", sort, "--example", "168", "--out", folder / "a"}), 1,
                  {"--example: expected a whole number from 0 to 167", "found 168"});
  require_refusal(draw({"--checkpoint", sort, "--text", "3 1 2 1 3 4", "--out", folder / "a"}), 1,
                  {"--text: expected 6 digits from 1 to 3", "\"4\""});
  require_refusal(draw({"--checkpoint", sort, "--text", "3 1", "--out", folder / "a"}), 1,
                  {"--text: expected 6 digits"});
  const std::string long_arrays = train_on("sort", "--length 70 --batch 2", "long");
  require_refusal(draw({"--checkpoint", long_arrays, "--example", "0", "--out", folder / "a"}), 1,
                  {"at most 64 digits"});
  // Arrays with their answers of 128 positions in all, and the next longer ones.
  const std::string smallest_network = " --layers 1 --channels 4 --heads 1 --batch 1 --eval-tokens 10 --steps 0";
  for (const std::string length : {"64", "65"}) {
    const std::string run = train_on("sort", "--length " + length + smallest_network, "sort_" + length);
    const Arguments first = {"--checkpoint", run, "--example", "0"};
    if (length == "64") require_page(first, folder / "a");
    if (length == "65") require_refusal(draw(first + Arguments{"--out", folder / "a"}), 1, {"at most 64 digits"});
  }
  // Sources and targets: the one or the other may be too long. The end is a position of the target.
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += std::to_string(100 + i) + "\ty\n";
  for (const auto& [source, target] : {std::pair{128, 127}, {129, 1}, {1, 128}}) {
    lines += std::string(static_cast<std::size_t>(source), '1') + "\t" +
             std::string(static_cast<std::size_t>(target), 'y') + "\n";
  }
  write_bytes(folder / "pairs.tsv", lines);
  const std::string pairs = train_on("pairs",
                                     "--context 130 --data " + (folder / "pairs.tsv") +
                                         " --encoder-layers 1 --decoder-layers 1 --channels 4 --heads 1 --batch 1 "
                                         "--eval-tokens 10 --steps 0",
                                     "pairs");
  for (const char* example : {"0", "1", "2"}) {
    const Arguments shown = {"--checkpoint", pairs, "--data", folder / "pairs.tsv", "--example", example};
    if (*example == '0') require_page(shown, folder / "a");
    if (*example != '0') {
      require_refusal(draw(shown + Arguments{"--out", folder / "a"}), 1,
                      {"at most 128 characters for a drawing, found "});
    }
  }

  for (const std::string pooling : {"mean", "cls"}) {
    const std::string reviews = train_on("reviews", "--class-pooling " + pooling, "reviews_" + pooling);
    files = require_page({"--checkpoint", reviews, "--text", "Not good, very bright!"}, folder / "b");
    CHECK(has(files, "classes.svg"));
    CHECK(contains(page_of(folder / "b"), "The label is unknown"));
    CHECK(contains(page_of(folder / "b"), "\u201cnot good very bright\u201d"));
    require_page({"--checkpoint", reviews, "--example", "1999"}, folder / "b");
    CHECK(count(page_of(folder / "b"), "The label is unknown") == 0);
    require_refusal(draw({"--checkpoint", reviews, "--text", "superb", "--out", folder / "b"}), 1,
                    {"--text: expected words of made-up reviews, very, not, good", "\"superb\""});
    require_refusal(draw({"--checkpoint", reviews, "--text", "!?", "--out", folder / "b"}), 1,
                    {"--text: expected a word"});

    const std::string digits = train_on("digits", "--class-pooling " + pooling, "digits_" + pooling);
    files = require_page({"--checkpoint", digits, "--example", "3"}, folder / "c");
    CHECK(has(files, "patches-1-3.svg"));
    CHECK(contains(page_of(folder / "c"), pooling == "cls" ? "Attention from cls" : "Attention from all patches"));
    require_refusal(draw({"--checkpoint", digits, "--text", "3", "--out", folder / "c"}), 2,
                    {"--text: expected --example"});
  }
  // A file of one's own: words that are not known are one, and examples are counted in the file.
  lines.clear();
  for (int i = 0; i < 40; ++i) lines += i % 2 == 0 ? "good\ta fine film\n" : "bad\ta poor film\n";
  write_bytes(folder / "texts.tsv", lines);
  const std::string own = train_on("reviews", "--context 5 --data " + (folder / "texts.tsv"), "own");
  require_page({"--checkpoint", own, "--text", "a superb film, and then some"}, folder / "d");
  CHECK(contains(page_of(folder / "d"), "Unknown words, shown as ?: 4."));
  CHECK(contains(page_of(folder / "d"), "Of 6 words the first 5 are drawn."));
  require_page({"--checkpoint", own, "--example", "3", "--data", folder / "texts.tsv"}, folder / "d");
  require_refusal(draw({"--checkpoint", own, "--example", "3", "--out", folder / "d"}), 1, {"expected --data FILE"});
  require_refusal(draw({"--checkpoint", own, "--text", "a", "--data", folder / "texts.tsv", "--out", folder / "d"}), 2,
                  {"--data: expected together with --example, found --text"});
}

TEST_CASE("programs: a large network is drawn in part, and a long text is cut", "[programs][drawing]") {
  const TestFolder folder;
  const std::string run = trained(words("--layers 12 --heads 12 --channels 96 --context 200 --mixer dot --steps 1"));
  const std::string text = some_text(300);
  const auto files = require_page({"--checkpoint", run, "--text", text}, folder / "page");
  CHECK(has(files, "layer-11-head-0.svg"));
  CHECK(!has(files, "layer-0-head-1.svg"));
  CHECK(contains(page_of(folder / "page"), "The network is too large for one page"));
  CHECK(contains(page_of(folder / "page"), "Of 300 characters the first 128 are drawn."));
  // A short one has room for more heads, and pictures of the older page are gone.
  const auto few = require_page({"--checkpoint", run, "--text", "the"}, folder / "page");
  CHECK(few.size() > files.size());
  // Positions that are a table end with it.
  const std::string small = trained();
  require_page({"--checkpoint", small, "--text", text}, folder / "small");
  CHECK(contains(page_of(folder / "small"), "Of 300 characters the first 8 are drawn."));
}

TEST_CASE("programs: draw refuses invalid settings", "[programs][drawing]") {
  const std::string run = trained();
  const TestFolder folder;
  const std::string help = require_success(draw({"--help"})).out;
  for (const char* flag :
       {"--checkpoint", "--text", "--example", "--out", "--data", "--device", "--threads", "--version"}) {
    CHECK(contains(help, flag));
  }
  CHECK(contains(require_success(draw({"--version"})).out, "draw"));
  const auto asked = [&](const Arguments& arguments, int status, const std::vector<std::string>& said) {
    CAPTURE(arguments);
    require_refusal(draw(Arguments{"--checkpoint", run, "--out", folder / "page"} + arguments), status, said);
    CHECK(!exists(folder / "page/index.html"));
  };
  asked({}, 2, {"--text, --example: expected one of the two, found none"});
  asked({"--text", "a", "--example", "1"}, 2, {"found both"});
  asked({"--text", ""}, 2, {"--text: expected a text"});
  asked({"--example", "-1"}, 2, {"--example"});
  asked({"--example", "1"}, 2, {"--example: expected --text", "trained on texts"});
  asked({"--txt", "a"}, 2, {"--text"});
  asked({"--text", "t"}, 1, {"--text: expected at least 2 characters, found 1"});
  asked({"--text", "the \u00e9"}, 1, {"--text", "U+00E9"});
  asked({"--text", "the\xff"}, 1, {"--text"});
  asked({"--text", "the", "--data", "x"}, 2, {"--data: expected only with reviews"});
  require_refusal(draw({"--checkpoint", run, "--text", "the", "--out", ""}), 2, {"--out"});
  require_refusal(draw({"--checkpoint", folder / "none", "--text", "the", "--out", folder / "page"}), 1, {"none"});

  // Where the pictures cannot go.
  write_bytes(folder / "taken", "no folder");
  require_refusal(draw({"--checkpoint", run, "--text", "the", "--out", folder / "taken"}), 1, {"taken"});
  require_refusal(draw({"--checkpoint", run, "--text", "the", "--out", "/proc/pictures"}), 1, {"/proc/pictures"});
  RunOptions full;
  full.largest_file = 1000;
  require_refusal(draw({"--checkpoint", run, "--text", "the", "--out", folder / "full"}, full), 1, {"full/", "svg"});
  CHECK(!exists(folder / "full/index.html"));
  // A page does not stay with pictures of another one.
  require_success(draw({"--checkpoint", run, "--text", "the cat", "--out", folder / "full"}));
  require_refusal(draw({"--checkpoint", run, "--text", "the", "--out", folder / "full"}, full), 1, {"full/", "svg"});
  CHECK(!exists(folder / "full/index.html"));
  // A page of another program is not changed, nor are other files.
  std::filesystem::create_directories(folder / "mine");
  write_bytes(folder / "mine/index.html", "<html><img src=\"mine.svg\"/></html>");
  require_refusal(draw({"--checkpoint", run, "--text", "the", "--out", folder / "mine"}), 1,
                  {"was not written by draw"});
  std::filesystem::remove(folder / "mine/index.html");
  write_bytes(folder / "mine/mine.svg", "<svg/>");
  require_success(draw({"--checkpoint", run, "--text", "the", "--out", folder / "mine"}));
  require_success(draw({"--checkpoint", run, "--text", "the cat", "--out", folder / "mine"}));
  CHECK(read_bytes(folder / "mine/mine.svg") == "<svg/>");
}

TEST_CASE("programs: of concurrent draws into one folder one writes a complete page, others are refused",
          "[programs][drawing]") {
  const std::string run = trained();
  const TestFolder folder;
  const std::vector<std::string> texts = {"the cat", "a red hat"};
  const auto drawn = [&](const std::string& text, const std::string& out) {
    return draw({"--checkpoint", run, "--text", text, "--out", folder / out});
  };
  const auto files_of = [&](const std::string& out) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder / out)) {
      files[entry.path().filename().string()] = read_bytes(entry.path().string());
    }
    return files;
  };
  for (const std::string& text : texts) require_success(drawn(text, text));
  for (int round = 0; round < 5; ++round) {
    std::vector<Outcome> outcomes(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      threads.emplace_back([&, i] { outcomes[i] = drawn(texts[i % 2], "shared"); });
    }
    for (std::thread& thread : threads) thread.join();
    std::size_t complete = 0;
    for (const Outcome& outcome : outcomes) {
      complete += outcome.status == 0;
      if (outcome.status != 0) require_refusal(outcome, 1, {"shared: another run is writing into this folder"});
    }
    CHECK(complete > 0);
    const auto files = files_of("shared");
    CHECK((files == files_of(texts[0]) || files == files_of(texts[1])));
  }
}

}  // namespace abh
