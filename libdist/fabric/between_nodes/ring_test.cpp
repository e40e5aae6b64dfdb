#include "fabric/between_nodes/ring_test.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/text/text.hpp"
#include "fabric/between_nodes/pair_schedule.hpp"
#include "fabric/facts/settings.hpp"
#include "fabric/gpu/cuda_memory.hpp"
#include "fabric/verbs/rdma_link.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::uint32_t test_bytes = 64 * 1024;
constexpr std::size_t buffer_bytes = std::size_t{16} << 20;
constexpr std::uint32_t measured_bytes = 8 << 20;
constexpr std::chrono::milliseconds measuring_time{300};

std::string describe(const VerbsFailure& failure) {
  if (failure.wc_status != 0) return concat({failure.stage, ": completion status ", std::to_string(failure.wc_status)});
  return concat({failure.stage, ": ", failure.error == 0 ? "failed" : std::strerror(failure.error)});
}

/// The pattern that node `seed` writes.
std::byte byte_at(std::size_t i, std::uint32_t seed) {
  return static_cast<std::byte>((i * 37 + (i >> 8) + std::size_t{seed} * 101 + 1) & 0xff);
}

/// The numbers of the writer's and the reader's queue pair, and what both share because they are on one device.
std::string to_text(const LinkAddress& writer, const LinkAddress& reader) {
  std::string out;
  for (const std::uint64_t number :
       {std::uint64_t{writer.qp_number}, std::uint64_t{writer.first_packet}, std::uint64_t{reader.qp_number},
        std::uint64_t{reader.first_packet}, std::uint64_t{reader.remote_key}, std::uint64_t{reader.mtu}, reader.buffer,
        std::uint64_t{reader.lid}}) {
    out += concat({std::to_string(number), " "});
  }
  Gid gid;
  gid.bytes = reader.gid;
  return out + gid.to_string();
}

enum class End { writer, reader };

/// The digits of written(), beside 0.
constexpr char wrote = '1';
constexpr char wrote_to_gpu = '2';

/// The last line of the endpoints. A node of an earlier release sends no names; ours then stand for a rail that it
/// lacks.
constexpr std::string_view names_line = "names";

/// A line for each rail's GPU memory, only where it is measured: "ADDRESS KEY" or "-" for each rail.
constexpr std::string_view gpus_line = "gpus";

std::string to_text(const std::optional<RemotePlace>& place) {
  return place ? concat({std::to_string(place->address), " ", std::to_string(place->key)}) : "-";
}

std::optional<RemotePlace> place_from(std::string_view text) {
  const auto words = text::split(text, ' ');
  if (words.size() != 2) return std::nullopt;
  const auto address = text::to_number(words[0], ~std::uint64_t{0});
  const auto key = text::to_number(words[1], 0xffffffff);
  if (!address || !key) return std::nullopt;
  return RemotePlace{*address, static_cast<std::uint32_t>(*key)};
}

/// A neighbour's endpoints: a line for each rail, and the rail that each own rail is paired with.
struct Neighbour {
  std::vector<std::string_view> lines;
  std::vector<std::string_view> gpus;
  std::vector<std::optional<std::size_t>> rails;

  /// Empty if the neighbour lacks such a rail.
  [[nodiscard]] std::string_view line_for(std::size_t own_rail) const {
    return own_rail < rails.size() && rails[own_rail] ? lines[*rails[own_rail]] : std::string_view();
  }
  /// Memory of the GPU at the rail paired with `own_rail`; nullopt without one.
  [[nodiscard]] std::optional<RemotePlace> gpu_for(std::size_t own_rail) const {
    const auto rail = own_rail < rails.size() ? rails[own_rail] : std::nullopt;
    return rail && *rail < gpus.size() ? place_from(gpus[*rail]) : std::nullopt;
  }
};

Neighbour neighbour_from(std::string_view endpoints, const std::vector<std::string>& own) {
  Neighbour out;
  std::vector<std::string> names;
  for (const std::string_view line : text::split(endpoints, '\n')) {
    const auto fields = text::split(line, '\t');
    if (fields[0] == names_line) names.assign(fields.begin() + 1, fields.end());
    else if (fields[0] == gpus_line) out.gpus.assign(fields.begin() + 1, fields.end());
    else if (!line.empty()) out.lines.push_back(line);
  }
  // Without names the order decides.
  if (names.size() != out.lines.size()) names.assign(out.lines.size(), "");
  out.rails = match_rails(own, names);
  return out;
}

