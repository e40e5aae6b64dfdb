#include "fabric/gpu/nccl_speed.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <csignal>
#include <vector>

#include "base/os/child_process.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "fabric/facts/attribute.hpp"
#include "fabric/facts/vendor_library.hpp"
#include "fabric/gpu/cuda_memory.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::size_t array_bytes = std::size_t{256} << 20;  // of each GPU
constexpr int warming_calls = 3;
constexpr int measured_calls = 10;
constexpr int most_gpus_measured = 32;
constexpr double unit = 1000;  // the wire format counts in MB/s

/// From nccl.h, whose ABI is stable in major version 2.
struct NcclFunctions {
  using Comm = struct NcclCommunicator*;
  int (*init_all)(Comm*, int, const int*) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int operation, Comm, void* stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  static constexpr int float32 = 7;
  static constexpr int sum = 0;
};

Result<NcclFunctions> load_functions(const std::string& named) {
  static constexpr std::array names = {"libnccl.so.2"};
  VendorLibrary library(named, names);
  NcclFunctions out;
  library.find(out.init_all, "ncclCommInitAll");
  library.find(out.all_reduce, "ncclAllReduce");
  library.find(out.group_start, "ncclGroupStart");
  library.find(out.group_end, "ncclGroupEnd");
  library.find(out.error_string, "ncclGetErrorString");
  const auto status = library.is_whole();
  return status ? Result(out) : Result<NcclFunctions>(status.error());
}

/// One GPU's part. Nothing is freed: the process ends.
struct Part {
  void* context = nullptr;
  void* stream = nullptr;
  void* memory = nullptr;
};

class AllReduce {
 public:
  AllReduce(const CudaApi& cuda, const NcclFunctions& nccl) : cuda_(cuda), nccl_(nccl) {}

  /// Prepares the GPU; returns an empty text on success.
  std::string prepare(int gpus) {
    std::vector<int> devices;
    for (int device = 0; device < gpus; ++device) {
      Part part;
      int got = cuda_.retain_context(&part.context, device);
      if (got == 0) got = cuda_.set_context(part.context);
      if (got == 0) got = cuda_.stream_create(&part.stream, 0);
      if (got == 0) got = cuda_.allocate(&part.memory, array_bytes);
      if (got != 0) return concat({"GPU ", std::to_string(device), ": ", cuda_.describe(got)});
      parts_.push_back(part);
      devices.push_back(device);
    }
    communicators_.resize(devices.size());
    return said("ncclCommInitAll", nccl_.init_all(communicators_.data(), gpus, devices.data()));
  }

  std::string run(int calls) {
    for (int call = 0; call < calls; ++call) {
      if (auto problem = begin(); !problem.empty()) return problem;
    }
    for (const Part& part : parts_) {
      static_cast<void>(cuda_.set_context(part.context));
      if (const int got = cuda_.stream_wait(part.stream); got != 0) return cuda_.describe(got);
    }
    return {};
  }

 private:
  std::string begin() {
    int got = nccl_.group_start();
    for (std::size_t i = 0; got == 0 && i < parts_.size(); ++i) {
      static_cast<void>(cuda_.set_context(parts_[i].context));
      void* const memory = parts_[i].memory;
      got = nccl_.all_reduce(memory, memory, array_bytes / sizeof(float), NcclFunctions::float32, NcclFunctions::sum,
                             communicators_[i], parts_[i].stream);
    }
    const int ended = nccl_.group_end();
    return said("ncclAllReduce", got != 0 ? got : ended);
  }

  [[nodiscard]] std::string said(std::string_view what, int got) const {
    return got == 0 ? std::string() : concat({what, ": ", nccl_.error_string(got)});
  }

  CudaApi cuda_;
  NcclFunctions nccl_;
  std::vector<Part> parts_;
  std::vector<NcclFunctions::Comm> communicators_;
};

