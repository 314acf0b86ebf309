#include "extras/digits/picture_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/digits/labelled_pictures.hpp"
#include "files/text_file.hpp"
#include "tasks/plain_text.hpp"

namespace abh {

namespace {

namespace fs = std::filesystem;

constexpr const char* accepted =
    "an IDX file of images, lines of 64 numbers and a digit, or a folder of MNIST or of PGM pictures";

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_digit(char c) { return '0' <= c && c <= '9'; }

[[noreturn]] void refuse_gzip(const std::string& path) {
  const std::string file = path.starts_with('-') ? "./" + path : path;
  const std::string command = path.ends_with(".gz")
                                  ? "gunzip " + shell_word(file)
                                  : "gunzip <" + shell_word(file) + " >" + shell_word(file + ".unpacked");
  throw Error(path + ": is a gzip file, expected its content; " + command + " unpacks it");
}

// Bytes of a file. If only a gzip file exists, or it is an archive, the error explains what to do.
std::string bytes_of(const std::string& path) {
  if (const std::string packed = path + ".gz"; !is_there(path) && is_there(packed)) refuse_gzip(packed);
  std::string bytes = read_data_file(path, "pictures of digits");
  if (bytes.starts_with("\x1F\x8B")) refuse_gzip(path);
  const std::optional<ForeignBytes> foreign = foreign_bytes(bytes);
  if (foreign && foreign->encoding.empty()) {
    throw Error(path + ": is " + foreign->what + ", expected " + accepted + "; extract it first");
  }
  return bytes;
}

std::string with_name(const fs::path& path, const std::string& name) { return (path.parent_path() / name).string(); }

// The name with its first `from` replaced by `to`; none if it does not contain `from`.
std::optional<std::string> turned(std::string name, const std::string& from, const std::string& to) {
  const std::size_t at = name.find(from);
  if (at == name.npos) return std::nullopt;
  return name.replace(at, from.size(), to);
}

PictureSet idx_set(const std::string& images_path, const std::string& images) {
  const fs::path path = images_path;
  std::optional<std::string> labels = turned(path.filename().string(), "images", "labels");
  if (labels) labels = turned(*labels, "idx3", "idx1");
  if (!labels) {
    throw Error(images_path + ": expected a name with images and idx3 in it, such as train-images-idx3-ubyte, " +
                "from which the name of the label file follows");
  }
  const std::string labels_path = with_name(path, *labels);
  return pictures_of_idx(images, images_path, bytes_of(labels_path), labels_path);
}

// Images of the test set next to the training images, if present, packed or not.
std::optional<std::string> test_images(const fs::path& training) {
  for (const char* name : {"t10k", "test"}) {
    const std::optional<std::string> other = turned(training.filename().string(), "train", name);
    if (!other) return std::nullopt;
    const std::string path = with_name(training, *other);
    if (is_there(path) || is_there(path + ".gz")) return path;
  }
  return std::nullopt;
}

// Appends a set; its pictures must have the size of the earlier ones, first found at the path `first`.
void append(PictureSet& all, PictureSet more, const std::string& path, const std::string& first) {
  if (all.pictures.empty()) {
    all = std::move(more);
  } else if (more.height != all.height || more.width != all.width) {
    throw Error(path + ": pictures of " + size_text(more.height, more.width) + ", expected " +
                size_text(all.height, all.width) + ", as of " + first);
  } else {
    std::move(more.pictures.begin(), more.pictures.end(), std::back_inserter(all.pictures));
  }
}

// Joins training and test pictures of two files.
LabelledPictures with_test_set(PictureSet training, const std::string& path, PictureSet test,
                               const std::string& test_path) {
  if (training.pictures.empty() || test.pictures.empty()) {
    throw Error((training.pictures.empty() ? path : test_path) + ": holds no pictures, expected some");
  }
  const auto count = static_cast<Index>(training.pictures.size());
  append(training, std::move(test), test_path, path);
  return {training.height, training.width, std::move(training.pictures), count};
}

// Pictures of one file: the last fifth is the test set; with `all`, every picture.
LabelledPictures with_last_fifth(PictureSet set, const std::string& path, bool all) {
  const auto count = static_cast<Index>(set.pictures.size());
  if (count < (all ? 1 : 5)) {
    throw Error(path + ": holds " + to_text(count) + " pictures, expected " +
                (all ? "one at least" : "5 at least: a fifth is held back"));
  }
  return {set.height, set.width, std::move(set.pictures), all ? 0 : count - (count + 4) / 5, std::move(set.notes)};
}

LabelledPictures of_idx(const std::string& path, const std::string& images, bool all) {
  PictureSet set = idx_set(path, images);
  const std::optional<std::string> test = test_images(path);
  if (!test) return with_last_fifth(std::move(set), path, all);
  return with_test_set(std::move(set), path, idx_set(*test, bytes_of(*test)), *test);
}

// Paths in a folder, sorted by name, except names that begin with a dot.
std::vector<std::string> paths_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with('.')) paths.push_back(entry->path().string());
  }
  if (error) throw Error(folder + ": cannot be read: " + error.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The digit at the start of a name, if no other digit follows.
std::optional<Token> digit_of(const std::string& name) {
  if (!is_digit(name[0]) || (name.size() > 1 && is_digit(name[1]))) return std::nullopt;
  return static_cast<Token>(name[0] - '0');
}

bool ends_as_pgm(const std::string& name) { return name.ends_with(".pgm") || name.ends_with(".PGM"); }

// PGM pictures of a folder, or of its subfolders named by a digit. Other files are ignored.
PictureSet pgm_set(const std::string& folder) {
  PictureSet set;
  std::string first;
  const auto add = [&](const std::string& path, const std::string& label_name, const std::string& expected) {
    const std::optional<Token> label = digit_of(label_name);
    if (!label) throw Error(path + ": expected " + expected);
    PictureSet picture = picture_of_pgm(bytes_of(path), path);
    picture.pictures.front().label = *label;
    if (first.empty()) first = path;
    append(set, std::move(picture), path, first);
  };
  for (const std::string& path : paths_in(folder)) {
    const std::string name = fs::path(path).filename().string();
    if (name.ends_with(".pgm.gz")) refuse_gzip(path);
    if (!is_folder(path)) {
      if (ends_as_pgm(name)) add(path, name, "a name that begins with the digit alone, such as 7_0001.pgm");
      continue;
    }
    if (name.size() != 1 || !is_digit(name[0])) {
      throw Error(path + ": expected folders named by a digit, 0 to 9, or train and test");
    }
    for (const std::string& inner : paths_in(path)) {
      if (inner.ends_with(".pgm.gz")) refuse_gzip(inner);
      if (ends_as_pgm(inner)) add(inner, name, "");
    }
  }
  return set;
}

// IDX file of training images in a folder, or of all images, packed or not; none if there is none. MNIST's own file has
// priority over those of other collections.
std::optional<std::string> images_in(const std::string& folder) {
  std::set<std::string> names, training;
  for (const std::string& path : paths_in(folder)) {
    std::string name = fs::path(path).filename().string();
    if (name.ends_with(".gz")) name.resize(name.size() - 3);
    if (is_folder(path) || name.find("images") == name.npos || name.find("idx3") == name.npos) continue;
    names.insert(name);
    if (name.find("train") != name.npos) training.insert(name);
  }
  if (!training.empty()) names = std::move(training);
  for (const char* usual : {"train-images-idx3-ubyte", "train-images.idx3-ubyte"}) {
    if (names.contains(usual)) names = {usual};
  }
  if (names.empty()) return std::nullopt;
  if (names.size() > 1) {
    throw Error(folder + ": expected one IDX file of images to train on, found " + *names.begin() + ", " +
                *std::next(names.begin()) + (names.size() > 2 ? ", ..." : "") + "; name one of them");
  }
  return (fs::path(folder) / *names.begin()).string();
}

LabelledPictures of_pgm(const std::string& folder, bool all_tests) {
  const std::string training = (fs::path(folder) / "train").string(), test = (fs::path(folder) / "test").string();
  if (is_folder(training) && is_folder(test)) return with_test_set(pgm_set(training), training, pgm_set(test), test);
  PictureSet set = pgm_set(folder);
  if (set.pictures.empty()) throw Error(folder + ": holds no pictures of digits, expected " + accepted);
  LabelledPictures all = with_last_fifth(std::move(set), folder, all_tests);
  if (all_tests) return all;
  std::vector<Picture> test_pictures, training_pictures;
  for (std::size_t i = 0; i < all.pictures.size(); ++i) {
    (i % 5 == 4 ? test_pictures : training_pictures).push_back(std::move(all.pictures[i]));
  }
  all.training = static_cast<Index>(training_pictures.size());
  std::move(test_pictures.begin(), test_pictures.end(), std::back_inserter(training_pictures));
  all.pictures = std::move(training_pictures);
  return all;
}

LabelledPictures of_lines(std::string text, const std::string& path, bool all) {
  std::vector<std::string> notes = prepare_text(text, path, path, nullptr);
  if (!is_of_lines(text)) throw Error(path + ": expected " + accepted);
  LabelledPictures pictures = with_last_fifth(pictures_of_lines(text, path), path, all);
  pictures.notes.insert(pictures.notes.begin(), notes.begin(), notes.end());
  return pictures;
}

LabelledPictures pictures_at(const std::string& path, bool all) {
  if (is_folder(path)) {
    const std::optional<std::string> images = images_in(path);
    return images ? of_idx(*images, bytes_of(*images), all) : of_pgm(path, all);
  }
  const std::string bytes = bytes_of(path);
  return is_idx_of_images(bytes) ? of_idx(path, bytes, all) : of_lines(bytes, path, all);
}

}  // namespace