std::optional<LinkAddress> address_from(std::string_view text, End end) {
  const auto words = text::split(text, ' ');
  if (words.size() != 9) return std::nullopt;
  constexpr std::uint64_t word32 = 0xffffffff;
  const std::size_t first = end == End::writer ? 0 : 2;
  const auto pair = text::to_number(words[first], word32);
  const auto packet = text::to_number(words[first + 1], word32);
  const auto key = text::to_number(words[4], word32);
  const auto mtu = text::to_number(words[5], 16);
  const auto buffer = text::to_number(words[6], ~std::uint64_t{0});
  const auto lid = text::to_number(words[7], 0xffff);
  const auto gid = Gid::parse(words[8]);
  if (!pair || !packet || !key || !mtu || !buffer || !lid || !gid) return std::nullopt;
  return LinkAddress{static_cast<std::uint32_t>(*pair),
                     static_cast<std::uint32_t>(*packet),
                     static_cast<std::uint32_t>(*key),
                     static_cast<std::uint32_t>(*mtu),
                     *buffer,
                     static_cast<std::uint16_t>(*lid),
                     gid->bytes};
}

/// Two queue pairs on one device: one writes to the right neighbour, the other receives from the left.
struct Ends {
  std::string name;
  RdmaDevice device;
  RdmaLink writer;
  RdmaLink reader;
  std::string problem;  ///< of this node itself
  std::string write_problem;
  std::string read_problem;
  double gbps = 0;
  double latency_us = 0;
  GpuSpeed gpu;
  std::optional<CudaMemory> gpu_memory;  ///< two halves: what it writes, and what is written to it
  RemotePlace to;                        ///< at the right neighbour
  std::optional<RemotePlace> to_gpu;
};

class VerbsRing final : public RingTest {
 public:
  VerbsRing(VerbsApi api, RingPlan plan) : api_(api), plan_(plan) {}

  /// For measuring: the GPUs' memory as a source, too.
  void use_gpus(const NodeFacts& node, const std::string& library) {
    auto cuda = load_cuda(library);
    if (cuda) {
      cuda_ = *cuda;
      gpus_ = gpu_addresses(*cuda_);
      nearest_.reserve(gpus_.size());
      for (const std::string& address : gpus_) {
        const auto found = std::ranges::find(node.gpus, address, &GpuFacts::address);
        nearest_.push_back(found == node.gpus.end() ? "" : found->path);
      }
    } else {
      no_gpu_ = cuda.error().message;
    }
    if (no_gpu_.empty() && gpus_.empty()) no_gpu_ = "this process has no GPU";
  }

  void add(const LinkTarget& target, const std::string& pci_path) {
    auto ends = std::make_unique<Ends>();
    ends->name = PortName{target.device, target.port}.to_string();
    if (auto failure = RdmaDevice::open(api_, target, buffer_bytes, ends->device)) ends->problem = describe(*failure);
    else make_links(*ends);
    if (plan_.measure && ends->problem.empty()) add_gpu(*ends, pci_path);
    ends_.push_back(std::move(ends));
  }

  void restart(const RingPlan& plan) override {
    plan_ = plan;
    for (const auto& each : ends_) {
      each->write_problem.clear();
      each->read_problem.clear();
      each->gbps = each->latency_us = each->gpu.gbps = 0;
      if (each->device.registered()) make_links(*each);
    }
  }

  void add_broken(std::string name, std::string problem) {
    auto ends = std::make_unique<Ends>();
    ends->name = std::move(name);
    ends->problem = std::move(problem);
    ends_.push_back(std::move(ends));
  }

  [[nodiscard]] std::string endpoints() const override {
    std::string out;
    for (const auto& each : ends_) {
      out += each->problem.empty() ? concat({"ok\t", to_text(each->writer.address(), each->reader.address()), "\n"})
                                   : concat({"no\t", printable(each->problem, 150), "\n"});
    }
    if (ends_.empty()) return out;
    out += names_line;
    for (const std::string& name : names()) out += concat({"\t", name});
    out += "\n";
    if (!plan_.measure) return out;
    out += gpus_line;
    for (const auto& each : ends_) out += concat({"\t", to_text(gpu_target(*each))});
    return out + "\n";
  }

