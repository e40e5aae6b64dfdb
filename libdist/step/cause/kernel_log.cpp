#include "step/cause/kernel_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <map>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

using text::concat;

constexpr std::size_t longest_record = 8192;  // enough for any record, according to the kernel
constexpr std::size_t most_records = 512;
constexpr std::size_t most_read_at_once = 20000;

/// The text between two others; empty: not both are there.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const auto begin = text.find(before);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = text.substr(begin + before.size());
  const auto end = rest.find(after);
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

std::string_view digits_of(std::string_view text) {
  return text.substr(0, std::min(text.find_first_not_of("0123456789"), text.size()));
}

std::uint32_t number_after(std::string_view text, std::string_view before) {
  const auto at = text.find(before);
  if (at == std::string_view::npos) return 0;
  const auto number = text::to_number(digits_of(text.substr(at + before.size())), 0x7fffffff);
  return static_cast<std::uint32_t>(number.value_or(0));
}

std::uint64_t kib_after(std::string_view text, std::string_view before) {
  constexpr std::uint64_t most = std::uint64_t{1} << 50;
  const auto at = text.find(before);
  if (at == std::string_view::npos) return 0;
  return text::to_number(digits_of(text.substr(at + before.size())), most).value_or(0) * 1024;
}

bool may_matter(std::string_view text) {
  constexpr std::array<std::string_view, 9> words = {
      "oom-kill:", "Killed process",          "Xid", "memory corruption", "Link", "link",
      "read-only", "hutting down filesystem", "EDAC"};
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// ---- memory ----

/// The number and the cgroup that the kernel tells just before it tells of the kill. The process' name is between them:
/// what it contains may not lead us.
std::pair<std::uint32_t, std::string> group_of_victim(std::string_view text) {
  constexpr std::string_view group_word = ",task_memcg=";
  constexpr std::string_view pid_word = ",pid=";
  const auto pid = text.rfind(pid_word);
  if (pid == std::string_view::npos) return {};
  return {number_after(text.substr(pid), pid_word), std::string(between(text, group_word, ",task="))};
}

std::optional<OomKill> parse_kill(const KernelRecord& record) {
  constexpr std::string_view word = "Killed process ";
  const std::string_view text = record.text;
  const bool of_node = text.starts_with("Out of memory: ");
  const std::string_view rest = of_node ? text.substr(15) : text;
  const std::string_view kill = rest.starts_with("Memory cgroup out of memory: ") ? rest.substr(29) : rest;
  const auto numbers = kill.rfind(") total-vm:");
  const auto name = kill.find('(');
  if (!kill.starts_with(word) || numbers == std::string_view::npos || name > numbers) return std::nullopt;
  const std::string_view sizes = kill.substr(numbers);
  return OomKill{
      .pid = number_after(kill, word),
      .name = clean_cause(kill.substr(name + 1, numbers - name - 1), 16),
      .bytes = kib_after(sizes, "anon-rss:") + kib_after(sizes, "file-rss:") + kib_after(sizes, "shmem-rss:"),
      .is_of_node = of_node,
      .time_us = record.time_us};
}

// ---- devices ----

bool is_device_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ':' || c == '.' ||
           c == '-' || c == '_' || c == '/';
  };
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, fits);
}

/// NVIDIA's words for the Xids that end programs and concern the hardware (docs.nvidia.com/deploy/xid-errors).
std::string_view meaning_of_xid(std::uint32_t xid) {
  struct Meaning {
    std::uint32_t xid;
    std::string_view words;
  };
  constexpr std::array<Meaning, 16> meanings = {{{48, "uncorrectable ECC error"},
                                                 {61, "its firmware stopped"},
                                                 {62, "its firmware stopped"},
                                                 {63, "a memory row is to be remapped"},
                                                 {64, "a memory row cannot be remapped"},
                                                 {69, "graphics engine"},
                                                 {74, "NVLink error"},
                                                 {79, "fallen off the bus"},
                                                 {92, "many correctable ECC errors"},
                                                 {94, "contained ECC error"},
                                                 {95, "uncontained ECC error"},
                                                 {119, "its GSP does not answer"},
                                                 {120, "GSP error"},
                                                 {140, "ECC error"},
                                                 {143, "it cannot be started"},
                                                 {154, "it needs a reset"}}};
  const auto* const found = std::ranges::find(meanings, xid, &Meaning::xid);
  return found != meanings.end() ? found->words : std::string_view();
}

