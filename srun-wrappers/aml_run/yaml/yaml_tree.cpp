#include "aml_run/yaml/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <utility>

#include "base/text/text.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;
using YamlKind = YamlValue::Kind;

SourceLocation location_of(const YAML::Mark& mark) {
  if (mark.is_null()) return {1, 1};
  return {static_cast<std::size_t>(mark.line) + 1, static_cast<std::size_t>(mark.column) + 1};
}

/// An error of the tree, on its way out of yaml-cpp.
struct ParseRefusal {
  Error error;
};

std::size_t size_of(const YamlValue& value) {
  std::size_t count = 1;
  for (const YamlValue& item : value.items) count += size_of(item);
  for (const YamlEntry& entry : value.entries) count += size_of(entry.value);
  return count;
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

/// yaml-cpp writes \N (U+0085) and \_ (U+00A0) as one byte each. The file is UTF-8, so an invalid byte comes from them.
std::string repaired_escapes(std::string text) {
  for (std::size_t at = shell::utf8_length(text); at < text.size();
       at += 2 + shell::utf8_length(std::string_view(text).substr(at + 2))) {
    text.insert(at, 1, '\xc2');
  }
  return text;
}

/// Builds the tree from yaml-cpp's events.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view file) : file_(file) {}

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  /// yaml-cpp accepts nearly every character in a name, and so includes what others read as the value.
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    const bool plain = std::ranges::all_of(name, [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
    });
    if (!plain)
      refuse(mark, concat({"the anchor ", text::quote(name), " has other characters than letters, digits, _ and -"}));
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlValue value;
    value.location = location_of(mark);
    remember(anchor, value);
    add(std::move(value));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (text.find('\0') != std::string::npos) refuse(mark, "a NUL character (\\0) cannot stand in a job file");
    YamlValue value;
    value.location = location_of(mark);
    const bool is_text = tag == "tag:yaml.org,2002:str";  // !!str
    if (!is_text && tag != "!" && tag != "?" && !tag.empty()) refuse_tag(mark, tag);
    value.plain = tag != "!" && !is_text;  // "!": yaml-cpp's tag of a scalar in quotes, or after | and >
    if (tag == "!") last_quoted = value.location;
    value.kind = value.plain && is_null_word(text) ? YamlKind::null : YamlKind::scalar;
    value.text = repaired_escapes(text);
    remember(anchor, value);
    add(std::move(value));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark, "an alias refers to a value that contains it");
    count(mark, size_of(found->second) - 1);
    add(YamlValue(found->second));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    if (tag != "?" && !tag.empty() && tag != "tag:yaml.org,2002:seq") refuse_tag(mark, tag);
    open(mark, YamlKind::list, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    if (tag != "?" && !tag.empty() && tag != "tag:yaml.org,2002:map") refuse_tag(mark, tag);
    open(mark, YamlKind::map, anchor);
  }
  void OnMapEnd() override { close(); }

  YamlValue root;
  std::optional<SourceLocation> last_quoted;  ///< where the last scalar in quotes begins

 private:
  /// A list or map that is being filled, and in a map the key that waits for its value.
  struct Open {
    YamlValue value;
    YAML::anchor_t anchor;
    std::optional<YamlEntry> key;
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view sentence, Errc code = Errc::invalid_argument) {
    throw ParseRefusal{error_at(file_, location_of(mark), sentence, code)};
  }

  [[noreturn]] void refuse_tag(const YAML::Mark& mark, std::string_view tag) {
    constexpr std::string_view standard = "tag:yaml.org,2002:";
    const bool short_form = tag.starts_with(standard);
    refuse(mark, concat({"the tag ", short_form ? "!!" : "", short_form ? tag.substr(standard.size()) : tag,
                         " has no use in a job file: leave it out"}));
  }

  void count(const YAML::Mark& mark, std::size_t more) {
    values_ += more;
    if (values_ > most_yaml_values) {
      refuse(mark,
             concat({"the file has more than ", std::to_string(most_yaml_values),
                     " values when its aliases are written out"}),
             Errc::limit);
    }
  }

  void remember(YAML::anchor_t anchor, const YamlValue& value) {
    if (anchor != 0) anchors_[anchor] = value;
  }

  void open(const YAML::Mark& mark, YamlKind kind, YAML::anchor_t anchor) {
    if (open_.size() == deepest_yaml) {
      refuse(mark, concat({"lists and maps are nested more than ", std::to_string(deepest_yaml), " levels deep"}),
             Errc::limit);
    }
    YamlValue value;
    value.kind = kind;
    value.location = location_of(mark);
    open_.push_back({std::move(value), anchor, std::nullopt});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.value.kind == YamlKind::map) merge(done.value);
    remember(done.anchor, done.value);
    add(std::move(done.value));
  }

  void add(YamlValue value) {
    YAML::Mark mark;
    mark.line = static_cast<int>(value.location.line) - 1;
    mark.column = static_cast<int>(value.location.column) - 1;
    count(mark, 1);
    if (open_.empty()) {
      root = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.kind == YamlKind::list) {
      parent.value.items.push_back(std::move(value));
    } else if (parent.key) {
      parent.key->value = std::move(value);
      parent.value.entries.push_back(std::move(*parent.key));
      parent.key.reset();
    } else {
      take_key(parent, value, mark);
    }
  }

  void take_key(Open& parent, const YamlValue& value, const YAML::Mark& mark) {
    if (value.kind != YamlKind::scalar) refuse(mark, "a key must be a plain word");
    if (const auto* const first = entry_of(parent.value, value.text)) {
      refuse(mark, concat({"key ", text::quote(value.text), " is given a second time, after line ",
                           std::to_string(first->location.line), ": keep one"}));
    }
    parent.key = YamlEntry{value.text, value.location, {}, !value.plain};
  }

  /// Inserts what "<<" names: keys that the map does not have itself, earlier maps first.
  void merge(YamlValue& map) {
    const auto found = std::ranges::find(map.entries, "<<", &YamlEntry::key);
    if (found == map.entries.end() || found->quoted) return;
    const YamlValue merged = std::move(found->value);
    map.entries.erase(found);
    if (merged.kind == YamlKind::map) {
      merge_one(map, merged);
      return;
    }
    for (const YamlValue& item : merged.items) merge_one(map, item);
    if (merged.kind != YamlKind::list) wrong_merge(merged);
  }
  void merge_one(YamlValue& map, const YamlValue& other) {
    if (other.kind != YamlKind::map) wrong_merge(other);
    for (const YamlEntry& entry : other.entries) {
      if (entry_of(map, entry.key) == nullptr) map.entries.push_back(entry);
    }
  }
  [[noreturn]] void wrong_merge(const YamlValue& value) {
    throw ParseRefusal{error_at(file_, value.location, "a merge key (<<) takes a map, or a list of maps")};
  }

  static const YamlEntry* entry_of(const YamlValue& map, std::string_view key) {
    const auto found = std::ranges::find(map.entries, key, &YamlEntry::key);
    return found == map.entries.end() ? nullptr : &*found;
  }

  std::string_view file_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, YamlValue> anchors_;
  std::size_t values_ = 0;
};

