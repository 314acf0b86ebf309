#include "files/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "files/safetensors_header.hpp"

namespace abh {
namespace {

constexpr Index max_header_size = 100'000'000;  // the limit of the reference implementation
constexpr Index max_index = std::numeric_limits<Index>::max();

constexpr const char* version_key = "abh_version";
constexpr std::string_view blank_check = "00000000";  // text of the check value while it is computed

// Number of bytes of `shape`; nullopt if an extent is negative or the product does not fit an Index.
std::optional<Index> checked_byte_count(Dtype dtype, const std::vector<Index>& shape) {
  Index bytes = element_size(dtype);
  for (const Index extent : shape) {
    if (extent < 0 || (extent > 0 && bytes > max_index / extent)) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

// Checks that shapes and offsets agree, sorts the entries by their data, and checks that they cover the data section
// exactly.
void check_layout(std::vector<SafetensorsEntry>& entries, Index data_size, const std::string& path) {
  for (const SafetensorsEntry& entry : entries) {
    const std::string who = path + ": tensor " + quoted(entry.name) + ": ";
    const std::string offsets = "data_offsets " + shape_text({entry.begin, entry.end});
    if (entry.begin > entry.end) throw Error(who + offsets + ": expected the first not to exceed the second");
    if (entry.end > data_size) {
      throw Error(who + offsets + " reach beyond the data section of " + std::to_string(data_size) + " bytes");
    }
    const std::optional<Index> bytes = checked_byte_count(entry.dtype, entry.shape);
    const std::string what = std::string(dtype_name(entry.dtype)) + " " + shape_text(entry.shape);
    if (!bytes) throw Error(who + what + ": the number of bytes overflows 64 bits");
    if (*bytes != entry.end - entry.begin) {
      throw Error(who + offsets + " hold " + std::to_string(entry.end - entry.begin) + " bytes, expected " +
                  std::to_string(*bytes) + " for " + what);
    }
  }

  // Also by end: an empty tensor comes before a tensor that begins at the same byte.
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& left, const SafetensorsEntry& right) {
    return std::tie(left.begin, left.end, left.name) < std::tie(right.begin, right.end, right.name);
  });
  Index covered = 0;
  const auto fail_hole = [&](Index end) {
    throw Error(path + ": bytes " + std::to_string(covered) + " to " + std::to_string(end) +
                " of the data section belong to no tensor, expected no holes");
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].begin > covered) fail_hole(entries[i].begin);
    if (entries[i].begin < covered) {
      throw Error(path + ": tensor " + quoted(entries[i].name) + " overlaps tensor " + quoted(entries[i - 1].name) +
                  ": it begins at byte " + std::to_string(entries[i].begin) + " of the data section, expected " +
                  std::to_string(covered));
    }
    covered = entries[i].end;
  }
  if (covered != data_size) fail_hole(data_size);
}

// Converts between elements of this machine and of a file (little-endian).
void turn_elements([[maybe_unused]] std::byte* data, [[maybe_unused]] Index bytes, [[maybe_unused]] Dtype dtype) {
  if constexpr (std::endian::native == std::endian::big) {
    const Index size = element_size(dtype);
    for (Index i = 0; i < bytes; i += size) std::reverse(data + i, data + i + size);
  }
}

// Calls use(data, size) with the bytes of a tensor in file order. Its shape is already checked.
void with_file_bytes(const SafetensorsOutput& tensor, const auto& use) {
  const Index size = *checked_byte_count(tensor.dtype, tensor.shape);
  const auto* data = static_cast<const std::byte*>(tensor.data);
  std::vector<std::byte> copy;
  if (std::endian::native == std::endian::big) {
    copy.assign(data, data + size);
    turn_elements(copy.data(), size, tensor.dtype);
    data = copy.data();
  }
  use(data, static_cast<std::size_t>(size));
}

[[noreturn]] void fail_metadata(const std::string& path, const std::string& key, const std::string& found,
                                const std::string& expected) {
  throw Error(path + ": metadata " + quoted(key) + " is " + quoted(found) + ", expected " + expected);
}

void require_check_digits(const std::string& path, const std::string& key, const std::string& text) {
  if (text.size() != blank_check.size() || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    fail_metadata(path, key, text, "8 lower-case hexadecimal digits");
  }
}

// Check value of a whole file without the length of its header.
std::uint32_t check_of(std::string_view header, std::size_t check_position, const auto& add_data) {
  const std::string_view after = header.substr(check_position + blank_check.size());
  std::uint32_t crc = crc32(header.data(), check_position);
  crc = crc32(blank_check.data(), blank_check.size(), crc);
  crc = crc32(after.data(), after.size(), crc);
  return add_data(crc);
}

