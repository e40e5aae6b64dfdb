#include "aml_run/sweep/sweep_file.hpp"

#include <algorithm>
#include <cstdlib>

#include "aml_run/components/component.hpp"
#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using YamlKind = YamlValue::Kind;

constexpr std::string_view sweep_keys =
    "$schema type name display_name experiment_name description tags trial inputs outputs compute limits "
    "sampling_algorithm search_space objective identity early_termination resources queue_settings services properties "
    "id status creation_context component environment_variables";
constexpr std::string_view limit_keys = "max_total_trials max_concurrent_trials timeout trial_timeout max_trials";
constexpr std::string_view objective_keys = "goal primary_metric";
/// Keys of the sweep that also apply to each of its trials.
constexpr std::string_view handed_on =
    "name display_name experiment_name description tags compute identity resources queue_settings services inputs";

class SweepReader {
 public:
  SweepReader(const std::string& file, const std::string& folder, const YamlValue& root)
      : file_(file), folder_(folder), root_(root) {}

  Result<Sweep> read() {
    if (auto status = check_keys(root_, sweep_keys, "a sweep"); !status) return status.error();
    using Step = Result<void> (SweepReader::*)();
    for (const Step step : {&SweepReader::space, &SweepReader::objective, &SweepReader::limits, &SweepReader::sampling,
                            &SweepReader::termination, &SweepReader::trial}) {
      if (auto status = (this->*step)(); !status) return status.error();
    }
    return std::move(sweep_);
  }

 private:
  [[nodiscard]] Error wrong(const YamlValue* value, std::string_view sentence,
                            Errc code = Errc::invalid_argument) const {
    return error_at(file_, value != nullptr ? value->location : root_.location, sentence, code);
  }

  Result<void> check_keys(const YamlValue& map, std::string_view keys, std::string_view where) const {
    const auto known = text::split(keys, ' ');
    for (const YamlEntry& entry : map.entries) {
      if (std::ranges::find(known, entry.key) != known.end()) continue;
      const auto near = text::nearest(entry.key, known);
      return error_at(file_, entry.location,
                      concat({"unknown key ", quote(entry.key), " in ", where,
                              near ? concat({": did you mean '", *near, "'?"}) : std::string()}));
    }
    return {};
  }

  Result<void> space() {
    const YamlValue* const value = root_.find("search_space");
    if (value == nullptr) return wrong(nullptr, "a sweep has a search_space: write its parameters below it");
    auto space = read_search_space(file_, *value);
    if (!space) return space.error();
    sweep_.space = std::move(*space);
    return {};
  }

  Result<void> objective() {
    const YamlValue* const value = root_.find("objective");
    if (value == nullptr || value->kind != YamlKind::map)
      return wrong(value, "a sweep has an objective: give goal and primary_metric");
    if (auto status = check_keys(*value, objective_keys, "objective"); !status) return status;
    const std::string goal = text::to_lower(value->text_of("goal"));
    if (goal != "minimize" && goal != "maximize")
      return wrong(value->find("goal"),
                   concat({"invalid value ", quote(goal), " for objective.goal: use minimize or maximize"}));
    sweep_.maximize = goal == "maximize";
    sweep_.metric = value->text_of("primary_metric");
    if (sweep_.metric.empty())
      return wrong(value, "objective has no primary_metric: give the name under which the trials log it");
    return {};
  }

  Result<void> limits() {
    const YamlValue* const value = root_.find("limits");
    if (value == nullptr) return {};
    if (value->kind != YamlKind::map) return wrong(value, "limits is not a map: write 'key: value' lines below it");
    if (auto status = check_keys(*value, limit_keys, "limits"); !status) return status;
    const auto read = [&](std::string_view key, std::uint64_t& to, std::uint64_t most) -> Result<void> {
      const YamlValue* const limit = value->find(key);
      if (limit == nullptr) return {};
      const auto number = text::to_number(limit->text, most);
      if (!number || *number == 0)
        return wrong(limit, concat({"invalid value ", quote(limit->text), " for limits.", key,
                                    ": use a whole number, 1 to ", std::to_string(most)}));
      to = *number;
      return {};
    };
    std::uint64_t concurrent = 0;
    for (const auto& [key, to, most] :
         {std::tuple<std::string_view, std::uint64_t*, std::uint64_t>{"max_total_trials", &count_, most_trials},
          {"max_trials", &count_, most_trials},
          {"max_concurrent_trials", &concurrent, most_trials},
          {"timeout", &sweep_.timeout_seconds, 31'536'000},
          {"trial_timeout", &trial_seconds_, 31'536'000}}) {
      if (auto status = read(key, *to, most); !status) return status;
    }
    sweep_.concurrent = static_cast<std::uint32_t>(concurrent);
    return {};
  }