/// Xids that a program's own faults cause, too: those of the page fault, the illegal instruction, the breakpoint.
bool is_programs_own(std::uint32_t xid) { return xid == 13 || xid == 31 || xid == 43 || xid == 45; }

/// "0000:3b:00.0" of "0000:3b:00".
std::string whole_address(std::string_view address) {
  return address.find('.') == std::string_view::npos ? concat({address, ".0"}) : std::string(address);
}

std::optional<NodeEvent> parse_xid(const KernelRecord& record) {
  const std::string_view text = record.text;
  const bool of_switch = text.starts_with("nvidia-nvswitch") && text.find(": SXid (PCI:") != std::string_view::npos;
  if (!of_switch && !text.starts_with("NVRM: Xid (PCI:")) return std::nullopt;
  const std::string_view address = between(text, "Xid (PCI:", "):");
  const std::uint32_t number = number_after(text, "): ");
  if (!is_device_name(address) || number == 0) return std::nullopt;
  const std::string device = whole_address(address);
  if (of_switch) {
    if (text.find("Non-fatal") != std::string_view::npos) return std::nullopt;
    return NodeEvent{NodeEvent::Kind::gpu_switch, device,
                     concat({"SXid ", std::to_string(number), " for NVSwitch ", device}), record.time_us};
  }
  if (is_programs_own(number)) return std::nullopt;
  const std::string_view meaning = meaning_of_xid(number);
  return NodeEvent{NodeEvent::Kind::gpu, device,
                   concat({"Xid ", std::to_string(number), " for GPU ", device, meaning.empty() ? "" : " (", meaning,
                           meaning.empty() ? "" : ")"}),
                   record.time_us};
}

/// "mlx5_core 0000:01:00.0 ib0: Link down"
std::optional<NodeEvent> parse_port(const KernelRecord& record) {
  const std::string_view text = record.text;
  const bool is_down = text.ends_with(": Link down") || text.ends_with(": NIC Link is Down");
  const auto words = text::split(text.substr(0, text.rfind(": ")), ' ');
  constexpr std::array<std::string_view, 4> drivers = {"mlx5_core", "bnxt_en", "ice", "ionic"};
  const bool is_port = words.size() == 3 && std::ranges::find(drivers, words[0]) != drivers.end();
  if (!is_down || !is_port || !is_device_name(words[1]) || !is_device_name(words[2])) return std::nullopt;
  return NodeEvent{NodeEvent::Kind::port, std::string(words[2]),
                   concat({"that port ", words[2], " (", words[0], " ", words[1], ") went down"}), record.time_us};
}

std::optional<NodeEvent> parse_file_system(const KernelRecord& record) {
  const std::string_view text = record.text;
  const bool turned = text.ends_with("emounting filesystem read-only") ||
                      text.find("hutting down filesystem") != std::string_view::npos;
  const std::string_view device = between(text, " (", ")");
  constexpr std::array<std::string_view, 4> kinds = {"EXT4-fs", "XFS", "BTRFS", "F2FS-fs"};
  const bool is_known = std::ranges::any_of(kinds, [&](std::string_view kind) { return text.starts_with(kind); });
  if (!turned || !is_known) return std::nullopt;
  const std::string_view name = device.substr(device.starts_with("device ") ? 7 : 0);
  if (!is_device_name(name)) return std::nullopt;
  return NodeEvent{NodeEvent::Kind::file_system, std::string(name),
                   concat({"that the file system on ", name, " turned read-only"}), record.time_us};
}

