// Every equation has a tag, NAME.NUMBER in parentheses, that stands beside it in the chapter, in the header and on the
// line that computes it on every device. This test reads the sources and compares the tags. It also sees to it that
// Markdown leaves the equations of the chapters alone.
//
// Layers whose names begin with that of another one, as pooling_decay and pooling_sliding_window with pooling, are a
// family: what one of them computes may stand in a file of any.

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"

namespace abh {
namespace {

struct Tag {
  std::string name;
  int number;
  bool after_code;  // in a comment that follows code on its line
  bool definition;  // followed by that word
  bool operator==(const Tag&) const = default;
};

struct Tags {
  std::vector<Tag> found;
  std::vector<std::string> malformed;  // a name, a point and a digit, but then something else
  std::vector<std::string> at_tails;   // lines with a tag on code that computes nothing
};

bool in_name(char c) { return std::islower(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

// The start of a line's comment; true: code comes before it.
bool has_code_before_comment(const std::string& line) {
  const std::size_t comment = line.find("//");
  const std::size_t first = line.find_first_not_of(" \t");
  return first != std::string::npos && comment != std::string::npos && first < comment;
}

// The code of a line outside brackets that open in this line, except for bodies of lambdas; true: the line closes a
// bracket of an earlier line.
struct OwnLevel {
  std::string code;
  bool closes = false;
};
OwnLevel own_level(const std::string& code) {
  OwnLevel own;
  std::string open;  // the brackets, '}' for a body
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    const bool inside = open.find_first_not_of('}') != std::string::npos;
    if (!inside) own.code += c;
    if (c == '(' || c == '[' || c == '{') {
      open += c == '{' && i > 1 && code[i - 2] == ')' ? '}' : c;
    } else if (c == ')' || c == ']' || c == '}') {
      own.closes = own.closes || open.empty();
      if (!open.empty()) open.pop_back();
    }
  }
  return own;
}

// True for code that holds an operator, or begins a call or a block. Other lines are tails of statements or jumps,
// where a tag has no place.
bool computes(const std::string& code) {
  const std::string text = matches(code, "^\\s*(?:if \\(.*\\) (?=continue|break|return;))?(.*\\S)").at(0)[1];
  const OwnLevel own = own_level(text);
  if (!matches(own.code, " [-+*/]?= | [-+*/?<>|&^] | [<>=&|]{2} |\\+\\+|^return \\S").empty()) return true;
  const bool is_tail = own.closes || (text.front() == ':' && text.back() == ';');
  return !is_tail && !matches(own.code, "[\\w>][({]|\\{$").empty();
}

Tags tags_of_line(std::string line) {
  // Chapters may write an underscore as \_.
  for (std::size_t at; (at = line.find("\\_")) != std::string::npos;) line.erase(at, 1);
  const bool after_code = has_code_before_comment(line);
  Tags tags;
  for (std::size_t open = line.find('('); open != std::string::npos; open = line.find('(', open + 1)) {
    std::size_t at = open + 1;
    while (at < line.size() && in_name(line[at])) ++at;
    const std::size_t point = at;
    if (point == open + 1 || point + 1 >= line.size() || line[point] != '.' || !is_digit(line[point + 1])) continue;
    for (at = point + 1; at < line.size() && is_digit(line[at]);) ++at;
    if (at < line.size() && line[at] == ')' && at - point < 6) {
      tags.found.push_back({line.substr(open + 1, point - open - 1), std::stoi(line.substr(point + 1)), after_code,
                            line.compare(at + 1, 11, " definition") == 0});
    } else {
      tags.malformed.push_back(line.substr(open, at - open + 1));
    }
  }
  if (after_code && !tags.found.empty() && !computes(line.substr(0, line.find("//")))) tags.at_tails.push_back(line);
  return tags;
}

Tags tags_of(const std::string& text) {
  Tags all;
  for (const std::string& line : lines_of(text)) {
    const Tags tags = tags_of_line(line);
    all.found.insert(all.found.end(), tags.found.begin(), tags.found.end());
    all.malformed.insert(all.malformed.end(), tags.malformed.begin(), tags.malformed.end());
    all.at_tails.insert(all.at_tails.end(), tags.at_tails.begin(), tags.at_tails.end());
  }
  return all;
}

// Files by their path in the repository.
using Sources = std::map<std::string, std::string>;

std::string stem(const std::string& path) { return std::filesystem::path(path).stem().string(); }

bool ends_with(const std::string& path, const std::string& end) {
  return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
}

bool is_in(const std::string& path, const std::string& folder, const std::string& extension) {
  const std::filesystem::path p(path);
  return p.parent_path() == folder && p.extension() == extension;
}

std::string folder_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

// extras/FEATURE, the folder of all files of a feature.
bool is_of_feature(const std::string& path) { return path.rfind("extras/", 0) == 0; }

// Device of a file: from its folder or, in a feature's folder, from the end of its name; else empty.
std::string device_of(const std::string& path) {
  for (const std::string device : {"plain", "cpu", "cuda"}) {
    if (is_of_feature(path) ? ends_with(stem(path), "_" + device) : folder_of(path) == device) return device;
  }
  return "";
}

bool is_of_device(const std::string& path) { return !device_of(path).empty(); }

// The name of a device's file without the device.
std::string device_stem(const std::string& path) {
  const std::string name = stem(path);
  return is_of_feature(path) ? name.substr(0, name.size() - device_of(path).size() - 1) : name;
}

// Chapters, and the other documents of features.
bool is_document(const std::string& path) {
  return is_in(path, "docs/layers", ".md") || is_in(path, "docs/blocks", ".md") ||
         (is_of_feature(path) && ends_with(path, ".md"));
}

std::string printed(const std::string& name, int number) { return "(" + name + "." + std::to_string(number) + ")"; }

class TagCheck {
 public:
  explicit TagCheck(const Sources& sources) : sources_(sources) {
    for (const auto& [path, text] : sources) {
      const std::string name = stem(path);
      const bool of_layer = is_in(path, "src/layers", ".hpp"), of_block = is_in(path, "src/blocks", ".hpp");
      const bool of_feature = is_of_feature(path) && ends_with(path, ".hpp") && !is_of_device(path);
      // The other headers are parts that blocks share.
      if ((of_block || of_feature) && !matches(text, "class \\w+Block\\b").empty()) {
        add(blocks_, name, path);
      } else if (((of_layer || of_feature) && !tags_of(text).found.empty()) ||
                 (of_layer && exists("docs/layers/" + name + ".md"))) {
        // A header without a tag and a chapter is a part that layers share.
        add(layers_, name, path);
      }
    }
    for (const auto& [path, text] : sources) {
      if (is_of_device(path)) texts_[device_of(path) + "/" + family_of(layer_of(path))] += text;
    }
    for (const auto& [path, text] : sources) check_file(path, tags_of(text));
    for (const auto& [name, header] : layers_) check_layer(name, header);
    for (const auto& [name, header] : blocks_) check_block(name, header);
  }

  const std::vector<std::string>& faults() const { return faults_; }
  const std::map<std::string, std::string>& layers() const { return layers_; }
  const std::map<std::string, std::string>& blocks() const { return blocks_; }
  const std::set<std::string>& chapters() const { return chapters_; }

 private:
  bool exists(const std::string& path) const { return sources_.count(path) > 0; }

  void add(std::map<std::string, std::string>& headers, const std::string& name, const std::string& header) {
    for (const auto* known : {&layers_, &blocks_}) {
      if (known->count(name))
        fault(header, "has the name of " + known->at(name) + ", so their tags cannot be told apart");
    }
    headers.emplace(name, header);
  }

  // The files of a layer or a block. `kind` is layers or blocks.
  struct Files {
    std::string plain, cpu, cuda, test, chapter;
  };
  Files files_of(const std::string& kind, const std::string& name, const std::string& header) const {
    if (!is_of_feature(header)) {
      return {.plain = "plain/" + name + ".cpp",
              .cpu = "cpu/" + name + ".cpp",
              .cuda = "cuda/" + name + ".cu",
              .test = "tests/" + kind + "/test_" + name + ".cpp",
              .chapter = "docs/" + kind + "/" + name + ".md"};
    }
    const std::string folder = folder_of(header) + "/", own = folder + name;
    return {.plain = own + "_plain.cpp",
            .cpu = own + "_cpu.cpp",
            .cuda = own + "_cuda.cu",
            .test = folder + "test_" + name + ".cpp",
            .chapter = exists(own + ".md") ? own + ".md" : folder + "README.md"};
  }

  // A large layer of a device has several files: cpu/gelu_tiles.hpp is a part of cpu/gelu.cpp, unless there is a layer
  // gelu_tiles.
  std::string layer_of(const std::string& path) const {
    const std::string name = device_stem(path);
    for (std::string part_of = name;; part_of.erase(part_of.rfind('_'))) {
      if (layers_.count(part_of)) return part_of;
      if (part_of.find('_') == std::string::npos) return name;
    }
  }

  // The layer with the shortest name that a name begins with.
  std::string family_of(const std::string& name) const {
    std::string first = name;
    for (std::string part_of = name; part_of.find('_') != std::string::npos;) {
      part_of.erase(part_of.rfind('_'));
      if (layers_.count(part_of)) first = part_of;
    }
    return first;
  }

  // Whether a device has a layer: a file of this name with any extension.
  bool has(const std::string& path) const {
    const std::string without = path.substr(0, path.rfind('.'));
    return exists(without + ".cpp") || exists(without + ".hpp") || exists(without + ".cu");
  }

  void fault(const std::string& path, const std::string& what) {
    const std::string text = path + ": " + what;
    if (std::find(faults_.begin(), faults_.end(), text) == faults_.end()) faults_.push_back(text);
  }

  void require(const std::string& path) {
    if (!exists(path)) fault(path, "is missing");
  }

  void require_chapter(const std::string& path) {
    require(path);
    if (exists(path)) chapters_.insert(path);
  }

  // Numbers of the tags of `name` in a file, and the number of their occurrences, alone in a comment or after code.
  struct Uses {
    int in_comment = 0, after_code = 0;
    bool definition = false;  // fast code computes it in another way
  };
  std::map<int, Uses> uses(const std::string& path, const std::string& name) const {
    std::map<int, Uses> result;
    const auto& texts = is_of_device(path) ? texts_ : sources_;
    const auto text = texts.find(is_of_device(path) ? device_of(path) + "/" + family_of(name) : path);
    if (text == texts.end()) return result;
    for (const Tag& tag : tags_of(text->second).found) {
      if (tag.name != name) continue;
      Uses& use = result[tag.number];
      ++(tag.after_code ? use.after_code : use.in_comment);
      use.definition = use.definition || tag.definition;
    }
    return result;
  }

  void check_file(const std::string& path, const Tags& tags) {
    for (const std::string& text : tags.malformed) fault(path, text + " is not a tag, (name.number)");
    for (const std::string& line : tags.at_tails) fault(path, "a tag beside a line that computes nothing: " + line);
    const std::string name = is_of_device(path) ? layer_of(path) : stem(path);
    const bool of_all_layers = is_of_device(path) && is_in(path, folder_of(path), ".hpp") && !layers_.count(name);
    const bool refers = is_document(path) || of_all_layers;
    if (is_in(path, "docs/layers", ".md") && !layers_.count(name)) fault(path, "is a chapter of no layer");
    if (is_in(path, "docs/blocks", ".md") && !blocks_.count(name)) fault(path, "is a chapter of no block");
    for (const Tag& tag : tags.found) {
      const std::string text = printed(tag.name, tag.number);
      if (tag.name == name) continue;
      const bool of_family = layers_.count(name) && layers_.count(tag.name) && family_of(tag.name) == family_of(name);
      if (!refers && !of_family) fault(path, text + " belongs into a file named " + tag.name);
      // A tag of another file's equation must refer to an existing equation.
      if ((refers || of_family) && !headers_hold(tag)) fault(path, text + " refers to no equation");
    }
    if (is_of_device(path) && !of_all_layers && !tags.found.empty() && !layers_.count(name))
      require((is_of_feature(path) ? folder_of(path) : "src/layers") + "/" + name + ".hpp");
    if (is_in(path, "src/blocks", ".hpp") && !tags.found.empty() && !blocks_.count(name)) {
      fault(path, "holds tags but no class of a block");
    }
  }

  bool headers_hold(const Tag& tag) const {
    for (const auto* headers : {&layers_, &blocks_}) {
      const auto header = headers->find(tag.name);
      if (header != headers->end() && uses(header->second, tag.name).count(tag.number)) return true;
    }
    return false;
  }

  void compare(const std::string& name, const std::string& header, const std::string& path) {
    if (is_of_device(path) ? !has(path) : !exists(path)) return;
    const std::map<int, Uses> wanted = uses(header, name);
    const std::map<int, Uses> got = uses(path, name);
    const bool fast = device_of(path) == "cpu" || device_of(path) == "cuda";
    for (const auto& [number, use] : wanted) {
      if (use.definition && fast) {
        if (got.count(number)) fault(path, "holds " + printed(name, number) + ", a definition");
      } else if (!got.count(number))
        fault(path, "lacks " + printed(name, number) + " of " + header);
    }
    for (const auto& [number, unused] : got) {
      if (!wanted.count(number)) fault(header, "lacks " + printed(name, number) + " of " + path);
    }
  }

  void check_numbering(const std::string& name, const std::string& header) {
    int next = 1;
    for (const auto& [number, unused] : uses(header, name)) {
      for (; next < number; ++next) fault(header, "lacks " + printed(name, next) + ", numbering has a hole");
      if (number == 0) fault(header, printed(name, 0) + ": numbers start at 1");
      next = number + 1;
    }
    if (next == 1) fault(header, "holds no tag");
  }

  // In the plain loops, each array on the left of an equation in the header has its own line.
  void check_sides(const std::string& name, const std::string& header, const std::string& path) {
    const std::map<int, Uses> got = uses(path, name);
    for (const std::string& line : lines_of(sources_.at(header))) {
      const Tags tags = tags_of_line(line);
      if (tags.found.size() != 1 || !got.count(tags.found[0].number)) continue;
      const int number = tags.found[0].number;
      const std::string equation = line.substr(0, line.find(printed(name, number)));
      const std::size_t sides = matches(equation, "(?:^//|,) +\\w+_\\w+ +(?:\\+?=|<-) ").size();
      if (static_cast<std::size_t>(got.at(number).after_code) < sides)
        fault(path, printed(name, number) + " stands at fewer lines than the equation has sides");
    }
  }

  void check_layer(const std::string& name, const std::string& header) {
    const Files files = files_of("layers", name, header);
    for (const std::string& path : {files.plain, files.test}) require(path);
    require_chapter(files.chapter);
    if (!has(files.cpu)) require(files.cpu);
    check_numbering(name, header);
    check_sides(name, header, files.plain);
    for (const std::string& path : {files.plain, files.cpu, files.cuda, files.chapter}) compare(name, header, path);
  }

  void check_block(const std::string& name, const std::string& header) {
    const Files files = files_of("blocks", name, header);
    require(files.test);
    require_chapter(files.chapter);
    check_numbering(name, header);
    compare(name, header, files.chapter);
    for (const auto& [number, use] : uses(header, name)) {
      if (!use.in_comment) fault(header, printed(name, number) + " is not among the equations of the comment");
      if (!use.after_code) fault(header, printed(name, number) + " stands at no line of code");
    }
  }

  const Sources& sources_;
  Sources texts_;                                       // all that a device has of a family, by device and family
  std::map<std::string, std::string> layers_, blocks_;  // headers by name
  std::set<std::string> chapters_;
  std::vector<std::string> faults_;
};

Sources read_sources() {
  const std::filesystem::path root(ABH_SOURCE_DIR);
  Sources sources;
  const std::map<std::string, std::set<std::string>> extensions = {
      {"src/layers", {".hpp"}},   {"src/blocks", {".hpp"}},          {"plain", {".cpp", ".hpp"}},
      {"cpu", {".cpp", ".hpp"}},  {"cuda", {".cu", ".cpp", ".hpp"}}, {"tests/layers", {".cpp"}},
      {"tests/blocks", {".cpp"}}, {"docs/layers", {".md"}},          {"docs/blocks", {".md"}}};
  const auto read = [&](const std::string& folder, const std::set<std::string>& of_folder) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      if (!of_folder.count(entry.path().extension().string())) continue;
      const std::string name = entry.path().filename().string();
      // Test files only have to exist; they may contain any tags.
      const bool is_test = name.rfind("test_", 0) == 0;
      sources[folder + "/" + name] = is_test ? "" : read_bytes(entry.path().string());
    }
  };
  for (const auto& [folder, of_folder] : extensions) read(folder, of_folder);
  if (!std::filesystem::is_directory(root / "extras")) return sources;
  for (const auto& feature : std::filesystem::directory_iterator(root / "extras"))
    read("extras/" + feature.path().filename().string(), {".hpp", ".cpp", ".cu", ".md"});
  return sources;
}

TEST_CASE("equation tags: chapters, headers and devices agree", "[equation_tags]") {
  const Sources sources = read_sources();
  const TagCheck check(sources);
  CHECK(check.layers().count("layernorm") == 1);
  CHECK(check.blocks().count("ffn") == 1);
  for (const std::string& fault : check.faults()) FAIL_CHECK(fault);
}

TEST_CASE("equation tags: the ladders of kernels have all of their tags", "[equation_tags]") {
  const Sources sources = read_sources();
  std::set<std::string> known;
  for (const auto& [path, text] : sources) {
    if (!ends_with(path, ".hpp")) continue;
    for (const Tag& tag : tags_of(text).found) known.insert(printed(tag.name, tag.number));
  }
  std::size_t seen = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(ABH_SOURCE_DIR) + "/docs/kernels")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cu" && extension != ".hpp" && extension != ".md") continue;
    for (const Tag& tag : tags_of(read_bytes(entry.path().string())).found) {
      CAPTURE(entry.path().string(), printed(tag.name, tag.number));
      CHECK(known.count(printed(tag.name, tag.number)) == 1);
      ++seen;
    }
  }
  CHECK(seen > 50);
}

