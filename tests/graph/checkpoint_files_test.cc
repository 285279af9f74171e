#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/hdf5_file.h"
#include "services/common/file_util.h"
#include "services/common/random.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

std::vector<float> Floats(const FloatBlock& block) {
  return {block.span().begin(), block.span().end()};
}

EmbeddingPartition RandomPartition(int64_t count, int64_t dimension) {
  EmbeddingPartition partition(count, dimension);
  RandomStream random(1, RandomUse::kTest);
  for (float& x : partition.embeddings.span()) x = random.Normal();
  for (float& x : partition.adagrad_sums.span()) x = random.Uniform();
  return partition;
}

// As a model with two relations and a global embedding has them.
ParameterSet TestParameters() {
  ParameterSet parameters;
  parameters.Add("relations/0/operator/rhs/diagonal", {4}, 1, 4);
  parameters.Add("relations/1/operator/rhs/linear_transformation", {4, 4}, 1, 16);
  parameters.Add("relations/1/operator/rhs/translation", {4}, 1, 4);
  parameters.Add("entities/user/global_embedding", {4}, 1, 4);
  return parameters;
}

ParameterSet RandomParameters() {
  ParameterSet parameters = TestParameters();
  parameters.steps = 1234;
  RandomStream random(2, RandomUse::kTest);
  for (Parameter& p : parameters.all()) {
    for (float& x : p.values.span()) x = random.Normal();
    for (float& x : p.adagrad_sums.span()) x = random.Uniform();
  }
  return parameters;
}

TEST(EmbeddingsFileTest, ATableComesBackToTheBit) {
  const TempDir dir;
  for (const int64_t count : {0, 1, 1000}) {
    SCOPED_TRACE(count);
    const std::string path = dir.File("embeddings_user_0.v1.h5");
    const EmbeddingPartition written = RandomPartition(count, 7);
    ASSERT_THAT(WriteEmbeddingsFile(path, written, 0.1, {}), IsOk());

    const auto read = ReadEmbeddingsFile(path, count, 7);
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(Floats(read->embeddings), Floats(written.embeddings));
    EXPECT_EQ(Floats(read->adagrad_sums), Floats(written.adagrad_sums));
  }
}

TEST(EmbeddingsFileTest, ATableCanBeReadInPieces) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  const EmbeddingPartition written = RandomPartition(5, 3);
  ASSERT_THAT(WriteEmbeddingsFile(path, written, 0.1, {}), IsOk());

  const auto reader = EmbeddingsReader::Open(path);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(reader->count(), 5);
  EXPECT_EQ(reader->dimension(), 3);
  std::vector<float> rows(6);
  ASSERT_THAT(reader->Read(2, rows), IsOk());
  EXPECT_THAT(rows, ElementsAreArray(written.embeddings.span().subspan(6, 6)));
  EXPECT_THAT(reader->Read(4, rows), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(EmbeddingsFileTest, MetadataIsWhatPbgWrites) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  ASSERT_THAT(WriteEmbeddingsFile(path, EmbeddingPartition(1, 1), 0.1,
                                  {.config_json = "{\"dimension\": 1}",
                                   .num_epochs = 5,
                                   .epoch_idx = 1,
                                   .num_edge_paths = 2,
                                   .edge_path_idx = 1,
                                   .edge_path = "edges/b",
                                   .num_edge_chunks = 3,
                                   .edge_chunk_idx = 2}),
              IsOk());

  const auto file = Hdf5Reader::Open(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(*file->IntAttribute("/", "format_version"), 1);
  EXPECT_EQ(*file->StringAttribute("/", "config/json"), "{\"dimension\": 1}");
  EXPECT_EQ(*file->IntAttribute("/", "iteration/num_epochs"), 5);
  EXPECT_EQ(*file->IntAttribute("/", "iteration/epoch_idx"), 1);
  EXPECT_EQ(*file->IntAttribute("/", "iteration/num_edge_paths"), 2);
  EXPECT_EQ(*file->IntAttribute("/", "iteration/edge_path_idx"), 1);
  EXPECT_EQ(*file->StringAttribute("/", "iteration/edge_path"), "edges/b");
  EXPECT_EQ(*file->IntAttribute("/", "iteration/num_edge_chunks"), 3);
  EXPECT_EQ(*file->IntAttribute("/", "iteration/edge_chunk_idx"), 2);
}

TEST(EmbeddingsFileTest, AnotherShapeIsRefusedNamingBoth) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  ASSERT_THAT(WriteEmbeddingsFile(path, RandomPartition(10, 8), 0.1, {}), IsOk());

  EXPECT_THAT(ReadEmbeddingsFile(path, 20, 8),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("holds 10 entities of dimension 8, but 20 of dimension 8")));
  EXPECT_THAT(ReadEmbeddingsFile(path, 10, 4),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("10 of dimension 4")));
  EXPECT_THAT(ReadEmbeddingsFile(dir.File("y.h5"), 10, 8),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("y.h5")));
}

