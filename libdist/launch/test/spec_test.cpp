#include "launch/option/spec.hpp"

#include <csignal>

#include "support.hpp"

namespace amldist::launch {
namespace {

using testing::expect_sentence;

TEST(Spec, ReadsTheKeysOfTrace) {
  EXPECT_FALSE(parse_spec("mpi")->trace);
  EXPECT_EQ(parse_spec("mpi,trace")->trace, true);
  EXPECT_EQ(parse_spec("mpi,trace=on")->trace, true);
  EXPECT_EQ(parse_spec("mpi,trace=off")->trace, false);
  const auto spec = parse_spec("pytorch,hang=60,hang_action=report,hang_busy=20");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->hang, 60U);
  EXPECT_EQ(spec->hang_action, HangAction::report);
  EXPECT_EQ(spec->hang_busy, 20U);
}

TEST(Spec, ReadsWhenAndHowToStop) {
  EXPECT_FALSE(parse_spec("mpi")->stop);
  EXPECT_TRUE(parse_spec("mpi,order=topology")->along_topology);
  EXPECT_EQ(parse_spec("jax,stop=60")->stop, (StopWish{60, 0}));
  EXPECT_EQ(parse_spec("ray,stop=1@USR1")->stop, (StopWish{1, SIGUSR1}));
  EXPECT_EQ(parse_spec("pytorch,stop=604800@SIGTERM,verbose")->stop, (StopWish{604800, SIGTERM}));
}

TEST(Spec, KindAloneMeansPerProcess) {
  for (const auto& [text, kind] : std::initializer_list<std::pair<const char*, Kind>>{{"pytorch", Kind::pytorch},
                                                                                      {"tensorflow", Kind::tensorflow},
                                                                                      {"mpi", Kind::mpi},
                                                                                      {"jax", Kind::jax},
                                                                                      {"none", Kind::none}}) {
    const auto spec = parse_spec(text);
    ASSERT_TRUE(spec) << text;
    Spec expected;
    expected.kind = kind;
    EXPECT_EQ(*spec, expected) << text;
  }
}

TEST(Spec, RayIsPerNodeAlways) {
  for (const char* const text : {"ray", "ray,launch=per-node", "ray,slurm_env=keep", "ray,master_port=6379"}) {
    const auto spec = parse_spec(text);
    ASSERT_TRUE(spec) << text;
    EXPECT_EQ(spec->kind, Kind::ray);
    EXPECT_EQ(spec->launch, Launch::per_node) << text;
  }
}

TEST(Spec, ReadsEveryKey) {
  const auto spec = parse_spec(
      "pytorch,launch=per-node,slurm_env=keep,nproc_per_node=4,backend=Nccl,master_addr=name,master_port=6105,"
      "rdma=prefer,verbose,node_count=2,process_count=2,process_count_per_node=1");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->launch, Launch::per_node);
  EXPECT_EQ(spec->slurm_env, SlurmEnv::keep);
  EXPECT_EQ(spec->nproc_per_node, (ProcessesPerNode{ProcessesPerNode::Source::number, 4}));
  EXPECT_EQ(spec->backend, "nccl");
  EXPECT_EQ(spec->master_addr.form, MasterAddress::Form::name);
  EXPECT_EQ(spec->master_port, 6105);
  EXPECT_EQ(spec->rdma, RdmaPolicy::prefer);
  EXPECT_TRUE(spec->verbose);
  EXPECT_EQ(spec->counts.nodes, 2U);
  EXPECT_EQ(spec->counts.processes, 2U);
  EXPECT_EQ(spec->counts.processes_per_node, 1U);
}

TEST(Spec, ReadsTheRolesOfTensorflow) {
  const auto spec = parse_spec("tensorflow,worker_count=2,parameter_server_count=1,chief_count=1,evaluator_count=0");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->counts.workers, 2U);
  EXPECT_EQ(spec->counts.parameter_servers, 1U);
  EXPECT_EQ(spec->counts.chiefs, 1U);
  EXPECT_EQ(spec->counts.evaluators, 0U);
}

