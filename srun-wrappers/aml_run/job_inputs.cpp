#include "aml_run/job_inputs.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "aml_run/download.hpp"
#include "aml_run/yaml/literal_place.hpp"
#include "base/text/text.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using Form = Replacement::Form;
using YamlKind = YamlValue::Kind;

/// As the SDK writes a literal into the command: true and false are Python's words. Values in a file have been read
/// like that already (yaml_reading.hpp).
std::string literal_text(const YamlValue& value) {
  if (value.plain && (value.text == "true" || value.text == "TRUE")) return "True";
  if (value.plain && (value.text == "false" || value.text == "FALSE")) return "False";
  return value.text;
}

/// ${{parent.inputs.x}}. Other values are text, whatever they look like.
bool is_of_pipeline(std::string_view text) {
  return text.starts_with("${{") && text::trim(text.substr(3)).starts_with("parent.");
}

Error has_expression(const YamlEntry& entry) {
  return {Errc::invalid_argument,
          concat({"inputs.", entry.key, " is ${{parent...}}, which has a value in a pipeline only: write the value"})};
}

/// `root`: the file, in which the value may be under another key than the job's own input.
Error out_of_reach(const YamlEntry& entry, const YamlValue& path, const YamlValue* root) {
  std::string key = root != nullptr && path.location.line != 0 ? key_at(*root, path.location) : std::string();
  if (key.empty()) key = concat({"inputs.", entry.key, ".path"});
  else if (!key.ends_with(".path")) key += ".path";
  const YamlValue* const type = entry.value.find("type");
  const bool is_file = type != nullptr && text::to_lower(type->text) == "uri_file";
  return {Errc::not_found, concat({"inputs.", entry.key, " is ", shell::quote_path(path.text),
                                   ", which the nodes cannot read: copy it to a folder that they share, and add --set ",
                                   key, "=", is_file ? "FILE" : "FOLDER"})};
}

}  // namespace

bool is_remote(std::string_view path) {
  const auto colon = path.find(':');
  if (colon == std::string_view::npos || colon < 2) return false;
  const std::string_view scheme = path.substr(0, colon);
  return scheme != "file" && std::ranges::all_of(scheme, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+';
         });
}

std::string local_path(const std::string& folder, std::string_view path) {
  if (path.starts_with("file://")) path.remove_prefix(7);
  else if (path.starts_with("file:")) path.remove_prefix(5);
  auto whole = (std::filesystem::path(folder) / path).lexically_normal().string();
  while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return whole;
}

Result<void> Bindings::read(const YamlValue& job) {
  if (const YamlValue* const inputs = job.find("inputs")) {
    for (const YamlEntry& entry : inputs->entries) {
      if (!shell::is_name(entry.key)) return wrong_name(entry);
      inputs_.emplace(entry.key, read_input(entry));
    }
  }
  if (const YamlValue* const outputs = job.find("outputs")) {
    for (const YamlEntry& entry : outputs->entries) {
      if (!shell::is_name(entry.key)) return wrong_name(entry);
      if (auto status = read_output(entry); !status) return status.error();
    }
  }
  return {};
}

Error Bindings::wrong_name(const YamlEntry& entry) const {
  return error_at(file_, entry.location, concat({quote(entry.key), " is not a valid name: use letters, digits and _"}));
}

Bindings::Input Bindings::read_input(const YamlEntry& entry) {
  const YamlValue& value = entry.value;
  if (value.is_null())
    return {entry.location, Error{Errc::invalid_argument, concat({"inputs.", entry.key, " is empty"})}};
  if (value.kind == YamlKind::scalar) {
    if (value.text.starts_with("azureml:")) return {entry.location, read_path(entry, value)};
    if (is_of_pipeline(value.text)) return {value.location, has_expression(entry)};
    return {entry.location, Replacement{Form::text, literal_text(value)}};
  }
  if (const YamlValue* const literal = value.find("value")) {
    return {entry.location, Replacement{Form::text, literal_text(*literal)}};
  }
  const YamlValue* const path = value.find("path");
  if (path == nullptr) {
    return {entry.location, Error{Errc::invalid_argument, concat({"inputs.", entry.key, " has no path and no value"})}};
  }
  if (is_of_pipeline(path->text)) return {path->location, has_expression(entry)};
  return {path->location, read_path(entry, *path)};
}