  void connect(std::string_view from, std::string_view to) override {
    const Neighbour left = neighbour_from(from, names());
    const Neighbour right = neighbour_from(to, names());
    left_rails_ = left.rails;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      Ends& own = *ends_[i];
      if (!own.problem.empty()) continue;
      own.read_problem = connect_end(own.reader, left.line_for(i), End::writer);
      own.write_problem = connect_end(own.writer, right.line_for(i), End::reader);
      const auto peer = peer_of(right.line_for(i), End::reader);
      if (peer) own.to = {peer->buffer + buffer_bytes / 2, peer->remote_key};
      own.to_gpu = right.gpu_for(i);
    }
  }

  void write() override {
    for (const auto& each : ends_) {
      if (!each->problem.empty() || !each->write_problem.empty()) continue;
      const auto deadline = Clock::now() + plan_.timeout;
      if (auto failure = each->writer.write(0, each->to, test_bytes, deadline))
        each->write_problem = describe(*failure);
      else if (plan_.measure) measure(*each, deadline);
    }
  }

  [[nodiscard]] std::string written() const override {
    std::string out;
    for (const auto& each : ends_) {
      const bool well = each->problem.empty() && each->write_problem.empty();
      const bool to_gpu = well && each->to_gpu && each->gpu.gbps > 0;
      out += to_gpu ? wrote_to_gpu : well ? wrote : '0';
    }
    return out;
  }

  void compare(std::string_view written) override {
    for (std::size_t rail = 0; rail < ends_.size(); ++rail) {
      const auto& each = ends_[rail];
      const auto its = rail < left_rails_.size() ? left_rails_[rail] : std::nullopt;
      const char said = its && *its < written.size() ? written[*its] : wrote;
      if (!each->problem.empty() || !each->read_problem.empty() || said == '0') continue;
      each->read_problem = difference(each->device.memory().subspan(buffer_bytes / 2, test_bytes), "");
      if (said == wrote_to_gpu && each->read_problem.empty()) each->read_problem = compare_gpu(*each);
    }
  }

  [[nodiscard]] std::vector<PairResult> results() const override {
    std::vector<PairResult> out;
    for (const auto& each : ends_) {
      const std::string& write = each->problem.empty() ? each->write_problem : each->problem;
      out.push_back({plan_.node, plan_.to, each->name, write, each->gbps, each->latency_us, each->gpu});
      if (each->problem.empty() && !each->read_problem.empty()) {
        out.push_back({plan_.from, plan_.node, each->name, each->read_problem});
      }
    }
    return out;
  }

 private:
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    out.reserve(ends_.size());
    for (const auto& each : ends_) out.push_back(printable(each->name, 64));
    return out;
  }

  void make_links(Ends& ends) const {
    ends.problem.clear();
    VerbsOutcome failure = RdmaLink::make(ends.device, ends.writer);
    if (!failure) failure = RdmaLink::make(ends.device, ends.reader);
    if (failure) ends.problem = describe(*failure);
    else fill(ends);
  }

  /// Empty if these are the bytes that `plan_.from` writes.
  [[nodiscard]] std::string difference(std::span<const std::byte> bytes, std::string_view where) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != byte_at(i, plan_.from)) return concat({"byte ", std::to_string(i), " did not arrive", where});
    }
    return {};
  }

  [[nodiscard]] std::string compare_gpu(const Ends& own) const {
    if (!own.gpu_memory) return {};
    std::vector<std::byte> bytes(measured_bytes);
    std::string problem = own.gpu_memory->read(measured_bytes, bytes);
    return problem.empty() ? difference(bytes, " in the GPU's memory") : problem;
  }

  static std::optional<RemotePlace> gpu_target(const Ends& ends) {
    const auto place = ends.gpu_memory ? ends.device.gpu_memory() : std::nullopt;
    return place ? std::optional(RemotePlace{place->address + measured_bytes, place->key}) : std::nullopt;
  }

  /// Memory of the nearest GPU, else of the one with the same number as the port.
  void add_gpu(Ends& ends, const std::string& pci_path) const {
    if (!no_gpu_.empty()) {
      ends.gpu.reason = no_gpu_;
      return;
    }
    const auto near = std::ranges::find_if(nearest_, [&](const auto& path) { return share_bridge(path, pci_path); });
    const auto index =
        near == nearest_.end() ? ends_.size() % gpus_.size() : static_cast<std::size_t>(near - nearest_.begin());
    auto memory = CudaMemory::allocate(*cuda_, static_cast<int>(index), std::size_t{2} * measured_bytes);
    if (!memory) {
      ends.gpu.problem = memory.error().message;
      return;
    }
    const FileDescriptor exported = memory->exported();
    if (auto failure = ends.device.register_gpu(memory->address(), memory->bytes(), exported.get())) {
      ends.gpu.problem = concat({"GPU ", gpus_[index], ": ", describe(*failure)});
      return;
    }
    // The same two halves as in the host's buffer, which make_links() has filled.
    const auto host = ends.device.memory();
    ends.gpu.problem = memory->write(0, host.first(measured_bytes));
    if (ends.gpu.problem.empty()) {
      ends.gpu.problem = memory->write(measured_bytes, host.subspan(buffer_bytes / 2, measured_bytes));
    }
    if (ends.gpu.problem.empty()) ends.gpu_memory.emplace(std::move(*memory));
  }

  void fill(Ends& ends) const {
    const auto memory = ends.device.memory();
    for (std::size_t i = 0; i < measured_bytes; ++i) memory[i] = byte_at(i, plan_.node);
    std::ranges::fill(memory.subspan(buffer_bytes / 2), std::byte{0});
  }

  static std::optional<LinkAddress> peer_of(std::string_view line, End end) {
    const auto fields = text::split(line, '\t');
    if (fields.size() != 2 || fields[0] != "ok") return std::nullopt;
    return address_from(fields[1], end);
  }

  static std::string connect_end(RdmaLink& link, std::string_view line, End end) {
    const auto fields = text::split(line, '\t');
    if (fields.size() == 2 && fields[0] == "no") return concat({"the other node: ", printable(fields[1], 150)});
    const auto peer = peer_of(line, end);
    if (!peer) return "the other node does not have this device";
    const auto failure = link.connect(*peer);
    return failure ? describe(*failure) : std::string();
  }

  static void measure(Ends& own, Clock::time_point deadline) {
    auto failure = measure_latency(own, deadline);
    if (!failure) failure = measure_bandwidth(own, own.to, deadline, Source::host, own.gbps);
    if (failure) own.write_problem = describe(*failure);
    if (failure || !own.gpu_memory) return;
    if (!own.to_gpu) own.gpu.reason = "the other node has no memory of a GPU there";
    failure = measure_bandwidth(own, own.to_gpu.value_or(own.to), deadline, Source::gpu, own.gpu.gbps);
    if (failure) own.gpu.problem = concat({"writing from the GPU's memory: ", describe(*failure)});
  }

  /// The median of small writes, one after the other.
  static VerbsOutcome measure_latency(Ends& own, Clock::time_point deadline) {
    constexpr std::size_t writes = 101;
    constexpr std::uint32_t small = 8;
    std::array<double, writes> taken{};
    for (double& each : taken) {
      const auto began = Clock::now();
      if (auto failure = own.writer.write(0, own.to, small, deadline)) return failure;
      each = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
    }
    std::ranges::nth_element(taken, taken.begin() + writes / 2);
    own.latency_us = taken.at(writes / 2);
    return {};
  }

  /// Two writes are under way at any time.
  static VerbsOutcome measure_bandwidth(Ends& own, const RemotePlace& to, Clock::time_point deadline, Source source,
                                        double& gbps) {
    const auto began = Clock::now();
    std::uint64_t bytes = 0;
    if (auto failure = own.writer.start_write(0, to, measured_bytes, source)) return failure;
    while (Clock::now() - began < measuring_time) {
      if (auto failure = own.writer.start_write(0, to, measured_bytes, source)) return failure;
      if (auto failure = own.writer.finish_write(deadline)) return failure;
      bytes += measured_bytes;
    }
    if (auto failure = own.writer.finish_write(deadline)) return failure;
    const std::chrono::duration<double> taken = Clock::now() - began;
    gbps = static_cast<double>(bytes + measured_bytes) * 8e-9 / taken.count();
    return {};
  }

  VerbsApi api_;
  RingPlan plan_;
  std::vector<std::unique_ptr<Ends>> ends_;
  std::vector<std::optional<std::size_t>>
      left_rails_;  ///< the rail of the left neighbour that each own one is paired with
  std::optional<CudaApi> cuda_;
  std::vector<std::string> gpus_;     ///< their addresses
  std::vector<std::string> nearest_;  ///< their places on the PCI bus
  std::string no_gpu_;                ///< why no GPU is used
};

}  // namespace

std::unique_ptr<RingTest> RingTest::open(const NodeFacts& node, const CheckRequest& request, const RingPlan& plan) {
  const auto api = load_verbs(request.environment(variable::verbs_library).value_or(""));
  auto ring = std::make_unique<VerbsRing>(api ? *api : VerbsApi(), plan);
  const auto pkey = nccl_parameter(request.environment, "NCCL_IB_PKEY").value_or(0);
  if (plan.measure) ring->use_gpus(node, request.environment(variable::cuda_library).value_or(""));
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (!api) {
      ring->add_broken(each.name().to_string(), api.error().message);
      continue;
    }
    ring->add({each.device->name, static_cast<std::uint8_t>(each.port->number),
               working_gid_index(request.environment, *each.port), static_cast<std::uint16_t>(pkey),
               each.port->layer() == LinkLayer::ethernet},
              each.device->pci.path);
  }
  return ring;
}

}  // namespace amldist::fabric
