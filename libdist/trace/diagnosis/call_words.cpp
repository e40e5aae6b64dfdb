#include "trace/diagnosis/call_words.hpp"

#include <array>

#include "base/text/text.hpp"
#include "calls/call_text.hpp"
#include "trace/record/mpi_functions.hpp"

namespace amldist::trace {

using recorder_format::is_collective;
using text::concat;

bool has_root(calls::Operation operation) noexcept {
  return operation == calls::Operation::broadcast || operation == calls::Operation::reduce ||
         operation == calls::Operation::gather || operation == calls::Operation::scatter ||
         operation == recorder_format::other::gatherv || operation == recorder_format::other::scatterv;
}

std::string_view name_of(calls::Operation operation) noexcept {
  constexpr std::array<std::string_view, 12> of_all = {"gatherv",   "scatterv",        "scan",     "exscan",
                                                       "alltoallw", "reduce_scatter",  "neighbor", "create",
                                                       "one_sided", "persistent_init", "file_io",  "window"};
  constexpr std::array<std::string_view, 2> of_two = {"sendrecv", "probe"};
  constexpr std::size_t first_of_all = 128;
  constexpr std::size_t first_of_two = 192;
  const auto number = static_cast<std::size_t>(operation);
  if (number >= first_of_two && number - first_of_two < of_two.size()) return of_two[number - first_of_two];
  if (number >= first_of_all && number - first_of_all < of_all.size()) return of_all[number - first_of_all];
  return to_string(operation);
}

std::string_view name_of(const CallRecord& call) noexcept {
  const bool has_function = is_collective(call.operation) && call.tag != 0 && call.tag <= mpi_functions.size();
  return has_function ? mpi_functions[call.tag - 1] : name_of(call.operation);
}

namespace {
/// The tag of a message joins its numbers: "recv (4 bytes, tag 7)". Tag 0 is not shown, nor those that share a number.
void add_tag(const CallRecord& call, std::string& words) {
  if (call.tag == 0 || call.tag >= recorder_format::first_shared_tag) return;
  const std::string tag = concat({"tag ", std::to_string(call.tag), ")"});
  if (words.ends_with(')')) words.replace(words.size() - 1, 1, concat({", ", tag}));
  else words += concat({" (", tag});
}
}  // namespace

std::string describe_call(const CallRecord& call) {
  constexpr std::uint8_t first_other = 128;
  const std::uint64_t size = size_of(call.type);
  std::string words;
  if (static_cast<std::uint8_t>(call.operation) < first_other && size != 0) {
    words = describe(calls::CallNumbers{call.operation, call.sequence, call.bytes / size, call.type});
  } else {
    words = name_of(call);
    if (call.sequence != 0) words += concat({" #", std::to_string(call.sequence)});
    if (call.bytes != 0) words += concat({" (", calls::describe_bytes(call.bytes), ")"});
  }
  if (is_collective(call.operation)) return words;
  add_tag(call, words);
  const std::string_view towards = call.operation == calls::Operation::send ? " to " : " from ";
  if (call.peer >= 0) words += concat({towards, "rank ", std::to_string(call.peer)});
  if (call.peer == recorder_format::any_peer) words += concat({towards, "any rank"});
  return words;
}

std::string compress_ranks(std::span<const std::uint32_t> ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    if (!out.empty()) out += ",";
    out += std::to_string(ranks[i]);
    if (end > i) out += concat({end == i + 1 ? "," : "-", std::to_string(ranks[end])});
    i = end + 1;
  }
  return out;
}

std::string describe_with_root(const CallRecord& call) {
  if (!has_root(call.operation) || call.peer < 0) return describe_call(call);
  return concat({describe_call(call), " with root ", std::to_string(call.peer)});
}

std::string describe_difference(const CallRecord& call, const CallRecord& others) {
  const bool by_root = call.operation == others.operation && has_root(call.operation) && call.peer != others.peer;
  if (!by_root || call.peer < 0 || others.peer < 0) return concat({describe_call(call), " instead"});
  return concat({describe_with_root(call), " instead of root ", std::to_string(others.peer)});
}

}  // namespace amldist::trace
