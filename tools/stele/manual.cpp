#include "manual.hpp"

#include <cctype>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <stele/recorders/any.hpp>

#include "commands.hpp"

namespace stele::command {

namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// Returns the options that the help lists.
std::vector<const CLI::Option*> listed_options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

bool is_positional(const CLI::Option& option) { return option.get_positional() && option.get_lnames().empty(); }
bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

/// Returns the words that an option accepts; CLI11's IsMember describes them as "{a,b}".
std::vector<std::string> choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  const std::size_t close = type.rfind('}');
  std::vector<std::string> words;
  if (open == type.npos || close == type.npos) return words;
  for (std::size_t begin = open + 1; begin <= close;) {
    const std::size_t end = std::min(type.find(',', begin), close);
    words.push_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Returns every spelling of an option: "-q --quiet".
std::string spellings(const CLI::Option& option) {
  std::string text;
  for (const std::string& name : option.get_snames()) text += (text.empty() ? "-" : " -") + name;
  for (const std::string& name : option.get_lnames()) text += (text.empty() ? "--" : " --") + name;
  return text;
}

// ---- the manual page

/// Escapes characters that roff interprets.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool begins_line = out.empty() || out.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '^') {
      out += "\\(ha";
    } else {
      out += c;
    }
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string option_term(const CLI::Option& option) {
  std::string term;
  for (const std::string& name : option.get_snames())
    term += (term.empty() ? "\\fB" : ", \\fB") + roff("-" + name) + "\\fR";
  for (const std::string& name : option.get_lnames())
    term += (term.empty() ? "\\fB" : ", \\fB") + roff("--" + name) + "\\fR";
  if (is_flag(option)) return term;
  const auto words = choices(option);
  return term + " \\fI" +
         (words.empty() ? upper(option.get_lnames().empty() ? "" : roff(option.get_lnames().front()))
                        : roff(joined(words))) +
         "\\fR";
}

std::string command_section(const CLI::App& sub) {
  std::string text = ".SS stele " + roff(sub.get_name());
  for (const CLI::Option* option : listed_options(sub)) {
    if (!is_positional(*option)) continue;
    const std::string name = upper(option->get_name(true));
    text += " " + (option->get_required() ? name : "[" + name + "]");
  }
  text += "\n" + roff(sub.get_description()) + ".\n";
  for (const CLI::Option* option : listed_options(sub)) {
    text += ".TP\n" +
            (is_positional(*option) ? "\\fI" + upper(option->get_name(true)) + "\\fR" : option_term(*option)) + "\n" +
            roff(option->get_description()) + "\n";
  }
  const std::string footer = sub.get_footer();
  std::string_view examples = footer;
  if (const std::size_t line = examples.find('\n'); line != examples.npos) {
    text += ".PP\nExamples:\n.PP\n.nf\n.RS\n";
    examples.remove_prefix(line + 1);
    while (!examples.empty()) {
      const std::size_t end = std::min(examples.find('\n'), examples.size());
      std::string_view example = examples.substr(0, end);
      while (example.starts_with(' ')) example.remove_prefix(1);
      text += roff(example) + "\n";
      examples.remove_prefix(std::min(end + 1, examples.size()));
    }
    text += ".RE\n.fi\n";
  }
  return text;
}

// ---- completion

/// Quotes for single quotes of a shell; `quote` replaces each one.
std::string quoted(std::string_view text, std::string_view quote) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += quote : out += c;
  return out + "'";
}

/// Returns the words that complete a value of the option; empty for files and free text.
std::vector<std::string> completions(const CLI::App& app, const CLI::Option& option) {
  if (auto words = choices(option); !words.empty()) return words;
  std::vector<std::string> words;
  if (option.check_lname("to")) {
    for (const Format* format : stele::formats()) {
      if (format->writes()) words.emplace_back(format->name());
    }
  } else if (option.check_lname("precision")) {
    words = precision_names();
  } else if (option.check_lname("quantize")) {
    words = scheme_names();
  } else if (option.get_name(true) == "command") {
    for (const CLI::App* sub : subcommands(app)) words.push_back(sub->get_name());
  }
  return words;
}

std::string bash_script(const CLI::App& app) {
  std::string names, cases;
  for (const CLI::App* sub : subcommands(app)) {
    names += (names.empty() ? "" : " ") + sub->get_name();
    std::string options, values, words;
    for (const CLI::Option* option : listed_options(*sub)) {
      const std::string all = spellings(*option);
      const auto accepted = completions(app, *option);
      if (is_positional(*option)) {
        if (!accepted.empty()) words = joined(accepted);  // of the first word
        continue;
      }
      options += (options.empty() ? "" : " ") + all;
      if (accepted.empty()) continue;
      std::string pattern = all;
      for (std::size_t at = 0; (at = pattern.find(' ', at)) != pattern.npos;) pattern.replace(at, 1, "|");
      values += "        " + pattern + ") words='" + joined(accepted) + "' ;;\n";
    }
    cases.append("    ").append(sub->get_name()).append(")\n      options='").append(options);
    cases.append("'\n      if [ \"$COMP_CWORD\" -eq 2 ]; then words='").append(words).append("'; fi\n");
    cases.append("      case $previous in\n").append(values);
    cases.append("        *) ;;\n      esac ;;\n");
  }
  return "# bash completion for stele\n"
         "_stele() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options='' words=''\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         names +
         " --help --version' -- \"$current\")\n"
         "    return\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  if [[ $current == -* ]]; then words=$options; fi\n"
         "  if [ -n \"$words\" ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "  else\n"
         "    compopt -o default 2>/dev/null\n"
         "  fi\n"
         "}\n"
         "complete -F _stele stele\n";
}