TEST(EmbeddingsFileTest, ANumberThatIsNotFiniteIsRefusedByItsRow) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  EmbeddingPartition written = RandomPartition(100, 3);
  written.embeddings.row(41)[2] = std::numeric_limits<float>::quiet_NaN();
  written.embeddings.row(97)[0] = std::numeric_limits<float>::infinity();
  ASSERT_THAT(WriteEmbeddingsFile(path, written, 0.1, {}), IsOk());

  EXPECT_THAT(ReadEmbeddingsFile(path, 100, 3),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("x.h5: row 41 holds nan")));
}

TEST(EmbeddingsFileTest, ASumOfSquaresIsNoNegativeNumber) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  for (const float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    EmbeddingPartition written = RandomPartition(9, 3);
    written.adagrad_sums.data()[5] = bad;
    ASSERT_THAT(WriteEmbeddingsFile(path, written, 0.1, {}), IsOk());

    EXPECT_THAT(ReadEmbeddingsFile(path, 9, 3),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("x.h5: optimizer state: sum 5 of parameter 0 is ")));
  }
}

// Files that may not grow so far fail as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  void (*const signal_)(int);
  rlimit before_ = {};
};

TEST(EmbeddingsFileTest, AFullDiskIsSaidAndLeavesTheOldFile) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  ASSERT_THAT(WriteEmbeddingsFile(path, RandomPartition(3, 2), 0.1, {}), IsOk());

  // In the middle of the vectors, and in what comes before and after them.
  for (const rlim_t bytes : {200, 3000, 20'000, 41'000}) {
    SCOPED_TRACE(bytes);
    absl::Status status;
    {
      const FullDisk full(bytes);
      status = WriteEmbeddingsFile(path, RandomPartition(1000, 10), 0.1, {});
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("x.h5")));
    EXPECT_THAT(ReadEmbeddingsFile(path, 3, 2), IsOk());
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  }
}

TEST(ModelFileTest, AFullDiskIsSaid) {
  const TempDir dir;
  absl::Status status;
  {
    const FullDisk full(500);
    status = WriteModelFile(dir.File("model.v1.h5"), RandomParameters(), 0.1, {});
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("model.v1.h5")));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(ModelFileTest, AParameterThatIsNotFiniteIsRefusedByItsName) {
  const TempDir dir;
  const std::string path = dir.File("model.v1.h5");
  ParameterSet written = RandomParameters();
  written.all()[2].values.data()[1] = std::numeric_limits<float>::infinity();
  ASSERT_THAT(WriteModelFile(path, written, 0.1, {}), IsOk());

  ParameterSet read = TestParameters();
  const auto refused =
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("parameter relations/1/operator/rhs/translation holds inf"));
  EXPECT_THAT(ReadModelFile(path, &read), refused);
  EXPECT_THAT(ReadModelValues(path, &read), refused);
  EXPECT_THAT(ReadModelFile(path), refused);
}

