// This node's part of the cluster: `ray start --block` and its processes, in a folder of their own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aml_dist/common/locked_folder.hpp"
#include "aml_dist/ray/family.hpp"
#include "aml_dist/ray/stopped_process.hpp"
#include "base/os/child_process.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::ray {

class LocalRay {
 public:
  /// Errors: unavailable, internal.
  [[nodiscard]] static Result<LocalRay> start(const std::vector<std::string>& command,
                                              std::vector<std::string> environment, tools::LockedFolder folder);

  /// Whether it has joined the cluster.
  [[nodiscard]] bool has_joined();
  /// Why it ended; nullopt: it runs. One that gives up after Ray's own 30 s, as where the file system is cold, is
  /// started again.
  [[nodiscard]] std::optional<std::string> end();
  /// The process of `ray start`; -1: its end has been taken.
  [[nodiscard]] pid_t id() const noexcept { return child_.id(); }
  [[nodiscard]] tools::LockedFolder& folder() noexcept { return folder_; }

 private:
  LocalRay(Member member, ChildProcess child, FileDescriptor output, tools::LockedFolder folder)
      : member_(std::move(member)), child_(std::move(child)), output_(std::move(output)), folder_(std::move(folder)) {}

  /// Whether it has been started again.
  [[nodiscard]] bool try_again();
  [[nodiscard]] std::string output() const;

  Member member_;
  ChildProcess child_;
  FileDescriptor output_;  ///< in memory: the disk may be full
  tools::LockedFolder folder_;
  StoppedProcess stopped_;
  bool has_joined_ = false;
  int attempts_ = 1;
};

/// What `ray start` says about its end: the processes that died, or the last line; empty: nothing. Pure.
[[nodiscard]] std::string reason_in(std::string_view output);

}  // namespace amldist::ray
