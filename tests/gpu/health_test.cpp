// The reader of NVML, memory of a GPU as RDMA sees it, and NCCL's bandwidth, on the real GPUs of this machine.
//
//   health_test
//
// Exit status 77: no GPU.
#include <cstdio>
#include <string>
#include <vector>

#include "fabric/checks/gpu_checks.hpp"
#include "fabric/gpu/cuda_memory.hpp"
#include "fabric/gpu/gpu_reader.hpp"
#include "fabric/gpu/nccl_speed.hpp"

namespace {

using namespace amldist;
using namespace amldist::fabric;
using namespace std::chrono_literals;

int failures = 0;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  std::printf("gpu: FAILED: %s\n", what.c_str());
}

void the_driver_tells_about_each_gpu(const fabric::GpuStates& states) {
  expect(states.problem.empty(), "the driver answers: " + states.problem);
  expect(states.driver.find('.') != std::string::npos, "the driver has a version: " + states.driver);
  for (const fabric::GpuState& gpu : states.gpus) {
    const std::string name = "GPU " + std::to_string(gpu.index) + ": ";
    expect(gpu.problem.empty(), name + gpu.problem);
    expect(gpu.address.find(':') != std::string::npos, name + "has an address on the bus");
    expect(gpu.throttle.has_value() && gpu.persistence.has_value(), name + "tells of throttling and persistence");
  }
  // Whatever they find, they must understand what a real driver says.
  for (const fabric::Check& check :
       verify_gpus(states, fabric::NodeFacts(), {}, std::nullopt, launch::RdmaPolicy::require)) {
    std::printf("gpu: %s %s: %s\n", std::string(to_string(check.verdict)).c_str(), check.id.c_str(),
                check.evidence.c_str());
    expect(check.verdict != fabric::Verdict::unknown, check.id + " is unknown");
  }
}

void memory_of_a_gpu_can_be_had() {
  const auto cuda = load_cuda("");
  expect(cuda.ok(), cuda ? "" : cuda.error().message);
  if (!cuda) return;
  const auto addresses = gpu_addresses(*cuda);
  expect(!addresses.empty(), "CUDA names the GPUs");
  const auto memory = fabric::CudaMemory::allocate(*cuda, 0, std::size_t{8} << 20);
  expect(memory.ok() && memory->address() != nullptr, memory ? "an address" : memory.error().message);
  if (!memory) return;
  std::printf("gpu: memory as DMA-BUF: %s\n", memory->exported() ? "yes" : "not here");
  std::vector<std::byte> bytes(std::size_t{4} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  std::vector<std::byte> back(bytes.size());
  const std::string written = memory->write(bytes.size(), bytes);
  const std::string read = memory->read(bytes.size(), back);
  expect(written.empty() && read.empty(), written + read);
  expect(back == bytes, "what was written to a GPU's memory is read from it");
}

void nccl_is_measured_between_several(std::size_t gpus) {
  const fabric::NcclSpeed speed = measure_nccl("", "", 120s);
  std::printf("gpu: NCCL: %s %.0f GB/s\n", speed.problem.c_str(), speed.gigabytes);
  expect(!speed.failed, speed.problem);
  if (gpus > 1 && speed.problem.empty()) expect(speed.gigabytes > 1, "more than 1 GB/s");
}

}  // namespace

int main() {
  const fabric::GpuStates states = read_gpu_states(fabric::GpuVendor::nvidia, "", 30s);
  if (!states.asked || states.gpus.empty()) {
    std::printf("gpu: skipped: %s\n", states.problem.c_str());
    return 77;
  }
  the_driver_tells_about_each_gpu(states);
  nccl_is_measured_between_several(states.gpus.size());  // forks, so before this process has asked CUDA for anything
  memory_of_a_gpu_can_be_had();
  return failures == 0 ? 0 : 1;
}
