// Header of a safetensors file in JSON, and its strings. For safetensors.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "files/safetensors.hpp"

namespace abh {

// Header entry of one tensor; its data is [begin, end) of the data section.
struct SafetensorsEntry {
  std::string name;
  Dtype dtype;
  std::vector<Index> shape;
  Index begin;
  Index end;
};

inline constexpr std::string_view json_space = " \t\n\r";  // white space of JSON

inline constexpr Index safetensors_length_size = 8;  // bytes of the length field, before the header

// Length of the header, from the first bytes of a file of `file_size` bytes. `front` must have at least min(file_size,
// 9) bytes. These bytes suffice to reject most files of another format before the rest is read.
Index safetensors_header_size(const std::byte* front, Index file_size, const std::string& path);

inline constexpr const char* check_key = "abh_crc32";

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;
  std::size_t check_position = 0;  // of the value of check_key, if there is one
};

// Error, with `path` and the byte, if the text is not exactly such a header.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& path);

// Valid UTF-8 text as a JSON string with quotes. Escapes only the characters that JSON requires.
std::string json_string(std::string_view text);

// Name from a file for a message: in quotes, on one line, at most 80 bytes.
std::string quoted(std::string_view name);

// Lower-case digits with leading zeros.
std::string hexadecimal(std::uint32_t value, int digits);

}  // namespace abh
