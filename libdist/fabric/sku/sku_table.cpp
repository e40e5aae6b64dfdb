#include "fabric/sku/sku_table.hpp"

#include <algorithm>
#include <array>

#include "base/os/whole_file.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "fabric/sku/built_in_skus.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::fabric {
namespace {

using text::concat;
using text::quote;

constexpr std::size_t longest_name = 64;

bool is_small(char c) noexcept { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_letter(char c) noexcept { return is_small(c) || (c >= 'A' && c <= 'Z'); }

/// Removes and returns the leading characters for which `wanted` holds.
template <typename Wanted>
std::string_view take_while(std::string_view& text, Wanted wanted) {
  std::size_t end = 0;
  while (end < text.size() && wanted(text[end])) ++end;
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

constexpr std::string_view prefix = "standard_";

std::string_view without_prefix(std::string_view name) {
  return text::to_lower(name.substr(0, prefix.size())) == prefix ? name.substr(prefix.size()) : name;
}

/// The parts of an Azure VM size name: "HB120-96rs_v3" is HB, 120, -96, rs, _v3.
struct SizeName {
  std::string_view family;
  std::string_view cores;
  std::string_view letters;
  std::string_view rest;
};

std::optional<SizeName> parse_size(std::string_view name) {
  SizeName size;
  size.family = take_while(name, is_letter);
  size.cores = take_while(name, is_digit);
  if (size.family.empty() || size.cores.empty()) return std::nullopt;
  if (name.starts_with('-')) {
    name.remove_prefix(1);
    if (take_while(name, is_digit).empty()) return std::nullopt;
  }
  size.letters = take_while(name, is_letter);
  size.rest = name;
  if (!size.rest.empty() && !size.rest.starts_with('_')) return std::nullopt;
  return size;
}

/// Lower case, without the prefix and without the number of constrained cores.
std::string canonical(std::string_view name) {
  name = without_prefix(name);
  const auto size = parse_size(name);
  return text::to_lower(size ? concat({size->family, size->cores, size->letters, size->rest}) : std::string(name));
}

/// Glob with '*' only. Of several stars only the last is tried anew, so the time is at most the product of the lengths.
bool fits(std::string_view pattern, std::string_view name) noexcept {
  std::size_t at = 0;
  std::size_t in = 0;
  std::size_t star = std::string_view::npos;  // the last that was met
  std::size_t from = 0;                       // where what follows it is tried
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      from = in;
    } else if (at < pattern.size() && pattern[at] == name[in]) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

bool set_fabric(Sku& sku, std::string_view value) {
  if (value == "infiniband") sku.fabric = Sku::Fabric::infiniband;
  else if (value == "roce") sku.fabric = Sku::Fabric::roce;
  else if (value == "efa") sku.fabric = Sku::Fabric::efa;
  else if (value == "none") sku.fabric = Sku::Fabric::none;
  else if (value == "no-verbs") sku.fabric = Sku::Fabric::no_verbs;
  else return false;
  return true;
}

bool set_key(Sku& sku, std::string_view key, std::string_view value) {
  const auto number = text::to_number(value, 100'000);
  if (key == "fabric") return set_fabric(sku, value);
  if (key == "hca") {
    sku.hca = value;
    return !value.empty();
  }
  if (key == "gpudirect") {
    sku.needs_gpudirect = value == "require";
    return value == "require" || value == "prefer";
  }
  if (key == "topology") {
    sku.topology = value;
    return value.starts_with('/');
  }
  if (key == "ipoib") {
    sku.needs_ipoib = value == "require";
    return value == "require" || value == "prefer";
  }
  if (!number || *number == 0) return false;
  if (key == "devices") sku.devices = static_cast<std::uint32_t>(*number);
  else if (key == "rate") sku.rate = static_cast<std::uint32_t>(*number);
  else if (key == "bandwidth") sku.bandwidth = static_cast<std::uint32_t>(*number);
  else if (key == "nccl") sku.nccl = static_cast<std::uint32_t>(*number);
  else if (key == "gpus") sku.gpus = static_cast<std::uint32_t>(*number);
  else return false;
  return true;
}

/// Applies the words after the name. Returns what is wrong with the first invalid one, or nullopt.
std::optional<std::string> apply_words(Sku& sku, const std::vector<std::string_view>& words) {
  bool has_fabric = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    const std::string_view key = words[i].substr(0, equals);
    if (equals == std::string_view::npos || !set_key(sku, key, words[i].substr(equals + 1))) {
      return concat({quote(words[i]),
                     " is not one of fabric=infiniband|roce|efa|none|no-verbs, devices=N, rate=N, bandwidth=N, ",
                     "nccl=N, hca=SELECTION, gpus=N, gpudirect=require|prefer, ipoib=require|prefer, topology=/FILE"});
    }
    has_fabric = has_fabric || key == "fabric";
  }
  return has_fabric ? std::nullopt : std::optional<std::string>("fabric= is missing");
}

}  // namespace

std::optional<std::string> size_of_metadata(std::string_view metadata) {
  constexpr std::string_view key = "\"vmSize\"";
  constexpr std::string_view blanks = " \t\r\n";
  constexpr std::string_view of_names = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  const auto at = metadata.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = metadata.substr(at + key.size());
  for (const char expected : {':', '"'}) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    if (!rest.starts_with(expected)) return std::nullopt;
    rest.remove_prefix(1);
  }
  const auto end = rest.find_first_not_of(of_names);
  const bool whole = end != std::string_view::npos && end > 0 && end <= longest_name && rest[end] == '"';
  return whole ? std::optional<std::string>(rest.substr(0, end)) : std::nullopt;
}

SkuTable SkuTable::built_in() {
  SkuTable table;
  static_cast<void>(table.add(built_in_skus, "built-in table"));
  return table;
}

std::vector<SkuFault> SkuTable::add(std::string_view content, const std::string& source) {
  std::vector<SkuFault> faults;
  std::size_t number = 0;
  for (std::string_view line : text::split(content, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto words = text::words_of(line);
    if (words.empty()) continue;
    Sku sku;
    sku.source = concat({source, ":", std::to_string(number)});
    if (auto wrong = apply_words(sku, words)) {
      faults.push_back({number, std::move(*wrong)});
    } else {
      lines_.push_back({canonical(words.front()), std::string(words.front()), std::move(sku)});
    }
  }
  return faults;
}

Result<Sku> SkuTable::find_by_metadata(const std::string& file) const {
  const auto content = launch::read_config_file(file);
  if (!content) {
    return Error{content.error().code,
                 concat({"metadata ", quote(file), " cannot be read: write the answer of Azure's ",
                         "instance metadata service there at boot, or name the SKU"})};
  }
  const auto size = size_of_metadata(*content);
  if (!size) return Error{Errc::invalid_argument, concat({"metadata ", quote(file), " has no compute.vmSize"})};
  auto sku = find(*size);
  if (sku) sku->source += concat({", size of ", file});
  return sku;
}

Result<Sku> SkuTable::find(std::string_view name) const {
  if (name.starts_with("@/")) return find_by_metadata(std::string(name.substr(1)));
  const bool printable = std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f && c != '*'; });
  if (!name.empty() && name.size() <= longest_name && printable) {
    const std::string wanted = canonical(name);
    for (const Line& line : lines_) {
      if (!fits(line.pattern, wanted)) continue;
      Sku sku = line.sku;
      sku.name = name;
      return sku;
    }
    if (const auto size = parse_size(without_prefix(name))) {
      Sku sku;
      sku.name = name;
      const bool rdma = text::to_lower(size->letters).find('r') != std::string::npos;
      sku.fabric = rdma ? Sku::Fabric::infiniband : Sku::Fabric::none;
      sku.source =
          rdma ? "not in the table; the 'r' in its name means RDMA" : "not in the table; its name has no 'r' for RDMA";
      sku.is_guessed = true;
      sku.nearest = nearest(wanted);
      return sku;
    }
  }
  const std::string near = name.size() <= longest_name ? nearest(canonical(name)) : "";
  return Error{Errc::invalid_argument,
               concat({"SKU ", quote(name), " is unknown: use a name such as ",
                       near.empty() ? "Standard_ND96isr_H100_v5" : near, ", or add it to ", site_sku_table})};
}