Result<Replacement> Bindings::read_path(const YamlEntry& entry, const YamlValue& path) {
  if (const auto asset = path_of_asset_ ? path_of_asset_(path.text) : std::nullopt)
    return read_path(entry, YamlValue::scalar(*asset, path.location));
  const YamlValue* const mode = entry.value.find("mode");
  if (is_remote(path.text)) {
    const bool direct = mode != nullptr && text::to_lower(mode->text) == "direct";
    if (direct) return Replacement{Form::path, path.text};
    const YamlValue* const declared = entry.value.find("type");
    const bool is_file = declared != nullptr && text::to_lower(declared->text) == "uri_file";
    if (const auto download = downloads_.empty() || !is_file ? std::nullopt : download_of(downloads_, path.text)) {
      fetched_.insert_or_assign(entry.key, *download);
      return Replacement{Form::path, concat({download->shared_folder, "/", download->path})};
    }
    return out_of_reach(entry, path, root_);
  }
  const std::string whole = local_path(folder_, path.text);
  const bool comes = std::ranges::any_of(
      made_later_, [&](const std::string& made) { return whole == made || whole.starts_with(made + "/"); });
  if (comes) return Replacement{Form::path, whole};
  struct stat info {};
  if (::stat(whole.c_str(), &info) != 0) {
    return Error{Errc::not_found,
                 concat({"inputs.", entry.key, " is ", shell::quote_path(whole), ", which does not exist"})};
  }
  const YamlValue* const type = entry.value.find("type");
  const std::string kind = type != nullptr ? text::to_lower(type->text) : std::string();
  if ((kind == "uri_file" && S_ISDIR(info.st_mode)) || (kind == "uri_folder" && !S_ISDIR(info.st_mode))) {
    return Error{Errc::mismatch, concat({"inputs.", entry.key, " is a ", kind, ", but ", shell::quote_path(whole),
                                         " is a ", S_ISDIR(info.st_mode) ? "folder" : "file"})};
  }
  return Replacement{Form::path, whole};
}

Result<void> Bindings::read_output(const YamlEntry& entry) {
  OutputFolder out{entry.key, concat({"AML_OUTPUT_", entry.key}), {}, false};
  const YamlValue* const path = entry.value.find("path");
  const YamlValue* const type = entry.value.find("type");
  if (entry.value.kind == YamlKind::scalar) {
    return error_at(file_, entry.value.location,
                    concat({"outputs.", entry.key, " is ", quote(entry.value.text),
                            ": leave it empty, or give type, path and mode below it"}));
  }
  if (path != nullptr && is_remote(path->text)) {
    ignored_.push_back({concat({"outputs.", entry.key, ".path"}), path->location,
                        "it is in a cloud, and the nodes' own folder outputs/JOBID/NAME is used instead"});
  } else if (path != nullptr) {
    out.path = local_path(folder_, path->text);
  }
  out.is_file = type != nullptr && text::to_lower(type->text) == "uri_file";
  outputs_.push_back(std::move(out));
  return {};
}

Result<Replacement> Bindings::look_up(std::string_view expression) {
  const auto wrong = [&](std::string_view sentence) {
    return Error{Errc::invalid_argument, concat({"${{", expression, "}} ", sentence})};
  };
  if (const auto further = further_.find(expression); further != further_.end()) return further->second;
  if (expression.starts_with("outputs.")) {
    std::string_view name = expression.substr(8);
    if (name.ends_with(".path")) name.remove_suffix(5);
    const auto found = std::ranges::find(outputs_, name, &OutputFolder::name);
    if (found == outputs_.end()) return wrong("is not among the job's outputs");
    return Replacement{Form::run_time, found->path.empty() ? run_folder_ : found->path, found->variable};
  }
  if (!expression.starts_with("inputs.")) {
    return wrong("is neither an input nor an output: a command job has ${{inputs.NAME}} and ${{outputs.NAME}}");
  }
  std::string_view name = expression.substr(7);
  if (name.ends_with(".path")) name.remove_suffix(5);
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) {
    std::vector<std::string_view> names;
    for (const auto& [known, input] : inputs_) names.emplace_back(known);
    const auto near = text::nearest(name, names);
    return wrong(near ? concat({"is not among the job's inputs: did you mean inputs.", *near, "?"})
                      : std::string("is not among the job's inputs"));
  }
  used_.emplace(name);
  if (found->second.replacement) return *found->second.replacement;
  const Error& why = found->second.replacement.error();
  return error_at(file_, found->second.location, why.message, why.code);
}