TEST(EmbeddingsFileTest, NoOptimizerStateMeansSumsOfZero) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  const EmbeddingPartition written = RandomPartition(3, 2);
  auto file = Hdf5Writer::Create(path);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->IntAttribute("/", "format_version", 1), IsOk());
  ASSERT_THAT(file->Write("embeddings", std::vector<int64_t>{3, 2}, written.embeddings.span()),
              IsOk());
  ASSERT_THAT(file->Finish(), IsOk());

  EmbeddingPartition read = RandomPartition(3, 2);
  ASSERT_THAT(ReadEmbeddingsFile(path, &read), IsOk());
  EXPECT_EQ(Floats(read.embeddings), Floats(written.embeddings));
  EXPECT_THAT(Floats(read.adagrad_sums), Each(0.0f));
}

TEST(EmbeddingsFileTest, FilesOfAnotherKindAreDataLoss) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  auto write = [&](const char* dataset, std::vector<int64_t> shape, int64_t version) {
    auto file = Hdf5Writer::Create(path);
    ASSERT_THAT(file, IsOk());
    if (version != 0) {
      ASSERT_THAT(file->IntAttribute("/", "format_version", version), IsOk());
    }
    ASSERT_THAT(file->Write(dataset, shape, std::vector<float>(6)), IsOk());
    ASSERT_THAT(file->Finish(), IsOk());
  };
  const auto loss = absl::StatusCode::kDataLoss;

  write("embeddings", {3, 2}, 0);
  EXPECT_THAT(ReadEmbeddingsFile(path, 3, 2), StatusIs(loss, HasSubstr("format_version")));
  write("embeddings", {6}, 1);
  EXPECT_THAT(ReadEmbeddingsFile(path, 3, 2), StatusIs(loss, HasSubstr("1 dimensions, needs 2")));
  write("other", {3, 2}, 1);
  EXPECT_THAT(ReadEmbeddingsFile(path, 3, 2), StatusIs(loss, HasSubstr("no data set embeddings")));
  write("embeddings", {3, 2}, 2);
  EXPECT_THAT(ReadEmbeddingsFile(path, 3, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format_version is 2")));

  auto file = Hdf5Writer::Create(path);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->IntAttribute("/", "format_version", 1), IsOk());
  ASSERT_THAT(file->CreateOpaque("embeddings", 6), IsOk());
  ASSERT_THAT(file->WriteOpaque("embeddings", 0, "abcdef"), IsOk());
  ASSERT_THAT(file->Finish(), IsOk());
  EXPECT_THAT(ReadEmbeddingsFile(path, 3, 2), StatusIs(loss));

  file = Hdf5Writer::Create(path);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->StringAttribute("/", "format_version", "one"), IsOk());
  ASSERT_THAT(file->Finish(), IsOk());
  EXPECT_THAT(ReadEmbeddingsFile(path, 3, 2), StatusIs(loss, HasSubstr("format_version")));
}

