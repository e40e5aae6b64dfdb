#include "step/cause/task_cause.hpp"

#include <csignal>
#include <fstream>

#include "scratch.hpp"
#include "step/cause/exception.hpp"
#include "step/messages/failure_report.hpp"
#include "support.hpp"

namespace amldist::step::task_cause_test {
namespace {

using Kind = Cause::Kind;

constexpr std::uint32_t failed = 1 << 8;
constexpr std::uint64_t second = 1'000'000;
constexpr std::uint64_t now = 4000 * second;
const std::string group = "/slurm/uid_0/job_1/step_0/task_0";
const std::string gpu_line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=8123, name=python, GPU has fallen off the bus.";

std::vector<KernelRecord> records(const std::vector<std::string>& lines, std::uint64_t age = second / 2) {
  std::vector<KernelRecord> out;
  for (const std::string& line : lines) out.push_back({now - age, line});
  return out;
}

std::vector<std::string> oom_lines(const std::string& of, std::uint32_t pid = 8123,
                                   const std::string& name = "python") {
  const std::string number = std::to_string(pid);
  return {name + " invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
          "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/slurm/uid_0/"
          "job_1,task_memcg=" +
              of + ",task=" + name + ",pid=" + number + ",uid=0",
          "Memory cgroup out of memory: Killed process " + number + " (" + name +
              ") total-vm:231249536kB, anon-rss:221249536kB, file-rss:4096kB, shmem-rss:0kB, UID:0 pgtables:96kB "
              "oom_score_adj:0"};
}

TaskEnd end_of(std::uint32_t wait_status, std::span<const KernelRecord> log = {}) {
  return {.wait_status = wait_status,
          .pid = 4,
          .host = "node3",
          .group = MemoryGroup{true, group},
          .memory = MemoryUse{0, 322122547200, 322122547200, "step"},
          .log_was_read = true,
          .log = log,
          .now_us = {now, now + 9000 * second},
          .gpus = {"0000:3b:00.0"}};
}

/// The line of a report with what find_causes() finds, sent and received.
std::string line_of(const TaskEnd& end, std::uint64_t elapsed_ms = 12345) {
  FailureReport report{FailureReport::Kind::failed, 5, 1, end.wait_status, elapsed_ms, end.host, {}, find_causes(end)};
  const auto received = FailureReport::parse(report.to_datagram(1), 1);
  EXPECT_EQ(received, report);
  FirstFailure failure(8);
  failure.take(received.value_or(FailureReport()));
  return failure.record({}).sentence();
}

EndRecord::Cause cause_of(const TaskEnd& end) {
  FirstFailure failure(8);
  failure.take({FailureReport::Kind::failed, 5, 1, end.wait_status, 1, end.host, {}, find_causes(end)});
  return failure.record({}).cause;
}

TEST(OutOfMemory, NamesLimitAndLargestProcess) {
  const auto log = records(oom_lines(group));
  EXPECT_EQ(
      line_of(end_of(SIGKILL, log), 41 * 60 * 1000),
      "first failure: rank 5 (local 1) on node3: out of memory: the step may use 300 GiB on this node and used it; its "
      "largest process was 8123 python (211 GiB), 41 min after the start");
  EXPECT_EQ(cause_of(end_of(SIGKILL, log)), EndRecord::Cause::out_of_memory);
}

TEST(OutOfMemory, IsWaitedForUntilTheLogHasALineOfEachKill) {
  const auto first = records(oom_lines(group, 9000));
  const std::vector<KernelRecord> not_written(first.begin(), first.end() - 1);
  TaskEnd end = end_of(SIGKILL, not_written);
  EXPECT_FALSE(lacks_kernels_line(end)) << "the kernel has killed nothing";
  end.memory->kills = 1;
  EXPECT_TRUE(lacks_kernels_line(end)) << "it has not said what";
  end.log = first;
  EXPECT_FALSE(lacks_kernels_line(end));
  end.memory->kills = 2;
  EXPECT_TRUE(lacks_kernels_line(end)) << "a child before, and now the task";
  end.log_was_read = false;
  EXPECT_FALSE(lacks_kernels_line(end)) << "nothing will come";
}

TEST(LostProcess, IsToldOfARankThatLivesOn) {
  const auto log = records(oom_lines(group, 9000), 61 * second);
  TaskEnd alive = end_of(0, log);
  EXPECT_EQ(find_lost_process(alive)->text,
            "the kernel killed its process 9000 python (211 GiB) 61 s before, for want of memory: the step may use 300 "
            "GiB on this node and used it");
  alive.pid = 9000;
  EXPECT_FALSE(find_lost_process(alive)) << "the task itself";
  TaskEnd closed = end_of(0);
  EXPECT_FALSE(find_lost_process(closed));
  closed.memory->kills = 1;
  EXPECT_EQ(find_lost_process(closed)->text,
            "the kernel killed a process of it, for want of memory: the step may use 300 GiB on this node and used it");
  closed.group = MemoryGroup{true, "/user.slice"};
  EXPECT_FALSE(find_lost_process(closed)) << "others are in that group, too";
  const auto other = records(oom_lines("/slurm/uid_0/job_1/step_0/task_1", 9000), 61 * second);
  EXPECT_FALSE(find_lost_process(end_of(0, other)));
}

TEST(LostProcess, LongAgoIsTheCauseOfNothingButIsTold) {
  const auto log = records(oom_lines(group, 9000), 41 * 60 * second);
  EXPECT_EQ(cause_of(end_of(failed, log)), EndRecord::Cause::rank_exit);
  EXPECT_EQ(
      line_of(end_of(failed, log)),
      "first failure: rank 5 (local 1) on node3: exit status 1, 12.3 s after the start; the kernel killed its process "
      "9000 python (211 GiB) 41 min before, for want of memory: the step may use 300 GiB on this node and used it");
}

TEST(LostProcess, IsKeptForAStepThatSlurmEnds) {
  FirstFailure failure(8);
  const auto take = [&](std::uint32_t rank, const TaskEnd& end) {
    failure.take({FailureReport::Kind::failed, rank, 1, end.wait_status, 1, end.host, {}, find_causes(end)});
  };
  take(4, end_of(SIGTERM));
  EXPECT_EQ(failure.memory_note(), "");
  take(5, end_of(SIGTERM, records(oom_lines(group, 9000), 41 * 60 * second)));
  EXPECT_TRUE(failure.memory_note().starts_with("rank 5 (local 1) on node3: the kernel killed its process 9000 python"))
      << failure.memory_note();
  take(6, end_of(SIGKILL, records(oom_lines(group))));
  EXPECT_TRUE(failure.memory_note().starts_with("rank 5 ")) << "the first";
}

TEST(OutOfMemory, OfAChildExplainsTheRanksOwnEnd) {
  const auto log = records(oom_lines(group, 9000), 20 * second);
  EXPECT_EQ(cause_of(end_of(failed, log)), EndRecord::Cause::out_of_memory);
  TaskEnd counted = end_of(failed);
  counted.memory->kills = 1;
  counted.log_was_read = false;
  EXPECT_EQ(
      line_of(counted),
      "first failure: rank 5 (local 1) on node3: out of memory: the step may use 300 GiB on this node and used it, "
      "12.3 s after the start")
      << "by the cgroup alone";
}

TEST(OutOfMemory, OfOthersOrLongAgoIsNotTheCause) {
  const auto others = records(oom_lines("/slurm/uid_0/job_1/step_0/task_1"));
  const auto similar = records(oom_lines(group + "1"));
  const auto old = records(oom_lines(group), 600 * second);
  for (const auto& log : {others, similar, old}) EXPECT_EQ(cause_of(end_of(failed, log)), EndRecord::Cause::rank_exit);
  TaskEnd survived = end_of(failed, old);
  survived.memory->kills = 1;
  EXPECT_EQ(cause_of(survived), EndRecord::Cause::rank_exit) << "the count is that of ten minutes ago";
}

TEST(OutOfMemory, OfTheNodeIsTold) {
  const auto log = records(
      {"Out of memory: Killed process 4 (train) total-vm:9kB, anon-rss:2048kB, file-rss:0kB, shmem-rss:0kB, UID:0"});
  EXPECT_EQ(line_of(end_of(SIGKILL, log)),
            "first failure: rank 5 (local 1) on node3: out of memory: node3 had no memory left; its largest process "
            "was 4 train "
            "(2 MiB), 12.3 s after the start");
}

TEST(OutOfMemory, OfAGroupSharedByTheNodeCountsOnlyForAKilledTask) {
  const auto log = records(oom_lines("/system.slice/slurmd"));
  TaskEnd end = end_of(SIGKILL, log);
  end.group = MemoryGroup{true, "/system.slice/slurmd"};
  end.memory->whose = "node's jobs";
  EXPECT_EQ(cause_of(end), EndRecord::Cause::out_of_memory);
  end.wait_status = failed;
  EXPECT_EQ(cause_of(end), EndRecord::Cause::rank_exit);
}

TEST(OutOfMemory, AProcessCannotNameItselfIntoIt) {
  const auto log = records(oom_lines("/other", 77, "x,task_memcg=" + group));
  EXPECT_EQ(cause_of(end_of(failed, log)), EndRecord::Cause::rank_exit);
  const auto kills = find_oom_kills(records(oom_lines(group, 77, ") total-vm:1\x1b[2J")));
  ASSERT_EQ(kills.size(), 1U);
  EXPECT_TRUE(is_cause_text(kills.front().name)) << kills.front().name;
  EXPECT_EQ(kills.front().bytes, (221249536ULL + 4096) * 1024);
}

TEST(Sigkill, IsOneOrTheOther) {
  EXPECT_EQ(line_of(end_of(SIGKILL)),
            "first failure: rank 5 (local 1) on node3: signal 9 (SIGKILL), 12.3 s after the start; SIGKILL came from "
            "outside and "
            "not for want of memory: scancel, a person or a program sent it");
  TaskEnd blind{.wait_status = SIGKILL, .host = "node3"};
  EXPECT_TRUE(line_of(blind).ends_with("; SIGKILL comes from outside: no memory left, or a cancelled step"));
}

TEST(NodeEvents, AreToldWithTheGpu) {
  const auto log = records({gpu_line});
  EXPECT_EQ(line_of(end_of(SIGABRT, log)),
            "first failure: rank 5 (local 1) on node3: signal 6 (SIGABRT); the kernel reports Xid 79 for GPU "
            "0000:3b:00.0 (fallen "
            "off the bus) in that second: drain node3");
  FirstFailure failure(8);
  failure.take({FailureReport::Kind::failed, 5, 1, SIGABRT, 1, "node3", {}, find_causes(end_of(SIGABRT, log))});
  EXPECT_EQ(failure.record({}).cause, EndRecord::Cause::node_unhealthy);
  EXPECT_EQ(failure.record({}).nodes_blamed, std::vector<std::string>{"node3"});
}

TEST(NodeEvents, EachKindHasItsWords) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, DBE (double bit error) ECC Error",
       "Xid 48 for GPU 0000:3b:00.0 (uncorrectable ECC error)"},
      {"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 27 LTSSM Fault Up",
       "SXid 20034 for NVSwitch 0000:c1:00.0"},
      {"mlx5_core 0000:01:00.0 ib0: Link down", "that port ib0 (mlx5_core 0000:01:00.0) went down"},
      {"EXT4-fs (sda1): Remounting filesystem read-only", "that the file system on sda1 turned read-only"},
      {"XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
       "that the file system on dm-0 turned read-only"},
      {"Memory failure: 0x1234: Killing python:8123 due to hardware memory corruption",
       "an uncorrectable error of the node's memory (ECC)"},
      {"EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "an uncorrectable error of the node's memory (ECC)"},
  };
  for (const auto& [line, words] : table) {
    const auto log = records({line});
    EXPECT_NE(line_of(end_of(failed, log)).find("; the kernel reports " + words + " in that second: "),
              std::string::npos)
        << line_of(end_of(failed, log));
  }
}

