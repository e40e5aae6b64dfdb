// What the unit tests share: an environment from a table.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::testing {

using Variables = std::map<std::string, std::string, std::less<>>;

/// Reads a table; the reader keeps its own copy.
inline EnvironmentReader environment(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

/// The environment after a patch.
inline Variables applied(const EnvironmentPatch& patch, Variables variables = {}) {
  for (const auto& change : patch.changes()) {
    if (change.value) variables[change.name] = *change.value;
    else variables.erase(change.name);
  }
  return variables;
}

/// A message is one sentence for a terminal: not empty, one line, printable, bounded.
inline void expect_sentence(const std::string& message) {
  EXPECT_FALSE(message.empty());
  EXPECT_LE(message.size(), 500U) << message;
  for (const char c : message) EXPECT_TRUE(c >= ' ' && c < 0x7f) << "byte " << static_cast<int>(c) << " in " << message;
}

}  // namespace amldist::testing
