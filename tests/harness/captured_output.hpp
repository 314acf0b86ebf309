#pragma once

#include <ostream>
#include <sstream>
#include <string>

namespace abh {

// Captures the output to a standard stream during its lifetime.
class CapturedOutput {
 public:
  explicit CapturedOutput(std::ostream& stream) : stream_(stream), old_(stream.rdbuf(text_.rdbuf())) {}
  ~CapturedOutput() { stream_.rdbuf(old_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream& stream_;
  std::streambuf* old_;
};

}  // namespace abh