TEST(NodeEvents, OfOtherDevicesOrTimesOrOfProgramsAreNotShown) {
  for (const std::string line :
       {"NVRM: Xid (PCI:0000:5e:00): 79, pid=1, name=x, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=x, MMU Fault", "br0: port 3(port2) entered disabled state",
        "mlx5_core 0000:01:00.0 ib0: Link up", "eth0: Link down", "NVRM: Xid (PCI:\x1b[2J): 79, gone",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress",
        "EDAC MC0: 1 CE memory read error"}) {
    const auto log = records({line});
    EXPECT_EQ(line_of(end_of(failed, log)).find("kernel"), std::string::npos) << line;
  }
  const auto old = records({gpu_line}, 30 * second);
  EXPECT_EQ(line_of(end_of(failed, old)).find("kernel"), std::string::npos);
  TaskEnd behind = end_of(failed, old);
  behind.now_us = {now, now - 30 * second};
  EXPECT_NE(line_of(behind).find("in that second"), std::string::npos) << "the log has the second clock";
  const auto log = records({gpu_line}, 5 * second);
  EXPECT_NE(line_of(end_of(failed, log)).find("(fallen off the bus) 5 s before: drain node3"), std::string::npos);
}

TEST(KernelRecord, IsTheKernelsOwn) {
  const auto record = KernelRecord::parse("6,1938,4756445483,-;br0: port 3(port2) entered forwarding state");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->time_us, 4756445483U);
  EXPECT_EQ(record->text, "br0: port 3(port2) entered forwarding state");
  for (const std::string line :
       {"12,4457,13622574355,-;NVRM: Xid", " SUBSYSTEM=pci", "", ";", "6,1,x,-;a", "6,1;a", "-1,1,1,-;a"})
    EXPECT_FALSE(KernelRecord::parse(line)) << line;  // 12: a program has written it
}

