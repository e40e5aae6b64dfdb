#include "aml_run/job_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "aml_run/conda.hpp"
#include "aml_run/job_inputs.hpp"
#include "aml_run/launch_style.hpp"
#include "aml_run/yaml/yaml_reading.hpp"
#include "base/text/text.hpp"
#include "fabric/sku/sku_table.hpp"
#include "launch/frameworks/launchers.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using YamlKind = YamlValue::Kind;

std::string working_folder() {
  std::error_code ignored;
  return std::filesystem::current_path(ignored).string();
}

/// The GPUs of one of Azure's sizes, from the table that the fabric checks use. nullopt if it has no GPU, or is not
/// known.
std::optional<std::uint32_t> gpus_of(std::string_view size) {
  const auto found = fabric::find_sku(size);
  const bool known = found && *found && !(*found)->is_guessed && (*found)->gpus.value_or(0) > 0;
  return known ? (*found)->gpus : std::nullopt;
}

/// Seconds as Slurm writes a time: H:MM:SS.
std::string slurm_time(std::uint64_t seconds) {
  const auto two = [](std::uint64_t number) { return concat({number < 10 ? "0" : "", std::to_string(number)}); };
  return concat({two(seconds / 3600), ":", two(seconds / 60 % 60), ":", two(seconds % 60)});
}

/// Makes the plan of one job file, section by section.
class Translator {
 public:
  Translator(const std::string& file, std::string folder, const YamlValue& job, const JobFileOptions& options,
             const SiteTable& table)
      : file_(file),
        folder_(std::move(folder)),
        job_(job),
        options_(options),
        table_(table),
        bindings_(file, folder_, working_folder()) {
    bindings_.expect_later(options.made_later);
    bindings_.look_for_keys_in(options.root);
    bindings_.fetch_to(table.downloads);
    bindings_.know_assets([&table](std::string_view reference) {
      const DataAsset* const asset = find_asset(table, reference);
      return asset != nullptr ? std::optional(asset->path) : std::nullopt;
    });
    for (const auto& [expression, replacement] : options.further) bindings_.add(expression, replacement);
  }

  Result<Plan> translate() {
    plan_.source = file_;
    auto ignored = check_job(file_, job_);
    if (!ignored) return ignored.error();
    plan_.ignored = std::move(*ignored);
    using Step = Result<void> (Translator::*)();
    for (const Step step :
         {&Translator::about, &Translator::hardware, &Translator::code, &Translator::bindings, &Translator::variables,
          &Translator::software, &Translator::distribution, &Translator::limits}) {
      if (auto status = (this->*step)(); !status) return status.error();
    }
    if (auto status = mounts(); !status) return status.error();
    tracking();
    for (Ignored& each : bindings_.ignored()) plan_.ignored.push_back(std::move(each));
    std::ranges::stable_sort(plan_.ignored, {}, [](const Ignored& each) { return each.location.line; });
    plan_.outputs = bindings_.outputs();
    plan_.warnings = bindings_.warnings();
    if (!site_warning_.empty()) plan_.warnings.push_back(site_warning_);
    plan_.job.merge(options_.job);
    if (options_.job.has("chdir"))
      plan_.work.path = (std::filesystem::path(working_folder()) / options_.job.value_of("chdir")).string();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] const YamlValue* find(std::string_view section, std::string_view key) const {
    const YamlValue* const map = job_.find(section);
    return map != nullptr ? map->find(key) : nullptr;
  }
  /// A number that was checked against the table of keys.
  [[nodiscard]] std::uint32_t number_of(std::string_view section, std::string_view key, std::uint32_t otherwise) const {
    const YamlValue* const value = find(section, key);
    if (value == nullptr) return otherwise;
    return static_cast<std::uint32_t>(text::to_number(value->text, UINT32_MAX).value_or(otherwise));
  }
  [[nodiscard]] Error wrong(const YamlValue* value, std::string_view sentence,
                            Errc code = Errc::invalid_argument) const {
    return error_at(file_, value != nullptr ? value->location : SourceLocation{1, 1}, sentence, code);
  }
  void ignore(std::string_view path, const YamlValue& value, std::string_view why) {
    plan_.ignored.push_back({std::string(path), value.location, std::string(why)});
  }

