// Small files and durable publication: write aside, fsync, rename, fsync the folder.
//
// Errors: NotFound for a missing file, ResourceExhausted for a full disk, PermissionDenied, else
// Internal; the message names the path and the cause.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// The Status of errno `error` for `what` ("cannot open PATH").
absl::Status ErrnoStatus(int error, std::string_view what);

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Readers see the old contents or the new, after a crash too.
absl::Status WriteFileAtomically(const std::string& path, std::string_view contents);

absl::Status SyncFile(const std::string& path);       // fsync of a file written by somebody else
absl::Status SyncDirectory(const std::string& path);  // makes renames and links in it durable
absl::Status RenameDurably(const std::string& from, const std::string& to);
absl::Status MakeDirectories(const std::string& path);

// Removes what writers that were killed left in `folder`: files named NAME.tmp.PID. The caller
// keeps other writers away.
absl::Status RemoveLeftovers(const std::string& folder);

// Makes `to` a second name of the file `from` (a hard link), in place of what `to` was, at once.
// Where the file system has no hard links, a synced copy. Durable after SyncDirectory.
absl::Status LinkFile(const std::string& from, const std::string& to);

}  // namespace weft