// Version of the file, 0 without marks. Both marks or none: a flipped bit in one name is detected by the other mark.
Index check_marks(const SafetensorsHeader& header, std::string_view text, const std::byte* data, Index size,
                  const std::string& path) {
  const auto version = header.metadata.find(version_key), check = header.metadata.find(check_key);
  const auto end = header.metadata.end();
  if (version == end && check == end) return 0;
  if (version == end || check == end) {
    throw Error(path + ": the header is damaged: metadata has " + (check == end ? version_key : check_key) +
                " without " + (check == end ? check_key : version_key));
  }
  require_check_digits(path, check_key, check->second);
  if (text.substr(header.check_position, check->second.size()) != check->second) {
    fail_metadata(path, check_key, check->second, "digits without escapes");
  }
  const std::string actual =
      hexadecimal(check_of(text, header.check_position,
                           [&](std::uint32_t crc) { return crc32(data, static_cast<std::size_t>(size), crc); }),
                  8);
  if (actual != check->second) {
    throw Error(path + ": the file is damaged or was saved again: CRC-32 " + actual + ", expected " + check->second +
                " (metadata); a program that saves it again has to drop abh_version and abh_crc32 from the metadata" +
                " (docs/checkpoints.md)");
  }
  const std::string& stated = version->second;
  const bool number = !stated.empty() && stated.size() < 10 && stated.find_first_not_of("0123456789") == stated.npos;
  if (!number || stated.front() == '0') fail_metadata(path, version_key, stated, "a whole number");
  const Index value = std::stoll(stated);
  if (value > safetensors_version) {
    fail_metadata(path, version_key, stated,
                  "at most " + std::to_string(safetensors_version) + ": a newer program wrote this file");
  }
  return value;
}

// Mark of the first releases: a check value of the data only.
void check_crc(const std::map<std::string, std::string>& metadata, const std::byte* data, Index size,
               const std::string& path) {
  const auto entry = metadata.find("crc32");
  if (entry == metadata.end()) return;
  require_check_digits(path, "crc32", entry->second);
  const std::string actual = hexadecimal(crc32(data, static_cast<std::size_t>(size)), 8);
  if (actual != entry->second) {
    throw Error(path + ": the data section is damaged or was saved again: CRC-32 " + actual + ", expected " +
                entry->second + " (metadata); a program that saves it again has to drop crc32 from the metadata" +
                " (docs/checkpoints.md)");
  }
}

}  // namespace

Index safetensors_header_size(const std::byte* front, Index file_size, const std::string& path) {
  const std::string who = path + ": not a safetensors file: ";
  if (file_size < safetensors_length_size) {
    throw Error(who + std::to_string(file_size) + " bytes, expected at least 8 with the length of the header");
  }
  std::uint64_t size = 0;
  for (int i = 0; i < 8; ++i) size |= std::to_integer<std::uint64_t>(front[i]) << (8 * i);
  const std::string found = who + "header of " + std::to_string(size) + " bytes, expected ";
  if (size == 0) throw Error(found + "at least 2");
  if (size > static_cast<std::uint64_t>(max_header_size)) {
    throw Error(found + "at most " + std::to_string(max_header_size));
  }
  const Index after = file_size - safetensors_length_size;
  if (static_cast<Index>(size) > after) {
    throw Error(found + "at most the " + std::to_string(after) + " that follow its length");
  }
  const auto first = std::to_integer<char>(front[safetensors_length_size]);
  if (first != '{' && json_space.find(first) == json_space.npos) {
    throw Error(who + "header begins with byte 0x" + hexadecimal(static_cast<unsigned char>(first), 2) +
                ", expected '{'");
  }
  return static_cast<Index>(size);
}

Index element_count(const std::vector<Index>& shape) {
  Index count = 1;
  for (const Index extent : shape) count *= extent;
  return count;
}

std::string shape_text(const std::vector<Index>& shape) {
  std::string text;
  for (const Index extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

SafetensorsFile SafetensorsFile::parse(std::vector<std::byte> bytes, const std::string& path) {
  const Index size = safetensors_header_size(bytes.data(), static_cast<Index>(bytes.size()), path);
  const auto* text = reinterpret_cast<const char*>(bytes.data() + safetensors_length_size);
  const std::string_view header_text(text, static_cast<std::size_t>(size));
  SafetensorsHeader header = parse_safetensors_header(header_text, path);

  const Index data_size = static_cast<Index>(bytes.size()) - safetensors_length_size - size;
  check_layout(header.entries, data_size, path);
  const std::byte* data_section = bytes.data() + safetensors_length_size + size;
  const Index version = check_marks(header, header_text, data_section, data_size, path);
  check_crc(header.metadata, data_section, data_size, path);

  SafetensorsFile file;
  file.path_ = path;
  file.bytes_ = std::move(bytes);
  file.metadata_ = std::move(header.metadata);
  file.version_ = version;
  for (SafetensorsEntry& entry : header.entries) {
    std::byte* data = file.bytes_.data() + safetensors_length_size + size + entry.begin;
    const auto alignment = static_cast<std::uintptr_t>(element_size(entry.dtype));
    if (entry.begin == entry.end) {
      data = file.bytes_.data();  // never read; aligned and not null
    } else if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
      // The format does not guarantee alignment. operator new aligns to the requested size.
      data = file.copies_.emplace_back(data, data + (entry.end - entry.begin)).data();
    }
    turn_elements(data, entry.end - entry.begin, entry.dtype);
    file.position_of_[entry.name] = file.tensors_.size();
    file.tensors_.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), data});
  }
  return file;
}

