#include "aml_dist/check/sku_list.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/text/text.hpp"
#include "fabric/facts/attribute.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using fabric::Sku;
using nlohmann::ordered_json;
using text::concat;

std::string_view name_of(Sku::Fabric fabric) {
  constexpr std::array<std::string_view, 5> names = {"infiniband", "roce", "efa", "none", "no-verbs"};
  return names.at(static_cast<std::size_t>(fabric));
}

std::string number_text(const std::optional<std::uint32_t>& number) { return number ? std::to_string(*number) : "-"; }

std::string padded_cell(std::string text, std::size_t width) {
  text.append(text.size() < width ? width - text.size() : 0, ' ');
  return text;
}

std::string line_of(const std::array<std::string, 7>& cells) {
  constexpr std::array<std::size_t, 7> widths = {22, 10, 7, 4, 5, 4, 0};
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i)
    out += concat({i == 0 ? "" : "  ", padded_cell(cells.at(i), widths.at(i))});
  return out + "\n";
}

}  // namespace

std::string skus_as_table(const fabric::SkuTable& table) {
  std::string out = line_of({"NAME", "FABRIC", "DEVICES", "GB/S", "FLOOR", "GPUS", "HCA"});
  for (const Sku& sku : table.all()) {
    out += line_of({fabric::printable(sku.name, 64), std::string(name_of(sku.fabric)), number_text(sku.devices),
                    number_text(sku.rate), number_text(sku.bandwidth), number_text(sku.gpus),
                    sku.hca.empty() ? "-" : fabric::printable(sku.hca, 200)});
  }
  return out;
}

std::string skus_as_json(const fabric::SkuTable& table) {
  const auto number = [](const std::optional<std::uint32_t>& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
  };
  auto out = ordered_json::array();
  for (const Sku& sku : table.all()) {
    out.push_back({{"name", sku.name},
                   {"fabric", name_of(sku.fabric)},
                   {"devices", number(sku.devices)},
                   {"rate_gbps", number(sku.rate)},
                   {"bandwidth_gbps", number(sku.bandwidth)},
                   {"gpus", number(sku.gpus)},
                   {"hca", sku.hca.empty() ? ordered_json(nullptr) : ordered_json(sku.hca)},
                   {"source", sku.source}});
  }
  return commands::ascii_json(out) + "\n";
}

}  // namespace amldist::tools
