#include "services/param_server/param_convert.h"

#include <xxhash.h>

#include <bit>
#include <cstring>

#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little);

void SetRows(const RowBatch& rows, v1::RowBatch* out) {
  for (const RowRun& run : rows.runs) {
    out->add_tensor(run.tensor);
    out->add_first_row(run.first);
    out->add_num_rows(run.count);
  }
  const size_t bytes = rows.values.size() * sizeof(float);
  out->set_values(rows.values.data(), bytes);
  out->set_xxh3(XXH3_64bits(rows.values.data(), bytes));
}

absl::StatusOr<RowBatch> ReadRows(const v1::RowBatch& in) {
  if (in.tensor_size() != in.first_row_size() || in.tensor_size() != in.num_rows_size() ||
      in.values().size() % sizeof(float) != 0) {
    return absl::InvalidArgumentError("rows whose numbers do not fit together");
  }
  // A message without rows may leave the checksum out.
  if (!in.values().empty() && in.xxh3() != XXH3_64bits(in.values().data(), in.values().size())) {
    return absl::DataLossError("the checksum of the rows is wrong");
  }
  RowBatch rows;
  rows.runs.reserve(static_cast<size_t>(in.tensor_size()));
  for (int i = 0; i < in.tensor_size(); ++i) {
    rows.runs.push_back({in.tensor(i), in.first_row(i), in.num_rows(i)});
  }
  rows.values.resize(in.values().size() / sizeof(float));
  if (!rows.values.empty()) {
    std::memcpy(rows.values.data(), in.values().data(), in.values().size());
  }
  return rows;
}

void SetCursor(const ParamCursor& cursor, v1::ParamCursor* out) {
  out->set_incarnation(cursor.incarnation);
  out->set_counter(cursor.counter);
}

ParamCursor ReadCursor(const v1::ParamCursor& in) { return {in.incarnation(), in.counter()}; }

template <typename Message>
ParamCaller ReadCaller(const Message& in) {
  return {FromProto(in.context()), in.incarnation()};
}

}  // namespace

v1::JoinRequest ToProto(const JoinRequest& request) {
  v1::JoinRequest out;
  *out.mutable_context() = ToProto(request.caller.context);
  out.set_incarnation(request.caller.incarnation);
  out.set_layout_hash(request.layout_hash);
  out.set_first_number(request.first_number);
  out.set_page(request.page);
  SetCursor(request.cursor, out.mutable_cursor());
  return out;
}

v1::JoinResponse ToProto(const JoinPage& page) {
  v1::JoinResponse out;
  SetRows(page.rows, out.mutable_rows());
  SetCursor(page.cursor, out.mutable_cursor());
  out.set_next_page(page.next_page);
  out.set_first_number(page.first_number);
  out.set_steps(page.steps);
  return out;
}

v1::PushRequest ToProto(const PushRequest& request) {
  v1::PushRequest out;
  *out.mutable_context() = ToProto(request.caller.context);
  out.set_incarnation(request.caller.incarnation);
  out.set_number(request.number);
  out.set_pass_id(request.pass);
  SetRows(request.rows, out.mutable_rows());
  out.set_steps(request.steps);
  SetCursor(request.cursor, out.mutable_cursor());
  out.set_sync(request.sync);
  return out;
}

v1::PushResponse ToProto(const PushAnswer& answer) {
  v1::PushResponse out;
  out.set_applied(answer.applied);
  SetRows(answer.rows, out.mutable_rows());
  SetCursor(answer.cursor, out.mutable_cursor());
  out.set_more(answer.more);
  out.set_steps(answer.steps);
  out.set_lost_pushes(answer.lost_pushes);
  return out;
}

JoinRequest FromProto(const v1::JoinRequest& request) {
  return {ReadCaller(request), request.layout_hash(), request.first_number(), request.page(),
          ReadCursor(request.cursor())};
}

absl::StatusOr<JoinPage> FromProto(const v1::JoinResponse& page) {
  WEFT_ASSIGN_OR_RETURN(RowBatch rows, ReadRows(page.rows()));
  return JoinPage{std::move(rows), ReadCursor(page.cursor()), page.next_page(), page.first_number(),
                  page.steps()};
}

absl::StatusOr<PushRequest> FromProto(const v1::PushRequest& request) {
  WEFT_ASSIGN_OR_RETURN(RowBatch rows, ReadRows(request.rows()));
  return PushRequest{ReadCaller(request), request.number(), request.pass_id(),
                     std::move(rows),     request.steps(),  ReadCursor(request.cursor()),
                     request.sync()};
}

absl::StatusOr<PushAnswer> FromProto(const v1::PushResponse& answer) {
  WEFT_ASSIGN_OR_RETURN(RowBatch rows, ReadRows(answer.rows()));
  return PushAnswer{answer.applied(), std::move(rows), ReadCursor(answer.cursor()),
                    answer.more(),    answer.steps(),  answer.lost_pushes()};
}

}  // namespace weft
