#include "launchers/mpi_family.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/text/text.hpp"
#include "launchers/hydra.hpp"

namespace amldist::launchers {
namespace {

using text::concat;
using text::quote;

using Rows = std::vector<Row<MpiState>>;

/// In the order in which they are believed.
constexpr std::array families = {MpiFamily::open_mpi, MpiFamily::mpich, MpiFamily::intel, MpiFamily::mvapich};
constexpr std::array<std::string_view, families.size()> names = {"Open MPI", "MPICH", "Intel MPI", "MVAPICH"};

/// A set of families, a bit for each.
using Families = unsigned;
constexpr Families all_families = (1U << families.size()) - 1;

bool has(Families set, std::size_t family) { return (set >> family & 1U) != 0; }

/// The index of the flag in front of a program, with one hyphen or two; nullopt without one.
std::optional<std::size_t> find_flag(const Rows& rows, std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (has_name(rows[i].flag, name) || (name.starts_with("--") && has_name(rows[i].flag, name.substr(1)))) return i;
  }
  return std::nullopt;
}

std::size_t words_of(const Flag& flag, std::string_view word) {
  return flag.values == 0 || word.find('=') != std::string_view::npos ? 1 : 1 + flag.values;
}

std::optional<MpiFamily> family_named(std::string_view name) {
  if (name == "openmpi") return MpiFamily::open_mpi;
  if (name == "mpich") return MpiFamily::mpich;
  if (name == "intel" || name == "intelmpi" || name == "impi") return MpiFamily::intel;
  if (name == "mvapich" || name == "mvapich2") return MpiFamily::mvapich;
  return std::nullopt;
}

/// A flag on the command line, and who has it.
struct Seen {
  std::string name;
  Families families = 0;  ///< none: the reader of the flags says what is wrong
  std::size_t words = 1;
};

Seen look_at(const std::array<Rows, families.size()>& tables, const std::string& word) {
  Seen seen{.name = word.substr(0, word.find('='))};
  for (std::size_t family = families.size(); family-- > 0;) {
    const auto flag = find_flag(tables[family], word);
    if (!flag) continue;
    seen.families |= 1U << family;
    // Where they differ in the values of a flag, Hydra's count: it is asked for by name, or by another flag.
    if (family != 0 || seen.words == 1) seen.words = words_of(tables[family][*flag].flag, word);
  }
  return seen;
}

/// "MPICH and Intel MPI". MVAPICH is not named beside MPICH, whose flags it has.
std::string names_of(Families set) {
  if (has(set, 1)) set &= ~(1U << 3U);
  std::vector<std::string_view> found;
  for (std::size_t family = 0; family < families.size(); ++family) {
    if (has(set, family)) found.push_back(names[family]);
  }
  return text::join(found, " and ");
}

/// The families that have all flags. Errors: no family has them all.
Result<Families> who_has_all(const std::vector<Seen>& flags) {
  Families left = all_families;
  for (const Seen& flag : flags) {
    if (flag.families == 0) continue;
    if ((left & flag.families) != 0) {
      left &= flag.families;
      continue;
    }
    const auto other = std::ranges::find_if(
        flags, [&](const Seen& each) { return each.families != 0 && (each.families & flag.families) == 0; });
    return Error{Errc::invalid_argument,
                 concat({other->name, " is a flag of ", names_of(other->families), ", and ", flag.name, " one of ",
                         names_of(flag.families), ": give the flags of one MPI"})};
  }
  return left;
}

bool begins_with(const std::vector<std::string>& words, std::string_view name) {
  return std::ranges::any_of(words, [&](const std::string& word) { return word.starts_with(name); });
}

bool is_of_mvapich(std::string_view word) {
  return is_assignment(word) && (word.starts_with("MV2_") || word.starts_with("MVP_"));
}

/// How many hosts may stand in front of the program: as many as -np says.
std::size_t hosts_on_line(const std::vector<std::string>& words, std::size_t flags) {
  constexpr std::size_t most = 4096;
  for (std::size_t i = 0; i + 1 < std::min(flags, words.size()); ++i) {
    if (words[i] != "-np" && words[i] != "-n") continue;
    return static_cast<std::size_t>(text::to_number(words[i + 1], most).value_or(0));
  }
  return 0;
}

}  // namespace

bool is_assignment(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == 0 || equals == std::string_view::npos || std::isdigit(static_cast<unsigned char>(word.front())) != 0)
    return false;
  return std::ranges::all_of(word.substr(0, equals), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

Result<MpiFamily> take_family(std::vector<std::string>& words) {
  const std::array<Rows, families.size()> tables = {mpi_rows(), hydra_rows(families[1]), hydra_rows(families[2]),
                                                    hydra_rows(families[3])};
  std::vector<Seen> flags;
  std::size_t at = 0;
  while (at < words.size() && words[at].starts_with('-')) {
    const std::string& word = words[at];
    if (word == "--mpi" || word.starts_with("--mpi=")) {
      const bool apart = word == "--mpi";
      const std::string name = apart ? (at + 1 < words.size() ? words[at + 1] : "") : word.substr(6);
      const auto named = family_named(name);
      if (!named) {
        return Error{Errc::invalid_argument,
                     concat({"invalid value ", quote(name), " for --mpi: use openmpi, mpich, intel or mvapich"})};
      }
      const auto place = words.begin() + static_cast<std::ptrdiff_t>(at);
      words.erase(place, place + (apart ? 2 : 1));
      return *named;
    }
    flags.push_back(look_at(tables, word));
    at += flags.back().words;
  }
  const auto left = who_has_all(flags);
  if (!left) return left.error();
  // "-np 2 MV2_X=1 ./app", and "-np 2 node1 node2 MV2_X=1 ./app": mpirun_rsh takes its hosts from its line.
  for (const std::size_t place : {at, at + hosts_on_line(words, at)}) {
    if (place < words.size() && is_of_mvapich(words[place])) return MpiFamily::mvapich;
  }
  if (!has(*left, 0) && has(*left, 2) && begins_with(words, "I_MPI_")) return MpiFamily::intel;
  for (std::size_t family = 0; family < families.size(); ++family) {
    if (has(*left, family)) return families[family];
  }
  return MpiFamily::open_mpi;
}

std::vector<std::string> plain_hydra_words(const std::vector<std::string>& words) {
  const auto rows = join_rows({hydra_rows(MpiFamily::mvapich), hydra_rows(MpiFamily::intel)});
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size();) {
    const auto found = words[i].starts_with('-') ? find_flag(rows, words[i]) : std::nullopt;
    if (!found) {  // a program with its arguments, or a word that the flags' reader refuses
      while (i < words.size() && words[i] != ":") out.push_back(words[i++]);
      if (i < words.size()) out.push_back(words[i++]);
      continue;
    }
    const Flag& flag = rows[*found].flag;
    const bool doubled = words[i].starts_with("--") && !has_name(flag, words[i].substr(0, words[i].find('=')));
    out.push_back(doubled ? words[i].substr(1) : words[i]);
    const std::size_t count = words_of(flag, words[i]);
    const auto equals = i + 1 < words.size() ? words[i + 1].find('=') : std::string::npos;
    if (flag.values == 2 && count == 3 && equals != std::string::npos) {
      out.push_back(words[i + 1].substr(0, equals));
      out.push_back(words[i + 1].substr(equals + 1));
      i += 2;
      continue;
    }
    for (std::size_t value = 1; value < count && i + value < words.size(); ++value) out.push_back(words[i + value]);
    i += count;
  }
  return out;
}

}  // namespace amldist::launchers
