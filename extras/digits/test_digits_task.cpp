#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "apps/programs/programs.hpp"
#include "base/crc32.hpp"
#include "base/random.hpp"
#include "extras/digits/digits.hpp"
#include "extras/digits/labelled_pictures.hpp"
#include "extras/digits/picture_files.hpp"
#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/task_life.hpp"

namespace abh {
namespace {

Outcome train_digits(const Arguments& flags) {
  return run_program_of_build("train", Arguments{"--task", "digits"} + flags);
}

std::string words_of_idx(const std::vector<std::uint32_t>& numbers) {
  std::string bytes;
  for (const std::uint32_t number : numbers) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xFF);
  }
  return bytes;
}

// Pictures of 2 x 3 pixels as IDX, number i with 10 i + 0 ... 10 i + 5, which show the digits of `labels`.
std::string images_of(const std::string& labels) {
  std::string bytes = words_of_idx({0x803, static_cast<std::uint32_t>(labels.size()), 2, 3});
  for (std::size_t i = 0; i < 6 * labels.size(); ++i) bytes += static_cast<char>(10 * (i / 6) + i % 6);
  return bytes;
}
std::string labels_of(const std::string& labels) {
  std::string bytes = words_of_idx({0x801, static_cast<std::uint32_t>(labels.size())});
  for (const char label : labels) bytes += static_cast<char>(label - '0');
  return bytes;
}

// A line of digits.csv: 64 times a number, then the digit.
std::string line_of(const std::string& number, const std::string& label) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += number + ",";
  return line + label + "\n";
}

std::string digits_shown(const LabelledPictures& pictures) {
  std::string shown;
  for (const Picture& picture : pictures.pictures) {
    if (static_cast<Index>(&picture - pictures.pictures.data()) == pictures.training) shown += "|";
    shown += std::to_string(picture.label);
  }
  return shown;
}

// Drawn digits as lines of 64 numbers: one of four pixels is kept.
std::string drawn_lines(std::uint32_t count) {
  std::string lines;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Picture picture = drawn_digit(i);
    for (std::size_t y = 0; y < 16; y += 2) {
      for (std::size_t x = 0; x < 16; x += 2) lines += std::to_string(picture.pixels[16 * y + x]) + ",";
    }
    lines += std::to_string(picture.label) + "\n";
  }
  return lines;
}

}  // namespace

TEST_CASE("digits: generated digits match their description", "[digits]") {
  std::string all;
  std::vector<Index> count(10);
  for (std::uint32_t i = 0; i < 200; ++i) {
    const Picture picture = drawn_digit(first_test_example + i);
    REQUIRE(picture.pixels.size() == 256);
    all.append(picture.pixels.begin(), picture.pixels.end());
    all += static_cast<char>(picture.label);
    ++count.at(static_cast<std::size_t>(picture.label));
    for (const std::uint8_t ink : picture.pixels) REQUIRE(ink <= most_ink);
  }
  CHECK(crc32(all.data(), all.size()) == 0x819cb29b);
  for (const Index each : count) CHECK(each > 8);
}

TEST_CASE("digits: a batch has the patches of every picture, after the cls position", "[digits]") {
  for (const bool has_cls : {false, true}) {
    for (const Index patch : {1, 2, 4, 8, 16}) {
      CAPTURE(has_cls, patch);
      const DigitsTask task(patch, has_cls);
      ModelConfig config = {.causal = false};
      task.shape(config);
      const Index across = 16 / patch, first = has_cls ? 1 : 0;
      CHECK(config.context == across * across + first);
      CHECK(config.patch_inputs == patch * patch);
      CHECK(config.classes == 10);
      CHECK(config.vocabulary == 0);
      const Batch batch = task.test_batch(0, 3);
      REQUIRE(batch.token_bc.size() == static_cast<std::size_t>(3 * config.context));
      REQUIRE(batch.patch_bpi.size() == 3 * 256);
      CHECK(batch.mask_bc.empty());
      const Picture second = drawn_digit(first_test_example + 1);
      CHECK(batch.target_r[1] == second.label);
      for (Index c = 0; c < config.context; ++c) {
        CHECK(batch.token_bc[static_cast<std::size_t>(config.context + c)] == (c < first ? 0 : -1));
      }
      for (Index y = 0; y < 16; ++y) {
        for (Index x = 0; x < 16; ++x) {
          const Index p = y / patch * across + x / patch, i = y % patch * patch + x % patch;
          const float value = batch.patch_bpi[static_cast<std::size_t>(256 + p * patch * patch + i)];
          CHECK(value == static_cast<float>(second.pixels[static_cast<std::size_t>(16 * y + x)]) / 8 - 1);
        }
      }
    }
  }
  // Training takes one picture after the other, independent of the run's seed.
  const DigitsTask task(4, true);
  const Batch step = task.training_batch(4, 7, 2);
  CHECK((step.patch_bpi == task.training_batch(4, 8, 2).patch_bpi));
  for (std::uint32_t b = 0; b < 4; ++b) CHECK(step.target_r[b] == drawn_digit(8 + b).label);
}

