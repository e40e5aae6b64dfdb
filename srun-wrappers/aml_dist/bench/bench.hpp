// `aml-dist bench`: how fast collectives are, through the public C interface, checked, beside other libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace amldist::tools {

struct BenchOptions {
  std::string op = "allreduce";
  std::string min = "4";
  std::string max = "64M";
  std::string type = "float32";
  std::string redop = "sum";
  unsigned factor = 4;  ///< from one size to the next
  bool in_place = false;
  bool off_cache = false;
  bool rewrite = false;
  bool own_memory = false;
  unsigned rounds = 5;
  int ranks = 0;  ///< start this many on this node; 0: this process is a rank of a step, or alone
  std::vector<std::string>
      peers;  ///< "openmpi", NAME=PATH of an mpicc, "gloo" or "torch", or these with =PATH of a python3
  bool scaling = false;
  std::string gradients = "100M";  ///< --scaling: bytes of gradients in a step
  double compute_ms = 200;         ///< --scaling: computing in a step of one rank
  bool topology = false;           ///< each pair of ranks instead of a collective
  bool json = false;
  std::string svg;
  std::string worker;  ///< internal: serve requests on this socket
};

/// Prints to standard output (of rank 0); returns an ExitStatus. Errors go to standard error, one line.
int bench(const BenchOptions& options);

}  // namespace amldist::tools
