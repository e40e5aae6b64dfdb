// The parts of `aml-dist keep` that read texts: srun's line, scontrol's answers, reports of nodes, the job's state.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "aml_dist/common/locked_folder.hpp"
#include "aml_dist/keep/job_state.hpp"
#include "aml_dist/keep/node_health.hpp"
#include "aml_dist/keep/node_watch.hpp"
#include "aml_dist/keep/progress.hpp"
#include "aml_dist/keep/slurm_view.hpp"
#include "aml_dist/keep/srun_line.hpp"
#include "base/net/socket.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace amldist::keep::keep_parts_test {
namespace {

using testing::environment;
using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  Words out;
  for (const auto word : text::split(line, ' ')) out.emplace_back(word);
  return out;
}

std::string line_of(const Words& words) {
  const std::vector<std::string_view> views(words.begin(), words.end());
  return text::join(views, " ");
}

TEST(KeepSrunLine, RefusesWhatCannotBeKept) {
  for (const auto& [line, says] : std::initializer_list<std::pair<const char*, const char*>>{
           {"python train.py", "'python' is not srun"},
           {"srun", "no command"},
           {"srun --nodelist=node1 a", "has --nodelist"},
           {"srun -w node1 a", "has --nodelist"},
           {"srun -n4 -wnode1 a", "has --nodelist"},
           {"srun --exclude node1 a", "has --exclude"},
           {"srun -r1 a", "has --relative"},
           {"srun --nodel=node1 a", "has --nodelist"},
           {"srun --nodel node1 a", "has --nodelist"},
           {"srun --exclud=node1 a", "has --exclude"},
           {"srun --asy a", "has --async"},
           {"srun --pty bash", "has --pty"},
           {"srun --het-group=0 a", "has --het-group"},
           {"srun -N1 a : -N1 b", "a heterogeneous step"},
           {"srun -N1-2 a", "invalid value '1-2' for srun's --nodes"},
           {"srun --nodes=x a", "invalid value 'x'"}}) {
    const auto parsed = SrunLine::parse(words_of(line));
    ASSERT_FALSE(parsed) << line;
    EXPECT_NE(parsed.error().message.find(says), std::string::npos) << parsed.error().message;
  }
  EXPECT_FALSE(SrunLine::parse({}));
}