TEST(KernelLog, HasWhatCameSinceItWasOpened) {
  const testing::ScratchFolder folder;
  const std::string path = std::string(folder.path()) + "/kmsg";
  std::ofstream(path) << "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, before\n";
  KernelLog log = KernelLog::open_at_end(path.c_str());
  std::ofstream(path, std::ios::app)
      << "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, after\n SUBSYSTEM=pci\n4,3,3,-;nothing to us\n";
  ASSERT_EQ(log.read().size(), 1U);
  EXPECT_EQ(log.read().front().time_us, 2U);
  EXPECT_FALSE(KernelLog::open_at_end("/no/such/log").is_open());
}

TEST(Exception, IsReadWithItsPlace) {
  const std::string own = "amldist-error 1\n7\nRuntimeError\nshape mismatch\n/home/a/train.py\n88\nforward\n";
  EXPECT_EQ(parse_exception(own), (Cause{Kind::exception, "RuntimeError: shape mismatch at train.py:88 in forward"}));
  EXPECT_EQ(parse_exception("amldist-error 1\n7\nValueError\n\ntrain.py\n3\n<module>\n"),
            (Cause{Kind::exception, "ValueError at train.py:3"}));
  EXPECT_TRUE(parse_exception(own, {7, 7}));
  EXPECT_FALSE(parse_exception(own, {8, 9})) << "of an earlier step with this number";
  EXPECT_FALSE(parse_exception(own, {0, 6})) << "from before the machine was started";
  const std::string elastic =
      R"({"message": {"message": "RuntimeError: shape \"x\" is\nwrong", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"/opt/run.py\", line 3, in g\n    f()\n  File \"/home/a/train.py\", line 88, in forward\n    raise\n", "timestamp": "1"}}})";
  EXPECT_EQ(parse_exception(elastic),
            (Cause{Kind::exception, "RuntimeError: shape \"x\" is wrong at train.py:88 in forward"}));
  EXPECT_EQ(parse_exception(R"({"message": "it \u00e4 failed"})"), (Cause{Kind::exception, "it ? failed"}));
}

