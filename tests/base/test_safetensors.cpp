#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32.hpp"
#include "files/safetensors.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/invalid_utf8.hpp"

namespace fs = std::filesystem;
using namespace abh;

namespace {

std::string length_bytes(std::uint64_t length) { return {reinterpret_cast<const char*>(&length), sizeof length}; }

// A file made by hand.
std::string file_of(const std::string& header, const std::string& data = "") {
  return length_bytes(header.size()) + header + data;
}

// The checksum of a file whose checksum field contains eight zeros.
std::string crc_of(const std::string& header, const std::string& data = "") {
  char crc[9];
  std::snprintf(crc, sizeof crc, "%08x", crc32(data.data(), data.size(), crc32(header.data(), header.size())));
  return crc;
}

SafetensorsFile parse(const std::string& file) {
  const auto* bytes = reinterpret_cast<const std::byte*>(file.data());
  return SafetensorsFile::parse({bytes, bytes + file.size()}, "x.st");
}

std::string parse_error(const std::string& file) {
  return error_of([&] { parse(file); });
}

// The message without the path, for a header whose data section has `data_size` bytes.
std::string header_error(const std::string& header, std::size_t data_size = 0) {
  const std::string message = parse_error(file_of(header, std::string(data_size, 'd')));
  return message.starts_with("x.st: ") ? message.substr(6) : message;
}

std::string data_of(const SafetensorsTensor& tensor) {
  const Index bytes = tensor.count() * element_size(tensor.dtype);
  return {reinterpret_cast<const char*>(tensor.data), static_cast<std::size_t>(bytes)};
}

std::string data_of(const SafetensorsFile& file) {
  std::string data;
  for (const SafetensorsTensor& tensor : file.tensors()) data += data_of(tensor);
  return data;
}

// A small file with every kind of content, as the writer writes it.
std::string small_file() {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  const float weight_oi[2][3] = {{1.5F, -2, 3}, {0.25F, 0, -1e30F}};
  const std::int32_t token = 77;
  write_safetensors(path,
                    {{"weight_oi", Dtype::F32, {2, 3}, weight_oi},
                     {"nothing", Dtype::F32, {0, 4}, nullptr},
                     {"scalar", Dtype::I32, {}, &token}},
                    {{"note", "a \"b\""}});
  return read_bytes(path);
}

}  // namespace

