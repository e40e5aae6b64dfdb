// The Ray that is installed on this node.
#pragma once

#include <string>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::ray {

struct Program {
  std::string path;     ///< of `ray`
  std::string version;  ///< "2.60.0"
  std::string python;   ///< "3.11.2"; empty: not known

  /// Since 2.52 Ray lets nobody in without its token.
  [[nodiscard]] bool has_tokens() const;
  /// "Ray 2.60.0 with Python 3.11.2".
  [[nodiscard]] std::string to_string() const;
  /// Whether both can be in one cluster, as Ray itself judges it.
  [[nodiscard]] bool fits(const Program& other) const;
};

/// The first `ray` in PATH. Its version comes from the Python in its first line where it has one, because `ray
/// --version` takes seconds. Errors: not_found, unavailable (it does not start).
[[nodiscard]] Result<Program> find_ray();

}  // namespace amldist::ray
