#include "aml_dist/trace/pickle.hpp"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;

template <typename Number>
std::string little_endian(Number value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

}  // namespace

const PickledValue* PickledValue::find(std::string_view key) const noexcept {
  const auto* const dictionary = std::get_if<Dictionary>(&content);
  if (dictionary == nullptr) return nullptr;
  for (const auto& [name, value] : *dictionary) {
    const auto* const words = std::get_if<std::string_view>(&name->content);
    if (words != nullptr && *words == key) return value;
  }
  return nullptr;
}

const PickledValue::List& PickledValue::elements() const noexcept {
  static const List none;
  const auto* const list = std::get_if<List>(&content);
  return list != nullptr ? *list : none;
}

std::string_view PickledValue::text() const noexcept {
  const auto* const words = std::get_if<std::string_view>(&content);
  return words != nullptr ? *words : std::string_view();
}

std::int64_t PickledValue::number(std::int64_t otherwise) const noexcept {
  const auto* const value = std::get_if<std::int64_t>(&content);
  return value != nullptr ? *value : otherwise;
}

/// The stack machine of pickles, without the opcodes that make or call objects.
class PickleReader {
 public:
  explicit PickleReader(std::string bytes) {
    pickle_.texts_.push_back(std::move(bytes));
    rest_ = pickle_.texts_.front();
  }

  Result<Pickle> run() && {
    while (!stopped_) {
      const std::size_t at = pickle_.texts_.front().size() - rest_.size();
      const auto opcode = static_cast<unsigned char>(take(1).empty() ? '\0' : last_);
      if (!fine_) return fault("it is cut off", at);
      if (!step(opcode)) {
        return fault(concat({"opcode ", std::to_string(opcode),
                             " makes or calls an object of Python, and nothing of a dump is executed"}),
                     at);
      }
      if (!fine_) return fault("it is damaged", at);
    }
    return std::move(pickle_);
  }

 private:
  using Value = PickledValue;

