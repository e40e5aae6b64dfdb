// Python's pickles as data: numbers, texts, lists, tuples and dictionaries. Opcodes that make or call an object of
// Python are refused, so nothing is ever executed.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::tools {

/// A value of a pickle. Lists and dictionaries refer to values of the same Pickle, possibly several times or to
/// themselves.
struct PickledValue {
  using List = std::vector<const PickledValue*>;  ///< tuples too
  using Dictionary = std::vector<std::pair<const PickledValue*, const PickledValue*>>;
  std::variant<std::monostate, bool, std::int64_t, double, std::string_view, List, Dictionary> content;

  /// nullptr if it is not a dictionary, or lacks such a key.
  [[nodiscard]] const PickledValue* find(std::string_view key) const noexcept;
  /// Elements; empty if it is not a list.
  [[nodiscard]] const List& elements() const noexcept;
  [[nodiscard]] std::string_view text() const noexcept;  ///< "" if it is not a text
  [[nodiscard]] std::int64_t number(std::int64_t otherwise = 0) const noexcept;
};

class Pickle {
 public:
  /// Reads protocols 2 to 5. Errors: invalid_argument with the end of a sentence, such as "it would run code (opcode
  /// 0x63 at byte 12)".
  [[nodiscard]] static Result<Pickle> read(std::string bytes);

  Pickle(Pickle&&) = default;
  Pickle& operator=(Pickle&&) = default;
  Pickle(const Pickle&) = delete;  // its values refer to each other
  Pickle& operator=(const Pickle&) = delete;
  ~Pickle() = default;

  [[nodiscard]] const PickledValue& top() const noexcept { return *top_; }

 private:
  friend class PickleReader;
  Pickle() = default;
  std::deque<std::string> texts_;  ///< storage of the values' texts; a deque's elements do not move
  std::deque<PickledValue> values_;
  const PickledValue* top_ = nullptr;
};

/// Writes values of Python, one after the other, as a pickle of protocol 2.
class PickleWriter {
 public:
  PickleWriter() : bytes_("\x80\x02") {}
  PickleWriter& none() { return code('N'); }
  PickleWriter& boolean(bool value) { return code(value ? '\x88' : '\x89'); }
  PickleWriter& number(std::int64_t value);
  PickleWriter& text(std::string_view value);
  PickleWriter& begin_list() { return code(']').code('('); }
  PickleWriter& end_list() { return code('e'); }
  PickleWriter& begin_dictionary() { return code('}').code('('); }
  PickleWriter& end_dictionary() { return code('u'); }
  /// The last two values become a tuple.
  PickleWriter& pair() { return code('\x86'); }
  [[nodiscard]] std::string finish() { return std::move(code('.').bytes_); }

 private:
  PickleWriter& code(char opcode) {
    bytes_ += opcode;
    return *this;
  }
  std::string bytes_;
};

}  // namespace amldist::tools
