// Blobs for tests: content that depends on a seed, and whole blobs in and out of a store.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/partition_server/blob_store.h"

namespace weft::testing {

// Bytes that depend on `seed`.
inline std::string Content(int seed, int64_t bytes) {
  std::string content(static_cast<size_t>(bytes), '\0');
  uint64_t x = static_cast<uint64_t>(seed) + 1;
  for (char& c : content) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(x >> 56);
  }
  return content;
}

inline absl::string_view SegmentOf(const std::string& content, int64_t index) {
  return absl::string_view(content).substr(
      static_cast<size_t>(index * kSegmentBytes),
      static_cast<size_t>(SegmentBytes(static_cast<int64_t>(content.size()), index)));
}

inline BlobInfo InfoOf(const std::string& content) {
  const auto bytes = static_cast<int64_t>(content.size());
  std::vector<uint64_t> checksums;
  for (int64_t i = 0; i < NumSegments(bytes); ++i) {
    checksums.push_back(SegmentChecksum({SegmentOf(content, i)}));
  }
  return {bytes, BlobChecksum(bytes, checksums)};
}

inline absl::Status AppendSegment(BlobUpload* upload, const std::string& content, int64_t index) {
  const absl::string_view segment = SegmentOf(content, index);
  return upload->Append(index, SegmentChecksum({segment}), {segment});
}

inline absl::Status AppendAll(BlobUpload* upload, const std::string& content) {
  for (int64_t i = 0; i < NumSegments(static_cast<int64_t>(content.size())); ++i) {
    const absl::Status status = AppendSegment(upload, content, i);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

inline absl::Status Put(BlobStore* store, const ShardName& name, const std::string& content) {
  const auto upload = store->BeginUpload(name, InfoOf(content));
  if (!upload.ok()) return upload.status();
  const absl::Status status = AppendAll(upload->get(), content);
  return status.ok() ? (*upload)->Publish() : status;
}

inline absl::StatusOr<std::string> Get(BlobStore* store, const ShardName& name) {
  const auto reader = store->OpenReader(name);
  if (!reader.ok()) return reader.status();
  std::string content;
  for (int64_t i = 0; i < reader->num_segments(); ++i) {
    const auto segment = reader->Read(i);
    if (!segment.ok()) return segment.status();
    EXPECT_EQ(SegmentChecksum({segment->bytes}), reader->checksum(i));
    content.append(segment->bytes.data(), segment->bytes.size());
  }
  EXPECT_EQ(InfoOf(content), reader->info());
  return content;
}

}  // namespace weft::testing
