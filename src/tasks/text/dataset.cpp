#include "tasks/text/dataset.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace abh {
namespace {

// floor(bits / 2^64 * n): of n equally likely outcomes none is favoured by more than n in 2^64.
Index scale_to(std::uint64_t bits, Index n) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<Index>((static_cast<Wide>(bits) * static_cast<Wide>(n)) >> 64);
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) throw Error(path + ": is a directory, expected a text file");
  // Which may never end, as /dev/zero does.
  if (std::filesystem::is_character_file(status)) throw Error(path + ": is a device, expected a text file");
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw Error(path + ": cannot be opened: " + std::strerror(errno));
  std::string bytes;
  std::vector<char> buffer(1 << 16);
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    bytes.append(buffer.data(), count);
  }
  if (std::ferror(file.get())) throw Error(path + ": cannot be read: " + std::strerror(errno));
  if (bytes.empty()) throw Error(path + ": is empty, expected text");
  return bytes;
}

std::string fingerprint(std::string_view bytes) {
  char crc[16];
  std::snprintf(crc, sizeof crc, "%08X", static_cast<unsigned>(crc32(bytes.data(), bytes.size())));
  return std::to_string(bytes.size()) + " bytes, crc32 " + crc;
}

Dataset::Dataset(const std::string& path, std::string_view text, const Tokenizer& tokenizer, Index context)
    : name_(std::filesystem::path(path).stem().string()), tokens_(tokenizer.encode(text, path)) {
  const Index n = static_cast<Index>(tokens_.size());
  training_size_ = n - n / 10;
  if (n == 0) throw Error(path + ": is empty, expected text");
  if (tokenizer.kind() == "char" && tokenizer.size() < 2) {
    throw Error(path + ": holds one distinct character, expected a text of two at least");
  }
  const std::string unit = tokenizer.kind() == "char" ? " characters" : " bytes";
  if (training_size_ < context + 1) {
    throw Error(path + ": too short: the training split has " + std::to_string(training_size_) + unit +
                ", expected context + 1 = " + std::to_string(context + 1) + " at least (see --context)");
  }
  if (validation_size() < 2) {
    throw Error(path + ": too short: the validation split, the last tenth, has " + std::to_string(validation_size()) +
                " of " + std::to_string(n) + unit + ", expected 2 at least");
  }
}

Index Dataset::training_offset(Index b, Index C, std::uint64_t seed, std::uint32_t step) const {
  const std::uint64_t index = 2 * static_cast<std::uint64_t>(b);
  const std::uint64_t high = philox_word(seed, index, step, sites::batch);
  const std::uint64_t low = philox_word(seed, index + 1, step, sites::batch);
  return scale_to((high << 32) | low, training_size_ - C);
}

void Dataset::training_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, std::uint64_t seed,
                             std::uint32_t step) const {
  for (Index b = 0; b < B; ++b) {
    const Token* window_c = tokens_.data() + training_offset(b, C, seed, step);
    std::copy_n(window_c, C, tokens_bc + b * C);
    std::copy_n(window_c + 1, C, targets_bc + b * C);
  }
}

void Dataset::validation_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, Index first_row) const {
  const Token* split = tokens_.data() + training_size_;
  for (Index b = 0; b < B; ++b) {
    const Index start = (first_row + b) * C;
    const Index filled = std::clamp(validation_targets() - start, Index{0}, C);
    Token* tokens_c = tokens_bc + b * C;
    Token* targets_c = targets_bc + b * C;
    if (filled > 0) {
      std::copy_n(split + start, filled, tokens_c);
      std::copy_n(split + start + 1, filled, targets_c);
    }
    std::fill(tokens_c + filled, tokens_c + C, Token{0});
    std::fill(targets_c + filled, targets_c + C, ignored_target);
  }
}

}  // namespace abh
