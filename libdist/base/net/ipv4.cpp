#include "base/net/ipv4.hpp"

#include "base/text/text.hpp"

namespace amldist {

std::optional<Ipv4> Ipv4::parse(std::string_view text) noexcept {
  Ipv4 address;
  for (int i = 0; i < 4; ++i) {
    const auto dot = text.find('.');
    if ((dot == std::string_view::npos) != (i == 3)) return std::nullopt;
    const std::string_view field = text.substr(0, dot);
    const auto number = text::to_number(field, 255);
    if (!number || (field.size() > 1 && field.front() == '0')) return std::nullopt;
    address.bits = address.bits << 8 | static_cast<std::uint32_t>(*number);
    text.remove_prefix(i == 3 ? text.size() : dot + 1);
  }
  return address;
}

std::string Ipv4::to_string() const {
  return text::concat({std::to_string(bits >> 24), ".", std::to_string(bits >> 16 & 255), ".",
                       std::to_string(bits >> 8 & 255), ".", std::to_string(bits & 255)});
}

std::optional<Ipv4Network> Ipv4Network::parse(std::string_view text) noexcept {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto base = Ipv4::parse(text.substr(0, slash));
  const auto prefix = text::to_number(text.substr(slash + 1), 32);
  if (!base || !prefix) return std::nullopt;
  return Ipv4Network{*base, static_cast<std::uint8_t>(*prefix)};
}

bool Ipv4Network::contains(Ipv4 address) const noexcept {
  return prefix == 0 || ((address.bits ^ base.bits) >> (32 - prefix)) == 0;
}

std::string Ipv4Network::to_string() const { return text::concat({base.to_string(), "/", std::to_string(prefix)}); }

}  // namespace amldist