TEST(Exception, IsNeverMoreThanALine) {
  const std::string escape = "\x1b[2J\x07%s%n$(reboot);\xff";
  for (const std::string& content :
       {"amldist-error 1\n7\n" + escape + "\n" + std::string(60000, '%') + "\n" + escape + "\n88\n" + escape + "\n",
        "amldist-error 1\n7\nE\n" + std::string(60000, 'a') + "\nf\n99999999999999999999\ng\n",
        R"({"message": ")" + escape + std::string(60000, 'x') + "\"}"}) {
    const auto cause = parse_exception(content);
    ASSERT_TRUE(cause);
    EXPECT_LE(cause->text.size(), longest_exception);
    EXPECT_TRUE(is_cause_text(cause->text)) << cause->text;
  }
  for (const std::string content :
       {"", "amldist-error 1\n", "amldist-error 1\nx\nE\n\n\n\n\n", "amldist-error 1\n7\nE\n", "{", "{}",
        "{\"message\": 7}", "{\"message\": \" \\n\"}", "amldist-error 1\n7\n\x01\n\x02\n\n\n\n", "{\"message\": \"a",
        "{\"message\": \"\\", "nonsense"})
    EXPECT_FALSE(parse_exception(content)) << content;
}

TEST(Exception, AboutAPeerIsNotTheFirst) {
  for (const auto& [type, text] : std::vector<std::pair<std::string, std::string>>{
           {"RuntimeError",
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:1"},
           {"torch.distributed.DistBackendError", "NCCL error in: ..."},
           {"ConnectionResetError", "[Errno 104]"},
           {"RuntimeError", "Timed out waiting for rank 3"},
           {"amldist.PeerError", "rank 2 has gone"}})
    EXPECT_TRUE(is_about_peer(type, text)) << type;
  for (const auto& [type, text] : std::vector<std::pair<std::string, std::string>>{
           {"RuntimeError", "shape mismatch"}, {"TimeoutError", "the data set did not answer"}, {"KeyError", "'rank'"}})
    EXPECT_FALSE(is_about_peer(type, text)) << type;
  const FailureReport peer{FailureReport::Kind::failed,
                           0,
                           0,
                           failed,
                           1000,
                           "node1",
                           {},
                           {{Kind::peer, "RuntimeError: Connection closed by peer"}}};
  const FailureReport own{FailureReport::Kind::failed,          2, 2, failed, 1300, "node1", {},
                          {{Kind::exception, "ValueError: no"}}};
  const FailureReport victim{FailureReport::Kind::failed, 3, 3, SIGTERM, 1400, "node1"};
  for (const auto& order : {std::vector{peer, own, victim}, std::vector{own, peer, victim}}) {
    FirstFailure failure(4);
    for (const FailureReport& each : order) failure.take(each);
    EXPECT_EQ(failure.record({}).rank, 2U);
  }
  FirstFailure failure(4);
  failure.take(peer);
  failure.take(victim);
  EXPECT_EQ(failure.record({}).rank, 0U) << "Slurm terminated rank 3 because of rank 0";
}

TEST(UserFindings, ReadBackWhatTheyWriteAndNothingElse) {
  const UserFindings full{Cause{Kind::peer, "RuntimeError: a; b"}, Cause{Kind::space, "/dev/shm is full (64 MiB)"}};
  for (const UserFindings& each : {full, UserFindings{}, UserFindings{full.exception, std::nullopt}})
    EXPECT_EQ(UserFindings::parse(each.to_string()), each);
  for (const std::string& text :
       {std::string("out_of_memory;x\nnone;\n"), std::string("exception;\x1b\nnone;\n"), std::string("exception"),
        std::string("exception;a\n"), "exception;" + std::string(1000, 'a') + "\nnone;\n", std::string()})
    EXPECT_EQ(UserFindings::parse(text), UserFindings()) << text.substr(0, 40);
}

TEST(Space, OfABusErrorAndOfAFullDisk) {
  TaskEnd end = end_of(SIGBUS);
  end.user.space = Cause{Kind::space, "/dev/shm is full (64 MiB)"};
  EXPECT_EQ(
      line_of(end),
      "first failure: rank 5 (local 1) on node3: signal 7 (SIGBUS): /dev/shm is full (64 MiB), 12.3 s after the start");
  end = end_of(failed);
  end.user = {Cause{Kind::exception, "OSError: [Errno 28] No space left on device: 'x' at train.py:3"},
              Cause{Kind::fact, "the file system of /scratch is full (1 TiB)"}};
  EXPECT_EQ(line_of(end),
            "first failure: rank 5 (local 1) on node3: exit status 1: OSError: [Errno 28] No space left on device: 'x' "
            "at train.py:3, 12.3 s "
            "after the start; the file system of /scratch is full (1 TiB)");
  end = end_of(SIGABRT);
  end.address_space = std::uint64_t{8} << 30;
  EXPECT_TRUE(line_of(end).ends_with("12.3 s after the start; its address space is limited to 8 GiB (ulimit -v)"))
      << line_of(end);
}

TEST(Bytes, AreForReaders) {
  EXPECT_EQ(describe_bytes(0), "0 bytes");
  EXPECT_EQ(describe_bytes(std::uint64_t{512} << 20), "512 MiB");
  EXPECT_EQ(describe_bytes(std::uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(describe_bytes(322122547200), "300 GiB");
}

}  // namespace
}  // namespace amldist::step::task_cause_test