TEST(Spec, MasterAddrMayBeAHost) {
  for (const char* const host : {"10.0.0.1", "node1", "rack0-b1.cluster.local", "c_1"}) {
    const auto spec = parse_spec(std::string("mpi,master_addr=") + host);
    ASSERT_TRUE(spec) << host;
    EXPECT_EQ(spec->master_addr, (MasterAddress{MasterAddress::Form::host, host}));
  }
}

TEST(Spec, NprocPerNodeTakesTorchrunsWords) {
  using Source = ProcessesPerNode::Source;
  for (const auto& [word, source] :
       {std::pair("auto", Source::automatic), std::pair("gpu", Source::gpu), std::pair("cpu", Source::cpu)}) {
    const auto spec = parse_spec(std::string("pytorch,launch=per-node,nproc_per_node=") + word);
    ASSERT_TRUE(spec) << word;
    EXPECT_EQ(spec->nproc_per_node.source, source);
  }
}

struct BadOption {
  std::string text;
  std::string says;  ///< what the sentence must contain
};

std::vector<BadOption> bad_options() {
  return {
      {"", "is empty"},
      {"pytorhc", "did you mean 'pytorch'?"},
      {"PYTORCH", "did you mean 'pytorch'?"},
      {"horovod", "use one of pytorch, tensorflow, mpi, jax, ray, none, help"},
      {" pytorch", "unknown kind ' pytorch'"},
      {",launch=per-node", "the kind is missing"},
      {"pytorch,", "a key is missing"},
      {"pytorch,,verbose", "a key is missing"},
      {"pytorch,=3", "a key is missing"},
      {"pytorch, verbose", "a blank stands in"},
      {"mpi,process_count_per_instance=2,process_count_per_node=2", "two spellings of one key"},
      {"pytorch,lunch=per-node", "did you mean 'launch'?"},
      {"pytorch,launch", "needs a value"},
      {"pytorch,launch=", "needs a value"},
      {"pytorch,launch=pernode", "did you mean 'per-node'?"},
      {"pytorch,launch=per-node,launch=per-node", "given twice"},
      {"mpi,process_count_per_node=2,process_count_per_instance=2", "two spellings of one key"},
      {"pytorch,verbose=yes", "takes no value"},
      {"pytorch,slurm_env=show", "use one of hide, keep"},
      {"pytorch,backend=nclc", "did you mean 'nccl'?"},
      {"mpi,backend=nccl", "does not apply to kind 'mpi'"},
      {"pytorch,worker_count=2", "does not apply to kind 'pytorch'"},
      {"jax,nproc_per_node=2", "does not apply to kind 'jax'"},
      {"jax,launch=per-node", "is not supported for kind 'jax'"},
      {"tensorflow,launch=per-node", "is not supported for kind 'tensorflow'"},
      {"ray,launch=per-process", "one task on each node starts Ray there"},
      {"ray,nproc_per_node=2", "does not apply to kind 'ray'"},
      {"pytorch,nproc_per_node=2", "needs launch=per-node"},
      {"pytorch,launch=per-node,nproc_per_node=0", "from 1 to 65536"},
      {"pytorch,master_port=0", "from 1 to 65535"},
      {"pytorch,master_port=65536", "from 1 to 65535"},
      {"pytorch,master_port=-1", "from 1 to 65535"},
      {"pytorch,master_port=0x50", "from 1 to 65535"},
      {"pytorch,master_addr=fe80::1", "no IPv6"},
      {"pytorch,master_addr=-rf", "host name"},
      {"pytorch,master_addr=a b", "host name"},
      {"pytorch,master_addr=10.1.2.300", "IPv4 address"},
      {"pytorch,master_addr=10.1.2", "IPv4 address"},
      {"pytorch,process_count=0", "from 1"},
      {"pytorch,process_count=99999999999999999999", "from 1"},
      {"tensorflow,chief_count=2", "from 0 to 1"},
      {"tensorflow,evaluator_count=2", "from 0 to 1"},
      {"mpi,trace=yes", "use one of on, off"},
      {"mpi,hang", "needs a value"},
      {"mpi,hang=0", "whole number from 1"},
      {"mpi,hang=604801", "whole number from 1 to 604800"},
      {"mpi,hang=60,trace=off", "needs trace"},
      {"mpi,hang_action=end", "needs hang=SECONDS"},
      {"mpi,hang_busy=2", "hang_busy= needs hang=SECONDS"},
      {"mpi,hang=60,hang_busy=0", "hang_busy"},
      {"mpi,hang=60,hang_action=kill", "use one of report, end"},
      {"mpi,order=switch", "use one of topology"},
      {"mpi,stop", "write stop=SECONDS[@SIGNAL]"},
      {"mpi,stop=0", "whole number from 1 to 604800"},
      {"mpi,stop=x", "whole number from 1"},
      {"mpi,stop=@USR1", "whole number from 1"},
      {"mpi,stop=60@", "use one of USR1, USR2, TERM"},
      {"mpi,stop=60@SIGFOO", "use one of USR1, USR2, TERM"},
      {"mpi,stop=60@KILL", "use one of USR1"},
      {"mpi,stop=60@usr1", "use one of USR1"},
      {"mpi,stop=60@USR1@USR2", "use one of USR1"},
      {"mpi,stop=60,stop=70", "given twice"},
      {"mpi,trace,trace=on", "given twice"},
      {"pytorch,rdma=maybe", "use one of require, prefer, off"},
      {"pytorch,health=sick", "use one of require, prefer, off"},
      {"pytorch,rdma_pairs=both", "use one of off, ring, log, all"},
      {"none,verbose", "takes no keys"},
      {"pytorch,%s%n%n%n=1", "unknown key '%s%n%n%n'"},
      {"py\ntorch\x1b[2J", "unknown kind 'py\\x0atorch\\x1b[2J'"},
      {std::string("pytorch\0,verbose", 16), "unknown kind"},
      {std::string(100 * 1024, 'a'), "102400 bytes long"},
      {"pytorch," + std::string(4000, '='), "a key is missing"},
      {"pytorch,master_addr=" + std::string(254, 'a'), "host name"},
  };
}