TEST_CASE("safetensors: round trip of every data type", "[safetensors]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  unsigned char bytes[6 * 8];
  for (std::size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<unsigned char>(i * 37 + 11);
  const std::vector<std::pair<Dtype, Index>> sizes = {
      {Dtype::F64, 8}, {Dtype::F32, 4}, {Dtype::F16, 2}, {Dtype::BF16, 2}, {Dtype::I64, 8},
      {Dtype::I32, 4}, {Dtype::I16, 2}, {Dtype::I8, 1},  {Dtype::U64, 8},  {Dtype::U32, 4},
      {Dtype::U16, 2}, {Dtype::U8, 1},  {Dtype::BOOL, 1}};
  std::vector<SafetensorsOutput> outputs;
  for (const auto& [dtype, size] : sizes) outputs.push_back({dtype_name(dtype), dtype, {2, 3}, bytes});
  write_safetensors(path, outputs, {{"format", "test"}});

  const SafetensorsFile file = SafetensorsFile::read(path);
  CHECK(file.path() == path);
  CHECK(file.metadata().at("format") == "test");
  CHECK(file.metadata().at("abh_crc32").size() == 8);
  CHECK(file.version() == safetensors_version);
  CHECK(file.tensors().size() == sizes.size());
  for (const auto& [dtype, size] : sizes) {
    const SafetensorsTensor& tensor = file.tensor(dtype_name(dtype));
    CAPTURE(tensor.name);
    CHECK(tensor.dtype == dtype);
    CHECK(tensor.shape == std::vector<Index>{2, 3});
    REQUIRE(tensor.count() == 6);
    REQUIRE(element_size(dtype) == size);
    CHECK(std::memcmp(tensor.data, bytes, static_cast<std::size_t>(6 * size)) == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<std::uintptr_t>(size) == 0);
  }
}

TEST_CASE("safetensors: typed access", "[safetensors]") {
  const SafetensorsFile file = parse(small_file());
  CHECK(file.data<float>("weight_oi", {2, 3})[3] == 0.25F);
  CHECK(file.data<std::int32_t>("scalar", {})[0] == 77);
  CHECK(file.data<float>("nothing", {0, 4}) != nullptr);
  CHECK(file.has("scalar"));
  CHECK_FALSE(file.has("absent"));
  const std::string absent = "x.st: tensor \"absent\" is missing",
                    weight = "x.st: tensor \"weight_oi\" is F32 [2, 3], expected ";
  CHECK(error_of([&] { file.tensor("absent"); }) == absent);
  CHECK(error_of([&] { file.data<float>("absent", {1}); }) == absent);
  CHECK(error_of([&] { file.data<double>("weight_oi", {2, 3}); }) == weight + "F64 [2, 3]");
  CHECK(error_of([&] { file.data<float>("weight_oi", {3, 2}); }) == weight + "F32 [3, 2]");
  CHECK(error_of([&] { file.data<std::int32_t>("scalar", {1}); }) ==
        "x.st: tensor \"scalar\" is I32 [], expected I32 [1]");
}

TEST_CASE("safetensors: the exact bytes of a file", "[safetensors]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::uint8_t narrow[3] = {1, 2, 3};
  const std::uint16_t wide[2] = {0x0504, 0x0706};
  const std::vector<SafetensorsOutput> outputs = {{"n", Dtype::U8, {3}, narrow},
                                                  {"z", Dtype::U16, {1}, wide},
                                                  {"a", Dtype::U16, {1}, wide + 1},
                                                  {"m", Dtype::U8, {0}, nullptr}};
  // Check values that come with the metadata, as from a file that was read, are replaced.
  write_safetensors(path, outputs, {{"k", "v"}, {"crc32", "old"}, {"abh_crc32", "old"}, {"abh_version", "0"}});

  // Wide types before narrow types, otherwise in the given order; the header is padded with spaces to a multiple of 8.
  const std::string data = "\x04\x05\x06\x07\x01\x02\x03";
  std::string header =
      "{\"__metadata__\":{\"abh_crc32\":\"00000000\",\"abh_version\":\"3\",\"k\":\"v\"},"
      "\"z\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[0, 2]},"
      "\"a\":{\"dtype\":\"U16\",\"shape\":[1],\"data_offsets\":[2, 4]},"
      "\"n\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4, 7]},"
      "\"m\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[7, 7]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  header.replace(header.find("00000000"), 8, crc_of(header, data));
  const std::string first = read_bytes(path);
  CHECK(first == file_of(header, data));

  write_safetensors(path, outputs, {{"k", "v"}});
  CHECK(read_bytes(path) == first);
}

TEST_CASE("safetensors: round trip of names and metadata of any text", "[safetensors]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  const float value = 1;
  std::vector<std::string> texts = {"plain.0.weight",
                                    "quote\" back\\slash /",
                                    "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80",
                                    "",
                                    "line\nfeed\ttab\b\f\r",
                                    "\xEF\xBF\xBF",
                                    "\x7F",
                                    std::string(5000, 'n')};
  std::string controls;
  for (char c = 0; c < 0x20; ++c) controls += c;
  texts.push_back(controls);
  std::vector<SafetensorsOutput> outputs;
  std::map<std::string, std::string> metadata;
  for (const std::string& text : texts) {
    outputs.push_back({text, Dtype::F32, {}, &value});
    metadata[text] = text + text;
  }
  write_safetensors(path, outputs, metadata);
  const SafetensorsFile file = SafetensorsFile::read(path);
  REQUIRE(file.tensors().size() == texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(file.tensors()[i].name == texts[i]);
    CHECK(file.metadata().at(texts[i]) == texts[i] + texts[i]);
  }
}

TEST_CASE("safetensors: the writer refuses invalid tensors", "[safetensors]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  const float value = 1;
  const auto write_error = [&](const std::vector<SafetensorsOutput>& outputs, const std::string& text = "") {
    const std::string message = error_of([&] { write_safetensors(path, outputs, {{"k", text}}); });
    CHECK_FALSE(fs::exists(path));
    return message;
  };
  const std::string who = path + ": cannot write: ";
  const SafetensorsOutput good{"a", Dtype::F32, {1}, &value};
  CHECK(write_error({good, good}) == who + "a second tensor \"a\"");
  CHECK(write_error({{"__metadata__", Dtype::F32, {1}, &value}}) == who + "a second tensor \"__metadata__\"");
  CHECK(write_error({{"a", Dtype::F32, {-1}, &value}}) == who + "tensor \"a\" has the impossible shape [-1]");
  CHECK(write_error({{"a", Dtype::F32, {Index{1} << 61}, &value}}) ==
        who + "tensor \"a\" has the impossible shape [2305843009213693952]");
  for (const std::string& text : {std::string("\xFF"), std::string("a\x80"), std::string("\xC3")}) {
    CHECK(write_error({{text, Dtype::F32, {1}, &value}}) == who + "a name or metadata text is not valid UTF-8");
    CHECK(write_error({good}, text) == who + "a name or metadata text is not valid UTF-8");
  }
  CHECK(write_error({good}, std::string(100'000'000, 'x')) ==
        who + "the header would take 100000120 bytes, at most 100000000 are allowed");
}

TEST_CASE("safetensors: JSON in every form of the format", "[safetensors]") {
  // Members in any order, all kinds of white space, every escape, surrogate pairs, padding, names out of order.
  const std::string header =
      "{ \"b\" : {\"data_offsets\":[ 4 ,\t8 ],\n\"dtype\":\"\\u00463\\u0032\",\r\"shape\":[1 , 1]} , "
      "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83D\\uDe00\\u0000\":"
      "{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"I32\"},"
      "\"__metadata__\":{},\"e\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807,0],\"data_offsets\":[8,8]}}   ";
  const SafetensorsFile file = parse(file_of(header, "01234567"));
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name ==
        std::string("\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") + std::string(1, '\0'));
  CHECK(data_of(file.tensors()[0]) == "0123");
  CHECK(file.tensors()[1].name == "b");
  CHECK(file.tensors()[1].dtype == Dtype::F32);
  CHECK(data_of(file.tensors()[1]) == "4567");
  CHECK(file.tensors()[2].count() == 0);
  CHECK(file.metadata().empty());

  CHECK(parse(file_of("{}")).tensors().empty());
  CHECK(parse(file_of(" \t\n\r{ } \t\n\r")).tensors().empty());
  CHECK(parse(file_of("{\"__metadata__\": null }")).metadata().empty());
}

