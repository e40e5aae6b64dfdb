// A YAML document as a tree of values with their locations. Read with limits, because a job file may come from anybody:
// size, depth, and the number of values after aliases are expanded.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::run {

/// Line and column of a file, counted from 1. line 0: from the command line.
struct SourceLocation {
  std::size_t line = 0;
  std::size_t column = 0;
  std::shared_ptr<const std::string> file = {};  ///< the file, if it is not the main one: a component's
};

struct YamlEntry;

/// A scalar, a list or a map. Null is a scalar without a text.
struct YamlValue {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  SourceLocation location;
  std::string text;   ///< of a scalar, as written
  bool plain = true;  ///< a scalar without quotes: `true` and `4` are then not texts
  std::vector<YamlValue> items;
  std::vector<YamlEntry> entries;  ///< of a map, in the order of the file; keys are unique

  [[nodiscard]] const YamlValue* find(std::string_view key) const;
  [[nodiscard]] YamlValue* find(std::string_view key);
  /// The text of a scalar in a map; "" if it is not there.
  [[nodiscard]] std::string text_of(std::string_view key) const;
  [[nodiscard]] bool is_null() const noexcept { return kind == Kind::null; }

  /// A scalar in quotes, or a plain one.
  [[nodiscard]] static YamlValue scalar(std::string text, const SourceLocation& location, bool plain = false);
  [[nodiscard]] static YamlValue map(const SourceLocation& location);
  /// Sets `key` of a map, at its old place if it exists.
  void put(std::string_view key, YamlValue value);
  void erase(std::string_view key);
};

struct YamlEntry {
  std::string key;
  SourceLocation location;  ///< of the key
  YamlValue value;
  bool quoted = false;  ///< the key is in quotes: "<<" is then not a merge key
};

inline constexpr std::size_t longest_yaml = std::size_t{256} * 1024;  ///< bytes
inline constexpr std::size_t deepest_yaml = 32;                       ///< nested lists and maps
inline constexpr std::size_t most_yaml_values = 20000;                ///< with aliases expanded

/// "job.yml:7:3: ".
[[nodiscard]] std::string show_location(std::string_view file, const SourceLocation& location);

/// An error at a line and column of a file.
[[nodiscard]] Error error_at(std::string_view file, const SourceLocation& location, std::string_view sentence,
                             Errc code = Errc::invalid_argument);

/// Parses `text`, which is `file` in messages. The document must be one map.
[[nodiscard]] Result<YamlValue> parse_yaml(std::string_view file, std::string_view text);

/// The key of a value, as --set names it ("jobs.train.inputs.data"); empty if no value begins there.
[[nodiscard]] std::string key_at(const YamlValue& root, const SourceLocation& location);

/// Marks a whole tree as coming from `file`, for messages.
void name_source(YamlValue& root, const std::string& file);

/// Sets the scalar at `path` ("inputs.data.path"), making maps on the way; an existing value is replaced.
[[nodiscard]] Result<void> set_yaml(YamlValue& root, std::string_view path, std::string_view value);

}  // namespace amldist::run
