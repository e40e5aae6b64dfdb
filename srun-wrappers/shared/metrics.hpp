// Writes metrics: gauges, as OpenMetrics that is also valid for the textfile collector of Prometheus' node_exporter
// (format 0.0.4). No timestamps: the collector refuses them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amldist::commands {

/// Samples of one gauge. Its name has letters, digits and underscores.
struct Gauge {
  using Labels = std::vector<std::pair<std::string, std::string>>;

  std::string name;
  std::string help;  ///< one sentence
  std::vector<std::pair<Labels, double>> samples = {};

  void add(Labels labels, double value) { samples.emplace_back(std::move(labels), value); }
};

/// All gauges that have samples, ended by "# EOF". Bytes of labels that are not printable ASCII become '?'.
[[nodiscard]] std::string to_openmetrics(const std::vector<Gauge>& gauges);

}  // namespace amldist::commands
