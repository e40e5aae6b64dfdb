// Files of the administrator's that decide about nodes, read by root: /etc/aml-dist/skus.conf, a topology file that a
// line of it names, and the counters that the health check has kept.
//
// Input: a byte that chooses the file, then its content.
#include "fabric/checks/topology_file.hpp"
#include "fabric/facts/counters.hpp"
#include "fabric/sku/sku_table.hpp"
#include "fuzz.hpp"

namespace amldist::fuzz::site_tables {
namespace {

void check_skus(std::string_view content) {
  fabric::SkuTable table;
  const auto faults = within(16384 + content.size() * 2048, [&] { return table.add(content, "skus.conf"); });
  std::size_t last = 0;
  for (const auto& fault : faults) {
    require(fault.line > last, "faults are told by line");
    last = fault.line;
    require_sentence(fault.wrong);
  }
  for (const fabric::Sku& each : table.all()) require(!each.name.empty(), "a line has a name");
  if (const auto sku = table.find("Standard_ND96isr_H100_v5"); !sku) require_sentence(sku.error().message);
}

void check_topology_file(std::string_view content) {
  if (content.size() > fabric::longest_topology) return;
  const auto placed = within(65536 + content.size() * 512, [content] { return fabric::parse_topology(content); });
  if (!placed) return require_sentence(placed.error().message);
  bool gpu = false;
  bool card = false;
  for (const auto& each : *placed) (each.gpu ? gpu : card) = true;
  require(gpu && card, "a file without a GPU or a card is an error");
}

void check_counters(std::string_view content) {
  const auto baseline = within(16384 + content.size() * 512, [content] { return fabric::Baseline::parse(content); });
  if (!baseline) return require_sentence(baseline.error().message);
  const std::string text = baseline->to_string();
  const auto again = fabric::Baseline::parse(text);
  require(again && again->to_string() == text, "what is written is read back the same");
}

}  // namespace

const std::string_view separator = "\n";

void try_input(std::string_view input) {
  Input bytes(input);
  const std::uint8_t which = bytes.byte();
  const std::string_view content = bytes.rest();
  if (which % 3 == 0) check_skus(content.substr(0, 65536));
  else if (which % 3 == 1) check_topology_file(content);
  else check_counters(content);
}

}  // namespace amldist::fuzz::site_tables