  Result<void> about() {
    std::string name = job_.text_of("display_name");
    if (name.empty()) name = job_.text_of("name");
    if (name.empty()) name = file_ == "-" ? "job" : std::filesystem::path(file_).stem().string();
    plan_.job.set("job-name", name);
    std::string comment;
    if (const auto experiment = job_.text_of("experiment_name"); !experiment.empty()) {
      comment = concat({"experiment: ", experiment});
    }
    if (const YamlValue* const tags = job_.find("tags")) {
      for (const YamlEntry& tag : tags->entries) {
        comment += concat({comment.empty() ? "" : "; ", tag.key, "=", tag.value.text});
      }
    }
    if (!comment.empty()) plan_.job.set("comment", comment);
    if (const auto description = job_.text_of("description"); !description.empty())
      plan_.heading.push_back(description);
    return {};
  }

  Result<void> hardware() {
    if (const YamlValue* const compute = job_.find("compute")) {
      if (const auto line = find_compute(table_, compute->text)) use(*line);
      else
        ignore("compute", *compute, "this cluster's tables do not list it: choose with --partition and --constraint");
      warn_of_gpus(compute->text);
    }
    const YamlValue* const type = find("resources", "instance_type");
    if (type == nullptr) return {};
    const auto line = find_instance_type(table_, type->text);
    if (!line) return wrong(type, line.error().message, line.error().code);
    if (*line) {
      use(**line);
    } else if (const auto gpus = gpus_of(type->text)) {
      plan_.job.set("gpus-per-node", std::to_string(*gpus));
      plan_.heading.push_back(concat({type->text, " has ", text::count(*gpus, "GPU"),
                                      ", which --gpus-per-node asks for; the kind of GPU is the cluster's."}));
    } else
      ignore("resources.instance_type", *type,
             "this machine has no table of instance types: choose with --partition, "
             "--constraint and --gpus-per-node");
    return {};
  }
  /// A compute whose name promises GPUs, which nothing asks for.
  void warn_of_gpus(const std::string& compute) {
    constexpr std::array<std::string_view, 8> words = {"gpu", "a100", "h100", "h200", "v100", "mi300", "nc", "nd"};
    const std::string name = text::to_lower(compute);
    const bool promises = std::ranges::any_of(words, [&](std::string_view word) {
      const auto at = name.find(word);
      return at != std::string::npos &&
             (word.size() > 2 || at == 0 || name.find("_" + std::string(word)) != std::string::npos);
    });
    const bool asks = find("resources", "instance_type") != nullptr ||
                      std::ranges::any_of(
                          std::array{"gpus-per-node", "gpus", "gpus-per-task", "gres", "tres-per-node"},
                          [&](const char* const option) { return plan_.job.has(option) || options_.job.has(option); });
    if (promises && !asks)
      site_warning_ =
          concat({"compute is ", quote(compute),
                  ", but the job requests no GPU: add --gpus-per-node=N, or resources: {instance_type: SIZE}"});
  }
  void use(const Hardware& line) {
    plan_.job.merge(line.options);
    if (!line.infiniband.empty()) infiniband_ = line.infiniband;
  }

