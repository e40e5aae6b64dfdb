// What another health check prints, which `aml-dist check` reads as one of its own checks, as root in a prolog.
//
// Input: a byte that chooses the format, one for the exit status, then the output.
#include "aml_dist/check/site_verdict.hpp"

#include <algorithm>

#include "fuzz.hpp"

namespace amldist::fuzz::site_verdict {
namespace {

constexpr std::size_t longest_text = 4096;  // of some findings, each of them a sentence

void require_printable(const std::string& text) {
  require(text.size() <= longest_text, "a check has a bounded text");
  require(std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; }), "a check is printable ASCII");
}

}  // namespace

const std::string_view separator = ",";

void try_input(std::string_view input) {
  using fabric::Verdict;
  Input bytes(input);
  launch::SiteCheck site;
  site.format = static_cast<launch::VerdictFormat>(bytes.byte() % 3);
  site.words = {"/usr/bin/tool"};
  const int status = bytes.byte();
  const ChildOutput output{std::string(bytes.rest()), status};
  const fabric::Check check = within(output.text.size() * 1024 + (std::size_t{1} << 20),
                                     [&] { return tools::read_site_verdict("theirs", site, output); });
  require(check.id == "site.theirs" && !check.evidence.empty(), "a check has a name and evidence");
  require_printable(check.evidence);
  require_printable(check.remedy);
  const bool is_well = check.verdict == Verdict::pass || check.verdict == Verdict::skip;
  require(!is_well || output.status == 0, "what ends with an error is not well");
  require(is_well || !check.remedy.empty(), "what is not well has a remedy");
}

}  // namespace amldist::fuzz::site_verdict
