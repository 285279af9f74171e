#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/hdf5_file.h"
#include "graph/hdf5_handle.h"
#include "graph/hdf5_output.h"
#include "services/common/check.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {

using hdf5::Handle;
using hdf5::LastError;

namespace {

constexpr int64_t kChunkElements = 65536;

hid_t ElementType(bool is_float) { return is_float ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT64; }
size_t ElementSize(bool is_float) { return is_float ? sizeof(float) : sizeof(int64_t); }

// A data set that grows. It becomes a data set of the file with its first whole chunk, or at the
// end, when its size is known.
struct Appendable {
  bool is_float = false;
  Handle dataset;
  int64_t in_file = 0;        // elements, whole chunks
  std::vector<char> pending;  // less than a chunk
};

}  // namespace

struct Hdf5Writer::Impl {
  std::string path;
  std::string aside;  // empty when nothing is to be removed
  hdf5::Hdf5Output output;
  Handle file;
  std::set<std::string, std::less<>> groups;
  std::map<std::string, Appendable, std::less<>> appendables;
  std::map<std::string, Handle, std::less<>> opaque;

  ~Impl() {
    Close();
    if (!aside.empty()) unlink(aside.c_str());
  }

  bool Close() {
    appendables.clear();
    opaque.clear();
    return file.Close();
  }

  // The failure of a write that HDF5 was not told of.
  absl::Status Written() const {
    if (output.error() == 0) return absl::OkStatus();
    return ErrnoStatus(output.error(), absl::StrCat("cannot write ", path));
  }

  absl::Status Failed(absl::string_view what) const {
    WEFT_RETURN_IF_ERROR(Written());
    return LastError(absl::StatusCode::kInternal, absl::StrCat("cannot write ", path, ": ", what));
  }

