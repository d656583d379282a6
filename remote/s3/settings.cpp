// Keys, region and endpoint, as AWS's own programs find them.
#include <fstream>
#include <map>
#include <string>

#include "remote/http/environment.hpp"
#include "remote/s3/store.hpp"

namespace stele::inline v0::remote {
namespace {

/// Returns the settings of one section of an INI file; none if there is no such file or section.
std::map<std::string, std::string> section(const std::string& path, const std::string& name) {
  std::map<std::string, std::string> found;
  std::ifstream file(path);
  std::string line;
  bool inside = false;
  for (std::size_t lines = 0; lines < 100'000 && std::getline(file, line); ++lines) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#' || text.front() == ';') continue;
    if (text.front() == '[') {
      inside = text.back() == ']' && trimmed(text.substr(1, text.size() - 2)) == name;
    } else if (inside && line.front() != ' ' && line.front() != '\t') {  // an indented line belongs to a nested setting
      if (const std::size_t equals = text.find('='); equals != text.npos) {
        found.insert_or_assign(std::string(trimmed(text.substr(0, equals))),
                               std::string(trimmed(text.substr(equals + 1))));
      }
    }
  }
  return found;
}

std::string in_home(const char* variable_name, const char* file) {
  std::string path = variable(variable_name);
  if (path.empty()) {
    path = variable("HOME");
    if (path.empty()) path = variable("USERPROFILE");
    if (!path.empty()) path += file;
  }
  return path;
}

std::string first_of(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace

Result<S3Settings> S3Settings::find(const Options& options) {
  const std::string named = first_of({options.profile, variable("AWS_PROFILE")});
  const std::string profile = named.empty() ? "default" : named;
  const auto keys = section(in_home("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"), profile);
  const auto config =
      section(in_home("AWS_CONFIG_FILE", "/.aws/config"), profile == "default" ? profile : "profile " + profile);
  const auto in = [](const auto& settings, const char* name) {
    const auto at = settings.find(name);
    return at != settings.end() ? at->second : std::string();
  };
  S3Settings made;
  made.credentials = options.credentials;
  if (!made.credentials && options.profile.empty()) {
    Credentials found{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"), variable("AWS_SESSION_TOKEN")};
    if (!found.access_key.empty() && !found.secret_key.empty()) made.credentials = std::move(found);
  }
  for (const auto* settings : {&keys, &config}) {
    Credentials found{in(*settings, "aws_access_key_id"), in(*settings, "aws_secret_access_key"),
                      in(*settings, "aws_session_token")};
    if (!made.credentials && !found.access_key.empty() && !found.secret_key.empty())
      made.credentials = std::move(found);
  }
  if (!made.credentials && !named.empty()) {
    return Error(Errc::invalid_argument, "the profile has no keys")
        .found(named)
        .hint("set its aws_access_key_id in ~/.aws/credentials");
  }
  made.region = first_of(
      {options.region, variable("AWS_REGION"), variable("AWS_DEFAULT_REGION"), in(config, "region"), made.region});
  made.endpoint = first_of(
      {options.endpoint, variable("AWS_ENDPOINT_URL_S3"), variable("AWS_ENDPOINT_URL"), in(config, "endpoint_url")});
  while (made.endpoint.ends_with('/')) made.endpoint.pop_back();
  return made;
}

}  // namespace stele::inline v0::remote