// Lists the math that Markdown alters before typesetting or that the typesetter refuses. Between `$`, Markdown removes
// a backslash before punctuation. It leaves a ```math block and the text between $` and `$ unchanged.
std::vector<std::string> math_faults(const std::string& text) {
  std::vector<std::string> faults;
  bool fenced = false;
  for (const std::string& line : lines_of(text)) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && line.compare(first, 3, "```") == 0) {
      fenced = !fenced;
      continue;
    }
    if (line.find("\\operatorname") != std::string::npos) faults.push_back("operatorname: " + line);
    for (std::size_t at = 0; (at = line.find("\\text{", at)) != std::string::npos; ++at) {
      for (std::size_t i = at; i < line.size() && line[i] != '}'; ++i) {
        if (line[i] == '_' && line[i - 1] != '\\') faults.push_back("bare _ in text: " + line);
      }
    }
    if (fenced) continue;
    for (std::size_t at = 0; at < line.size(); ++at) {
      if (line[at] != '$' && line[at] != '`') continue;
      const std::string close = line[at] == '`' ? "`" : line.compare(at, 2, "$`") == 0 ? "`$" : "$";
      const std::size_t begin = at + close.size(), end = line.find(close, begin);
      if (end == std::string::npos || end == begin) {
        faults.push_back("not closed in its line: " + line);
        break;
      }
      for (std::size_t i = begin; close == "$" && i + 1 < end; ++i) {
        if (line[i] == '\\' && !std::isalpha(static_cast<unsigned char>(line[i + 1]))) {
          faults.push_back("escape between $: " + line);
        }
      }
      at = end + close.size() - 1;
    }
  }
  return faults;
}