TEST_CASE("safetensors: headers are accepted and refused as by other readers", "[safetensors]") {
  std::istringstream list(read_bytes(ABH_SOURCE_DIR "/tests/base/safetensors_headers.txt"));
  int headers = 0;
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string verdict, escaped, header;
    std::size_t size = 0;
    if (line.empty() || line[0] == '#' || !(words >> verdict >> size >> escaped)) continue;
    for (std::size_t i = 0; i < escaped.size(); ++i) {
      const bool escape = escaped[i] == '%';
      header += escape ? static_cast<char>(std::stoi(escaped.substr(i + 1, 2), nullptr, 16)) : escaped[i];
      i += escape ? 2 : 0;
    }
    ++headers;
    CAPTURE(line);
    const std::string error = header_error(header, size);
    CHECK((error == "no error") == (verdict == "read"));
  }
  CHECK(headers > 250);
}

TEST_CASE("safetensors: tensors at odd addresses are copied to aligned memory", "[safetensors]") {
  // Header lengths with every remainder modulo 8, and a tensor after a single byte.
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const std::string header =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[1,17]},"
        "\"c\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[17,17]}}" +
        std::string(padding, ' ');
    const SafetensorsFile odd = parse(file_of(header, "!0123456789abcdef"));
    CHECK(data_of(odd.tensor("b")) == "0123456789abcdef");
    CHECK(reinterpret_cast<std::uintptr_t>(odd.data<double>("b", {2})) % 8 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(odd.data<double>("c", {0})) % 8 == 0);
  }
  SafetensorsFile file = parse(file_of("{}"));
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const std::string header =
        "{\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}" + std::string(padding, ' ');
    file = parse(file_of(header, std::string("\0\0\0\0\0\0\xF8\x3F", 8)));  // moved: the data must move along
    const double* b = file.data<double>("b", {1});
    CHECK(reinterpret_cast<std::uintptr_t>(b) % 8 == 0);
    CHECK(*b == 1.5);
    CHECK(reinterpret_cast<std::uintptr_t>(file.tensor("b").data) % 8 == 0);
  }
}

