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
  ~ConfigFile() override {
    std::remove(path_.c_str());
    ::rmdir(path_.c_str());
  }
  void write(const std::string& content) const { std::ofstream(path_) << content; }
  [[nodiscard]] SitePolicy load(const std::vector<std::string>& more = {}, const std::string& name = "config=") {
    std::vector<std::string> arguments = more;
    arguments.push_back(name + path_);
    complaints_.clear();
    return load_policy(Arguments(arguments.begin(), arguments.end()), complaints_, ::getuid());
  }
  /// Both ways to name the file refuse, in a sentence with these words.
  void expect_refusal(const std::string& words) {
    for (const char* const name : {"config=", "config_optional="}) {
      const std::string refusal = load({}, name).refusal;
      testing::expect_sentence(refusal);
      EXPECT_NE(refusal.find(words), std::string::npos) << name << ": " << refusal;
      EXPECT_NE(refusal.find("no step with --aml-dist starts"), std::string::npos) << refusal;
      EXPECT_TRUE(complaints_.empty()) << complaints_.front();
    }
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

TEST_F(ConfigFile, RefusesStepsWhenItIsMissingUnlessItMayBe) {
  std::remove(path_.c_str());
  const SitePolicy policy = load();
  EXPECT_NE(policy.refusal.find("No such file or directory"), std::string::npos) << policy.refusal;
  testing::expect_sentence(policy.refusal);
  EXPECT_EQ(policy.ports, SitePolicy::defaults().ports);
  EXPECT_EQ(load({}, "config_optional=").refusal, "");
  EXPECT_TRUE(complaints_.empty());
}

TEST_F(ConfigFile, RefusesStepsWhenItCannotBeRead) {
  if (::getuid() == 0) GTEST_SKIP() << "root may read everything";
  ASSERT_EQ(::chmod(path_.c_str(), 0), 0);
  expect_refusal("Permission denied");
}

TEST_F(ConfigFile, RefusesStepsWhenItIsTooLong) {
  write(std::string(longest_config, '#'));
  EXPECT_EQ(load().refusal, "");
  write(std::string(longest_config + 1, '#'));
  expect_refusal("over 65536 bytes");
}

TEST_F(ConfigFile, TakesAsManyPartitionsAsFitAndRefusesTenThousand) {
  const auto lines = [](int partitions) {
    std::string content;
    for (int i = 0; i < partitions; ++i) content += "rdma.p" + std::to_string(i) + "=require\n";
    return content;
  };
  write(lines(3000));
  const auto fits = load();
  EXPECT_EQ(fits.refusal, "");
  EXPECT_EQ(fits.rdma_of_partition.size(), 3000U);
  EXPECT_EQ(fits.rdma_of_partition.at("p2999"), RdmaPolicy::require);
  write(lines(10'000));
  expect_refusal("over 65536 bytes");
}

TEST_F(ConfigFile, RefusesStepsWhenItIsNoRegularFileAndDoesNotWaitForOne) {
  std::remove(path_.c_str());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refusal("not a regular file");
  std::remove(path_.c_str());
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  expect_refusal("not a regular file");
}

TEST_F(ConfigFile, RefusesStepsWhenOthersMayWriteToIt) {
  for (const mode_t mode : {0620U, 0602U, 0666U}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    expect_refusal("users other than its owner may write to it");
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  EXPECT_EQ(load().refusal, "");
}

TEST_F(ConfigFile, RefusesStepsWhenItBelongsToAnother) {
  const std::string argument = "config=" + path_;
  const SitePolicy policy = load_policy(Arguments{argument}, complaints_, ::getuid() + 1);
  EXPECT_NE(policy.refusal.find("it belongs to user " + std::to_string(::getuid())), std::string::npos)
      << policy.refusal;
}

TEST_F(ConfigFile, RefusesStepsForOneWrongLineAndNamesIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"# ours\n\nsecret=require\nrmda=require\n", "line 4, 'rmda=require', is unknown (did you mean 'rdma'?)"},
      {"secret=on", "line 1, 'secret=on', needs require or prefer"},
      {"secret", "line 1, 'secret', needs require or prefer"},
      {"rdma=off\n  port_range = 5-1 # ours\nnonsense", "line 2, 'port_range = 5-1', needs ports such as 20000-29999"},
      {"\nconfig_optional=/etc/passwd", "line 2, 'config_optional=/etc/passwd', belongs in plugstack.conf"},
      {"rmda.\x1b[31m\xff=require", "is unknown (did you mean 'rdma.\\x1b[31m\\xff'?)"},
      {"\x1b[31m\xff\n", "line 1, '\\x1b[31m\\xff', is unknown"},
  };
  for (const auto& [content, words] : cases) {
    write(content);
    expect_refusal(words);
  }
}

TEST_F(ConfigFile, SwitchesThePluginOffInSpiteOfAWrongLine) {
  write("rmda=require\ndisabled\ndefault.gpu=pytorch\n");
  const SitePolicy policy = load();
  EXPECT_TRUE(policy.disabled);
  EXPECT_EQ(policy.default_kind.at("gpu"), Kind::pytorch) << "a step of this partition is to be refused";
}

TEST(SitePolicy, RefusesStepsForAWrongNameOfTheFile) {
  for (const Arguments& arguments :
       {Arguments{"config=relative"}, Arguments{"config="}, Arguments{"config_optional"},
        Arguments{"config=/dev/null/x", "config_optional=/dev/null/y"}, Arguments{"config=x", "config=/dev/null/x"}}) {
    std::vector<std::string> complaints;
    const SitePolicy policy = load_policy(arguments, complaints);
    testing::expect_sentence(policy.refusal);
    EXPECT_NE(policy.refusal.find("plugstack.conf"), std::string::npos) << policy.refusal;
    EXPECT_TRUE(complaints.empty()) << complaints.front();
  }
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
  EXPECT_EQ(choose_trace(policy, *parse_spec("mpi,hang=5,hang_busy=9"), "cpu"), (TraceChoice{true, 5, true, 9}));
  EXPECT_EQ(choose_trace(policy, Spec{}, "gpu"), TraceChoice{}) << "a step without a kind is not traced";
}

}  // namespace
}  // namespace amldist::launch
