// Moving one partition between a trainer and a partition server, against a plain TCP copy of the
// same bytes over the loopback in the same run.
//
//   partition_transfer_bench [--mb 256] [--pairs 5] [--dimension 100] [--shard_mb 64] [--streams 4]
//                            [--folder DIR] [--tls_dir DIR]
//
// Prints, for each store: GB/s of storing and of reading, each against the TCP copies just before
// and after it (median of the pairs); then the stores without a network. With the folder of
// scripts/make_test_ca, each pair of the memory store does the same over mutual TLS as well.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/server_runner.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/local_partition_client.h"
#include "services/partition_server/memory_blob_storage.h"
#include "services/partition_server/partition_service_impl.h"
#include "services/partition_server/partition_transfer.h"
#include "services/partition_server/rocksdb_blob_storage.h"

namespace weft {
namespace {

const RunContext kContext = {std::string(32, 'a'), 1, 1, std::nullopt};

struct Settings {
  int64_t mb = 256;
  int pairs = 5;
  int64_t dimension = 100;
  int64_t shard_mb = 64;
  int streams = 4;
  std::string folder = "/tmp/weft_partition_transfer_bench";
  std::string tls_dir;
};

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double CpuSeconds() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// One connection, one sender, one receiver; the receiver's memory is there already.
class TcpCopy {
 public:
  TcpCopy() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    WEFT_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
    WEFT_CHECK(listen(listener, 1) == 0);
    WEFT_CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    from_ = socket(AF_INET, SOCK_STREAM, 0);
    WEFT_CHECK(connect(from_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    to_ = accept(listener, nullptr, nullptr);
    WEFT_CHECK(to_ >= 0);
    close(listener);
  }
  ~TcpCopy() {
    close(from_);
    close(to_);
  }

  void Copy(const char* from, char* to, size_t bytes) const {
    std::jthread receiver([&] {
      for (size_t done = 0; done < bytes;) {
        const ssize_t n = recv(to_, to + done, std::min(bytes - done, size_t{1} << 20), 0);
        WEFT_CHECK(n > 0);
        done += static_cast<size_t>(n);
      }
    });
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = send(from_, from + done, std::min(bytes - done, size_t{1} << 20), 0);
      WEFT_CHECK(n > 0);
      done += static_cast<size_t>(n);
    }
  }

 private:
  int from_ = -1;
  int to_ = -1;
};

struct Server {
  Server(const std::string& folder, bool memory, const SecurityOptions& security)
      : store(Make(folder, memory)),
        fetcher(&channels, &fence, {}),
        orders(&store, &fetcher),
        service(&store, &orders, &workers, &background),
        runner(*ServerRunner::Start(Over(security), {&service})) {
    WEFT_CHECK(store.Registered(kContext).ok());
  }

  static ServerRunner::Options Over(const SecurityOptions& security) {
    ServerRunner::Options options;
    options.security = security;
    return options;
  }
  static PartitionStore Make(const std::string& folder, bool memory) {
    std::unique_ptr<BlobStore> blobs;
    if (memory) {
      blobs = *BlobStore::Open(std::make_unique<MemoryBlobStorage>(int64_t{8} << 30), {});
    }
    return PartitionStore(*StoreFolder::Open(folder),
                          *BlobStore::Open(*RocksDbBlobStorage::Open(folder + "/blobs"), {}),
                          std::move(blobs));
  }

  PartitionStore store;
  WorkPool workers{4};
  WorkPool background{1};
  ChannelPool channels{{}};
  RunFence fence{kContext};
  GrpcBlobClient fetcher;
  StoreOrders orders;
  PartitionServiceImpl service;
  std::unique_ptr<ServerRunner> runner;
};

// A server and a client of it, and what was measured between them.
class Way {
 public:
  Way(const Settings& settings, const std::string& folder, bool memory,
      const SecurityOptions& security)
      : tls(security.tls != nullptr),
        server(folder, memory, security),
        info{ServerRole::kPartition, server.store.store_id(), server.store.incarnation(),
             server.runner->address(), server.store.durable()},
        channels({.connections = settings.streams, .security = security}),
        blobs(&channels, &fence, {}),
        client(
            &blobs, [this](const Place&) { return std::optional(info); }, &cancel,
            TransferOptions(settings)) {}

  static PartitionTransfer::Options TransferOptions(const Settings& settings) {
    PartitionTransfer::Options options;
    options.shard_bytes = settings.shard_mb << 20;
    options.streams = settings.streams;
    return options;
  }

  void Print(const char* name, double gigabytes) const {
    const auto calls = static_cast<double>(tcp_rate.size());
    std::printf(
        "%-8s %-4s store %5.2f GB/s (%3.0f %% of TCP)  read %5.2f GB/s (%3.0f %%)  TCP %5.2f GB/s  "
        "CPU %.2f and %.2f s/GB\n",
        name, tls ? "mTLS" : "", Median(store_rate), 100 * Median(store_ratio), Median(read_rate),
        100 * Median(read_ratio), Median(tcp_rate), store_cpu / calls / gigabytes,
        read_cpu / calls / gigabytes);
  }

  const bool tls;
  Server server;
  const ServerInfo info;
  ChannelPool channels;
  RunFence fence{kContext};
  GrpcBlobClient blobs;
  CancelFlag cancel;
  const PartitionTransfer client;
  std::vector<double> store_rate, store_ratio, read_rate, read_ratio, tcp_rate;
  double store_cpu = 0;
  double read_cpu = 0;
};

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings),
        table_((settings.mb << 20) / (4 * (settings.dimension + 1)), settings.dimension),
        out_(table_.count(), table_.dimension()) {
    float next = 0;
    for (float& x : table_.embeddings.span()) x = next++;
    for (float& x : out_.embeddings.span()) x = -1;
    gigabytes_ = 4e-9 * static_cast<double>(table_.count() * (table_.dimension() + 1));
  }