TEST_CASE("safetensors: other files are refused", "[safetensors]") {
  const std::string who = "x.st: not a safetensors file: ";
  CHECK(parse_error("") == who + "0 bytes, expected at least 8 with the length of the header");
  CHECK(parse_error("1234567") == who + "7 bytes, expected at least 8 with the length of the header");
  CHECK(parse_error(length_bytes(0)) == who + "header of 0 bytes, expected at least 2");
  CHECK(parse_error(length_bytes(0) + "{}") == who + "header of 0 bytes, expected at least 2");
  CHECK(parse_error(length_bytes(3) + "{}") ==
        who + "header of 3 bytes, expected at most the 2 that follow its length");
  CHECK(parse_error(length_bytes(100'000'000) + "{}") ==
        who + "header of 100000000 bytes, expected at most the 2 that follow its length");
  CHECK(parse_error(length_bytes(100'000'001) + "{}") == who + "header of 100000001 bytes, expected at most 100000000");
  CHECK(parse_error(length_bytes(~std::uint64_t{0}) + "{}") ==
        who + "header of 18446744073709551615 bytes, expected at most 100000000");
  CHECK(parse_error("First Citizen: before we proceed") ==
        who + "header of 7584941881947220294 bytes, expected at most 100000000");
  CHECK(parse_error(file_of("\xEF\xBB\xBF{}")) == who + "header begins with byte 0xef, expected '{'");
  CHECK(parse_error(file_of("[]")) == who + "header begins with byte 0x5b, expected '{'");
}

TEST_CASE("safetensors: headers that are not the expected JSON", "[safetensors]") {
  struct Case {
    std::string header;
    int byte;
    std::string what;
  };
  const std::string end = "found the end of the header, expected ",
                    spaces = ", expected nothing but white space after the closing '}'",
                    half = " is half of a surrogate pair, expected both halves";
  const Case cases[] = {
      {"{", 1, end + "a string"},
      {"{}}", 2, "found '}'" + spaces},
      {"{}  x", 4, "found 'x'" + spaces},
      {std::string("{}\0", 3), 2, "found byte 0x00" + spaces},
      {"{,}", 1, "found ',', expected a string"},
      {"{a:{}}", 1, "found 'a', expected a string"},
      {"{\"a\"}", 4, "found '}', expected ':'"},
      {"{\"a\":1}", 5, "found '1', expected '{'"},
      {"{\"a\":null}", 5, "found 'n', expected '{'"},
      {"{\"a\":{{{{", 6, "found '{', expected a string"},
      {"{\"__metadata__\":{},}", 19, "found '}', expected a string"},
      {"{\"__metadata__\":{} \"a\"", 19, "found '\"', expected ',' or '}'"},
      {"{\"__metadata__\":nul}", 16, "found 'n', expected '{'"},
      {"{\"__metadata__\":nulls}", 20, "found 's', expected ',' or '}'"},
      {"  \n", 3, end + "'{'"},
      {"{\"__metadata__\":{\"k\":1}}", 21, "found '1', expected a string"},
      {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"v\"}}", 28, "\"k\" appears twice, expected once"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 33, "\"__metadata__\" appears twice, expected once"},
      // Strings; their letters start at byte 2 of the header.
      {"{\"", 2, end + "the closing quote of a string"},
      {"{\"abc", 5, end + "the closing quote of a string"},
      {"{\"\n\"", 2, "found byte 0x0a, expected no control character in a string"},
      {"{\"\\x\"", 3, "found 'x', expected one of \"\\/bfnrtu after a backslash"},
      {"{\"\\", 3, end + "one of \"\\/bfnrtu after a backslash"},
      {"{\"\\u12", 6, end + "four hexadecimal digits after \\u"},
      {"{\"\\u12g4\"", 6, "found 'g', expected four hexadecimal digits after \\u"},
      {"{\"\\u+123\"", 4, "found '+', expected four hexadecimal digits after \\u"},
      {"{\"\\udc00\"", 8, "\\udc00" + half},
      {"{\"\\ud800\"", 8, "\\ud800" + half},
      {"{\"\\ud800\\n\"", 8, "\\ud800" + half},
      {"{\"\\ud800\\ud800\"", 14, "\\ud800" + half},
      {"{\"\\ud800\\ue000\"", 14, "\\ud800" + half},
      {"{\"\\udc00\\udc00\"", 8, "\\udc00" + half},
      {"{\"\\ud800\\u00e9\"", 14, "\\ud800" + half},
  };
  for (const auto& [header, byte, what] : cases) {
    CHECK(header_error(header) == "header, byte " + std::to_string(byte) + ": " + what);
  }
}