/// Linux takes no argument of more than 128 KiB: then Slurm orders the nodes.
TEST(KeepSrunLine, KeepsTheOrderOfNodesAsLongAsItsListIsNoTooLongArgument) {
  for (const auto& [tasks, keeps] : {std::pair("8", true), {"128", false}}) {
    auto line = SrunLine::parse({"srun", std::string("--ntasks-per-node=") + tasks, "a"});
    ASSERT_TRUE(line);
    SrunLine::Choice choice{.nodes = {}, .keeps_order = true};
    for (int i = 0; i < 100; ++i) choice.nodes.push_back("node" + std::to_string(100'000 + i));
    ASSERT_TRUE(line->share_out(101, 100, false, environment({})));
    const auto words = line->words_for(choice, environment({}));
    EXPECT_EQ(std::ranges::find(words, "--distribution=arbitrary") != words.end(), keeps);
    for (const std::string& word : words) EXPECT_LT(word.size(), 131'072U);
  }
}

TEST(KeepSrunLine, IsTheSameForChosenNodes) {
  struct Case {
    const char* given;
    testing::Variables variables;
    SrunLine::Choice choice;
    const char* becomes;
  };
  const Words two = {"a", "c"};
  const Words swapped = {"c", "b"};
  for (const auto& [given, variables, choice, becomes] : std::initializer_list<Case>{
           {"srun --ntasks-per-node=2 python train.py -w x",
            {},
            {two},
            "srun --ntasks-per-node=2 --nodelist=a,c --nodes=2 --ntasks=4 --ntasks-per-node=2 --no-kill "
            "--kill-on-bad-exit=1 --quit-on-interrupt python train.py -w x"},
           {"/usr/bin/srun -lu -n 4 --mpi pmix --foo -- a",
            {},
            {two},
            "/usr/bin/srun -lu -n 4 --mpi pmix --foo --nodelist=a,c --nodes=2 --ntasks=4 --ntasks-per-node=2 --no-kill "
            "--kill-on-bad-exit=1 --quit-on-interrupt a"},
           {"srun a",
            {{"SLURM_NTASKS", "6"}},
            {two},
            "srun --nodelist=a,c --nodes=2 --ntasks=4 --ntasks-per-node=2 --no-kill --kill-on-bad-exit=1 "
            "--quit-on-interrupt a"},
           {"srun a",
            {},
            {two, false, false, true},
            "srun --nodelist=a,c --nodes=2 --ntasks=2 --no-kill --kill-on-bad-exit=0 --quit-on-interrupt --overlap "
            "--mem=0 a"},
           {"srun --mem-per-cpu=9 a",
            {},
            {two, false, false, true},
            "srun --mem-per-cpu=9 --nodelist=a,c --nodes=2 --ntasks=2 --no-kill "
            "--kill-on-bad-exit=0 --quit-on-interrupt --overlap a"},
           {"srun --tasks-per-node=2 a",
            {},
            {swapped, true},
            "srun --tasks-per-node=2 --nodelist=c,c,b,b --ntasks=4 --ntasks-per-node=2 --distribution=arbitrary "
            "--no-kill --kill-on-bad-exit=1 --quit-on-interrupt a"},
           {"srun -lN2 --nodes 2 --nodes=2 -N 2 -u --ntasks-per-node=1 a",
            {},
            {swapped, true},
            "srun -l -u --ntasks-per-node=1 --nodelist=c,b --ntasks=2 --ntasks-per-node=1 --distribution=arbitrary "
            "--no-kill --kill-on-bad-exit=1 --quit-on-interrupt a"},
           {"srun --ntasks-per-node=2 -m cyclic a",
            {},
            {swapped, true},
            "srun --ntasks-per-node=2 -m cyclic --nodelist=c,b --nodes=2 --ntasks=4 --ntasks-per-node=2 --no-kill "
            "--kill-on-bad-exit=1 --quit-on-interrupt a"},
           {"srun -X -n3 a",
            {},
            {two},
            "srun -X -n3 --nodelist=a,c --nodes=2 --ntasks=3 --no-kill --kill-on-bad-exit=1 a"},
           {"srun -n3 a",
            {},
            {two},
            "srun -n3 --nodelist=a,c --nodes=2 --ntasks=3 --no-kill --kill-on-bad-exit=1 --quit-on-interrupt a"},
           {"srun --ntasks-per-node=1 --export=A a",
            {},
            {two},
            "srun --ntasks-per-node=1 --export=A --nodelist=a,c --nodes=2 --ntasks=2 --ntasks-per-node=1 --no-kill "
            "--kill-on-bad-exit=1 --quit-on-interrupt "
            "--export=A,AMLDIST_RESTART,TORCHELASTIC_RESTART_COUNT a"},
           {"srun --tasks-p 2 --expo A --overs --distr block a",
            {},
            {two},
            "srun --tasks-p 2 --expo A --overs --distr block --nodelist=a,c --nodes=2 --ntasks=4 --ntasks-per-node=2 "
            "--no-kill --kill-on-bad-exit=1 --quit-on-interrupt "
            "--export=A,AMLDIST_RESTART,TORCHELASTIC_RESTART_COUNT a"},
           {"srun --ntasks-per-node=1 a",
            {{"SLURM_EXPORT_ENV", "NONE"}},
            {two},
            "srun --ntasks-per-node=1 --nodelist=a,c --nodes=2 --ntasks=2 --ntasks-per-node=1 --no-kill "
            "--kill-on-bad-exit=1 --quit-on-interrupt "
            "--export=AMLDIST_RESTART,TORCHELASTIC_RESTART_COUNT a"}}) {
    auto line = SrunLine::parse(words_of(given));
    ASSERT_TRUE(line) << given;
    ASSERT_TRUE(line->share_out(3, 2, false, environment(variables))) << given;
    EXPECT_EQ(line_of(line->words_for(choice, environment(variables))), becomes);
  }
}

TEST(KeepSrunLine, SharesTasksOutOrSaysWhyNot) {
  const auto status = [](const char* given, bool may_shrink, const testing::Variables& variables) {
    auto line = SrunLine::parse(words_of(given));
    const auto shared = line->share_out(3, 2, may_shrink, environment(variables));
    return shared ? std::string() : shared.error().message;
  };
  EXPECT_EQ(status("srun --ntasks-per-node=8 a", true, {}), "");
  EXPECT_NE(status("srun -n16 a", true, {}).find("--min-nodes needs srun's --ntasks-per-node"), std::string::npos);
  EXPECT_NE(status("srun a", false, {{"SLURM_NTASKS", "7"}}).find("the job's 7 tasks cannot be shared out"),
            std::string::npos);
}

TEST(KeepSlurmView, ReadsScontrol) {
  const auto nodes = parse_nodes(
      "NodeName=node1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=node1 Port=7000 State=ALLOCATED Weight=1\n"
      "NodeName=node2 NodeAddr=n2 State=IDLE+DRAIN Reason=x\nNodeName=node3 NodeAddr=n3 "
      "State=ALLOCATED+NOT_RESPONDING\n"
      "NodeName=node4 NodeAddr=n4 State=DOWN* Reason=x\nNodeName=node5 NodeAddr=n5 State=UNKNOWN\n\nNode node9 not "
      "found\n");
  ASSERT_EQ(nodes.size(), 5U);
  EXPECT_EQ(nodes.at("node1").address, "10.0.0.1");
  EXPECT_EQ(nodes.at("node1").port, 7000);
  const auto states = [&](const char* name) { return std::pair(nodes.at(name).is_down(), nodes.at(name).is_usable()); };
  EXPECT_EQ(states("node1"), std::pair(false, true));
  EXPECT_EQ(states("node2"), std::pair(false, false));
  EXPECT_EQ(states("node3"), std::pair(true, false));
  EXPECT_EQ(states("node4"), std::pair(true, false));
  EXPECT_EQ(states("node5"), std::pair(false, true));
  const std::string steps =
      "StepId=1.batch State=RUNNING SrunHost:Pid=(null):0\nStepId=1.0 State=RUNNING SrunHost:Pid=node1:40\n"
      "StepId=1.1 SrunHost:Pid=node1.a.b:401\n";
  EXPECT_EQ(parse_step(steps, "node1", 40), "1.0");
  EXPECT_EQ(parse_step(steps, "node1.x", 401), "1.1");
  EXPECT_FALSE(parse_step(steps, "node1", 4));
  EXPECT_FALSE(parse_step("", "node1", 0));
}

TEST(KeepNodeWatch, ReadsSrunsConnections) {
  const char* const table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0204D50A:A3A2 0304D50A:8B1C 01 00000000:00000000 00:00000000 00000000     0        0 77 1 0 20 4 30 10 "
      "-1\n"
      "   1: 0204D50A:A3A2 0404D50A:8B1C 08 00000000:00000000 00:00000000 00000000     0        0 78 1 0 20 4 30 10 "
      "-1\n"
      "   2: 0204D50A:A3A2 0504D50A:8B1C 01 00000000:00000000 00:00000000 00000000     0        0 79 1 0 20 4 30 10 "
      "-1\nx\n";
  EXPECT_EQ(parse_connections(table, {77, 78}), (std::set<std::string>{"10.213.4.3"}));
}

/// Of more machines than are asked at once the first does not answer: nobody takes its connections.
TEST(KeepNodeWatch, ASilentMachineTakesNoTimeFromOthers) {
  constexpr int others = 600;
  const auto listener_of = [](int backlog, std::uint16_t& port) {
    FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener.get(), backlog), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port = ntohs(address.sin_port);
    return listener;
  };
  const IpAddress own = *IpAddress::parse("127.0.0.1");
  std::uint16_t full_port = 0;
  std::uint16_t port = 0;
  const auto full = listener_of(0, full_port);
  const auto open = listener_of(2 * others, port);
  std::vector<FileDescriptor> waiting;
  for (int i = 0; i < 2; ++i) {
    auto connection = start_connection(own, full_port);
    ASSERT_TRUE(connection);
    waiting.push_back(std::move(*connection));
  }
  Machines machines = {{"a", {own, full_port}}};
  for (int i = 0; i < others; ++i) machines.emplace(text::concat({"b", std::to_string(i)}), Machine{own, port});
  const auto answers = knock(machines, std::chrono::milliseconds(500));
  ASSERT_EQ(answers.size(), machines.size());
  EXPECT_EQ(answers.at("a"), Answer::silent);
  EXPECT_EQ(std::ranges::count(answers, Answer::accepted, [](const auto& each) { return each.second; }), others);
}

TEST(KeepNodeHealth, TellsSickFromSilent) {
  const char* const output =
      "0: node a\n1: node b\n0: {\n0: \"verdict\": \"skip\", \"checks\": []}\n1: {\"verdict\": \"fail\", \"checks\": "
      "[\n"
      "1: {\"id\": \"x\", \"verdict\": \"pass\", \"evidence\": \"\"},\n1: {\"id\": \"ib.state\", \"verdict\": "
      "\"fail\", \"evidence\": \"port 1 is down\"}]}\n"
      "2: node c\n2: sh: aml-dist: not found\nno label\n";
  const NodeHealth health = parse_health(output, Words{"a", "b", "c", "d"});
  EXPECT_EQ(health.sick, (std::map<std::string, std::string>{{"b", "ib.state: port 1 is down"}}));
  EXPECT_EQ(health.silent, (Words{"c", "d"}));
}

TEST(KeepNodeHealth, TakesWhatIsNoReportForSilence) {
  const char* const output =
      "0: node a\n0: {\"verdict\": 1}\n1: node b\n1: {\"verdict\": \"fail\", \"checks\": [7]}\n2: node c\n2: {}\n3: "
      "node d\n3: {\"verdict\": \"fail\", \"checks\": 7}\n";
  const NodeHealth health = parse_health(output, Words{"a", "b", "c", "d"});
  EXPECT_EQ(health.sick, (std::map<std::string, std::string>()));
  EXPECT_EQ(health.silent, (Words{"a", "b", "c", "d"}));
}

class KeepState : public ::testing::Test {
 protected:
  testing::ScratchFolder scratch;
  std::string folder = scratch.path();
  std::string path = folder + "/state";
  JobRun first = {"c", 12, 0};
  JobRun second = {"c", 12, 1};
  JobState state = {.history = {{.cause = Cause::hang,
                                 .node = "a",
                                 .failure = "f",
                                 .evidence = "e\"\n\xff",
                                 .status = 75,
                                 .ended = 9,
                                 .ran = 8,
                                 .advanced = false},
                                {.cause = Cause::node_down, .blamed = {"a", "b"}}},
                    .excluded = {"a", "b"},
                    .batch_host = "n",
                    .runs = true};
};

TEST_F(KeepState, IsOfAnEarlierRunOfTheSameJob) {
  EXPECT_EQ(read_state(path, second).error().code, Errc::not_found);
  ASSERT_TRUE(write_state(path, first, state));
  const auto read = read_state(path, second);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->excluded, state.excluded);
  EXPECT_EQ(read->history.size(), 2U);
  EXPECT_EQ(read->history[0].advanced, false);
  EXPECT_EQ(read->history[1], state.history[1]);
  EXPECT_TRUE(read->runs);
  for (const JobRun& other : {first, JobRun{"c", 13, 1}, JobRun{"d", 12, 1}})
    EXPECT_EQ(read_state(path, other).error().code, Errc::not_found);
}

TEST_F(KeepState, IsNotReadWhereOthersMayWrite) {
  ASSERT_TRUE(write_state(path, first, state));
  std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  EXPECT_EQ(read_state(path, second).error().code, Errc::unavailable);
  std::ofstream(folder + "/text") << "{\"schema\": 1}";
  EXPECT_EQ(read_state(folder + "/text", second).error().code, Errc::invalid_argument);
  EXPECT_EQ(write_state(folder + "/none/state", first, state).error().code, Errc::unavailable);
  EXPECT_FALSE(write_state("/dev/full/state", first, state));
}

TEST_F(KeepState, TheNewestFileIsTheProgress) {
  EXPECT_EQ(newest_below(folder), "");
  std::filesystem::create_directory(folder + "/deep");
  std::ofstream(folder + "/deep/1") << "a";
  const std::string one = newest_below(folder);
  EXPECT_NE(one, "");
  EXPECT_EQ(newest_below(folder), one);
  std::ofstream(folder + "/deep/1") << "ab";
  EXPECT_NE(newest_below(folder), one);
  EXPECT_EQ(progress_of("echo 7"), "7\n");
  EXPECT_EQ(progress_of("echo 7; exit 1"), "");
  EXPECT_NE(progress_of(folder + "/deep/1"), "");
}

/// As files from a zip archive have it: ten years after 1970 are fewer digits.
TEST_F(KeepState, AFileOf1980IsNotTheNewest) {
  const timespec first_of_1980[2] = {{315532800, 0}, {315532800, 0}};
  std::ofstream(folder + "/old") << "a";
  ASSERT_EQ(::utimensat(AT_FDCWD, (folder + "/old").c_str(), first_of_1980, 0), 0);
  const std::string old = newest_below(folder);
  std::ofstream(folder + "/checkpoint") << "b";
  EXPECT_NE(newest_below(folder), old);
}

/// What a killed process has left goes with the next folder of its kind; one in use stays.
TEST(LockedFolder, GoesWithItsProcess) {
  const testing::ScratchFolder scratch;
  const std::string place = scratch.path() + "/";
  for (const char* const name : {"keep-dead", "other-dead"}) {
    std::filesystem::create_directory(place + name);
    std::filesystem::permissions(place + name, std::filesystem::perms::owner_all);
    std::ofstream(place + name + "/lock") << "";
    std::ofstream(place + name + "/end") << "a record";
  }
  {
    const auto one = tools::LockedFolder::make(place + "keep-1", "keep-");
    const auto other = tools::LockedFolder::make(place + "keep-2", "keep-");
    ASSERT_TRUE(one && other);
    EXPECT_TRUE(std::filesystem::is_directory(one->path()) && std::filesystem::is_directory(other->path()));
    EXPECT_FALSE(std::filesystem::exists(place + "keep-dead"));
  }
  EXPECT_FALSE(std::filesystem::exists(place + "keep-1") || std::filesystem::exists(place + "keep-2"));
  EXPECT_TRUE(std::filesystem::exists(place + "other-dead"));
  EXPECT_EQ(tools::LockedFolder::make("/proc/keep-1", "keep-").error().code, Errc::unavailable);
}

/// As the nodes of a Ray step do that begin at the same moment on one file system: another one sweeps this one's folder
/// before it is locked, and makes it again for itself.
TEST(LockedFolder, LeavesTheFolderThatAnotherProcessHasMadeMeanwhile) {
  const testing::ScratchFolder scratch;
  const std::string path = scratch.path() + "/keep-1";
  const auto make_folder = [&] {
    std::filesystem::create_directory(path);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return FileDescriptor(::open((path + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  };
  FileDescriptor swept = make_folder();
  ASSERT_EQ(::flock(swept.get(), LOCK_EX), 0);
  struct stat facts = {};
  ASSERT_EQ(::fstat(swept.get(), &facts), 0);
  auto made = std::async(std::launch::async, [&] { return tools::LockedFolder::make(path, "other-"); });
  const auto waits_for_lock = [&] {
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
      if (line.find("->") != std::string::npos &&
          line.find(":" + std::to_string(facts.st_ino) + " ") != std::string::npos)
        return true;
    }
    return false;
  };
  for (int i = 0; i < 500 && !waits_for_lock(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::filesystem::remove_all(path);
  const FileDescriptor other = make_folder();
  ASSERT_EQ(::flock(other.get(), LOCK_SH), 0);
  std::ofstream(path + "/socket") << "in use";
  swept = FileDescriptor();
  const auto folder = made.get();
  ASSERT_TRUE(folder);
  EXPECT_TRUE(std::filesystem::exists(path + "/socket"));
}

/// A stand-in for scontrol.
class SlurmView : public ::testing::Test {
 protected:
  ~SlurmView() override { ::setenv("PATH", path_.c_str(), 1); }
  void scontrol(const std::string& script) {
    const std::string program = scratch_.path() + "/scontrol";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    ::setenv("PATH", (scratch_.path() + ":" + path_).c_str(), 1);
  }
  testing::ScratchFolder scratch_;
  const std::string path_ = own_variable("PATH").value_or("");
};

/// What scontrol prints then is no date, and the job seemed to have no time limit.
TEST_F(SlurmView, AsksWithoutTheUsersFormatOfTimes) {
  scontrol(
      "[ -z \"$SLURM_TIME_FORMAT\" ] || { echo EndTime=08:20; exit; }\n"
      "echo TimeLimit=01:00:00 EndTime=2026-11-27T08:20:00");
  ::setenv("SLURM_TIME_FORMAT", "%H:%M", 1);
  EXPECT_EQ(end_of_job("12"), parse_time("2026-11-27T08:20:00"));
  ::unsetenv("SLURM_TIME_FORMAT");
}

TEST_F(SlurmView, KeepsTheNodesThatTheJobExcludesItself) {
  const std::string asked = scratch_.path() + "/asked";
  for (const auto& [before, after] : {std::pair("n[7-8]", "n[7-8],n1,n2"), std::pair("(null)", "n1,n2")}) {
    scontrol(text::concat({"case \"$*\" in *show*) echo 'JobId=12 ReqNodeList=(null) ExcNodeList=", before,
                           " NodeList=n1';; *) echo \"$*\" >", asked, ";; esac"}));
    EXPECT_TRUE(exclude_nodes("12", Words{"n1", "n2"}));
    std::string line;
    std::getline(std::ifstream(asked), line);
    EXPECT_EQ(line, text::concat({"update JobId=12 ExcNodeList=", after}));
  }
}

/// An array's last task has the same number as the whole array: scontrol would requeue, or shrink, all its tasks.
TEST(KeepJob, IsNamedAsOneTaskOfAnArray) {
  EXPECT_EQ(name_of_job(12, environment({{"SLURM_JOB_ID", "12"}})), "12");
  EXPECT_EQ(name_of_job(12, environment({{"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "3"}})), "12_3");
  EXPECT_EQ(name_of_job(12, environment({{"SLURM_ARRAY_JOB_ID", "x"}, {"SLURM_ARRAY_TASK_ID", "3"}})), "12");
}

TEST_F(SlurmView, TakesNothingFromTheJobsName) {
  scontrol("printf 'JobId=12 ArrayJobId=12 JobName=a Restarts=7 TimeLimit=UNLIMITED\\n   Requeue=1 Restarts=2\\n'");
  EXPECT_EQ(job_field("12", "Restarts"), "2");
  EXPECT_EQ(job_field("12", "TimeLimit"), "");
}

/// The update would have replaced what the job excludes.
TEST_F(SlurmView, ExcludesNothingBeforeItKnowsWhatTheJobExcludesItself) {
  const std::string asked = scratch_.path() + "/asked";
  scontrol(text::concat({"case \"$*\" in *show*) exit 1;; *) echo \"$*\" >", asked, ";; esac"}));
  EXPECT_FALSE(exclude_nodes("12", Words{"n1"}));
  EXPECT_FALSE(std::filesystem::exists(asked));
}

TEST_F(SlurmView, ReadsWhenAJobEnds) {
  const auto one = parse_time("2026-11-27T08:20:00");
  const auto later = parse_time("2026-11-27T08:21:05");
  ASSERT_TRUE(one && later);
  EXPECT_EQ(*later - *one, 65);
  for (const char* const text : {"", "Unknown", "2026-11-27", "2026-11-27T08:20:00Z", "N/A"})
    EXPECT_FALSE(parse_time(text)) << text;
}

}  // namespace
}  // namespace amldist::keep::keep_parts_test
