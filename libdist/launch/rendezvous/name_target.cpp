#include "launch/rendezvous/name_target.hpp"

#include <algorithm>
#include <utility>

#include "base/net/name_lookup.hpp"
#include "base/net/own_network.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using Addresses = Result<std::vector<IpAddress>>;

Addresses read_answer(const std::optional<std::string>& answer) {
  if (!answer) return Error{Errc::timeout, ""};
  std::vector<IpAddress> out;
  for (const std::string_view word : text::split(*answer, ' ')) {
    if (const auto address = IpAddress::parse(word)) out.push_back(*address);
  }
  return out.empty() ? Addresses(Error{Errc::unavailable, ""}) : Addresses(std::move(out));
}

Addresses ask_as_user(const std::string& name, UserRights rights, std::chrono::milliseconds limit) {
  return read_answer(answer_as_user(
      rights,
      [&name] {
        std::string out;
        const auto found = ask_resolver(name);
        for (const IpAddress& each : found ? *found : std::vector<IpAddress>()) {
          if (out.size() < longest_answer_as_user - 64) out += each.to_string() + " ";
        }
        return out;
      },
      limit));
}

}  // namespace

NameTarget target_of(const Result<std::vector<IpAddress>>& addresses, std::span<const IpAddress> own) {
  using enum NameTarget::Where;
  if (!addresses) return {addresses.error().code == Errc::timeout ? unknown : nowhere};
  if (addresses->empty()) return {nowhere};
  const IpAddress& first = addresses->front();
  if (first.is_loopback() || first.is_unspecified()) return {loopback, first.to_string()};
  const bool is_own = std::ranges::find_first_of(*addresses, own) != addresses->end();
  return {is_own ? here : elsewhere, first.to_string()};
}

NameTarget look_up_target(const std::string& name, std::span<const IpAddress> own, UserRights rights,
                          std::chrono::milliseconds limit) {
  if (const auto literal = IpAddress::parse(name)) return target_of(std::vector{*literal}, own);
  if (const auto address = hosts_file_address(name)) return target_of(std::vector<IpAddress>{*address}, own);
  return target_of(ask_as_user(name, rights, limit), own);
}

NameTargets::NameTargets(std::function<NameTarget(const std::string& name)> look_up)
    : look_up_(std::move(look_up)), known_(std::make_shared<std::map<std::string, NameTarget>>()) {}

NameTarget NameTargets::operator()(const std::string& name) const {
  if (const auto found = known_->find(name); found != known_->end()) return found->second;
  const auto is_unknown = [](const auto& each) { return each.second.where == NameTarget::Where::unknown; };
  const bool is_address = IpAddress::parse(name).has_value();  // needs no name service
  if (!is_address && std::ranges::any_of(*known_, is_unknown)) return {};
  return known_->emplace(name, look_up_(name)).first->second;
}

}  // namespace amldist::launch