TEST_CASE("digits: a picture printed as characters", "[digits]") {
  const DigitsTask task(2, false);
  const Batch batch = task.test_batch(0, 2);
  const std::string right = task.shown(batch, 0, batch.target_r);
  CHECK(right.starts_with(std::to_string(batch.target_r[0]) + "\n    "));
  CHECK(std::count(right.begin(), right.end(), '\n') == 8);
  CHECK(right == DigitsTask(8, true).shown(DigitsTask(8, true).test_batch(0, 1), 0, batch.target_r));
  const Token other = (batch.target_r[1] + 1) % 10;
  CHECK(task.shown(batch, 1, {0, other})
            .starts_with(std::to_string(other) + ", is " + std::to_string(batch.target_r[1]) + "\n"));
}

TEST_CASE("digits: user pictures are read byte by byte", "[digits]") {
  const PictureSet set = pictures_of_idx(images_of("70"), "i", labels_of("70"), "l");
  CHECK(set.height == 2);
  CHECK(set.width == 3);
  REQUIRE(set.pictures.size() == 2);
  CHECK((set.pictures[1].pixels == std::vector<std::uint8_t>{10, 11, 12, 13, 14, 15}));
  CHECK(set.pictures[0].label == 7);
  CHECK(set.pictures[1].label == 0);
  CHECK(set.pictures[1].most == 255);

  const PictureSet lines = pictures_of_lines(line_of("16", "9") + "\r\n" + line_of("3", "0\r"), "f");
  REQUIRE(lines.pictures.size() == 2);
  CHECK(lines.height == 8);
  CHECK(lines.width == 8);
  CHECK(lines.pictures[0].label == 9);
  CHECK(lines.pictures[0].most == 16);
  CHECK((lines.pictures[1].pixels == std::vector<std::uint8_t>(64, 3)));
  CHECK(pictures_of_lines(line_of("1", "2").substr(0, 129), "f").pictures.size() == 1);  // no end of line
  // The same picture as other programs write it.
  const auto with_separator = [](std::string text, const std::string& separator) {
    for (std::size_t at = 0; (at = text.find(',', at)) != text.npos; at += separator.size()) {
      text.replace(at, 1, separator);
    }
    return text;
  };
  std::string names;
  for (int i = 0; i < 64; ++i) names += "pixel" + std::to_string(i) + ",";
  for (const std::string& text :
       {with_separator(line_of("5", "3"), ", "), with_separator(line_of(" 5", " 3 \r"), " ,"), line_of("5.0", "3.00"),
        line_of("5.", "3"), line_of("5.000000000000000000e+00", "3e0"), with_separator(line_of("5", "3"), ";"),
        with_separator(line_of("5.0", "3"), "\t"), names + "Label\r\n" + line_of("5", "3"),
        with_separator(names + "\"target\"\n" + line_of("5", "3"), ";")}) {
    CAPTURE(text);
    const PictureSet set_of_text = pictures_of_lines(text, "f");
    REQUIRE(set_of_text.pictures.size() == 1);
    CHECK((set_of_text.pictures[0].pixels == std::vector<std::uint8_t>(64, 5)));
    CHECK(set_of_text.pictures[0].label == 3);
    CHECK((set_of_text.notes.empty() == !text.starts_with("pixel")));
  }

  for (const std::string& bytes : {std::string("P2 #\n3\t2 # size\n200\n0 1 2\n#x\n 3 4 200#\n"),
                                   std::string("P5\n#a b\n3 2\n200\n\0\1\2\3\4\xC8", 22)}) {
    CAPTURE(bytes);
    const PictureSet picture = picture_of_pgm(bytes, "p");
    CHECK(picture.height == 2);
    CHECK(picture.width == 3);
    REQUIRE(picture.pictures.size() == 1);
    CHECK((picture.pictures[0].pixels == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 200}));
    CHECK(picture.pictures[0].most == 200);
  }
}

