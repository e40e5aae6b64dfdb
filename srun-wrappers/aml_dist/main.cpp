// aml-dist: the tools around the plugin, one subcommand each.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "aml_dist/bench.hpp"
#include "aml_dist/exit_status.hpp"
#include "aml_dist/explain.hpp"
#include "aml_dist/trace.hpp"

namespace {

using amldist::tools::BenchOptions;
using amldist::tools::ExplainOptions;
using amldist::tools::TraceOptions;

constexpr const char* examples =
    "Examples:\n"
    "  aml-dist explain --aml-dist=pytorch --nodelist 'node[1-4]' --tasks-per-node 2\n"
    "  aml-dist explain --aml-dist=pytorch --nodelist 'node[1-2]' --tasks-per-node 4 --task 5\n"
    "  aml-dist explain --aml-dist=pytorch --hostfile hosts.txt --json\n"
    "  aml-dist explain --aml-dist=mpi --nodelist 'node1 : node[2-3]' --tasks-per-node '1 : 4' --svg layout.svg\n"
    "  srun -N2 --aml-dist=pytorch aml-dist explain       (the running step, as each of its tasks sees it)\n\n"
    "Components of a heterogeneous step are separated by ' : '; one value counts for all of them.\n"
    "Exit status: 0 fine, 1 the layout is refused, 2 asked wrongly.";

CLI::App* add_explain(CLI::App& app, ExplainOptions& options) {
  CLI::App* const command = app.add_subcommand("explain", "Show the environment that each task of a step would get");
  command->footer(examples);
  auto& layout = options.layout;
  command->add_option("--aml-dist", options.option, "The option as srun takes it: KIND[,KEY=VALUE]...");
  command->add_option("--nodelist", layout.nodelist, "Nodes of the step, such as 'node[1-4]'");
  command->add_option("--tasks-per-node", layout.tasks_per_node, "Tasks of each node: 2, or '2(x3),1'");
  command->add_option("--distribution,-m", layout.distribution, "block, cyclic or plane=N (default: Slurm's)");
  command->add_option("--mapping", layout.mapping, "Process mapping: '(vector,(0,4,2))'");
  command->add_option("--hostfile", layout.hostfile, "File with the host of each rank");
  command->add_option("--task", options.task, "Only this rank, as export lines");
  command->add_option("--gpus-per-node", options.gpus_per_node, "GPUs that the tasks of a node see")
      ->check(CLI::Range(0U, 1024U));
  command->add_option("--cluster", options.cluster, "Name of the cluster, part of the port's hash");
  command->add_option("--job", options.job, "Job id")->capture_default_str();
  command->add_option("--step", options.step, "Step id")->capture_default_str();
  command->add_option("--restart", options.restart, "How often the job was requeued")->capture_default_str();
  command->add_option("--port-range", options.port_range, "Ports to choose from: LO-HI")->capture_default_str();
  command->add_option("--svg", options.svg, "Draw the layout into this file too")->type_name("FILE");
  command->add_flag("--json", options.json, "An array with rank, local_rank, node_rank, host and env of each task");
  return command;
}

constexpr const char* trace_examples =
    "Examples:\n"
    "  aml-dist trace                          (the steps that left recorders on this node)\n"
    "  aml-dist trace 1234.0                   (who waits for whom in this step, running or dead)\n"
    "  aml-dist trace /scratch/traces/1234.0 --svg timeline.svg\n\n"
    "Every program that uses libamldist records its calls, by default in /dev/shm/aml-dist-UID/JOBID.STEP of its "
    "node;\n"
    "AMLDIST_TRACE_DIR names another folder, 'off' switches recording off. A step that ends well leaves nothing.\n"
    "Exit status: 0 read, whatever it says; 1 nothing to read; 2 asked wrongly.";

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* const command = app.add_subcommand("trace", "Say which rank of a step is behind, and on what");
  command->footer(trace_examples);
  command->add_option("step", options.step, "JOBID.STEP, JOBID, or a folder with recorders")
      ->type_name("DIR|JOBID.STEP");
  command->add_option("--last", options.last, "Calls of each rank in JSON and picture")
      ->check(CLI::Range(1U, 65536U))
      ->capture_default_str();
  command->add_option("--svg", options.svg, "Draw the timeline into this file too")->type_name("FILE");
  command->add_flag("--json", options.json, "An object with stalls, recorders and their calls");
  return command;
}