TEST_CASE("equation tags: Markdown does not alter the equations of the chapters", "[equation_tags]") {
  const Sources sources = read_sources();
  const TagCheck check(sources);
  for (const std::string& path : check.chapters()) {
    for (const std::string& fault : math_faults(sources.at(path))) FAIL_CHECK(path + ": " + fault);
  }
  CHECK(math_faults("$a_b$ and $`d\\_a`$ and `$`\n  ```math\nd\\_a \\, b \\text{(a\\_b.1)}\n  ```\n$a$").empty());
  CHECK(math_faults("$d\\_a$").size() == 1);
  CHECK(math_faults("$a \\, b$").size() == 1);
  CHECK(math_faults("$$a$$").size() == 1);
  CHECK(math_faults("$a\nb$").size() == 2);
  CHECK(math_faults("```math\n\\text{(a_b.1)}\n```\n$a$").size() == 1);
  CHECK(math_faults("$\\operatorname{softmax}$").size() == 1);
}

// The displayed equations of a chapter.
std::vector<std::string> displayed(const std::string& text) {
  std::vector<std::string> equations;
  for (const Parts& block : matches(text, "```math\\n([^`]*)```")) equations.push_back(block[1]);
  return equations;
}

// Letters that arrays of tagged equations have as dimensions, and `table` lacks.
std::set<char> unknown_letters(const std::string& chapter, const std::set<char>& table) {
  std::set<char> unknown;
  for (const std::string& equation : displayed(chapter)) {
    if (equation.find("\\text{(") == std::string::npos) continue;
    for (const Parts& index : matches(equation, "[^\\\\]_(?:\\{([a-z',]+)\\}|([a-z]))")) {
      for (const char letter : index[1] + index[2]) {
        if (std::islower(static_cast<unsigned char>(letter)) && !table.count(letter)) unknown.insert(letter);
      }
    }
  }
  return unknown;
}

