#include "aml_run/settings.hpp"

#include <array>

namespace amldist::run {
namespace {

constexpr auto table = std::to_array<SettingDescription>({
    {variable::instance_types, "`aml-run`", "path", "the site's table",
     "table of instance types, where `--instance-types` is not given"},
});

}  // namespace

std::span<const SettingDescription> setting_descriptions() noexcept { return table; }

}  // namespace amldist::run
