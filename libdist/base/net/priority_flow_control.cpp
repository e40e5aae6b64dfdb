#include "base/net/priority_flow_control.hpp"

#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/os/file_descriptor.hpp"

namespace amldist {
namespace {

template <typename Header>
Header header_at(std::span<const std::byte> bytes) {
  Header out = {};
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

/// The content of the attribute `type`; empty if it is missing or the attributes are malformed.
std::span<const std::byte> attribute_in(std::span<const std::byte> attributes, std::uint16_t type) {
  while (attributes.size() >= NLA_HDRLEN) {
    const auto header = header_at<nlattr>(attributes);
    if (header.nla_len < NLA_HDRLEN || header.nla_len > attributes.size()) return {};
    if ((header.nla_type & NLA_TYPE_MASK) == type) return attributes.subspan(NLA_HDRLEN, header.nla_len - NLA_HDRLEN);
    attributes = attributes.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), attributes.size()));
  }
  return {};
}

}  // namespace

std::vector<std::byte> flow_control_request(const std::string& interface) {
  nlmsghdr message = {};
  dcbmsg question = {};
  nlattr name = {};
  name.nla_type = DCB_ATTR_IFNAME;
  name.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + interface.size() + 1);
  question.dcb_family = AF_UNSPEC;
  question.cmd = DCB_CMD_IEEE_GET;
  message.nlmsg_type = RTM_GETDCB;
  message.nlmsg_flags = NLM_F_REQUEST;
  message.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof question) + NLA_ALIGN(name.nla_len));
  std::vector<std::byte> out(message.nlmsg_len);
  std::memcpy(out.data(), &message, sizeof message);
  std::memcpy(out.data() + NLMSG_HDRLEN, &question, sizeof question);
  std::memcpy(out.data() + NLMSG_LENGTH(sizeof question), &name, sizeof name);
  std::memcpy(out.data() + NLMSG_LENGTH(sizeof question) + NLA_HDRLEN, interface.data(), interface.size());
  return out;
}

std::optional<std::uint8_t> flow_control_of_reply(std::span<const std::byte> reply) {
  if (reply.size() < NLMSG_LENGTH(sizeof(dcbmsg))) return std::nullopt;
  const auto message = header_at<nlmsghdr>(reply);
  const bool whole = message.nlmsg_len >= NLMSG_LENGTH(sizeof(dcbmsg)) && message.nlmsg_len <= reply.size();
  if (message.nlmsg_type != RTM_GETDCB || !whole) return std::nullopt;
  const auto attributes = reply.first(message.nlmsg_len).subspan(NLMSG_LENGTH(sizeof(dcbmsg)));
  const auto pfc = attribute_in(attribute_in(attributes, DCB_ATTR_IEEE), DCB_ATTR_IEEE_PFC);
  if (pfc.size() < sizeof(ieee_pfc)) return std::nullopt;
  return header_at<ieee_pfc>(pfc).pfc_en;
}

std::optional<std::uint8_t> priorities_with_flow_control(const std::string& interface) {
  constexpr timeval patience = {1, 0};
  if (interface.empty() || interface.size() >= IFNAMSIZ) return std::nullopt;
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) return std::nullopt;
  static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  const auto request = flow_control_request(interface);
  if (::send(socket.get(), request.data(), request.size(), 0) != static_cast<ssize_t>(request.size())) {
    return std::nullopt;
  }
  std::array<std::byte, 8192> reply{};
  const ssize_t got = ::recv(socket.get(), reply.data(), reply.size(), 0);
  if (got <= 0) return std::nullopt;
  return flow_control_of_reply(std::span(reply).first(static_cast<std::size_t>(got)));
}

}  // namespace amldist