namespace {

/// Adds the location to an error, unless it has the more precise one of the input in question.
Error located(std::string_view file, const SourceLocation& location, const Error& error) {
  return error.message.starts_with(file) ? error : error_at(file, location, error.message, error.code);
}

}  // namespace

Result<Bindings::Found> Bindings::find_all(std::string_view text, const SourceLocation& location) {
  const auto pieces = read_template(text);
  if (!pieces) return located(file_, location, pieces.error());
  Found found;
  for (const TemplatePiece& piece : *pieces) {
    if (!piece.is_expression) continue;
    auto replacement = look_up(piece.text);
    if (!replacement) return located(file_, location, replacement.error());
    found.insert_or_assign(std::string(piece.text), std::move(*replacement));
  }
  return found;
}

Result<FilledText> Bindings::finish(std::string_view text, const SourceLocation& location, const Found& found,
                                    bool literally) const {
  FilledText out{std::string(text), {}, literally};
  Values known;
  for (const auto& [name, value] : found) {
    if (value.text.find('\0') != std::string::npos) {
      return error_at(file_, location, concat({name, " has a NUL character, which no command can hold"}));
    }
    known.emplace(name, value.text);
    out.values.push_back({name, value.variable.empty() ? value.text : std::string(), value.variable});
  }
  // Also if a value comes later: an impossible place is reported at once.
  auto filled = fill_in(text, known, literally);
  if (!filled) return located(file_, location, filled.error());
  const bool waits =
      std::ranges::any_of(out.values, [](const FilledText::Value& each) { return !each.variable.empty(); });
  return waits ? out : FilledText{std::move(*filled), {}, false};
}

void Bindings::warn(std::string_view text, const SourceLocation& location, const Found& found) {
  const auto pieces = read_template(text);
  LiteralPlace place;
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    const TemplatePiece& piece = (*pieces)[i];
    if (!piece.is_expression) {
      place.follow(piece.text);
      continue;
    }
    const Replacement& value = found.find(piece.text)->second;
    char before = i > 0 && !(*pieces)[i - 1].is_expression ? (*pieces)[i - 1].text.back() : '\0';
    char after = i + 1 < pieces->size() ? (*pieces)[i + 1].text.front() : '\0';
    if (const auto quote_there = place.quote()) before = after = *quote_there;  // "${{inputs.data}}/train"
    const std::string does = what_bash_does(value, before, after);
    if (does.empty()) continue;
    std::string sentence =
        concat({show_location(file_, location), piece.text, " is ", text::quote(value.text), ", and ", does,
                ", as on Azure ML: ", does.ends_with("blanks") ? "put it in double quotes, or " : "",
                "--literal makes it one word"});
    if (std::ranges::find(warnings_, sentence) == warnings_.end()) warnings_.push_back(std::move(sentence));
  }
}

Result<FilledText> Bindings::in_command(std::string_view text, const SourceLocation& location, bool literally) {
  const auto found = find_all(text, location);
  if (!found) return found.error();
  if (!literally) warn(text, location, *found);
  return finish(text, location, *found, literally);
}

Result<FilledText> Bindings::in_text(std::string_view text, const SourceLocation& location) {
  const auto found = find_all(text, location);
  if (!found) return found.error();
  return finish(text, location, *found, false);
}

std::vector<Download> Bindings::downloads() const {
  std::vector<Download> out;
  for (const auto& [name, download] : fetched_) {
    if (used_.contains(name)) out.push_back(download);
  }
  return out;
}

std::vector<std::string> Bindings::used_paths() const {
  std::vector<std::string> out;
  for (const auto& [name, input] : inputs_) {
    const bool is_path = input.replacement && input.replacement->form == Form::path;
    if (is_path && used_.contains(name) && !is_remote(input.replacement->text)) out.push_back(input.replacement->text);
  }
  return out;
}

std::vector<Ignored> Bindings::ignored() const {
  std::vector<Ignored> out = ignored_;
  for (const auto& [name, input] : inputs_) {
    const bool has_no_value = input.replacement && input.replacement->text.empty();  // an optional one of a component
    if (!used_.contains(name) && !has_no_value)
      out.push_back({concat({"inputs.", name}), input.location, "the command does not use it"});
  }
  return out;
}

}  // namespace amldist::run