std::string_view line_at(std::string_view text, std::size_t line) {
  const auto lines = text::split(text, '\n');
  return line >= 1 && line <= lines.size() ? lines[line - 1] : std::string_view();
}

/// yaml-cpp notices a tab on its line or on the next one.
std::optional<SourceLocation> indenting_tab(std::string_view text, const SourceLocation& near) {
  for (std::size_t line = near.line; line + 1 >= near.line && line > 0; --line) {
    const std::string_view content = line_at(text, line);
    const auto first = content.find_first_not_of(" \t");
    const auto tab = content.substr(0, first).find('\t');
    if (tab != std::string_view::npos) return SourceLocation{line, tab + 1};
  }
  return std::nullopt;
}

/// yaml-cpp takes the end of the file for the missing quote, which then swallows the keys after it.
bool closes_quote(std::string_view text, const SourceLocation& location) {
  std::size_t at = 0;
  for (std::size_t line = 1; line < location.line && at != std::string_view::npos; ++line) at = text.find('\n', at) + 1;
  at += location.column - 1;
  if (at >= text.size() || (text[at] != '"' && text[at] != '\'')) return true;  // after | or >
  const char quote = text[at];
  for (++at; at < text.size(); ++at) {
    const bool escapes = quote == '"' && text[at] == '\\';
    const bool doubled = quote == '\'' && text.substr(at, 2) == "''";
    if (escapes || doubled) ++at;
    else if (text[at] == quote) return true;
  }
  return false;
}