std::vector<Sku> SkuTable::all() const {
  std::vector<Sku> out;
  for (const Line& line : lines_) {
    out.push_back(line.sku);
    out.back().name = line.written;
  }
  return out;
}

std::string SkuTable::nearest(const std::string& wanted) const {
  std::vector<std::string_view> names;
  for (const Line& line : lines_) {
    if (line.pattern.find('*') == std::string::npos) names.push_back(line.pattern);
  }
  const auto found = text::nearest(wanted, names);
  if (!found) return {};
  const auto line = std::ranges::find(lines_, *found, &Line::pattern);
  return line == lines_.end() ? std::string() : line->written;
}

Result<SkuTable> load_sku_table(const std::string& explicit_file) {
  SkuTable table;
  const std::string path = explicit_file.empty() ? site_sku_table : explicit_file;
  const std::string shown = text::printable(path, 300);  // whole: where it is decides
  const auto content = read_whole_file(path, launch::longest_config);
  if (content) {
    const auto faults = table.add(*content, path);
    if (!faults.empty()) {
      return Error{Errc::invalid_argument, concat({"SKU table ", shown, ", line ", std::to_string(faults.front().line),
                                                   ": ", faults.front().wrong})};
    }
  } else if (!explicit_file.empty() || content.error().code != Errc::not_found) {
    return Error{content.error().code, concat({"SKU table ", shown, " cannot be read: ", content.error().message})};
  }
  static_cast<void>(table.add(built_in_skus, "built-in table"));
  return table;
}

Result<std::optional<Sku>> find_sku(std::string_view name) {
  if (name.empty()) return std::optional<Sku>();
  const auto table = load_sku_table("");
  if (!table) return table.error();
  auto found = table->find(name);
  if (!found) return found.error();
  return std::optional(std::move(*found));
}

}  // namespace amldist::fabric