  // HDF5's own creation of intermediate groups would not track the order in them.
  absl::Status MakeGroups(std::string_view dataset) {
    for (size_t at = dataset.find('/'); at != std::string_view::npos;
         at = dataset.find('/', at + 1)) {
      const std::string group(dataset.substr(0, at));
      if (groups.contains(group)) continue;
      const Handle properties(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
      H5Pset_link_creation_order(properties.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
      const Handle made(
          H5Gcreate2(file.get(), group.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
          H5Gclose);
      if (!made.ok()) return Failed(absl::StrCat("group ", group));
      groups.insert(group);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Handle> CreateDataset(const std::string& name, hid_t type,
                                       std::span<const hsize_t> shape, bool chunked) {
    WEFT_RETURN_IF_ERROR(MakeGroups(name));
    const std::vector<hsize_t> unlimited(shape.size(), H5S_UNLIMITED);
    const Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(),
                                        chunked ? unlimited.data() : nullptr),
                       H5Sclose);
    const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    // Every element is written: no time for fill values.
    H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER);
    // No time of day in the file: equal data are equal bytes.
    H5Pset_obj_track_times(properties.get(), false);
    if (chunked) {
      const hsize_t chunk = kChunkElements;
      H5Pset_chunk(properties.get(), 1, &chunk);
    }
    Handle dataset(H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT,
                              properties.get(), H5P_DEFAULT),
                   H5Dclose);
    if (!dataset.ok()) return Failed(absl::StrCat("data set ", name));
    return dataset;
  }

  absl::Status Extend(const std::string& name, Appendable* a, int64_t size) {
    const hsize_t extent = static_cast<hsize_t>(size);
    if (H5Dset_extent(a->dataset.get(), &extent) < 0) {
      return Failed(absl::StrCat("data set ", name));
    }
    return absl::OkStatus();
  }

  // Past HDF5's chunk cache: the chunk is written once and is not looked at again.
  absl::Status WriteChunk(const std::string& name, Appendable* a, const char* chunk) {
    if (!a->dataset.ok()) {
      const hsize_t none = 0;
      WEFT_ASSIGN_OR_RETURN(a->dataset,
                            CreateDataset(name, ElementType(a->is_float), {&none, 1}, true));
    }
    WEFT_RETURN_IF_ERROR(Extend(name, a, a->in_file + kChunkElements));
    const hsize_t offset = static_cast<hsize_t>(a->in_file);
    if (H5Dwrite_chunk(a->dataset.get(), H5P_DEFAULT, /*filters=*/0, &offset,
                       kChunkElements * ElementSize(a->is_float), chunk) < 0) {
      return Failed(absl::StrCat("data set ", name));
    }
    a->in_file += kChunkElements;
    return Written();
  }

  absl::Status AppendBytes(const std::string& name, bool is_float, const char* data, size_t size) {
    hdf5::Quiet();
    const auto found = appendables.find(name);
    WEFT_CHECK(found != appendables.end() && found->second.is_float == is_float);
    Appendable& a = found->second;
    const size_t chunk_bytes = kChunkElements * ElementSize(is_float);
    while (size > 0) {
      if (a.pending.empty() && size >= chunk_bytes) {
        WEFT_RETURN_IF_ERROR(WriteChunk(name, &a, data));
        data += chunk_bytes;
        size -= chunk_bytes;
        continue;
      }
      const size_t take = std::min(size, chunk_bytes - a.pending.size());
      a.pending.insert(a.pending.end(), data, data + take);
      data += take;
      size -= take;
      if (a.pending.size() == chunk_bytes) {
        WEFT_RETURN_IF_ERROR(WriteChunk(name, &a, a.pending.data()));
        a.pending.clear();
      }
    }
    return absl::OkStatus();
  }

  absl::Status FinishAppendable(const std::string& name, Appendable* a) {
    const int64_t left = static_cast<int64_t>(a->pending.size() / ElementSize(a->is_float));
    if (a->dataset.ok()) {
      if (left == 0) return absl::OkStatus();
      const int64_t total = a->in_file + left;
      a->pending.resize(kChunkElements * ElementSize(a->is_float));
      WEFT_RETURN_IF_ERROR(WriteChunk(name, a, a->pending.data()));
      return Extend(name, a, total);
    }
    const hsize_t extent = static_cast<hsize_t>(left);
    const hid_t type = ElementType(a->is_float);
    WEFT_ASSIGN_OR_RETURN(a->dataset, CreateDataset(name, type, {&extent, 1}, false));
    if (left > 0 &&
        H5Dwrite(a->dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, a->pending.data()) < 0) {
      return Failed(absl::StrCat("data set ", name));
    }
    return absl::OkStatus();
  }

  absl::Status WriteAttribute(const std::string& object, const std::string& name, hid_t type,
                              const void* value) {
    hdf5::Quiet();
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const Handle attribute(H5Acreate_by_name(file.get(), object.c_str(), name.c_str(), type,
                                             space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose);
    if (!attribute.ok() || H5Awrite(attribute.get(), type, value) < 0) {
      return Failed(absl::StrCat("attribute ", name, " of ", object));
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<Hdf5Writer> Hdf5Writer::Create(const std::string& path) {
  hdf5::Quiet();
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  const std::string aside = absl::StrCat(path, ".tmp.", getpid());
  WEFT_RETURN_IF_ERROR(impl->output.Open(aside));
  impl->aside = aside;
  const Handle access = impl->output.FileAccess();
  impl->file = Handle(H5Fcreate(aside.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  if (!impl->file.ok()) return impl->Failed("creating");
  return Hdf5Writer(std::move(impl));
}

Hdf5Writer::Hdf5Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Hdf5Writer::~Hdf5Writer() = default;
Hdf5Writer::Hdf5Writer(Hdf5Writer&&) noexcept = default;
Hdf5Writer& Hdf5Writer::operator=(Hdf5Writer&&) noexcept = default;

absl::Status Hdf5Writer::Write(const std::string& dataset, std::span<const int64_t> shape,
                               std::span<const float> values) {
  hdf5::Quiet();
  const std::vector<hsize_t> extent(shape.begin(), shape.end());
  WEFT_ASSIGN_OR_RETURN(const Handle made,
                        impl_->CreateDataset(dataset, H5T_NATIVE_FLOAT, extent, false));
  if (!values.empty() &&
      H5Dwrite(made.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    return impl_->Failed(absl::StrCat("data set ", dataset));
  }
  return impl_->Written();
}

absl::Status Hdf5Writer::CreateAppendable(const std::string& dataset, bool is_float) {
  impl_->appendables[dataset].is_float = is_float;
  return absl::OkStatus();
}

absl::Status Hdf5Writer::Append(const std::string& dataset, std::span<const int64_t> values) {
  return impl_->AppendBytes(dataset, /*is_float=*/false,
                            reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

absl::Status Hdf5Writer::Append(const std::string& dataset, std::span<const float> values) {
  return impl_->AppendBytes(dataset, /*is_float=*/true,
                            reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

absl::Status Hdf5Writer::CreateOpaque(const std::string& dataset, int64_t size) {
  hdf5::Quiet();
  const Handle type(H5Tcreate(H5T_OPAQUE, 1), H5Tclose);  // untagged: h5py's V1
  const hsize_t extent = static_cast<hsize_t>(size);
  WEFT_ASSIGN_OR_RETURN(impl_->opaque[dataset],
                        impl_->CreateDataset(dataset, type.get(), {&extent, 1}, false));
  return absl::OkStatus();
}

absl::Status Hdf5Writer::WriteOpaque(const std::string& dataset, int64_t begin,
                                     std::string_view bytes) {
  hdf5::Quiet();
  const auto found = impl_->opaque.find(dataset);
  WEFT_CHECK(found != impl_->opaque.end());
  const hid_t id = found->second.get();
  if (bytes.empty()) return absl::OkStatus();
  const hsize_t start = static_cast<hsize_t>(begin);
  const hsize_t count = bytes.size();
  const Handle type(H5Dget_type(id), H5Tclose);
  const Handle file_space(H5Dget_space(id), H5Sclose);
  const Handle memory_space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  if (H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr) < 0 ||
      H5Dwrite(id, type.get(), memory_space.get(), file_space.get(), H5P_DEFAULT, bytes.data()) <
          0) {
    return impl_->Failed(absl::StrCat("data set ", dataset));
  }
  return impl_->Written();
}

absl::Status Hdf5Writer::IntAttribute(const std::string& object, const std::string& name,
                                      int64_t value) {
  return impl_->WriteAttribute(object, name, H5T_NATIVE_INT64, &value);
}

absl::Status Hdf5Writer::StringAttribute(const std::string& object, const std::string& name,
                                         const std::string& value) {
  hdf5::Quiet();
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const char* text = value.c_str();
  return impl_->WriteAttribute(object, name, type.get(), &text);
}

absl::Status Hdf5Writer::Finish(bool durable) {
  hdf5::Quiet();
  for (auto& [name, appendable] : impl_->appendables) {
    WEFT_RETURN_IF_ERROR(impl_->FinishAppendable(name, &appendable));
  }
  if (!impl_->Close()) return impl_->Failed("closing");
  WEFT_RETURN_IF_ERROR(impl_->Written());
  if (durable) {
    WEFT_RETURN_IF_ERROR(impl_->output.Sync());
    WEFT_RETURN_IF_ERROR(RenameDurably(impl_->aside, impl_->path));
  } else if (rename(impl_->aside.c_str(), impl_->path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot rename ", impl_->aside, " to ", impl_->path));
  }
  impl_->aside.clear();
  return absl::OkStatus();
}

}  // namespace weft