const SafetensorsTensor& SafetensorsFile::tensor(const std::string& name) const {
  const auto position = position_of_.find(name);
  if (position == position_of_.end()) throw Error(path_ + ": tensor " + quoted(name) + " is missing");
  return tensors_[position->second];
}

const std::byte* SafetensorsFile::checked_data(const std::string& name, Dtype dtype,
                                               const std::vector<Index>& shape) const {
  const SafetensorsTensor& found = tensor(name);
  if (found.dtype != dtype || found.shape != shape) {
    const bool half = found.dtype == Dtype::F16 || found.dtype == Dtype::BF16;
    throw Error(path_ + ": tensor " + quoted(name) + " is " + dtype_name(found.dtype) + " " + shape_text(found.shape) +
                ", expected " + dtype_name(dtype) + " " + shape_text(shape) +
                (half ? "; half precision is not supported, convert it to F32 with tensor.float() in PyTorch "
                        "(docs/checkpoints.md)"
                      : ""));
  }
  return found.data;
}

void safetensors_bytes(const std::string& path, const std::vector<SafetensorsOutput>& tensors,
                       std::map<std::string, std::string> metadata,
                       const std::function<void(const void* data, std::size_t size)>& write) {
  const auto checked_json = [&path](const std::string& text) {
    for (std::size_t position = 0; position < text.size();) {
      if (next_code_point(text, position) == invalid_code_point) {
        throw Error(path + ": cannot write: a name or metadata text is not valid UTF-8");
      }
    }
    return json_string(text);
  };

  std::vector<const SafetensorsOutput*> ordered;
  for (const SafetensorsOutput& tensor : tensors) ordered.push_back(&tensor);
  std::sort(ordered.begin(), ordered.end(), [](const SafetensorsOutput* left, const SafetensorsOutput* right) {
    return std::pair(-element_size(left->dtype), left) < std::pair(-element_size(right->dtype), right);
  });

  std::string entries;
  std::set<std::string> names = {"__metadata__"};
  Index end = 0;
  for (const SafetensorsOutput* tensor : ordered) {
    const std::string name = checked_json(tensor->name);
    if (!names.insert(tensor->name).second)
      throw Error(path + ": cannot write: a second tensor " + quoted(tensor->name));
    const std::optional<Index> bytes = checked_byte_count(tensor->dtype, tensor->shape);
    if (!bytes || *bytes > max_index - end) {
      throw Error(path + ": cannot write: tensor " + quoted(tensor->name) + " has the impossible shape " +
                  shape_text(tensor->shape));
    }
    const Index begin = end;
    end += *bytes;
    entries += "," + name + ":{\"dtype\":\"" + dtype_name(tensor->dtype) + "\",\"shape\":" + shape_text(tensor->shape) +
               ",\"data_offsets\":" + shape_text({begin, end}) + "}";
  }

  metadata.erase("crc32");
  metadata[version_key] = std::to_string(safetensors_version);
  metadata[check_key] = blank_check;
  std::string header = "{\"__metadata__\":{";
  std::size_t check_position = 0;
  for (const auto& [key, value] : metadata) {
    header += (header.back() == '{' ? "" : ",") + checked_json(key) + ":";
    if (key == check_key) check_position = header.size() + 1;
    header += checked_json(value);
  }
  header += "}" + entries + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data section begins at a multiple of 8
  if (header.size() > static_cast<std::size_t>(max_header_size)) {
    throw Error(path + ": cannot write: the header would take " + std::to_string(header.size()) + " bytes, at most " +
                std::to_string(max_header_size) + " are allowed");
  }

  const std::uint32_t check = check_of(header, check_position, [&](std::uint32_t crc) {
    for (const SafetensorsOutput* tensor : ordered) {
      with_file_bytes(*tensor, [&crc](const void* data, std::size_t size) { crc = crc32(data, size, crc); });
    }
    return crc;
  });
  header.replace(check_position, blank_check.size(), hexadecimal(check, 8));

  const auto header_length = static_cast<std::uint64_t>(header.size());
  with_file_bytes({"", Dtype::U64, {}, &header_length}, write);
  write(header.data(), header.size());
  for (const SafetensorsOutput* tensor : ordered) with_file_bytes(*tensor, write);
}

}  // namespace abh