TEST_CASE("equation tags: dimension letters follow the conventions", "[equation_tags]") {
  std::set<char> table;
  for (const Parts& cell :
       matches(read_bytes(ABH_SOURCE_DIR "/docs/conventions.md"), "\\| ((?:[a-z], )*[a-z]) (?=\\|)")) {
    for (const std::string& letter : lines_of(cell[1], ' ')) table.insert(letter[0]);
  }
  for (const auto& [path, text] : read_sources()) {
    for (const char letter : unknown_letters(text, table)) FAIL_CHECK(path << ": " << letter << " is not in the table");
  }
  CHECK(unknown_letters("```math\n a_{bc'} b_d \\mathrm{x\\_y}_{be} \\text{(gelu.1)}\n```\n$a_f$", {'b', 'c'}) ==
        std::set<char>{'d', 'e'});
}

// Square brackets in equations that hold no condition.
std::vector<std::string> bracket_faults(const std::string& text) {
  std::vector<std::string> faults;
  for (const std::string& equation : displayed(text)) {
    for (const Parts& bracket : matches(equation, "\\[([^\\]]*)\\]")) {
      if (matches(bracket[1], "[<>=]|\\\\(?:le|ge|ne)\\b").empty()) faults.push_back(bracket[0]);
    }
  }
  return faults;
}

