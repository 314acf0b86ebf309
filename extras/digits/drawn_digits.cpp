#include "extras/digits/drawn_digits.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/random.hpp"

namespace abh {

namespace {

// Lengths are in eighths of a pixel: a picture has 128 x 128, and a sample is in the middle of 2 x 2.
constexpr int samples = 64;  // samples per side

struct Point {
  int x, y;
};

// Strokes of every digit: points on a grid of 9 x 13 as two hexadecimal digits, across and down; `|` ends a stroke.
constexpr std::array<std::string_view, 10> strokes = {
    "21 61 84 88 6b 2b 08 04 21", "23 50 5c",       "03 20 60 83 76 0c 8c",
    "01 70 74 36 87 7b 0c",       "6c 60 08 88",    "80 10 06 65 88 6c 0c",
    "70 23 08 2c 6c 89 66 17",    "00 80 3c|26 76", "46 13 40 73 46 89 4c 09 46",
    "84 46 04 30 71 84 6c"};

constexpr int hexadecimal(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

class Paper {
 public:
  // Inks every sample within the radius of the line from a to b.
  void ink(Point a, Point b, int radius) {
    const int dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy, radius2 = radius * radius;
    const auto first = [&](int p, int q) { return std::max(0, (std::min(p, q) - radius) / 2 - 1); };
    const auto end = [&](int p, int q) { return std::min(samples, (std::max(p, q) + radius) / 2 + 1); };
    for (int v = first(a.y, b.y); v < end(a.y, b.y); ++v) {
      for (int u = first(a.x, b.x); u < end(a.x, b.x); ++u) {
        const int px = 2 * u + 1 - a.x, py = 2 * v + 1 - a.y, along = px * dx + py * dy;
        const int qx = px - dx, qy = py - dy, across = px * dy - py * dx;
        // Past an end of the line, the end is the nearest point.
        const bool near = along <= 0         ? px * px + py * py <= radius2
                          : along >= length2 ? qx * qx + qy * qy <= radius2
                                             : across * across <= radius2 * length2;
        if (near) is_ink_[static_cast<std::size_t>(v * samples + u)] = true;
      }
    }
  }
  std::uint8_t pixel(int y, int x) const {
    int count = 0;
    for (int i = 0; i < 16; ++i) {
      count += is_ink_[static_cast<std::size_t>((4 * y + i / 4) * samples + 4 * x + i % 4)];
    }
    return static_cast<std::uint8_t>(count);
  }

 private:
  std::array<bool, samples * samples> is_ink_{};
};

}  // namespace

Picture drawn_digit(std::uint32_t example) {
  PhiloxBlock words{};
  std::uint32_t next = 0;
  const auto below = [&](std::uint32_t n) {
    if (next % 4 == 0) words = philox_block(0, {next / 4, 0, example, sites::digits});
    const std::uint64_t word = words[next++ % 4];
    return static_cast<int>((word * n) >> 32);
  };
  Picture picture{.pixels = {}, .label = static_cast<Token>(below(10)), .most = most_ink};
  const int across = 96 + below(81), down = 104 + below(57), slant = below(97) - 48, tilt = below(65) - 32;
  const int right = below(49) - 24, lower = below(41) - 20, radius = 4 + below(6);
  Paper paper;
  const std::string_view points = strokes[static_cast<std::size_t>(picture.label)];
  Point last{};
  for (std::size_t i = 0; i < points.size(); i += 3) {
    const int x = hexadecimal(points[i]) - 4, y = hexadecimal(points[i + 1]) - 6;
    const int shaken_x = 64 + right + ((across * x + slant * y) >> 4) + below(13) - 6;
    const int shaken_y = 64 + lower + ((tilt * x + down * y) >> 4) + below(13) - 6;
    const Point point{shaken_x, shaken_y};
    if (i > 0 && points[i - 1] == ' ') paper.ink(last, point, radius);
    last = point;
  }
  for (int scratch = 0; scratch < 4; ++scratch) {
    const int x = below(128), y = below(128);
    const int dx = below(65) - 32, dy = below(65) - 32;
    paper.ink({x, y}, {x + dx, y + dy}, 4);
  }
  for (int y = 0; y < drawn_side; ++y) {
    for (int x = 0; x < drawn_side; ++x) picture.pixels.push_back(paper.pixel(y, x));
  }
  for (int speck = 0; speck < 16; ++speck) {
    const int y = below(16), x = below(16);
    picture.pixels[static_cast<std::size_t>(16 * y + x)] = static_cast<std::uint8_t>(below(17));
  }
  return picture;
}

}  // namespace abh
