// The messages of one direction between two ranks, oldest first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace amldist::collective {

/// `Progress`: a message under way.
template <typename Progress>
class MessageQueue {
 public:
  [[nodiscard]] bool is_empty() const noexcept { return first_ == messages_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return messages_.size() - first_; }
  [[nodiscard]] Progress& front() noexcept { return messages_[first_]; }
  [[nodiscard]] std::span<const Progress> all() const noexcept { return std::span(messages_).subspan(first_); }
  /// The oldest ones, `most` at most.
  [[nodiscard]] std::span<Progress> first(std::size_t most) noexcept {
    return std::span(messages_).subspan(first_, std::min(most, size()));
  }
  template <typename... Arguments>
  Progress& push(Arguments&&... arguments) {
    return messages_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void pop() noexcept {
    constexpr std::size_t most_ended = 256;  // what has ended is moved out seldom
    ++first_;
    if (is_empty()) return clear();
    if (first_ < most_ended || first_ < messages_.size() / 2) return;
    messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  void clear() noexcept {
    messages_.clear();
    first_ = 0;
  }

 private:
  std::vector<Progress> messages_;
  std::size_t first_ = 0;  ///< those before it have ended
};

}  // namespace amldist::collective
