#include "tests/chaos/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

constexpr size_t kBuffer = size_t{64} << 10;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void Prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// A listener on any port, with that port.
std::pair<int, uint16_t> Listen() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(fd, SOMAXCONN), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return {fd, ntohs(address.sin_port)};
}

}  // namespace

FaultProxy::FaultProxy() {
  std::tie(listener_, port_) = Listen();
  Prepare(listener_);
  EXPECT_EQ(pipe2(wake_.data(), O_CLOEXEC | O_NONBLOCK), 0);
  thread_ = std::thread([this] { Run(); });
}

FaultProxy::~FaultProxy() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
  }
  Wake();
  thread_.join();
  for (const int fd : {listener_, wake_[0], wake_[1]}) close(fd);
}

std::string FaultProxy::address() const { return absl::StrCat("127.0.0.1:", port_); }

void FaultProxy::SetTarget(const std::string& address) {
  uint32_t port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  MutexLock lock(&mu_);
  target_ = static_cast<uint16_t>(port);
}

void FaultProxy::Stall(bool stalled) {
  {
    MutexLock lock(&mu_);
    stalled_ = stalled;
  }
  Wake();
}

void FaultProxy::Cut() {
  {
    MutexLock lock(&mu_);
    cut_ = true;
  }
  Wake();
}

void FaultProxy::Wake() {
  const char byte = 0;
  if (write(wake_[1], &byte, 1) < 0) return;  // full: it will wake anyway
}

int64_t FaultProxy::connections() const {
  MutexLock lock(&mu_);
  return accepted_;
}

int64_t FaultProxy::bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

void FaultProxy::Run() {
  while (true) {
    bool stalled = false;
    bool cut = false;
    {
      MutexLock lock(&mu_);
      if (ending_) break;
      stalled = stalled_;
      cut = std::exchange(cut_, false);
    }
    if (cut) {
      for (const Connection& c : connections_) {
        for (const int fd : c.ends) close(fd);
      }
      connections_.clear();
    }
    std::vector<pollfd> polled = {{wake_[0], POLLIN, 0}};
    if (!stalled) {
      polled.push_back({listener_, POLLIN, 0});
      for (const Connection& c : connections_) {
        for (size_t end = 0; end < 2; ++end) {
          short events = 0;
          if (c.from[end].bytes.empty()) events |= POLLIN;
          if (!c.from[1 - end].bytes.empty()) events |= POLLOUT;
          polled.push_back({c.ends[end], events, 0});
        }
      }
    }
    poll(polled.data(), polled.size(), -1);
    std::array<char, 64> drained;
    while (read(wake_[0], drained.data(), drained.size()) > 0) {
    }
    if (stalled) continue;
    size_t at = 2;
    for (auto c = connections_.begin(); c != connections_.end(); at += 2) {
      bool open = true;
      for (int end = 0; end < 2 && open; ++end) {
        const short events = polled[at + static_cast<size_t>(end)].revents;
        open =
            Move(&*c, end, (events & (POLLIN | POLLHUP | POLLERR)) != 0, (events & POLLOUT) != 0);
      }
      if (open) {
        ++c;
        continue;
      }
      for (const int fd : c->ends) close(fd);
      c = connections_.erase(c);
    }
    if ((polled[1].revents & POLLIN) != 0) Accept();
  }
  for (const Connection& c : connections_) {
    for (const int fd : c.ends) close(fd);
  }
}

void FaultProxy::Accept() {
  const int caller = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (caller < 0) return;
  uint16_t port = 0;
  {
    MutexLock lock(&mu_);
    port = target_;
    ++accepted_;
  }
  const int target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  // On loopback there is an answer at once.
  if (connect(target, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(target);
    close(caller);
    return;
  }
  Prepare(caller);
  Prepare(target);
  connections_.push_back({{caller, target}, {}});
}

bool FaultProxy::Move(Connection* connection, int end, bool readable, bool writable) {
  const auto here = static_cast<size_t>(end);
  const int fd = connection->ends[here];
  Flow& in = connection->from[here];
  if (readable && in.bytes.empty()) {
    in.bytes.resize(kBuffer);
    const ssize_t count = recv(fd, in.bytes.data(), kBuffer, 0);
    in.bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    in.sent = 0;
    if (count == 0 || (count < 0 && errno != EAGAIN)) return false;
    MutexLock lock(&mu_);
    bytes_ += static_cast<int64_t>(in.bytes.size());
  }
  Flow& out = connection->from[1 - here];
  if (writable && !out.bytes.empty()) {
    const ssize_t count =
        send(fd, out.bytes.data() + out.sent, out.bytes.size() - out.sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN) return false;
    if (count > 0) out.sent += static_cast<size_t>(count);
    if (out.sent == out.bytes.size()) out.bytes.clear();
  }
  return true;
}

}  // namespace weft::testing
