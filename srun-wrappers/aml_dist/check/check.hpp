// `aml-dist check`: whether this node, or all nodes of a step, can really do RDMA.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace amldist::tools {

struct CheckOptions {
  std::string policy;             ///< --policy require|prefer|off; empty: from the SKU, else prefer
  std::string sku;                ///< --sku NAME
  std::string sku_table;          ///< --sku-table FILE
  std::string sysfs_root;         ///< --sysfs-root DIR instead of /sys
  std::string dev_root;           ///< --dev-root DIR instead of /dev
  std::string baseline;           ///< --baseline FILE: counters over time
  std::string site_file;          ///< --site-file FILE: names the site's own checks; empty: as in plugstack.conf
  std::string kernel_log;         ///< --kernel-log FILE instead of /dev/kmsg
  std::uint32_t wait_s = 0;       ///< --wait SECONDS: for ports that are coming up
  std::uint32_t timeout_s = 20;   ///< --timeout SECONDS: for everything that may hang
  std::string format;             ///< --format text|json|openmetrics|nodeverdict; empty: text, or json with --json
  std::string unknown = "warn";   ///< --unknown warn|fail: the effect of an unknown check under `require`
  std::string health = "prefer";  ///< --health require|prefer|off: the weight of gpu.* and host.*
  bool list_sku = false;          ///< --list-sku: print the table and exit
  bool json = false;
  std::uint32_t port = 0;          ///< --port N: where the nodes of a step meet; 0: reserved, or from job and step
  bool pairs = false;              ///< --pairs: neighbours at every power of two
  bool bench = false;              ///< --bench: measure bandwidth and latency between the nodes, or of one to itself
  std::string record;              ///< --record FILE: what was slow in earlier measurements
  bool exclude = false;            ///< --exclude: print the nodes that are slow or broken, and nothing else
  bool bandwidth = false;          ///< --bandwidth: measure, and expect 90 % of the rate
  bool verbose = false;            ///< --verbose: progress of a step's rounds
  bool quiet = false;              ///< --quiet: only warnings and failures
  bool no_verbs = false;           ///< --no-verbs: sysfs and limits only
  bool task_part = false;          ///< --task-part: for the plugin, as lines
  std::string launch_pairs;        ///< with --task-part: the writes between the nodes
  std::uint32_t launch_node = 0;   ///< this node's number in the step
  std::uint32_t launch_nodes = 1;  ///< how many there are
  std::string launch_names;        ///< of this node and those paired with it, "0=node1,1=node2"
  bool before_program = false;     ///< --before-program: for aml-run, a line for each failed check
};

/// Adds the subcommand with its options to the program.
CLI::App* add_check(CLI::App& app, CheckOptions& options);

/// Prints to standard output; returns an ExitStatus. Errors go to standard error, one line.
int check(const CheckOptions& options);

}  // namespace amldist::tools