constexpr const char* bench_examples =
    "Examples:\n"
    "  srun -N2 -n8 aml-dist bench --op allreduce --min 4 --max 256M\n"
    "  aml-dist bench --ranks 2 --peer openmpi --svg bandwidth.svg      (starts its own ranks on this node)\n"
    "  aml-dist bench --ranks 4 --op alltoall --type float64 --json\n"
    "  aml-dist bench --ranks 2 --peer mpich=/opt/mpich/bin/mpicc\n"
    "  srun -N4 --ntasks-per-node=4 aml-dist bench --scaling   (twice the nodes, half the time?)\n\n"
    "Sizes and bandwidths are those of nccl-tests: the whole array, and busbw with its factors. Every result is "
    "checked.\n"
    "Exit status: 0 measured, 1 a library failed or a result is wrong, 2 asked wrongly.";

void add_bench_choices(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--op", options.op,
                  "allreduce, reduce, broadcast, allgather, reduce_scatter, alltoall, gather, scatter, "
                  "sendrecv or barrier")
      ->capture_default_str();
  command.add_option("--min", options.min, "Smallest array: 4, 64K, 16M, 1G")->capture_default_str();
  command.add_option("--max", options.max, "Largest array")->capture_default_str();
  command.add_option("--factor", options.factor, "From one size to the next")
      ->check(CLI::Range(2U, 1024U))
      ->capture_default_str();
  command.add_option("--type", options.type, "Element type: float32, float16, bfloat16, float64, int32, ...")
      ->capture_default_str();
  command.add_option("--redop", options.redop, "sum, prod, max, min or avg")->capture_default_str();
  command.add_option("--rounds", options.rounds, "Samples of each size; the median counts")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  command.add_flag("--in-place", options.in_place, "Input and output are one buffer");
  command.add_flag("--off-cache", options.off_cache, "Every call takes a buffer that no cache holds");
  command.add_flag("--rewrite", options.rewrite, "Inputs are written anew before every call, outside the time");
  command.add_flag("--library-memory", options.library_memory, "Buffers from amldist_alloc()");
}

CLI::App* add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* const command = app.add_subcommand("bench", "Measure collectives, checked, beside other libraries");
  command->footer(bench_examples);
  add_bench_choices(*command, options);
  command->add_option("--ranks", options.ranks, "Start so many ranks on this node")->check(CLI::Range(1, 1024));
  command->add_option("--peer", options.peers, "Another library in the same run, interleaved: openmpi, or NAME=MPICC")
      ->type_name("NAME[=MPICC]");
  command->add_flag("--scaling", options.scaling,
                    "A step of training on 1, 2, 4, ... nodes (or ranks): its efficiency");
  command->add_option("--gradients", options.gradients, "With --scaling: bytes of gradients in a step")
      ->capture_default_str();
  command->add_option("--compute-ms", options.compute_ms, "With --scaling: computing in a step, on one rank")
      ->check(CLI::Range(1.0, 60000.0))
      ->capture_default_str();
  command->add_option("--svg", options.svg, "Draw the bandwidths into this file too")->type_name("FILE");
  command->add_flag("--json", options.json, "An array with an object for each size and library");
  command->add_option("--worker", options.worker)->group("");  // how this program starts its own ranks
  return command;
}

int run(int argc, char** argv) {
  CLI::App app("aml-dist: see what --aml-dist gives the tasks of a Slurm step");
  app.set_version_flag("--version", std::string("aml-dist ") + AMLDIST_VERSION);
  app.require_subcommand(1);
  ExplainOptions explain;
  const CLI::App* const explain_command = add_explain(app, explain);
  TraceOptions trace;
  const CLI::App* const trace_command = add_trace(app, trace);
  BenchOptions bench;
  const CLI::App* const bench_command = add_bench(app, bench);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "aml-dist: %s (see aml-dist --help)\n", error.what());
    return amldist::tools::exit_usage;
  }
  if (explain_command->parsed()) return amldist::tools::explain(explain);
  if (bench_command->parsed()) return amldist::tools::bench(bench);
  if (trace_command->parsed()) return amldist::tools::trace(trace);
  return amldist::tools::exit_usage;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "aml-dist: internal error: %s\n", problem.what());
    return amldist::tools::exit_failed;
  }
}