/// "Memory failure: 0x1234: Killing python:8123 due to hardware memory corruption", "EDAC MC0: 1 UE memory read error".
std::optional<NodeEvent> parse_memory_error(const KernelRecord& record) {
  const std::string_view text = record.text;
  const bool kills = text.find(" due to hardware memory corruption") != std::string_view::npos && text.starts_with("M");
  const bool uncorrected = text.starts_with("EDAC MC") && text.find(" UE ") != std::string_view::npos;
  if (!kills && !uncorrected) return std::nullopt;
  return NodeEvent{NodeEvent::Kind::memory, "memory", "an uncorrectable error of the node's memory (ECC)",
                   record.time_us};
}

}  // namespace

std::optional<KernelRecord> KernelRecord::parse(std::string_view record) {
  const auto semicolon = record.find(';');
  if (semicolon == std::string_view::npos) return std::nullopt;
  const auto head = text::split(record.substr(0, semicolon), ',');
  if (head.size() < 4) return std::nullopt;
  constexpr std::uint64_t levels = 8;  // above: the facility; 0 is the kernel
  const auto priority = text::to_number(head[0], levels - 1);
  const auto time = text::to_number(head[2], ~std::uint64_t{0});
  if (!priority || !time) return std::nullopt;
  return KernelRecord{*time, std::string(record.substr(semicolon + 1))};
}

std::vector<OomKill> find_oom_kills(std::span<const KernelRecord> records) {
  std::map<std::uint32_t, std::string> groups;
  std::vector<OomKill> kills;
  for (const KernelRecord& record : records) {
    if (record.text.starts_with("oom-kill:")) {
      auto [pid, group] = group_of_victim(record.text);
      groups[pid] = std::move(group);
    } else if (auto kill = parse_kill(record); kill && kill->pid != 0) {
      kill->group = groups[kill->pid];
      kills.push_back(std::move(*kill));
    }
  }
  return kills;
}

std::vector<NodeEvent> find_node_events(std::span<const KernelRecord> records) {
  std::vector<NodeEvent> events;
  for (const KernelRecord& record : records) {
    for (auto* const parse : {parse_xid, parse_port, parse_file_system, parse_memory_error})
      if (auto event = parse(record)) events.push_back(std::move(*event));
  }
  return events;
}

std::array<std::uint64_t, 2> kernel_clocks_us() noexcept {
  constexpr std::uint64_t million = 1'000'000;
  constexpr std::uint64_t thousand = 1000;
  const auto microseconds_of = [](clockid_t clock) {
    timespec now = {};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * million + static_cast<std::uint64_t>(now.tv_nsec) / thousand;
  };
  return {microseconds_of(CLOCK_MONOTONIC), microseconds_of(CLOCK_MONOTONIC_RAW)};
}

bool has_kernels_process_numbers() noexcept {
  constexpr std::string_view first_namespace = "pid:[4026531836]";  // PROC_PID_INIT_INO of linux/proc_ns.h
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return length > 0 && std::string_view(name.data(), static_cast<std::size_t>(length)) == first_namespace;
}

KernelLog KernelLog::open_at_end(const char* path) noexcept {
  KernelLog log;
  log.file_ = FileDescriptor(::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW));
  if (log.file_ && ::lseek(log.file_.get(), 0, SEEK_END) < 0) log.file_ = FileDescriptor();
  return log;
}

const std::vector<KernelRecord>& KernelLog::read() {
  std::array<char, longest_record> buffer{};
  for (std::size_t i = 0; file_ && i < most_read_at_once; ++i) {
    const ssize_t got = ::read(file_.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: records were overwritten meanwhile
    if (got <= 0) break;
    // One record and its properties, which begin with a blank; of a recorded log several records.
    for (const std::string_view line : text::split({buffer.data(), static_cast<std::size_t>(got)}, '\n')) {
      auto record = KernelRecord::parse(line);
      if (record && may_matter(record->text)) records_.push_back(std::move(*record));
    }
  }
  if (records_.size() > most_records)
    records_.erase(records_.begin(), records_.end() - static_cast<std::ptrdiff_t>(most_records));
  return records_;
}

}  // namespace amldist::step
