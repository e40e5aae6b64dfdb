#include "trace/diagnosis/call_words.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text/text.hpp"
#include "calls/call.hpp"
#include "calls/call_text.hpp"
#include "trace/record/mpi_functions.hpp"

namespace amldist::trace {

using recorder_format::is_collective;
using text::concat;

bool is_rooted(calls::Operation operation) noexcept {
  return calls::has_root(operation) || operation == recorder_format::other::gatherv ||
         operation == recorder_format::other::scatterv;
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

std::string describe_rank(std::uint32_t rank, std::uint32_t local_rank, std::string_view host) {
  const std::string number = concat({"rank ", std::to_string(rank)});
  return host.empty() ? number : concat({number, " (local ", std::to_string(local_rank), ") on ", host});
}

std::string name_of_members(std::span<const std::uint32_t> ranks) {
  constexpr std::size_t most = 16;
  std::vector<std::uint32_t> first(ranks.begin(),
                                   ranks.begin() + static_cast<std::ptrdiff_t>(std::min(most, ranks.size())));
  std::ranges::sort(first);
  return concat({"ranks ", compress_ranks(first), ranks.size() > most ? ",..." : ""});
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

std::string describe_in_full(const CallRecord& call) {
  const std::string words = describe_call(call);
  if (is_rooted(call.operation) && call.peer >= 0) return concat({words, " with root ", std::to_string(call.peer)});
  const bool is_sum = !calls::is_reduction(call.operation) || call.reduction == calls::ReduceOp::sum;
  return is_sum ? words : concat({words, " with ", to_string(call.reduction)});
}

std::string describe_difference(const CallRecord& call, const CallRecord& others) {
  const std::string words = describe_call(call);
  if (call.operation != others.operation) return concat({words, " instead"});
  if (is_rooted(call.operation) && call.peer != others.peer && call.peer >= 0 && others.peer >= 0)
    return concat({describe_in_full(call), " instead of root ", std::to_string(others.peer)});
  if (calls::is_reduction(call.operation) && call.reduction != others.reduction)
    return concat({words, " with ", to_string(call.reduction), " instead of ", to_string(others.reduction)});
  const bool by_counts = call.digest != others.digest && words == describe_call(others);
  return concat({words, by_counts ? " with other counts" : " instead"});
}

}  // namespace amldist::trace
