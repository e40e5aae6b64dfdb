#include "fabric/facts/counters.hpp"

#include <algorithm>
#include <limits>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t closest_samples = 300;
constexpr std::uint64_t farthest_samples = 24UL * 3600;

/// Whether a sample is worth storing: a changed counter always, a reset always, an unchanged one once a day.
bool is_news(const Sample& last, const Sample& now) {
  const std::uint64_t age = now.time - last.time;
  return now.value < last.value || age >= farthest_samples || (now.value != last.value && age >= closest_samples);
}

std::string key_of(const DeviceFacts& device, const PortFacts& port, std::string_view counter) {
  std::string identity = device.node_guid.present() ? device.node_guid.text : device.name;
  std::ranges::replace(identity, ' ', '_');
  return concat({identity, "/", std::to_string(port.number), " ", counter});
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

std::optional<std::uint64_t> counter_value(const PortFacts& port, std::string_view name) {
  const auto found = port.counters.find(name);
  if (found == port.counters.end() || !found->second.present()) return std::nullopt;
  return text::to_number(found->second.text, largest);
}

Result<Baseline> Baseline::parse(std::string_view content) {
  Baseline out;
  std::size_t number = 0;
  if (!content.empty() && !content.ends_with('\n')) {
    return Error{Errc::invalid_argument, "its last line is cut off"};
  }
  for (const std::string_view line : text::split(content, '\n')) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    const auto words = text::split(line, ' ');
    const auto time = text::to_number(words.front(), largest);
    const auto value = text::to_number(words.back(), largest);
    if (words.size() != 4 || !time || !value || !is_word(words[1]) || !is_word(words[2])) {
      return Error{Errc::invalid_argument, concat({"its line ", std::to_string(number), " is not a sample"})};
    }
    out.samples_[concat({words[1], " ", words[2]})].push_back({*time, *value});
  }
  for (auto& [key, samples] : out.samples_) std::ranges::stable_sort(samples, {}, &Sample::time);
  return out;
}

std::string Baseline::to_string() const {
  std::string out = "# aml-dist counter baseline: TIME DEVICE/PORT COUNTER VALUE\n";
  for (const auto& [key, samples] : samples_) {
    for (const Sample& each : samples) {
      out += concat({std::to_string(each.time), " ", key, " ", std::to_string(each.value), "\n"});
    }
  }
  return out;
}

void Baseline::record(const NodeFacts& node, std::uint64_t now) {
  for (auto& [key, samples] : samples_) {
    std::erase_if(samples, [now](const Sample& each) { return each.time > now || now - each.time > history_window; });
  }
  for (const DeviceFacts& device : node.devices) {
    for (const PortFacts& port : device.ports) {
      for (const auto& [name, attribute] : port.counters) {
        const auto value = counter_value(port, name);
        if (!value) continue;
        auto& samples = samples_[key_of(device, port, name)];
        if (samples.empty() || is_news(samples.back(), {now, *value})) samples.push_back({now, *value});
      }
    }
  }
}

Increase Baseline::increase(const DeviceFacts& device, const PortFacts& port, std::string_view counter,
                            std::uint64_t now, std::uint64_t window) const {
  const std::uint64_t value = counter_value(port, counter).value_or(0);
  const auto found = samples_.find(key_of(device, port, counter));
  if (found == samples_.end() || found->second.empty()) return {value, 0};
  Increase out;
  std::optional<std::uint64_t> last;
  for (const Sample& each : found->second) {
    const bool outside = each.time <= now && now - each.time > window;
    if (!last || outside) {  // counting begins at the newest sample before the window
      out = {0, each.time};
    } else {
      out.added += each.value >= *last ? each.value - *last : each.value;
    }
    last = each.value;
  }
  out.added += value >= *last ? value - *last : value;
  return out;
}

}  // namespace amldist::fabric
