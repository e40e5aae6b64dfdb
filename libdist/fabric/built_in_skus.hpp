// The text of skus.conf, compiled in: the tool works without an installation, and the plugin without a file.
#pragma once

#include <string_view>

namespace amldist::fabric {

extern const std::string_view built_in_skus;

}  // namespace amldist::fabric
