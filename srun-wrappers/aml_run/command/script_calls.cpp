#include "aml_run/command/script_calls.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "aml_run/expressions.hpp"
#include "aml_run/owned_folder.hpp"
#include "aml_run/runs/submit_run.hpp"
#include "aml_run/sweep/sampling.hpp"
#include "aml_run/sweep/trial_calls.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using Arguments = std::span<const std::string>;

/// Inserts the values of ${{...}} into a text that the script then gives to bash.
int print_filled(Arguments arguments, bool literally) {
  Values values;
  for (const std::string& each : arguments.subspan(1)) {
    const auto equals = each.find('=');
    if (equals == std::string::npos)
      return commands::fail({Errc::invalid_argument, text::concat({text::quote(each), ": write EXPRESSION=VALUE"})});
    values.insert_or_assign(each.substr(0, equals), each.substr(equals + 1));
  }
  const auto filled = fill_in(arguments[0], values, literally);
  return filled ? commands::print(*filled) : commands::fail(filled.error());
}

/// A folder of the user below a shared one, made if it is missing.
int print_own_folder(Arguments arguments) {
  const auto folder = OwnedFolder::open(arguments[0], arguments[1], OwnedFolder::Missing::is_made);
  return folder ? commands::print(folder->path()) : commands::fail(folder.error());
}

int about_trial(Arguments arguments, int (*answer)(const std::string&, std::uint32_t, const std::string&)) {
  const auto number = text::to_number(arguments[1], most_trials);
  if (!number || *number == 0)
    return commands::fail(
        {Errc::invalid_argument, text::concat({text::quote(arguments[1]), " is not the number of a trial"})});
  return answer(arguments[0], static_cast<std::uint32_t>(*number), arguments.size() > 2 ? arguments[2] : std::string());
}

struct ScriptCall {
  std::string_view name;
  std::size_t arguments;  ///< at least
  int (*answer)(Arguments arguments);
};

constexpr std::array<ScriptCall, 9> calls = {{
    {"--fill-in", 1, [](Arguments arguments) { return print_filled(arguments, false); }},
    {"--fill-in-literally", 1, [](Arguments arguments) { return print_filled(arguments, true); }},
    {"--may-start", 1, [](Arguments arguments) { return may_start(arguments[0]); }},
    {"--stop-run", 2, [](Arguments arguments) { return stop_run(arguments[0], arguments[1]); }},
    {"--begin-trial", 2,
     [](Arguments arguments) {
       return about_trial(arguments,
                          [](const auto& folder, auto number, const auto&) { return begin_trial(folder, number); });
     }},
    {"--watch-trial", 3, [](Arguments arguments) { return about_trial(arguments, watch_trial); }},
    {"--begin-record", 2, [](Arguments arguments) { return begin_record(arguments[0], arguments[1]); }},
    {"--own-folder", 2, print_own_folder},
    {"--finish-sweep", 1, [](Arguments arguments) { return finish_sweep(arguments[0]); }},
}};

}  // namespace

std::optional<int> answer_script(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  const auto* const call = std::ranges::find(calls, words.front(), &ScriptCall::name);
  if (call == calls.end() || words.size() <= call->arguments) return std::nullopt;
  return call->answer(Arguments(words).subspan(1));
}

}  // namespace amldist::run