TEST_CASE("digits: faults in user pictures are reported in one line", "[digits]") {
  const auto changed = [](std::string bytes, std::size_t at, char byte) {
    bytes.at(at) = byte;
    return bytes;
  };
  const std::string images = images_of("705"), labels = labels_of("705");
  const auto of_idx = [&](const std::string& i, const std::string& l) {
    return error_of([&] { pictures_of_idx(i, "i", l, "l"); });
  };
  CHECK(of_idx(images, labels) == "no error");
  const std::string head = "expected an IDX file of images, with a header of 16 bytes that begins with 2051";
  CHECK(of_idx("", labels) == "i: " + head);
  CHECK(of_idx(images.substr(0, 15), labels) == "i: " + head);
  CHECK(of_idx(labels + labels, labels) == "i: " + head);
  CHECK(of_idx(images, labels.substr(0, 7)) ==
        "l: expected an IDX file of labels, with a header of 8 bytes that begins with 2049");
  CHECK(of_idx(images, images) == of_idx(images, labels.substr(0, 7)));
  CHECK(of_idx(images.substr(0, 33), labels) == "i: expected 18 bytes of pixels, as its header says, found 17");
  CHECK(of_idx(images + "x", labels) == "i: expected 18 bytes of pixels, as its header says, found 19");
  CHECK(of_idx(images, labels.substr(0, 10)) == "l: expected 3 bytes of labels, as its header says, found 2");
  CHECK(of_idx(images, labels + "x") == "l: expected 3 bytes of labels, as its header says, found 4");
  CHECK(of_idx(images, labels_of("70")) == "l: expected 3 labels, as many as there are images in i, found 2");
  CHECK(of_idx(images, changed(labels, 9, 10)) == "l: label number 2: expected 0 to 9, found 10");
  CHECK(of_idx(changed(images, 11, 0), labels) == "i: pictures of 0 x 3 pixels, expected 1 to 1024 per side");
  CHECK(of_idx(changed(images, 14, 5), labels) == "i: pictures of 2 x 1283 pixels, expected 1 to 1024 per side");
  // Counts that no memory has: all of four bytes.
  const std::string all = words_of_idx({0x803, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF});
  CHECK(of_idx(all, labels) == "i: pictures of 4294967295 x 4294967295 pixels, expected 1 to 1024 per side");
  CHECK(of_idx(words_of_idx({0x803, 0xFFFFFFFF, 1024, 1024}), words_of_idx({0x801, 0xFFFFFFFF})) ==
        "i: expected 4503599626321920 bytes of pixels, as its header says, found 0");

  const auto of_lines = [](const std::string& bytes) { return error_of([&] { pictures_of_lines(bytes, "f"); }); };
  const std::string good = line_of("1", "2");
  CHECK(of_lines(good + "\n1,2\n") ==
        "f: line 3: expected 64 numbers and a digit with commas between them, found 2 fields");
  CHECK(of_lines("1," + good) ==
        "f: line 1: expected 64 numbers and a digit with commas between them, found 66 fields");
  CHECK(of_lines(good + line_of("17", "2")) == "f: line 2: number 1: expected 0 to 16, found \"17\"");
  CHECK(of_lines(line_of("-1", "2")) == "f: line 1: number 1: expected 0 to 16, found \"-1\"");
  CHECK(of_lines(line_of("99999999999999999999", "2")) ==
        "f: line 1: number 1: expected 0 to 16, found \"99999999999999999999\"");
  for (const char* number : {"1.5", "1.0.0", "-1.0", "16.5", "17.0", "nan", "inf", "0x1", "1 0", "1,0"}) {
    CAPTURE(number);
    std::string text = line_of("#", "2");
    for (char& c : text) c = c == ',' ? ';' : c;
    CHECK(of_lines(text.replace(0, 1, number)) ==
          std::string("f: line 1: number 1: expected 0 to 16, found \"") + number + "\"");
  }
  CHECK(of_lines(line_of("1", "2.5")) == "f: line 1: the digit: expected 0 to 9, found \"2.5\"");
  // A header comes first and names the column of the digit.
  CHECK(of_lines(good + line_of("x", "label")) == "f: line 2: number 1: expected 0 to 16, found \"x\"");
  CHECK(of_lines(line_of("label", "pixel63")) == "f: line 1: number 1: expected 0 to 16, found \"label\"");
  CHECK(of_lines(line_of("1", "10")) == "f: line 1: the digit: expected 0 to 9, found \"10\"");
  CHECK(of_lines(line_of("1", "")) == "f: line 1: the digit: expected 0 to 9, found \"\"");

  const std::pair<const char*, const char*> faults[] = {
      {"", "p: expected a PGM picture, which begins with P2 or P5"},
      {"P6 1 1 255 abc", "p: expected a PGM picture, which begins with P2 or P5"},
      {"P2", "p: width: expected 1 to 1024, found the end"},
      {"P2 3", "p: height: expected 1 to 1024, found the end"},
      {"P2 3 0 9", "p: height: expected 1 to 1024, found \"0\""},
      {"P5 99999999999999999999 2 9", "p: width: expected 1 to 1024, found \"99999999999999999999\""},
      {"P5 1024 1025 9", "p: height: expected 1 to 1024, found \"1025\""},
      {"P5 1 1 65535 xx", "p: its largest value: expected 1 to 255, found \"65535\""},
      {"P5 1 1 0 x", "p: its largest value: expected 1 to 255, found \"0\""},
      {"P5 1024 1024 9", "p: expected 1048576 bytes of pixels, as its header says, found 0"},
      {"P5 2 1 9\n\1", "p: expected 2 bytes of pixels, as its header says, found 1"},
      {"P5 2 1 9\n\1\2\3", "p: expected 2 bytes of pixels, as its header says, found 3"},
      {"P5 2 1 9\n\1\12", "p: pixel 2: expected 0 to 9, found 10"},
      {"P2 2 1 9 1", "p: pixel 2: expected 0 to 9, found the end"},
      {"P2 2 1 9 1 10", "p: pixel 2: expected 0 to 9, found \"10\""},
      {"P2 2 1 9 1 -1", "p: pixel 2: expected 0 to 9, found \"-1\""},
      {"P2 2 1 9 1 2 3", "p: expected the end of the file after 2 pixels, found \"3\""}};
  for (const auto& [bytes, message] : faults) {
    CAPTURE(bytes);
    CHECK(error_of([&, &given = bytes] { picture_of_pgm(given, "p"); }) == message);
  }
}