  Result<void> code() {
    const YamlValue* const code = job_.find("code");
    if (code == nullptr) return {};
    if (is_remote(code->text)) {
      return wrong(code,
                   concat({"code is ", shell::quote_path(code->text),
                           ", which is out of reach: copy it to a folder that the nodes "
                           "share, and add --set code=FOLDER"}),
                   Errc::not_found);
    }
    const std::string folder = local_path(folder_, code->text);
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
      return wrong(code,
                   concat({"code is ", shell::quote_path(folder), ", which ",
                           ::stat(folder.c_str(), &info) == 0 ? "is not a folder" : "does not exist"}),
                   Errc::not_found);
    }
    plan_.job.set("chdir", folder);
    plan_.work.path = folder;
    bindings_.set_run_folder(folder);
    return {};
  }

  Result<void> bindings() {
    if (auto status = bindings_.read(job_); !status) return status.error();
    const YamlValue* const command = job_.find("command");
    if (command == nullptr || text::trim(command->text).empty()) {
      return wrong(command, "there is no command: add a line 'command: python train.py'");
    }
    if (command->text.find("$[[") != std::string::npos) {
      return wrong(command, "$[[...]] belongs to components: a command job writes the argument itself");
    }
    std::string_view text = command->text;
    while (text.ends_with('\n')) text.remove_suffix(1);
    auto line = bindings_.in_command(text, command->location, options_.literal);
    if (!line) return line.error();
    if (text::trim(line->text).empty()) return wrong(command, "the command is blank after its values are inserted");
    plan_.command = ShellLine{std::move(*line)};
    plan_.work.is_azures = true;
    return {};
  }

  /// The environment's image and conda file, as the administrator's table translates them.
  Result<void> software() {
    const YamlValue* const named = job_.find("environment");
    if (named == nullptr) return {};
    if (named->kind == YamlKind::map) return use_environment(*named, folder_);
    if (named->text.starts_with("file:")) return read_environment(*named);
    const RegisteredEnvironment* const known = find_environment(table_, named->text);
    if (known != nullptr) return use_environment(known->value, known->folder);
    ignore(
        "environment", *named,
        "an environment that is registered with Azure ML is not here: give environment.image, add it to environments: "
        "of the administrator's table, or prepare the software with --setup");
    return {};
  }

  /// environment: file:./environment.yml
  Result<void> read_environment(const YamlValue& named) {
    const std::string path = local_path(folder_, named.text);
    const auto content = commands::read_file(path, longest_yaml);
    if (!content)
      return error_at(file_, named.location, concat({"environment: ", content.error().message}), content.error().code);
    auto root = parse_yaml(path, *content);
    if (!root) return root.error();
    name_source(*root, path);
    if (root->find("image") == nullptr && root->find("conda_file") == nullptr && root->find("build") == nullptr)
      return error_at(file_, named.location, concat({shell::quote_path(path), " has neither image nor conda_file"}));
    return use_environment(*root, std::filesystem::path(path).parent_path().string());
  }

  Result<void> use_environment(const YamlValue& given, const std::string& folder) {
    const YamlValue* const environment = &given;
    const YamlValue* const image = environment->find("image");
    if (image != nullptr && table_.images.by == ImagePolicy::By::nothing) {
      ignore(
          "environment.image", *image,
          "the administrator's table does not say how images are run: prepare the software with --setup, or choose a "
          "container with your site's option");
    } else if (image != nullptr) {
      plan_.container = Container{image->text, table_.images, {}};
    }
    const YamlValue* const conda = environment->find("conda_file");
    if (conda == nullptr) return {};
    if (table_.conda.program.empty()) {
      ignore("environment.conda_file", *conda,
             "the administrator's table does not say how environments are made: prepare the software with --setup");
      return {};
    }
    auto text = conda_text(file_, folder, *conda);
    if (!text) return text.error();
    auto made = conda_environment(table_.conda, std::move(*text));
    if (!made) return error_at(file_, conda->location, made.error().message);
    plan_.conda = std::move(*made);
    return {};
  }

  /// Folders that the container must see besides the working folder.
  Result<void> mounts() {
    plan_.downloads = bindings_.downloads();
    if (!plan_.container) return {};
    std::vector<std::string>& mounts = plan_.container->mounts;
    mounts = bindings_.used_paths();
    for (const OutputFolder& output : bindings_.outputs()) {
      if (!output.path.empty())
        mounts.push_back(output.is_file ? std::filesystem::path(output.path).parent_path().string() : output.path);
    }
    if (plan_.conda) mounts.push_back(table_.conda.folder);
    for (const std::string& path : mounts) {
      if (path.find_first_of(":,") == std::string::npos) continue;
      return wrong(job_.find("environment"), concat({"a container cannot be given ", shell::quote_path(path),
                                                     ", since : and , end a path there: use another path"}));
    }
    return {};
  }

  Result<void> variables() {
    const YamlValue* const variables = job_.find("environment_variables");
    if (variables == nullptr) return {};
    for (const YamlEntry& entry : variables->entries) {
      if (!shell::is_name(entry.key)) {
        return error_at(file_, entry.location,
                        concat({quote(entry.key),
                                " is not a variable name: use letters, digits "
                                "and _"}));
      }
      auto value = bindings_.in_text(entry.value.text, entry.value.location);
      if (!value) return value.error();
      plan_.environment.push_back({entry.key, std::move(*value)});
    }
    return {};
  }

  [[nodiscard]] bool sets(std::string_view variable) const {
    return std::ranges::find(plan_.environment, variable, &Variable::name) != plan_.environment.end();
  }

  /// Azure ML names its own store and the experiment; names in the user's environment stay.
  void tracking() {
    plan_.tracking = Tracking{sets("MLFLOW_TRACKING_URI"), {}};
    if (!sets("MLFLOW_EXPERIMENT_NAME")) plan_.tracking->experiment = job_.text_of("experiment_name");
  }

  Result<void> distribution() {
    const std::uint32_t nodes = number_of("resources", "instance_count", 1);
    plan_.job.set("nodes", std::to_string(nodes));
    const YamlValue* const type = find("distribution", "type");
    if (job_.find("distribution") != nullptr && type == nullptr) {
      return wrong(job_.find("distribution"), "distribution has no type: add 'type: pytorch', mpi or tensorflow");
    }
    if (!options_.option.empty()) {
      plan_.option = options_.option;
      plan_.job.set("ntasks-per-node", std::to_string(number_of("distribution", "process_count_per_instance", 1)));
      return finish_option();
    }
    if (type == nullptr) return alone(nodes);
    const std::string kind = text::to_lower(type->text);
    if (auto status = check_distribution_keys(kind); !status) return status.error();
    plan_.option = kind;
    if (kind == "ray") return ray();
    if (kind == "tensorflow") return roles(nodes);
    const std::uint32_t processes = number_of("distribution", "process_count_per_instance", 1);
    plan_.job.set("ntasks-per-node", std::to_string(processes));
    if (kind == "mpi") plan_.step.set("mpi", "pmix");
    if (kind == "pytorch") {
      if (auto status = per_node(processes); !status) return status.error();
    }
    return finish_option();
  }

  /// Without a distribution: one process.
  Result<void> alone(std::uint32_t nodes) {
    plan_.job.set("ntasks", "1");
    if (nodes == 1) return {};
    return wrong(find("resources", "instance_count"),
                 concat({"instance_count is ", std::to_string(nodes),
                         " but there is no distribution, so one process would "
                         "run and the other nodes would idle: add distribution, or --kind"}));
  }

  Result<void> check_distribution_keys(std::string_view kind) {
    for (const YamlEntry& entry : job_.find("distribution")->entries) {
      const bool is_role = entry.key == "worker_count" || entry.key == "parameter_server_count";
      const bool is_process = entry.key == "process_count_per_instance";
      const bool is_rays = !is_role && !is_process && entry.key != "type";
      const bool fits = is_role   ? kind == "tensorflow"
                        : is_rays ? kind == "ray"
                                  : kind != "tensorflow" && kind != "ray";
      if (entry.key != "type" && !fits) {
        return error_at(file_, entry.location,
                        concat({"distribution.", entry.key, " does not exist for type ", kind, ": it takes ",
                                kind == "tensorflow" ? "worker_count and parameter_server_count"
                                : kind == "ray"      ? "port, address, include_dashboard, dashboard_port, "
                                                       "head_node_additional_args and worker_node_additional_args"
                                                     : "process_count_per_instance"}));
      }
    }
    return {};
  }

  /// One task on each node. Without a port the step has one of its own, as two jobs may share a node here.
  Result<void> ray() {
    plan_.job.set("ntasks-per-node", "1");
    const auto text = [this](std::string_view key) {
      const YamlValue* const value = find("distribution", key);
      return value == nullptr ? std::string() : value->text;
    };
    const std::string address = text("address") == "auto" ? "" : text("address");  // HOST or, as Ray has it, HOST:PORT
    const std::size_t colon = std::min(address.find(':'), address.size());
    const std::string port =
        find("distribution", "port") == nullptr ? address.substr(std::min(colon + 1, address.size())) : text("port");
    if (colon > 0) plan_.option += concat({",master_addr=", address.substr(0, colon)});
    if (!port.empty()) plan_.option += concat({",master_port=", port});
    plan_.ray = RayCluster{std::nullopt, text("head_node_additional_args"), text("worker_node_additional_args")};
    if (text::to_lower(text("include_dashboard")) == "true") plan_.ray->dashboard = text("dashboard_port");
    return finish_option();
  }

  Result<void> roles(std::uint32_t nodes) {
    const std::uint32_t workers = number_of("distribution", "worker_count", nodes);
    const std::uint32_t servers = number_of("distribution", "parameter_server_count", 0);
    const std::uint64_t tasks = std::uint64_t{workers} + servers;
    if (workers == 0) return wrong(find("distribution", "worker_count"), "worker_count is 0: no task would train");
    if (tasks < nodes) {
      return wrong(find("resources", "instance_count"),
                   concat({"instance_count is ", std::to_string(nodes),
                           " but the roles (worker_count and parameter_server_count) add up to ",
                           text::count(tasks, "task"), ": use at most ", text::count(tasks, "node")}));
    }
    plan_.job.set("ntasks", std::to_string(tasks));
    plan_.option += concat({",worker_count=", std::to_string(workers)});
    if (servers > 0) plan_.option += concat({",parameter_server_count=", std::to_string(servers)});
    // As Azure ML does: workers on different nodes first, then servers, again from the first node.
    if (tasks > nodes) plan_.step.set("distribution", "cyclic");
    return finish_option();
  }

  /// A command that starts torchrun or a similar launcher on each node, as Azure ML's "per-node launch" does.
  Result<void> per_node(std::uint32_t processes) {
    const std::string_view line = std::get<ShellLine>(plan_.command).line.text;
    const auto launcher = launch::find_launcher(line);
    if (!launcher || launcher->reach != launch::LauncherReach::node) return {};
    if (processes > 1) {
      return wrong(find("distribution", "process_count_per_instance"),
                   concat({"process_count_per_instance is ", std::to_string(processes), " and the command starts ",
                           launcher->name,
                           ", which starts the processes of a node itself: leave process_count_per_instance out"}));
    }
    if (!reads_rank_variables(line)) plan_.option += ",launch=per-node";
    return {};
  }

  Result<void> finish_option() {
    if (!infiniband_.empty() && plan_.option != "none") plan_.option += concat({",rdma=", infiniband_});
    return {};
  }

  Result<void> limits() {
    if (find("limits", "timeout") != nullptr) plan_.job.set("time", slurm_time(number_of("limits", "timeout", 0)));
    const YamlValue* const tier = find("queue_settings", "job_tier");
    if (tier != nullptr && text::to_lower(tier->text) == "spot") plan_.job.set("requeue");
    if (const YamlValue* const retries = find("retry_settings", "max_retries"))
      plan_.keep.set("retries", retries->text);
    return {};
  }

  const std::string& file_;
  std::string folder_;
  const YamlValue& job_;
  const JobFileOptions& options_;
  const SiteTable& table_;
  Bindings bindings_;
  Plan plan_;
  std::string infiniband_;
  std::string site_warning_;
};

}  // namespace

std::string folder_of(const std::string& file) {
  std::error_code ignored;
  auto whole = std::filesystem::absolute(file, ignored);
  return whole.parent_path().lexically_normal().string();
}

Result<Plan> plan_job(const std::string& file, const std::string& folder, const YamlValue& job,
                      const JobFileOptions& options, const SiteTable& table) {
  return Translator(file, folder, job, options, table).translate();
}

namespace {

Result<std::string> read_standard_input() {
  std::string out;
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count == 0) return out;
    if (count < 0 && errno != EINTR) return Error{Errc::unavailable, "standard input cannot be read"};
    if (count > 0) out.append(buffer.data(), static_cast<std::size_t>(count));
    // parse_yaml() reports that it is too long
    if (out.size() > longest_yaml) return out;
  }
}

}  // namespace

Result<YamlValue> read_job_file(const std::string& file) {
  const auto content = file == "-" ? read_standard_input() : commands::read_file(file, longest_yaml);
  if (!content) return content.error();
  auto root = parse_yaml(file == "-" ? "standard input" : file, *content);
  if (root) read_numbers(*root);
  return root;
}

}  // namespace amldist::run