bool is_quote(char c) { return c == '"' || c == '\''; }

/// The parser's reason in words that say what to write; `line` is the one that it names, `column` counts from 1.
std::string in_plain_words(std::string_view reason, std::string_view line, std::size_t column) {
  const std::string_view before = line.substr(0, std::min(column - 1, line.size()));
  const std::string_view rest = line.substr(before.size());
  const std::string_view shown = text::trim(before);
  constexpr std::string_view in_quotes = ": put the value in quotes, or below 'KEY: |'";
  if (reason == "illegal map value") {
    if (before.find(": ") != std::string_view::npos)
      return concat({"a second ': ' would begin another key", in_quotes});
    return "this line is indented deeper than a key above that has its value already: begin it in that key's column";
  }
  if (reason == "unknown token") return concat({"a value cannot begin with '", rest.substr(0, 1), "'", in_quotes});
  if (reason == "the referenced anchor is not defined")
    return concat({"'*' names an anchor that does not exist", in_quotes});
  if (reason == "illegal flow end") return "a ] or } closes nothing: take it away, or put the value in quotes";
  if (reason.find("flow not found") != std::string_view::npos)
    return "a [ or { before is not closed: close it with ] or }";
  if (reason == "end of map not found" || reason == "end of sequence not found") {
    if (!shown.empty() && is_quote(shown.back()))
      return concat(
          {"text follows the closing quote: write '' for a quote within '...', or put the value below 'KEY: |'"});
    if (text::trim(rest).starts_with("- ")) return "an item of a list stands beside keys: indent it below its key";
    return "this line is no 'key: value' in the column of the keys above: correct its indentation, or add the colon";
  }
  return std::string(reason);
}

Error parse_error(std::string_view file, std::string_view text, const YAML::Exception& problem) {
  const SourceLocation location = location_of(problem.mark);
  if (const auto tab = indenting_tab(text, location)) {
    return error_at(file, *tab, "this line is indented by a tab: YAML allows spaces only");
  }
  return error_at(
      file, location,
      concat({"this is not YAML: ", in_plain_words(problem.msg, line_at(text, location.line), location.column)}));
}

/// Texts that are not parsed: too long, or not text.
Result<void> check_text(std::string_view file, std::string_view text) {
  if (text.size() > longest_yaml) {
    return Error{Errc::limit, concat({file, " is ", std::to_string(text.size() / 1024), " KiB long: at most ",
                                      std::to_string(longest_yaml / 1024), " KiB are read"})};
  }
  std::size_t number = 0;
  for (const std::string_view line : text::split(text, '\n')) {
    ++number;
    const auto control = std::ranges::find_if(line, [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return (byte < 0x20 && c != '\t' && c != '\r') || byte == 0x7f;
    });
    const auto good = std::min(shell::utf8_length(line), static_cast<std::size_t>(control - line.begin()));
    if (good < line.size()) {
      return error_at(file, {number, good + 1}, "this is not UTF-8 text: save the file as UTF-8");
    }
  }
  return {};
}

}  // namespace

const YamlValue* YamlValue::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &YamlEntry::key);
  return found == entries.end() || found->value.is_null() ? nullptr : &found->value;
}