TEST_CASE("safetensors: invalid UTF-8 in a header", "[safetensors]") {
  for (const std::string& text : invalid_utf8) {
    const std::string message = header_error("{\"" + text + "\":{\"dtype\":\"F32\"");
    CAPTURE(message);
    CHECK(message.find("header, byte 2: found byte 0x") == 0);
    CHECK(contains(message, ", expected valid UTF-8"));
  }
  // The outermost characters of each length are valid.
  for (const char* text : {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    const std::string name = text;
    CHECK(parse(file_of("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}")).has(name));
  }
}

TEST_CASE("safetensors: wrong tensor descriptions", "[safetensors]") {
  const auto error = [](const std::string& members, std::size_t data_size = 4) {
    return header_error("{\"w\":{" + members + "}}", data_size);
  };
  const std::string dtype = "\"dtype\":\"F32\"", shape = "\"shape\":[1]", offsets = "\"data_offsets\":[0,4]";
  const std::string whole = dtype + "," + shape + "," + offsets, tensor = "tensor \"w\": ";
  const std::string with_offsets = dtype + "," + shape + ",\"data_offsets\":";
  CHECK(error(whole) == "no error");

  const std::string integer = ", expected a non-negative integer", more = ", expected ',' or ']'",
                    dtypes = ", expected one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL",
                    large = "an integer is too large, expected at most 9223372036854775807";
  const std::pair<std::string, std::string> cases[] = {
      {"", tensor + "dtype is missing"},
      {shape + "," + offsets, tensor + "dtype is missing"},
      {dtype + "," + offsets, tensor + "shape is missing"},
      {dtype + "," + shape, tensor + "data_offsets is missing"},
      {dtype + "," + dtype, "\"dtype\" appears twice, expected once"},
      {dtype + ",\"strides\":[1]", tensor + "unknown member \"strides\", expected dtype, shape and data_offsets"},
      {whole + "},\"w\":{", "\"w\" appears twice, expected once"},
      {whole + "},\"\\u0077\":{", "\"w\" appears twice, expected once"},  // the same name, spelled with an escape
      {"\"dtype\":\"F8_E4M3\"", tensor + "unknown dtype \"F8_E4M3\"" + dtypes},
      {"\"dtype\":\"f32\"", "unknown dtype \"f32\"" + dtypes},
      {"\"dtype\":32", "found '3', expected a string"},
      {"\"shape\":1", "found '1', expected '['"},
      {"\"shape\":[1", "found '}'" + more},
      {"\"shape\":[1,]", "found ']'" + integer},
      {"\"shape\":[-1]", "found '-'" + integer},
      {"\"shape\":[\"1\"]", "found '\"'" + integer},
      {"\"shape\":[1.0]", "found '.'" + more},
      {"\"shape\":[1e2]", "found 'e'" + more},
      {"\"shape\":[1 2]", "found '2'" + more},
      {"\"shape\":[01]", "found '1'" + more},
      {"\"shape\":[9223372036854775808]", large},
      {"\"shape\":[18446744073709551616]", large},
      {"\"shape\":[99999999999999999999999]", large},
      {with_offsets + "[]", tensor + "data_offsets are [], expected two numbers"},
      {with_offsets + "[0]", tensor + "data_offsets are [0], expected two numbers"},
      {with_offsets + "[0, 4, 4]", tensor + "data_offsets are [0, 4, 4], expected two numbers"},
  };
  for (const auto& [members, end] : cases) {
    const std::string message = error(members);
    CAPTURE(message, end);
    CHECK(message.size() >= end.size());
    CHECK(message.ends_with(end));
  }
  CHECK(header_error("{\"w\":{\"shape\":[").ends_with("found the end of the header" + integer));

  struct Case {
    std::string members, message;
    std::size_t data_size = 4;
  };
  for (const auto& [members, message, data_size] :
       {Case{dtype + ",\"shape\":[9223372036854775807]," + offsets,
             "F32 [9223372036854775807]: the number of bytes overflows 64 bits"},
        Case{dtype + ",\"shape\":[2147483648,4294967296,0],\"data_offsets\":[0,0]",
             "F32 [2147483648, 4294967296, 0]: the number of bytes overflows 64 bits", 0},
        Case{with_offsets + "[4,0]", "data_offsets [4, 0]: expected the first not to exceed the second"},
        Case{whole, "data_offsets [0, 4] reach beyond the data section of 3 bytes", 3},
        Case{with_offsets + "[0,9223372036854775807]",
             "data_offsets [0, 9223372036854775807] reach beyond the data section of 4 bytes"},
        Case{dtype + ",\"shape\":[2, 3]," + offsets, "data_offsets [0, 4] hold 4 bytes, expected 24 for F32 [2, 3]"},
        Case{dtype + ",\"shape\":[],\"data_offsets\":[0,8]", "data_offsets [0, 8] hold 8 bytes, expected 4 for F32 []",
             8}}) {
    CHECK(error(members, data_size) == tensor + message);
  }
}

TEST_CASE("safetensors: gaps and overlaps in the data section", "[safetensors]") {
  const auto header = [](const std::vector<std::pair<int, int>>& ranges) {
    std::string text;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const auto [begin, end] = ranges[i];
      text += (i == 0 ? "\"" : ",\"") + std::string(1, static_cast<char>('a' + i)) +
              "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(end - begin) + "],\"data_offsets\":[" +
              std::to_string(begin) + "," + std::to_string(end) + "]}";
    }
    return "{" + text + "}";
  };
  CHECK(header_error(header({{4, 8}, {0, 4}}), 8) == "no error");
  CHECK(header_error(header({{0, 4}, {4, 4}, {0, 0}, {4, 8}, {8, 8}}), 8) == "no error");
  const std::string hole = " of the data section belong to no tensor, expected no holes";
  CHECK(header_error("{}", 1) == "bytes 0 to 1" + hole);
  CHECK(header_error(header({{1, 8}}), 8) == "bytes 0 to 1" + hole);
  CHECK(header_error(header({{5, 8}, {0, 4}}), 8) == "bytes 4 to 5" + hole);
  CHECK(header_error(header({{0, 4}, {4, 7}}), 8) == "bytes 7 to 8" + hole);
  CHECK(header_error(header({{3, 8}, {0, 4}}), 8) ==
        "tensor \"a\" overlaps tensor \"b\": it begins at byte 3 of the data section, expected 4");
  CHECK(header_error(header({{0, 8}, {0, 8}}), 8) ==
        "tensor \"b\" overlaps tensor \"a\": it begins at byte 0 of the data section, expected 8");
  CHECK(header_error(header({{0, 8}, {4, 4}}), 8) ==
        "tensor \"b\" overlaps tensor \"a\": it begins at byte 4 of the data section, expected 8");
}