TEST_CASE("digits: user pictures are found by path, and a part is held out", "[digits]") {
  const TestFolder folder;
  const auto at = [&](const std::string& name) {
    const std::filesystem::path path = folder / name;
    std::filesystem::create_directories(path.parent_path());
    return path.string();
  };
  const auto error = [](const std::string& path) { return error_of([&] { read_pictures(path); }); };
  const auto shown = [](const std::string& path) { return digits_shown(read_pictures(path)); };

  // IDX: the labels next to the images; without a test set, the last fifth, rounded up.
  write_bytes(at("mnist/train-images-idx3-ubyte"), images_of("0123456"));
  const std::string images = folder / "mnist/train-images-idx3-ubyte", labels = at("mnist/train-labels-idx1-ubyte");
  CHECK(error(folder / "mnist") == labels + ": cannot be opened: No such file or directory");
  write_bytes(labels + ".gz", "\x1F\x8B");
  CHECK(error(images) == labels + ".gz: is a gzip file, expected its content; gunzip " + labels + ".gz unpacks it");
  write_bytes(labels, labels_of("0123456"));
  CHECK(shown(images) == "01234|56");
  CHECK(shown(folder / "mnist") == "01234|56");
  const std::string test = at("mnist/t10k-images-idx3-ubyte");
  write_bytes(test + ".gz", "\x1F\x8B");
  CHECK(error(images) == test + ".gz: is a gzip file, expected its content; gunzip " + test + ".gz unpacks it");
  write_bytes(test, images_of("87"));
  write_bytes(at("mnist/t10k-labels-idx1-ubyte"), labels_of("87"));
  CHECK(shown(images) == "0123456|87");
  CHECK(shown(folder / "mnist") == "0123456|87");
  CHECK(error(test) == test + ": holds 2 pictures, expected 5 at least: a fifth is held back");
  std::string other = images_of("87");
  std::swap(other[11], other[15]);
  write_bytes(test, other);
  CHECK(error(images) == test + ": pictures of 3 x 2 pixels, expected 2 x 3 pixels, as of " + images);
  write_bytes(test, images_of(""));
  write_bytes(at("mnist/t10k-labels-idx1-ubyte"), labels_of(""));
  CHECK(error(images) == test + ": holds no pictures, expected some");
  write_bytes(at("pictures"), images_of("01234"));
  CHECK(error(folder / "pictures") ==
        folder / "pictures" +
            ": expected a name with images and idx3 in it, such as train-images-idx3-ubyte, from which "
            "the name of the label file follows");
  write_bytes(at("dots/train-images.idx3-ubyte"), images_of("01234"));
  write_bytes(at("dots/train-labels.idx1-ubyte"), labels_of("01234"));
  CHECK(shown(folder / "dots") == "0123|4");

  // The names of other collections, of which a folder may hold several.
  write_bytes(at("emnist/emnist-digits-train-images-idx3-ubyte"), images_of("012345"));
  write_bytes(at("emnist/emnist-digits-train-labels-idx1-ubyte"), labels_of("012345"));
  write_bytes(at("emnist/emnist-digits-test-images-idx3-ubyte"), images_of("9"));
  write_bytes(at("emnist/emnist-digits-test-labels-idx1-ubyte"), labels_of("9"));
  write_bytes(at("emnist/emnist-digits-mapping.txt"), "0 48");
  CHECK(shown(folder / "emnist") == "012345|9");
  CHECK(shown(folder / "emnist/emnist-digits-train-images-idx3-ubyte") == "012345|9");
  write_bytes(at("emnist/emnist-mnist-train-images-idx3-ubyte.gz"), "\x1F\x8B");
  CHECK(error(folder / "emnist") ==
        folder / "emnist" +
            ": expected one IDX file of images to train on, found emnist-digits-train-images-idx3-ubyte, "
            "emnist-mnist-train-images-idx3-ubyte; name one of them");
  write_bytes(at("emnist/train-images-idx3-ubyte"), images_of("54321"));
  write_bytes(at("emnist/train-labels-idx1-ubyte"), labels_of("54321"));
  CHECK(shown(folder / "emnist") == "5432|1");
  write_bytes(at("packed/qmnist-train-images-idx3-ubyte.gz"), "\x1F\x8B");
  CHECK(error(folder / "packed").find("qmnist-train-images-idx3-ubyte.gz: is a gzip file, expected") !=
        std::string::npos);
  write_bytes(at("own/my-images-idx3-ubyte"), images_of("54321"));
  write_bytes(at("own/my-labels-idx1-ubyte"), labels_of("54321"));
  CHECK(shown(folder / "own") == "5432|1");
  for (const auto& [bytes, what] : {std::pair{"PK\3\4\x80", "a zip archive"}, {"7z\xBC\xAF\x27\x1C", "a 7z archive"}}) {
    for (const char* name : {"digits.npz", "zip/train-images-idx3-ubyte", "zipped/1.pgm"}) {
      write_bytes(at(name), bytes);
      const std::string path = folder / name, place = path.substr(0, path.rfind('/'));
      CHECK(error(place == folder.path() ? path : place).starts_with(path + ": is " + what + ", expected an IDX file"));
    }
  }

  // Lines.
  std::string lines;
  for (int i = 0; i < 11; ++i) lines += line_of(std::to_string(i), std::to_string(i % 10));
  write_bytes(at("digits.csv"), lines);
  CHECK(shown(folder / "digits.csv") == "01234567|890");
  write_bytes(at("mark.csv"), "\uFEFF" + line_of("x", "y") + lines);
  const LabelledPictures marked = read_pictures(folder / "mark.csv");
  CHECK(digits_shown(marked) == "01234567|890");
  REQUIRE(marked.notes.size() == 2);
  CHECK(marked.notes[0] == folder / "mark.csv" + ": begins with a UTF-8 byte order mark, which is dropped");
  CHECK(marked.notes[1] == folder / "mark.csv" + ": line 1: contains column names, and is not a picture");
  CHECK(fingerprint_of(marked) == fingerprint_of(read_pictures(folder / "digits.csv")));
  for (const bool has_mark : {false, true}) {
    std::string wide = has_mark ? "\xFF\xFE" : "";
    for (const char c : lines) wide += {c, '\0'};
    write_bytes(at("wide.csv"), wide);
    CHECK(
        error(folder / "wide.csv")
            .starts_with(folder / "wide.csv" + ": is UTF-16 text (little-endian), expected text in UTF-8; iconv -f "));
  }
  // The whole file as the test set.
  const auto all_shown = [](const std::string& path) { return digits_shown(read_pictures(path, true)); };
  CHECK(all_shown(folder / "digits.csv") == "|01234567890");
  CHECK(all_shown(folder / "emnist/emnist-digits-train-images-idx3-ubyte") == "|0123459");
  write_bytes(at("one.csv"), line_of("1", "7"));
  CHECK(all_shown(folder / "one.csv") == "|7");
  CHECK(error(folder / "one.csv") ==
        folder / "one.csv" + ": holds 1 pictures, expected 5 at least: a fifth is held back");
  write_bytes(at("packed.csv"), "\x1F\x8B\x08");
  const std::string packed = folder / "packed.csv";
  CHECK(error(packed) ==
        packed + ": is a gzip file, expected its content; gunzip <" + packed + " >" + packed + ".unpacked unpacks it");
  write_bytes(at("empty"), "");
  CHECK(error(folder / "empty") == folder / "empty" + ": is empty, expected pictures of digits");
  CHECK(error(folder / "none") == folder / "none" + ": cannot be opened: No such file or directory");
  const std::string accepted =
      ": expected an IDX file of images, lines of 64 numbers and a digit, or a folder of MNIST or of PGM pictures";
  for (const std::string& bytes : {std::string("\x89PNG"), std::string("P5 1 1 9 x"), labels_of("01234"),
                                   std::string("label,text\n"), std::string("\n")}) {
    write_bytes(at("other"), bytes);
    CHECK(error(folder / "other") == folder / "other" + accepted);
  }

  // PGM, by name or by folder; every fifth path.
  const auto pgm = [](int shade) { return "P2 2 2 9 0 1 2 " + std::to_string(shade); };
  std::filesystem::create_directories(folder / "pgm");
  CHECK(error(folder / "pgm") == folder / "pgm" + ": holds no pictures of digits, expected " + accepted.substr(11));
  for (const char* name : {"0.pgm", "1_2.pgm", "2-x.PGM", "3x.pgm", "4.old.pgm", "5.pgm", "README", ".6.pgm"}) {
    write_bytes(at(std::string("pgm/") + name), pgm(name[0] - '0'));
  }
  CHECK(shown(folder / "pgm") == "01235|4");
  CHECK(all_shown(folder / "pgm") == "|012345");
  CHECK(read_pictures(folder / "pgm").pictures[3].pixels[3] == 3);
  write_bytes(at("pgm/7/a.pgm"), pgm(7));
  write_bytes(at("pgm/7/b.pgm"), pgm(7));
  write_bytes(at("pgm/7/notes"), "");
  CHECK(shown(folder / "pgm") == "0123577|4");
  for (const char* name : {"pgm/0001.pgm", "pgm/x.pgm"}) {
    write_bytes(at(name), pgm(1));
    CHECK(error(folder / "pgm") ==
          folder / name + ": expected a name that begins with the digit alone, such as 7_0001.pgm");
    std::filesystem::remove(folder / name);
  }
  write_bytes(at("pgm/8.pgm"), "P2 2 1 9 0 1");
  CHECK(error(folder / "pgm") == folder / "pgm/8.pgm" + ": pictures of 1 x 2 pixels, expected 2 x 2 pixels, as of " +
                                     folder.path() + "/pgm/0.pgm");
  write_bytes(at("pgm/8.pgm"), "P2 2 2 9 0 1");
  CHECK(error(folder / "pgm") == folder / "pgm/8.pgm" + ": pixel 3: expected 0 to 9, found the end");
  std::filesystem::remove(folder / "pgm/8.pgm");
  write_bytes(at("pgm/9.pgm.gz"), "");
  CHECK(error(folder / "pgm").ends_with("9.pgm.gz unpacks it"));
  std::filesystem::remove(folder / "pgm/9.pgm.gz");
  write_bytes(at("pgm/ten/a.pgm"), pgm(1));
  CHECK(error(folder / "pgm") == folder / "pgm/ten" + ": expected folders named by a digit, 0 to 9, or train and test");
  write_bytes(at("parts/train/1/a.pgm"), pgm(1));
  write_bytes(at("parts/train/2.pgm"), pgm(2));
  std::filesystem::create_directories(folder / "parts/test");
  CHECK(error(folder / "parts") == folder / "parts/test" + ": holds no pictures, expected some");
  write_bytes(at("parts/test/1.pgm"), pgm(3));
  CHECK(shown(folder / "parts") == "12|1");
  CHECK(all_shown(folder / "parts") == "|121");

  // The training pictures must contain every digit that the network has to learn.
  const auto teaching = [&](const std::string& all) {
    write_bytes(at("t/train-images-idx3-ubyte"), images_of(all));
    write_bytes(at("t/train-labels-idx1-ubyte"), labels_of(all));
    return error_of([&] { require_teaching(read_pictures(folder / "t"), "t"); });
  };
  CHECK(teaching("12121") == "no error");
  CHECK(teaching("12123") == "t: the test set contains the digit 3, which no training picture shows");
  CHECK(teaching("11111") == "t: all training pictures show the same digit, expected at least two digits");

  // The same pictures in another folder have the same fingerprint; other pictures, or another order, do not.
  const auto known = [&](const std::string& all) {
    write_bytes(at("k/train-images-idx3-ubyte"), images_of(all));
    write_bytes(at("k/train-labels-idx1-ubyte"), labels_of(all));
    return fingerprint_of(read_pictures(folder / "k"));
  };
  CHECK(known("01234").starts_with("4 and 1 pictures of 2 x 3 pixels, crc32 "));
  CHECK(known("01234") == fingerprint_of(read_pictures(folder / "dots")));
  CHECK(known("01234") != known("10234"));
}