TEST_CASE("equation tags: square brackets contain a condition, as in the conventions", "[equation_tags]") {
  CHECK(contains(read_bytes(ABH_SOURCE_DIR "/docs/conventions.md"), "1 where the condition in square brackets holds"));
  for (const auto& [path, text] : read_sources()) {
    for (const std::string& fault : bracket_faults(text)) FAIL_CHECK(path << ": no condition in " << fault);
  }
  CHECK(bracket_faults("```math\na [s < c] [x \\le y]\n``` $[0, 1]$").empty());
  CHECK(bracket_faults("```math\na [b + c]\n```") == std::vector<std::string>{"[b + c]"});
}

std::vector<std::string> texts_of(const std::string& text) {
  std::vector<std::string> texts;
  for (const Tag& tag : tags_of(text).found)
    texts.push_back(printed(tag.name, tag.number) + (tag.after_code ? "!" : ""));
  return texts;
}

TEST_CASE("equation tags: the parser", "[equation_tags]") {
  using Texts = std::vector<std::string>;
  CHECK(texts_of("").empty());
  CHECK(texts_of("x = 1;  // (gelu.1)") == Texts{"(gelu.1)!"});
  CHECK(texts_of("  //  y = x   (gelu.2), as in (gelu.10)") == Texts{"(gelu.2)", "(gelu.10)"});
  CHECK(texts_of("y \\qquad \\text{(cross\\_entropy.3)}\n(cross_entropy.4)") ==
        Texts{"(cross_entropy.3)", "(cross_entropy.4)"});
  CHECK(texts_of("((gelu.1))\r\n(gelu.2)") == Texts{"(gelu.1)", "(gelu.2)"});
  for (const char* no_tag : {"(gelu.hpp)", "(gelu)", "gelu.1", "f(x.y)", "(1.5)", "(.5)", "(", "(gelu", "(gelu."}) {
    INFO(no_tag);
    CHECK(texts_of(no_tag).empty());
    CHECK(tags_of(no_tag).malformed.empty());
  }
  for (const char* malformed : {"(gelu.1a)", "(gelu.1, gelu.2)", "(gelu.1-3)", "(gelu.1", "(gelu.123456)"}) {
    INFO(malformed);
    CHECK(texts_of(malformed).empty());
    CHECK(tags_of(malformed).malformed.size() == 1);
  }
}