TEST_CASE("safetensors: the two checksums", "[safetensors]") {
  // A file with these metadata, its check value right where it holds eight zeros.
  const auto marked = [](const std::string& metadata) {
    std::string header = "{\"__metadata__\":{" + metadata + "}}";
    if (const std::size_t zeros = header.find("00000000"); zeros != header.npos) {
      header.replace(zeros, 8, crc_of(header));
    }
    return header_error(header);
  };
  const std::string version = R"("abh_version":"1")", check = R"("abh_crc32":"00000000")";
  CHECK(marked(version + "," + check) == "no error");
  CHECK(marked(check + " , " + version) == "no error");
  CHECK(marked(R"("abh_crc32" :  "00000000",)" + version) == "no error");
  CHECK(marked(version) == "the header is damaged: metadata has abh_version without abh_crc32");
  CHECK(marked(check) == "the header is damaged: metadata has abh_crc32 without abh_version");
  CHECK(marked(version + R"(,"abh_crc32":"0123abcd")").find("the file is damaged or was saved again: CRC-32 ") == 0);
  for (const char* malformed : {"", "0", "0000000", "000000000", "0000000G", "0000000A"}) {
    CHECK(header_error("{\"__metadata__\":{" + version + ",\"abh_crc32\":\"" + malformed + "\"}}") ==
          "metadata \"abh_crc32\" is \"" + std::string(malformed) + "\", expected 8 lower-case hexadecimal digits");
  }
  CHECK(header_error("{\"__metadata__\":{" + version + R"(,"abh_crc32":"\u00300000000"}})") ==
        "metadata \"abh_crc32\" is \"00000000\", expected digits without escapes");
  CHECK(marked(check + R"(,"abh_version":"3")") == "no error");
  CHECK(marked(check + R"(,"abh_version":"4")") ==
        "metadata \"abh_version\" is \"4\", expected at most 3: a newer program wrote this file");
  for (const char* malformed : {"", "0", "01", "-1", "1.0", "one", "12345678901"}) {
    CHECK(marked(check + ",\"abh_version\":\"" + malformed + "\"") ==
          "metadata \"abh_version\" is \"" + std::string(malformed) + "\", expected a whole number");
  }
}