TEST_CASE("digits: pictures of any size become patches, shifted by at most one pixel", "[digits]") {
  CHECK(usual_patch(16, 16) == 4);
  CHECK(usual_patch(28, 28) == 7);
  CHECK(usual_patch(8, 8) == 2);
  CHECK(usual_patch(7, 7) == 1);
  CHECK(usual_patch(3, 3) == 1);
  CHECK(usual_patch(12, 24) == 4);
  CHECK(fault_of_patch(4, 6, 2).empty());
  CHECK(fault_of_patch(4, 6, 3) == "expected 1 or 2, which divides pictures of 4 x 6 pixels, found 3");

  LabelledPictures pictures{.height = 4, .width = 6};
  for (int i = 0; i < 3; ++i) {
    Picture picture{.pixels = {}, .label = static_cast<Token>(i), .most = 100};
    for (int pixel = 0; pixel < 24; ++pixel) picture.pixels.push_back(static_cast<std::uint8_t>(50 * (i % 2) + pixel));
    pictures.pictures.push_back(picture);
  }
  pictures.training = 2;
  const DigitsTask task(pictures, "a\nb", 2, true);
  ModelConfig config = {.causal = false};
  task.shape(config);
  CHECK(config.context == 7);
  CHECK(config.patch_inputs == 4);
  CHECK(task.summary() == "a b, 2 for training, 1 for testing, 6 patches of 2 x 2 pixels");
  CHECK(task.metadata().at("height") == "4");
  CHECK(task.metadata().at("width") == "6");
  CHECK_FALSE(DigitsTask(4, false).metadata().contains("height"));
  CHECK(task.bytes() >= 72);

  const auto value_at = [&](const Batch& batch, Index b, Index y, Index x) {
    const Index p = y / 2 * 3 + x / 2, i = y % 2 * 2 + x % 2;
    return batch.patch_bpi.at(static_cast<std::size_t>((b * 6 + p) * 4 + i));
  };
  // The test set stays the same.
  const Batch test = task.test_batch(0, 1);
  CHECK(test.target_r.at(0) == 2);
  for (Index y = 0; y < 4; ++y) {
    for (Index x = 0; x < 6; ++x) CHECK(value_at(test, 0, y, x) == static_cast<float>(2 * (6 * y + x)) / 100 - 1);
  }
  CHECK(task.shown(test, 0, {2}) ==
        DigitsTask(pictures, "", 1, false).shown(DigitsTask(pictures, "", 1, false).test_batch(0, 1), 0, {2}));

  // Rows of a step: drawn with the run's seed, and moved in all nine ways.
  const Index B = 200;
  const Batch step = task.training_batch(B, 5, 3);
  CHECK((step.patch_bpi == task.training_batch(B, 5, 3).patch_bpi));
  CHECK_FALSE((step.patch_bpi == task.training_batch(B, 6, 3).patch_bpi));
  std::set<std::uint64_t> ways;
  for (Index b = 0; b < B; ++b) {
    const auto choice = [&](std::uint32_t site, std::uint64_t n) {
      return (philox_word(5, static_cast<std::uint64_t>(b), 3, site) * n) >> 32;
    };
    const auto example = static_cast<Index>(choice(1, 2));
    const std::uint64_t way = choice(10, 9);
    ways.insert(way);
    const Index down = static_cast<Index>(way / 3) - 1, right = static_cast<Index>(way % 3) - 1;
    REQUIRE(step.target_r.at(static_cast<std::size_t>(b)) == example);
    for (Index y = 0; y < 4; ++y) {
      for (Index x = 0; x < 6; ++x) {
        const Index from_y = y - down, from_x = x - right;
        const bool inside = 0 <= from_y && from_y < 4 && 0 <= from_x && from_x < 6;
        const Index pixel = 50 * example + (inside ? 6 * from_y + from_x : 0);
        REQUIRE(value_at(step, b, y, x) == static_cast<float>(2 * pixel) / 100 - 1);
      }
    }
  }
  CHECK(ways.size() == 9);

  // Three rows of pixels are two lines; the last one has one.
  LabelledPictures odd{.height = 3, .width = 1, .pictures = {}, .training = 0};
  odd.pictures.push_back({.pixels = {255, 255, 255}, .label = 1, .most = 255});
  const DigitsTask three(odd, "f", 1, false);
  CHECK(three.shown(three.test_batch(0, 1), 0, {1}) == "1\n    @\n    =");
}

