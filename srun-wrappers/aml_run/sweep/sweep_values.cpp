#include "aml_run/sweep/sweep_values.hpp"

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

std::string variable_of(const Parameter& parameter) { return text::concat({"AML_PARAMETER_", parameter.name}); }

/// A value with characters that are special to bash, if there is one: for a warning.
std::string example_of(const SweepPlace::Parameter& parameter) {
  for (const std::string& value : parameter.values) {
    if (!what_bash_does({Replacement::Form::text, value}, '\0', '\0').empty()) return value;
  }
  return parameter.values.empty() ? std::string() : parameter.values.front();
}

}  // namespace

std::vector<std::pair<std::string, Replacement>> parameter_expressions(const Sweep& sweep) {
  std::vector<std::pair<std::string, Replacement>> out;
  const auto parameters = parameters_of(sweep);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = sweep.space[i].name;
    const Replacement value{Replacement::Form::late_text, example_of(parameters[i]), parameters[i].name};
    out.emplace_back("search_space." + name, value);
    const YamlValue* const inputs = sweep.job.find("inputs");
    if (inputs == nullptr || inputs->find(name) == nullptr) out.emplace_back("inputs." + name, value);
  }
  return out;
}

std::vector<SweepPlace::Parameter> parameters_of(const Sweep& sweep) {
  std::vector<SweepPlace::Parameter> out;
  for (std::size_t i = 0; i < sweep.space.size(); ++i) {
    SweepPlace::Parameter& parameter = out.emplace_back(SweepPlace::Parameter{variable_of(sweep.space[i]), {}});
    for (const Trial& trial : sweep.trials) parameter.values.push_back(trial[i]);
  }
  return out;
}

}  // namespace amldist::run
