// The text of skus.conf, compiled in, so that the tool works uninstalled and the plugin reads no file.
#pragma once

#include <string_view>

namespace amldist::fabric {

extern const std::string_view built_in_skus;

}  // namespace amldist::fabric