TEST_CASE("digits: programs train, resume and report the accuracy", "[digits][programs]") {
  const Arguments small =
      words("--task digits --channels 16 --heads 2 --layers 1 --batch 8 --steps 20 --eval-every 10 --eval-tokens 800");
  const TaskPlace place(small + words("--patch 8 --class-pooling cls"));
  check_life_of_task(place, {.task = words("--task digits --patch 8"),
                             .data = ", endless, 2000 for testing, 4 patches of 8 x 8 pixels\n",
                             .sample = "[0-9](, is [0-9])?",
                             .keys = {{"task", "digits"}, {"patch", "8"}},
                             .interrupted = "--schedule inverse-sqrt",
                             .fixed = "--patch 4"});
  const Checkpoint model = model_of(place.run);
  CHECK(model.config.context == 5);
  CHECK_FALSE(model.config.causal);
  check_interrupted_run(small, "step 10/", place);

  const Outcome evaluated =
      require_success(run_program_of_build("evaluate", {"--checkpoint", place.run, "--errors", "2"}));
  CHECK(last_line(evaluated.out).starts_with("evaluate: digits, 2000 examples, "));
  CHECK(evaluated.out.find("\nwrong: example ") != std::string::npos);
  CHECK(read_bytes(place.run + "/sample.txt").find("\n    ") != std::string::npos);
  require_refusal(run_program_of_build("generate", {"--checkpoint", place.run}), 1, {"models of task digits"});
  require_success(train_digits({"--init-from", place.run, "--steps", "1", "--out", place / "second"}));

  require_refusal(train_digits({"--patch", "3"}), 2, {"--patch: expected 1, 2, 4, 8 or 16, which divides"});
  require_refusal(train_digits({"--patch", "32"}), 2, {"--patch", "16"});
  require_refusal(train_digits({"--context", "9"}), 2, {"--context: expected no value"});
  require_refusal(train_digits({"--labels", "tone"}), 2, {"--labels", "reviews"});
  require_refusal(train_digits(words("--causal 1 --chunk 4") + Arguments{"--out", place / "chunks"}), 2,
                  {"--chunk: expected a language model"});
  require_refusal(train_digits({"--init-from", place.run, "--patch", "4", "--out", place / "x"}), 1,
                  {"--patch: expected 8"});
}

