// The header of a safetensors file, which is JSON, and the texts it is made of. For safetensors.cpp.
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

// The header's entry of one tensor; its data is [begin, end) of the data section.
struct SafetensorsEntry {
  std::string name;
  Dtype dtype;
  std::vector<Index> shape;
  Index begin;
  Index end;
};

inline constexpr std::string_view json_space = " \t\n\r";  // white space of JSON

inline constexpr Index safetensors_length_size = 8;  // bytes of the header's length, before the header

// The header's length, from the first bytes of a file of `file_size` bytes. At least min(file_size, 9) bytes must be at
// `front`; that many are enough to turn down most files of another kind before the rest of them is read.
Index safetensors_header_size(const std::byte* front, Index file_size, const std::string& path);

inline constexpr const char* check_key = "abh_crc32";

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;
  std::size_t check_position = 0;  // of the text of check_key, if there is one
};

// Error, naming `path` and the byte, for what is not exactly such a header.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& path);

// `text`, valid UTF-8, as a JSON string with its quotes. Only what JSON demands is escaped.
std::string json_string(std::string_view text);

// A name from a file for use in a message: a hostile one can neither break the line nor fill the screen.
std::string quoted(std::string_view name);

// Lower-case digits, with zeros in front.
std::string hexadecimal(std::uint32_t value, int digits);

}  // namespace abh
