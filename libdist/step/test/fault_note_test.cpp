// What a fatal signal leaves behind, in a process of its own.
#include "step/cause/fault_note.hpp"

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace amldist::step::fault_note_test {
namespace {

/// A stack for signals as Python's faulthandler makes it on older systems, with nothing below.
void take_small_signal_stack() {
  constexpr std::size_t page = 4096;
  constexpr std::size_t usual = 8192;
#ifdef AT_MINSIGSTKSZ
  const std::size_t for_kernel = ::getauxval(AT_MINSIGSTKSZ);
#else
  const std::size_t for_kernel = MINSIGSTKSZ;
#endif
  const std::size_t size = (usual + for_kernel + page - 1) / page * page;
  void* const memory = ::mmap(nullptr, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::mprotect(memory, page, PROT_NONE);
  stack_t stack = {};
  stack.ss_sp = static_cast<char*>(memory) + page;
  stack.ss_size = size;
  ::sigaltstack(&stack, nullptr);
}

TEST(FaultNote, NeedsLittleOfAStackForSignals) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's functions need more of it";
#endif
  const std::string step = "fault-note-" + std::to_string(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("AMLDIST_STAMP", (step + " x").c_str(), 1);
    ::setenv("SLURM_PROCID", "3", 1);
    take_small_signal_stack();
    if (!note_faults(0, -1)) ::_exit(1);
    ::close(STDERR_FILENO);
    __assert_fail("1 == 2", "train.cpp", 7, "step");
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
  const std::string folder = "/dev/shm/aml-dist-" + std::to_string(::geteuid()) + "/" + step;
  std::ifstream file(folder + "/3.error");
  const std::string note{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(note.find("1 == 2"), std::string::npos) << note;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace amldist::step::fault_note_test
