#include "fabric/facts/numbered_gpus.hpp"

#include <algorithm>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "fabric/facts/attribute.hpp"

namespace amldist::fabric {
namespace {

constexpr std::size_t most_gpus = 64;

/// The value of "Device Minor: \t 0".
std::string_view line_value(std::string_view content, std::string_view name) {
  for (const std::string_view line : text::split(content, '\n')) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':'))
      return text::trim(line.substr(name.size() + 1));
  }
  return {};
}

}  // namespace

std::vector<NumberedGpu> read_numbered_gpus(const std::string& folder) {
  constexpr std::size_t enough = 4096;
  std::vector<NumberedGpu> gpus;
  std::string problem;
  for (const std::string& address : list_folder(folder, most_gpus, &problem)) {
    const std::string content = read_file_start(text::concat({folder, "/", address, "/information"}), enough);
    const auto number = text::to_number(line_value(content, "Device Minor"), 0xffff);
    if (!number) continue;
    gpus.push_back({static_cast<std::uint32_t>(*number), address, printable(line_value(content, "GPU UUID"))});
  }
  std::ranges::sort(gpus, {}, &NumberedGpu::number);
  return gpus;
}

std::vector<std::uint32_t> parse_gpu_list(std::string_view list) {
  constexpr std::uint64_t largest = 1023;
  std::vector<std::uint32_t> out;
  for (const std::string_view piece : text::split(list, ',')) {
    const auto dash = piece.find('-');
    const auto first = text::to_number(piece.substr(0, dash), largest);
    const auto last = dash == std::string_view::npos ? first : text::to_number(piece.substr(dash + 1), largest);
    if (!first || !last || *last < *first || out.size() + *last - *first >= most_gpus) return {};
    for (auto each = *first; each <= *last; ++each) out.push_back(static_cast<std::uint32_t>(each));
  }
  return out;
}

std::vector<std::string> addresses_of(std::span<const NumberedGpu> gpus, std::span<const std::uint32_t> numbers) {
  std::vector<std::string> out;
  for (const NumberedGpu& gpu : gpus)
    if (std::ranges::find(numbers, gpu.number) != numbers.end()) out.push_back(gpu.address);
  return out;
}

}  // namespace amldist::fabric