TEST_CASE("digits: programs learn user pictures, and recognise them in evaluation", "[digits][programs]") {
  const TestFolder folder;
  const std::string csv = folder / "digits.csv", run = folder / "run";
  write_bytes(csv, drawn_lines(60));
  const Arguments small = words("--channels 8 --heads 2 --layers 1 --batch 8 --steps 12 --eval-every 6");
  const Outcome trained = require_success(train_digits(small + Arguments{"--data", csv, "--out", run}));
  CHECK(trained.out.find("48 for training, 12 for testing, 16 patches of 2 x 2 pixels") != std::string::npos);
  const Checkpoint model = read_checkpoint(model_path(run));
  CHECK(model.task.at("patch") == "2");
  CHECK(model.task.at("height") == "8");
  CHECK(model.task.at("width") == "8");
  CHECK(model.config.context == 16);
  CHECK(read_bytes(run + "/sample.txt").find("\n    ") != std::string::npos);
  check_interrupted_run(small + Arguments{"--task", "digits", "--data", csv}, "step 6/", folder);

  const auto evaluated = [&](const Arguments& more) {
    return run_program_of_build("evaluate", Arguments{"--checkpoint", run} + more);
  };
  const Outcome all = require_success(evaluated({"--data", csv, "--errors", "1"}));
  CHECK(last_line(all.out).starts_with("evaluate: digits, 12 examples, "));
  CHECK(all.out.find("\ndigit 0: ") < all.out.find("\ndigit 9: "));
  const std::string own = folder / "own.csv";
  write_bytes(own, "\uFEFF" + drawn_lines(3));
  const Outcome judged = require_success(evaluated({"--data", own, "--all"}));
  CHECK(judged.out.starts_with(own + ": begins with a UTF-8 byte order mark"));
  CHECK(last_line(judged.out).starts_with("evaluate: digits, 3 examples, "));
  require_refusal(evaluated({"--all"}), 2, {"--all: expected together with --data"});
  require_refusal(evaluated({}), 1,
                  {"model.safetensors: was trained on pictures of a file, expected --data FILE or FOLDER"});
  // The same pictures, as PGM: one in five is scored.
  const PictureSet set = pictures_of_lines(read_bytes(csv), csv);
  std::filesystem::create_directories(folder / "pgm");
  for (std::size_t i = 0; i < 10; ++i) {
    const Picture& picture = set.pictures[i];
    write_bytes(folder / "pgm/" + std::to_string(picture.label) + "_" + std::to_string(i) + ".pgm",
                "P5 8 8 16\n" + std::string(picture.pixels.begin(), picture.pixels.end()));
  }
  CHECK(last_line(require_success(evaluated({"--data", folder / "pgm"})).out)
            .starts_with("evaluate: digits, 2 examples, "));
  // Pictures of another size.
  write_bytes(folder / "train-images-idx3-ubyte", images_of("01210"));
  write_bytes(folder / "train-labels-idx1-ubyte", labels_of("01210"));
  const std::string images = folder / "train-images-idx3-ubyte";
  require_refusal(
      evaluated({"--data", images}), 1,
      {images + ": pictures of 2 x 3 pixels, expected 8 x 8 pixels, as " + run + "/model.safetensors learned"});
  require_refusal(train_digits({"--init-from", run, "--data", images, "--out", folder / "x"}), 1,
                  {"pictures of 2 x 3 pixels, expected 8 x 8"});
  require_refusal(run_program_of_build("train", {"--resume", run, "--data", images}), 1, {"2 x 3 pixels"});
  require_success(train_digits({"--init-from", run, "--data", csv, "--steps", "1", "--out", folder / "tuned"}));
  require_refusal(train_digits({"--init-from", run, "--out", folder / "x"}), 1, {"expected --data FILE or FOLDER"});

  // Drawn digits may be followed by pictures of a user that are as large.
  const std::string drawn = folder / "drawn";
  require_success(train_digits(small + Arguments{"--eval-tokens", "800", "--out", drawn}));
  require_refusal(run_program_of_build("evaluate", {"--checkpoint", drawn, "--data", csv}), 1,
                  {csv + ": pictures of 8 x 8 pixels, expected 16 x 16 pixels"});

  // A run resumes with its pictures, and with no others.
  require_success(run_program_of_build("train", {"--resume", run, "--steps", "14"}));
  write_bytes(csv, drawn_lines(60) + drawn_lines(1));
  require_refusal(run_program_of_build("train", {"--resume", run, "--steps", "16"}), 1,
                  {"resume.safetensors: expected the data that the run was trained on (48 and 12 pictures of 8 x 8"});
  write_bytes(csv, "");
  require_refusal(run_program_of_build("train", {"--resume", run, "--steps", "16"}), 1, {csv + ": is empty"});
  std::filesystem::remove(run + "/data.txt");
  require_refusal(run_program_of_build("train", {"--resume", run, "--steps", "16"}), 1,
                  {"was trained on pictures of a file, expected --data FILE or FOLDER"});

  require_refusal(train_digits({"--data", ""}), 2, {"--data: expected a file or a folder"});
  require_refusal(train_digits({"--data", folder / "none"}), 1, {folder / "none" + ": cannot be opened"});
  require_refusal(train_digits({"--data", images, "--patch", "2"}), 1,
                  {images + ": --patch: expected 1, which divides pictures of 2 x 3 pixels, found 2"});
  require_refusal(train_digits({"--data", images, "--patch", "513"}), 2, {"--patch", "512"});
  require_refusal(train_digits({"--data", images, "--context", "9"}), 2, {"--context: expected no value"});
}

