// Prints a generated program for the runners of tests/soak/generated, which play it with a real library:
//   generated_program SEED FAULT RANKS      the first program from SEED on with so many ranks and a fault of this kind
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "generated_programs.hpp"
#include "trace/diagnosis/call_words.hpp"

namespace amldist::trace::testing {
namespace {

std::optional<Fault> fault_called(std::string_view name) {
  for (auto number = static_cast<int>(Fault::none); number <= static_cast<int>(Fault::busy); ++number) {
    if (name_of(static_cast<Fault>(number)) == name) return static_cast<Fault>(number);
  }
  return std::nullopt;
}

void print(const Program& program, std::uint64_t seed) {
  std::printf("seed %llu\nfault %s %u %zu\n", static_cast<unsigned long long>(seed), name_of(program.fault),
              program.culprit, program.at);
  for (const auto& group : program.groups) {
    std::printf("group");
    for (const std::uint32_t rank : group) std::printf(" %u", rank);
    std::printf("\n");
  }
  for (std::uint32_t rank = 0; rank < program.ranks; ++rank) {
    for (const ModelCall& call : program.calls[rank]) {
      std::printf("call %u %s %zu %llu %d\n", rank, std::string(trace::name_of(call.operation)).c_str(), call.group,
                  static_cast<unsigned long long>(call.bytes), call.root);
    }
  }
}

int run(int count, char** words) {
  constexpr std::uint64_t most_tried = 100000;
  const auto fault = count == 4 ? fault_called(words[2]) : std::nullopt;
  if (!fault) return 2;
  const std::uint64_t first = std::strtoull(words[1], nullptr, 10);
  const std::uint64_t ranks = std::strtoull(words[3], nullptr, 10);
  for (std::uint64_t seed = first; seed < first + most_tried; ++seed) {
    const Program program = ProgramGenerator(seed).make(*fault);
    if (program.ranks != ranks || program.fault != *fault || program.at >= program.calls[program.culprit].size())
      continue;
    print(program, seed);
    return 0;
  }
  return 1;
}

}  // namespace
}  // namespace amldist::trace::testing

int main(int count, char** words) { return amldist::trace::testing::run(count, words); }
