// Reads selections, one in a line, and says which of the devices in its arguments (each with the ports 1 and 2) NCCL
// would take: "1100... 1100...", for the current grammar and for the older one. test_corpus.py compares it with another
// reading.
#include <cstdio>
#include <iostream>
#include <string>

#include "fabric/facts/selection.hpp"

int main(int argc, char** argv) {
  using amldist::fabric::NcclSelection;
  for (std::string line; std::getline(std::cin, line);) {
    for (const auto grammar : {NcclSelection::Grammar::current, NcclSelection::Grammar::before_2_30}) {
      const auto selection = NcclSelection::parse(line, grammar);
      for (int i = 1; i < argc; ++i) {
        for (const std::uint32_t port : {1U, 2U}) std::putchar(selection.takes(argv[i], port) ? '1' : '0');
      }
      std::putchar(grammar == NcclSelection::Grammar::current ? ' ' : '\n');
    }
  }
  return 0;
}