TEST(EmbeddingsFileTest, TruncationIsDataLoss) {
  const TempDir dir;
  const std::string path = dir.File("x.h5");
  ASSERT_THAT(WriteEmbeddingsFile(path, RandomPartition(500, 8), 0.1, {}), IsOk());
  const std::string whole = *ReadFile(path);

  for (size_t size = 0; size < whole.size(); size += 1024) {
    SCOPED_TRACE(size);
    ASSERT_THAT(WriteFileAtomically(path, whole.substr(0, size)), IsOk());
    EXPECT_THAT(ReadEmbeddingsFile(path, 500, 8), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(ModelFileTest, ParametersComeBackToTheBit) {
  const TempDir dir;
  const std::string path = dir.File("model.v1.h5");
  const ParameterSet written = RandomParameters();
  ASSERT_THAT(WriteModelFile(path, written, 0.1, {}), IsOk());

  ParameterSet read = TestParameters();
  ASSERT_THAT(ReadModelFile(path, &read), IsOk());
  EXPECT_EQ(read.steps, 1234);
  for (size_t i = 0; i < written.all().size(); ++i) {
    SCOPED_TRACE(written.all()[i].name);
    EXPECT_EQ(Floats(read.all()[i].values), Floats(written.all()[i].values));
    EXPECT_EQ(Floats(read.all()[i].adagrad_sums), Floats(written.all()[i].adagrad_sums));
  }
}

TEST(ModelFileTest, PrivateNamesArePbgs) {
  const TempDir dir;
  const std::string path = dir.File("model.v1.h5");
  ASSERT_THAT(WriteModelFile(path, RandomParameters(), 0.1, {}), IsOk());

  const auto file = Hdf5Reader::Open(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(*file->StringAttribute("model/relations/1/operator/rhs/translation", "state_dict_key"),
            "rhs_operators.1.translation");
  EXPECT_EQ(*file->StringAttribute("model/entities/user/global_embedding", "state_dict_key"),
            "global_embs.emb_user");
}

TEST(ModelFileTest, EveryParameterCanBeReadWithoutKnowingThem) {
  const TempDir dir;
  const std::string path = dir.File("model.v1.h5");
  const ParameterSet written = RandomParameters();
  ASSERT_THAT(WriteModelFile(path, written, 0.1, {}), IsOk());

  const auto read = ReadModelFile(path);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->all().size(), written.all().size());
  for (size_t i = 0; i < written.all().size(); ++i) {
    EXPECT_EQ(read->all()[i].name, written.all()[i].name);  // creation order
    EXPECT_EQ(read->all()[i].shape, written.all()[i].shape);
    EXPECT_EQ(Floats(read->all()[i].values), Floats(written.all()[i].values));
  }
}

TEST(ModelFileTest, OtherParametersAreRefusedByName) {
  const TempDir dir;
  const std::string path = dir.File("model.v1.h5");
  ASSERT_THAT(WriteModelFile(path, RandomParameters(), 0.1, {}), IsOk());
  const auto failed = absl::StatusCode::kFailedPrecondition;

  ParameterSet more = TestParameters();
  more.Add("entities/item/global_embedding", {4}, 1, 4);
  EXPECT_THAT(ReadModelFile(path, &more),
              StatusIs(failed, HasSubstr("lacks parameter entities/item/global_embedding")));
  ParameterSet fewer;
  fewer.Add("relations/0/operator/rhs/diagonal", {4}, 1, 4);
  EXPECT_THAT(ReadModelFile(path, &fewer),
              StatusIs(failed, HasSubstr("has parameter relations/1/operator/rhs/")));
  ParameterSet other;
  other.Add("relations/0/operator/rhs/diagonal", {8}, 1, 8);
  EXPECT_THAT(ReadModelFile(path, &other), StatusIs(failed, HasSubstr("has shape [4], but [8]")));
}

TEST(ModelFileTest, NamesThatPbgWouldRefuseAreNotWritten) {
  const TempDir dir;
  ParameterSet parameters;
  parameters.Add("weft/extra", {1}, 1, 1);

  EXPECT_THAT(WriteModelFile(dir.File("model.v1.h5"), parameters, 0.1, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("weft/extra")));
}

TEST(ModelFileTest, ManyRelationsNeedOneFile) {
  const TempDir dir;
  const std::string path = dir.File("model.v1.h5");
  ParameterSet written;
  ParameterSet read;
  for (int r = 0; r < 2000; ++r) {
    for (ParameterSet* parameters : {&written, &read}) {
      parameters->Add("relations/" + std::to_string(r) + "/operator/rhs/translation", {4}, 1, 4);
    }
    written.all().back().values.data()[0] = static_cast<float>(r);
    written.all().back().adagrad_sums.data()[3] = static_cast<float>(r);
  }
  ASSERT_THAT(WriteModelFile(path, written, 0.1, {}), IsOk());
  ASSERT_THAT(ReadModelFile(path, &read), IsOk());

  for (size_t r = 0; r < 2000; ++r) {
    ASSERT_EQ(read.all()[r].values.data()[0], static_cast<float>(r));
    ASSERT_EQ(read.all()[r].adagrad_sums.data()[3], static_cast<float>(r));
  }
}

}  // namespace
}  // namespace weft
