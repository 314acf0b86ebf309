#include <cstdint>
#include <vector>

#include "base/crc32.hpp"
#include "tests/harness/catch.hpp"

using abh::crc32;

namespace {

// The definition: polynomial division, one bit at a time, without tables.
std::uint32_t bitwise_crc32(const std::vector<unsigned char>& bytes, std::size_t begin, std::size_t end) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (std::size_t i = begin; i < end; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

std::vector<unsigned char> some_bytes(std::size_t size) {
  std::vector<unsigned char> bytes(size);
  std::uint32_t state = 12345;
  for (unsigned char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return bytes;
}

}  // namespace

TEST_CASE("crc32: known values", "[crc32]") {
  CHECK(crc32("123456789", 9) == 0xCBF43926U);  // the check value of every CRC catalogue
  CHECK(crc32("", 0) == 0U);
  CHECK(crc32(nullptr, 0) == 0U);
  CHECK(crc32(nullptr, 0, 0x12345678U) == 0x12345678U);
  const unsigned char zeros[32] = {};
  CHECK(crc32(zeros, 32) == 0x190A55ADU);
  const std::vector<unsigned char> ones(32, 0xFF);
  CHECK(crc32(ones.data(), 32) == 0xFF6CAB0BU);
}

TEST_CASE("crc32: any length at any alignment matches the bitwise definition", "[crc32]") {
  const auto bytes = some_bytes(64);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t end = begin; end <= bytes.size(); ++end) {
      CAPTURE(begin, end);
      CHECK(crc32(bytes.data() + begin, end - begin) == bitwise_crc32(bytes, begin, end));
    }
  }
}

TEST_CASE("crc32: chained pieces give the value of the whole", "[crc32]") {
  const auto bytes = some_bytes(1000);
  const std::uint32_t whole = crc32(bytes.data(), bytes.size());
  CHECK(whole == bitwise_crc32(bytes, 0, bytes.size()));
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    CAPTURE(cut);
    CHECK(crc32(bytes.data() + cut, bytes.size() - cut, crc32(bytes.data(), cut)) == whole);
  }
}