LabelledPictures read_pictures(const std::string& path, bool all) {
  LabelledPictures pictures = pictures_at(path, all);
  if (all) pictures.training = 0;
  return pictures;
}

std::string fingerprint_of(const LabelledPictures& pictures) {
  const auto count = static_cast<Index>(pictures.pictures.size());
  std::string bytes;
  for (const Picture& picture : pictures.pictures) {
    bytes += static_cast<char>(picture.label);
    bytes += static_cast<char>(picture.most);
    bytes.append(picture.pixels.begin(), picture.pixels.end());
  }
  return to_text(pictures.training) + " and " + to_text(count - pictures.training) + " pictures of " +
         size_text(pictures.height, pictures.width) + ", " + crc32_text(bytes);
}

void require_teaching(const LabelledPictures& pictures, const std::string& path) {
  std::array<Index, digit_count> count{};
  for (std::size_t i = 0; i < pictures.pictures.size(); ++i) {
    Index& of_label = count[static_cast<std::size_t>(pictures.pictures[i].label)];
    if (static_cast<Index>(i) < pictures.training) {
      ++of_label;
    } else if (of_label == 0) {
      throw Error(path + ": the test set contains the digit " + to_text(Index{pictures.pictures[i].label}) +
                  ", which no training picture shows");
    }
  }
  if (std::count(count.begin(), count.end(), 0) == digit_count - 1) {
    throw Error(path + ": all training pictures show the same digit, expected at least two digits");
  }
}

}  // namespace abh
