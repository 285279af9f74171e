// PickleWriter appends the opcodes of a pickle of plain data and float tensors to a string: what
// pickle_reader.h reads, and what torch.load turns into the same values.
//
//   w.Dict(); w.String("lr"); w.Float(0.1); w.SetItem(); w.Finish();
//
// Not thread-safe. The caller keeps to the order that pickle wants: a container, then its items,
// each followed by SetItem (key and value are on the stack) or Append.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

class PickleWriter {
 public:
  PickleWriter();

  void Dict();
  void List();
  void None();
  void Bool(bool value);
  void Int(int64_t value);
  void Float(double value);
  void String(std::string_view text);
  // A whole storage of `shape`'s size in floats, seen as one contiguous tensor.
  void Tensor(std::string_view storage_key, std::span<const int64_t> shape);

  void SetItem();  // takes key and value
  void Append();   // takes an item

  // Ends the pickle and returns it.
  std::string Finish();

 private:
  void Global(std::string_view module, std::string_view name);
  void Number(uint64_t value, int bytes);
  void Mark();
  void Tuple();  // of all that follows the mark

  std::string out_;
};

}  // namespace weft
