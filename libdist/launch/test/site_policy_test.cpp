#include "launch/site/site_policy.hpp"

#include "launch/site/trace_policy.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "support.hpp"

namespace amldist::launch {
namespace {

using Arguments = std::vector<std::string_view>;

TEST(SitePolicy, ReadsEveryArgument) {
  SitePolicy policy = SitePolicy::defaults();
  const auto complaints = apply_arguments(
      policy, Arguments{"port_range=15000-15999", "master_addr=name", "interface=ib0", "network=10.1.0.0/16",
                        "suffix=.cluster.local", "rdma=prefer", "rdma.gpu=require", "default.gpu=pytorch",
                        "default.cpu=none", "secret=require", "job_comment=on", "disabled"});
  EXPECT_TRUE(complaints.empty()) << complaints.front();
  EXPECT_EQ(policy.ports.to_string(), "15000-15999");
  EXPECT_EQ(policy.master_addr, MasterAddress::Form::name);
  EXPECT_EQ(policy.interface, "ib0");
  EXPECT_EQ(policy.network->to_string(), "10.1.0.0/16");
  EXPECT_EQ(policy.suffix, ".cluster.local");
  EXPECT_EQ(policy.rdma, RdmaPolicy::prefer);
  EXPECT_EQ(policy.rdma_of_partition.at("gpu"), RdmaPolicy::require);
  EXPECT_EQ(policy.default_kind.at("gpu"), Kind::pytorch);
  EXPECT_EQ(policy.default_kind.at("cpu"), Kind::none);
  EXPECT_EQ(policy.secret, SecretPolicy::require);
  EXPECT_TRUE(policy.job_comment);
  EXPECT_TRUE(policy.disabled);
}

TEST(SitePolicy, NamesAndSkipsWhatItDoesNotKnow) {
  for (const char* const bad : {"prot_range=1-2",
                                "port_range",
                                "port_range=",
                                "port_range=5-1",
                                "master_addr=fqdn",
                                "interface=../x",
                                "interface=averyveryverylongname",
                                "network=10.0.0.0",
                                "suffix=a b",
                                "rdma=on",
                                "rdma.=off",
                                "rdma_pairs=some",
                                "rdma_pairs.=ring",
                                "health=good",
                                "health.=off",
                                "default.=mpi",
                                "default.gpu=torch",
                                "config=relative",
                                "secret=off",
                                "disabled=1",
                                "",
                                "=",
                                "%s%n"}) {
    SitePolicy policy = SitePolicy::defaults();
    const auto complaints = apply_arguments(policy, Arguments{bad});
    ASSERT_EQ(complaints.size(), 1U) << bad;
    testing::expect_sentence(complaints.front());
    EXPECT_EQ(policy.ports, SitePolicy::defaults().ports) << bad;
    EXPECT_FALSE(policy.disabled) << bad;
  }
}

TEST(SitePolicy, WritesNoCommentUnlessTold) {
  for (const char* const argument : {"job_comment=off", "job_comment=yes", "job_comment"}) {
    SitePolicy policy = SitePolicy::defaults();
    EXPECT_EQ(apply_arguments(policy, Arguments{argument}).empty(), std::string_view(argument) == "job_comment=off");
    EXPECT_FALSE(policy.job_comment) << argument;
  }
}

TEST(SitePolicy, SuggestsTheNearestArgument) {
  SitePolicy policy;
  EXPECT_NE(apply_arguments(policy, Arguments{"port_rnage=1-2"}).front().find("port_range"), std::string::npos);
}

class ConfigFile : public ::testing::Test {
 protected:
  ConfigFile() {
    char name[] = "/tmp/amldist-policy-XXXXXX";
    const int file = ::mkstemp(name);
    if (file >= 0) ::close(file);
    path_ = name;
  }
  ~ConfigFile() override { std::remove(path_.c_str()); }
  void write(const std::string& content) const { std::ofstream(path_) << content; }
  [[nodiscard]] SitePolicy load(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = more;
    arguments.push_back("config=" + path_);
    complaints_.clear();
    return load_policy(Arguments(arguments.begin(), arguments.end()), complaints_);
  }
  std::string path_;
  std::vector<std::string> complaints_;
};

TEST_F(ConfigFile, IsReadLineByLine) {
  write("# the site's choices\n  port_range=15000-15999  # ours\n\nrdma=prefer\r\ndisabled\n");
  const SitePolicy policy = load();
  EXPECT_TRUE(complaints_.empty());
  EXPECT_EQ(policy.ports.to_string(), "15000-15999");
  EXPECT_EQ(policy.rdma, RdmaPolicy::prefer);
  EXPECT_TRUE(policy.disabled);
}

TEST_F(ConfigFile, MayHaveBlanksAroundTheEqualsSign) {
  write("port_range = 15000-15999\nrdma.gpu\t=require \r\nmaster_addr= name\n");
  const SitePolicy policy = load();
  EXPECT_TRUE(complaints_.empty()) << complaints_.front();
  EXPECT_EQ(policy.ports.to_string(), "15000-15999");
  EXPECT_EQ(policy.rdma_of_partition.at("gpu"), RdmaPolicy::require);
  EXPECT_EQ(policy.master_addr, MasterAddress::Form::name);
}

TEST_F(ConfigFile, YieldsToThePlugstackLine) {
  write("port_range=15000-15999\n");
  EXPECT_EQ(load({"port_range=16000-16999"}).ports.to_string(), "16000-16999");
}

TEST_F(ConfigFile, IsIgnoredWithAWordWhenItCannotBeRead) {
  std::remove(path_.c_str());
  EXPECT_EQ(load().ports, SitePolicy::defaults().ports);
  ASSERT_EQ(complaints_.size(), 1U);
  write(std::string(longest_config + 1, '#'));
  static_cast<void>(load());
  ASSERT_EQ(complaints_.size(), 1U);
  std::remove(path_.c_str());
  path_ = "/dev/zero";
  static_cast<void>(load());
  ASSERT_EQ(complaints_.size(), 1U);
  path_ = "/tmp/does-not-exist-amldist";
}

TEST(ConfigFileKinds, AFifoDoesNotHoldUpALaunch) {
  const std::string path = "/tmp/amldist-policy-fifo-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(read_config_file(path));
  std::remove(path.c_str());
}

TEST(SitePolicy, DecidesAboutTracesWhereTheUserDoesNot) {
  SitePolicy policy = SitePolicy::defaults();
  const std::vector<std::string_view> arguments = {
      "trace=off", "trace.gpu=on",        "hang=600", "trace_libraries=/opt/lib", "trace=maybe",
      "hang=0",    "trace_libraries=lib", "trace.=on"};
  EXPECT_EQ(apply_arguments(policy, arguments).size(), 4U);
  EXPECT_EQ(policy.trace_libraries, "/opt/lib");
  const Spec silent = *parse_spec("mpi");
  EXPECT_EQ(choose_trace(policy, silent, "cpu"), TraceChoice{});
  EXPECT_EQ(choose_trace(policy, silent, "gpu"), (TraceChoice{true, 600, false})) << "a site only has it reported";
  EXPECT_EQ(choose_trace(policy, *parse_spec("mpi,trace=off"), "gpu"), TraceChoice{});
  EXPECT_EQ(choose_trace(policy, *parse_spec("mpi,hang=5"), "cpu"), (TraceChoice{true, 5, true}));
  EXPECT_EQ(choose_trace(policy, *parse_spec("mpi,hang=5,hang_action=report"), "cpu"), (TraceChoice{true, 5, false}));
  EXPECT_EQ(choose_trace(policy, Spec{}, "gpu"), TraceChoice{}) << "a step without a kind is none of ours";
}

}  // namespace
}  // namespace amldist::launch