TEST_CASE("equation tags: lines that compute, and continuations of such lines", "[equation_tags]") {
  for (const char* code :
       {"a = b;", "sum += a;", "return {a / b, c};", "store<L>(a, b);", "multiply<T>({.out = a,", "p * a + q * b);",
        "[&](int c) { a[c] = b; });", "for (Index k = 0; k < K; ++k) {", "if (a > b) b = a;", ": b(c), d(e) {}"}) {
    INFO(code);
    CHECK(computes(code));
  }
  for (const char* code : {"});", "in.K);", "min_of(a + b, c), K);", "float(a));", "E{a + b, c});", "device,",
                           ": -infinity;", "if (!(a > b)) continue;", "if (a) return;"}) {
    INFO(code);
    CHECK_FALSE(computes(code));
  }
}

// One layer and one block as they should be.
Sources good_sources() {
  return {{"src/layers/gelu.hpp", "// y  (gelu.1)\n// d_x  (gelu.2)\n"},
          {"plain/gelu.cpp", "a();  // (gelu.1)\nb();  // (gelu.2)\n"},
          {"cpu/gelu.cpp", "a();  // (gelu.1)\nb();  // (gelu.2)\n"},
          {"tests/layers/test_gelu.cpp", ""},
          {"docs/layers/gelu.md", "(gelu.1)\n(gelu.2)\n"},
          {"src/blocks/ffn.hpp", "// y  (ffn.1)\nclass FfnBlock : public Block<Device, T> {\na();  // (ffn.1)\n"},
          {"src/blocks/block.hpp", "class Block {\n"},
          {"tests/blocks/test_ffn.cpp", ""},
          {"docs/blocks/ffn.md", "(ffn.1), which uses (gelu.2)\n"}};
}

// The only fault of these sources, or the number of faults.
std::string fault_of(const Sources& sources) {
  const TagCheck check(sources);
  return check.faults().size() == 1 ? check.faults()[0] : std::to_string(check.faults().size()) + " faults";
}

// The same with `text` as the content of `path` ("missing": without this file).
std::string fault_with(const std::string& path, const std::string& text) {
  Sources sources = good_sources();
  sources[path] = text;
  if (text == "missing") sources.erase(path);
  return fault_of(sources);
}