  static Error fault(std::string_view why, std::size_t at) {
    return {Errc::invalid_argument, concat({why, " (byte ", std::to_string(at), ")"})};
  }

  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) {
      fine_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    if (bytes == 1) last_ = taken.front();
    return taken;
  }

  /// A number of up to eight bytes, least significant first.
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    std::size_t shift = 0;
    for (const char each : take(bytes)) {
      value |= std::uint64_t{static_cast<unsigned char>(each)} << shift;
      shift += 8;
    }
    return value;
  }

  template <typename Content>
  void push(Content content) {
    pickle_.values_.push_back({std::move(content)});
    stack_.push_back(&pickle_.values_.back());
  }

  Value* pop() {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) {
      fine_ = false;
      return nullptr;
    }
    Value* const value = stack_.back();
    stack_.pop_back();
    return value;
  }

  /// The values pushed since the last mark.
  std::vector<Value*> pop_to_mark() {
    if (marks_.empty()) {
      fine_ = false;
      return {};
    }
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value*> values(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return values;
  }

  void push_tuple(std::size_t length) {
    Value::List list(length);
    for (std::size_t i = length; i > 0; --i) list[i - 1] = pop();
    if (fine_) push(std::move(list));
  }

  /// Adds values to the list or dictionary below them on the stack.
  void add(const std::vector<Value*>& values, bool to_dictionary) {
    Value* const container = fine_ && !stack_.empty() ? stack_.back() : nullptr;
    auto* const list = container != nullptr ? std::get_if<Value::List>(&container->content) : nullptr;
    auto* const dictionary = container != nullptr ? std::get_if<Value::Dictionary>(&container->content) : nullptr;
    fine_ = to_dictionary ? dictionary != nullptr && values.size() % 2 == 0 : list != nullptr;
    if (!fine_) return;
    if (!to_dictionary) list->insert(list->end(), values.begin(), values.end());
    for (std::size_t i = 0; to_dictionary && i < values.size(); i += 2)
      dictionary->emplace_back(values[i], values[i + 1]);
  }

  void remember(std::uint64_t number) {
    if (stack_.empty()) fine_ = false;
    else memory_[number] = stack_.back();
  }

  void recall(std::uint64_t number) {
    const auto found = memory_.find(number);
    if (found == memory_.end()) fine_ = false;
    else stack_.push_back(found->second);
  }

  void push_long() {
    const std::size_t length = number(1);
    constexpr std::size_t longest = 8;
    if (length > longest) fine_ = false;  // no field of a dump is so large
    std::uint64_t value = fine_ ? number(length) : 0;
    const bool negative =
        fine_ && length > 0 &&
        (static_cast<unsigned char>(pickle_.texts_.front()[pickle_.texts_.front().size() - rest_.size() - 1]) &
         0x80U) != 0;
    if (negative && length < longest) value |= ~std::uint64_t{0} << (8 * length);
    push(static_cast<std::int64_t>(value));
  }

  void push_double() {
    std::uint64_t bits = 0;
    for (const char each : take(8)) bits = bits << 8 | static_cast<unsigned char>(each);
    push(std::bit_cast<double>(bits));
  }

  /// false for an opcode that is not supported.
  bool step(unsigned char opcode) { return scalar(opcode) || container(opcode) || machine(opcode); }

  bool scalar(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        push(std::monostate());
        return true;
      case 0x88:
      case 0x89:
        push(opcode == 0x88);
        return true;
      case 'J':
        push(std::int64_t{static_cast<std::int32_t>(number(4))});
        return true;
      case 'K':
        push(static_cast<std::int64_t>(number(1)));
        return true;
      case 'M':
        push(static_cast<std::int64_t>(number(2)));
        return true;
      case 0x8a:
        push_long();
        return true;
      case 'G':
        push_double();
        return true;
      case 'X':
      case 'B':
      case 'T':
        push(take(number(4)));
        return true;
      case 0x8c:
      case 'C':
      case 'U':
        push(take(number(1)));
        return true;
      case 0x8d:
      case 0x8e:
        push(take(number(8)));
        return true;
      default:
        return false;
    }
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case ']':
      case ')':
        push(Value::List());
        return true;
      case '}':
        push(Value::Dictionary());
        return true;
      case 'a':
      case 's':
        add_last(opcode == 's');
        return true;
      case 'e':
      case 'u':
        add(pop_to_mark(), opcode == 'u');
        return true;
      case 't': {
        const auto values = pop_to_mark();
        push(Value::List(values.begin(), values.end()));
        return true;
      }
      case 0x85:
      case 0x86:
      case 0x87:
        push_tuple(opcode - 0x84U);
        return true;
      default:
        return false;
    }
  }

  void add_last(bool to_dictionary) {
    Value* const value = pop();
    Value* const key = to_dictionary ? pop() : nullptr;
    if (fine_) add(to_dictionary ? std::vector{key, value} : std::vector{value}, to_dictionary);
  }

  bool machine(unsigned char opcode) {
    switch (opcode) {
      case 0x80:
        take(1);
        return true;
      case 0x95:
        take(8);
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case 'q':
        remember(number(1));
        return true;
      case 'r':
        remember(number(4));
        return true;
      case 0x94:
        remember(memory_.size());
        return true;
      case 'h':
        recall(number(1));
        return true;
      case 'j':
        recall(number(4));
        return true;
      case '.':
        pickle_.top_ = pop();
        stopped_ = true;
        return true;
      default:
        return false;
    }
  }

  Pickle pickle_;
  std::string_view rest_;
  char last_ = '\0';
  bool fine_ = true;
  bool stopped_ = false;
  std::vector<Value*> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Value*> memory_;
};

Result<Pickle> Pickle::read(std::string bytes) { return PickleReader(std::move(bytes)).run(); }

PickleWriter& PickleWriter::number(std::int64_t value) {
  if (value >= 0 && value < 256) bytes_ += concat({"K", little_endian(static_cast<std::uint8_t>(value))});
  else bytes_ += concat({"\x8a\x08", little_endian(value)});
  return *this;
}

PickleWriter& PickleWriter::text(std::string_view value) {
  bytes_ += concat({"X", little_endian(static_cast<std::uint32_t>(value.size())), value});
  return *this;
}

}  // namespace amldist::tools
