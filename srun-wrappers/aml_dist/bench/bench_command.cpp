// The command line of `aml-dist bench`.
#include <CLI/CLI.hpp>
#include <memory>

#include "aml_dist/bench/bench.hpp"
#include "aml_dist/command.hpp"

namespace amldist::tools {
namespace {

constexpr const char* bench_examples =
    "Examples:\n"
    "  srun -N2 -n8 aml-dist bench --op allreduce --min 4 --max 256M\n"
    "  aml-dist bench --ranks 2 --peer openmpi --svg bandwidth.svg    on this node\n"
    "  aml-dist bench --ranks 4 --op alltoall --type float64 --json\n"
    "  aml-dist bench --ranks 2 --peer mpich=/opt/mpich/bin/mpicc\n"
    "  srun -N4 --ntasks-per-node=4 aml-dist bench --scaling\n"
    "  srun -N1 -n16 aml-dist bench --topology\n"
    "\n"
    "Sizes and bandwidths are those of nccl-tests: the whole array, and busbw with\n"
    "its factors. Every result is checked. --scaling and --topology take the place\n"
    "of the options of one collective, such as --op and --min.\n"
    "\n"
    "Exit status: 0 measured; 1 a library failed or a result is wrong;\n"
    "others as in aml_dist(7).";

void add_bench_choices(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--op", options.op,
                  "allreduce, reduce, broadcast, allgather, reduce_scatter, alltoall, gather, scatter, "
                  "sendrecv or barrier")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--min", options.min, "smallest array: 4, 64K, 16M, 1G")->type_name("SIZE")->capture_default_str();
  command.add_option("--max", options.max, "largest array")->type_name("SIZE")->capture_default_str();
  command.add_option("--factor", options.factor, "from one size to the next")
      ->check(CLI::Range(2U, 1024U))
      ->capture_default_str();
  command.add_option("--type", options.type, "element type: float32, float16, bfloat16, float64, int32, ...")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--redop", options.redop, "sum, prod, max, min or avg")->type_name("NAME")->capture_default_str();
  command.add_option("--rounds", options.rounds, "samples of each size; the median counts")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  command.add_flag("--in-place", options.in_place, "input and output are one buffer");
  command.add_flag("--off-cache", options.off_cache, "every call takes a buffer that no cache holds");
  command.add_flag("--rewrite", options.rewrite, "inputs are written anew before every call, outside the time");
  command.add_flag("--library-memory", options.own_memory, "buffers from amldist_alloc()");
}

void add_scaling(CLI::App& command, BenchOptions& options) {
  CLI::Option* const scaling = command.add_flag("--scaling", options.scaling,
                                                "a step of training on 1, 2, 4, ... nodes (or ranks): its efficiency");
  command.add_option("--gradients", options.gradients, "with --scaling: bytes of gradients in a step")
      ->type_name("SIZE")
      ->needs(scaling)
      ->capture_default_str();
  command.add_option("--compute-ms", options.compute_ms, "with --scaling: computing in a step, on one rank")
      ->type_name("N")
      ->needs(scaling)
      ->check(CLI::Range(1.0, 60000.0))
      ->capture_default_str();
  for (const char* const of_one_collective : {"--op", "--min", "--max", "--factor", "--type", "--redop", "--rounds",
                                              "--in-place", "--off-cache", "--rewrite", "--library-memory", "--peer"})
    scaling->excludes(command.get_option(of_one_collective));
}

void add_topology(CLI::App& command, BenchOptions& options) {
  CLI::Option* const topology = command.add_flag(
      "--topology", options.topology, "how far each two ranks are from each other: latency, bandwidth, shared caches");
  for (const char* const other : {"--op", "--min", "--max", "--factor", "--type", "--redop", "--rounds", "--in-place",
                                  "--off-cache", "--rewrite", "--library-memory", "--peer", "--scaling", "--svg"})
    topology->excludes(command.get_option(other));
}

}  // namespace

Command add_bench(CLI::App& app) {
  const auto shared = std::make_shared<BenchOptions>();
  BenchOptions& options = *shared;
  CLI::App* const command = app.add_subcommand("bench", "Measure collectives, checked, beside other libraries");
  command->footer(bench_examples);
  add_bench_choices(*command, options);
  command->add_option("--ranks", options.ranks, "start this many ranks on this node")->check(CLI::Range(1, 1024));
  command
      ->add_option("--peer", options.peers,
                   "another library in the same run, interleaved: openmpi, NAME=MPICC; or, of a Python with PyTorch, "
                   "gloo, torch (libdist "
                   "through it), and on GPUs nccl, torch-cuda, each with [=PYTHON]")
      ->type_name("NAME[=PATH]");
  command->add_option("--svg", options.svg, "draw what was measured into this file too")->type_name("FILE");
  add_scaling(*command, options);
  add_topology(*command, options);
  command->add_flag("--json", options.json, "an array with an object for each size and library");
  command->add_option("--worker", options.worker)->group("");  // how this program starts its own ranks
  return {command, [shared] { return bench(*shared); }};
}

}  // namespace amldist::tools
