#include "aml_dist/trace/call_places.hpp"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "aml_dist/trace/trace_step.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "trace/record/call_site.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using trace::CallRecord;
using trace::CodePlace;
using trace::Recording;

/// Another user's files are not read: those of a process may be anything.
bool is_readable(const Recording& recording) {
  struct stat about = {};
  const bool lives = recording.writer == trace::Writer::runs || recording.writer == trace::Writer::stopped;
  return lives && is_here(recording.host) && recording.pid > 0 &&
         ::stat(concat({"/proc/", std::to_string(recording.pid)}).c_str(), &about) == 0 && about.st_uid == ::geteuid();
}

/// A program that was linked for a fixed place counts by addresses in memory.
bool has_fixed_place(const std::string& module) {
  const std::string head = read_file_start(module, sizeof(Elf64_Ehdr));
  Elf64_Ehdr header = {};
  if (head.size() < sizeof header) return false;
  std::memcpy(&header, head.data(), sizeof header);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_type == ET_EXEC;
}

/// "train.c:42", "compute in libfoo.so", or where it is in the file.
std::string place_in(const CodePlace& code, std::string_view function, std::string_view line) {
  const std::string_view name = line.substr(line.rfind('/') + 1);
  const std::string_view place = name.substr(0, name.find(' '));  // behind it: "(discriminator 3)"
  if (place.find(':') != std::string_view::npos && place.find('?') == std::string_view::npos)
    return text::printable(place, 60);
  if (!function.empty() && !function.starts_with('?'))
    return concat({text::printable(function, 40), " in ", code.words()});
  return code.words();
}

/// Names the places of one file, all at once.
void name_places(const std::string& module, const std::vector<std::pair<Recording*, CodePlace>>& wanted) {
  for (const auto& [recording, code] : wanted) recording->place = code.words();
  if (!commands::find_program("addr2line")) return;
  const bool is_fixed = has_fixed_place(module);
  std::vector<std::string> words = {"timeout", "5", "addr2line", "-C", "-f", "-e", module};
  for (const auto& [recording, code] : wanted) {
    // The call is before the place to which it returns.
    CodePlace call = code;
    call.offset = (is_fixed ? code.address : code.offset) - 1;
    const std::string place = call.words();
    words.push_back(place.substr(place.rfind("0x")));
  }
  const auto done = commands::run_program(words);
  if (!done || done->status != 0) return;
  const auto lines = text::split(done->out, '\n');
  for (std::size_t i = 0; i < wanted.size() && 2 * i + 1 < lines.size(); ++i)
    wanted[i].first->place = place_in(wanted[i].second, lines[2 * i], lines[2 * i + 1]);
}

}  // namespace

const CallRecord* telling_call(const Recording& recording) {
  const auto pending = std::ranges::find_if(recording.calls, &CallRecord::pending);
  if (pending != recording.calls.end() && recording.source != "nccl") return &*pending;
  return recording.calls.empty() ? nullptr : &recording.calls.back();
}

void add_places(std::span<Recording> recordings) {
  constexpr std::size_t most_files = 16;
  constexpr std::size_t longest_maps = std::size_t{8} << 20;
  std::map<std::string, std::vector<std::pair<Recording*, CodePlace>>> by_module;
  for (Recording& recording : recordings) {
    const CallRecord* const call = telling_call(recording);
    if (call == nullptr || call->site == 0 || !is_readable(recording)) continue;
    const auto maps = read_file_start(concat({"/proc/", std::to_string(recording.pid), "/maps"}), longest_maps);
    auto code = trace::find_code(maps, call->site);
    if (code) by_module[code->module].emplace_back(&recording, std::move(*code));
  }
  std::size_t files = 0;
  for (const auto& [module, wanted] : by_module)
    if (files++ < most_files) name_places(module, wanted);
}

}  // namespace amldist::tools
