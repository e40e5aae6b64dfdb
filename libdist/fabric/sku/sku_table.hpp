// The fabric that a node of each SKU should have: a table that the administrator can replace.
//
//   ND96isr_H100_v5   fabric=infiniband devices=8 rate=400      # one SKU per line; '*' matches any text
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::fabric {

struct Sku {
  enum class Fabric {
    infiniband,
    roce,
    efa,       ///< AWS's adapter, for libfabric
    none,      ///< no RDMA at all
    no_verbs,  ///< RDMA, but without InfiniBand verbs (no SR-IOV)
  };
  std::string name;  ///< as requested
  Fabric fabric = Fabric::infiniband;
  std::optional<std::uint32_t> devices;    ///< devices=N: at least N
  std::optional<std::uint32_t> rate;       ///< rate=N: Gb/s of each port, at least
  std::optional<std::uint32_t> bandwidth;  ///< bandwidth=N: Gb/s that a write between nodes reaches, at least
  std::optional<std::uint32_t> nccl;       ///< nccl=N: GB/s of NCCL's allreduce within the node, at least
  std::string hca;                         ///< hca=SELECTION: only these ports are judged (grammar of NCCL_IB_HCA)
  std::string topology;                    ///< topology=FILE: where GPUs and cards should be, as NCCL writes it
  bool needs_ipoib = false;                ///< ipoib=require
  bool needs_gpudirect = false;            ///< gpudirect=require
  std::optional<std::uint32_t> gpus;       ///< gpus=N: exactly N
  std::string source;                      ///< its origin: a file and line, or the naming rule
  bool is_guessed = false;                 ///< no line matches: only the naming rule applies
  std::string nearest;                     ///< if guessed: the name in the table that it resembles most; may be empty

  /// Whether the node has RDMA devices that can be verified.
  [[nodiscard]] bool has_verbs() const noexcept {
    return fabric == Fabric::infiniband || fabric == Fabric::roce || fabric == Fabric::efa;
  }
};

/// A wrong line of a table.
struct SkuFault {
  std::size_t line = 0;  ///< from 1
  std::string wrong;
};

/// The lines of one or more tables, highest precedence first.
class SkuTable {
 public:
  /// The built-in table, which is also installed as share/aml-dist/skus.conf.
  [[nodiscard]] static SkuTable built_in();
  /// Adds the right lines of a file, with lower precedence than those present. Returns the others.
  [[nodiscard]] std::vector<SkuFault> add(std::string_view content, const std::string& source);

  /// The expectation for a name. Errors: invalid_argument if the name is neither in the table nor of Azure's form
  /// (letters, a number, small letters, ...). "@/FILE": for the size in a copy of Azure's instance metadata.
  [[nodiscard]] Result<Sku> find(std::string_view name) const;

  [[nodiscard]] std::size_t size() const noexcept { return lines_.size(); }
  /// All lines, in the order in which they are tried, each with the name that it contains.
  [[nodiscard]] std::vector<Sku> all() const;

 private:
  struct Line {
    std::string pattern;  ///< lower case
    std::string written;  ///< as in the file
    Sku sku;
  };
  [[nodiscard]] Result<Sku> find_by_metadata(const std::string& file) const;
  /// The name in the table with the fewest changes from `wanted`, at most three; empty if no name is that near.
  [[nodiscard]] std::string nearest(const std::string& wanted) const;

  std::vector<Line> lines_;
};

/// compute.vmSize of an answer of Azure's instance metadata service; nullopt if it is missing or not a name.
[[nodiscard]] std::optional<std::string> size_of_metadata(std::string_view metadata);

/// The table in use: the file that `explicit_file` names (it must be readable), else /etc/aml-dist/skus.conf if it
/// exists; the built-in table has lower precedence than either. Errors: a file that cannot be read, or has a wrong
/// line: a table that is half applied would check less than the site asks for.
[[nodiscard]] Result<SkuTable> load_sku_table(const std::string& explicit_file);
/// What the table in use says of `name`; nullopt for an empty name.
[[nodiscard]] Result<std::optional<Sku>> find_sku(std::string_view name);

inline constexpr const char* site_sku_table = "/etc/aml-dist/skus.conf";

}  // namespace amldist::fabric
