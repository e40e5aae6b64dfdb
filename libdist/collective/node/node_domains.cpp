#include "collective/node/node_domains.hpp"

#include "base/text/text.hpp"

namespace amldist {
namespace {

using text::concat;

constexpr std::uint64_t last_rank = 4095;

Error is_no_range(std::string_view piece) {
  return {Errc::invalid_argument,
          concat({text::quote(piece), " is not RANK or LO-HI with 0 <= LO <= HI <= ", std::to_string(last_rank)})};
}

}  // namespace

Result<NodeDomains> NodeDomains::parse(std::string_view text) {
  NodeDomains out;
  out.is_off_ = text == "off";
  if (out.is_off_ || text == "auto") return out;
  Place place;
  for (const std::string_view socket : text::split(text, '/')) {
    for (const std::string_view domain : text::split(socket, ',')) {
      for (const std::string_view ranks : text::split(domain, '+')) {
        if (auto added = out.add(ranks, place); !added) return added.error();
      }
      ++place.domain;
    }
    ++place.socket;
  }
  return out;
}

Result<void> NodeDomains::add(std::string_view ranks, Place place) {
  const auto dash = ranks.find('-');
  const auto low = text::to_number(ranks.substr(0, dash), last_rank);
  const auto high = dash == std::string_view::npos ? low : text::to_number(ranks.substr(dash + 1), last_rank);
  if (!low || !high || *high < *low) return is_no_range(ranks);
  for (auto rank = static_cast<std::uint32_t>(*low); rank <= *high; ++rank) {
    if (!places_.emplace(rank, place).second)
      return Error{Errc::invalid_argument, concat({"rank ", std::to_string(rank), " is in two domains"})};
  }
  return {};
}

std::optional<NodeDomains::Place> NodeDomains::of(std::uint32_t rank) const {
  const auto found = places_.find(rank);
  return found != places_.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace amldist
