// ParsePickle turns a pickle of plain data and float tensors, as torch.save writes it, into values.
//
// A pickle is a program for a stack machine that can call any function. This machine knows the
// opcodes that data needs and three names (collections.OrderedDict, called without arguments;
// torch.FloatStorage; torch._utils._rebuild_tensor_v2), which it takes as data: nothing is called.
// Everything else is refused.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// A float32 tensor by reference: where in which storage its elements are.
struct PickledTensor {
  std::string_view storage;    // the key: member `data/{key}` of the archive
  int64_t storage_size = 0;    // in floats
  int64_t offset = 0;          // in floats; offset + size() <= storage_size
  std::vector<int64_t> shape;  // row-major and contiguous

  int64_t size() const;  // in floats
};

struct PickleValue {
  enum class Kind { kNone, kBool, kInt, kFloat, kString, kList, kTuple, kDict, kTensor, kInternal };

  Kind kind = Kind::kNone;
  int64_t integer = 0;    // kBool, kInt; kTensor: its index
  double number = 0;      // kFloat
  std::string_view text;  // kString
  // kList, kTuple: the items; kDict: key, value, key, value, ... in order of insertion. A hostile
  // pickle may make these a graph with cycles: walk to a fixed depth only.
  std::vector<const PickleValue*> items;

  // The value of a dictionary's key; nullptr when there is none or this is no dictionary.
  const PickleValue* Find(std::string_view key) const;
};

// Movable; pointers and views into it stay valid.
class PickleDocument {
 public:
  const PickleValue& root() const { return *root_; }
  const PickledTensor& tensor(const PickleValue& value) const { return tensors_[value.integer]; }

 private:
  friend class PickleMachine;
  std::vector<char> bytes_;
  std::deque<PickleValue> values_;
  std::vector<PickledTensor> tensors_;
  const PickleValue* root_ = nullptr;
};

// Errors: DataLoss, saying at which byte, for what is not such a pickle or is too large (8 million
// values). Memory is bounded by the size of the input.
absl::StatusOr<PickleDocument> ParsePickle(std::string_view bytes);

}  // namespace weft