TEST_CASE("digits: metadata of impossible pictures are refused", "[digits]") {
  const TestFolder folder;
  const std::string path = folder / "model";
  const auto error = [&](const std::string& change) {
    LabelledPictures pictures{.height = 4, .width = 6};
    pictures.pictures.assign(5, {.pixels = std::vector<std::uint8_t>(24), .label = 1, .most = 9});
    pictures.training = 4;
    const DigitsTask task(pictures, "f", 2, false);
    Checkpoint model;
    model.config = {.layers = 1, .channels = 4, .heads = 1, .mixer = "dot", .causal = false};
    task.shape(model.config);
    model.task = task.metadata();
    const std::size_t equals = change.find('=');
    const std::string key = change.substr(0, equals);
    if (equals == change.npos) {
      model.task.erase(key);
    } else {
      model.task[key] = change.substr(equals + 1);
    }
    model.weights = some_weights(model.config, 0.1);
    write_checkpoint(path, model);
    return error_of([&] { read_checkpoint(path); });
  };
  CHECK(error("patch=2") == "no error");
  CHECK(error("patch=3") ==
        path + ": metadata patch: expected 1 or 2, which divides pictures of 4 x 6 pixels, found 3");
  CHECK(error("patch=0") == path + ": metadata patch: expected 1 to 512, found \"0\"");
  CHECK(error("patch=1") == path + ": metadata patch_inputs: expected 1, as the task says, found 4");
  CHECK(error("height=8") == path + ": metadata context: expected 12, as the task says, found 6");
  CHECK(error("height") == path + ": metadata has no height, expected height and width");
  CHECK(error("width") == path + ": metadata has no width, expected height and width");
  CHECK(error("width=1025") == path + ": metadata width: expected 1 to 1024, found \"1025\"");
  CHECK(error("width=x") == path + ": metadata width: expected 1 to 1024, found \"x\"");
}

}  // namespace abh
