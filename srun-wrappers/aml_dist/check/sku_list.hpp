// `aml-dist check --list-sku`: what the nodes of each size should have.
#pragma once

#include <string>

#include "fabric/sku/sku_table.hpp"

namespace amldist::tools {

/// A line for each size, with a head.
[[nodiscard]] std::string skus_as_table(const fabric::SkuTable& table);

/// An array of objects: name, fabric, devices, rate_gbps, gpus, hca, source; null where the table has no value.
[[nodiscard]] std::string skus_as_json(const fabric::SkuTable& table);

}  // namespace amldist::tools