  void OverNetwork(const char* name, bool memory, const std::vector<SecurityOptions>& ways) {
    std::filesystem::remove_all(settings_.folder);
    std::vector<std::unique_ptr<Way>> measured;
    for (const SecurityOptions& security : ways) {
      measured.push_back(std::make_unique<Way>(
          settings_, absl::StrCat(settings_.folder, "/", measured.size()), memory, security));
    }
    for (int pair = 0; pair <= settings_.pairs; ++pair) {
      for (const auto& way : measured) Measure(way.get(), static_cast<Token>(pair + 1), pair > 0);
    }
    for (const auto& way : measured) way->Print(name, gigabytes_);
  }

  void WithoutNetwork(const char* name, std::unique_ptr<BlobStorage> storage) {
    const std::unique_ptr<BlobStore> store = *BlobStore::Open(std::move(storage), {});
    LocalPartitionClient client(store.get(), settings_.shard_mb << 20);
    std::vector<double> puts, gets;
    for (int pair = 0; pair <= settings_.pairs; ++pair) {
      const PartitionVersion version = {{0, 0}, static_cast<Token>(pair + 1)};
      const double put = Seconds([&] { WEFT_CHECK(client.Store(version, table_).ok()); });
      const double get = Seconds([&] { WEFT_CHECK(client.Read(version, &out_).ok()); });
      WEFT_CHECK(store->Sweep(version.token, {}).ok());
      if (pair == 0) continue;
      puts.push_back(gigabytes_ / put);
      gets.push_back(gigabytes_ / get);
    }
    std::printf("%-8s alone: put %5.2f GB/s  get %5.2f GB/s\n", name, Median(puts), Median(gets));
  }

  void Checksums() {
    const double seconds = Seconds([&] { WEFT_CHECK(Checksum(table_) != 0); });
    std::printf("checksum: %.1f GB/s\n", gigabytes_ / seconds);
  }

 private:
  void Measure(Way* way, Token token, bool counts) {
    VersionInfo version;
    const auto targets = [&] { return StoreTargets{{way->info}, 1}; };
    const double tcp1 = Tcp();
    const double cpu0 = CpuSeconds();
    const double store = Seconds([&] {
      version = *way->client.Store({{0, 0}, token}, table_, targets);
    });
    const double cpu1 = CpuSeconds();
    const double tcp2 = Tcp();
    const double cpu2 = CpuSeconds();
    const double read = Seconds([&] { WEFT_CHECK(way->client.Read(version, &out_).ok()); });
    const double cpu3 = CpuSeconds();
    const double tcp3 = Tcp();
    WEFT_CHECK(Checksum(out_) == Checksum(table_));
    WEFT_CHECK(way->server.store.Sweep({token, {}}).ok());
    if (!counts) return;  // connections, first touches
    way->store_rate.push_back(gigabytes_ / store);
    way->read_rate.push_back(gigabytes_ / read);
    way->store_ratio.push_back((tcp1 + tcp2) / 2 / store);
    way->read_ratio.push_back((tcp2 + tcp3) / 2 / read);
    way->tcp_rate.push_back(gigabytes_ / tcp2);
    way->store_cpu += cpu1 - cpu0;
    way->read_cpu += cpu3 - cpu2;
  }

  double Tcp() {
    return Seconds([&] {
      tcp_.Copy(reinterpret_cast<const char*>(table_.embeddings.data()),
                reinterpret_cast<char*>(out_.embeddings.data()),
                static_cast<size_t>(table_.embeddings.size()) * sizeof(float));
      tcp_.Copy(reinterpret_cast<const char*>(table_.adagrad_sums.data()),
                reinterpret_cast<char*>(out_.adagrad_sums.data()),
                static_cast<size_t>(table_.count()) * sizeof(float));
    });
  }

  const Settings settings_;
  EmbeddingPartition table_;
  EmbeddingPartition out_;
  double gigabytes_ = 0;
  TcpCopy tcp_;
};

Settings Parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--mb") settings.mb = std::atoll(argv[i + 1]);
    if (flag == "--pairs") settings.pairs = std::atoi(argv[i + 1]);
    if (flag == "--dimension") settings.dimension = std::atoll(argv[i + 1]);
    if (flag == "--shard_mb") settings.shard_mb = std::atoll(argv[i + 1]);
    if (flag == "--streams") settings.streams = std::atoi(argv[i + 1]);
    if (flag == "--folder") settings.folder = argv[i + 1];
    if (flag == "--tls_dir") settings.tls_dir = argv[i + 1];
  }
  return settings;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const weft::Settings settings = weft::Parse(argc, argv);
  weft::Bench bench(settings);
  bench.Checksums();
  std::vector<weft::SecurityOptions> ways(1);
  if (!settings.tls_dir.empty()) {
    const std::string& dir = settings.tls_dir;
    ways.push_back({.tls = *weft::TlsIdentity::Load(
                        {dir + "/cluster.crt", dir + "/cluster.key", dir + "/ca.crt"}, {})});
  }
  bench.OverNetwork("memory", true, ways);
  bench.OverNetwork("rocksdb", false, {{}});
  bench.WithoutNetwork("memory", std::make_unique<weft::MemoryBlobStorage>(int64_t{8} << 30));
  std::filesystem::remove_all(settings.folder);
  bench.WithoutNetwork("rocksdb", *weft::RocksDbBlobStorage::Open(settings.folder));
  std::filesystem::remove_all(settings.folder);
}
