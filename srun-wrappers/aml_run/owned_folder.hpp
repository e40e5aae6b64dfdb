// Folders of the user in places that others can write to (/tmp, a project's folder, a site's folder for downloads).
// Every component below such a place is opened without following links, and must belong to the user or to root and not
// be writable for others, before anything below it is trusted. Then no other user can replace its content later, so
// that its path may be used, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

class OwnedFolder {
 public:
  enum class Missing { fails, is_made };

  /// The folder `below`, a relative path, in `place`, which was named by a person: links in it are followed, and it is
  /// used as it is. Errors: not_found (with Missing::fails), unavailable (it belongs to another user, is a link, or is
  /// writable for others).
  [[nodiscard]] static Result<OwnedFolder> open(const std::string& place, std::string_view below, Missing missing);

  /// The same for a folder that aml-run made: the place is the part before the last "aml-runs" in its path, or its
  /// parent.
  [[nodiscard]] static Result<OwnedFolder> open(const std::string& folder, Missing missing = Missing::fails);

  /// A folder in this one.
  [[nodiscard]] Result<OwnedFolder> enter(std::string_view below, Missing missing) const;
  /// A new folder in this one. Errors: invalid_argument if it exists.
  [[nodiscard]] Result<OwnedFolder> make(const std::string& name) const;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool has(const std::string& name) const;
  /// A regular file of at most `limit` bytes. Errors: not_found, limit, unavailable.
  [[nodiscard]] Result<std::string> read(const std::string& name, std::size_t limit) const;
  /// Writes a whole file in one go, so that a reader sees the old one or the new one. Errors: unavailable.
  [[nodiscard]] Result<void> write(const std::string& name, std::string_view content) const;
  /// Writes a new file. false if it exists.
  [[nodiscard]] bool create(const std::string& name, std::string_view content) const;
  void remove(const std::string& name) const;

 private:
  OwnedFolder(std::string path, FileDescriptor folder) : path_(std::move(path)), folder_(std::move(folder)) {}
  [[nodiscard]] Result<OwnedFolder> enter_one(const std::string& name, Missing missing) const;

  std::string path_;
  FileDescriptor folder_;
};

/// Starts the record of a job's end (step/messages/job_record.hpp) in a file of the user. Called by the job's script;
/// returns the exit status.
[[nodiscard]] int begin_record(const std::string& path, const std::string& line);

/// A regular file of the user; `path` must not end in a link. nullopt if it is not one, or longer than `limit`.
[[nodiscard]] std::optional<std::string> read_own_file(const std::string& path, std::size_t limit);

}  // namespace amldist::run