TEST_CASE("safetensors: the checksum of older files", "[safetensors]") {
  const auto with_crc = [](const std::string& crc) {
    return header_error("{\"__metadata__\":{\"crc32\":\"" + crc + "\"}}");
  };
  CHECK(with_crc("00000000") == "no error");  // of no bytes
  CHECK(with_crc("00000001") ==
        "the data section is damaged or was saved again: CRC-32 00000000, expected 00000001 (metadata); a program that "
        "saves it again has to drop crc32 from the metadata (docs/checkpoints.md)");
  for (const char* malformed : {"", "0", "0000000", "000000000", "0000000G", "0000000A", " 0000000", "0x000000"}) {
    CHECK(with_crc(malformed) ==
          "metadata \"crc32\" is \"" + std::string(malformed) + "\", expected 8 lower-case hexadecimal digits");
  }
}

TEST_CASE("safetensors: hostile names cannot break a message", "[safetensors]") {
  // A line break is shown as an escape; a long name is cut between characters.
  CHECK(contains(header_error("{\"a\\nb\":{}}"), "tensor \"a\\u000ab\": dtype is missing"));
  std::string name(79, 'x');
  for (int i = 0; i < 100; ++i) name += "\xE2\x82\xAC";
  CHECK(contains(header_error("{\"" + name + "\":{}}"), "tensor \"" + std::string(79, 'x') + "\"...: dtype"));
}

TEST_CASE("safetensors: a truncated file is an Error at every length", "[safetensors]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::string whole = small_file();
  REQUIRE(parse_error(whole) == "no error");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const std::string message = parse_error(whole.substr(0, size));
    CHECK(message.find("x.st: ") == 0);
    write_bytes(path, whole.substr(0, size));
    CHECK(error_of([&] { SafetensorsFile::read(path); }).find(path + ": ") == 0);
  }
  CHECK(parse_error(whole + '\0') == "x.st: bytes 28 to 29 of the data section belong to no tensor, expected no holes");
}

TEST_CASE("safetensors: every flipped bit is detected", "[safetensors]") {
  const std::string whole = small_file();
  const std::size_t data_begin = whole.size() - data_of(parse(whole)).size();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      CAPTURE(i, bit);
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      CHECK(parse_error(flipped).find(i < data_begin ? "x.st: "
                                                     : "x.st: the file is damaged or was saved again: CRC-32 ") == 0);
    }
  }
}

TEST_CASE("safetensors: unreadable paths", "[safetensors]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  const auto read_error = [&] { return error_of([&] { SafetensorsFile::read(path); }); };
  CHECK(read_error() == path + ": cannot read: No such file or directory");
  fs::create_directory(path);
  CHECK(read_error() == path + ": cannot read: Is a directory");
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // must not wait for a writer
  CHECK(read_error() == path + ": cannot read: not a regular file");
  fs::remove(path);
  write_bytes(path, "");
  CHECK(read_error() == path + ": not a safetensors file: 0 bytes, expected at least 8 with the length of the header");
}
