// AMLDIST_NODE_DOMAINS: which ranks of a node are near each other, where that is not to be taken from the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist {

/// A value. Ranks are those of a node, from 0.
class NodeDomains {
 public:
  /// Numbers that are equal for ranks of one domain, or socket.
  struct Place {
    std::int32_t domain = 0;
    std::int32_t socket = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };

  /// "auto", "off", or the ranks of each domain: "0-3,4-7". "/" stands between the domains of two sockets, "+" between
  /// ranks of one domain that are no range: "0+2,1+3/4,5". Errors: invalid_argument, quoting the wrong piece.
  [[nodiscard]] static Result<NodeDomains> parse(std::string_view text);

  [[nodiscard]] bool is_off() const noexcept { return is_off_; }
  /// The kernel says where the ranks are.
  [[nodiscard]] bool is_automatic() const noexcept { return !is_off_ && places_.empty(); }
  /// Where a rank is; nullopt: not listed.
  [[nodiscard]] std::optional<Place> of(std::uint32_t rank) const;

  friend bool operator==(const NodeDomains&, const NodeDomains&) = default;

 private:
  [[nodiscard]] Result<void> add(std::string_view ranks, Place place);

  bool is_off_ = false;
  std::map<std::uint32_t, Place> places_;
};

}  // namespace amldist
