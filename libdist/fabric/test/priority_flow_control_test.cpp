// What the kernel says about priority flow control, from messages laid out as linux/dcbnl.h and netlink(7) have them.
#include "base/net/priority_flow_control.hpp"

#include <gtest/gtest.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace amldist {
namespace {

void append(std::vector<std::byte>& out, const void* data, std::size_t size) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
  out.resize((out.size() + 3) / 4 * 4);
}

std::vector<std::byte> attribute(std::uint16_t type, const std::vector<std::byte>& content) {
  std::vector<std::byte> out;
  const nlattr header = {static_cast<std::uint16_t>(NLA_HDRLEN + content.size()), type};
  append(out, &header, sizeof header);
  append(out, content.data(), content.size());
  return out;
}

/// The answer about eth0: its name, its flow control, and something else before it.
std::vector<std::byte> reply(std::uint8_t priorities) {
  ieee_pfc pfc = {};
  pfc.pfc_cap = 8;
  pfc.pfc_en = priorities;
  std::vector<std::byte> content;
  append(content, &pfc, sizeof pfc);
  std::vector<std::byte> nested = attribute(DCB_ATTR_IEEE_ETS, std::vector<std::byte>(59));
  const auto own = attribute(DCB_ATTR_IEEE_PFC, content);
  nested.insert(nested.end(), own.begin(), own.end());
  std::vector<std::byte> attributes = attribute(DCB_ATTR_IFNAME, std::vector<std::byte>(5, std::byte{'e'}));
  const auto ieee = attribute(DCB_ATTR_IEEE | NLA_F_NESTED, nested);
  attributes.insert(attributes.end(), ieee.begin(), ieee.end());
  std::vector<std::byte> out;
  nlmsghdr header = {};
  header.nlmsg_type = RTM_GETDCB;
  header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof(dcbmsg)) + attributes.size());
  const dcbmsg question = {AF_UNSPEC, DCB_CMD_IEEE_GET, 0};
  append(out, &header, sizeof header);
  append(out, &question, sizeof question);
  out.insert(out.end(), attributes.begin(), attributes.end());
  return out;
}

TEST(PriorityFlowControl, IsReadFromTheKernelsAnswer) {
  EXPECT_EQ(flow_control_of_reply(reply(0x08)), 0x08);
  EXPECT_EQ(flow_control_of_reply(reply(0)), 0);
}

TEST(PriorityFlowControl, ARefusalOrATornAnswerSaysNothing) {
  const auto whole = reply(0x08);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(flow_control_of_reply(std::span(whole).first(size)), std::nullopt) << size;
  }
  auto refused = whole;
  const std::uint16_t type = NLMSG_ERROR;
  std::memcpy(refused.data() + offsetof(nlmsghdr, nlmsg_type), &type, sizeof type);
  EXPECT_EQ(flow_control_of_reply(refused), std::nullopt);
}

TEST(PriorityFlowControl, HostileLengthsAreSurvived) {
  const auto whole = reply(0x08);
  for (std::size_t at = NLMSG_LENGTH(sizeof(dcbmsg)); at + 1 < whole.size(); ++at) {
    for (const int value : {0, 1, 3, 4, 127, 255}) {
      auto changed = whole;
      changed[at] = static_cast<std::byte>(value);
      static_cast<void>(flow_control_of_reply(changed));
    }
  }
}

TEST(PriorityFlowControl, TheQuestionNamesTheInterface) {
  const auto request = flow_control_request("ens1f0np0");
  nlmsghdr header = {};
  std::memcpy(&header, request.data(), sizeof header);
  EXPECT_EQ(header.nlmsg_len, request.size());
  EXPECT_EQ(header.nlmsg_type, RTM_GETDCB);
  const std::string text(reinterpret_cast<const char*>(request.data()), request.size());
  EXPECT_NE(text.find(std::string("ens1f0np0") + '\0'), std::string::npos);
}

TEST(PriorityFlowControl, TheKernelAnswersThatLoopbackHasNone) {
  EXPECT_EQ(priorities_with_flow_control("lo"), std::nullopt);
  EXPECT_EQ(priorities_with_flow_control("no_such_interface_here"), std::nullopt);
  EXPECT_EQ(priorities_with_flow_control(""), std::nullopt);
}

}  // namespace
}  // namespace amldist
