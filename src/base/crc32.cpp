#include "base/crc32.hpp"

#include <array>
#include <cstdio>

namespace abh {
namespace {

// tables[s][byte] is the CRC register after `byte` and s zero bytes. The CRC is linear over exclusive or, so eight
// message bytes need one look-up each in tables 7 down to 0, combined by exclusive or.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1U) != 0 ? 0xEDB88320U : 0U);
    tables[0][byte] = remainder;
  }
  for (std::size_t s = 1; s < 8; ++s) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[s - 1][byte];
      tables[s][byte] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

constexpr auto tables = make_tables();

// Four bytes as a little-endian number on any host, at any alignment. Compilers generate a single load.
std::uint32_t load_little_endian(const unsigned char* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8 |
         static_cast<std::uint32_t>(bytes[2]) << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
}

}  // namespace

std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t start) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~start;
  for (; size >= 8; size -= 8, bytes += 8) {
    const std::uint32_t low = load_little_endian(bytes) ^ crc;
    const std::uint32_t high = load_little_endian(bytes + 4);
    crc = tables[7][low & 0xFFU] ^ tables[6][(low >> 8) & 0xFFU] ^ tables[5][(low >> 16) & 0xFFU] ^
          tables[4][low >> 24] ^ tables[3][high & 0xFFU] ^ tables[2][(high >> 8) & 0xFFU] ^
          tables[1][(high >> 16) & 0xFFU] ^ tables[0][high >> 24];
  }
  for (; size > 0; --size, ++bytes) crc = (crc >> 8) ^ tables[0][(crc ^ *bytes) & 0xFFU];
  return ~crc;
}

std::string crc32_text(std::string_view bytes) {
  char text[16];
  std::snprintf(text, sizeof text, "crc32 %08X", static_cast<unsigned>(crc32(bytes.data(), bytes.size())));
  return text;
}

std::string fingerprint(std::string_view bytes) {
  return std::to_string(bytes.size()) + " bytes, " + crc32_text(bytes);
}

}  // namespace abh
