// TCP connections to a server of this machine that speak no protocol, or a broken one.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace weft::testing {

class RawConnections {
 public:
  RawConnections() {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~RawConnections() {
    for (const int fd : fds_) close(fd);
  }
  RawConnections(const RawConnections&) = delete;
  RawConnections& operator=(const RawConnections&) = delete;

  // `address`: 127.0.0.1:port. Sends `bytes`; empty: says nothing.
  void Open(const std::string& address, const std::string& bytes) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd, 0) << "no more descriptors";
    fds_.push_back(fd);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.substr(10).c_str())));
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << address;
    // The server may have ended the connection already.
    if (!bytes.empty()) (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // How many the other side has not ended, at the latest after `within`.
  size_t AwaitEnds(absl::Duration within) {
    const absl::Time deadline = absl::Now() + within;
    std::vector<pollfd> open;
    for (const int fd : fds_) open.push_back({fd, POLLIN, 0});
    while (!open.empty() && absl::Now() < deadline) {
      poll(open.data(), open.size(), 100);
      std::erase_if(open, [](const pollfd& p) {
        char bytes[4096];
        if ((p.revents & (POLLIN | POLLHUP | POLLERR)) == 0) return false;
        return recv(p.fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0;
      });
    }
    return open.size();
  }

 private:
  std::vector<int> fds_;
};

// The beginning of an HTTP/2 connection, and then frames that no client sends.
inline std::vector<std::string> BrokenStreams() {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  return {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(1 << 16, '\xff'),
      preface + std::string(4096, '\0'),
      preface + settings + std::string("\xff\xff\xff\0\0\0\0\0\1", 9),             // 16 MB of data
      preface + settings + std::string("\0\0\4\1\4\0\0\0\1\xff\xff\xff\xff", 13),  // bad headers
      preface + settings + std::string("\0\0\4\x8\0\0\0\0\0\0\0\0\0", 13),         // window of 0
      preface + settings + std::string("\0\0\0\x9\4\0\0\0\3", 9),  // continuation of nothing
  };
}

}  // namespace weft::testing
