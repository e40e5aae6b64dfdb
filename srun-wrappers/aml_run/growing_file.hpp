// A file that somebody else writes, read as it grows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace amldist::run {

class GrowingFile {
 public:
  explicit GrowingFile(std::string path) : path_(std::move(path)) {}

  /// Gives what is new to `sink`. A file that is not there yet has nothing; one that became shorter (a requeued job) is
  /// read from its beginning.
  void read_new(const std::function<void(std::string_view)>& sink);

 private:
  std::string path_;
  std::uint64_t read_ = 0;
};

}  // namespace amldist::run
