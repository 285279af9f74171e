#include "graph/checkpoint/pickle_writer.h"

#include <bit>
#include <limits>
#include <utility>

namespace weft {

PickleWriter::PickleWriter() : out_("\x80\x02") {}

void PickleWriter::Dict() { out_.push_back('}'); }
void PickleWriter::List() { out_.push_back(']'); }
void PickleWriter::None() { out_.push_back('N'); }
void PickleWriter::Bool(bool value) { out_.push_back(value ? '\x88' : '\x89'); }
void PickleWriter::Mark() { out_.push_back('('); }
void PickleWriter::Tuple() { out_.push_back('t'); }
void PickleWriter::SetItem() { out_.push_back('s'); }
void PickleWriter::Append() { out_.push_back('a'); }

void PickleWriter::Number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
}

void PickleWriter::Int(int64_t value) {
  if (value >= 0 && value <= 0xFF) {
    out_.push_back('K');
    Number(static_cast<uint64_t>(value), 1);
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    out_.push_back('J');
    Number(static_cast<uint64_t>(value), 4);
  } else {
    out_.append("\x8a\x08");  // LONG1 of eight bytes
    Number(static_cast<uint64_t>(value), 8);
  }
}

void PickleWriter::Float(double value) {
  out_.push_back('G');
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 7; i >= 0; --i) out_.push_back(static_cast<char>(bits >> (8 * i)));
}

void PickleWriter::String(std::string_view text) {
  out_.push_back('X');
  Number(text.size(), 4);
  out_.append(text);
}

void PickleWriter::Global(std::string_view module, std::string_view name) {
  out_.push_back('c');
  out_.append(module).push_back('\n');
  out_.append(name).push_back('\n');
}

void PickleWriter::Tensor(std::string_view storage_key, std::span<const int64_t> shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;

  Global("torch._utils", "_rebuild_tensor_v2");
  Mark();
  // The storage, by persistent id.
  Mark();
  String("storage");
  Global("torch", "FloatStorage");
  String(storage_key);
  String("cpu");
  Int(size);
  Tuple();
  out_.push_back('Q');
  Int(0);  // offset
  Mark();
  for (const int64_t extent : shape) Int(extent);
  Tuple();
  Mark();
  for (const int64_t extent : shape) {  // strides
    size = extent == 0 ? 1 : size / extent;
    Int(size);
  }
  Tuple();
  Bool(false);                           // requires_grad
  Global("collections", "OrderedDict");  // no hooks
  Mark();
  Tuple();
  out_.push_back('R');
  Tuple();
  out_.push_back('R');
}

std::string PickleWriter::Finish() {
  out_.push_back('.');
  return std::move(out_);
}

}  // namespace weft