/// Escapes the text of an option for _arguments, which interprets `[`, `]` and `:`.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const CLI::App& app) {
  constexpr std::string_view quote = "'\\''";
  std::string commands, cases;
  for (const CLI::App* sub : subcommands(app)) {
    commands += "    " + quoted(sub->get_name() + ":" + zsh_text(sub->get_description()), quote) + "\n";
    cases += "    " + sub->get_name() + ")\n      _arguments -s";
    std::string first;
    for (const CLI::Option* option : listed_options(*sub)) {
      const auto accepted = completions(app, *option);
      const std::string action = accepted.empty() ? "_files" : "(" + joined(accepted) + ")";
      if (is_positional(*option)) {
        if (!accepted.empty()) first = "1:" + option->get_name(true) + ":" + action;
        continue;
      }
      for (const auto& [prefix, names] :
           {std::pair("-", option->get_snames()), std::pair("--", option->get_lnames())}) {
        for (const std::string& name : names) {
          std::string spec = prefix + name + "[" + zsh_text(option->get_description()) + "]";
          if (!is_flag(*option)) spec += ":value:" + action;
          cases += " \\\n        " + quoted(spec, quote);
        }
      }
    }
    if (!first.empty()) cases += " \\\n        " + quoted(first, quote);
    cases += " \\\n        '*:file:_files' ;;\n";
  }
  return "#compdef stele\n"
         "_stele() {\n"
         "  local -a commands\n"
         "  commands=(\n" +
         commands +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  (( CURRENT-- ))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _stele ]; then _stele \"$@\"; else compdef _stele stele; fi\n";
}

std::string fish_script(const CLI::App& app) {
  constexpr std::string_view quote = "\\'";
  std::string text = "# fish completion for stele\n";
  for (const CLI::App* sub : subcommands(app)) {
    text += "complete -c stele -f -n __fish_use_subcommand -a " + sub->get_name() + " -d " +
            quoted(sub->get_description(), quote) + "\n";
    for (const CLI::Option* option : listed_options(*sub)) {
      const auto accepted = completions(app, *option);
      const std::string seen = "complete -c stele -n '__fish_seen_subcommand_from " + sub->get_name();
      if (is_positional(*option)) {
        if (accepted.empty()) continue;
        text += seen + "; and test (count (commandline -opc)) -eq 2' -f -a " + quoted(joined(accepted), quote) + "\n";
        continue;
      }
      std::string line = seen + "'";
      for (const std::string& name : option->get_snames()) line += " -s " + name;
      for (const std::string& name : option->get_lnames()) line += " -l " + name;
      if (!is_flag(*option)) line += " -r";
      if (!accepted.empty()) line += " -f -a " + quoted(joined(accepted), quote);
      text += line + " -d " + quoted(option->get_description(), quote) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string text = ".TH STELE 1 \"\" \"" + app.version() +
                     "\" \"User Commands\"\n.SH NAME\nstele \\- looks at, converts, checks and compares model files\n";
  text += ".SH SYNOPSIS\n\\fBstele\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] \\fIFILE\\fR...\n";
  text +=
      ".SH DESCRIPTION\nReads and writes the files of trained models in every format that the library stele knows; "
      "\\fBstele formats\\fR lists them.\n"
      "The content decides the format of a file to read, the extension that of a file to write.\n";
  text += ".SH COMMANDS\n";
  for (const CLI::App* sub : subcommands(app)) text += command_section(*sub);
  text +=
      ".SH EXIT STATUS\n"
      ".TP\n0\nSuccess.\n"
      ".TP\n1\nThe answer is no: files differ, a file is damaged, tensors could not be recovered.\n"
      ".TP\n2\nWrong arguments, or an error.\n"
      ".TP\n130\nInterrupted.\n"
      ".SH ENVIRONMENT\n.TP\nNO_COLOR\nIf set and not empty, no colours are printed (unless \\fB\\-\\-color "
      "always\\fR).\n"
      ".TP\nTERM\nIf \\fBdumb\\fR, no colours are printed.\n";
  return text;
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_script(app);
  return shell == "zsh" ? zsh_script(app) : fish_script(app);
}

}  // namespace stele::command
