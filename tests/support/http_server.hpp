// A small HTTP server for tests, in this process. The handler decides what each answer is, also how it is wrong.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace stele_test {

class HttpServer {
 public:
  struct Request {
    std::string method, path, query;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    std::string header(const std::string& name) const {
      const auto at = headers.find(name);
      return at != headers.end() ? at->second : std::string();
    }
  };
  struct Response {
    int status = 200;
    std::vector<std::pair<std::string, std::string>> headers{};
    std::string body{};
    std::optional<std::size_t> cut{};    // closes the connection after so many bytes of the body
    std::chrono::milliseconds stall{0};  // waits after the headers
    bool endless_headers = false;
    bool cut_headers = false;  // closes the connection within the headers
  };
  using Handler = std::function<Response(const Request&)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~HttpServer() {
    ending_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : open_) shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path, const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port_) + path;
  }
  std::vector<Request> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  std::size_t count() const { return log().size(); }
  void clear() {
    const std::lock_guard lock(mutex_);
    log_.clear();
  }

  /// Answers a request of a range of `content` as it should be.
  static Response ranges(const Request& request, std::string_view content, const std::string& etag = "\"1\"") {
    Response made;
    made.headers = {{"ETag", etag}};
    const std::string range = request.header("range");
    if (!range.starts_with("bytes=")) {
      made.body = content;
      return made;
    }
    const std::uint64_t begin = std::strtoull(range.c_str() + 6, nullptr, 10);
    const std::size_t dash = range.find('-');
    std::uint64_t end =
        dash + 1 < range.size() ? std::strtoull(range.c_str() + dash + 1, nullptr, 10) + 1 : content.size();
    if (begin >= content.size()) {
      made.status = 416;
      made.headers.emplace_back("Content-Range", "bytes */" + std::to_string(content.size()));
      return made;
    }
    end = std::min<std::uint64_t>(end, content.size());
    made.status = 206;
    made.headers.emplace_back("Content-Range", "bytes " + std::to_string(begin) + "-" + std::to_string(end - 1) + "/" +
                                                   std::to_string(content.size()));
    made.body = content.substr(begin, end - begin);
    return made;
  }

 private:
  void accept_all() {
    while (!ending_) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      const int yes = 1;
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      const std::lock_guard lock(mutex_);
      open_.push_back(connection);
      threads_.emplace_back([this, connection] {
        serve(connection);
        const std::lock_guard closing(mutex_);
        std::erase(open_, connection);
        close(connection);
      });
    }
  }

  static bool send_all(int connection, std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(connection, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  void serve(int connection) {
    std::string buffer;
    const auto more = [&] {
      char bytes[65536];
      const ssize_t got = recv(connection, bytes, sizeof bytes, 0);
      if (got <= 0) return false;
      buffer.append(bytes, static_cast<std::size_t>(got));
      return true;
    };
    for (;;) {
      std::size_t end = 0;
      while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
        if (!more()) return;
      }
      Request request = parse(std::string_view(buffer).substr(0, end + 2));
      buffer.erase(0, end + 4);
      const std::size_t length = std::strtoull(request.header("content-length").c_str(), nullptr, 10);
      while (buffer.size() < length) {
        if (!more()) return;
      }
      request.body = buffer.substr(0, length);
      buffer.erase(0, length);
      {
        const std::lock_guard lock(mutex_);
        log_.push_back(request);
      }
      const Response response = handler_(request);
      std::string head = "HTTP/1.1 " + std::to_string(response.status) + " X\r\n";
      for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
      if (response.endless_headers) {
        while (send_all(connection, head)) head = "X-More: " + std::string(1000, 'x') + "\r\n";
        return;
      }
      if (response.cut_headers) {
        send_all(connection, head + "Content-Le");
        shutdown(connection, SHUT_RDWR);
        return;
      }
      head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
      if (!send_all(connection, head)) return;
      if (response.stall.count() != 0) std::this_thread::sleep_for(response.stall);
      if (request.method == "HEAD") continue;
      const std::size_t cut = std::min(response.cut.value_or(response.body.size()), response.body.size());
      if (!send_all(connection, std::string_view(response.body).substr(0, cut)) || cut < response.body.size()) return;
    }
  }

  static Request parse(std::string_view text) {
    Request request;
    const std::string line(text.substr(0, text.find("\r\n")));
    const std::size_t first = line.find(' '), second = line.rfind(' ');
    request.method = line.substr(0, first);
    request.path = line.substr(first + 1, second - first - 1);
    if (const std::size_t mark = request.path.find('?'); mark != std::string::npos) {
      request.query = request.path.substr(mark + 1);
      request.path.erase(mark);
    }
    while (true) {
      text.remove_prefix(text.find("\r\n") + 2);
      const std::size_t end = text.find("\r\n");
      if (end == text.npos) return request;
      std::string name(text.substr(0, text.find(':')));
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      std::string_view value = text.substr(name.size() + 1, end - name.size() - 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      request.headers[name] = value;
    }
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> ending_{false};
  std::thread acceptor_;
  mutable std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::vector<int> open_;
  std::vector<Request> log_;
};

}  // namespace stele_test