  Result<void> sampling() {
    const YamlValue* const value = root_.find("sampling_algorithm");
    std::string name = "random";
    std::uint64_t seed = 0;
    const YamlValue* named = value;
    if (value != nullptr && value->kind == YamlKind::map) {
      if (auto status = check_keys(*value, "type seed rule logbase", "sampling_algorithm"); !status) return status;
      named = value->find("type");
      if (const YamlValue* const given = value->find("seed")) {
        const auto number = text::to_number(given->text, UINT64_MAX);
        if (!number)
          return wrong(given, concat({"invalid value ", quote(given->text),
                                      " for sampling_algorithm.seed: use a whole number"}));
        seed = *number;
      }
    }
    if (named != nullptr) name = text::to_lower(named->text);
    if (value != nullptr && text::to_lower(value->text_of("rule")) == "sobol") name = "sobol";
    if (name == "bayesian") {
      return wrong(named,
                   "sampling_algorithm bayesian is not supported, since each trial would wait for the ones before it: "
                   "use random, sobol or grid");
    }
    const bool known = name == "grid" || name == "random" || name == "sobol";
    if (!known)
      return wrong(named,
                   concat({"invalid value ", quote(name), " for sampling_algorithm: use grid, random or sobol"}));
    const Sampling how = name == "grid" ? Sampling::grid : name == "sobol" ? Sampling::sobol : Sampling::random;
    if (how != Sampling::grid && count_ == 0)
      return wrong(root_.find("limits"), "limits.max_total_trials is not given: say how many trials there are");
    const std::uint32_t count = count_ == 0 ? most_trials + 1 : static_cast<std::uint32_t>(count_);
    auto trials = sample(sweep_.space, how, count, seed);
    if (!trials) return wrong(named != nullptr ? named : value, trials.error().message, trials.error().code);
    sweep_.trials = std::move(*trials);
    return {};
  }

  Result<void> termination() {
    const YamlValue* const value = root_.find("early_termination");
    if (value == nullptr) return {};
    auto policy = read_termination(file_, *value);
    if (!policy) return policy.error();
    sweep_.policy = *policy;
    return {};
  }

  Result<void> trial() {
    const YamlValue* const reference = root_.find("trial");
    if (reference == nullptr) return wrong(nullptr, "a sweep has a trial: write its command below it");
    auto component = load_component(file_, folder_, "trial", *reference);
    if (!component) return component.error();
    YamlValue job = YamlValue::map(root_.location);
    const auto of_trials = text::split(handed_on, ' ');
    for (const YamlEntry& entry : root_.entries) {
      if (std::ranges::find(of_trials, entry.key) != of_trials.end()) job.entries.push_back(entry);
    }
    if (auto status = outputs(job); !status) return status;
    make_paths_absolute(job, folder_);
    auto bound = component->root.find("inputs") != nullptr
                     ? bind_component(file_, *component, job, root_.find("search_space"))
                     : Result<YamlValue>(inline_job(*component, job));
    if (!bound) return bound.error();
    const std::uint64_t seconds = trial_seconds_ != 0 ? trial_seconds_ : sweep_.timeout_seconds;
    if (seconds != 0) {
      YamlValue limits = YamlValue::map(root_.location);
      limits.put("timeout", YamlValue::scalar(std::to_string(seconds), root_.location, true));
      bound->put("limits", std::move(limits));
    }
    sweep_.job = std::move(*bound);
    return {};
  }

  /// A trial without inputs of its own uses the sweep's.
  static YamlValue inline_job(const Component& component, const YamlValue& job) {
    YamlValue out = component.root;
    make_paths_absolute(out, component.folder);
    for (const char* const key : {"$schema", "type", "name", "version"}) out.erase(key);
    for (const YamlEntry& entry : job.entries) {
      const YamlValue* const below = out.find(entry.key);
      if (below == nullptr || below->kind != YamlKind::map || entry.value.kind != YamlKind::map) {
        out.put(entry.key, entry.value);
        continue;
      }
      YamlValue merged = *below;
      for (const YamlEntry& over : entry.value.entries) merged.put(over.key, over.value);
      out.put(entry.key, std::move(merged));
    }
    return out;
  }

  /// Each trial has outputs of its own; a path says where the best one's must appear.
  Result<void> outputs(YamlValue& job) {
    const YamlValue* const given = root_.find("outputs");
    if (given == nullptr) return {};
    YamlValue own = *given;
    for (YamlEntry& entry : own.entries) {
      if (const YamlValue* const path = entry.value.find("path")) sweep_.outputs.emplace(entry.key, path->text);
      entry.value.erase("path");
    }
    job.put("outputs", std::move(own));
    return {};
  }

  const std::string& file_;
  const std::string& folder_;
  const YamlValue& root_;
  std::uint64_t count_ = 0;
  std::uint64_t trial_seconds_ = 0;
  Sweep sweep_;
};

}  // namespace

Result<Sweep> read_sweep(const std::string& file, const std::string& folder, const YamlValue& root) {
  return SweepReader(file, folder, root).read();
}

}  // namespace amldist::run