/// In the child: "skip REASON", "fail REASON" or "done GPUS MEGABYTES".
std::string measured(const std::string& cuda_library, const std::string& nccl_library) {
  const auto cuda = load_cuda(cuda_library);
  if (!cuda) return concat({"skip ", cuda.error().message});
  int gpus = 0;
  if (cuda->device_count(&gpus) != 0 || gpus < 2) return "skip fewer than two GPUs";
  if (gpus > most_gpus_measured) gpus = most_gpus_measured;
  const auto nccl = load_functions(nccl_library);
  if (!nccl) return concat({"skip ", nccl.error().message});
  AllReduce all_reduce(*cuda, *nccl);
  std::string problem = all_reduce.prepare(gpus);
  if (problem.empty()) problem = all_reduce.run(warming_calls);
  const auto began = Clock::now();
  if (problem.empty()) problem = all_reduce.run(measured_calls);
  const std::chrono::duration<double> taken = Clock::now() - began;
  if (!problem.empty()) return concat({"fail ", problem});
  // nccl-tests' bus bandwidth of an allreduce: 2 (n - 1) / n of the array passes each link.
  const double share = 2.0 * (gpus - 1) / gpus;
  const double bytes = share * static_cast<double>(array_bytes) * measured_calls;
  return concat({"done ", std::to_string(gpus), " ", std::to_string(std::llround(bytes / taken.count() / 1e6))});
}

NcclSpeed failure_of(std::string problem) { return {std::move(problem), true, 0, 0}; }

NcclSpeed speed_from(const std::string& text) {
  if (text.starts_with("skip ")) return {text.substr(5), false, 0, 0};
  if (text.starts_with("fail ")) return failure_of(text.substr(5));
  const auto words = text::split(text, ' ');
  const auto gpus = words.size() == 3 ? text::to_number(words[1], 1024) : std::nullopt;
  const auto speed = words.size() == 3 ? text::to_number(words[2], 1'000'000'000) : std::nullopt;
  if (!gpus || !speed) return failure_of("the process that measured died");
  return {"", false, static_cast<std::uint32_t>(*gpus), static_cast<double>(*speed) / unit};
}

}  // namespace

NcclSpeed measure_nccl(const std::string& cuda, const std::string& nccl, std::chrono::milliseconds timeout) {
  constexpr std::size_t longest = 4096;
  const auto deadline = Clock::now() + timeout;
  auto pipe = Pipe::make();
  if (!pipe) return failure_of(pipe.error().message);
  auto child = ChildProcess::fork([&] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the parent is killed, this must end too
    amldist::write_all(pipe->writing.get(), measured(cuda, nccl));
    ::_exit(0);  // without the libraries' destructors, which may wait for each other
  });
  if (!child) return failure_of(child.error().message);
  pipe->writing = FileDescriptor();
  const auto text = read_until_end(pipe->reading.get(), deadline, longest);
  if (text && child->wait_until(deadline)) return speed_from(*text);
  child->kill(SIGKILL);
  return failure_of(concat({"no answer in ", std::to_string(timeout.count() / 1000), " s"}));
}

Check judge_nccl(const NcclSpeed& speed, std::optional<std::uint32_t> least) {
  const std::string remedy = "see gpu.nvlink, gpu.fabric and gpu.throttle";
  if (speed.failed) return {"gpu.nccl", Verdict::fail, concat({"allreduce: ", printable(speed.problem, 200)}), remedy};
  if (!speed.problem.empty()) return {"gpu.nccl", Verdict::skip, printable(speed.problem, 200), ""};
  const std::string floor = least ? concat({", expected ", std::to_string(*least)}) : ", no floor is known";
  const std::string evidence = concat({"allreduce over ", std::to_string(speed.gpus), " GPUs: bus bandwidth ",
                                       std::to_string(std::llround(speed.gigabytes)), " GB/s", floor});
  if (least && speed.gigabytes < *least) return {"gpu.nccl", Verdict::fail, evidence, remedy};
  return {"gpu.nccl", Verdict::pass, evidence, ""};
}

}  // namespace amldist::fabric