TEST_CASE("equation tags: every fault is found and named", "[equation_tags]") {
  CHECK(fault_of(good_sources()) == "0 faults");
  struct Case {
    std::string path, text, fault;
  };
  const Case cases[] = {
      {"cpu/gelu.cpp", "a();  // (gelu.1)\n", "cpu/gelu.cpp: lacks (gelu.2) of src/layers/gelu.hpp"},
      {"cpu/gelu.cpp", "a();  // (gelu.1) (gelu.2) (gelu.3)\n", "src/layers/gelu.hpp: lacks (gelu.3) of cpu/gelu.cpp"},
      {"docs/layers/gelu.md", "(gelu.2)\n", "docs/layers/gelu.md: lacks (gelu.1) of src/layers/gelu.hpp"},
      {"cuda/gelu.cu", "a();  // (gelu.1)\n", "cuda/gelu.cu: lacks (gelu.2) of src/layers/gelu.hpp"},
      {"cuda/gelu.cu", "a();  // (gelu.1)\nb();  // (gelu.2)\n", "0 faults"},
      {"cpu/gelu.cpp", "a();  // (gelu.1)\nb();  // (gelu.2)\nc();  // (ffn.1)\n",
       "cpu/gelu.cpp: (ffn.1) belongs into a file named ffn"},
      {"cpu/gelu_tiles.hpp", "c();  // (gelu.3)\n", "src/layers/gelu.hpp: lacks (gelu.3) of cpu/gelu.cpp"},
      {"cpu/gelu_tiles.hpp", "c();  // (ffn.1)\n", "cpu/gelu_tiles.hpp: (ffn.1) belongs into a file named ffn"},
      {"cuda/kernel.hpp", "c();  // (gelu.2)\n", "0 faults"},
      {"cuda/kernel.hpp", "c();  // (gelu.3)\n", "cuda/kernel.hpp: (gelu.3) refers to no equation"},
      {"docs/blocks/ffn.md", "(ffn.1) (gelu.3)\n", "docs/blocks/ffn.md: (gelu.3) refers to no equation"},
      {"docs/blocks/ffn.md", "(ffn.1) (gelu.2b)\n", "docs/blocks/ffn.md: (gelu.2b is not a tag, (name.number)"},
      {"docs/layers/relu.md", "", "docs/layers/relu.md: is a chapter of no layer"},
      {"docs/blocks/relu.md", "", "docs/blocks/relu.md: is a chapter of no block"},
      {"cpu/gelu.cpp", "f(a,\n  b);  // (gelu.1)\nb();  // (gelu.2)\n",
       "cpu/gelu.cpp: a tag beside a line that computes nothing:   b);  // (gelu.1)"},
      {"src/layers/gelu.hpp", "// y_d = x, z_d = x  (gelu.1)\n// d_x  (gelu.2)\n",
       "plain/gelu.cpp: (gelu.1) stands at fewer lines than the equation has sides"},
      {"plain/gelu.cpp", "missing", "plain/gelu.cpp: is missing"},
      {"cpu/gelu.cpp", "missing", "cpu/gelu.cpp: is missing"},
      {"tests/layers/test_gelu.cpp", "missing", "tests/layers/test_gelu.cpp: is missing"},
      {"docs/layers/gelu.md", "missing", "docs/layers/gelu.md: is missing"},
      {"tests/blocks/test_ffn.cpp", "missing", "tests/blocks/test_ffn.cpp: is missing"},
      {"docs/blocks/ffn.md", "missing", "docs/blocks/ffn.md: is missing"},
      {"extras/seq2seq/relu_cuda.cu", "a();  // (relu.1)\n", "extras/seq2seq/relu.hpp: is missing"},
      {"src/layers/shape.hpp", "struct Shape {\n", "0 faults"},
  };
  for (const auto& [path, text, fault] : cases) CHECK(fault_with(path, text) == fault);

  Sources definition = good_sources();
  definition["src/layers/gelu.hpp"] += "// z  (gelu.3) definition\n";
  definition["docs/layers/gelu.md"] += "(gelu.3)\n";
  definition["plain/gelu.cpp"] = "a();  // (gelu.1)\nb();  // (gelu.2)\nc();  // (gelu.3)\n";
  CHECK(fault_of(definition) == "0 faults");
  definition["plain/gelu.cpp"] = "a();  // (gelu.1)\nb();  // (gelu.2)\n";
  CHECK(fault_of(definition) == "plain/gelu.cpp: lacks (gelu.3) of src/layers/gelu.hpp");
  definition["plain/gelu.cpp"] += "c();  // (gelu.3)\n";
  definition["cpu/gelu.cpp"] = "a();  // (gelu.1)\nb();  // (gelu.2)\nc();  // (gelu.3)\n";
  CHECK(fault_of(definition) == "cpu/gelu.cpp: holds (gelu.3), a definition");

  // A part counts for its layer, on its own device, and not for a layer with a similar name.
  Sources parts = good_sources();
  parts["cpu/gelu.cpp"] = "a();  // (gelu.1)\n";
  parts["cpu/gelu_tiles_wide.hpp"] = "b();  // (gelu.2)\n";
  CHECK(fault_of(parts) == "0 faults");
  parts["cuda/gelu.cu"] = "a();  // (gelu.1)\n";
  CHECK(fault_of(parts) == "cuda/gelu.cu: lacks (gelu.2) of src/layers/gelu.hpp");
  parts["cuda/gelu_tiles.hpp"] = "b();  // (gelu.2)\n";
  CHECK(fault_of(parts) == "0 faults");
  parts["cpu/gelu_tiles_wide.hpp"] = "";
  CHECK(fault_of(parts) == "cpu/gelu.cpp: lacks (gelu.2) of src/layers/gelu.hpp");
  Sources alike = good_sources();
  for (const char* path : {"src/layers/gelu_wide.hpp", "docs/layers/gelu_wide.md"}) alike[path] = "(gelu_wide.1)\n";
  alike["tests/layers/test_gelu_wide.cpp"] = "";
  for (const char* path : {"plain/gelu_wide.cpp", "cpu/gelu_wide.cpp"}) alike[path] = "a();  // (gelu_wide.1)\n";
  CHECK(fault_of(alike) == "0 faults");
  alike["cpu/gelu_wide.cpp"] += "b();  // (gelu.2)\n";
  CHECK(fault_of(alike) == "0 faults");  // a family
  alike["cpu/gelu.cpp"] = "a();  // (gelu.1) (gelu_wide.1)\n";
  alike["cpu/gelu_wide.cpp"] = "b();  // (gelu.2)\n";
  CHECK(fault_of(alike) == "0 faults");
  alike["cpu/gelu.cpp"] = "a();  // (gelu.1) (gelu_wide.2)\n";
  CHECK(fault_of(alike) == "3 faults");

  // A feature: two layers of a family and a block in one folder; README.md is the chapter of one layer.
  Sources feature = good_sources();
  const std::string folder = "extras/act/";
  for (const char* name : {"relu", "relu_wide"}) {
    const std::string tag = "(" + std::string(name) + ".1)", code = "a();  // " + tag + "\n";
    feature[folder + name + ".hpp"] = "// y  " + tag + "\n";
    for (const char* end : {"_plain.cpp", "_cpu.cpp", "_cuda.cu"}) feature[folder + name + end] = code;
    feature[folder + "test_" + name + ".cpp"] = "";
    feature[folder + name + ".md"] = tag + ", as (gelu.1)\n";
  }
  feature[folder + "swap.hpp"] = "// y  (swap.1)\nclass SwapBlock : public Block<Device, T> {\na();  // (swap.1)\n";
  feature[folder + "test_swap.cpp"] = "";
  feature[folder + "README.md"] = "(swap.1)\n";
  feature[folder + "swap_rows.hpp"] = "struct Rows {\n";
  CHECK(fault_of(feature) == "0 faults");
  const auto fault_in_feature = [&](const std::string& file, const std::string& text) {
    Sources with = feature;
    with[folder + file] = text;
    if (text == "missing") with.erase(folder + file);
    return fault_of(with);
  };
  for (const char* file : {"relu_plain.cpp", "relu_cpu.cpp", "test_relu.cpp", "test_swap.cpp", "README.md"})
    CHECK(fault_in_feature(file, "missing") == folder + file + ": is missing");
  CHECK(fault_in_feature("relu_cuda.cu", "a();  // (relu.1)\nb();  // (relu.2)\n") ==
        folder + "relu.hpp: lacks (relu.2) of " + folder + "relu_cuda.cu");
  CHECK(fault_in_feature("relu_wide_cpu.cpp", "") ==
        folder + "relu_wide_cpu.cpp: lacks (relu_wide.1) of " + folder + "relu_wide.hpp");
  CHECK(fault_in_feature("relu_steps_cpu.cpp", "b();  // (relu.2)\n") ==
        folder + "relu.hpp: lacks (relu.2) of " + folder + "relu_cpu.cpp");
  CHECK(fault_in_feature("more.md", "(gelu.3)\n") == folder + "more.md: (gelu.3) refers to no equation");
  CHECK(fault_in_feature("swap_rows.hpp", "class RowsBlock {\n") == "2 faults");  // no tag, no test
  feature[folder + "README.md"] = "(swap.1) (relu.1)\n";
  CHECK(fault_in_feature("relu.md", "missing") == "0 faults");
  Sources clash = feature;
  clash["src/blocks/relu.hpp"] = feature[folder + "swap.hpp"];
  CHECK_FALSE(TagCheck(clash).faults().empty());
  CHECK(TagCheck(clash).faults()[0] ==
        "src/blocks/relu.hpp: has the name of extras/act/relu.hpp, so their tags cannot be told apart");

  Sources hole = good_sources();
  for (const char* path : {"src/layers/gelu.hpp", "plain/gelu.cpp", "cpu/gelu.cpp", "docs/layers/gelu.md"})
    hole[path] = "a();  // (gelu.2)\n";
  CHECK(fault_of(hole) == "src/layers/gelu.hpp: lacks (gelu.1), numbering has a hole");

  const std::string block = "class FfnBlock : public Block<Device, T> {\n";
  CHECK(fault_with("src/blocks/ffn.hpp", "// (ffn.1)\n" + block) ==
        "src/blocks/ffn.hpp: (ffn.1) stands at no line of code");
  CHECK(fault_with("src/blocks/ffn.hpp", block + "a();  // (ffn.1)\n") ==
        "src/blocks/ffn.hpp: (ffn.1) is not among the equations of the comment");
  CHECK(fault_with("src/blocks/ffn.hpp", "// (ffn.1) (ffn.2)\n" + block + "a();  // (ffn.1) (ffn.2)\n") ==
        "docs/blocks/ffn.md: lacks (ffn.2) of src/blocks/ffn.hpp");
  CHECK(fault_with("src/blocks/block.hpp", "a();  // (block.1)\n") ==
        "src/blocks/block.hpp: holds tags but no class of a block");
}

}  // namespace
}  // namespace abh
