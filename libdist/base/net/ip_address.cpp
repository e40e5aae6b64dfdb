#include "base/net/ip_address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace amldist {
namespace {

constexpr std::array<unsigned char, 12> mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

IpAddress::IpAddress(Ipv4 address) noexcept {
  std::ranges::copy(mapped, bytes.begin());
  for (std::size_t i = 0; i < sizeof address.bits; ++i)
    bytes[mapped.size() + i] = static_cast<unsigned char>(address.bits >> (24 - 8 * i));
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  if (const auto four = Ipv4::parse(text)) return *four;
  IpAddress out;
  if (::inet_pton(AF_INET6, std::string(text).c_str(), out.bytes.data()) != 1 ||
      text.find('\0') != std::string_view::npos)
    return std::nullopt;
  return out;
}

std::optional<IpAddress> IpAddress::from_bytes(std::string_view text) noexcept {
  IpAddress out;
  if (text.size() != out.bytes.size()) return std::nullopt;
  std::memcpy(out.bytes.data(), text.data(), text.size());
  return out;
}

std::optional<Ipv4> IpAddress::as_ipv4() const noexcept {
  if (!std::equal(mapped.begin(), mapped.end(), bytes.begin())) return std::nullopt;
  Ipv4 out;
  for (std::size_t i = mapped.size(); i < bytes.size(); ++i) out.bits = out.bits << 8 | bytes[i];
  return out;
}

std::string IpAddress::to_string() const {
  if (const auto four = as_ipv4()) return four->to_string();
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* const written = ::inet_ntop(AF_INET6, bytes.data(), text.data(), text.size());
  return written != nullptr ? written : "";
}

bool IpAddress::is_loopback() const noexcept {
  if (const auto four = as_ipv4()) return four->is_loopback();
  IpAddress one;
  one.bytes.back() = 1;
  return *this == one;
}

bool IpAddress::is_unspecified() const noexcept { return *this == IpAddress() || *this == IpAddress(Ipv4{}); }

}  // namespace amldist