YamlValue* YamlValue::find(std::string_view key) {
  return const_cast<YamlValue*>(std::as_const(*this).find(key));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

std::string YamlValue::text_of(std::string_view key) const {
  const YamlValue* const value = find(key);
  return value != nullptr && value->kind == Kind::scalar ? value->text : std::string();
}

YamlValue YamlValue::scalar(std::string text, const SourceLocation& location, bool plain) {
  YamlValue value;
  value.kind = Kind::scalar;
  value.location = location;
  value.text = std::move(text);
  value.plain = plain;
  return value;
}

YamlValue YamlValue::map(const SourceLocation& location) {
  YamlValue value;
  value.kind = Kind::map;
  value.location = location;
  return value;
}

void YamlValue::put(std::string_view key, YamlValue value) {
  const auto found = std::ranges::find(entries, key, &YamlEntry::key);
  if (found != entries.end()) {
    found->value = std::move(value);
    return;
  }
  SourceLocation place = value.location;
  entries.push_back({std::string(key), std::move(place), std::move(value)});
}

void YamlValue::erase(std::string_view key) {
  std::erase_if(entries, [&](const YamlEntry& entry) { return entry.key == key; });
}

namespace {

void name_values(YamlValue& value, const std::shared_ptr<const std::string>& file) {
  value.location.file = file;
  for (YamlValue& item : value.items) name_values(item, file);
  for (YamlEntry& entry : value.entries) {
    entry.location.file = file;
    name_values(entry.value, file);
  }
}

}  // namespace

std::string key_at(const YamlValue& root, const SourceLocation& location) {
  for (const YamlEntry& entry : root.entries) {
    const SourceLocation& here = entry.value.location;
    if (here.line == location.line && here.column == location.column && here.file == location.file) return entry.key;
    if (const std::string below = key_at(entry.value, location); !below.empty()) return concat({entry.key, ".", below});
  }
  return {};
}

void name_source(YamlValue& root, const std::string& file) {
  name_values(root, std::make_shared<const std::string>(file));
}

std::string show_location(std::string_view file, const SourceLocation& location) {
  if (location.line == 0) return concat({file, ": "});
  if (location.file) file = *location.file;
  return concat({file, ":", std::to_string(location.line), ":", std::to_string(location.column), ": "});
}

Error error_at(std::string_view file, const SourceLocation& location, std::string_view sentence, Errc code) {
  return {code, concat({show_location(file, location), sentence})};
}

Result<YamlValue> parse_yaml(std::string_view file, std::string_view text) {
  if (auto status = check_text(file, text); !status) return status.error();
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    Builder builder(file);
    if (!parser.HandleNextDocument(builder) || builder.root.is_null()) {
      return Error{Errc::invalid_argument, concat({file, " is empty"})};
    }
    if (builder.root.kind != YamlKind::map) {
      return error_at(file, builder.root.location, "this is not a map: write lines of the form 'key: value'");
    }
    if (builder.last_quoted && !closes_quote(text, *builder.last_quoted)) {
      return error_at(file, *builder.last_quoted, "this is not YAML: a quote begins here and is not closed");
    }
    Builder second(file);
    if (parser.HandleNextDocument(second)) {
      return error_at(file, second.root.location, "a second document begins: keep one to a file");
    }
    return std::move(builder.root);
  } catch (const ParseRefusal& refusal) {
    return refusal.error;
  } catch (const YAML::Exception& problem) {
    return parse_error(file, text, problem);
  }
}

Result<void> set_yaml(YamlValue& root, std::string_view path, std::string_view value) {
  YamlValue* at = &root;
  for (const std::string_view key : text::split(path, '.')) {
    if (key.empty()) {
      return Error{Errc::invalid_argument, concat({"--set ", text::quote(path),
                                                   ": write PATH=VALUE, such as "
                                                   "inputs.epochs=2"})};
    }
    if (at->kind != YamlKind::map) *at = YamlValue{YamlKind::map, {}, {}, true, {}, {}};
    auto found = std::ranges::find(at->entries, key, &YamlEntry::key);
    if (found == at->entries.end()) {
      at->entries.push_back({std::string(key), {}, {}});
      found = at->entries.end() - 1;
    }
    at = &found->value;
  }
  *at = YamlValue::scalar(std::string(value), SourceLocation{}, true);
  return {};
}

}  // namespace amldist::run