TEST(Spec, RefusesBadOptionsWithOneSentenceThatNamesTheWrongPiece) {
  for (const BadOption& bad : bad_options()) {
    const auto spec = parse_spec(bad.text);
    ASSERT_FALSE(spec) << bad.text.substr(0, 80);
    expect_sentence(spec.error().message);
    EXPECT_NE(spec.error().message.find(bad.says), std::string::npos) << bad.says << " not in " << spec.error().message;
  }
}

TEST(Spec, EveryPrefixOfAGoodOptionIsReadOrRefused) {
  const std::string text = "tensorflow,worker_count=2,master_addr=10.0.0.1,master_port=2222,rdma=off,verbose";
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const auto spec = parse_spec(text.substr(0, length));
    if (!spec) expect_sentence(spec.error().message);
  }
}

TEST(Spec, HelpNamesEveryKeyAndFitsATerminal) {
  const std::string help = option_help();
  for (const char* const word : {"pytorch",
                                 "tensorflow",
                                 "mpi",
                                 "jax",
                                 "ray",
                                 "none",
                                 "launch=",
                                 "slurm_env=",
                                 "nproc_per_node=",
                                 "backend=",
                                 "master_addr=",
                                 "master_port=",
                                 "rdma=",
                                 "rdma_pairs=",
                                 "health=",
                                 "verbose",
                                 "node_count=",
                                 "process_count=",
                                 "process_count_per_node=",
                                 "process_count_per_instance=",
                                 "worker_count=",
                                 "parameter_server_count=",
                                 "chief_count=",
                                 "evaluator_count="}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
  std::size_t start = 0;
  for (std::size_t end = 0; (end = help.find('\n', start)) != std::string::npos; start = end + 1) {
    EXPECT_LE(end - start, 120U) << help.substr(start, end - start);
  }
  EXPECT_EQ(start, help.size()) << "ends in a newline";
}

TEST(Spec, HelpIsAskedForByItsFirstWord) {
  EXPECT_TRUE(is_help("help"));
  EXPECT_TRUE(is_help("help,pytorch"));
  EXPECT_FALSE(is_help("helper"));
  EXPECT_FALSE(is_help("pytorch,help"));
  EXPECT_FALSE(is_help(""));
}

}  // namespace
}  // namespace amldist::launch
